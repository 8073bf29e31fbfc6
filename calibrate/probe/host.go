package probe

import (
	_ "embed"
	"errors"
	"go/format"
	"runtime"
	"runtime/debug"
)

// hostText is what the host formats. It stays as it is: its time counts against that of
// the reference machine.
//
//go:embed host.txt
var hostText []byte

// hostRuns is how often the text is formatted in one reading, some 30 ms in all.
const hostRuns = 25

// host measures how fast the host runs code of the kind that frameworks are made of:
// many small functions, calls through tables, allocations, and neither loops nor waits.
// What hosts differ in is what such code meets: on hosts that share their cores with
// others it takes 1.7 to 2 times as long, as Python and PyTorch's dispatcher do,
// where chains of arithmetic take 1.3 times, reads from memory 1.2 times and the driver's
// calls 1.2 to 1.5 times.
//
// Virtual machines share their cores: on one of an H200 readings of half a second were
// 1.91 and, three minutes later, 1.27 ms, and steps that waited for it as far apart
// (2026-11-27). So it is read again and again.
//
// Case: code, after. format: one run of gofmt over a file of 8 kB, without its garbage
// collection; after: the probe before it, if that is not the first reading.
var host = Probe{
	Key: "host", Doc: "how fast the host runs code like a framework's", Share: 1, Duty: 1, Again: true,
	Cases: func(*World, Effort) []Case { return []Case{{"code": "format"}} },
	Prepare: func(_ *World, b *Bench, _ Case) (Trial, error) {
		return Trial{
			Once: func(watch bool) (Reading, error) {
				t, err := b.hostTime()
				r := Reading{Seconds: []float64{t / hostRuns}}
				if err == nil && watch {
					r.Telemetry, err = b.watch()
				}
				return r, err
			},
			Close: func() error { return nil },
		}, nil
	},
	Verify: func(*World, *Bench) error {
		out, err := format.Source(hostText)
		if err == nil && string(out) != string(hostText) {
			err = errors.New("the host formats a text otherwise than it should")
		}
		return err
	},
}

// hostTime is the time of hostRuns runs, s.
func (b *Bench) hostTime() (seconds float64, err error) {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	start := b.Driver.Now()
	b.Driver.Run(func() {
		for range hostRuns {
			if _, e := format.Source(hostText); e != nil {
				err = e
			}
		}
	})
	return b.Driver.Now().Sub(start).Seconds(), err
}
