package launch_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/launch"
)

var update = flag.Bool("update", false, "write the golden files")

// TestRead: what each kind of file says, as a job file. Those that leave nothing open are
// jobs: of a configuration of DeepSpeed with a model.
func TestRead(t *testing.T) {
	for name, more := range map[string]string{"dense.sh": "model: {vocab_size: 50304}", "experts.yaml": "gpus: 64", "run.log": "", "zero3.json": "{model: llama3-8b, gpus: 8}", "zero2.json": "{model: llama3-8b, gpus: 8}", "titan.toml": "gpus: 64", "titan-pp.toml": "gpus: 64"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name))
			require.NoError(t, err)
			j, err := launch.Read(name, text)
			require.NoError(t, err)
			got, err := j.YAML()
			require.NoError(t, err)
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, got, 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
			if name == "dense.sh" {
				got = []byte(strings.Replace(string(got), "model:\n", "model:\n  vocab_size: 50304\n", 1))
				more = ""
			}
			d, err := yamlx.Parse(name, append(got, more...))
			if strings.HasPrefix(more, "{") {
				d, err = yamlx.Parse(name, append(got, strings.NewReplacer("{", "\n", ", ", "\n", "}", "\n").Replace(more)...))
			}
			require.NoError(t, err)
			_, err = strategies.Decode(d, d.Root)
			require.NoError(t, err, string(got))
		})
	}
}

// TestJoin: files of one job say together what it is; two that differ are refused, but of two
// frameworks.
func TestJoin(t *testing.T) {
	read := func(text string) *launch.Job {
		j, err := launch.Read("a", []byte(text))
		require.NoError(t, err)
		return j
	}
	script := read("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 2 --bf16 --vocab-size 128")
	j, err := launch.Join([]*launch.Job{script, read(`{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}`)})
	require.NoError(t, err)
	text, err := j.YAML()
	require.NoError(t, err)
	require.Contains(t, string(text), "recipe: megatron-deepspeed")
	require.Contains(t, string(text), "read from a, a")
	_, err = launch.Join([]*launch.Job{script, read(`{"train_micro_batch_size_per_gpu": 4}`)})
	require.EqualError(t, err, "train.micro_batch: train_micro_batch_size_per_gpu says 4, but --micro-batch-size before it 2; leave one of them out")
}

// TestRuns: logs are runs that can be validated, each by a name of its own; what says nothing
// of its steps or leaves something open is none.
func TestRuns(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "run.log"))
	require.NoError(t, err)
	read := func(name, text string) *launch.Job {
		j, err := launch.Read(name, []byte(text))
		require.NoError(t, err)
		return j
	}
	got, err := launch.Runs([]*launch.Job{read("a/run.log", string(text)), read("b/run.log", string(text))})
	require.NoError(t, err)
	d, err := yamlx.Parse("x", got)
	require.NoError(t, err)
	list, err := runs.Decode(d)
	require.NoError(t, err)
	require.Len(t, list, 2)
	for i, id := range []string{"run", "run-2"} {
		require.Equal(t, id, list[i].ID)
		require.NoError(t, list[i].Err)
		require.Equal(t, 29.188, float64(list[i].Measured.StepTime))
	}
	_, err = launch.Runs([]*launch.Job{read("x", "--num-layers 4 --vocab-size 128 --bf16")})
	require.EqualError(t, err, "x: has no line that says what an iteration took; give logs of Megatron-LM, or leave --measured out for a job")
	_, err = launch.Runs([]*launch.Job{read("x", "--num-layers 4 --bf16\nelapsed time per iteration (ms): 10")})
	require.ErrorContains(t, err, "x: model.vocab_size is not known: --tokenizer-type")
}

