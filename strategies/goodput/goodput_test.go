package goodput

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
)

const (
	minute = units.Seconds(60)
	hour   = units.Seconds(3600)
)

// Daly 2006, figures 3 to 5: what the paper's formula calls best for a dump time of
// five minutes.
func TestDaly(t *testing.T) {
	for _, c := range []struct {
		mtbf, want units.Seconds // want in the paper's digits
		digits     float64
	}{
		{24 * hour, 117 * minute, 0.5},
		{6 * hour, 57 * minute, 0.5},
		{15 * minute, 9.1 * minute, 0.05},
	} {
		require.InDelta(t, float64(c.want/minute), float64(Daly(5*minute, c.mtbf)/minute), c.digits)
		require.InDelta(t, 1, float64(Best(5*minute, c.mtbf)/Daly(5*minute, c.mtbf)), 0.01, "the exact optimum is near")
	}
	require.Equal(t, 10*minute, Daly(20*minute, 10*minute), "nothing to gain from checkpoints that rarely complete")
	require.Equal(t, 2*hour, Young(hour, 2*hour))
}

// The best interval is a minimum of the waste.
func TestBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mtbf := units.Seconds(rapid.Float64Range(600, 1e6).Draw(t, "mtbf"))
		delta := units.Seconds(rapid.Float64Range(0.1, 600).Draw(t, "delta"))
		best := Best(delta, mtbf)
		waste := func(tau units.Seconds) float64 { return float64(Segment(tau, delta, 0, mtbf) / tau) }
		require.LessOrEqual(t, waste(best), waste(best*1.01))
		require.LessOrEqual(t, waste(best), waste(best*0.99))
		require.Less(t, float64(best), float64(Young(delta, mtbf)), "the first order is too long")
	})
}

// TestErlangB against the standard table of offered load at 1 % loss (ITU Teletraffic
// Engineering Handbook, table of Erlang's B-formula).
func TestErlangB(t *testing.T) {
	for n, load := range map[int64]float64{1: 0.0101, 2: 0.153, 5: 1.36, 10: 4.46, 20: 12.0} {
		require.InDelta(t, 0.01, ErlangB(n, load), 0.0003, n)
		require.Equal(t, n-1, spares(load*0.98, 0.01), "one spare fewer than servers")
	}
	require.Zero(t, spares(0, 0.01))
}

// simulate runs so many segments of a job under failures and returns the mean wall
// time of one and its standard error.
func simulate(r *rand.Rand, tau, delta, downtime, mtbf units.Seconds) (mean, deviation float64) {
	const segments = 40_000
	var sum, squares float64
	next := r.ExpFloat64() * float64(mtbf) // until the next failure
	for range segments {
		spent, left := 0.0, float64(tau+delta)
		for left > 0 {
			if next > left {
				next -= left
				spent, left = spent+left, 0
				break
			}
			spent += next // lost with the work since the last checkpoint, or in the middle of a restart
			next = r.ExpFloat64() * float64(mtbf)
			left = float64(tau+delta) + float64(downtime)
		}
		sum += spent
		squares += spent * spent
	}
	mean = sum / segments
	return mean, math.Sqrt((squares/segments - mean*mean) / segments)
}

// TestMonteCarlo: the formula is the mean of what random failures do, and intervals
// off the best one waste more, in the simulation too.
func TestMonteCarlo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ delta, downtime, mtbf units.Seconds }{
		{30, 900, 3.09 * hour}, // Llama 3's cluster
		{5 * minute, 10 * minute, 6 * hour},
		{5 * minute, 10 * minute, 15 * minute},
		{40, 30 * minute, 132 * hour},
	} {
		best := Best(c.delta, c.mtbf)
		waste := map[float64]float64{}
		for _, f := range []float64{0.25, 1, 4} {
			mean, deviation := simulate(r, best*units.Seconds(f), c.delta, c.downtime, c.mtbf)
			require.InDelta(t, float64(Segment(best*units.Seconds(f), c.delta, c.downtime, c.mtbf)), mean, 4*deviation, "%v × %g", c, f)
			waste[f] = mean / f
		}
		require.Less(t, waste[1], waste[0.25], "%v", c)
		require.Less(t, waste[1], waste[4], "%v", c)
	}
}

