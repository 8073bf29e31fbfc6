package fit

import (
	"cmp"
	"math"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
)

// curve is the median time of cases by size, or the ratio of two times.
type curve struct {
	bytes  []units.Bytes // ascending
	values []float64     // s, or ratios
	left   []float64     // ln(measured/predicted) of each size, predicted from its neighbours
	within []float64     // of each case, against the median of its size
	errors []float64     // of each case, its size left out
	noise  float64       // relative standard deviation of the medians
}

// sameSize is how much larger bytes may be that count as one size: kernels of one
// class round to whole rows differently.
const sameSize = 1.05

// curveOf draws a curve through a value of cases.
func curveOf(shots []shot, value func(*shot) float64) curve {
	order := make([]int, len(shots))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(shots[a].op.Bytes, shots[b].op.Bytes) })
	k := curve{within: make([]float64, len(shots)), errors: make([]float64, len(shots))}
	var spreads []float64
	size := make([]int, len(shots))
	for i := 0; i < len(order); {
		first := shots[order[i]].op.Bytes
		var bytes, values []float64
		from := i
		for ; i < len(order) && shots[order[i]].op.Bytes <= first*sameSize; i++ {
			s := &shots[order[i]]
			bytes, values = append(bytes, float64(s.op.Bytes)), append(values, value(s))
			spreads = append(spreads, s.spread/1.96) // half a 95 % interval
			size[order[i]] = len(k.bytes)
		}
		t := median(values)
		for n, j := range order[from:i] {
			k.within[j] = math.Log(values[n] / t)
		}
		k.bytes, k.values = append(k.bytes, units.Bytes(median(bytes))), append(k.values, t)
	}
	k.noise = median(spreads)
	k.left = leftOut(k.bytes, k.values)
	for i := range k.errors {
		k.errors[i] = k.within[i] + k.left[size[i]]
	}
	return k
}

// scatter is the deviation of a value that a curve gives. Of the error of a size left
// out half counts, since the sizes stand twice as close as without it.
func (k *curve) scatter() float64 {
	return min(math.Hypot(math.Hypot(holding(k.left)/2, holding(k.within)), k.noise), 1)
}

// deviation is scatter, but never surer than a repetition is.
func (k *curve) deviation() float64 { return max(k.scatter(), surest) }

// at is the curve at a size, straight in logarithms and flat beyond its ends.
func (k *curve) at(b units.Bytes) float64 {
	n := len(k.bytes)
	i, _ := slices.BinarySearch(k.bytes, b)
	switch {
	case i == 0:
		return k.values[0]
	case i == n:
		return k.values[n-1]
	}
	w := math.Log(float64(b/k.bytes[i-1])) / math.Log(float64(k.bytes[i]/k.bytes[i-1]))
	return math.Exp((1-w)*math.Log(k.values[i-1]) + w*math.Log(k.values[i]))
}

// curveThrough is a curve of known times.
func curveThrough(bytes []units.Bytes, times []units.Seconds) curve {
	k := curve{bytes: bytes}
	for _, t := range times {
		k.values = append(k.values, float64(t))
	}
	return k
}

// times are the values as times.
func (k *curve) times() []units.Seconds {
	out := make([]units.Seconds, len(k.values))
	for i, v := range k.values {
		out[i] = units.Seconds(v)
	}
	return out
}

// leftOut is ln(measured/predicted) of each point of a curve, predicted from its
// neighbours, straight in logarithms; of the ends nothing is said.
func leftOut(bytes []units.Bytes, values []float64) []float64 {
	n := len(bytes)
	out := make([]float64, n)
	for i := 1; i < n-1; i++ {
		between := curve{bytes: []units.Bytes{bytes[i-1], bytes[i+1]}, values: []float64{values[i-1], values[i+1]}}
		out[i] = math.Log(values[i] / between.at(bytes[i]))
	}
	return out
}

// over moves a longer curve of the same kind of machine to where this one is: its
// times between those measured here take the ratio of the two, and all sizes stay.
func (k *curve) over(long curve) curve {
	var ratio, out curve
	for i, b := range k.bytes {
		if b >= long.bytes[0] && b <= long.bytes[len(long.bytes)-1]*sameSize {
			ratio.bytes = append(ratio.bytes, b)
			ratio.values = append(ratio.values, k.values[i]/long.at(b))
		}
	}
	type point struct {
		bytes units.Bytes
		value float64
	}
	var points []point
	for i, b := range k.bytes {
		points = append(points, point{b, k.values[i]})
	}
	for i, b := range long.bytes {
		near := slices.ContainsFunc(k.bytes, func(m units.Bytes) bool { return b <= m*sameSize && m <= b*sameSize })
		switch {
		case near:
		case len(ratio.bytes) == 0:
			points = append(points, point{b, long.values[i]})
		default:
			points = append(points, point{b, long.values[i] * ratio.at(b)})
		}
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.bytes, b.bytes) })
	for _, p := range points {
		out.bytes, out.values = append(out.bytes, p.bytes), append(out.values, p.value)
	}
	out.left, out.noise = leftOut(out.bytes, out.values), k.noise
	return out
}
