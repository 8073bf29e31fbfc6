package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
)

// SummarySchema names the JSON of a Summary.
const SummarySchema = "trace/v1"

// Summary is one step of one rank: the mean over the whole steps of a trace.
type Summary struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	Rank   int    `json:"rank"`          // -1: not known
	World  int    `json:"world_size"`    // 0: not known
	GPU    string `json:"gpu,omitempty"` // the device's name; "": not known
	Steps  int    `json:"steps"`         // averaged
	Cut    bool   `json:"cut"`           // the step begins with the first kernel of the trace, not where another ended

	Span    Seconds `json:"step_time_s"`
	Idle    Seconds `json:"idle_s"`         // nothing runs on the device
	NCCL    Seconds `json:"nccl_s"`         // in communication kernels, each counted
	Exposed Seconds `json:"exposed_nccl_s"` // only communication runs

	Kernels []Sum `json:"kernels"` // by class, the longest first
}

// Sum is the kernels of one class in a step.
type Sum struct {
	Class   string  `json:"class"`
	Count   float64 `json:"count"`
	Time    Seconds `json:"time_s"`
	Longest string  `json:"longest"` // the name that takes most of the time
}

// Seconds are a bare number in JSON.
type Seconds units.Seconds

// seconds are the mean over steps of a time in microseconds, to a tenth of a
// nanosecond: the clock of a trace has no more.
func (s *Summary) seconds(micro float64) Seconds {
	return Seconds(math.Round(1e4*micro/float64(s.Steps)) / 1e10)
}

// LoadSummary summarizes a trace, or reads a summary that a comparison has written,
// packed with gzip or not.
func LoadSummary(name string) (*Summary, error) {
	f, err := diag.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := unpack(name, f)
	if err != nil {
		return nil, err
	}
	if head, _ := b.Peek(64); bytes.Contains(head, []byte(`"`+SummarySchema+`"`)) {
		return readSummary(name, json.NewDecoder(b))
	}
	t, err := Read(name, b)
	if err != nil {
		return nil, err
	}
	return Summarize(t)
}

func readSummary(name string, in *json.Decoder) (*Summary, error) {
	in.DisallowUnknownFields()
	s := &Summary{}
	if err := in.Decode(s); errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, complain(name, "ends in the middle (byte %d); it was cut off, write it again", in.InputOffset())
	} else if err != nil {
		return nil, complain(name, "is not a summary (byte %d): %s; make it anew with perfplan compare -o json", in.InputOffset(), strings.TrimPrefix(err.Error(), "json: "))
	}
	if !(s.Span > 0) {
		return nil, complain(name, "step_time_s: %g; a step takes time", float64(s.Span))
	}
	if s.Steps < 1 {
		return nil, complain(name, "steps: %d; give 1 or more", s.Steps)
	}
	for _, part := range []struct {
		key        string
		time, most Seconds
	}{{"idle_s", s.Idle, s.Span}, {"exposed_nccl_s", s.Exposed, s.Span}, {"nccl_s", s.NCCL, Seconds(latest)}} { // kernels of communication may run beside each other
		if part.time < 0 || part.time > part.most {
			return nil, complain(name, "%s: %g; give 0 to %g", part.key, float64(part.time), float64(part.most))
		}
	}
	for _, k := range s.Kernels {
		if k.Count < 0 || k.Time < 0 {
			return nil, complain(name, "kernels of class %q: count %g, time_s %g; give 0 or more", k.Class, k.Count, float64(k.Time))
		}
	}
	return s, nil
}

// Summarize cuts a trace into steps and sums one. A step goes from the end of one
// optimizer to the end of the next; the first of several has no such beginning and is
// left out.
func Summarize(t *Trace) (*Summary, error) {
	ends := stepEnds(t)
	if len(ends) == 0 {
		return nil, complain(t.Name, "shows no end of a step; call profiler.step() after each, or profile until the optimizer has run")
	}
	s := &Summary{Schema: SummarySchema, Name: t.Name, Rank: t.Rank, World: t.World, GPU: t.GPU, Steps: len(ends) - 1}
	from := ends[0]
	if s.Steps == 0 {
		s.Steps, s.Cut, from = 1, true, t.Spans[0].Start
	}
	to := ends[len(ends)-1]
	if s.sum(t, from, to); !(s.Span > 0) {
		return nil, complain(t.Name, "has a step that takes no time, at ts %.0f; profile it again", from)
	}
	return s, nil
}

