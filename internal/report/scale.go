package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// WriteScale prints scaling curves.
func WriteScale(w io.Writer, x *whatif.Scaling, f Format, s Style) error {
	if f == Plot {
		return writeTrend(w, scaleTrend(x), s)
	}
	return write(w, f, s, func() *page { return scalePage(x) }, func() any { return scalePlain(x) }, func() ([]string, [][]string) { return scaleRecords(x) })
}

// PlotScale draws the efficiencies as an SVG.
func PlotScale(w io.Writer, x *whatif.Scaling) error { return writeTrendSVG(w, scaleTrend(x)) }

func both(x *whatif.Scaling) []*whatif.Curve { return []*whatif.Curve{x.Strong, x.Weak} }

func scalePage(x *whatif.Scaling) *page {
	p := &page{title: fmt.Sprintf("%s on %s, %s, %s to %s GPUs", x.Job.ModelName, x.Job.Hardware.Name, x.Job.Recipe.Name, thousands(float64(x.Strong.Sizes[0].GPUs)), thousands(float64(x.Strong.Sizes[len(x.Strong.Sizes)-1].GPUs)))}
	p.add(fields{{"Strong", breakText(x.Strong, x.Least)}, {"Weak", breakText(x.Weak, x.Least)}})
	for _, c := range both(x) {
		p.section(curveTitle(c), curveGrid(c, x.Job.Open))
		var refused bullets
		for _, s := range c.Sizes {
			if s.Err != nil {
				refused = append(refused, [2]string{fmt.Sprintf("%s GPUs: %s", thousands(float64(s.GPUs)), firstLine(s.Err.Error())), ""})
			}
		}
		if len(refused) > 0 {
			p.add(refused)
		}
	}
	defaults(p, x.Job, "gpus")
	if n := scaleNotes(x); len(n) > 0 {
		p.section("Notes", noteList(n))
	}
	return p
}

