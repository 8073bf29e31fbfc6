package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/internal/units"
)

// The committed figures are what we claim: testdata/figures.csv holds the errors of
// every group, docs/validation.md shows them. A change of the program may better
// them and may not worsen them, unless it says so by writing them anew:
//
//	go test ./cmd/perfplan -run TestValidation -update

const figuresFile = "testdata/figures.csv"

// slack is how far a mean |error| may rise unnoticed: half a tenth of a per cent, to
// which the figures are printed.
const slack = 0.0005

// figureColumns are the columns of the file. Errors are fractions; the rows
// "predicted" and "in range" of a group have a count and shares instead.
var figureColumns = []string{"group", "quantity", "runs", "mean", "median", "p90", "max", "signed", "refused"}

const (
	predicted = "predicted" // runs of the group; refused names those that are not predicted
	inRange   = "in_range"  // runs with a range; mean is the share of measured steps within it, median that of far ones outside, signed that of those above
)

// figures are a summary with the ids of the runs that were not predicted.
type figures struct {
	groups  []runs.Group
	refused map[string][]string
	stated  []runs.Group // in the file after the last group, all
}

func figuresOf(r *runs.Report) figures {
	f := figures{groups: r.Summary, stated: r.Stated, refused: map[string][]string{}}
	for _, row := range r.Rows {
		if row.Status != runs.OK {
			f.refused[row.Group] = append(f.refused[row.Group], row.ID)
			f.refused[runs.All] = append(f.refused[runs.All], row.ID)
		}
	}
	return f
}

// csv writes the figures, rounded to a thousandth of a per cent.
func (f figures) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	round := func(v float64) string { return strconv.FormatFloat(v, 'f', 5, 64) }
	w.Write(figureColumns)
	for _, g := range slices.Concat(f.groups, f.stated) {
		w.Write([]string{g.Name, predicted, strconv.Itoa(g.N), "", "", "", "", "", strings.Join(f.refused[g.Name], " ")})
		if s := g.InRange; s != nil {
			w.Write([]string{g.Name, inRange, strconv.Itoa(s.N), round(s.Share), round(s.Unsaid), "", "", round(s.Slower), ""})
		}
		for _, q := range runs.QuantityNames() {
			if s, ok := g.Stats[q]; ok {
				w.Write([]string{g.Name, q, strconv.Itoa(s.N), round(s.MeanAbs), round(s.MedianAbs), round(s.P90Abs), round(s.MaxAbs), round(s.MeanSigned), ""})
			}
		}
	}
	w.Flush()
	return b.Bytes()
}

// parseFigures reads what csv wrote.
func parseFigures(text []byte) (figures, error) {
	records, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return figures{}, err
	}
	if len(records) == 0 || !slices.Equal(records[0], figureColumns) {
		return figures{}, fmt.Errorf("the columns are not %v", figureColumns)
	}
	f := figures{refused: map[string][]string{}}
	list := &f.groups
	for _, r := range records[1:] {
		n, err := strconv.Atoi(r[2])
		if err != nil {
			return f, err
		}
		if r[1] == predicted {
			ids := strings.Fields(r[8])
			if n := len(*list); n > 0 && (*list)[n-1].Name == runs.All {
				list = &f.stated
			}
			if list == &f.groups {
				f.refused[r[0]] = ids
			}
			*list = append(*list, runs.Group{Name: r[0], N: n, Unsupported: len(ids), Stats: map[string]runs.Stats{}})
			continue
		}
		var v [5]float64
		for i, cell := range r[3:8] {
			if cell == "" {
				continue
			}
			if v[i], err = strconv.ParseFloat(cell, 64); err != nil {
				return f, err
			}
		}
		g := &(*list)[len(*list)-1]
		if r[1] == inRange {
			g.InRange = &runs.Ranges{N: n, Share: v[0], Unsaid: v[1], Slower: v[4]}
			continue
		}
		g.Stats[r[1]] = runs.Stats{N: n, MeanAbs: v[0], MedianAbs: v[1], P90Abs: v[2], MaxAbs: v[3], MeanSigned: v[4]}
	}
	return f, nil
}

