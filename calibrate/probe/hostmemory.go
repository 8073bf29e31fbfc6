package probe

import (
	"bytes"
	"errors"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
)

// hostBytes is what all threads of a host copy in one reading: far more than caches hold,
// whatever their number. hostMoved is what its memory then moves: what is copied, and what
// is overwritten both ways, since stores fetch the lines that they write to.
const (
	hostBytes = 2 << 30
	hostMoved = 3 * hostBytes
)

// hostMemory measures how fast the host's memory is read and written, which is what an
// update that is left to the host waits for.
//
// Case: threads, bytes that memory moves for them. Each thread copies its part of 2 GiB from
// one piece of memory that it was the first to touch to another: 1, which one core's loads
// and stores bound, and all that the operating system lets this process run at once.
var hostMemory = Probe{
	Key: "host-memory", Doc: "how fast the host's memory is read and written", Share: 1, Duty: 1,
	Cases: func(*World, Effort) []Case {
		moved := strconv.Itoa(hostMoved)
		out := []Case{{"threads": "1", "bytes": moved}}
		if n := runtime.GOMAXPROCS(0); n > 1 {
			out = append(out, Case{"threads": strconv.Itoa(n), "bytes": moved})
		}
		return out
	},
	Prepare: func(_ *World, b *Bench, c Case) (Trial, error) {
		n, err := strconv.Atoi(c["threads"])
		if err != nil || n < 1 {
			return Trial{}, errors.New("threads: not a number from 1 on")
		}
		var m hostCopy
		b.Driver.Run(func() { m = newHostCopy(n, hostBytes) })
		return Trial{
			Once: func(watch bool) (Reading, error) {
				start := b.Driver.Now()
				b.Driver.Run(func() { m.run() })
				r := Reading{Seconds: []float64{b.Driver.Now().Sub(start).Seconds()}}
				var err error
				if watch {
					r.Telemetry, err = b.watch()
				}
				return r, err
			},
			Close: func() error {
				m = hostCopy{}
				debug.FreeOSMemory()
				return nil
			},
		}, nil
	},
	Verify: func(*World, *Bench) error {
		m := newHostCopy(3, 3*(page+3))
		for i := range m.from {
			m.from[i][page+i] = byte(7 + i)
		}
		m.run()
		for i := range m.from {
			if !bytes.Equal(m.from[i], m.to[i]) {
				return errors.New("the host's copies differ from what they are copies of")
			}
		}
		return nil
	},
}

// hostCopy are pieces of memory, one for each thread, and their copies.
type hostCopy struct{ from, to [][]byte }

// page is the least that an operating system hands out.
const page = 4096

// newHostCopy cuts so many bytes over n threads. Memory is where the thread is that first
// writes to its pages.
func newHostCopy(n, size int) hostCopy {
	m := hostCopy{make([][]byte, n), make([][]byte, n)}
	m.each(func(i int) {
		m.from[i], m.to[i] = make([]byte, size/n), make([]byte, size/n)
		for k := 0; k < size/n; k += page {
			m.from[i][k], m.to[i][k] = 1, 2
		}
	})
	return m
}

// run copies all pieces at once.
func (m hostCopy) run() { m.each(func(i int) { copy(m.to[i], m.from[i]) }) }

func (m hostCopy) each(do func(i int)) {
	var all sync.WaitGroup
	for i := range m.from {
		all.Go(func() {
			do(i)
		})
	}
	all.Wait()
}
