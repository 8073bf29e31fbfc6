package probe

import (
	"errors"
	"time"

	"github.com/perfplan/perfplan/calibrate/cuda"
	"github.com/perfplan/perfplan/calibrate/sample"
)

// power measures what kinds of work draw and what the power limit makes of their
// clock, in loops long enough for the limit to act; in short bursts with pauses for
// the clock without it.
//
// Case: class (idle, memory, issue, gemm, mix: products and copies by turns, comm: an
// all-reduce), mode (burst, sustained), gpus (1, or all at once). Seconds is one
// execution of the class's kernels, for idle 0.
var power = Probe{
	Key: "power", Doc: "power and clocks by kind of work, sustained and in bursts", Share: 3, Duty: 1, Once: true,
	Applicable: func(w *World) error { return w.needs("libnvrtc", "libcublasLt") },
	Cases: func(w *World, e Effort) []Case {
		classes := []string{"idle", "memory", "issue", "gemm"}
		if e == Full {
			classes = append(classes, "mix")
		}
		var out []Case
		for _, class := range classes {
			out = append(out, Case{"class": class, "mode": sample.Sustained, "gpus": "1"})
			if class != "idle" && class != "mix" {
				out = append(out, Case{"class": class, "mode": sample.Burst, "gpus": "1"})
			}
			if class == "gemm" && len(w.Benches) > 1 {
				out = append(out, Case{"class": class, "mode": sample.Sustained, "gpus": itoa(int64(len(w.Benches)))})
			}
		}
		if w.Peers == nil && needsGroup(w) == nil {
			out = append(out, Case{"class": "comm", "mode": sample.Sustained, "gpus": itoa(int64(w.ranks))})
		}
		return out
	},
	Setup: func(w *World, b *Bench, _ []Case) error {
		for _, b := range powerBenches(w, b, true) {
			if err := errors.Join(gemmSetup(w, b, []Case{powerGEMM(b)}), memorySetup(w, b, []Case{{"bytes": itoa(powerBytes)}})); err != nil {
				return err
			}
		}
		if w.Peers == nil && needsGroup(w) == nil {
			return groupBuffers(w, overlapBytes)
		}
		return nil
	},
	Prepare: preparePower,
}

// powerBytes is moved by the memory-bound kernels of the probe, many times the
// second-level cache.
const powerBytes = 768 << 20

// powerGEMM is a product at the library's best rate.
func powerGEMM(b *Bench) Case {
	dtype := "bf16"
	if b.GPU.Device().Capability[0] < 8 {
		dtype = "fp16"
	}
	return Case{"m": "8192", "n": "8192", "k": "4096", "layout": "fprop", "dtype": dtype}
}

// powerBenches are the GPUs that work: this one, or all.
func powerBenches(w *World, b *Bench, all bool) []*Bench {
	if all && len(w.Benches) > 1 {
		return w.Benches
	}
	return []*Bench{b}
}

// powerOps are the kernels of a class on a GPU.
func powerOps(b *Bench, class string) ([]cuda.Op, error) {
	m := &operands{b.shared["x"], b.shared["y"], b.shared["z"]}
	var ops []cuda.Op
	add := func(op cuda.Op, err error) error {
		if err == nil {
			ops = append(ops, op)
		}
		return err
	}
	var err error
	switch class {
	case "memory":
		err = add(vectors("add_bf16", 8, "xyz", 6)(b, b.Stream, m, powerBytes/6/row*row))
	case "issue":
		err = add(strided("strided_bf16", broadcastOffsets(2))(b, b.Stream, m, powerBytes/4/row*row))
	case "gemm":
		err = add(gemmOp(b, b.Stream, powerGEMM(b)))
	case "mix":
		err = errors.Join(add(gemmOp(b, b.Stream, powerGEMM(b))), add(vectors("add_bf16", 8, "xyz", 6)(b, b.Stream, m, powerBytes/6/row*row)))
	}
	return ops, err
}

// Times of the loops, s: long enough for the limit, which averages over tens of
// milliseconds, and for the reading of power; a first part is left out.
const (
	sustainedTime = 2.0
	patience      = 10.0 // for slow GPUs, whose batches take longer
	settleTime    = 0.7
	batchSeconds  = 0.01
	burstPause    = 0.03
	bursts        = 20
)

