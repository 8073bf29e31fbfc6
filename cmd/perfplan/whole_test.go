package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/internal/report"
)

// TestOutputIsDeterministic: the same command prints the same bytes, in every format.
func TestOutputIsDeterministic(t *testing.T) {
	example := func(name string) string { return filepath.Join(root(t), "examples", name) }
	commands := [][]string{
		{"estimate", example("mixtral-moe.yaml")}, {"estimate", example("open-plan.yaml")}, {"estimate", "llama3-70b", "--gpus", "8", "--dp", "8"},
		{"explain", example("llama70b-fsdp2.yaml"), "--stage", "timeline"}, {"explain", example("mixtral-moe.yaml"), "--stage", "times"}, {"explain", example("gpt2-ddp.yaml"), "--stage", "memory"},
		{"explain", example("gpt2-ddp.yaml")}, {"explain", example("gpt2-ddp.yaml"), "--stage", "ops"},
		{"validate", example("runs.yaml"), "--rows"}, {"model", "show", "deepseek-v3"}, {"model", "list"}, {"hardware", "show", "h200-sxm"}, {"hardware", "list"},
	}
	if testing.Short() {
		t.Skip("what is concurrent here has tests of its own")
	}
	t.Parallel()
	for _, c := range commands {
		for _, format := range []string{"text", "json", "yaml", "csv", "markdown"} {
			args := append(append([]string{}, c...), "-o", format)
			code, out, errs := in("", args...)
			require.NotEmpty(t, out, "%v: %s", args, errs)
			again, same, errors := in("", args...)
			require.Equal(t, code, again, args)
			require.Equal(t, out, same, args)
			require.Equal(t, errs, errors, args)
		}
	}
}

// TestValidateIsDeterministic: the same runs print the same bytes, and a run's row is the
// same whatever is predicted beside it. All runs take a while, and other tests have predicted
// them already: every third of them will do, from the last to the first.
func TestValidateIsDeterministic(t *testing.T) {
	if testing.Short() {
		t.Skip("calibrate/runs has a test of that name for the race detector")
	}
	t.Parallel()
	validate := func(args ...string) string {
		code, out, errs := in("", append([]string{"validate", "--rows", "-o", "json"}, args...)...)
		require.Zero(t, code, errs)
		require.Empty(t, errs)
		return out
	}
	some := []string{"--group", "h200-ddp,h200-fsdp,h200-pp"}
	require.Equal(t, validate(some...), validate(some...))
	list, predictions := validated()
	var again []runs.Run
	var want []runs.Row
	for i := len(list) - 1; i >= 0; i -= 3 {
		again, want = append(again, list[i]), append(want, predictions.Rows[i])
	}
	text := func(rows []runs.Row) string {
		all, err := json.Marshal(rows)
		require.NoError(t, err)
		return string(all)
	}
	require.Equal(t, text(want), text(runs.Validate(again).Rows))
}

// TestValidateIsNarrow: of all embedded runs, no line is wider than the window.
func TestValidateIsNarrow(t *testing.T) {
	if testing.Short() {
		t.Skip("lines are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	_, predictions := validated()
	var page bytes.Buffer
	require.NoError(t, report.WriteValidate(&page, predictions, false, report.Text, report.Style{Width: 80}))
	for _, line := range []string{`\d+ measured runs, \d+ predicted$`, "  h200-single ", "  all "} {
		require.Regexp(t, "(?m)^"+line, page.String())
	}
	for line := range strings.Lines(page.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}
}

// TestStartsFast: the README's estimate takes at most 50 ms from start to end, as the
// best of some runs of the built program, on a machine on which the go command says its
// version in 15. One that takes longer for that is slower, or busy with other tests: there as
// many times longer.
func TestStartsFast(t *testing.T) {
	if testing.Short() {
		t.Skip("a slowed build says nothing")
	}
	program := filepath.Join(t.TempDir(), "perfplan")
	build := exec.Command("go", "build", "-o", program, ".")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	took := func(name string, args ...string) (time.Duration, string) {
		begin := time.Now()
		out, err := exec.Command(name, args...).Output()
		require.NoError(t, err)
		return time.Since(begin), string(out)
	}
	const most, usual = 50 * time.Millisecond, 15 * time.Millisecond
	best, reference, start := time.Hour, time.Hour, time.Now()
	slow := func() bool { return float64(best)/float64(most) > max(float64(reference)/float64(usual), 1) }
	for i := 0; i < 5 || slow() && time.Since(start) < time.Minute; i++ {
		d, out := took(program, "estimate", filepath.Join(root(t), "examples", "llama7b.yaml"), "--gpus", "64")
		require.True(t, strings.Contains(out, "Step time"))
		other, _ := took("go", "version")
		best, reference = min(best, d), min(reference, other)
	}
	t.Logf("the best run took %s, the go command %s", best, reference)
	require.False(t, slow(), "%s are the most where the go command takes %s", most, usual)
}
