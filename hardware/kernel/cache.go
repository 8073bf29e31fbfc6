package kernel

import (
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
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
