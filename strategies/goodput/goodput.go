package goodput

import (
	"cmp"
	"math"
	"strconv"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
)

// Job is what a plan is made for.
type Job struct {
	GPUs          int64
	Step          units.Seconds // of a healthy machine
	TokensPerStep float64       // over all GPUs
	Checkpoint    units.Bytes   // weights and optimizer states, written once per checkpoint by all GPUs together
}

// Plan is what to expect of a long run. Shares are of the wall time.
type Plan struct {
	Goodput float64 // share of the wall time that healthy, useful steps take
	Losses  []Loss  // the rest: with Goodput they add up to 1

	Failures   units.Seconds // mean time between two failures of the whole job, while it waits for no node
	Step       units.Seconds // as it runs: with stalls and stragglers
	Checkpoint units.Seconds // training stands still for one checkpoint
	Restore    units.Seconds // loading one
	Downtime   units.Seconds // per failure: detection, restart, restore

	IntervalSteps int64         // between two checkpoints
	Interval      units.Seconds // the same as time of steps
	Young, Daly   units.Seconds // what the approximations call best

	Spares   int64      // nodes
	DataRate units.Rate // that the loaders must keep up, all GPUs together
}

// Loss is one thing that takes wall time without progress.
type Loss struct {
	Key, Name string
	Share     float64
}

// Young is the first-order best time between two checkpoints that each take delta,
// with failures mtbf apart: √(2·delta·mtbf) (J. W. Young, Communications of the ACM
// 17(9), 1974).
func Young(delta, mtbf units.Seconds) units.Seconds {
	return units.Seconds(math.Sqrt(2 * float64(delta) * float64(mtbf)))
}

// Daly is the same to a higher order (J. T. Daly, 2006, equation 37): the
// perturbation series where delta < 2·mtbf, else mtbf.
func Daly(delta, mtbf units.Seconds) units.Seconds {
	if delta >= 2*mtbf {
		return mtbf
	}
	x := float64(delta) / float64(2*mtbf)
	return Young(delta, mtbf)*units.Seconds(1+math.Sqrt(x)/3+x/9) - delta
}

