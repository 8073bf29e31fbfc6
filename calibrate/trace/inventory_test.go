package trace

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/estimate"
)

var update = flag.Bool("update", false, "write docs/kernels.md anew")

const (
	counts  = 0.01 // families below this share of the step, predicted and traced, may be off
	largest = 0.15 // error of the time of one that counts
)

// settled is the error below which an exception has to go.
const settled = 0.10

// transfers is the reason of several exceptions.
const transfers = "a transfer is one call of a prediction; in a trace sending and receiving are kernels of their own, or share one where they are batched"

// exceptions are the families that are off by more, with the reason. One that is
// settled has to go.
var exceptions = map[string]map[string]string{
	"f4-dv3": {"gather and scatter": "the tokens of each expert are counted and ordered by 18 small kernels more than the recipe has, of 2 to 5 us each"},
	"f4-oss": {"gemm": "attention runs unfused over 1025 keys, one of them the sink: matrices of odd width take kernels of an older generation (cutlass_75_tensorop_bf16_s1688gemm)",
		"reduction":        "the maximum over the keys that is taken off before the softmax (85 us a layer), and the sums for the gradients of sinks and biases",
		"softmax and loss": "rows of 1025 run as rows of 2048: the kernel fills them up to a power of two (PersistentSoftmax.cuh)"},
	"h200-liger-gemma": {"attention": "8 heads of 256 over 2048 positions take 50 and 170 us where the law, whose points of this width have 32 heads and more, has 63 and 276"},
	"h200x4-t5-00":     {"collective": transfers},
	"h200x4-u5-00":     {"collective": transfers},
	"h200x1-u1-00":     {"attention": "predicted at the clock that the power limit leaves in a steady run; the two traced steps ran faster"},
}

// compared is a run with its comparison.
type compared struct {
	run *runs.Run
	*Comparison
}

// inventories compares every traced run with its prediction.
func inventories(t *testing.T) []compared {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	traces := map[string][]*Summary{}
	for _, name := range files {
		s, err := LoadSummary(name)
		require.NoError(t, err)
		id, _, _ := strings.Cut(filepath.Base(name), ".rank")
		traces[id] = append(traces[id], s)
	}
	list, err := embedded()
	require.NoError(t, err)
	var out []compared
	for i := range list {
		run := &list[i]
		if traces[run.ID] == nil {
			continue
		}
		require.NoError(t, run.Err, run.ID)
		r, err := estimate.Estimate(run.Job, estimate.Options{Detail: true})
		require.NoError(t, err)
		c, err := Compare(r, traces[run.ID])
		require.NoError(t, err)
		out = append(out, compared{run, c})
	}
	require.Len(t, out, len(traces), "each summary belongs to a run")
	return out
}

// TestInventories holds the kernels of the predictions against the traced ones: no
// family that takes over a per cent of the step is missing or off by more than 15 %.
// Communication is held by its calls: its kernels also wait for other ranks.
func TestInventories(t *testing.T) {
	if testing.Short() {
		t.Skip("traces are compared one by one, which races with nothing")
	}
	t.Parallel()
	all := inventories(t)
	for _, c := range all {
		step := c.Term(StepTime).Traced
		known := exceptions[c.run.ID]
		used := map[string]bool{}
		for i := range c.Families {
			f := &c.Families[i]
			off := f.Error()
			if f.Name == Collectives {
				off = f.Predicted.Count/f.Traced.Count - 1
			} else if max(f.Predicted.Time, f.Traced.Time) < step*counts {
				continue
			}
			if used[f.Name] = math.Abs(off) > settled; math.Abs(off) <= largest {
				continue
			}
			if known[f.Name] == "" {
				t.Errorf("%s: %s: %s predicted (%.0f kernels), %s traced (%.0f), %+.1f %%", c.run.ID, f.Name, f.Predicted.Time, f.Predicted.Count, f.Traced.Time, f.Traced.Count, 100*off)
			}
		}
		for name := range known {
			if !used[name] {
				t.Errorf("%s: %s is no longer off by more than %.0f %%; take it out of the exceptions", c.run.ID, name, 100*settled)
			}
		}
	}
	file := filepath.Join("..", "..", "docs", "kernels.md")
	page := inventoryPage(all)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(page), 0o644))
	}
	shown, err := os.ReadFile(file)
	require.NoError(t, err)
	if d := drift(string(shown), page); d != "" {
		t.Errorf("docs/kernels.md does not show the comparison; run go test ./calibrate/trace -run TestInventories -update\n%s", d)
	}
}

