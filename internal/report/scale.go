package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
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
	p := &page{title: fmt.Sprintf("%s on %s, %s, %s to %s GPUs", x.Job.ModelName, x.Job.Hardware.Name, recipeName(x.Job), thousands(float64(x.Strong.Sizes[0].GPUs)), thousands(float64(x.Strong.Sizes[len(x.Strong.Sizes)-1].GPUs)))}
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
	p.remarks(scaleNotes(x))
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

func scalePlain(x *whatif.Scaling) any {
	var curves []ordered
	for _, c := range both(x) {
		apart := []int64{} // sizes before the break that are refused or below the least efficiency
		for _, i := range c.Apart {
			apart = append(apart, c.Sizes[i].GPUs)
		}
		var end any
		if b := c.Break; b != nil {
			var from, to any // nothing, of a size that a rule refuses
			if b.Term != "" {
				from, to = b.From, b.To
			}
			end = ordered{{"gpus", c.Sizes[b.At].GPUs}, {"rule", unlessNone(firstLine(b.Rule))}, {"term", unlessNone(b.Term)}, {"from_gpu_s_per_million_tokens", from}, {"to_gpu_s_per_million_tokens", to}}
		}
		// base_gpus: the smallest that fit, or of those that are legal where none does
		curves = append(curves, ordered{{"kind", c.Kind}, {"base_gpus", c.Sizes[c.Base].GPUs}, {"sizes", listed(c.Sizes, plainSize)}, {"break", end}, {"apart", apart}})
	}
	return document("scale/v1", ordered{{"least_efficiency", x.Least}, {"curves", curves}, {"notes", append(defaultNotes(defaultsOf(x.Job, "gpus")), scaleNotes(x)...)}})
}

// plainSize is a size with what was predicted; null where a rule forbids it.
func plainSize(s *whatif.Size) ordered {
	if s.Err != nil {
		return ordered{{"gpus", s.GPUs}, {"legal", false}, {"rule", unlessNone(firstLine(s.Err.Error()))}, {"step_time_s", nil}, {"step_time_low_s", nil}, {"step_time_high_s", nil}, {"tokens_per_s_per_gpu", nil}, {"speedup", nil}, {"efficiency", nil}, {"device_used_bytes", nil}, {"fits", false}}
	}
	r := s.Result
	return slices.Concat(ordered{{"gpus", s.GPUs}, {"legal", true}, {"plan", r.Job.Plan}, {"global_batch", unlessNone(r.Job.Train.GlobalBatch)}}, stepOf(r), ordered{{"tokens_per_s_per_gpu", r.TokensPerSecond},
		{"speedup", known(s.Speedup)}, {"efficiency", known(s.Efficiency)}, {"device_used_bytes", r.Memory.DeviceUsed}, {"fits", r.Memory.Fits}})
}

func scaleRecords(x *whatif.Scaling) ([]string, [][]string) {
	var rows []ordered
	for _, c := range both(x) {
		for i := range c.Sizes {
			size := plainSize(&c.Sizes[i])
			if c.Sizes[i].Err != nil {
				size = slices.DeleteFunc(size, func(e entry) bool { return e.key == "fits" }) // nobody knows
			}
			rows = append(rows, append(ordered{{"kind", c.Kind}}, size...))
		}
	}
	return tabled(rows, "kind", "gpus", "step_time_s", "tokens_per_s_per_gpu", "speedup", "efficiency", "device_used_bytes", "fits", "rule")
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