// TestMonteCarloSpares: Erlang's formula is what failures without memory and repairs
// of fixed length do to a job that stands still for want of a node.
func TestMonteCarloSpares(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const mtbf, repair, failures = 4.0, 24.0, 200_000
	for _, n := range []int{0, 4, 8} {
		var now, waited float64
		var back []float64 // when the nodes under repair are back, in order
		for range failures {
			now += r.ExpFloat64() * mtbf
			for len(back) > 0 && back[0] <= now {
				back = back[1:]
			}
			back = append(back, now+repair)
			if len(back) > n { // the run waits, and does not fail meanwhile
				waited += back[0] - now
				now, back = back[0], back[1:]
			}
		}
		wait := ErlangB(int64(n)+1, repair/mtbf)
		require.InDelta(t, wait, waited/now, 0.005, n)
		p := Plan{Failures: mtbf, Losses: []Loss{{Key: "spares", Share: wait}}}
		require.InEpsilon(t, failures, p.Count(units.Seconds(now)), 0.01, n)
	}
}

// drawn is a job and its settings.
func drawn(t *rapid.T) (Job, Settings) {
	s := Defaults()
	set := func(d *hardware.Datum[units.Seconds], least, most float64, name string) {
		*d = hardware.Of(units.Seconds(rapid.Float64Range(least, most).Draw(t, name)))
	}
	set(&s.MTBF, 1e7, 1e10, "mtbf")
	set(&s.Detection, 0, 1800, "detection")
	set(&s.Restart, 0, 1800, "restart")
	set(&s.Repair, 0, 1e6, "repair")
	s.DataStall = hardware.Of(rapid.Float64Range(0, 0.5).Draw(t, "stall"))
	s.Stragglers = hardware.Of(rapid.Float64Range(0, 0.5).Draw(t, "stragglers"))
	if rapid.Bool().Draw(t, "given spares") {
		s.Spares = hardware.Of(rapid.Int64Range(0, 64).Draw(t, "spares"))
	}
	if rapid.Bool().Draw(t, "given interval") {
		set(&s.CheckpointInterval, 1, 1e5, "interval")
	}
	return Job{GPUs: rapid.Int64Range(1, 32768).Draw(t, "gpus"), Step: units.Seconds(rapid.Float64Range(0.05, 60).Draw(t, "step")), TokensPerStep: 4e6,
		Checkpoint: units.Bytes(rapid.Float64Range(1e9, 2e13).Draw(t, "bytes"))}, s
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, s := drawn(t)
		p, err := New(j, s)
		if err != nil {
			t.Skip(err)
		}
		require.Greater(t, p.Goodput, 0.0)
		require.LessOrEqual(t, p.Goodput, 1.0)
		total := p.Goodput
		for _, l := range p.Losses {
			require.GreaterOrEqual(t, l.Share, 0.0, l.Key)
			total += l.Share
		}
		require.InDelta(t, 1, total, 1e-6, "goodput and losses are all of the time")
		require.GreaterOrEqual(t, p.IntervalSteps, int64(1))

		f := rapid.Float64Range(0.01, 1).Draw(t, "factor")
		const rounding = 1e-9
		better := func(what string, change func(*Settings)) {
			next := s
			next.Spares = hardware.Of(p.Spares) // what was recommended stays
			if change(&next); next.CheckpointInterval.IsSet() {
				next.CheckpointInterval = hardware.Of(p.Interval)
			}
			q, err := New(j, next)
			require.NoError(t, err)
			require.GreaterOrEqual(t, q.Goodput, p.Goodput*(1-rounding), what)
		}
		better("a faster restart", func(s *Settings) { s.Restart = hardware.Of(s.Restart.Value * units.Seconds(f)) })
		better("faster detection", func(s *Settings) { s.Detection = hardware.Of(s.Detection.Value * units.Seconds(f)) })
		better("fewer failures", func(s *Settings) { s.MTBF = hardware.Of(s.MTBF.Value / units.Seconds(f)) })
		better("faster repair", func(s *Settings) { s.Repair = hardware.Of(s.Repair.Value * units.Seconds(f)) })
		better("faster storage", func(s *Settings) { s.StorageRate = hardware.Of(s.StorageRate.Value / units.Rate(f)) })
		better("one more spare", func(s *Settings) { s.Spares = hardware.Of(p.Spares + 1) })
		better("the best interval", func(s *Settings) { s.CheckpointInterval = hardware.Datum[units.Seconds]{} })
	})
}

