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
	for i, c := range commands {
		for k, format := range []string{"text", "json", "yaml", "csv", "markdown"} {
			if testing.Short() && k != i%5 {
				continue
			}
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
// best of some runs of the built program, of as many as take a minute where the machine is busy.
func TestStartsFast(t *testing.T) {
	if testing.Short() {
		t.Skip("a slowed build says nothing")
	}
	const most = 50 * time.Millisecond
	program := filepath.Join(t.TempDir(), "perfplan")
	build := exec.Command("go", "build", "-o", program, ".")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	var best time.Duration
	start := time.Now()
	for i := 0; i < 5 || best > most && time.Since(start) < time.Minute; i++ {
		begin := time.Now()
		out, err := exec.Command(program, "estimate", filepath.Join(root(t), "examples", "llama7b.yaml"), "--gpus", "64").Output()
		took := time.Since(begin)
		require.NoError(t, err)
		require.True(t, strings.Contains(string(out), "Step time"))
		if i == 0 || took < best {
			best = took
		}
	}
	t.Logf("the best run took %s", best)
	require.LessOrEqual(t, best, most)
}
