package kernel

import (
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// cacheScale is how much more the cache of gpu holds.
func cacheScale(on, gpu *hardware.GPU) float64 {
	if on == nil || on.Cached() <= 0 || gpu.Cached() <= 0 {
		return 1
	}
	return float64(gpu.Cached() / on.Cached())
}

// cached is how much longer a curve's kernel takes for so many bytes, beyond its start,
// because this GPU's cache holds another share of them: as long for each byte as on the
// measured GPU where its cache held this share. A larger cache makes nothing slower.
func (c *classLaw) cached(b units.Bytes) float64 {
	l := c.law
	if c.cache == 1 || b <= l.Bytes[0] {
		return 1
	}
	moved := func(b units.Bytes) units.Seconds { return curve(l.Bytes, l.Time, b) - l.Time[0] }
	longer := c.cache * float64(moved(b/units.Bytes(c.cache))/moved(b))
	if c.cache > 1 {
		return min(longer, 1)
	}
	return max(longer, 1)
}

// servedScale is how much longer gpu takes to read what its cache holds; 0 where that is not known.
func servedScale(on, gpu *hardware.GPU) float64 {
	if on == nil || gpu.L2Rate.Value <= 0 {
		return 0
	}
	return float64(on.L2Rate.Value / gpu.L2Rate.Value)
}

// perByte is the least and the last time of a byte on a law's curve, beyond its start.
func perByte(l *hardware.KernelLaw) (out [2]float64) {
	for i := range l.Bytes {
		out[1] = float64(l.Time[i]-l.Time[0]) / float64(l.Bytes[i])
		if i > 0 && (out[0] == 0 || out[1] < out[0]) {
			out[0] = out[1]
		}
	}
	return out
}

// moves is how much longer this GPU takes to move so many bytes of a curve's kernel, with its cache holding the share
// that the measured GPU's held: as much as its memory is slower where the curve has its last rate, as much as its cache is
// where it has its best, and between them by what memory adds to the best.
func (c *classLaw) moves(b units.Bytes) float64 {
	best, last := c.bytes[0], c.bytes[1]
	if c.served == 0 || c.served >= c.scale || last <= best || b <= 0 {
		return c.scale
	}
	each := float64(curve(c.law.Bytes, c.law.Time, b)-c.law.Time[0]) * c.cached(b) / float64(b)
	memory := min(max((each-best)/(last-best), 0), 1)
	return memory*c.scale + (1-memory)*c.served
}

// curve interpolates time over size, both on logarithmic axes; beyond the last
// point it grows with size at the last rate, before the first it is flat.
func curve(size []units.Bytes, time []units.Seconds, b units.Bytes) units.Seconds {
	n := len(size)
	if b <= size[0] {
		return time[0]
	}
	if b >= size[n-1] {
		return time[n-1] * units.Seconds(b/size[n-1])
	}
	i := 1
	for size[i] < b {
		i++
	}
	f := math.Log(float64(b/size[i-1])) / math.Log(float64(size[i]/size[i-1]))
	return units.Seconds(math.Exp(math.Log(float64(time[i-1]))*(1-f) + math.Log(float64(time[i]))*f))
}

// A value that is read apart from its neighbours brings a sector into the cache, and asks the memory for
// two: 268 million values, of 32 heads by 1024 x 1024 pairs of positions, take 4.30 ms on an H200, as
// 72 bytes for each move at 4.5 TB/s, where 8.4 MB of sectors stay in its cache 0.16 ms for 33.5 million
// (traces of T5, PyTorch 2.11, 2026-11-30 and 12-01).
const (
	sector  = 32
	fetched = 64
)

// scatters reports whether the cache does not hold what an op comes back to value by value.
func (t *Timer) scatters(o *tape.Op) bool {
	holds := t.gpu.Cached()
	return o.Apart > 0 && holds > 0 && sector*units.Bytes(o.Apart) > holds
}

// scattered is such an op as one whose values all come from memory.
func scattered(o *tape.Op) *tape.Op {
	again := *o
	again.Class, again.Bytes = tape.Transposed, o.Bytes+fetched*units.Bytes(o.Elements)
	return &again
}
