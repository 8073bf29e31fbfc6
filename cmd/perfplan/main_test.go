package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/cuda"
	"github.com/perfplan/perfplan/calibrate/cuda/fake"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies/search"
)

var update = flag.Bool("update", false, "write the expected output into the README and into scripts that compare with files")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"perfplan": func() {
		// Scripts that calibrate do so on modelled GPUs.
		if n, err := strconv.Atoi(os.Getenv("FAKE_GPUS")); err == nil {
			openDriver = func(cuda.Options) (cuda.Driver, error) { return fake.New(fake.Options{GPUs: n, Noise: 0.01}), nil }
		}
		main()
	}})
}

// root is the folder of the repository.
func root(t testing.TB) string {
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	return dir
}

// TestScripts runs the console sessions of testdata/script, each in a folder of its
// own with the examples beside it.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txt")
	require.NoError(t, err)
	if testing.Short() { // what does things beside each other: nothing else can race
		scripts = slices.DeleteFunc(scripts, func(path string) bool {
			return !slices.Contains([]string{"calibrate.txt", "overwrite.txt", "plan.txt", "sweep.txt", "train.txt", "validate.txt", "whatif.txt"}, filepath.Base(path))
		})
	}
	testscript.Run(t, testscript.Params{
		Files:         scripts,
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("NO_COLOR", "")
			e.Setenv("COLUMNS", "80")
			e.Setenv("PORT", freePort(t))
			e.Setenv("GORACE", "atexit_sleep_ms=100") // under the race detector each of 429 commands would sleep a second at its end
			return os.CopyFS(filepath.Join(e.WorkDir, "examples"), os.DirFS(filepath.Join(root(t), "examples")))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code, "make": makeFile, "narrow": narrow},
	})
}

// freePort is a port below one that nobody listens on, as far as a launcher's is below
// perfplan's.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port - 17)
}

// code runs a command and checks its exit code: code 2 perfplan estimate x.
func code(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, not %s", got, args[0])
	}
}

// makeFile writes a file of one byte repeated, which does not belong into an
// archive: make large.yaml 52428800 0x61.
func makeFile(ts *testscript.TestScript, _ bool, args []string) {
	size, err := strconv.Atoi(args[1])
	ts.Check(err)
	fill, err := strconv.ParseUint(args[2], 0, 8)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), bytes.Repeat([]byte{byte(fill)}, size), 0o644))
}

// narrow checks that no line of the output is wider than so many columns, and that
// it has no escape codes: narrow 80.
func narrow(ts *testscript.TestScript, _ bool, args []string) {
	width, err := strconv.Atoi(args[0])
	ts.Check(err)
	text := ts.ReadFile("stdout")
	for line := range strings.SplitSeq(text, "\n") {
		if utf8.RuneCountInString(line) > width {
			ts.Fatalf("more than %d columns: %s", width, line)
		}
	}
	if strings.Contains(text, "\x1b") {
		ts.Fatalf("escape codes in a pipe")
	}
}

// in runs a command line in this process.
func in(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &env{in: strings.NewReader(stdin), out: &out, err: &err})
	return code, out.String(), err.String()
}

// TestExamples runs every example; none may be left out of the README.
func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("what is concurrent here has tests of its own")
	}
	t.Parallel()
	dir := filepath.Join(root(t), "examples")
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || d.IsDir() || name == "README.md" {
			return err
		}
		t.Run(name, func(t *testing.T) {
			require.Contains(t, string(readme), "`"+name+"`")
			commands := [][]string{{"validate", path, "-o", "json"}}
			switch {
			case strings.HasPrefix(name, "runs"):
			case name == "pretrain.sh" || name == "zero2.json" || name == "qlora-axolotl.yaml" || name == "automodel.yaml" || name == "gpt2-medium.py": // what starts a job
				commands = [][]string{{"init", "--from", path, "-"}}
			case strings.HasSuffix(name, "-trace.json"):
				commands = [][]string{{"compare", strings.TrimSuffix(path, "-trace.json") + ".yaml", path, "-o", "json"}}
			default:
				commands = [][]string{{"estimate", path, "-o", "json"}}
				for _, stage := range []string{"tree", "ops", "times", "timeline", "memory"} {
					commands = append(commands, []string{"explain", path, "--stage", stage, "-o", "json"}, []string{"explain", path, "--stage", stage})
				}
			}
			for _, args := range commands {
				code, out, errs := in("", args...)
				require.Zero(t, code, errs)
				require.Empty(t, errs)
				require.Equal(t, args[len(args)-1] == "json", json.Valid([]byte(out)), args)
			}
		})
		return nil
	}))
}

