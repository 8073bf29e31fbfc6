package collective

import (
	"math"
	"sort"

	"github.com/perfplan/perfplan/internal/units"
)

// Law is the time of one operation on one group as a function of its bytes: a
// curve through knots, straight between them in logarithms, straight in bytes
// beyond them. It never falls as bytes grow. The zero Law takes no time: a group
// of one.
type Law struct {
	bytes, times []float64 // ln bytes, ln seconds of the knots
	low, high    line      // below the first and above the last knot
}

// line is seconds = at + slope*bytes.
type line struct{ at, slope float64 }

// Time returns the time of a call; zero bytes are not sent and take none.
func (l *Law) Time(b units.Bytes) units.Seconds {
	n := len(l.bytes)
	if n == 0 || !(b > 0) {
		return 0
	}
	x := math.Log(float64(b))
	switch {
	case x <= l.bytes[0]:
		return units.Seconds(l.low.at + l.low.slope*float64(b))
	case x >= l.bytes[n-1]:
		return units.Seconds(l.high.at + l.high.slope*float64(b))
	}
	lo, hi := 0, n-1
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; l.bytes[mid] <= x {
			lo = mid
		} else {
			hi = mid
		}
	}
	w := (x - l.bytes[lo]) / (l.bytes[hi] - l.bytes[lo])
	return units.Seconds(math.Exp(l.times[lo] + w*(l.times[hi]-l.times[lo])))
}

// Latency is the time of a call of one byte.
func (l *Law) Latency() units.Seconds { return l.Time(1) }

// delay makes every call take so much longer, or shorter.
func (l *Law) delay(t units.Seconds) {
	for i, x := range l.times {
		l.times[i] = math.Log(max(math.Exp(x)+float64(t), math.SmallestNonzeroFloat64))
	}
	l.low.at += float64(t)
	l.high.at += float64(t)
}

// newLaw draws a law through points, given in ascending order of bytes, after
// making their times ascend too. The smallest call takes latency seconds at least.
func newLaw(bytes, times []float64, latency float64) Law {
	n := len(bytes)
	times = ascending(times)
	l := Law{bytes: make([]float64, n), times: make([]float64, n)}
	for i := range bytes {
		l.bytes[i], l.times[i] = math.Log(bytes[i]), math.Log(times[i])
	}
	first, last := times[0]/bytes[0], times[n-1]/bytes[n-1]
	l.low, l.high = line{slope: first}, line{slope: last}
	if n > 1 {
		// Too short a latency below, or one beyond a quarter of the time above, is
		// noise of the last two points, or NCCL choosing otherwise between them.
		s := (times[1] - times[0]) / (bytes[1] - bytes[0])
		l.low.slope = min(s, max(first-latency/bytes[0], 0))
		s = (times[n-1] - times[n-2]) / (bytes[n-1] - bytes[n-2])
		l.high.slope = min(max(s, 0.75*last), last)
	}
	l.low.at = times[0] - l.low.slope*bytes[0]
	l.high.at = times[n-1] - l.high.slope*bytes[n-1]
	return l
}

// ascending pools neighbours that fall into their geometric mean until none
// does (isotonic regression), so that one noisy point moves its neighbours
// little. Times that already ascend are returned as they are.
func ascending(times []float64) []float64 {
	if sort.Float64sAreSorted(times) {
		return times
	}
	type pool struct {
		log   float64 // mean of the logarithms
		count float64
	}
	var pools []pool
	for _, t := range times {
		p := pool{math.Log(t), 1}
		for len(pools) > 0 && pools[len(pools)-1].log > p.log {
			q := pools[len(pools)-1]
			pools = pools[:len(pools)-1]
			p = pool{(p.log*p.count + q.log*q.count) / (p.count + q.count), p.count + q.count}
		}
		pools = append(pools, p)
	}
	out := make([]float64, 0, len(times))
	for _, p := range pools {
		for range int(p.count) {
			out = append(out, math.Exp(p.log))
		}
	}
	return out
}