// against lists what is worse in f than in the committed figures, and what is better.
func (f figures) against(committed figures) (worse, better []string) {
	now := map[string]runs.Group{}
	for _, g := range f.groups {
		now[g.Name] = g
	}
	for _, old := range committed.groups {
		g := now[old.Name]
		if g.N < old.N {
			worse = append(worse, fmt.Sprintf("%s: %d runs, were %d", old.Name, g.N, old.N))
		}
		for _, id := range f.refused[old.Name] {
			if !slices.Contains(committed.refused[old.Name], id) {
				worse = append(worse, fmt.Sprintf("%s: %s is no longer predicted", old.Name, id))
			}
		}
		if was, is := old.InRange, g.InRange; old.Name == runs.All && was != nil && is != nil && is.Unsaid > was.Unsaid+slack {
			worse = append(worse, fmt.Sprintf("%s: %.2f %% are far off without having said so, were %.2f %%", old.Name, 100*is.Unsaid, 100*was.Unsaid))
		}
		for _, q := range runs.QuantityNames() {
			was, compared := old.Stats[q]
			is := g.Stats[q]
			switch change := fmt.Sprintf("%s: mean |error| of %s is %.2f %%, was %.2f %%", old.Name, q, 100*is.MeanAbs, 100*was.MeanAbs); {
			case !compared:
			case is.N < was.N:
				worse = append(worse, fmt.Sprintf("%s: %d runs have a %s to compare, were %d", old.Name, is.N, q, was.N))
			case is.MeanAbs > was.MeanAbs+slack:
				worse = append(worse, change)
			case is.MeanAbs < was.MeanAbs-slack:
				better = append(better, change)
			}
		}
	}
	return worse, better
}

func TestFiguresAgainst(t *testing.T) {
	of := func(n int, mean float64, refused ...string) figures {
		return figures{groups: []runs.Group{{Name: "g", N: 3, Unsupported: len(refused), Stats: map[string]runs.Stats{"step_time": {N: n, MeanAbs: mean}}}}, refused: map[string][]string{"g": refused}}
	}
	old := of(3, 0.05, "a")
	for _, c := range []struct {
		name          string
		now           figures
		worse, better string
	}{
		{"same", of(3, 0.0504, "a"), "", ""},
		{"better", of(3, 0.04), "", "g: mean |error| of step_time is 4.00 %, was 5.00 %"},
		{"worse", of(3, 0.0506, "a"), "g: mean |error| of step_time is 5.06 %, was 5.00 %", ""},
		{"refused", of(3, 0.05, "b"), "g: b is no longer predicted", ""},
		{"fewer", of(2, 0.01), "g: 2 runs have a step_time to compare, were 3", ""},
		{"gone", figures{}, "g: 0 runs, were 3; g: 0 runs have a step_time to compare, were 3", ""},
	} {
		worse, better := c.now.against(old)
		require.Equal(t, c.worse, strings.Join(worse, "; "), c.name)
		require.Equal(t, c.better, strings.Join(better, "; "), c.name)
	}
	unsaid := func(share float64) figures {
		return figures{groups: []runs.Group{{Name: runs.All, N: 1, Stats: map[string]runs.Stats{}, InRange: &runs.Ranges{N: 1, Share: 0.5, Unsaid: share}}}, stated: old.groups, refused: map[string][]string{}}
	}
	worse, _ := unsaid(0.07).against(unsaid(0.06))
	require.Equal(t, []string{"all: 7.00 % are far off without having said so, were 6.00 %"}, worse)
	both, err := parseFigures(unsaid(0.06).csv())
	require.NoError(t, err)
	require.Equal(t, 0.06, both.groups[0].InRange.Unsaid)
	require.Equal(t, "g", both.stated[0].Name)
	again, err := parseFigures(old.csv())
	require.NoError(t, err)
	if d := cmp.Diff(old.groups, again.groups); d != "" {
		t.Error(d)
	}
	require.Equal(t, old.refused, again.refused)
}

// validated are the embedded runs and their predictions, which several tests look at.
var validated = sync.OnceValues(func() ([]runs.Run, *runs.Report) {
	list, err := runs.Embedded(nil)
	if err != nil {
		panic(err)
	}
	return list, runs.Validate(list)
})

// shareValidated has the command validate take these where it is asked for all embedded runs.
func shareValidated(t *testing.T) {
	embedded = func(groups []string) ([]runs.Run, error) {
		if len(groups) > 0 {
			return runs.Embedded(groups)
		}
		list, _ := validated()
		return list, nil
	}
	validate = func(list []runs.Run) *runs.Report {
		if all, r := validated(); len(list) == len(all) && &list[0] == &all[0] {
			same := *r
			return &same
		}
		return runs.Validate(list)
	}
	t.Cleanup(func() { embedded, validate = runs.Embedded, runs.Validate })
}