// Best is the time between checkpoints that wastes least, exactly: the root of
//
//	(1 − τ/M)·e^((τ+δ)/M) = 1
//
// where the derivative of Segment over τ vanishes.
func Best(delta, mtbf units.Seconds) units.Seconds {
	d := float64(delta / mtbf)
	lo, hi := 0.0, 1.0 // of τ/M: the left side falls from e^d to 0
	for range 100 {
		mid := (lo + hi) / 2
		if math.Log1p(-mid)+mid+d > 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return units.Seconds(lo) * mtbf
}

// Segment is the expected wall time of tau of work with the checkpoint after it, when
// failures without memory come mtbf apart, in work, checkpoint and downtime alike,
// and each costs the downtime and what was done since the last checkpoint (Daly
// 2006, equation 20): M·e^(R/M)·(e^((τ+δ)/M) − 1).
func Segment(tau, delta, downtime, mtbf units.Seconds) units.Seconds {
	m := float64(mtbf)
	return units.Seconds(m * math.Exp(float64(downtime)/m) * math.Expm1(float64(tau+delta)/m))
}

// ErlangB is the share of the time that all of n servers are busy, when load are on
// average asked for (A. K. Erlang's loss formula, by its recursion).
func ErlangB(n int64, load float64) float64 {
	b := 1.0
	for i := int64(1); i <= n; i++ {
		b = load * b / (float64(i) + load*b)
	}
	return b
}

// spares is the least number of spare nodes with which a run waits no longer than a
// share of the time: it stands still while one more than them is under repair.
func spares(load, wait float64) int64 {
	const most = int64(1 << 20)
	b := 1.0
	for n := range most {
		if b = load * b / (float64(n+1) + load*b); b <= wait {
			return n
		}
	}
	return most
}

// New plans a run. It fails when failures come so fast that nothing is ever done.
func New(j Job, s Settings) (*Plan, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	p, ok := plan(j, s)
	if !ok {
		key, _ := Culprit(j, s)
		return nil, diag.Errorf("run.%s: with %d GPUs a failure comes every %s, and a restart takes %s: nothing is ever done; use fewer GPUs or restart faster", cmp.Or(key, "mtbf_per_gpu"), j.GPUs, p.Failures, p.Downtime)
	}
	return p, nil
}

// plan is New of settings that were checked, false where nothing is ever done.
func plan(j Job, s Settings) (*Plan, bool) {
	gpus := float64(j.GPUs)
	rate := s.StorageRate.Value * units.Rate(gpus)
	p := &Plan{Failures: s.MTBF.Value / units.Seconds(gpus), Restore: j.Checkpoint.At(rate)}
	p.Checkpoint = p.Restore
	if s.CheckpointTime.IsSet() {
		p.Checkpoint = s.CheckpointTime.Value
	}
	p.Downtime = s.Detection.Value + s.Restart.Value + p.Restore

	// What a step takes more than on a healthy machine.
	data := s.BytesPerToken.Value * units.Bytes(j.TokensPerStep)
	p.DataRate = data.Per(j.Step)
	stall := s.DataStall.Value + max(float64(data.At(rate)/j.Step)-1, 0)
	slow := s.Stragglers.Value
	stretch := 1 + stall + slow
	p.Step = j.Step * units.Seconds(stretch)

	// Checkpoints come between steps.
	p.Young, p.Daly = Young(p.Checkpoint, p.Failures), Daly(p.Checkpoint, p.Failures)
	p.IntervalSteps = p.bestSteps()
	if s.CheckpointInterval.IsSet() {
		p.IntervalSteps = max(1, int64(math.Round(float64(s.CheckpointInterval.Value/p.Step))))
	}
	p.Interval = p.Step * units.Seconds(p.IntervalSteps)
	whole := float64(Segment(p.Interval, p.Checkpoint, p.Downtime, p.Failures))
	if math.IsInf(whole, 0) || whole > 1e6*float64(p.Interval) {
		return p, false
	}
	work, save := float64(p.Interval)/whole, float64(p.Checkpoint)/whole
	down := -math.Expm1(-float64(p.Downtime) / float64(p.Failures)) // failures hit restarts, too

	// A node that failed is exchanged for a spare; without one the run waits.
	load := s.HardwareShare.Value * float64(s.Repair.Value/p.Failures)
	p.Spares = s.Spares.Value
	if !s.Spares.IsSet() {
		p.Spares = spares(load, s.SpareWait.Value)
	}
	wait := ErlangB(p.Spares+1, load)
	up := 1 - wait

	p.Goodput = up * work / stretch
	p.Losses = []Loss{
		{"downtime", "detection and restart", up * down},
		{"rework", "work lost since the last checkpoint", max(up*(1-work-save-down), 0)},
		{"checkpoint", "writing checkpoints", up * save},
		{"spares", "waiting for a node", wait},
		{"stragglers", "waiting for slow nodes", up * work * slow / stretch},
		{"data", "waiting for data", up * work * stall / stretch},
	}
	return p, true
}

// Culprit is the key of the setting with whose default a run would make most progress
// more, and the goodput then; "" when the defaults would not help.
func Culprit(j Job, s Settings) (key string, goodput float64) {
	d := Defaults()
	if p, ok := plan(j, s); ok {
		goodput = p.Goodput
	}
	for _, c := range []struct {
		key  string
		undo func(s *Settings)
	}{
		{"mtbf_per_gpu", func(s *Settings) { s.MTBF = d.MTBF }},
		{"hardware_share", func(s *Settings) { s.HardwareShare = d.HardwareShare }},
		{"detection_time", func(s *Settings) { s.Detection = d.Detection }},
		{"restart_time", func(s *Settings) { s.Restart = d.Restart }},
		{"storage_rate_per_gpu", func(s *Settings) { s.StorageRate = d.StorageRate }},
		{"checkpoint_time", func(s *Settings) { s.CheckpointTime = d.CheckpointTime }},
		{"checkpoint_interval", func(s *Settings) { s.CheckpointInterval = d.CheckpointInterval }},
		{"spare_nodes", func(s *Settings) { s.Spares = d.Spares }},
		{"spare_wait", func(s *Settings) { s.SpareWait = d.SpareWait }},
		{"repair_time", func(s *Settings) { s.Repair = d.Repair }},
		{"data_bytes_per_token", func(s *Settings) { s.BytesPerToken = d.BytesPerToken }},
		{"data_stall", func(s *Settings) { s.DataStall = d.DataStall }},
		{"straggler_loss", func(s *Settings) { s.Stragglers = d.Stragglers }},
	} {
		next := s
		c.undo(&next)
		if p, ok := plan(j, next); ok && p.Goodput > goodput*(1+1e-9) {
			key, goodput = c.key, p.Goodput
		}
	}
	return key, goodput
}

// bestSteps is the whole number of steps between checkpoints that wastes least: one
// of the two around the exact optimum, for the waste has a single minimum.
func (p *Plan) bestSteps() int64 {
	const most = 1 << 40
	below := int64(min(float64(Best(p.Checkpoint, p.Failures)/p.Step), most))
	best, least := int64(1), math.Inf(1)
	for _, n := range []int64{below, below + 1} {
		if n < 1 {
			continue
		}
		if waste := float64(Segment(p.Step*units.Seconds(n), p.Checkpoint, p.Downtime, p.Failures)) / float64(n); waste < least {
			best, least = n, waste
		}
	}
	return best
}

// text prints a share or a factor.
func text(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Count is how often a run of so much wall time fails: one that waits for a node does not
// fail meanwhile.
func (p *Plan) Count(wall units.Seconds) float64 {
	return float64(wall/p.Failures) * (1 - p.Loss("spares"))
}

// Loss returns the share of one loss.
func (p *Plan) Loss(key string) float64 {
	for _, l := range p.Losses {
		if l.Key == key {
			return l.Share
		}
	}
	return 0
}
