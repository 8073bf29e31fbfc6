package kernel

import "math"

// sgemm is hardware.SGEMMLaw in seconds, of an m×n product over k on so many SMs, each of that rate, that moves
// its bytes in so many seconds.
func (g *gemmModel) sgemm(m, n, k, rate, sms, moved float64) float64 {
	l, best := g.single, math.Inf(1)
	for _, t := range l.TileSizes() {
		tm, tn := t[0], t[1]
		tiles := math.Ceil(m/tm) * math.Ceil(n/tn)
		slow := 1 + l.SmallTile*100*(1/tm+1/tn-1/256.-1/128.)
		overhead := l.KOverhead + l.Edge*math.Sqrt(tm*tn)
		for s := 1.; s <= max(16, math.Floor(sms/tiles)); s++ {
			c := math.Ceil(tiles*s/sms) * 2 * tm * tn * slow * (k/s + overhead) / rate
			t := math.Pow(math.Pow(c, l.Exponent)+math.Pow(l.Memory*moved, l.Exponent), 1/l.Exponent)
			if s > 1 {
				t += float64(l.Split) + s*m*n*moved/(m*n+n*k+m*k) // half of what is written and read again, which the cache does not keep
			}
			best = min(best, t)
		}
	}
	return float64(l.Setup) + best
}
