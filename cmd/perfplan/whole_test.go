package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// All runs take a while; other tests have predicted them already. Under the race
// detector, which takes ten times as long for them, a few groups will do.
func TestValidateIsDeterministic(t *testing.T) {
	t.Parallel()
	validate := func(args ...string) string {
		code, out, errs := in("", append([]string{"validate", "--rows", "-o", "json"}, args...)...)
		require.Zero(t, code, errs)
		require.Empty(t, errs)
		return out
	}
	if testing.Short() {
		some := []string{"--group", "h200-ddp,h200-fsdp,h200-pp"}
		require.Equal(t, validate(some...), validate(some...))
		return
	}
	_, predictions := validated()
	var want bytes.Buffer
	require.NoError(t, report.WriteValidate(&want, predictions, true, report.JSON, report.Style{}))
	require.Equal(t, want.String(), validate())
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