// TestValidation holds the predictions of today against the committed figures.
func TestValidation(t *testing.T) {
	if testing.Short() {
		t.Skip("figures are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	list, predictions := validated()
	now := figuresOf(predictions)
	if *update {
		require.NoError(t, os.WriteFile(figuresFile, now.csv(), 0o644))
	}
	text, err := os.ReadFile(figuresFile)
	require.NoError(t, err)
	committed, err := parseFigures(text)
	require.NoError(t, err)
	const remedy = "go test ./cmd/perfplan -run TestValidation -update"
	worse, better := now.against(committed)
	if len(worse) > 0 {
		t.Errorf("worse than the committed figures; if that is meant, say why and run %s\n%s", remedy, strings.Join(worse, "\n"))
	}
	if len(better) > 0 {
		t.Logf("better than the committed figures; run %s\n%s", remedy, strings.Join(better, "\n"))
	}

	file := filepath.Join(root(t), "docs", "validation.md")
	page := validationPage(t, committed, list)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, page, 0o644))
	}
	shown, err := os.ReadFile(file)
	require.NoError(t, err)
	if d := cmp.Diff(strings.Split(string(shown), "\n"), strings.Split(string(page), "\n")); d != "" {
		t.Errorf("docs/validation.md does not show the committed figures; run %s\n%s", remedy, d)
	}
}

// TestAblation: docs/ablation.md shows what each effect is worth.
func TestAblation(t *testing.T) {
	if testing.Short() {
		t.Skip("figures are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	code, page, errs := in("", "validate", "--ablation", "--group", "h200-ddp,h200-fsdp,h200-fsdp-compile,h200-pp,h200-single,h200-single-compile,h200-tp", "-o", "markdown")
	require.Zero(t, code, errs)
	page += "\nWritten by `go test ./cmd/perfplan -run TestAblation -update` from `perfplan validate --ablation`.\n"
	file := filepath.Join(root(t), "docs", "ablation.md")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(page), 0o644))
	}
	shown, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(strings.Split(string(shown), "\n"), strings.Split(page, "\n")))
}

// validationPage is docs/validation.md: the committed figures as the command
// validate prints them, with where each group comes from.
func validationPage(t *testing.T, f figures, list []runs.Run) []byte {
	var b bytes.Buffer
	require.NoError(t, report.WriteValidate(&b, &runs.Report{Summary: f.groups, Stated: f.stated, Overall: runs.Overall(f.groups)}, false, report.Markdown, report.Style{}))
	b.WriteString("\n## Not predicted\n\n")
	for _, id := range f.refused[runs.All] {
		i := slices.IndexFunc(list, func(r runs.Run) bool { return r.ID == id })
		fmt.Fprintf(&b, "- %s: %s\n", id, runs.Validate(list[i : i+1]).Rows[0].Reason)
	}
	b.WriteString("\n## Where the runs come from\n\n| group | source |\n| --- | --- |\n")
	for _, g := range f.groups {
		if g.Name != runs.All {
			fmt.Fprintf(&b, "| %s | %s |\n", g.Name, source(list, g.Name))
		}
	}
	b.WriteString(`
Each run names its own source, and what it does not state, in [calibrate/runs/data](../calibrate/runs/data/README.md). No constant of the
program is fitted to these runs. "in range" is the share of measured steps within the 80 % range of the prediction, "slower" of those above it.

` + "`perfplan validate`" + ` prints today's figures, ` + "`--rows`" + ` each run. This page is written by
` + "`go test ./cmd/perfplan -run TestValidation -update`" + `; the same test fails when a figure gets worse than here.
`)
	return b.Bytes()
}

// source names where the runs of a group come from: one or two sources, or what
// more of them have in common, up to a whole word.
func source(list []runs.Run, group string) string {
	var all []string
	for _, r := range list {
		if r.Group == group && !slices.Contains(all, r.Source) {
			all = append(all, r.Source)
		}
	}
	if len(all) < 3 {
		return strings.Join(all, "; ")
	}
	common := all[0]
	for _, s := range all[1:] {
		n := 0
		for n < min(len(common), len(s)) && common[n] == s[n] {
			n++
		}
		if n < len(common) {
			common = common[:max(strings.LastIndexAny(common[:n], " /"), 0)]
		}
	}
	return strings.TrimSuffix(common, " (section")
}

