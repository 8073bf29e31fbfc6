package report

import (
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/capacity"
)

// Deadline says which clusters make a deadline.
type Deadline []*capacity.Cluster

func (list Deadline) page() *page {
	j := list[0].Job
	p := &page{title: fmt.Sprintf("%s tokens of %s within %s", units.Count(float64(j.Run.Tokens.Value)), j.ModelName, lasting(list[0].Deadline))}
	g := &grid{columns: []column{{title: "hardware"}, {title: "GPUs", right: true}, {title: "booked", right: true}, {title: "days", right: true}, {title: "80 % range", right: true, drop: 6}, {title: "GPU-hours", right: true, drop: 3}, {title: "cost", right: true, drop: 1}, {title: "MWh", right: true, drop: 4},
		{title: "goodput", right: true, drop: 2}, {title: "batch tokens", right: true, drop: 7}, {title: "plan", flex: 46, least: 16, drop: 5}, {}}}
	var refused bullets
	for _, c := range list {
		t := c.Training
		if t == nil {
			g.row(c.Job.Hardware.Name, "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "impossible")
			refused = append(refused, [2]string{c.Job.Hardware.Name + ": " + impossible(c), ""})
			continue
		}
		r := t.Result
		cost := "-"
		if t.Price > 0 {
			cost = dollars(t.Cost)
		}
		note := ""
		if !c.Met {
			note = "too late"
		}
		g.row(c.Job.Hardware.Name, thousands(float64(r.Job.GPUs)), thousands(float64(t.GPUs)), days(t.Time), days(t.Low)+" to "+days(t.High), digits(t.GPUHours), cost, megawattHours(t.SiteEnergy), percent(t.Plan.Goodput), units.Count(r.Job.Tokens()), settings(r.Job), note)
	}
	p.section("The smallest cluster of each kind", g.withoutEmpty())
	p.add(refused)
	var notes bullets
	if j.Given.GlobalBatch == 0 {
		notes = append(notes, [2]string{"the job names no global batch, so it grows with the cluster", giveBatch})
	}
	if slices.ContainsFunc(list, func(c *capacity.Cluster) bool { return !c.Met && c.Training != nil }) {
		notes = append(notes, [2]string{"where every size is too late, the fastest is shown", ""})
	}
	if i := slices.IndexFunc(list, func(c *capacity.Cluster) bool { return c.Job.Open && c.Training != nil }); i >= 0 {
		notes = append(notes, [2]string{"only simple plans were tried, and another may need fewer GPUs", rankAll(list[i])})
	}
	for _, c := range list {
		if c.Met && c.Training.High > c.Deadline {
			notes = append(notes, [2]string{fmt.Sprintf("%s makes it as predicted, but may take %s: the far end of the 80 %% range", c.Job.Hardware.Name, lasting(c.Training.High)), sooner(c)})
		}
		if c.Met {
			notes = append(notes, [2]string{c.Job.Hardware.Name + ": " + lookedAt(c), ""})
		}
	}
	notes = append(notes, [2]string{"failures, checkpoints and spare nodes are counted in; booked are GPUs with the spare ones", "perfplan train with the same flags and --gpus shows them, and the assumptions"})
	defaults(p, j, "gpus") // which is what was looked for
	p.section("Notes", notes)
	return p
}

// sooner says which deadline leaves room for what a prediction may be off by.
func sooner(c *capacity.Cluster) string {
	return fmt.Sprintf("--deadline %.3gd leaves room for that", float64(c.Deadline*c.Training.Time/c.Training.High)/86400)
}

// rankAll says how to try every plan on a cluster.
func rankAll(c *capacity.Cluster) string {
	return fmt.Sprintf("perfplan plan with the same job, --hardware %s and --gpus %d ranks all plans", c.Job.Hardware.Name, c.Training.Result.Job.GPUs)
}

// lookedAt says which sizes an answer is the smallest of.
func lookedAt(c *capacity.Cluster) string {
	from := thousands(float64(c.From * c.Job.Hardware.Node.GPUs.Value))
	switch {
	case c.From >= c.Nodes:
		return "no size below was looked at, as it would have to get more out of its GPUs than any that was"
	case c.Every > 1:
		return fmt.Sprintf("of the legal sizes from %s GPUs on the multiples of %s were looked at, and each just below the answer", from, thousands(float64(c.Every*c.Job.Hardware.Node.GPUs.Value)))
	}
	return fmt.Sprintf("each size in whole nodes from %s GPUs on was looked at", from)
}

func impossible(c *capacity.Cluster) string {
	if c.Err != nil && c.Tried == 0 {
		return firstLine(c.Err.Error())
	}
	return "it fits into the memory of no cluster that was tried"
}

func (list Deadline) plain() any {
	j := list[0].Job
	clusters := listed(list, func(c **capacity.Cluster) ordered { return plainCluster(*c) })
	return document("deadline/v1", ordered{{"model", j.ModelName}, {"tokens", j.Run.Tokens.Value}, {"clusters", clusters}, {"notes", defaultNotes(defaultsOf(j, "gpus"))}})
}

// plainCluster is the answer for a kind of machine; null where it is impossible.
func plainCluster(c *capacity.Cluster) ordered {
	out := ordered{{"hardware", c.Job.Hardware.Name}, {"met", c.Met}, {"deadline_s", c.Deadline}}
	searched := ordered{{"floor_nodes", c.Floor}, {"from_nodes", c.From},
		{"every_nodes", c.Every}, // multiples of it from there on; each just below the answer
		{"sizes_tried", c.Tried}, {"simple_plans_only", c.Job.Open}}
	t := c.Training
	if t == nil {
		for _, key := range []string{"gpus", "gpus_with_spares", "spare_nodes", "nodes", "time_s", "time_low_s", "time_high_s", "gpu_hours", "cost_usd", "site_energy_j", "goodput", "step_time_s", "step_time_low_s", "step_time_high_s", "global_batch", "micro_batch", "recompute", "plan"} {
			out = append(out, entry{key, nil})
		}
		return slices.Concat(out, searched, ordered{{"reason", unlessNone(impossible(c))}, {"tokens_per_s_per_gpu", nil}})
	}
	r := t.Result
	return slices.Concat(out, ordered{{"gpus", r.Job.GPUs}, {"gpus_with_spares", t.GPUs}, {"spare_nodes", t.Plan.Spares}, {"nodes", c.Nodes}, {"time_s", t.Time}, {"time_low_s", t.Low}, {"time_high_s", t.High}, {"gpu_hours", t.GPUHours}, {"cost_usd", known(t.Cost)},
		{"site_energy_j", t.SiteEnergy}, {"goodput", t.Plan.Goodput}}, stepOf(r), ordered{{"global_batch", r.Job.Train.GlobalBatch}, {"micro_batch", r.Job.Train.MicroBatch}, {"recompute", unlessNone(r.Job.Train.RecomputeText())}, {"plan", r.Job.Plan}},
		searched, ordered{{"tokens_per_s_per_gpu", r.TokensPerSecond}})
}

func (list Deadline) records() ([]string, [][]string) {
	var rows []ordered
	for _, c := range list {
		plan := ""
		if c.Training != nil {
			plan = settings(c.Training.Result.Job)
		}
		rows = append(rows, append(ordered{{"plan", plan}}, plainCluster(c)...))
	}
	return tabled(rows, "hardware", "met", "gpus", "time_s", "time_low_s", "time_high_s", "gpu_hours", "cost_usd", "site_energy_j", "goodput", "step_time_s", "plan", "gpus_with_spares", "spare_nodes")
}

// Deadlines says which kinds of machine are too late, "" when one is in time.
func Deadlines(list []*capacity.Cluster) string {
	var best *capacity.Cluster
	for _, c := range list {
		if c.Met {
			return ""
		}
		if c.Training != nil && (best == nil || c.Training.Time < best.Training.Time) {
			best = c
		}
	}
	if best == nil {
		return "no cluster that was tried can run the job"
	}
	nearest := fmt.Sprintf("nearest are %s on %s × %s", lasting(best.Training.Time), thousands(float64(best.Training.Result.Job.GPUs)), best.Job.Hardware.Name)
	if best.Job.Open {
		return "no simple plan meets the deadline: " + nearest + "; " + rankAll(best)
	}
	return "the deadline cannot be met: " + nearest
}

// Largest is the largest value that fits, for each kind of machine.
type Largest []MachineLargest

// MachineLargest is the answer for one kind of machine.
type MachineLargest struct {
	Hardware string
	GPUs     int64
	*capacity.Largest
}

func (list Largest) page() *page {
	q := list[0].Quantity
	p := &page{title: fmt.Sprintf("The largest %s that fits", q.Name)}
	g := &grid{columns: []column{{title: "hardware"}, {title: "GPUs", right: true}, {title: q.Name, right: q.Step > 0}, {title: "step", right: true, drop: 2}, {title: "tokens/s/GPU", right: true, drop: 1}, {title: "used GiB", right: true}, {title: "plan", flex: 46, least: 16, drop: 3}, {}}}
	var next bullets
	for _, x := range list {
		if x.Best == nil {
			g.row(x.Hardware, integer(x.GPUs), "-", "-", "-", "-", "-", "nothing fits")
		} else {
			r := x.Best.Result
			g.row(x.Hardware, integer(x.GPUs), x.Best.Value, r.StepTime.String(), thousands(r.TokensPerSecond), gibibytes(r.Memory.DeviceUsed), settings(r.Job), "")
		}
		if n := x.Next; n != nil {
			next = append(next, [2]string{fmt.Sprintf("%s: %s", x.Hardware, nextText(q, n)), ""})
		}
	}
	p.add(g.withoutEmpty())
	p.section("What is beyond", next)
	if j := firstFitting(list); j != nil {
		defaults(p, j)
		p.remarks(j.Remarks())
	}
	return p
}

// firstFitting is the job of the first machine on which something fits, nil where nothing does.
func firstFitting(list []MachineLargest) *strategies.Job {
	for _, x := range list {
		if x.Best != nil {
			return x.Best.Result.Job
		}
	}
	return nil
}

func nextText(q capacity.Quantity, n *capacity.Tried) string {
	if n.Err != nil {
		return fmt.Sprintf("%s %s is not legal: %s", q.Name, n.Value, firstLine(n.Err.Error()))
	}
	m := &n.Result.Memory
	return fmt.Sprintf("%s %s lacks %s per GPU with %s", q.Name, n.Value, excess(m), settings(n.Result.Job))
}

func (list Largest) plain() any {
	notes := []diag.Note{}
	if j := firstFitting(list); j != nil {
		notes = append(defaultNotes(defaultsOf(j)), j.Remarks()...)
	}
	clusters := listed(list, (*MachineLargest).plain)
	return document("largest/v1", ordered{{"quantity", list[0].Quantity.Name}, {"clusters", clusters}, {"notes", notes}})
}

// plain has null for what does not fit, or is not there.
func (x *MachineLargest) plain() ordered {
	var value, plan, used, next, lacks, rule any = nil, nil, nil, nil, nil, omitted{}
	step := ordered{{"step_time_s", nil}, {"step_time_low_s", nil}, {"step_time_high_s", nil}}
	if b := x.Best; b != nil {
		value, plan, step, used = b.Value, b.Result.Job.Plan, stepOf(b.Result), b.Result.Memory.DeviceUsed
	}
	if n := x.Next; n != nil {
		if next = n.Value; n.Err != nil {
			rule = firstLine(n.Err.Error())
		} else {
			lacks = n.Result.Memory.DeviceUsed - n.Result.Memory.Capacity
		}
	}
	return slices.Concat(ordered{{"hardware", x.Hardware}, {"gpus", x.GPUs}, {"largest", value}, {"next", next}, {"next_lacks_bytes", lacks}, {"next_rule", rule}, {"plan", plan}}, step, ordered{{"device_used_bytes", used}, {"values_tried", x.Count}})
}

func (list Largest) records() ([]string, [][]string) {
	var rows []ordered
	for _, x := range list {
		plan := ""
		if x.Best != nil {
			plan = settings(x.Best.Result.Job)
		}
		rows = append(rows, append(ordered{{"plan", plan}}, x.plain()...))
	}
	return tabled(rows, "hardware", "gpus", "largest", "step_time_s", "device_used_bytes", "plan", "next")
}

// Fitting says that nothing fits, "" when something does somewhere.
func Fitting(list []MachineLargest) string {
	for _, x := range list {
		if x.Best != nil {
			return ""
		}
	}
	x := list[0]
	return fmt.Sprintf("no %s fits; nearest on %s: %s", x.Quantity.Name, x.Hardware, nextText(x.Quantity, x.Next))
}
