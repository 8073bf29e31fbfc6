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
// clock; its dynamic part falls with the clock to an exponent. The cap holds for
// the average over many steps. The cap is the card's; what the work draws follows
// from the silicon, so that the same chip on a smaller budget runs slower, and from
// the bytes its memory moves: on the H100 of 2.4 TB/s the memory takes less of the
// same limit than on the H200 of 4.8 TB/s (arXiv 2604.11391).
func (p *pricer) throttle(s *simulation) bool {
	law := p.job.Hardware.Laws.Power
	clock := float64(max(p.job.Hardware.GPU.MaxClock.Value, p.job.Hardware.GPU.Clock.Value))
	s.power = power{Clock: units.Hertz(clock * p.ratio)}
	if law == nil {
		return false
	}
	limit, scale, bandwidth := float64(law.Cap), 1.0, float64(p.job.Hardware.GPU.Bandwidth.Value)
	if on, gpu := law.On, &p.job.Hardware.GPU; on != nil && on.Power.Value > 0 {
		limit *= float64(gpu.Power.Value / on.Power.Value)
		scale = float64(gpu.SMs.Value) * clock / (float64(on.SMs.Value) * float64(max(on.MaxClock.Value, on.Clock.Value)))
		bandwidth = float64(on.Bandwidth.Value)
	}
	idle := float64(law.Idle) * scale
	work, effort, busy, moved := s.work()
	total := max(float64(s.total), float64(busy))
	fixed, dynamic := idle*(total-float64(busy)), 0.0
	for k, t := range work {
		c := law.Class[workNames[k]]
		static := float64(c.Static) * scale
		if k == int(memoryWork) { // beyond idling, so much for each byte
			fixed += (static - idle) / scale * float64(moved) / (copyRate * bandwidth)
			static = idle
		}
		fixed += static * float64(t)
		busy := c.Base*float64(t) + (1-c.Base)*float64(effort[k])
		dynamic += float64(c.Full-c.Static) * scale * busy * math.Pow(min(p.ratio, p.classCap(k)), law.Exponent)
	}
	energy := fixed + dynamic
	s.power.Power, s.power.Energy = units.Watts(energy/total), units.Joules(energy)
	// A stage's wait for the first and the last micro batches is too long for the limit
	// to be spared for what follows.
	if active := max(total*(1-s.bubble()), float64(busy)); active < total {
		fixed -= idle * (total - active)
		total = active
	}
	// The chip that needs the most power for its clock has the lowest at the limit, and
	// all wait for it.
	dynamic *= math.Pow(1+law.Spread*hungriest(p.job.GPUs), law.Exponent)
	watts := (fixed + dynamic) / total
	if limit <= 0 || watts <= limit*1.002 || p.rounds >= 6 {
		return false
	}
	p.rounds++
	// The dynamic part must shrink by the overdraft; time changes little.
	p.ratio = min(p.ratio, p.dynamicClock())
	p.ratio *= math.Pow(max(limit*total-fixed, 0.05*dynamic)/dynamic, 1/law.Exponent)
	p.ratio = max(p.ratio, 0.3)
	p.memory = math.Pow(p.ratio, -law.MemoryExp)
	return true
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
	if work(k) == gemmWork {
		return p.law.gemmClock
	}
	return 1
}

// dynamicClock is the clock from which the search for the right one starts: above
// the GEMM clock a lower one would first save nothing.
func (p *pricer) dynamicClock() float64 {
	if p.law.gemmClock < 1 && p.rounds == 1 {
		return (1 + p.law.gemmClock) / 2
	}
	return 1
}

// copyRate is the share of the datasheet's bandwidth that large copies reach, at which
// the power of memory-bound work was measured.
const copyRate = 0.9
