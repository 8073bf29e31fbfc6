package probe

import (
	"encoding/binary"
	"errors"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// launch measures what launches cost.
//
// Case: kind. launch: the host's time for a call. latency: from the call to the
// host's notice that the kernel is done, on an idle GPU. period: from one empty kernel
// of a stream to the next. gap: from the last instruction of a kernel to the first of
// the next, by kernels that take their own time. graph: the period inside a replayed
// graph. graph-launch: the host's time to launch such a graph of 64 kernels.
var launch = Probe{
	Key: "launch", Doc: "launch cost, gap between dependent kernels, graph replay", Share: 0.5, Duty: 1,
	Applicable: func(w *World) error { return w.needs("libnvrtc") },
	Cases: func(*World, Effort) []Case {
		var out []Case
		for _, kind := range []string{"launch", "latency", "period", "gap", "graph", "graph-launch"} {
			out = append(out, Case{"kind": kind})
		}
		return out
	},
	Prepare: prepareLaunch,
}

// launches is how many calls are timed together, graphNodes how many kernels a graph
// holds, spinCycles how long a kernel spins that takes its own time.
const launches, graphNodes, spinCycles = 100, 64, 20000

func prepareLaunch(_ *World, b *Bench, c Case) (Trial, error) {
	of := kernel("nothing", [3]int{1, 1, 1}, [3]int{32, 1, 1}, cuda.Work{})
	var own cuda.Buffer // the time that kernels took by their own clock, ns
	if c["kind"] == "gap" {
		var err error
		if own, err = b.Shared("own time", 8); err != nil {
			return Trial{}, err
		}
		of = kernel("spin", [3]int{1, 1, 1}, [3]int{1, 1, 1}, cuda.Work{Seconds: 10e-6}, uint64(spinCycles), own)
	}
	op, err := b.GPU.Kernel(b.Stream, of)
	if err != nil {
		return Trial{}, err
	}
	if err := errors.Join(op.Enqueue(10), b.Stream.Sync()); err != nil {
		return Trial{}, err
	}
	run := op
	if c["kind"] == "graph" || c["kind"] == "graph-launch" {
		if run, err = b.GPU.Capture(b.Stream, op, graphNodes); err != nil {
			return Trial{}, err
		}
		if err := errors.Join(run.Enqueue(2), b.Stream.Sync()); err != nil {
			return Trial{}, err
		}
	}
	// device is the time of n executions on the device.
	device := func(n int) (float64, error) {
		r, err := b.Time(run, n, false)
		if err != nil {
			return 0, err
		}
		return r.Seconds[0] * float64(n), nil
	}
	// host is the time that the host spends on n calls.
	host := func(n int, wait bool) (float64, error) {
		start := b.Driver.Now()
		err := run.Enqueue(n)
		if wait && err == nil {
			err = b.Stream.Sync()
		}
		t := b.Driver.Now().Sub(start).Seconds()
		return t, errors.Join(err, b.Stream.Sync())
	}
	period := func() (float64, error) { // without what the first one takes more
		many, err := device(launches)
		few, err2 := device(launches / 4)
		return max(many-few, 0) / (launches - launches/4), errors.Join(err, err2)
	}
	once := map[string]func() (float64, error){
		"launch":  func() (float64, error) { t, err := host(launches, false); return t / launches, err },
		"latency": func() (float64, error) { return host(1, true) },
		"period":  period,
		"gap": func() (float64, error) {
			if err := b.GPU.Write(own, make([]byte, 8)); err != nil {
				return 0, err
			}
			p, err := period()
			if err != nil {
				return 0, err
			}
			ns, err := b.GPU.Read(own, 8)
			if err != nil {
				return 0, err
			}
			return p - float64(binary.LittleEndian.Uint64(ns))*1e-9/(launches+launches/4), nil
		},
		"graph": func() (float64, error) {
			many, err := device(5)
			few, err2 := device(1)
			return max(many-few, 0) / (4 * graphNodes), errors.Join(err, err2)
		},
		"graph-launch": func() (float64, error) { t, err := host(5, false); return t / 5, err },
	}[c["kind"]]
	return Trial{
		Once: func(watch bool) (Reading, error) {
			t, err := once()
			r := Reading{Seconds: []float64{t}}
			if err == nil && watch {
				r.Telemetry, err = b.watch()
			}
			return r, err
		},
		Close: func() error {
			if run != op {
				return errors.Join(run.Close(), op.Close())
			}
			return op.Close()
		},
	}, nil
}

// copies measures transfers between host and device.
//
// Case: direction (h2d, d2h), pinned (true, false), bytes. From pageable memory the
// host takes part, so its clock is taken there.
var copies = Probe{
	Key: "copy", Doc: "copies between host and device, pinned and pageable", Share: 1, Duty: 1,
	Cases: func(_ *World, e Effort) []Case {
		sizes := []int64{4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20}
		if e == Quick {
			sizes = []int64{64 << 10, 16 << 20, 64 << 20}
		}
		var out []Case
		for _, direction := range []string{"h2d", "d2h"} {
			for _, pinned := range []string{"true", "false"} {
				for _, n := range sizes {
					if pinned == "true" || n <= 64<<20 {
						out = append(out, Case{"direction": direction, "pinned": pinned, "bytes": itoa(n)})
					}
				}
			}
		}
		return out
	},
	Prepare: func(_ *World, b *Bench, c Case) (Trial, error) {
		n, pinned := c.num("bytes"), c["pinned"] == "true"
		device, err := b.GPU.Alloc(n)
		if err != nil {
			return Trial{}, err
		}
		host, err := b.GPU.AllocHost(n, pinned)
		if err != nil {
			return Trial{}, errors.Join(err, device.Close())
		}
		dst, src := device, host
		if c["direction"] == "d2h" {
			dst, src = host, device
		}
		op, err := b.GPU.Copy(b.Stream, dst, src, n)
		if err != nil {
			return Trial{}, errors.Join(err, device.Close(), host.Close())
		}
		free := func() error { return errors.Join(b.Stream.Sync(), op.Close(), device.Close(), host.Close()) }
		if pinned {
			t, err := b.Trial(op)
			if err != nil {
				return t, errors.Join(err, free())
			}
			t.Close = free
			return t, nil
		}
		once := func(watch bool) (Reading, error) {
			start := b.Driver.Now()
			err := errors.Join(op.Enqueue(1), b.Stream.Sync())
			return Reading{Seconds: []float64{b.Driver.Now().Sub(start).Seconds()}}, err
		}
		if _, err := once(false); err != nil {
			return Trial{}, errors.Join(err, free())
		}
		return Trial{Once: once, Close: free}, nil
	},
	Verify: func(_ *World, b *Bench) error {
		want := bf16Bytes(ramp(4096, 251))
		x, err := b.Alloc(int64(len(want)))
		if err != nil {
			return err
		}
		y, err := b.Alloc(int64(len(want)))
		if err != nil {
			return err
		}
		if err := b.GPU.Write(x, want); err != nil {
			return err
		}
		op, err := b.GPU.Copy(b.Stream, y, x, int64(len(want)))
		if err != nil {
			return err
		}
		if err := errors.Join(op.Enqueue(1), b.Stream.Sync()); err != nil {
			return err
		}
		got, err := b.GPU.Read(y, int64(len(want)))
		if err == nil && string(got) != string(want) {
			err = errors.New("a copy on the device brought other bytes")
		}
		return err
	},
}
