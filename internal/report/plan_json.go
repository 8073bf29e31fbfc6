package report

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/search"
)

// plainPlans is the contract for scripts.
type plainPlans struct {
	Schema     string        `json:"schema"`
	Versions   versions      `json:"versions"`
	Objective  string        `json:"objective"`
	Headroom   float64       `json:"min_headroom"` // of the memory
	Plans      []plainRanked `json:"plans"`
	Rivals     int           `json:"rivals"` // of the first plans, how many share probability_best
	Considered int           `json:"considered"`
	Legal      int           `json:"legal"`
	Fits       int           `json:"fits"` // of those evaluated
	Evaluated  int           `json:"evaluated"`
	Pruned     int           `json:"pruned"`
	Partial    bool          `json:"partial"`
	Rejected   ordered       `json:"rejected"`
	Own        *plainResult  `json:"own,omitempty"`
	WhyNot     []plainWhyNot `json:"why_not,omitempty"`
	Front      []plainMember `json:"front,omitempty"`
	Alike      *plainAlike   `json:"front_resolution,omitempty"`
	Nearest    *plainNearest `json:"nearest,omitempty"`
	Notes      []diag.Note   `json:"notes"`
}

type plainRanked struct {
	Rank  int             `json:"rank"`
	Tie   bool            `json:"tie"`
	Plan  strategies.Plan `json:"plan"`
	Best  *float64        `json:"probability_best"`
	Costs plainCosts      `json:"costs"`
	plainResult
}

type plainCosts struct {
	Dollars *float64 `json:"dollars_per_million_tokens"`
	Joules  *float64 `json:"joules_per_million_tokens"`
	Days    *float64 `json:"train_days"`
}

type plainWhyNot struct {
	Fix      string       `json:"fix"`
	Rejected ordered      `json:"rejected,omitempty"`
	Misfit   *plainResult `json:"misfit,omitempty"`
	Best     *plainResult `json:"best,omitempty"`
	Behind   float64      `json:"behind"`
	Lost     []plainTerm  `json:"lost,omitempty"`
}

// plainTerm is a part of two steps, both for the batch of the plan asked for.
type plainTerm struct {
	Name  string  `json:"name"`
	Time  float64 `json:"time_s"`
	Other float64 `json:"best_time_s"`
}

type plainMember struct {
	Costs plainCosts `json:"costs"`
	plainResult
}

// plainAlike is how much better a plan may be than one of the front and be left out.
type plainAlike struct {
	Share  float64 `json:"share"` // of time, cost and energy
	Memory float64 `json:"memory_bytes"`
}

type plainNearest struct {
	Least *plainResult `json:"least_memory,omitempty"`
	GPUs  int64        `json:"gpus,omitempty"`
	Plan  *plainResult `json:"plan,omitempty"`
	Free  float64      `json:"min_headroom"` // of the memory, that the plan leaves
}

func (p *Plans) result(c *search.Candidate) plainResult {
	e := Estimate{Result: c.Result, Given: p.Given, Version: p.Version}
	return e.result()
}

func (p *Plans) maybe(c *search.Candidate) *plainResult {
	if c == nil {
		return nil
	}
	r := p.result(c)
	return &r
}

func costsOf(c search.Costs) plainCosts {
	return plainCosts{known(c.Dollars), known(float64(c.Joules)), known(c.Days)}
}

func counts(list []search.Count) ordered {
	out := ordered{}
	for _, c := range list {
		out = append(out, entry{c.Reason, float64(c.N)})
	}
	return out
}

func (p *Plans) plain() any {
	r := p.Ranking
	out := plainPlans{Schema: "plans/v1", Versions: versions{p.Version}, Objective: string(r.Options.Objective), Headroom: r.Options.Headroom, Plans: []plainRanked{},
		Rivals: r.Rivals, Considered: r.Considered, Legal: r.Legal, Fits: r.Fits, Evaluated: r.Evaluated, Pruned: r.Pruned, Partial: p.Partial(), Rejected: counts(r.Rejected), Own: p.maybe(p.Own), Notes: p.notes()}
	for i := range r.Plans {
		x := &r.Plans[i]
		costs := search.CostsOf(x.Job, x.Result, p.Dollars, r.Options.TrainTokens)
		out.Plans = append(out.Plans, plainRanked{x.Rank, x.Tie, x.Job.Plan, known(x.Best), costsOf(costs), p.result(&x.Candidate)})
	}
	for _, w := range p.WhyNot {
		q := plainWhyNot{Fix: w.Fix.String(), Rejected: counts(w.Rejected), Misfit: p.maybe(w.Misfit), Best: p.maybe(w.Best), Behind: w.Behind}
		for _, t := range w.Lost {
			q.Lost = append(q.Lost, plainTerm{t.Name, float64(t.Time), float64(t.Other)})
		}
		out.WhyNot = append(out.WhyNot, q)
	}
	if p.Front != nil {
		out.Alike = &plainAlike{search.Alike, float64(p.Front.Memory)}
		for i := range p.Front.Points {
			x := &p.Front.Points[i]
			out.Front = append(out.Front, plainMember{costsOf(x.Costs), p.result(&x.Candidate)})
		}
	}
	if n := p.Near; n != nil {
		out.Nearest = &plainNearest{p.maybe(n.Least), n.GPUs, p.maybe(n.Plan), n.Headroom}
	}
	return out
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
