package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// block is a fenced block of a page.
type block struct {
	kind       string // what follows the fence
	text       string
	start, end int // of the text
}

var fence = regexp.MustCompile("(?m)^```(\\w.*)\n((?:.*\n)*?)```$")

func blocks(readme string) []block {
	var out []block
	for _, m := range fence.FindAllStringSubmatchIndex(readme, -1) {
		out = append(out, block{readme[m[2]:m[3]], readme[m[4]:m[5]], m[4], m[5]})
	}
	return out
}

// TestREADME runs the commands of the README, of the page on all of them, and of that on
// the job file, in a copy of the examples.
func TestREADME(t *testing.T) {
	if testing.Short() {
		t.Skip("what is concurrent here has tests of its own")
	}
	shareValidated(t)
	t.Run("README", func(t *testing.T) {
		seen := runBlocks(t, "README.md")
		require.Equal(t, 1, seen["sh setup"])
		require.Equal(t, 1, seen["sh test"])
		require.NotZero(t, seen["text"])
	})
	t.Run("commands", func(t *testing.T) { require.NotZero(t, runBlocks(t, "docs/commands.md")["sh"]) })
	t.Run("job", func(t *testing.T) {
		seen := runBlocks(t, "docs/job.md")
		require.NotZero(t, seen["sh"])
		require.NotZero(t, seen["yaml"])
	})
	keys, err := os.ReadFile(filepath.Join(root(t), "docs/job.md"))
	require.NoError(t, err)
	for _, s := range settings {
		require.Contains(t, string(keys), "\n| `"+s.path+"`, `--"+s.flag+"` |", "docs/job.md has no row with the flag")
	}
	for _, page := range []string{"README.md", "docs/commands.md"} {
		text, err := os.ReadFile(filepath.Join(root(t), page))
		require.NoError(t, err)
		for _, cmd := range newRoot(&env{}).Commands() {
			if cmd.Name() != "help" {
				require.True(t, strings.Contains(string(text), "`"+cmd.Name()+"`"), "%s lacks %s", page, cmd.Name())
			}
		}
	}
}

// TestFirstPredictions: the README has the totals of docs/unseen.md, which are those of its rows.
func TestFirstPredictions(t *testing.T) {
	read := func(page string) string {
		text, err := os.ReadFile(filepath.Join(root(t), page))
		require.NoError(t, err)
		return string(text)
	}
	runs, sets, total, off := 0, 0, 0, 0.0
	for _, m := range regexp.MustCompile(`(?m)^\| (.+?) \| (\d+) (?:\| ([\d.]+) %)?`).FindAllStringSubmatch(read("docs/unseen.md"), -1) {
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		mean, err := strconv.ParseFloat(m[3], 64)
		require.NoError(t, err)
		if m[1] == "all" {
			total = n
			require.InDelta(t, off/float64(runs), mean, 0.5)
			break
		}
		runs, sets, off = runs+n, sets+1, off+mean*float64(n)
	}
	require.Equal(t, runs, total)
	require.Contains(t, read("README.md"), fmt.Sprintf("%d runs of %d sets were", runs, sets))
}

// runBlocks runs a page and returns how many blocks of each kind it has. Blocks of
// kind sh hold commands; a block of kind text shows the output of the one before,
// up to a line of "..." ; one of kind yaml is a job, one of kind yaml runs a file of runs. Set-up runs as far as it needs no
// network; the line that runs the tests is this run.
func runBlocks(t *testing.T, page string) map[string]int {
	repository := root(t)
	name := filepath.Join(repository, page)
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	readme := string(raw)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(repository, "examples"))))
	t.Chdir(dir)

	var out string
	replaced := readme
	list := blocks(readme)
	seen := map[string]int{}
	for _, b := range list {
		seen[b.kind]++
		switch b.kind {
		case "sh setup":
			setUp(t, repository, b.text)
		case "sh test":
			require.Equal(t, "go test ./...\n", b.text)
		case "sh":
			out = ""
			for line := range strings.Lines(b.text) {
				args := strings.Fields(line)
				require.Equal(t, "perfplan", args[0], "%s runs perfplan", page)
				code, stdout, stderr := in("", args[1:]...)
				require.Zero(t, code, "%s%s", line, stderr)
				out += stdout
			}
		case "yaml":
			code, _, stderr := in(b.text, "estimate", "-")
			require.Zero(t, code, "%s%s", b.text, stderr)
		case "yaml runs":
			require.NoError(t, os.WriteFile("runs.yaml", []byte(b.text), 0o644))
			code, _, stderr := in("", "validate", "runs.yaml")
			require.Zero(t, code, "%s%s", b.text, stderr)
		case "text":
			want := head(out, b.text)
			if *update {
				replaced = strings.Replace(replaced, b.text, want, 1)
			} else if d := cmp.Diff(strings.Split(b.text, "\n"), strings.Split(want, "\n")); d != "" {
				t.Errorf("%s shows another output; run go test ./cmd/perfplan -run README -update\n%s", page, d)
			}
		default:
			t.Errorf("a block of kind %q; use sh, sh setup, sh test, yaml, yaml runs or text", b.kind)
		}
	}
	if replaced != readme {
		require.NoError(t, os.WriteFile(name, []byte(replaced), 0o644))
	}
	return seen
}

// head is as much of the output as an excerpt shows: up to the blank line before
// the job's own settings when the excerpt says only that there is more.
func head(out, excerpt string) string {
	lines := strings.SplitAfter(out, "\n")
	shown := strings.Split(strings.TrimSuffix(excerpt, "\n"), "\n")
	if shown[len(shown)-1] != "..." {
		return out
	}
	if n := len(shown) - 1; n > 0 && n < len(lines) {
		return strings.Join(lines[:n], "") + "...\n"
	}
	before, _, _ := strings.Cut(out, "\nJob\n")
	return before + "...\n"
}

// setUp runs the commands that need no network: the clone is this folder.
func setUp(t *testing.T, repository, text string) {
	for line := range strings.Lines(text) {
		args := strings.Fields(line)
		if args[0] == "git" {
			require.Contains(t, line, "git clone https://github.com/perfplan/perfplan && cd perfplan")
			continue
		}
		bin := t.TempDir()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = repository, append(os.Environ(), "GOBIN="+bin)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		require.FileExists(t, filepath.Join(bin, "perfplan"))
	}
}
