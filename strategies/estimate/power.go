package estimate

import (
	"cmp"
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
)

// clock is at what a GPU runs.
type clock struct {
	ratio  float64          // SM clock over its maximum
	slower [numWork]float64 // time of each kind of work at it, over that at the maximum
}

// fullClock is the highest.
var fullClock = (&machine{hardware: &hardware.Profile{}}).at(1)

// at is the clock of a ratio.
func (m *machine) at(ratio float64) clock {
	c := clock{ratio: ratio}
	for k := range c.slower {
		c.slower[k] = m.hardware.Laws.Power.Slowdown(workNames[k], &m.hardware.GPU, ratio)
	}
	return c
}

// power is what the clocks of a step come to, on average over the stages of a pipeline.
type power struct {
	Clock  units.Hertz
	Power  units.Watts // per GPU
	Energy units.Joules
}

// throttle finds the clocks at which the average power of the step fits the card, that
// of each pipeline stage for itself: what waits for a longer stage draws less meanwhile.
// It returns true when a clock changed and the step must be simulated again.
//
// Power is the time-weighted mean of the powers of each kind of work at full
// clock; its dynamic part falls with the clock to an exponent. The clock is the
// highest that the cap allows; it holds for the average over many steps.
func (p *pricer) throttle(s *simulation) bool {
	share := 1 / float64(len(p.clocks))
	s.power = power{}
	for rank := range p.clocks {
		s.power.Clock += p.clockOf(rank) * units.Hertz(share)
	}
	if p.job.Hardware.Laws.Power == nil {
		return false
	}
	card, again := p.card(), false
	for rank := range p.clocks {
		l := s.load(rank)
		d := card.demand(&l, p, p.clocks[rank])
		energy := card.rests(s.total-float64(l.busy), float64(l.once+l.each)) + d.fixed + d.drawn
		s.power.Power += units.Watts(energy / s.total * share)
		s.power.Energy += units.Joules(energy * share)
		if p.rounds < mostRounds && p.limit(rank, s, &card, &l, &d) {
			again = true
		}
	}
	p.rounds++
	return again
}

// mostRounds is how often clocks are corrected: times change with them a little.
const mostRounds = 6

// limit sets the clock of a rank to what its card allows, and reports whether that is
// another one. The limit lets work draw what pauses have spared, but of a long one it
// forgets most.
func (p *pricer) limit(rank int, s *simulation, card *card, l *load, d *demand) bool {
	most := 1.0
	if len(p.most) > 0 {
		most = p.most[rank].ratio
	}
	now := &p.clocks[rank]
	n := units.Seconds(p.job.Train.GradAccumulation)
	waits := card.spared(l.once) + float64(n)*card.spared(l.each/n)
	active := max(s.total-float64(l.once+l.each+l.rest)+waits+card.spared(l.rest), float64(l.busy))
	fixed := card.rests(active-float64(l.busy), waits) + d.fixed
	watts := (fixed + card.worst*d.drawn) / active
	if card.limit <= 0 || watts <= card.limit*1.002 && (now.ratio == most || watts >= card.limit*0.998) {
		return false
	}
	ratio := min(p.clockAt(math.Max(card.limit*active-fixed, 0)/card.worst, d), most)
	*now = p.at(ratio)
	return true
}

// clockOf is the SM clock of a pipeline rank.
func (p *pricer) clockOf(rank int) units.Hertz {
	return p.job.Hardware.GPU.TopClock() * units.Hertz(p.clocks[rank].ratio)
}

// card is the power of a GPU.
//
// The cap is the card's; what the work draws follows from the silicon, so that the same
// chip on a smaller budget runs slower, and from the bytes its memory moves: on the H100
// of 2.4 TB/s the memory takes less of the same limit than on the H200 of 4.8 TB/s (arXiv
// 2604.11391).
type card struct {
	law      *hardware.PowerLaw
	limit    float64 // in watts
	scale    float64 // of what work draws, over the GPU that the law was measured on
	idle     float64 // in watts
	window   float64 // in seconds
	memory   float64 // bandwidth over that GPU's
	measured float64 // that GPU's bandwidth
	worst    float64 // power of the hungriest chip of the job, which has the lowest clock at the limit; all wait for it
}