func preparePower(w *World, b *Bench, c Case) (Trial, error) {
	benches := powerBenches(w, b, c["gpus"] != "1")
	var ops [][]cuda.Op
	closeAll := func() error {
		var errs []error
		for _, list := range ops {
			for _, op := range list {
				errs = append(errs, op.Close())
			}
		}
		return errors.Join(errs...)
	}
	for i, b := range benches {
		list, err := powerOps(b, c["class"])
		if c["class"] == "comm" && i == 0 { // one operation of all GPUs
			var op cuda.Op
			if _, op, err = groupOp(w, "all-reduce", overlapBytes, w.ranks); err == nil {
				list = []cuda.Op{op}
			}
		}
		ops = append(ops, list)
		for _, op := range list { // loads the kernels, for which a held stream would wait
			if err == nil {
				err = errors.Join(op.Enqueue(1), b.Stream.Sync())
			}
		}
		if err != nil {
			return Trial{}, errors.Join(err, closeAll())
		}
	}
	return Trial{Close: closeAll, All: len(benches) > 1, Once: func(bool) (Reading, error) {
		switch {
		case c["class"] == "idle":
			return idleReading(b)
		case c["mode"] == sample.Burst:
			return burstReading(b, ops[0][0])
		}
		return sustainedReading(benches, ops)
	}}, nil
}

// idleReading lets the GPU rest with its context up.
func idleReading(b *Bench) (Reading, error) {
	b.Driver.Sleep(time.Duration(settleTime * float64(time.Second)))
	var r Reading
	var t mean
	for range 10 {
		b.Driver.Sleep(20 * time.Millisecond)
		now, err := b.watch()
		if err != nil {
			return r, err
		}
		t.add(now)
	}
	r.Seconds, r.Telemetry = []float64{0}, t.result()
	return r, nil
}

// burstReading runs short batches with pauses between them.
func burstReading(b *Bench, op cuda.Op) (Reading, error) {
	var r Reading
	var t mean
	first, err := b.Time(op, 1, false)
	if err != nil {
		return r, err
	}
	n := min(max(int(2*batchTime/first.Seconds[0]), 1), maxBatch)
	for range bursts {
		b.Driver.Sleep(time.Duration(burstPause * float64(time.Second)))
		one, err := b.Time(op, n, true)
		if err != nil {
			return r, err
		}
		r.Seconds = append(r.Seconds, one.Seconds...)
		t.add(one.Telemetry)
	}
	r.Telemetry = t.result()
	return r, nil
}

// sustainedReading keeps GPUs busy and reads clocks and power of the first meanwhile.
// Two batches are always queued, so that the GPUs never wait.
func sustainedReading(benches []*Bench, ops [][]cuda.Op) (Reading, error) {
	var r Reading
	var t mean
	var one float64 // s of one turn of the ops
	for _, op := range ops[0] {
		first, err := benches[0].Time(op, 2, false)
		if err != nil {
			return r, err
		}
		one += first.Seconds[0]
	}
	n := min(max(int(batchSeconds/one), 1), maxBatch/len(ops[0]))
	b := benches[0]
	start := b.Driver.Now()
	var marks []cuda.Mark
	defer func() {
		for _, m := range marks {
			m.Close()
		}
	}()
	for {
		m, err := queueTurns(benches, ops, n)
		if m != nil {
			marks = append(marks, m)
		}
		if err != nil {
			return r, err
		}
		passed := b.Driver.Now().Sub(start).Seconds()
		if k := len(marks); k >= 3 { // waits until only one batch is queued
			s, err := marks[k-2].Since(marks[k-3])
			if err != nil {
				return r, err
			}
			if passed > settleTime {
				r.Seconds = append(r.Seconds, s/float64(n))
				now, err := b.watch()
				if err != nil {
					return r, err
				}
				t.add(now)
			}
		}
		if passed > sustainedTime && len(r.Seconds) > 0 || passed > patience {
			break
		}
	}
	r.Telemetry = t.result()
	return r, syncAll(streamsOf(benches))
}

// queueTurns queues n turns of the ops of each GPU and returns a mark of where they end on the first.
func queueTurns(benches []*Bench, ops [][]cuda.Op, n int) (end cuda.Mark, err error) {
	for i, b := range benches {
		for range n {
			for _, op := range ops[i] {
				if err := op.Enqueue(1); err != nil {
					return end, err
				}
			}
		}
		if i == 0 {
			if end, err = b.Stream.Mark(); err != nil {
				return nil, err
			}
		}
	}
	return end, nil
}

// mean averages telemetry.
type mean struct {
	n float64
	t cuda.Telemetry
}

func (m *mean) add(t cuda.Telemetry) {
	m.n++
	m.t.ClockHz += t.ClockHz
	m.t.PowerW += t.PowerW
	m.t.TempC += t.TempC
	if t.Throttled != "" {
		m.t.Throttled = t.Throttled
	}
}

func (m *mean) result() cuda.Telemetry {
	t := m.t
	if m.n > 0 {
		t.ClockHz, t.PowerW, t.TempC = t.ClockHz/m.n, t.PowerW/m.n, t.TempC/m.n
	}
	return t
}