// TestResolvedJobGivesTheSameResult: the job in a result is a job file.
func TestResolvedJobGivesTheSameResult(t *testing.T) {
	for _, name := range []string{"llama7b.yaml", "llama70b-fsdp2.yaml", "mixtral-moe.yaml", "gpt2-ddp.yaml"} {
		code, first, errs := in("", "estimate", filepath.Join(root(t), "examples", name), "--set", "assumed=[release, network]", "-o", "json")
		require.Zero(t, code, errs)
		job := field(t, first, "job")
		code, second, errs := in(job, "estimate", "-", "-o", "json")
		require.Zero(t, code, errs)
		require.Equal(t, field(t, first, "step_time_s"), field(t, second, "step_time_s"), name)
		require.Equal(t, field(t, first, "step_time_high_s"), field(t, second, "step_time_high_s"), name)
		require.Equal(t, field(t, first, "memory"), field(t, second, "memory"), name)
	}
}

// TestFlagsAreTheFile: a setting means the same in a file, as its flag and as --set.
func TestFlagsAreTheFile(t *testing.T) {
	_, file, _ := in("{model: llama2-7b, hardware: h200-sxm, gpus: 8, runtime: {recipe: hf-eager}, plan: {tp: 2, data_parallel: ddp}, train: {micro_batch: 2}}", "estimate", "-", "-o", "json")
	_, flags, _ := in("", "estimate", "llama2-7b", "--hardware", "h200-sxm", "--gpus", "8", "--recipe", "hf-eager", "--tp", "2", "--data-parallel", "ddp", "--micro-batch", "2", "-o", "json")
	_, sets, _ := in("", "estimate", "llama2-7b", "--set", "hardware=h200-sxm", "--set", "gpus=8", "--set", "runtime.recipe=hf-eager", "--set", "plan.tp=2", "--set", "plan.data_parallel=ddp", "--set", "train.micro_batch=2", "-o", "json")
	require.Equal(t, file, flags)
	require.Equal(t, file, sets)
}

// TestRemediesAreCommands: what estimate lists for a job that does not fit is what it
// prints once that is added to the command line.
func TestRemediesAreCommands(t *testing.T) {
	for i, args := range [][]string{
		{"llama2-7b", "--gpus", "1"},
		{"llama3-70b", "--gpus", "8"},
		{"llama2-13b", "--gpus", "1", "--tp", "1"},
		{"llama2-70b", "--gpus", "8", "--dp", "8"},
		{"llama2-70b", "--gpus", "64", "--tp", "4", "--pp", "4", "--data-parallel", "ddp"},
		{filepath.Join(root(t), "examples", "llama70b-fsdp2.yaml"), "--micro-batch", "16", "--set", "hardware.gpu.memory=60 GiB"},
	} {
		if testing.Short() && i > 0 {
			break
		}
		args = append([]string{"estimate", "-o", "json"}, args...)
		code, text, _ := in("", args...)
		require.Equal(t, exitBroken, code, args)
		var listed []struct {
			Set    []string        `json:"set"`
			Plan   json.RawMessage `json:"plan"`
			GPUs   int64           `json:"gpus"`
			Tokens float64         `json:"tokens_per_s_per_gpu"`
			Used   float64         `json:"device_used_bytes"`
		}
		require.NoError(t, json.Unmarshal([]byte(field(t, text, "remedies")), &listed))
		require.NotEmpty(t, listed, args)
		for _, r := range listed {
			more := args
			for _, set := range r.Set {
				more = append(more[:len(more):len(more)], "--set", set)
			}
			code, text, errs := in("", more...)
			require.Zero(t, code, "%v: %s", more, errs)
			var shown struct {
				Tokens float64 `json:"tokens_per_s_per_gpu"`
				Job    struct {
					Plan json.RawMessage `json:"plan"`
					GPUs int64           `json:"gpus"`
				} `json:"job"`
				Memory struct {
					Used float64 `json:"device_used_bytes"`
				} `json:"memory"`
			}
			require.NoError(t, json.Unmarshal([]byte(text), &shown))
			require.Equal(t, shown.Tokens, r.Tokens, more)
			require.Equal(t, shown.Memory.Used, r.Used, more)
			require.Equal(t, shown.Job.GPUs, r.GPUs, more)
			require.JSONEq(t, string(shown.Job.Plan), string(r.Plan), more)
		}
	}
}

// FuzzJob: no text makes the way from bytes to a job panic or take long, and every
// complaint is about input.
func FuzzJob(f *testing.F) {
	for _, seed := range []string{
		"model: llama2-7b\ngpus: 8", "perfplan: job/v1\nmodel: {model_type: llama}\nplan: {tp: 2}", `{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}`,
		"model: gpt2\nhardware: {inherits: h100-sxm, gpu: {bandwidth: 1 TB/s}}", "model: [1]\ntrain: {micro_batch: .nan}", "a: &a [*a]", "model: x/y\ngpus: 0x10",
	} {
		f.Add(seed, "2")
	}
	f.Fuzz(func(t *testing.T, text, tp string) {
		begin := time.Now()
		defer func() {
			if d := time.Since(begin); d > 5*time.Second {
				t.Fatalf("took %s", d)
			}
		}()
		flags := jobFlags{edits: []edit{{"--tp", "plan.tp", tp}}}
		j, _, err := flags.load(&env{in: strings.NewReader(text)}, []string{"-"})
		if err != nil && !diag.IsInput(err) {
			t.Fatalf("not an input error: %v", err)
		}
		if (j == nil) == (err == nil) {
			t.Fatalf("job %v with error %v", j, err)
		}
	})
}

