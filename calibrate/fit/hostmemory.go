package fit

import (
	"strconv"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
)

const (
	// adamBytes is what torch's fused AdamW moves of a value in fp32: reads of weight, gradient
	// and two moments, writes of all but the gradient. It moves them about as fast as probe
	// host-memory copies: on two hosts of H100 (16 and 32 cores, 2026-11-25) with 1, 2, 4, 8, 16
	// and 32 threads the law says 0.88 to 1.28 times what an update took.
	adamBytes = 28
	// measuredUpdate is the relative standard deviation of these eleven; ten updates within
	// steps of FSDP2 were within 10 % of a law that was fitted to them.
	measuredUpdate = 0.12
)

// hostMemory makes the law of updates by the host from how fast one thread and all of them
// move memory. Both take adamBytes of a value at the rate at which they copy.
func (x *fitter) hostMemory() {
	var one, all float64 // B/s
	var threads int64    // of all
	cases := x.alone("host-memory")
	for i := range cases {
		p := &cases[i]
		n, err := strconv.ParseInt(p.of["threads"], 10, 64)
		moved, ok := p.number("bytes")
		switch rate := moved / p.seconds; {
		case err != nil || n < 1 || !ok:
			x.drop("host-memory", p, "threads or bytes cannot be read")
		case n == 1:
			one = rate
		case n > threads:
			threads, all = n, rate
		}
	}
	have := 0
	for _, rate := range []float64{one, all} {
		if rate > 0 {
			have++
		}
	}
	if x.missing("host-memory", "the host's memory is", have, 2) {
		return
	}
	const source = "perfplan calibrate, probe host-memory"
	law := *x.base.Laws.Offload
	// adamBytes/rate = 1/(threads · update) + adamBytes/memory, of one and of all; neither part
	// is nothing, though threads that all go as fast as one say so of memory
	alone, together := adamBytes/one, adamBytes/all
	work := max(alone-together, 0) / (1 - 1/float64(threads))
	law.Update = 1 / max(work, alone/100)
	law.Memory, law.Spread, law.Source = 1, measuredUpdate, source
	x.own.Offload = &law
	x.node.HostRate = measured(units.Rate(adamBytes/max(alone-work, together/4)), source)
	if x.base.Node.Cores.Value == 0 {
		x.node.Cores = measured(threads, source)
	}
	x.probe("host-memory").Points = len(cases)
}

// measured is a fact of the machine that samples show.
func measured[T comparable](v T, source string) hardware.Datum[T] {
	d := hardware.Of(v)
	d.Source, d.Kind = source, hardware.Measured
	return d
}
