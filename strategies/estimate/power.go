package estimate

import (
	"math"

	"github.com/perfplan/perfplan/internal/units"
)

// throttle finds the clock at which the average power of the step fits the card.
// It returns true when the clock changed and the step must be simulated again.
//
// Power is the time-weighted mean of the powers of each kind of work at full
// clock; its dynamic part falls with the clock to an exponent. The cap holds for
// the average over many steps.
func (p *pricer) throttle(s *simulation, r *Result) bool {
	law := p.job.Hardware.Laws.Power
	clock := float64(max(p.job.Hardware.GPU.MaxClock.Value, p.job.Hardware.GPU.Clock.Value))
	r.Clock = units.Hertz(clock * p.ratio)
	if law == nil {
		return false
	}
	scale := 1.0
	if law.On != nil && law.On.Power.Value > 0 {
		scale = float64(p.job.Hardware.GPU.Power.Value / law.On.Power.Value)
	}
	idle := float64(law.Idle) * scale
	work, busy := s.work()
	total := max(float64(s.total), float64(busy))
	energy := idle * (total - float64(busy))
	for k, t := range work {
		full := float64(law.Class[workNames[k]]) * scale
		energy += (idle + (full-idle)*math.Pow(p.ratio, law.Exponent)) * float64(t)
	}
	power := energy / total
	r.Power, r.Energy = units.Watts(power), units.Joules(energy)
	limit := float64(law.Cap) * scale
	if limit <= 0 || power <= limit*1.002 || p.rounds >= 6 {
		return false
	}
	p.rounds++
	// Fewer watts of dynamic power, at a slower clock; time changes little.
	p.ratio *= math.Pow(max(limit-idle, 1)/max(power-idle, 1), 1/law.Exponent)
	p.ratio = max(p.ratio, 0.3)
	return true
}