// BenchmarkEstimate is a whole `perfplan estimate` in this process: flags, file,
// decoding, prediction, text.
func BenchmarkEstimate(b *testing.B) {
	file := filepath.Join(root(b), "examples", "llama7b.yaml")
	for b.Loop() {
		if code, _, errs := in("", "estimate", file, "--gpus", "64"); code != 0 {
			b.Fatal(errs)
		}
	}
}

// TestSweepStopped: a sweep that is stopped before it begins says so, as plan does.
func TestSweepStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	cmd := newRoot(&env{in: strings.NewReader(""), out: &out, err: &out})
	cmd.SetArgs([]string{"sweep", "llama2-7b", "gpus=8,16"})
	err := cmd.ExecuteContext(ctx)
	require.ErrorAs(t, err, new(stopped))
	require.ErrorContains(t, err, "stopped before any point was predicted")
	require.Empty(t, out.String())
}

// TestCalibrateStopped: what was measured is printed and kept, and the exit code says that it is not all.
func TestCalibrateStopped(t *testing.T) {
	before := openDriver
	openDriver = func(cuda.Options) (cuda.Driver, error) { return fake.New(fake.Options{GPUs: 1}), nil }
	t.Cleanup(func() { openDriver = before })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, progress bytes.Buffer
	cmd := newRoot(&env{in: strings.NewReader(""), out: &out, err: &progress})
	cmd.SetArgs([]string{"calibrate", "--samples", filepath.Join(t.TempDir(), "samples.jsonl")})
	err := cmd.ExecuteContext(ctx)
	require.ErrorAs(t, err, new(stopped))
	require.ErrorContains(t, err, "go on with --resume")
	require.Contains(t, out.String(), "interrupted; what was measured is kept")
}

// TestAnswersStopped: so does plan whose ranking is done, but not what was asked about it. Half
// an answer is left out, such as that plans which were not all looked at do not fit.
func TestAnswersStopped(t *testing.T) {
	e := &env{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
	for phase, c := range map[string]struct {
		flags planFlags
		model string
		gpus  string
		text  string
	}{
		"looking on 4 ": {planFlags{pareto: true}, "gpt2", "8", "STOPPED EARLY: better ones may be left."},
		"looking with":  {planFlags{whyNot: []string{"data_parallel=fsdp2"}}, "gpt2", "8", ""},
		"looking on 2 ": {planFlags{}, "llama3-8b", "1", ""},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		job := jobFlags{edits: []edit{{path: "gpus", value: c.gpus}, {path: "hardware", value: "h100-sxm"}, {path: "runtime.recipe", value: "hf-eager"}, {path: "train.micro_batch", value: "1"}}}
		j, _, err := job.load(e, []string{c.model})
		require.NoError(t, err)
		c.flags.options.Progress = func(p search.Progress) {
			if strings.HasPrefix(p.Phase, phase) {
				cancel()
			}
		}
		r, err := c.flags.rank(ctx, j)
		require.NoError(t, err)
		require.Error(t, ctx.Err(), phase)
		require.False(t, r.Ranking.Partial)
		require.True(t, r.Partial())
		require.Empty(t, r.WhyNot)
		require.Nil(t, r.Near)
		for format, want := range map[report.Format]string{report.Text: c.text, report.JSON: `"partial": true`} {
			var b bytes.Buffer
			require.NoError(t, report.Write(&b, r, format, e.style))
			require.Contains(t, b.String(), want)
		}
	}
}

// TestLongLog: of a log that is longer than what is read the beginning is, whichever character
// of a progress bar it ends within.
func TestLongLog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("nothing here is concurrent")
	}
	for _, bar := range []string{" █", " x█", " xx█"} {
		t.Run(bar, func(t *testing.T) {
			t.Parallel()
			text := "run_clm.py --output_dir x --bf16 --model_name_or_path gpt2\n" + strings.Repeat(bar, yamlx.MaxFileSize/len(bar)+1)
			read, err := (&env{in: strings.NewReader(text)}).beginning("-")
			require.NoError(t, err)
			require.True(t, utf8.Valid(read))
			require.True(t, strings.HasPrefix(text, string(read)+bar), "%d bytes", len(read))
			var out, complaint bytes.Buffer
			require.Zero(t, run([]string{"init", "--from", "-", "-"}, &env{in: strings.NewReader(text), out: &out, err: &complaint}), complaint.String())
			require.Contains(t, out.String(), "precision: bf16-autocast # --bf16")
		})
	}
}
