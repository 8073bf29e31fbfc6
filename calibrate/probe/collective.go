package probe

import (
	"errors"
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// collective measures NCCL over groups of the first GPUs.
//
// Case: op, bytes (nccl-tests' size: the larger of what a rank gives and gets), gpus,
// nodes where there are several, graph (true, false), dtype. Seconds is the slowest
// local member's.
var collective = Probe{
	Key: "collective", Doc: "NCCL operations by size and group, eager and in a graph", Share: 8, Duty: 1, Group: true,
	Applicable: needsGroup,
	Cases:      collectiveCases,
	Setup: func(w *World, _ *Bench, cases []Case) error {
		var most int64
		for _, c := range cases {
			most = max(most, c.num("bytes"))
		}
		return groupBuffers(w, most)
	},
	Prepare: prepareCollective,
	Verify:  verifyCollectives,
}

func needsGroup(w *World) error {
	if w.ranks < 2 {
		return &cuda.Unavailable{Text: "collectives need two GPUs"}
	}
	return w.needs("libnccl")
}

func collectiveCases(w *World, e Effort) []Case {
	var sizes []int64
	for n := int64(1 << 10); n <= 1<<30; {
		sizes = append(sizes, n)
		if n < 1<<20 {
			n *= 4
		} else {
			n *= 2
		}
	}
	ops := cuda.Collectives
	if e == Quick {
		sizes = []int64{4 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20}
		ops = []string{"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv"}
	}
	var out []Case
	for _, n := range w.groups() {
		for _, op := range ops {
			if op == "send-recv" && n != 2 {
				continue // of pairs, whatever the group
			}
			for _, bytes := range sizes {
				for _, graph := range []string{"false", "true"} {
					if graph == "true" && e == Quick || 2*bytes > Room(w.device()) {
						continue
					}
					c := Case{"op": op, "bytes": itoa(bytes), "gpus": itoa(int64(n)), "graph": graph, "dtype": "bf16"}
					if nodes := w.nodes(n); nodes > 1 {
						c["nodes"] = itoa(int64(nodes))
					}
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// groupBuffers allocates what every GPU gives and gets.
func groupBuffers(w *World, bytes int64) error {
	for _, b := range w.Benches {
		for seed, purpose := range []string{"in", "out"} {
			m, err := b.Shared(purpose, bytes)
			if err != nil {
				return err
			}
			if err := b.Randomize(m, "bf16", uint64(seed)<<40); err != nil {
				return err
			}
		}
	}
	return nil
}

// groupOp prepares an operation of the first n GPUs; nil where this process has none
// of them.
func groupOp(w *World, op string, bytes int64, n int) (cuda.Comm, cuda.Op, error) {
	c, err := w.comm(n)
	if err != nil || c == nil {
		return nil, nil, err
	}
	k := cuda.Collective{Op: op, Bytes: bytes / int64(2*n) * int64(2*n)} // whole elements for each
	for _, b := range w.Benches[:w.locals(n)] {
		k.In, k.Out = append(k.In, b.shared["in"]), append(k.Out, b.shared["out"])
	}
	prepared, err := c.Collective(k)
	return c, prepared, err
}

// batchOf is how many executions are timed together; the same in all processes.
func batchOf(bytes int64) int {
	switch {
	case bytes <= 1<<20:
		return 20
	case bytes <= 16<<20:
		return 10
	case bytes <= 128<<20:
		return 4
	}
	return 2
}

func prepareCollective(w *World, _ *Bench, c Case) (Trial, error) {
	n, bytes := int(c.num("gpus")), c.num("bytes")
	comm, op, err := groupOp(w, c["op"], bytes, n)
	if err != nil {
		return Trial{}, err
	}
	benches := w.Benches[:w.locals(n)]
	streams := streamsOf(benches)
	batch := batchOf(bytes)
	warm := false
	var graph cuda.Op
	warmUp := func() error {
		if err := enqueue(op, 2, streams); err != nil || c["graph"] != "true" {
			return err
		}
		var err error
		if graph, err = comm.Capture(op, batch); err != nil {
			return err
		}
		return enqueue(graph, 1, streams)
	}
	once := func(watch bool) (Reading, error) {
		var r Reading
		if op == nil {
			return r, nil
		}
		if !warm {
			warm = true
			if err := warmUp(); err != nil {
				return r, err
			}
		}
		times, err := w.timed(streams, func() error { return op.Enqueue(1) }, func() error {
			if graph != nil {
				return graph.Enqueue(1)
			}
			return op.Enqueue(batch)
		})
		if err != nil {
			return r, err
		}
		r.Busy = slices.Max(times)
		r.Seconds = []float64{r.Busy / float64(batch)}
		if watch {
			r.Telemetry, err = benches[0].watch()
		}
		return r, err
	}
	return Trial{Once: once, All: true, Close: func() error {
		var errs []error
		if graph != nil {
			errs = append(errs, graph.Close())
		}
		if op != nil {
			errs = append(errs, op.Close())
		}
		return errors.Join(errs...)
	}}, nil
}

// verifyCollectives checks each operation over all GPUs on whole numbers that tell
// the ranks apart.
func verifyCollectives(w *World, _ *Bench) error {
	n := w.ranks
	part := int64(64)
	bytes := 2 * part * int64(n)
	if err := groupBuffers(w, max(bytes, 4096)); err != nil {
		return err
	}
	value := func(rank, i int) float32 { return float32(rank%8 + i%16) }
	for _, name := range cuda.Collectives {
		if name == "send-recv" && n%2 != 0 {
			continue
		}
		for r, b := range w.Benches {
			v := make([]float32, part*int64(n))
			for i := range v {
				v[i] = value(w.first+r, i)
			}
			if err := errors.Join(b.GPU.Write(b.shared["in"], bf16Bytes(v)), b.GPU.Write(b.shared["out"], make([]byte, bytes))); err != nil {
				return err
			}
		}
		_, op, err := groupOp(w, name, bytes, n)
		if err != nil {
			return err
		}
		if err := op.Enqueue(1); err != nil {
			return err
		}
		for r, b := range w.Benches {
			if err := b.Stream.Sync(); err != nil {
				return err
			}
			raw, err := b.GPU.Read(b.shared["out"], bytes)
			if err != nil {
				return err
			}
			for i, got := range bf16Floats(raw) {
				if want, ok := expected(name, n, w.first+r, i, int(part), value); ok && got != want {
					return fmt.Errorf("%s over %d GPUs: rank %d got %g as element %d, not %g", name, n, w.first+r, got, i, want)
				}
			}
		}
		if err := op.Close(); err != nil {
			return err
		}
	}
	return nil
}

// expected is element i of what a rank gets, where it gets one.
func expected(op string, n, rank, i, part int, value func(rank, i int) float32) (float32, bool) {
	sum := func(i int) (s float32) {
		for r := range n {
			s += value(r, i)
		}
		return toBF16(s)
	}
	switch op {
	case "all-reduce":
		return sum(i), true
	case "reduce-scatter":
		return sum(rank*part + i), i < part
	case "all-gather":
		return value(i/part, i%part), true
	case "all-to-all":
		return value(i/part, rank*part+i%part), true
	case "broadcast":
		return value(0, i), true
	case "send-recv":
		return value(rank-1, i), rank%2 == 1
	}
	return 0, false
}
