package report

import (
	"github.com/perfplan/perfplan/strategies/search"
)

// result is a candidate as perfplan estimate has it, nil where there is none.
func (p *Plans) result(c *search.Candidate) ordered {
	if c == nil {
		return nil
	}
	e := Estimate{Result: c.Result, Given: p.Given}
	return e.result()
}

func costsOf(c search.Costs) ordered {
	return ordered{{"cost_usd_per_million_tokens", known(c.Dollars)}, {"energy_j_per_million_tokens", known(c.Joules)}, {"train_days", known(c.Days)}}
}

func counts(list []search.Count) ordered {
	out := ordered{}
	for _, c := range list {
		out = append(out, entry{c.Reason, float64(c.N)})
	}
	return out
}

// plain is the contract for scripts.
func (p *Plans) plain() any {
	r := p.Ranking
	plans := listed(r.Plans, func(x *search.Ranked) ordered {
		costs := search.CostsOf(x.Job, x.Result, p.Dollars, r.Options.TrainTokens)
		return append(ordered{{"rank", x.Rank}, {"tie", x.Tie}, {"plan", x.Job.Plan}, {"probability_best", known(x.Best)}, {"costs", costsOf(costs)}}, p.result(&x.Candidate)...)
	})
	out := document("plans/v1", ordered{
		{"objective", r.Options.Objective},
		{"min_headroom", r.Options.Headroom}, // of the memory
		{"plans", plans},
		{"rivals", r.Rivals}, // of the first plans, how many share probability_best
		{"considered", r.Considered}, {"legal", r.Legal},
		{"fits", r.Fits}, // of those evaluated
		{"evaluated", r.Evaluated}, {"pruned", r.Pruned}, {"partial", p.Partial()}, {"rejected", counts(r.Rejected)}, {"own", unlessNone(p.result(p.Own))}, {"why_not", unlessNone(listed(p.WhyNot, p.plainWhyNot))},
	})
	if p.Front != nil {
		front := listed(p.Front.Points, func(x *search.Point) ordered {
			return append(ordered{{"costs", costsOf(x.Costs)}}, p.result(&x.Candidate)...)
		})
		// How much better a plan may be than one of the front and be left out: in time, cost and energy, and in memory.
		out = append(out, entry{"front", unlessNone(front)}, entry{"front_resolution", ordered{{"share", search.Alike}, {"memory_bytes", p.Front.Memory}}})
	}
	if n := p.Near; n != nil {
		out = append(out, entry{"nearest", ordered{{"least_memory", unlessNone(p.result(n.Least))}, {"gpus", unlessNone(n.GPUs)}, {"plan", unlessNone(p.result(n.Plan))}, {"min_headroom", n.Headroom}}})
	}
	return append(out, entry{"notes", p.notes()})
}

func (p *Plans) plainWhyNot(x **search.WhyNot) ordered {
	w := *x
	lost := listed(w.Lost, func(t *search.Term) ordered { // parts of two steps, both for the batch of the plan asked for
		return ordered{{"name", t.Name}, {"time_s", t.Time}, {"best_time_s", t.Other}}
	})
	var behind any // nothing, where no plan is to be compared
	if w.Best != nil && len(p.Ranking.Plans) > 0 {
		behind = w.Behind
	}
	return ordered{{"fix", w.Fix.String()}, {"rejected", unlessNone(counts(w.Rejected))}, {"misfit", unlessNone(p.result(w.Misfit))}, {"best", unlessNone(p.result(w.Best))}, {"behind", behind}, {"lost", unlessNone(lost)}}
}

// records is one row for each plan.
func (p *Plans) records() (header []string, rows [][]string) {
	for i := range p.Ranking.Plans {
		x := &p.Ranking.Plans[i]
		h, r := (&Estimate{Result: x.Result}).records()
		header = append([]string{"rank", "probability_best"}, h...)
		rows = append(rows, append([]string{integer(int64(x.Rank)), number(x.Best)}, r[0]...))
	}
	return
}