// TestErrors: what is no such file is said to be none.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "x: is empty; give a script or a log of Megatron-LM, or a configuration of DeepSpeed or torchtitan",
		"echo hello --world":                  "x: has none of the arguments --num-layers, --micro-batch-size and --tensor-model-parallel-size of Megatron-LM; give its script, its log or a configuration of DeepSpeed or torchtitan",
		`{"lr": 1}`:                           "x: is no configuration of DeepSpeed: it has none of zero_optimization, train_micro_batch_size_per_gpu, train_batch_size, bf16 and fp16",
		`{"bf16": {"enabled"`:                 "x:1:",
		`{"zero_optimization": 3}`:            `x:1:23: zero_optimization: 3 has no keys; give them in braces, as {"stage": 2}`,
		`{"zero_optimization": {"stage": 4}}`: "x:1:33: zero_optimization.stage: there is no stage 4; give 0, 1, 2 or 3",
		`{"zero_optimization": {"stage": "auto"}}`:               "x:1:33: zero_optimization.stage: there is no stage auto; give 0, 1, 2 or 3",
		`{"zero_optimization": {"stage": 1e300}}`:                `x:1:33: zero_optimization.stage: "1e300"; give a whole number from 0 on, or auto`,
		`{"train_batch_size": .inf}`:                             "x:1:22: train_batch_size: ",
		`{"zero_optimization": {"stage": "two"}}`:                `x:1:33: zero_optimization.stage: "two"; give a whole number from 0 on, or auto`,
		`{"train_micro_batch_size_per_gpu": 0}`:                  `x:1:36: train_micro_batch_size_per_gpu: "0"; give a whole number from 1 on, or auto`,
		`{"train_batch_size": 1.5}`:                              `x:1:22: train_batch_size: "1.5"; give a whole number from 1 on, or auto`,
		"[model]\nname = 'llama3'\n[training]\nseq_len = '8192'": `x: training.seq_len: "8192"; give a whole number`,
		"[training]\nseq_len = ":                                 "x:2:10: is no TOML",
		"[training]\nsteps = 1":                                  "x: is no configuration of torchtitan: it has no tables [model] and [training]",
	} {
		_, err := launch.Read("x", []byte(text))
		require.Error(t, err, text)
		require.True(t, diag.IsInput(err), text)
		require.True(t, strings.HasPrefix(err.Error(), want), err.Error())
	}
}

// TestStages: what ZeRO leaves to the host, and what of overlap_comm a stage has a key for.
func TestStages(t *testing.T) {
	for text, want := range map[string]string{
		`"stage": 3, "offload_optimizer": {"device": "cpu"}`: "offload: optimizer # zero_optimization.offload_optimizer\n",
		`"stage": 3, "overlap_comm": false`:                  "# Not taken over: zero_optimization.overlap_comm false",
		`"stage": 1, "overlap_comm": false`:                  "overlap_grad_reduce: false # zero_optimization.overlap_comm\n",
		`"stage": 0, "overlap_comm": false`:                  "data_parallel: ddp # zero_optimization.stage\n",
		`"stage": 2, "reduce_bucket_size": "auto"`:           "data_parallel: zero2 # zero_optimization.stage\n",
	} {
		j, err := launch.Read("x", []byte(`{"zero_optimization": {`+text+"}}"))
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), want, text)
		require.Equal(t, strings.HasPrefix(want, "#"), len(j.Notes) > 0, text)
	}
}

// TestValues: arguments as scripts write them.
func TestValues(t *testing.T) {
	const rest = " --num-layers 4 --hidden-size 64 --num-attention-heads 4 --bf16 --vocab-size 128"
	for text, want := range map[string]string{
		"--micro-batch-size 3":                          "micro_batch: 3 # --micro-batch-size",
		"--micro-batch-size=3":                          "micro_batch: 3 #",
		"MBS=3\n--micro-batch-size $MBS":                "micro_batch: 3 #",
		"export MBS=\"3\"\n--micro-batch-size ${MBS}":   "micro_batch: 3 #",
		"A=3\nB=2\n--micro-batch-size $(($A*$B))":       "micro_batch: 6 #",
		"--micro-batch-size ${MBS:-5}":                  "micro_batch: 5 #",
		"--micro-batch-size $1":                         "# train.micro_batch: --micro-batch-size: line 1 takes $1, which the file does not set: give the key",
		"X=\"--micro-batch-size 3 --tp-comm-overlap\"":  "micro_batch: 3 #",
		"# --micro-batch-size 9\n--micro-batch-size 3":  "micro_batch: 3 #",
		"--micro-batch-size 3 \\\n --tp-comm-overlap":   "tp_overlap: true # --tp-comm-overlap",
		"ARGS=(--micro-batch-size 3)\n":                 "micro_batch: 3 #",
		"--deepspeed --zero-stage 1":                    "data_parallel: zero1 # --zero-stage",
		"--deepspeed --overlap-grad-reduce":             "recipe: megatron-deepspeed # --deepspeed",
		"--checkpoint-activations":                      "recompute: full # --checkpoint-activations",
		"['--micro-batch-size', '3', '--seq-length',8]": "sequence_length: 8",
	} {
		j, err := launch.Read("x", []byte(text+rest))
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), want, text)
	}
}

// No text makes Read panic, and what it reads can be written.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"dense.sh", "experts.yaml", "run.log", "zero3.json", "zero2.json", "titan.toml", "titan-pp.toml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		j, err := launch.Read("x", []byte(text))
		if err != nil {
			return
		}
		out, err := j.YAML()
		require.NoError(t, err)
		_, err = yamlx.Parse("x", out)
		require.NoError(t, err, string(out))
	})
}