// scaleNotes warn of plans that nobody chose, and of such a batch: it decides how far
// strong scaling goes.
func scaleNotes(x *whatif.Scaling) []diag.Note {
	out := simpleNotes(x.Job.Open)
	if x.Job.Given.GlobalBatch > 0 {
		return out
	}
	return append(out, diag.Note{Code: openBatchCode, Text: fmt.Sprintf("the job names no global batch; the %s per step that strong scaling shares out follow from the plan on %s", plural(int(x.Batch), "sequence"), plural(int(x.Job.GPUs), "GPU")), Remedy: giveBatch})
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func curveTitle(c *whatif.Curve) string {
	t := c.Sizes[c.Base].Result.Job.Train
	if c.Kind == "strong" {
		return fmt.Sprintf("Strong scaling: %s per step, always", plural(int(t.GlobalBatch), "sequence"))
	}
	return fmt.Sprintf("Weak scaling: %s per step for %s", plural(int(t.GlobalBatch), "sequence"), plural(int(c.Sizes[c.Base].GPUs), "GPU"))
}

// breakText says where a curve breaks, and why.
func breakText(c *whatif.Curve, least float64) string {
	b, from := c.Break, againstText(c)
	if b == nil {
		return fmt.Sprintf("above %s efficiency up to %s GPUs%s%s", percent(least), thousands(float64(c.Sizes[len(c.Sizes)-1].GPUs)), from, betweenText(c))
	}
	s := &c.Sizes[b.At]
	if b.Rule != "" {
		return fmt.Sprintf("ends before %s GPUs%s: %s%s", thousands(float64(s.GPUs)), from, firstLine(b.Rule), betweenText(c))
	}
	return fmt.Sprintf("breaks at %s GPUs with %s efficiency%s: %s grew from %s to %s GPU-s per million tokens%s", thousands(float64(s.GPUs)), percent(s.Efficiency), from, termName(b.Term),
		short(b.From), short(b.To), betweenText(c))
}

// mostApart is how many sizes are named that suit batch or stages badly.
const mostApart = 6

// betweenText names the sizes on the way that suit batch or stages badly.
func betweenText(c *whatif.Curve) string {
	if len(c.Apart) == 0 {
		return ""
	}
	var names []string
	for _, i := range c.Apart[:min(len(c.Apart), mostApart)] {
		names = append(names, thousands(float64(c.Sizes[i].GPUs)))
	}
	text := strings.Join(names, ", ")
	if more := len(c.Apart) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "; sizes on the way that suit batch or stages badly: " + text
}

// againstText says what a curve's efficiencies are measured against where that is not plainly
// its first size.
func againstText(c *whatif.Curve) string {
	base := &c.Sizes[c.Base]
	switch {
	case !base.Result.Memory.Fits:
		return fmt.Sprintf(" against %s, though no size fits in memory", plural(int(base.GPUs), "GPU"))
	case c.Base > 0:
		return fmt.Sprintf(" against %s, the smallest size that fits", plural(int(base.GPUs), "GPU"))
	}
	return ""
}

// termName is what people read for a term of whatif.TimeTerms.
func termName(key string) string {
	if g, ok := strings.CutPrefix(key, "exposed_comm."); ok {
		return "exposed communication (" + g + ")"
	}
	for _, p := range timeNames {
		if p[0] == key {
			return p[1]
		}
	}
	return memoryName(key)
}

// curveGrid shows the sizes of a curve; a plan that was picked for each size stays on
// narrow pages, too.
func curveGrid(c *whatif.Curve, picked bool) *grid {
	plan := column{title: "plan", flex: 34, least: 16, drop: 3}
	if picked {
		plan.drop = 0
	}
	g := &grid{bars: true, columns: []column{{title: "GPUs", right: true}, {title: "step", right: true}, {title: "tokens/s", right: true, drop: 2}, {title: "speedup", right: true}, {title: "efficiency", right: true},
		{title: "used GiB", right: true, drop: 1}, plan, {}}}
	for _, s := range c.Sizes {
		if s.Err != nil {
			g.row(thousands(float64(s.GPUs)), "-", "-", "-", "-", "-", "-", "not legal")
			continue
		}
		r := s.Result
		note := ""
		if !r.Memory.Fits {
			note = "does not fit"
		}
		speedup, efficiency := "-", "-" // of what is smaller than the base
		if s.Efficiency > 0 {
			speedup, efficiency = fmt.Sprintf("%.2f", s.Speedup), percent(s.Efficiency)
		}
		g.lines = append(g.lines, line{share: s.Efficiency, cells: []string{thousands(float64(s.GPUs)), r.StepTime.String(), units.Count(r.TokensPerSecond * float64(r.Job.GPUs)), speedup,
			efficiency, gibibytes(r.Memory.DeviceUsed), settings(r.Job), note}})
	}
	return g.withoutEmpty()
}

type plainScale struct {
	Schema string       `json:"schema"`
	Least  float64      `json:"least_efficiency"`
	Curves []plainCurve `json:"curves"`
	Notes  []diag.Note  `json:"notes"`
}

type plainCurve struct {
	Kind  string      `json:"kind"`
	Base  int64       `json:"base_gpus"` // the smallest that fit, or of those that are legal where none does
	Sizes []plainSize `json:"sizes"`
	Break *plainBreak `json:"break"`
	Apart []int64     `json:"apart"` // sizes before the break that are refused or below the least efficiency
}

type plainSize struct {
	GPUs       int64            `json:"gpus"`
	Legal      bool             `json:"legal"`
	Rule       string           `json:"rule,omitempty"`
	Plan       *strategies.Plan `json:"plan,omitempty"`
	Batch      int64            `json:"global_batch,omitempty"`
	StepTime   *float64         `json:"step_time_s"`
	Tokens     *float64         `json:"tokens_per_s_per_gpu"`
	Speedup    *float64         `json:"speedup"`
	Efficiency *float64         `json:"efficiency"`
	DeviceUsed *float64         `json:"device_used_bytes"`
	Fits       bool             `json:"fits"`
}

type plainBreak struct {
	GPUs int64   `json:"gpus"`
	Rule string  `json:"rule,omitempty"`
	Term string  `json:"term,omitempty"`
	From float64 `json:"from_gpu_s_per_million_tokens"`
	To   float64 `json:"to_gpu_s_per_million_tokens"`
}

func scalePlain(x *whatif.Scaling) plainScale {
	out := plainScale{Schema: "scale/v1", Least: x.Least, Notes: append(defaultNotes(defaultsOf(x.Job, "gpus")), scaleNotes(x)...)}
	for _, c := range both(x) {
		p := plainCurve{Kind: c.Kind, Base: c.Sizes[c.Base].GPUs}
		for _, s := range c.Sizes {
			q := plainSize{GPUs: s.GPUs, Legal: s.Err == nil}
			if s.Err != nil {
				q.Rule = firstLine(s.Err.Error())
			} else {
				r := s.Result
				step, used := float64(r.StepTime), float64(r.Memory.DeviceUsed)
				q.Plan, q.Batch, q.StepTime, q.Tokens, q.Speedup, q.Efficiency, q.DeviceUsed, q.Fits = &r.Job.Plan, r.Job.Train.GlobalBatch, &step, &r.TokensPerSecond, known(s.Speedup), known(s.Efficiency), &used, r.Memory.Fits
			}
			p.Sizes = append(p.Sizes, q)
		}
		p.Apart = []int64{}
		for _, i := range c.Apart {
			p.Apart = append(p.Apart, c.Sizes[i].GPUs)
		}
		if b := c.Break; b != nil {
			p.Break = &plainBreak{c.Sizes[b.At].GPUs, firstLine(b.Rule), b.Term, b.From, b.To}
		}
		out.Curves = append(out.Curves, p)
	}
	return out
}

func scaleRecords(x *whatif.Scaling) ([]string, [][]string) {
	header := []string{"kind", "gpus", "step_time_s", "tokens_per_s_per_gpu", "speedup", "efficiency", "device_used_bytes", "fits", "rule"}
	var rows [][]string
	for _, c := range both(x) {
		for _, s := range c.Sizes {
			row := []string{c.Kind, integer(s.GPUs), "", "", "", "", "", "", ""}
			if s.Err != nil {
				row[8] = firstLine(s.Err.Error())
			} else {
				r := s.Result
				copy(row[2:], []string{number(float64(r.StepTime)), number(r.TokensPerSecond), knownNumber(s.Speedup), knownNumber(s.Efficiency), number(float64(r.Memory.DeviceUsed)), fmt.Sprint(r.Memory.Fits)})
			}
			rows = append(rows, row)
		}
	}
	return header, rows
}

// scaleTrend is the efficiency of both curves.
func scaleTrend(x *whatif.Scaling) *trend {
	c := &trend{title: "Scaling efficiency of " + x.Job.ModelName + " on " + x.Job.Hardware.Name, x: "gpus", y: "efficiency"}
	for _, s := range x.Strong.Sizes {
		c.names, c.at = append(c.names, integer(s.GPUs)), append(c.at, float64(s.GPUs))
	}
	for _, curve := range both(x) {
		for i, s := range curve.Sizes {
			y := missing
			if s.Efficiency > 0 {
				y = s.Efficiency
			}
			c.add(curve.Kind, i, y)
		}
	}
	return c
}
