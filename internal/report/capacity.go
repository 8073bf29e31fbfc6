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
	g := &grid{columns: []column{{title: "hardware"}, {title: "GPUs", right: true}, {title: "booked", right: true}, {title: "days", right: true}, {title: "GPU-hours", right: true, drop: 3}, {title: "cost", right: true, drop: 1}, {title: "MWh", right: true, drop: 4},
		{title: "goodput", right: true, drop: 2}, {title: "batch tokens", right: true, drop: 6}, {title: "plan", flex: 46, least: 16, drop: 5}, {}}}
	var refused bullets
	for _, c := range list {
		t := c.Training
		if t == nil {
			g.row(c.Job.Hardware.Name, "-", "-", "-", "-", "-", "-", "-", "-", "-", "impossible")
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
		g.row(c.Job.Hardware.Name, thousands(float64(r.Job.GPUs)), thousands(float64(t.GPUs)), days(t.Time), digits(t.GPUHours), cost, megawattHours(t.SiteEnergy), percent(t.Plan.Goodput), units.Count(r.Job.Tokens()), settings(r.Job), note)
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
		if c.Met {
			notes = append(notes, [2]string{c.Job.Hardware.Name + ": " + lookedAt(c), ""})
		}
	}
	notes = append(notes, [2]string{"failures, checkpoints and spare nodes are counted in; booked are GPUs with the spare ones", "perfplan train with the same flags and --gpus shows them, and the assumptions"})
	defaults(p, j, "gpus") // which is what was looked for
	p.section("Notes", notes)
	return p
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

type plainCluster struct {
	Hardware     string           `json:"hardware"`
	Met          bool             `json:"met"`
	Deadline     float64          `json:"deadline_s"`
	GPUs         *int64           `json:"gpus"`
	Booked       *int64           `json:"gpus_with_spares"`
	Spares       *int64           `json:"spare_nodes"`
	Nodes        *int64           `json:"nodes"`
	Time         *float64         `json:"time_s"`
	GPUHours     *float64         `json:"gpu_hours"`
	Cost         *float64         `json:"cost_usd"`
	SiteEnergy   *float64         `json:"site_energy_j"`
	Goodput      *float64         `json:"goodput"`
	StepTime     *float64         `json:"step_time_s"`
	Batch        *int64           `json:"global_batch"`
	MicroBatch   *int64           `json:"micro_batch"`
	Recompute    string           `json:"recompute,omitempty"`
	Plan         *strategies.Plan `json:"plan"`
	FloorNodes   int64            `json:"floor_nodes"`
	FromNodes    int64            `json:"from_nodes"`
	EveryNodes   int64            `json:"every_nodes"` // multiples of it from there on; each just below the answer
	SizesTried   int              `json:"sizes_tried"`
	Simple       bool             `json:"simple_plans_only"`
	Reason       string           `json:"reason,omitempty"`
	TokensPerGPU *float64         `json:"tokens_per_s_per_gpu"`
}

func (list Deadline) plain() any {
	out := struct {
		Schema   string         `json:"schema"`
		Model    string         `json:"model"`
		Tokens   float64        `json:"tokens"`
		Clusters []plainCluster `json:"clusters"`
		Notes    []diag.Note    `json:"notes"`
	}{"deadline/v1", list[0].Job.ModelName, float64(list[0].Job.Run.Tokens.Value), nil, defaultNotes(defaultsOf(list[0].Job, "gpus"))}
	for _, c := range list {
		x := plainCluster{Hardware: c.Job.Hardware.Name, Met: c.Met, Deadline: float64(c.Deadline), FloorNodes: c.Floor, FromNodes: c.From, EveryNodes: c.Every, SizesTried: c.Tried, Simple: c.Job.Open}
		if t := c.Training; t == nil {
			x.Reason = impossible(c)
		} else {
			r := t.Result
			time, energy, step := float64(t.Time), float64(t.SiteEnergy), float64(r.StepTime)
			x.GPUs, x.Nodes, x.Time, x.GPUHours, x.Cost, x.SiteEnergy, x.Goodput = &r.Job.GPUs, &c.Nodes, &time, &t.GPUHours, known(t.Cost), &energy, &t.Plan.Goodput
			x.Booked, x.Spares = &t.GPUs, &t.Plan.Spares
			x.StepTime, x.Batch, x.MicroBatch, x.Recompute, x.Plan, x.TokensPerGPU = &step, &r.Job.Train.GlobalBatch, &r.Job.Train.MicroBatch, r.Job.Train.RecomputeText(), &r.Job.Plan, &r.TokensPerSecond
		}
		out.Clusters = append(out.Clusters, x)
	}
	return out
}

func (list Deadline) records() ([]string, [][]string) {
	header := []string{"hardware", "met", "gpus", "time_s", "gpu_hours", "cost_usd", "site_energy_j", "goodput", "step_time_s", "plan", "gpus_with_spares", "spare_nodes"}
	var rows [][]string
	for _, c := range list {
		row := make([]string, len(header))
		row[0], row[1] = c.Job.Hardware.Name, fmt.Sprint(c.Met)
		if t := c.Training; t != nil {
			cost := ""
			if t.Price > 0 {
				cost = number(t.Cost)
			}
			copy(row[2:], []string{integer(t.Result.Job.GPUs), number(float64(t.Time)), number(t.GPUHours), cost, number(float64(t.SiteEnergy)), number(t.Plan.Goodput), number(float64(t.Result.StepTime)), settings(t.Result.Job), integer(t.GPUs), integer(t.Plan.Spares)})
		}
		rows = append(rows, row)
	}
	return header, rows
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
		if n := j.Remarks(); len(n) > 0 {
			p.section("Notes", noteList(n))
		}
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

type plainLargest struct {
	Hardware string           `json:"hardware"`
	GPUs     int64            `json:"gpus"`
	Value    *string          `json:"largest"`
	Next     *string          `json:"next"`
	Lacks    *float64         `json:"next_lacks_bytes"`
	Rule     string           `json:"next_rule,omitempty"`
	Plan     *strategies.Plan `json:"plan"`
	StepTime *float64         `json:"step_time_s"`
	Used     *float64         `json:"device_used_bytes"`
	Tried    int              `json:"values_tried"`
}

func (list Largest) plain() any {
	out := struct {
		Schema   string         `json:"schema"`
		Quantity string         `json:"quantity"`
		Clusters []plainLargest `json:"clusters"`
		Notes    []diag.Note    `json:"notes"`
	}{"largest/v1", list[0].Quantity.Name, nil, []diag.Note{}}
	if j := firstFitting(list); j != nil {
		out.Notes = append(defaultNotes(defaultsOf(j)), j.Remarks()...)
	}
	for _, x := range list {
		q := plainLargest{Hardware: x.Hardware, GPUs: x.GPUs, Tried: x.Count}
		if b := x.Best; b != nil {
			step, used := float64(b.Result.StepTime), float64(b.Result.Memory.DeviceUsed)
			q.Value, q.Plan, q.StepTime, q.Used = &b.Value, &b.Result.Job.Plan, &step, &used
		}
		if n := x.Next; n != nil {
			q.Next = &n.Value
			if n.Err != nil {
				q.Rule = firstLine(n.Err.Error())
			} else {
				lacks := float64(n.Result.Memory.DeviceUsed - n.Result.Memory.Capacity)
				q.Lacks = &lacks
			}
		}
		out.Clusters = append(out.Clusters, q)
	}
	return out
}

func (list Largest) records() ([]string, [][]string) {
	header := []string{"hardware", "gpus", "largest", "step_time_s", "device_used_bytes", "plan", "next"}
	var rows [][]string
	for _, x := range list {
		row := []string{x.Hardware, integer(x.GPUs), "", "", "", "", ""}
		if b := x.Best; b != nil {
			copy(row[2:], []string{b.Value, number(float64(b.Result.StepTime)), number(float64(b.Result.Memory.DeviceUsed)), settings(b.Result.Job)})
		}
		if x.Next != nil {
			row[6] = x.Next.Value
		}
		rows = append(rows, row)
	}
	return header, rows
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