// sum fills the summary from what started in [from, to).
func (s *Summary) sum(t *Trace, from, to float64) {
	var nccl float64
	times := map[string]float64{} // by class
	type key struct{ class, name string }
	names := map[key]float64{}
	sums := map[string]*Sum{}
	var all, compute cover
	for _, x := range t.Spans {
		if x.Start < from || x.Start >= to {
			continue
		}
		class := t.class(x.Name)
		sum := sums[class]
		if sum == nil {
			sum = &Sum{Class: class}
			sums[class] = sum
		}
		took := x.End - x.Start
		sum.Count++
		times[class] += took
		k := key{class, x.Name}
		names[k] += took
		if names[k] > names[key{class, sum.Longest}] || sum.Longest == "" {
			sum.Longest = x.Name
		}
		end := min(x.End, to)
		all.add(x.Start, end)
		if FamilyOf(class) == Collectives {
			nccl += took
		} else {
			compute.add(x.Start, end)
		}
	}
	s.Span, s.NCCL = s.seconds(to-from), s.seconds(nccl)
	s.Idle = s.seconds(max(to-from-all.length, 0))
	s.Exposed = s.seconds(max(all.length-compute.length, 0))
	for class, sum := range sums {
		sum.Count /= float64(s.Steps)
		sum.Time = s.seconds(times[class])
		sum.Longest = short(sum.Longest)
		s.Kernels = append(s.Kernels, *sum)
	}
	slices.SortFunc(s.Kernels, func(a, b Sum) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Class, b.Class)) })
}

// cover is the length of a union of intervals, added in the order they start.
type cover struct {
	end, length float64
	some        bool
}

func (c *cover) add(start, end float64) {
	if c.some {
		start = max(start, c.end)
	}
	if end > start {
		c.length += end - start
	}
	if !c.some || end > c.end {
		c.end, c.some = end, true
	}
}

// longestName is what is kept of a name of a kernel: templates go on for pages.
const longestName = 120

func short(name string) string {
	name = strings.ToValidUTF8(name, "")
	if runes := []rune(name); len(runes) > longestName {
		return string(runes[:longestName]) + "…"
	}
	return name
}

// stepEnds finds where steps end: at the annotations of profiler.step(), else where
// optimizers do.
func stepEnds(t *Trace) []float64 {
	optimized := optimizerEnds(t)
	if ends := profilerEnds(t); len(ends) > 0 {
		return whole(ends, optimized)
	}
	return optimized
}

// profilerEnds are the ends of profiler.step()'s annotations. The profiler writes each
// once for every stream that it has kernels on; the last of them ends the step.
func profilerEnds(t *Trace) []float64 {
	last := map[string]float64{}
	for _, m := range t.Marked {
		if strings.HasPrefix(m.Name, "ProfilerStep#") {
			last[m.Name] = max(m.End, last[m.Name])
		}
	}
	return slices.Sorted(maps.Values(last))
}

// whole leaves out the ends of micro steps, where profiler.step() is called after each:
// those since whose last one no optimizer has run.
func whole(ends, optimized []float64) []float64 {
	var out []float64
	for _, end := range ends {
		n := 0
		for n < len(optimized) && optimized[n] <= end {
			n++
		}
		if n > 0 {
			out = append(out, end)
		}
		optimized = optimized[n:]
	}
	if len(out) < 2 {
		return ends // not enough of them to tell
	}
	return out
}

// optimizerEnds are the ends of the annotations of optimizers, else of fused optimizer
// kernels. Several optimizers, or several kernels of one, belong to one step when no
// matrix is multiplied between them.
func optimizerEnds(t *Trace) []float64 {
	var updates []Mark
	for _, m := range t.Marked {
		if strings.HasPrefix(m.Name, "Optimizer.step#") {
			updates = append(updates, m)
		}
	}
	if len(updates) == 0 {
		for _, x := range t.Spans {
			if t.class(x.Name) == "optimizer" {
				updates = append(updates, Mark(x))
			}
		}
	}
	slices.SortStableFunc(updates, func(a, b Mark) int { return cmp.Compare(a.End, b.End) })
	var out []float64
	next := 0
	for _, u := range updates {
		works := false
		for ; next < len(t.Spans) && t.Spans[next].Start < u.End; next++ {
			x := &t.Spans[next]
			works = works || x.Start < u.Start && FamilyOf(t.class(x.Name)) == "gemm" // those of Muon's update are its own
		}
		if n := len(out); n > 0 && !works {
			out[n-1] = u.End
			continue
		}
		out = append(out, u.End)
	}
	return out
}