var figure = regexp.MustCompile(`[-+]?\d+(\.\d+)? (s|ms|us|ns|%)`)

// drift says how a page differs from the shown one, beyond what a small change of the
// predictions moves: a twentieth of a time, three points of a percentage.
func drift(shown, page string) string {
	mask := func(s string) []string { return strings.Split(figure.ReplaceAllString(s, "#"), "\n") }
	if d := cmp.Diff(mask(shown), mask(page)); d != "" {
		return d
	}
	now := figure.FindAllString(page, -1)
	for i, was := range figure.FindAllString(shown, -1) {
		if near := func() bool {
			if p, ok := strings.CutSuffix(was, " %"); ok {
				a, _ := strconv.ParseFloat(p, 64)
				b, _ := strconv.ParseFloat(strings.TrimSuffix(now[i], " %"), 64)
				return math.Abs(a-b) < 3
			}
			a, _ := units.ParseSeconds(was)
			b, _ := units.ParseSeconds(now[i])
			return math.Abs(float64(a-b)) < 0.05*float64(max(a, b))+1e-5
		}; !near() {
			return fmt.Sprintf("%s is %s now", was, now[i])
		}
	}
	return ""
}

func TestDrift(t *testing.T) {
	for _, c := range []struct{ shown, page, want string }{
		{"a 1.000 ms +3.0 %", "a 1.020 ms +5.0 %", ""},
		{"a 1.000 ms", "a 999.0 us", ""},
		{"a 1.000 ms", "a 1.100 ms", "1.000 ms is 1.100 ms now"},
		{"+3.0 %", "-1.0 %", "+3.0 % is -1.0 % now"},
	} {
		require.Equal(t, c.want, drift(c.shown, c.page))
	}
	require.NotEmpty(t, drift("a 1.000 ms", "b 1.000 ms"))
}

func inventoryPage(all []compared) string {
	var b strings.Builder
	b.WriteString(`# Predicted and traced kernels

One step of each run that was traced with torch.profiler, kernel family by kernel family: the sum of their times and their number,
predicted and traced. Families below one per cent of the step are left out. Traced times are as run with the profiler on, predicted
ones at the clock of the predicted step, each with its share of the contention. Kernels of collectives also wait for other ranks, so
that only their number compares; a fused optimizer is one kernel of a prediction and some dozens of a trace.

`)
	b.WriteString("| run | family | predicted | traced | error | kernels predicted | traced |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range all {
		step := c.Term(StepTime).Traced
		name := fmt.Sprintf("%s, %s", c.run.ID, c.run.Name)
		for i := range c.Families {
			f := &c.Families[i]
			if max(f.Predicted.Time, f.Traced.Time) < step*counts {
				continue
			}
			mark := ""
			if exceptions[c.run.ID][f.Name] != "" {
				mark = " *"
			}
			off := "-"
			if f.Name != Collectives {
				off = fmt.Sprintf("%+.1f %%", 100*f.Error())
			}
			fmt.Fprintf(&b, "| %s | %s%s | %s | %s | %s | %.0f | %.0f |\n", name, f.Name, mark, f.Predicted.Time, f.Traced.Time, off, f.Predicted.Count, f.Traced.Count)
			name = ""
		}
	}
	b.WriteString("\n## The device in between\n\n| run | step predicted | traced | idle predicted | traced | exposed NCCL predicted | traced |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range all {
		step, idle, exposed := c.Term(StepTime), c.Term(Idle), c.Term(Exposed)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", c.run.ID, step.Predicted, step.Traced, idle.Predicted, idle.Traced, blank(exposed.Predicted), blank(exposed.Traced))
	}
	b.WriteString("\nOf a pipeline, a stage that waits for another is idle in the prediction and in a receive in the trace.\n\n## Why some are off by more than 15 %\n\n")
	for _, c := range all {
		families := map[string][]string{} // by reason
		for name, why := range exceptions[c.run.ID] {
			families[why] = append(families[why], name)
		}
		var said []string
		for why, names := range families {
			slices.Sort(names)
			said = append(said, fmt.Sprintf("- %s: %s: %s\n", c.run.ID, strings.Join(names, ", "), why))
		}
		slices.Sort(said)
		b.WriteString(strings.Join(said, ""))
	}
	b.WriteString("\nThe traced side is in [calibrate/trace/testdata](../calibrate/trace/testdata/README.md). This page is written by\n`go test ./calibrate/trace -run TestInventories -update`; the same test fails when another family is off by more than 15 %.\n")
	return b.String()
}

func blank(s units.Seconds) string {
	if s == 0 {
		return "-"
	}
	return s.String()
}
