package report

import (
	"testing"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/search"
)

// ranked is a made-up ranking: two plans that tie, what was asked beside, a front.
func ranked(t *testing.T) *Plans {
	one, two := pipeline(t), pipeline(t)
	two.Result.Job.Plan.Bucket = 100 * units.MiB
	small := *two.Result.Job
	small.Train.GlobalBatch = 32
	other := search.Candidate{Job: &small, Result: two.Result}
	sharded := *two.Result.Job
	sharded.Plan.DP, sharded.Plan.DataParallel = 8, strategies.ZeRO1
	foreign := search.Candidate{Job: &sharded, Result: two.Result}
	first := search.Candidate{Job: one.Result.Job, Result: one.Result}
	second := search.Candidate{Job: two.Result.Job, Result: two.Result}
	r := &search.Ranking{
		Job: first.Job, Options: search.Options{Objective: search.Tokens, TrainTokens: 2e12}, Rivals: 12, Considered: 12345, Batches: [2]int64{32, 512}, Legal: 2345, Fits: 45, Evaluated: 345, Pruned: 1000,
		Plans: []search.Ranked{{Candidate: first, Rank: 1, Tie: true, Value: 1, Best: 0.6}, {Candidate: second, Rank: 1, Tie: true, Value: 1, Best: 0.3}},
		Rejected: []search.Count{{Reason: "plan.tp", N: 10000, Example: "plan.tp: 3 does not divide num_attention_heads 64 (use 1, 2, 4, 8, 16, 32, 64)"}, {Reason: "memory.states", N: 1000}, {Reason: "memory.activations", N: 200},
			{Reason: "memory.peak", N: 300}, {Reason: "headroom.states", N: 90, Free: 0.7}, {Reason: "headroom.activations", N: 80, Free: 0.7}, {Reason: "headroom.peak", N: 70, Free: 0.7}},
	}
	return &Plans{
		Ranking: r, Own: &second, Dollars: 2.5,
		WhyNot: []*search.WhyNot{
			{Fix: search.Fix{"tp": "8", "pp": "4"}, Best: &second, Behind: 0.037, Lost: []search.Term{{Name: "exposed tp", Time: 0.9, Other: 0.5}, {Name: "attention", Time: 0.2, Other: 0.2}, {Name: "pipeline bubble", Time: 0.1, Other: 0.2}}},
			{Fix: search.Fix{"tp": "2"}, Best: &other, Behind: 0.08, Lost: []search.Term{{Name: "exposed tp", Time: 0.9, Other: 0.5}}},
			{Fix: search.Fix{"data_parallel": "zero1"}, Best: &foreign, Behind: -0.05},
			{Fix: search.Fix{"tp": "3"}, Rejected: r.Rejected[:1]},
			{Fix: search.Fix{"tp": "1"}, Misfit: &second},
		},
		Front: &search.Front{GPUs: []int64{64, 32}, Memory: 5 * units.GiB, Points: []search.Point{{Candidate: first, Costs: search.Costs{Dollars: 0.5, Joules: 5e5}}}},
	}
}

// stopped is a ranking that was stopped before any plan was evaluated.
func stopped(t *testing.T) *Plans {
	p := ranked(t)
	p.Ranking.Plans, p.Ranking.Partial, p.Own, p.WhyNot, p.Front = nil, true, nil, nil, nil
	return p
}

// unfit is a ranking in which nothing fits.
func unfit(t *testing.T) *Plans {
	p := ranked(t)
	least := p.Ranking.Plans[0].Candidate
	p.Ranking.Plans, p.Ranking.Pruned, p.Own, p.WhyNot, p.Front = nil, 0, nil, nil, nil
	p.Near = &search.Nearest{Least: &least, GPUs: 128, Plan: &least, Headroom: 0.03}
	return p
}
