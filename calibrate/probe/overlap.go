package probe

import (
	"errors"
	"slices"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// overlap measures how a matrix multiply or a memory-bound kernel and a collective
// slow each other down while both run.
//
// Case: what (gemm, copy, none), op (a collective, none), bytes, gpus, side (compute,
// comm: whose time it is). The cases with none give the time alone.
var overlap = Probe{
	Key: "overlap", Doc: "slowdown of compute and collectives by each other", Share: 2, Duty: 0.5, Group: true,
	Applicable: func(w *World) error { return errors.Join(needsGroup(w), w.needs("libcublasLt", "libnvrtc")) },
	Cases: func(w *World, e Effort) []Case {
		ops := []string{"all-gather", "reduce-scatter", "all-reduce"}
		kinds := []string{"gemm", "copy"}
		n := itoa(int64(w.ranks))
		bytes := itoa(overlapBytes)
		var out []Case
		for _, what := range kinds {
			out = append(out, Case{"what": what, "op": "none", "bytes": bytes, "gpus": n, "side": "compute"})
		}
		for _, op := range ops {
			out = append(out, Case{"what": "none", "op": op, "bytes": bytes, "gpus": n, "side": "comm"})
			for _, what := range kinds {
				for _, side := range []string{"compute", "comm"} {
					out = append(out, Case{"what": what, "op": op, "bytes": bytes, "gpus": n, "side": side})
				}
			}
		}
		return out
	},
	Setup: func(w *World, _ *Bench, _ []Case) error {
		if err := groupBuffers(w, overlapBytes); err != nil {
			return err
		}
		for _, b := range w.Benches {
			if err := errors.Join(gemmSetup(w, b, []Case{powerGEMM(b)}), memorySetup(w, b, []Case{{"bytes": itoa(powerBytes)}})); err != nil {
				return err
			}
		}
		return nil
	},
	Prepare: prepareOverlap,
}

// overlapBytes is the size of a collective that lasts as long as several kernels.
const overlapBytes = 256 << 20

func prepareOverlap(w *World, _ *Bench, c Case) (Trial, error) {
	var comm cuda.Op
	var compute []cuda.Op
	var side []cuda.Stream // of the computation; the group has the benches' own
	closeAll := func() error {
		var errs []error
		if comm != nil {
			errs = append(errs, comm.Close())
		}
		for _, op := range compute {
			errs = append(errs, op.Close())
		}
		for _, s := range side {
			errs = append(errs, s.Close())
		}
		return errors.Join(errs...)
	}
	fail := func(err error) (Trial, error) { return Trial{}, errors.Join(err, closeAll()) }
	if c["op"] != "none" {
		var err error
		if _, comm, err = groupOp(w, c["op"], c.num("bytes"), int(c.num("gpus"))); err != nil {
			return fail(err)
		}
	}
	benches := w.Benches
	if c["what"] == "none" {
		benches = nil
	}
	for _, b := range benches {
		s, err := b.GPU.Stream()
		if err != nil {
			return fail(err)
		}
		side = append(side, s)
		var op cuda.Op
		if c["what"] == "gemm" {
			op, err = gemmOp(b, s, powerGEMM(b))
		} else {
			op, err = vectors("copy_any", 8, "xz", 4)(b, s, &operands{b.shared["x"], b.shared["y"], b.shared["z"]}, powerBytes/4/row*row)
		}
		if err != nil {
			return fail(err)
		}
		compute = append(compute, op)
	}
	// What is timed runs a few times while the other side runs long enough to cover it.
	const timed, cover = 3, 12
	k, m := timed, cover
	if c["side"] == "comm" {
		k, m = cover, timed
	}
	streams := slices.Concat(side, streamsOf(w.Benches))
	var meet func() error
	if comm != nil {
		meet = func() error { return comm.Enqueue(1) }
	}
	queue := func(k, m int) error {
		if comm != nil {
			if err := comm.Enqueue(m); err != nil {
				return err
			}
		}
		for _, op := range compute {
			if err := op.Enqueue(k); err != nil {
				return err
			}
		}
		return nil
	}
	warm := false
	return Trial{All: true, Close: closeAll, Once: func(watch bool) (Reading, error) {
		var r Reading
		if !warm {
			warm = true
			if err := queue(1, 1); err != nil { // loads kernels and connects, for which a held stream would wait
				return r, err
			}
			if err := syncAll(streams); err != nil {
				return r, err
			}
		}
		times, err := w.timed(streams, meet, func() error { return queue(k, m) })
		if err != nil {
			return r, err
		}
		mine, n := times[:len(side)], k
		if c["side"] == "comm" {
			mine, n = times[len(side):], m
		}
		for _, t := range mine {
			r.Busy = max(r.Busy, t)
		}
		r.Seconds = []float64{r.Busy / float64(n)}
		if watch {
			r.Telemetry, err = w.Benches[0].watch()
		}
		return r, err
	}}, nil
}