// Three runs of a published table, whichever they are, bring the others of it closer to
// what is said of them, and four in five of these within the range.
func TestOwnRunsOfTables(t *testing.T) {
	if testing.Short() {
		t.Skip("figures are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	list, r := validated()
	groups := map[string][]int{}
	var names []string
	for i, x := range r.Rows {
		if x.Status == runs.OK && x.Measured.StepTime > 0 && !strings.HasPrefix(x.Group, "h200") && !strings.HasPrefix(x.Group, "h100") {
			if groups[x.Group] == nil {
				names = append(names, x.Group)
			}
			groups[x.Group] = append(groups[x.Group], i)
		}
	}
	after := func(own int) (plain, corrected, inside, tables float64) {
		for _, name := range names {
			of := groups[name]
			if len(of) < 8 {
				continue
			}
			random := rand.New(rand.NewPCG(1, uint64(len(of))))
			var n, off, left, in float64
			for range 400 {
				random.Shuffle(len(of), func(a, b int) { of[a], of[b] = of[b], of[a] })
				var mine []runs.Run
				var rows []runs.Row
				for _, i := range of[:own] {
					mine, rows = append(mine, list[i]), append(rows, r.Rows[i])
				}
				o, err := runs.Own(mine, rows)
				if err != nil { // two GPUs or recipes in one table
					continue
				}
				for _, i := range of[own:] {
					if j := list[i].Job; j.Runtime.Recipe != o.Recipe || j.GPU() != o.GPU { // own runs say nothing of others
						continue
					}
					measured, predicted := r.Rows[i].Measured.StepTime, r.Rows[i].Predicted.StepTime
					expected := predicted * units.Seconds(o.Ratio)
					n, off, left = n+1, off+math.Abs(float64(predicted/measured)-1), left+math.Abs(float64(expected/measured)-1)
					if low, high := hardware.Range(expected, o.Spread); low <= measured && measured <= high {
						in++
					}
				}
			}
			if n > 0 {
				plain, corrected, inside, tables = plain+off/n, corrected+left/n, inside+in/n, tables+1
			}
		}
		t.Logf("%g tables: mean |error| %.1f %% before, %.1f %% with own runs (%d), %.0f %% in range", tables, 100*plain/tables, 100*corrected/tables, own, 100*inside/tables)
		return
	}
	plain, corrected, inside, tables := after(3)
	require.Greater(t, tables, 15.0)
	require.Less(t, 100*corrected/tables, 7.5, "what three own runs leave, whatever predictions gain by themselves")
	require.Less(t, corrected, 0.87*plain)
	require.InDelta(t, 0.8, inside/tables, 0.06)
	plain, corrected, inside, _ = after(1)
	require.Less(t, corrected, 0.95*plain)
	require.InDelta(t, 0.8, inside/tables, 0.06)
}

// TestRanges: a tenth of the steps of a table that nobody has looked at, all tables alike, takes longer than
// the 80 % range says and a tenth less (docs/unseen.md); of those that were looked at it is half of that.
func TestRanges(t *testing.T) {
	if testing.Short() {
		t.Skip("figures are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	_, r := validated()
	var slower, faster, n float64
	for _, g := range r.Summary[:len(r.Summary)-1] {
		if x := g.InRange; x != nil {
			n, slower, faster = n+1, slower+x.Slower, faster+1-x.Share-x.Slower
		}
	}
	t.Logf("%g tables: %.1f %% above the range, %.1f %% below", n, 100*slower/n, 100*faster/n)
	require.InDelta(t, 0.06, slower/n, 0.02)
	require.InDelta(t, 0.055, faster/n, 0.02)
}

// TestStepParts: over all tables kernels take what is predicted of them, and so do waits for hosts and bubbles. What
// communication that nothing hides takes beyond it may not grow.
func TestStepParts(t *testing.T) {
	if testing.Short() {
		t.Skip("figures are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	_, r := validated()
	parts, err := runs.Parts(r.Rows)
	require.NoError(t, err)
	for k, within := range []struct{ least, most float64 }{{0.98, 1.03}, {0.95, 1.27}, {0.95, 1.06}, {0.9, 1.2}} {
		p := parts[k]
		t.Logf("%s: %.1f %% of the steps, %.3f ± %.3f", p.Name, 100*p.Share, p.Ratio, p.Deviation)
		require.GreaterOrEqual(t, p.Ratio, within.least, p.Name)
		require.LessOrEqual(t, p.Ratio, within.most, p.Name)
	}
}

// TestChances: of jobs of which several layouts were measured, those predicted to be the
// fastest are as often as the ranges of their predictions say.
func TestChances(t *testing.T) {
	if testing.Short() {
		t.Skip("figures are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	list, r := validated()
	choices := runs.Choices(list, r.Rows, 2)
	require.Greater(t, len(choices), 150)
	var said, won, n [3]float64 // of all, of the unsure, of the sure
	for _, x := range choices {
		for _, k := range []int{0, 1 + min(int(x.Chance/0.8), 1)} {
			n[k], said[k] = n[k]+1, said[k]+x.Chance
			if x.Regret == 0 {
				won[k]++
			}
		}
	}
	for k, name := range []string{"all", "said with less than 80 %", "said with more"} {
		t.Logf("%s: %g jobs, said with %.1f %%, came true with %.1f %%", name, n[k], 100*said[k]/n[k], 100*won[k]/n[k])
		require.InDelta(t, said[k]/n[k], won[k]/n[k], 0.04, name)
	}
}