func (p *pricer) card() card {
	law, gpu := p.job.Hardware.Laws.Power, &p.job.Hardware.GPU
	c := card{law: law, limit: float64(law.Cap), window: float64(law.Window * p.own), scale: 1, memory: 1, measured: float64(gpu.Bandwidth.Value),
		worst: math.Pow(1+law.Spread*hungriest(p.job.GPUs), law.Exponent)}
	if on := law.On; on != nil && on.Power.Value > 0 {
		c.limit *= float64(gpu.Power.Value / on.Power.Value)
		c.scale = kernel.IssueScale(gpu, on)
		c.measured = float64(on.Bandwidth.Value)
		c.memory = float64(gpu.Bandwidth.Value) / c.measured
	}
	c.scale *= cmp.Or(gpu.Draw.Value, 1)
	c.idle = float64(law.Idle) * c.scale
	return c
}

// rests is the energy of a time without work, for a part of which a rank waits for its
// peers: pauses after work draw more than a card that has long idled, about as much as
// one that does nothing but communicate.
func (c *card) rests(time, waits float64) float64 {
	return c.idle*time + float64(c.law.Class[workNames[commWork]].Static)*c.scale*waits
}

// spared is the part of a pause that what follows may still draw upon, in seconds.
func (c *card) spared(pause units.Seconds) float64 {
	w := c.window
	if w <= 0 {
		return 0
	}
	return w * -math.Expm1(-float64(pause)/w)
}

// demand is the energy that a load takes, in joules.
type demand struct {
	fixed  float64 // at any clock
	drawn  float64 // beyond that, at the clock at hand
	gemms  float64 // the same at the full clock, by GEMMs
	others float64 // and by other work
}

// demand of a load at a clock.
func (c *card) demand(l *load, p *pricer, at clock) (d demand) {
	for k, t := range l.time {
		class := c.law.Class[workNames[k]]
		static := float64(class.Static) * c.scale
		if k == int(memoryWork) { // beyond idling, so much for each byte
			moved := float64(l.moved)/(copyRate*c.measured)*float64(p.own) + float64(l.others)*min(c.memory, 1)
			d.fixed += (static - c.idle) / c.scale * moved
			static = c.idle
		}
		d.fixed += static * float64(t)
		busy := class.Base*float64(t) + (1-class.Base)*float64(l.effort[k])
		e := float64(class.Full-class.Static) * c.scale * busy
		if k == int(gemmWork) {
			d.gemms = e
			d.drawn += e * math.Pow(min(at.ratio, p.law.gemmClock), p.law.gemmPower)
			continue
		}
		d.others += e
		d.drawn += e * math.Pow(at.ratio, c.law.Exponent)
	}
	return d
}

// clockAt is the clock ratio at which the energy beyond what is drawn at any clock comes
// to what is left for it. GEMMs draw no more above a clock of their own.
func (p *pricer) clockAt(left float64, d *demand) float64 {
	own, exponent := p.law.gemmClock, p.job.Hardware.Laws.Power.Exponent
	held := d.gemms * math.Pow(own, p.law.gemmPower)
	if rest := d.others * math.Pow(own, exponent); left > held+rest {
		if left >= held+d.others {
			return 1
		}
		return math.Pow((left-held)/d.others, 1/exponent)
	}
	const lowest = 0.3
	r := own
	for i := 0; i < 4 && r > lowest; i++ { // Newton's method, on logarithms: both terms are powers of the clock
		gemms, others := d.gemms*math.Pow(r, p.law.gemmPower), d.others*math.Pow(r, exponent)
		r *= math.Pow(left/(gemms+others), (gemms+others)/(gemms*p.law.gemmPower+others*exponent))
	}
	return max(r, lowest)
}

// hungriest is how many standard deviations the worst of n chips is from the mean.
func hungriest(n int64) float64 {
	if n == 1 {
		return 0
	}
	return expectedMaximum(n)
}

// copyRate is the share of the datasheet's bandwidth that memory-bound kernels of the
// steps reach on which their power was judged: 3.9 of the H200's 4.8 TB/s on average.
const copyRate = 0.82
