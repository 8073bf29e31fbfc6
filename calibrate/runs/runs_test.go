package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

const row = `
  - id: %s
    group: g
    model: tinyllama-1.1b
    hardware: h200-sxm
    gpus: 1
    runtime: {recipe: hf-eager}
    plan: %s
    train: {sequence_length: 2048, micro_batch: 4, precision: bf16-pure}
    measured: {step_time: 157 ms, peak_allocated: 25.66 GB}`

func file(rows ...string) string { return "perfplan: runs/v1\nruns:" + strings.Join(rows, "") }

func decode(text string) ([]Run, error) {
	doc, err := yamlx.Parse("runs.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	return Decode(doc)
}

func TestDecode(t *testing.T) {
	list, err := decode(file(fmt.Sprintf(row, "a", "{}"), fmt.Sprintf(row, "b", "{tp: 3}")))
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "g", list[0].Group)
	require.InDelta(t, 0.157, float64(list[0].Measured.StepTime), 1e-12)
	require.NotNil(t, list[0].Job)
	require.Error(t, list[1].Err, "a job that breaks a rule is the run's error, not the file's")
	require.Nil(t, list[1].Job)
}

// TestStartedBy: the recipe is that of what started the run.
func TestStartedBy(t *testing.T) {
	for framework, want := range map[string]string{"Megatron-LM core_r0.14.0": "megatron-pretrain", "Megatron": "megatron-pretrain",
		"Megatron-Bridge/NeMo 26.02": "megatron-core", "NeMo 24.07": "megatron-core", "NeMo/Megatron": "megatron-core"} {
		text := strings.Replace(fmt.Sprintf(row, "a", "{}"), "hf-eager}", "megatron-core}\n    framework: "+framework, 1)
		list, err := decode(file(strings.Replace(text, "precision: bf16-pure", "precision: bf16", 1)))
		require.NoError(t, err)
		require.NoError(t, list[0].Err)
		require.Equal(t, want, list[0].Job.Runtime.Recipe, framework)
	}
}

// TestStartedWithExperts: rows of experts are moved by fused kernels where the row says nothing
// of it, which the recipe of plain scripts does not take unasked.
func TestStartedWithExperts(t *testing.T) {
	for said, want := range map[string]bool{"": true, ", permute_fusion: false": false} {
		list, err := decode(file(fmt.Sprintf(`
  - id: a
    framework: Megatron (some table)
    model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: 2, num_attention_heads: 8, intermediate_size: 4096, vocab_size: 1000, num_experts: 8, num_experts_per_tok: 2}
    gpus: 8
    runtime: {recipe: megatron-core%s}
    plan: {ep: 8}
    measured: {step_time: 1 s}`, said)))
		require.NoError(t, err)
		require.NoError(t, list[0].Err)
		require.Equal(t, "megatron-pretrain", list[0].Job.Runtime.Recipe)
		require.Equal(t, want, *list[0].Job.Runtime.PermuteFusion, said)
	}
}

// TestAssumed: a recipe's own default stands for what a run only assumes, which is said, but where
// the rest of the job needs it.
func TestAssumed(t *testing.T) {
	for _, c := range []struct{ plan, kind, left, err string }{
		{"{data_parallel: fsdp2}", "ddp", "plan.data_parallel: fsdp2", ""},
		{"{data_parallel: fsdp1, shard_degree: 2}", "fsdp1", "", ""},
		{"{data_parallel: fsdp1, shard_degree: 3}", "", "", "plan.shard_degree: 3 does not divide the 4"},
		{"{dp: 4}", "ddp", "", ""},
	} {
		list, err := decode(file(strings.Replace(fmt.Sprintf(row, "a", c.plan), "gpus: 1", "gpus: 4\n    assumed: [data_parallel]", 1)))
		require.NoError(t, err)
		require.Equal(t, c.left, strings.Join(list[0].Left, " "), c.plan)
		if c.err != "" {
			require.ErrorContains(t, list[0].Err, c.err)
			continue
		}
		require.NoError(t, list[0].Err, c.plan)
		require.EqualValues(t, c.kind, list[0].Job.Plan.DataParallel, c.plan)
		require.Equal(t, list[0].Assumed, list[0].Job.Assumed, "which widens the range")
		require.Equal(t, list[0].Left, Validate(list).Rows[0].Left)
	}
}

func TestDecodeErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"format":         {"perfplan: job/v1\nruns: []", `"job/v1" is not a file of measured runs`},
		"no format":      {"runs: []", "is not a file of measured runs"},
		"not a mapping":  {"[1, 2]", "is not a file of measured runs"},
		"no runs":        {"perfplan: runs/v1", "has no runs"},
		"runs no list":   {"perfplan: runs/v1\nruns: 3", "expected a list"},
		"twice":          {file(fmt.Sprintf(row, "a", "{}"), fmt.Sprintf(row, "a", "{}")), `"a" is that of the run in line 3`},
		"no id":          {file("\n  - model: gpt2"), "id: is missing"},
		"scalar run":     {file("\n  - 3"), "expected a mapping"},
		"unknown figure": {file("\n  - {id: a, measured: {steptime: 3 s}}"), `did you mean "step_time"?`},
		"unit":           {file("\n  - {id: a, measured: {step_time: 3 GB}}"), "is not a unit of time"},
		"zero":           {file("\n  - {id: a, measured: {step_time: 0 ms}}"), `runs.yaml:3:35: step_time: "0 ms" is not a usable measurement; give more than 0, or leave out what was not measured`},
		"negative":       {file("\n  - {id: a, measured: {step_time: -5 ms}}"), "runs.yaml:3:35: "},
		"no count":       {file("\n  - {id: a, measured: {parameters: -7}}"), `parameters: "-7" is not a usable measurement`},
		"zero of a rank": {file("\n  - {id: a, measured: {peak_allocated_per_stage: [1 GB, 0 GB]}}"), `runs.yaml:3:57: peak_allocated_per_stage: "0 GB" is not a usable measurement`},
		"far too long":   {file("\n  - {id: a, measured: {step_time: 1e30 s}}"), `runs.yaml:3:35: step_time: "1e30 s" is not a usable measurement; give at most 1 d, or leave out what was not measured`},
		"far too large":  {file("\n  - {id: a, measured: {peak_allocated_per_stage: [1 GB, 2e16 GB]}}"), "give at most 1000 TB"},
		"beside a unit":  {file("\n  - {id: a, measured: {step_time: 3 GB, parameters: -7}}"), `parameters: "-7" is not a usable measurement`},
		"twice and more": {file("\n  - {id: a, measured: {steptime: 3 s}}", "\n  - {id: a}"), `"a" is that of the run in line 3`},
		"no ids":         {file("\n  - 3", "\n  - {id: [a]}"), "runs.yaml:4:10: id: expected text"},
		"no id and more": {file("\n  - {measured: {steptime: 3 s}}"), "id: is missing"},
		"unknown key":    {"perfplan: runs/v1\nruns: [{id: a}]\nrun: 3", `unknown key "run"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(c.text)
			require.ErrorContains(t, err, c.want)
			require.True(t, diag.IsInput(err), "a mistake in a file is an input error")
		})
	}
}

func TestLoad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "runs.yaml")
	require.NoError(t, os.WriteFile(name, []byte(file(fmt.Sprintf(row, "a", "{}"))), 0o644))
	list, err := Load(name)
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = Load(name + ".missing")
	require.ErrorContains(t, err, "no such file")
}

// TestLoadAll: what is given twice would count twice.
func TestLoadAll(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, ids ...string) string {
		var rows []string
		for _, id := range ids {
			rows = append(rows, fmt.Sprintf(row, id, "{}"))
		}
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(file(rows...)), 0o644))
		return name
	}
	first, second, clash := write("first.yaml", "a", "b"), write("second.yaml", "c"), write("clash.yaml", "d", "b")
	link := filepath.Join(dir, "link.yaml")
	require.NoError(t, os.Symlink(first, link))
	for _, c := range []struct {
		name  string
		files []string
		want  string // of the complaint
		runs  int
	}{
		{"one", []string{first}, "", 2},
		{"two", []string{first, second}, "", 3},
		{"an id of another file", []string{first, second, clash}, fmt.Sprintf(`%s:12:9: id: "b" is that of the run in %s, line 12; give each its own`, clash, first), 0},
		{"the same file", []string{first, second, first}, first + ": is the same file as " + first, 0},
		{"the same file by another name", []string{first, link}, link + ": is the same file as " + first + ", which is given before it; give it once", 0},
		{"of two that are not there, the second", []string{dir + "/none.yaml", dir + "/nor.yaml"}, dir + "/nor.yaml: no such file", 0},
		{"no file, twice", []string{dir + "/none.yaml", dir + "/none.yaml"}, "no such file", 0},
	} {
		list, err := LoadAll(c.files)
		if c.want == "" {
			require.NoError(t, err, c.name)
			require.Len(t, list, c.runs, c.name)
			continue
		}
		require.ErrorContains(t, err, c.want, c.name)
		require.True(t, diag.IsInput(err), c.name)
	}
}

// TestRunsTakeDefaults: a run whose plan only says how it ran was split by default, not as
// would be best.
func TestRunsTakeDefaults(t *testing.T) {
	list, err := decode(file(fmt.Sprintf(row, "a", "{bucket: 25MiB}")))
	require.NoError(t, err)
	require.NoError(t, list[0].Err)
	require.False(t, list[0].Job.Open)
	require.Equal(t, list[0].Job.GPUs, list[0].Job.Plan.DP)
}

// TestReasons: what is wrong with a run is said with its place in the file.
func TestReasons(t *testing.T) {
	machine := filepath.Join(t.TempDir(), "machine.yaml")
	require.NoError(t, os.WriteFile(machine, []byte("perfplan: hardware/v1\ninherits: h200-sxm\ngpuu: 3\n"), 0o644))
	for _, c := range []struct{ name, from, to, where, reason string }{
		{"no whole number", "gpus: 1", "gpus: 1.5", "runs.yaml:7:11", `gpus: expected a whole number, found "1.5"`},
		{"negative", "gpus: 1", "gpus: -4", "runs.yaml:7:11", "gpus: -4; give 1 to "},
		{"precision", "bf16-pure", "bf17", "runs.yaml:10:63", `recipe hf-eager has no "bf17"`},
		{"hardware", "h200-sxm", "h200-sxx", "runs.yaml:6:15", `there is no hardware "h200-sxx"`},
		{"recipe", "hf-eager", "hf-eagr", "runs.yaml:8:23", `there is no recipe "hf-eagr"`},
		{"model", "tinyllama-1.1b", "tinyllama-1b", "runs.yaml:5:12", `unknown model "tinyllama-1b"`},
		{"unknown key", "gpus: 1", "gpuss: 1", "runs.yaml:7:5", `unknown key "gpuss"`},
		{"no plan", "plan: {}\n", "\n", "runs.yaml:3:5", "plan: is missing; a measured run had one"},
		{"in another file", "h200-sxm", machine, "runs.yaml:3:9", machine + `:3:1: unknown key "gpuu"`},
		{"nothing measured", "{step_time: 157 ms, peak_allocated: 25.66 GB}", "{}", "runs.yaml:3:9", "nothing is measured; give what is known under measured:"},
		{"other stages", "{step_time: 157 ms, peak_allocated: 25.66 GB}", "{peak_allocated_per_stage: [1 GB, 2 GB]}", "runs.yaml:3:9", "peak_allocated_per_stage has 2 stages, the plan another number"},
	} {
		text := file(fmt.Sprintf(row, "a", "{}"))
		require.Contains(t, text, c.from)
		list, err := decode(strings.Replace(text, c.from, c.to, 1))
		require.NoError(t, err, c.name)
		r := Validate(list).Rows[0]
		require.Equal(t, c.where, r.Where, c.name)
		require.Contains(t, r.Reason, c.reason, c.name)
	}
}

// TestRefusal: that nothing at all is predicted is an error, with every run's place.
func TestRefusal(t *testing.T) {
	good, bad, worse := fmt.Sprintf(row, "a", "{}"), fmt.Sprintf(row, "b", "{tp: 3}"), fmt.Sprintf(row, "c", "{tpp: 3}")
	list, err := decode(file(good, bad))
	require.NoError(t, err)
	require.NoError(t, Validate(list).Refusal(), "one is predicted")
	_, err = Ablate(list, nil)
	require.NoError(t, err)

	list, err = decode(file(bad, worse))
	require.NoError(t, err)
	_, ablation := Ablate(list, nil)
	_, elsewhere := On(list, "h200-sxm")
	for _, err := range []error{Validate(list).Refusal(), ablation, elsewhere} {
		require.ErrorContains(t, err, "not one run can be predicted:\nruns.yaml:9:16: run b: plan.tp: ")
		require.ErrorContains(t, err, "\nruns.yaml:18:12: run c: unknown key \"tpp\"")
		require.True(t, diag.IsInput(err))
	}

	list, err = decode(file(good))
	require.NoError(t, err)
	failed := Report{Rows: []Row{validate(&list[0], func(*strategies.Job) (*estimate.Result, error) { return nil, errors.New("boom") })}}
	require.ErrorContains(t, failed.Refusal(), "runs.yaml:3:9: run a: boom")
	require.False(t, diag.IsInput(failed.Refusal()), "a mistake of the program is none of the user")
}

// TestReleaseOf: what a run says of the month of its software.
func TestReleaseOf(t *testing.T) {
	for _, c := range []struct{ framework, source, want string }{
		{"NeMo 24.07", "", "24.07"},
		{"nanotron (July 2024)", "", "24.07"},
		{"Megatron-LM (2021)", "", ""},
		{"Novembre 2024", "", ""},
		{"", "mlcommons/training_results_v3.1", "23.09"},
		{"Megatron-LM", "arXiv:2401.10241 Tables 3 and 4", "24.01"},
		{"torchtitan", "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md @b5bcd76", "24.12"},
		{"torchtitan", "pytorch/torchtitan benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md", "25.06"},
		{"torchtitan", "pytorch/torchtitan docs/performance.md @3faaa1a", ""},
		{"", "steps of 2026-11-22_on four", ""},
	} {
		require.Equal(t, c.want, releaseOf(c.framework, c.source), "%s %s", c.framework, c.source)
	}
}

// embedded are the runs that the program carries, which take a second to read.
var embedded = sync.OnceValues(func() ([]Run, error) { return Embedded(nil) })

// TestEmbedded: the set that the program carries loads whole. Its size is that of
// the tables in data/README.md.
func TestEmbedded(t *testing.T) {
	list, err := embedded()
	require.NoError(t, err)
	require.Equal(t, 83+34+51+413+417+390+224+84+11+16+30+8+49+53+39+45+80+123+29+30+23+12+18+8+32+15+22+18+21+14+45+8+19+48+13+45+10+43+112+88+11+12+4+75+54+9+88+30+28+5+8+64+33+66+116+106+11+105+110+124+12+2+11+7+125+4+151+9+28+10+134+17+24+96+14+8+7+186+24+23+139+8+14+8+24+134+121+32+37+107+29+124+7+89+7+36+110+17+14+28+142+138+80+23+110+7+75+45+5+21+123+12+120+61+60, len(list))
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), fmt.Sprintf("%d measured runs", len(list)))
	for _, r := range list {
		require.NotEmpty(t, r.Group, r.ID)
		require.Positive(t, max(float64(r.Measured.StepTime), float64(r.Measured.BackwardTime), float64(r.Measured.PeakAllocated), float64(r.Measured.PeakReserved)), "%s: some give their passes or their memory alone", r.ID)
		if r.Err != nil {
			require.True(t, diag.IsInput(r.Err), "%s: %v", r.ID, r.Err)
		}
	}
}

// TestValidateIsDeterministic: rows are estimated in parallel and reported alike.
func TestValidateIsDeterministic(t *testing.T) {
	t.Parallel()
	list, err := embedded()
	require.NoError(t, err)
	list, err = Filter(list, []string{"h200-single", "h200-pp", "h200-ddp"})
	require.NoError(t, err)
	var first []byte
	for range 3 {
		text, err := json.Marshal(Validate(list))
		require.NoError(t, err)
		if first == nil {
			first = text
		}
		require.True(t, bytes.Equal(first, text))
	}
	var back struct {
		Rows []struct {
			ID, Status string
			Predicted  map[string]any
			Error      map[string]float64
		}
		Summary []map[string]any
	}
	require.NoError(t, json.Unmarshal(first, &back))
	require.Len(t, back.Rows, len(list))
	for i, r := range back.Rows {
		require.Equal(t, list[i].ID, r.ID)
		require.Equal(t, "ok", r.Status)
		require.Contains(t, r.Error, "step_time")
		require.Contains(t, r.Predicted, "step_time_s")
	}
	require.Equal(t, "all", back.Summary[len(back.Summary)-1]["group"])
	require.Contains(t, back.Summary[0], "step_time")
}

// TestValidateSurvives: one bad run does not take the others down.
func TestValidateSurvives(t *testing.T) {
	list, err := decode(file(fmt.Sprintf(row, "a", "{}")))
	require.NoError(t, err)
	panics := func(*strategies.Job) (*estimate.Result, error) { panic("index out of range") }
	guarded := func(j *strategies.Job) (*estimate.Result, error) { return guard(j, panics) }
	r := validate(&list[0], guarded)
	require.Equal(t, Failed, r.Status)
	require.Equal(t, "internal error: index out of range", r.Reason)

	for err, want := range map[error]Status{diag.Errorf("tp: 3 is not"): Unsupported, errors.New("boom"): Failed} {
		r := validate(&list[0], func(*strategies.Job) (*estimate.Result, error) { return nil, err })
		require.Equal(t, want, r.Status)
		require.Equal(t, err.Error(), r.Reason)
	}

	none := validate(&list[0], func(j *strategies.Job) (*estimate.Result, error) {
		return guard(j, func(*strategies.Job) (*estimate.Result, error) { return &estimate.Result{Job: j}, nil })
	})
	require.Equal(t, Failed, none.Status, "a step time of zero is no prediction")
}

func TestFilter(t *testing.T) {
	list := []Run{{ID: "a", Group: "x"}, {ID: "b", Group: "yy"}}
	got, err := Filter(list, []string{"yy"})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Len(t, list, 2)
	require.Equal(t, "a", list[0].ID)
	_, err = Filter(list, []string{"yx"})
	require.ErrorContains(t, err, "there is no group")
}

// FuzzDecode: no text makes the reader panic, and every complaint is about input.
func FuzzDecode(f *testing.F) {
	f.Add(file(fmt.Sprintf(row, "a", "{}")))
	f.Add(file(fmt.Sprintf(row, "a", "{tp: 2, pp: 2, schedule: zb-v}")))
	f.Add("perfplan: runs/v1\nruns: [*a, &a {id: x}]")
	f.Add("perfplan: runs/v1\nruns: [{id: a, model: {model_type: llama}, measured: {peak_allocated_per_stage: [1 GB, 2 GB]}}]")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := decode(text)
		if err != nil && !diag.IsInput(err) {
			t.Fatalf("not an input error: %v", err)
		}
		for _, r := range list {
			if (r.Job == nil) == (r.Err == nil) {
				t.Fatalf("run %q has job %v and error %v", r.ID, r.Job, r.Err)
			}
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	list, err := embedded()
	require.NoError(b, err)
	for b.Loop() {
		Validate(list)
	}
}

// TestDocs: docs/commands.md has a row for every figure of a run, with a value that is one,
// and names the other keys.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/commands.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n### Files of runs\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var keys, rows []string
	for f := range reflect.TypeFor[Figures]().Fields() {
		keys = append(keys, f.Tag.Get("yaml"))
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| .* \\| `(.*)` \\|$").FindAllStringSubmatch(section, -1) {
		rows = append(rows, m[1])
		list, err := decode(file(fmt.Sprintf("\n  - {id: a, measured: {%s: %s}}", m[1], m[2])))
		require.NoError(t, err, m[0])
		require.NotZero(t, list[0].Measured, m[0])
	}
	require.Equal(t, keys, rows)
	for f := range reflect.TypeFor[runFile]().Fields() {
		if key := f.Tag.Get("yaml"); key != ",rest" {
			require.Contains(t, section, "`"+key+"`")
		}
	}
}
