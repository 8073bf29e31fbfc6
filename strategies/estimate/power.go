package estimate

import (
	"math"

	"github.com/perfplan/perfplan/internal/units"
)

// power is what the clock of a step comes to.
type power struct {
	Clock  units.Hertz
	Power  units.Watts // average per GPU
	Energy units.Joules
}

// throttle finds the clock at which the average power of the step fits the card.
// It returns true when the clock changed and the step must be simulated again.
//
// Power is the time-weighted mean of the powers of each kind of work at full
// clock; its dynamic part falls with the clock to an exponent. The clock is the
// highest that the cap allows; it holds for the average over many steps. The cap is
// the card's; what the work draws follows from the silicon, so that the same chip on a
// smaller budget runs slower, and from the bytes its memory moves: on the H100 of 2.4
// TB/s the memory takes less of the same limit than on the H200 of 4.8 TB/s (arXiv
// 2604.11391).
func (p *pricer) throttle(s *simulation) bool {
	law := p.job.Hardware.Laws.Power
	clock := float64(max(p.job.Hardware.GPU.MaxClock.Value, p.job.Hardware.GPU.Clock.Value))
	s.power = power{Clock: units.Hertz(clock * p.ratio)}
	if law == nil {
		return false
	}
	limit, scale := float64(law.Cap), 1.0
	bandwidth := float64(p.job.Hardware.GPU.Bandwidth.Value)
	measured := bandwidth // of the GPU that the law was measured on
	if on, gpu := law.On, &p.job.Hardware.GPU; on != nil && on.Power.Value > 0 {
		limit *= float64(gpu.Power.Value / on.Power.Value)
		scale = float64(gpu.SMs.Value) * clock / (float64(on.SMs.Value) * float64(max(on.MaxClock.Value, on.Clock.Value)))
		measured = float64(on.Bandwidth.Value)
	}
	idle := float64(law.Idle) * scale
	l := s.load()
	total := max(float64(s.total), float64(l.busy))
	fixed, drawn := idle*(total-float64(l.busy)), 0.0
	dynamic, gemms := 0.0, 0.0 // at the full clock: all, that of GEMMs
	for k, t := range l.time {
		c := law.Class[workNames[k]]
		static := float64(c.Static) * scale
		if k == int(memoryWork) { // beyond idling, so much for each byte
			moved := float64(l.moved)/(copyRate*measured)*float64(p.own) + float64(l.others)*min(bandwidth/measured, 1)
			fixed += (static - idle) / scale * moved
			static = idle
		}
		fixed += static * float64(t)
		busy := c.Base*float64(t) + (1-c.Base)*float64(l.effort[k])
		d := float64(c.Full-c.Static) * scale * busy
		dynamic += d
		if k == int(gemmWork) {
			gemms = d
		}
		drawn += d * math.Pow(min(p.ratio, p.classCap(k)), law.Exponent)
	}
	energy := fixed + drawn
	s.power.Power, s.power.Energy = units.Watts(energy/total), units.Joules(energy)
	// A stage's wait for the first and the last micro batches is too long for the limit
	// to be spared for what follows.
	if active := max(total*(1-s.bubble()), float64(l.busy)); active < total {
		fixed -= idle * (total - active)
		total = active
	}
	// The chip that needs the most power for its clock has the lowest at the limit, and
	// all wait for it.
	worst := math.Pow(1+law.Spread*hungriest(p.job.GPUs), law.Exponent)
	watts := (fixed + worst*drawn) / total
	if limit <= 0 || p.rounds >= 6 || watts <= limit*1.002 && (p.ratio == p.most || watts >= limit*0.998) {
		return false
	}
	p.rounds++
	// Times change with the clock a little, so that the next round may correct this one.
	p.ratio = min(p.clockAt(math.Max(limit*total-fixed, 0)/worst, dynamic, gemms, law.Exponent), p.most)
	p.memory = math.Pow(p.ratio, -law.MemoryExp)
	return true
}

// clockAt is the clock ratio at which the dynamic energy comes to what is left for it.
// At the full clock it is dynamic, a part of which is that of GEMMs, which draw no more
// above a clock of their own.
func (p *pricer) clockAt(left, dynamic, gemms, exponent float64) float64 {
	r := math.Pow(left/dynamic, 1/exponent)
	if own := p.law.gemmClock; r > own && dynamic > gemms {
		r = math.Pow(max((left-gemms*math.Pow(own, exponent))/(dynamic-gemms), 0), 1/exponent)
		r = max(r, own)
	}
	return min(max(r, 0.3), 1)
}

// hungriest is how many standard deviations the worst of n chips is from the mean.
func hungriest(n int64) float64 {
	if n == 1 {
		return 0
	}
	return expectedMaximum(n)
}

// classCap is the highest clock ratio at which a kind of work draws more power:
// GEMMs stop at the clock that the current limit holds them to.
func (p *pricer) classCap(k int) float64 {
	if k == int(gemmWork) {
		return p.law.gemmClock
	}
	return 1
}

// copyRate is the share of the datasheet's bandwidth that memory-bound kernels of the
// steps reach on which their power was judged: 3.9 of the H200's 4.8 TB/s on average.
const copyRate = 0.82