// TestLlama3: the cluster that the defaults come from made progress for more than
// 90 % of the time (arXiv 2407.21783, section 3.3.4), with 5.7 TB per checkpoint.
func TestLlama3(t *testing.T) {
	p, err := New(Job{GPUs: 16384, Step: 5, TokensPerStep: 16e6, Checkpoint: 405.9e9 * 14}, Defaults())
	require.NoError(t, err)
	require.InDelta(t, 0.90, p.Goodput, 0.02)
	require.InDelta(t, 419, float64(54*24*hour/p.Failures), 0.5)
}

// TestBLOOM: 2.3 TB of checkpoint in 40 s from 384 GPUs (BigScience, The Technology
// Behind BLOOM Training, 2022); one or two failures a week (BigScience chronicles).
func TestBLOOM(t *testing.T) {
	p, err := New(Job{GPUs: 384, Step: 100, TokensPerStep: 2048 * 2048, Checkpoint: 176.25e9 * 14}, Defaults())
	require.NoError(t, err)
	require.InDelta(t, 40, float64(p.Checkpoint), 15)
	perWeek := float64(7 * 24 * hour / p.Failures)
	require.True(t, perWeek > 1 && perWeek < 2, perWeek)
}

func TestDefaultsHaveSources(t *testing.T) {
	s := Defaults()
	list := s.Assumptions()
	require.Len(t, list, 12)
	for _, a := range list {
		require.NotEmpty(t, a.Source, a.Key)
		require.NotEqual(t, "given", a.Source, a.Key)
		require.NotEmpty(t, a.Kind, a.Key)
	}
	require.NoError(t, s.Check())
}

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*Settings){
		"run.mtbf_per_gpu: 0":                 func(s *Settings) { s.MTBF = hardware.Of(units.Seconds(0)) },
		"run.hardware_share: 2; give a share": func(s *Settings) { s.HardwareShare = hardware.Of(2.0) },
		"run.data_stall: NaN":                 func(s *Settings) { s.DataStall = hardware.Of(math.NaN()) },
		"run.data_stall: 1000 (100000 %); give what it adds to the step, as a share of it, 0 to 10 (1000 %)":              func(s *Settings) { s.DataStall = hardware.Of(1000.0) },
		"run.straggler_loss: 10.5 (1050 %); give what it adds to the step":                                                func(s *Settings) { s.Stragglers = hardware.Of(10.5) },
		"run.checkpoint_interval: 4000 d; give a time of at most 365 d":                                                   func(s *Settings) { s.CheckpointInterval = hardware.Of(units.Seconds(4000 * 86400)) },
		"run.restart_time: 4000 d; give a time of at most 365 d":                                                          func(s *Settings) { s.Restart = hardware.Of(units.Seconds(4000 * 86400)) },
		"run.storage_rate_per_gpu: 1000000 TB/s; give a rate of 1 B/s to 1000 TB/s":                                       func(s *Settings) { s.StorageRate = hardware.Of(units.Rate(1e18)) },
		"run.price_per_gpu_hour: 0; give US dollars above 0, at most 1,000,000, or leave it out where no price is known":  func(s *Settings) { s.Price = hardware.Of(0.0) },
		"run.price_per_gpu_hour: -2; give US dollars above 0, at most 1,000,000, or leave it out where no price is known": func(s *Settings) { s.Price = hardware.Of(-2.0) },
		"run.spare_nodes: -1":                                     func(s *Settings) { s.Spares = hardware.Of(int64(-1)) },
		"run.checkpoint_interval: 0; give a time":                 func(s *Settings) { s.CheckpointInterval = hardware.Of(units.Seconds(0)) },
		"run.tokens: 1e+30; give a count of 1 to 1e+18, as in 2T": func(s *Settings) { s.Tokens = hardware.Of(Tokens(1e30)) },
		"run.pue: 0.9; give a factor of 1 to 10":                  func(s *Settings) { s.PUE = hardware.Of(0.9) },
		"nothing is ever done; use fewer GPUs or r":               func(s *Settings) { s.MTBF = hardware.Of(units.Seconds(3600)) },
	} {
		s := Defaults()
		change(&s)
		_, err := New(Job{GPUs: 1024, Step: 1, TokensPerStep: 1, Checkpoint: 1e12}, s)
		require.ErrorContains(t, err, want)
	}
}
