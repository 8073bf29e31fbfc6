package launch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies/launch"
)

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
		require.Equal(t, 29.1878, float64(list[i].Measured.StepTime))
	}
	text, err = os.ReadFile(filepath.Join("testdata", "sft.log"))
	require.NoError(t, err)
	got, err = launch.Runs([]*launch.Job{read("sft.log", string(text))})
	require.NoError(t, err)
	require.Contains(t, string(got), "step_time: 0.400332 s # mean of all 301 steps, train_runtime over those of the progress bar, with")
	require.Contains(t, string(got), "# hardware: no log says on which GPUs it ran: give each run the key, or h100-sxm is taken\nruns:")
	got, err = launch.Runs([]*launch.Job{read("x", "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 128 --bf16\nelapsed time per iteration (ms): 10\nelapsed time per iteration (ms): 20")})
	require.NoError(t, err)
	require.Contains(t, string(got), "step_time: 0.015 s # median of 2")
	_, err = launch.Runs([]*launch.Job{read("x", "--num-layers 4 --vocab-size 128 --bf16")})
	require.EqualError(t, err, "x: has no line that says what an iteration took; give logs of Megatron-LM, torchtitan, nanoGPT or a Trainer, or leave --measured out for a job")
	_, err = launch.Runs([]*launch.Job{read("x", "--num-layers 4 --bf16\nelapsed time per iteration (ms): 10")})
	require.ErrorContains(t, err, "x: model.vocab_size is not known: --tokenizer-type")
}

// What logs have of steps: a Trainer in the end, its progress bar and its state, and torchtitan.
const (
	trainerCommand = "+ accelerate launch --num_processes 8 --multi_gpu sft.py --model_name_or_path gpt2 --bf16 --per_device_train_batch_size 4 --gradient_accumulation_steps 20 --max_length 1024 --packing --gradient_checkpointing false --output_dir x\n"
	trainerSum     = "{'train_runtime': 18200.0, 'train_samples_per_second': 3.516, 'train_steps_per_second': 0.005, 'train_loss': 1.1, 'epoch': 1.0}\n"
	trainerState   = `{"epoch": 1.0, "global_step": 100, "max_steps": 100, "num_train_epochs": 1, "train_batch_size": 4, "log_history": [{"loss": 1.2, "step": 10}, {"step": 100, "train_runtime": 18200.0, "train_samples_per_second": 3.516, "train_steps_per_second": 0.005}]}`
	titanFile      = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n[parallelism]\ntensor_parallel_degree = 2\n[activation_checkpoint]\nmode = 'full'\n"
	titanSteps     = "[titan] 2025-02-03 12:00:00,000 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2  \x1b[33mmemory: 41.00GiB(50.00%)  \x1b[34mtps: 300  \x1b[35mmfu: 3.55%\x1b[39m\n" +
		"[rank0]:[titan] 2025-02-03 12:00:00,000 - root - INFO - step: 10  loss:  7.1234  grad_norm:  1.2000  memory: 47.51GiB(60.00%)  tps: 5,120  tflops: 302.10  mfu: 30.55%\n" +
		"[rank0]:[titan] 2025-02-03 12:00:00,000 - root - INFO - validate step: 10  loss:  7.0  memory: 70.00GiB(90.00%)  tps: 9,999\n" +
		"[rank0]:[titan] 2025-02-03 12:00:00,000 - root - INFO - step: 20  loss:  7.1234  memory: 45.00GiB(60.00%)  tps: 5,120  mfu: N/A\n"
	titanOneMesh = "[titan] - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]\n"
)

// trainerBar is a Trainer's progress bar of 1000 steps, of 5 s each after a first of 30, with those of
// evaluations and of what is loaded.
func trainerBar(from, to int) string {
	var out strings.Builder
	out.WriteString("Loading checkpoint shards: 100%|##########| 2/2 [59:00<00:00, 1770.00s/it]\n 0%|          | 0/1000 [00:00<?, ?it/s]")
	for n := from; n <= to; n++ {
		s := 25 + (n-from+1)*5
		fmt.Fprintf(&out, "\r 1%%|1         | %d/1000 [%02d:%02d<1:20:00,  5.00s/it]", n, s/60, s%60)
		if n%20 == 0 {
			out.WriteString("\r 90%|###  | 9/10 [00:02<00:01,  4.00it/s]")
		}
	}
	return out.String() + "\n"
}

// TestMeasured: what logs, and the files beside them, make of a measured run.
func TestMeasured(t *testing.T) {
	const (
		megatron = "  num_layers ............ 4\n  hidden_size ........... 64\n  num_attention_heads ... 4\n  padded_vocab_size ..... 128\n  bf16 .................. True\n  world_size ............ 8\n  micro_batch_size ...... 1\n  global_batch_size ..... 128\n"
		memory   = "[Rank 8] (after 4 iterations) memory (MB) | allocated: 20000.0 | max allocated: 45056.0 | reserved: 46000.0 | max reserved: 49152.0\n[Rank 0] (after 4 iterations) memory (MB) | allocated: 20000.0 | max allocated: 40960.0 | reserved: 46000.0 | max reserved: 47104.0 | total device memory used: 50000.00\n"
		sharded  = `{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}`
		traced   = "+ NGPU=8\n+ torchrun --nproc_per_node=8 --rdzv_backend c10d -m torchtitan.train --job.config_file ./tt.toml --parallelism.tensor_parallel_degree 4\n"
	)
	ramp := func(small, large int) string {
		var out strings.Builder
		for n := 1; n <= small+large; n++ {
			batch := 64
			if n > small {
				batch = 128
			}
			fmt.Fprintf(&out, " iteration %8d/     100 | elapsed time per iteration (ms): %d.0 | learning rate: 1.0E-04 | global batch size: %5d | lm loss: 1.0E+01 |\n", n, batch*6000/64, batch)
		}
		return megatron + out.String()
	}
	sum := func(old, new string) string { return trainerCommand + strings.Replace(trainerSum, old, new, 1) }
	deepspeed := strings.NewReplacer("--multi_gpu", "", "sft.py", "sft.py --deepspeed ds.json").Replace(trainerCommand)
	for name, c := range map[string]struct {
		files []string
		want  []string
		err   string
	}{
		"ramp":            {files: []string{ramp(14, 6)}, want: []string{"step_time: 12 s # median of 4 iterations of global batch 128 after the first third, without 14 of others\n", "global_batch: 128 # global_batch_size\n"}},
		"unfinished ramp": {files: []string{ramp(6, 0)}, want: []string{"step_time: 6 s # median of 4 iterations of global batch 64 after the first third, as none has the job's 128\n", "global_batch: 64 # that of the log's last iterations; global_batch_size has 128\n"}},
		"memory":          {files: []string{ramp(0, 3) + memory}, want: []string{"peak_allocated: 44 GiB # the most that a rank in the log has\n", "peak_reserved: 48 GiB # the most"}},
		"bytes":           {files: []string{ramp(0, 3) + "caf\xe9 \xe2\x96\n"}, want: []string{"step_time: 12 s"}},

		"bar in the end":          {files: []string{trainerCommand + "100%|######| 100/100 [5:03:20<00:00, 182.0s/it]\n" + trainerSum}, want: []string{"step_time: 182 s # mean of all 100 steps, train_runtime over those of the progress bar, with the first and with what came between them\n"}},
		"bar stopped early":       {files: []string{trainerCommand + " 91%|##### | 91/100 [5:03:20<30:00, 200.0s/it]\n" + trainerSum}, want: []string{"step_time: 200 s # mean of all 91 steps, train_runtime over those of the progress bar"}},
		"bar of something else":   {files: []string{trainerCommand + "100%|######| 7/7 [5:03:20<00:00, 182.0s/it]\n" + trainerSum}, want: []string{"step_time: 182.025 s # mean of all steps by train_samples_per_second 3.516 of batches of 640, with"}},
		"global_step":             {files: []string{trainerCommand + "TrainOutput(global_step=100, training_loss=1.1, metrics=" + trainerSum}, want: []string{"step_time: 182 s # mean of all 100 steps, train_runtime over those of global_step"}},
		"optimization steps":      {files: []string{trainerCommand + "  Total optimization steps = 100\n" + trainerSum}, want: []string{"step_time: 182 s # mean of all 100 steps, train_runtime over those of max_steps"}},
		"max_steps":               {files: []string{strings.Replace(trainerCommand, " --output_dir", " --max_steps 100 --output_dir", 1) + trainerSum}, want: []string{"step_time: 182 s # mean of all 100 steps, train_runtime over those of max_steps"}},
		"max_steps of others":     {files: []string{strings.Replace(trainerCommand, " --output_dir", " --max_steps 500 --output_dir", 1) + trainerSum}, want: []string{"step_time: 182.025 s # mean of all steps by train_samples_per_second"}},
		"batch of the log":        {files: []string{strings.Replace(trainerCommand, "--num_processes 8 ", "", 1) + "  Total train batch size (w. parallel, distributed & accumulation) = 640\n" + trainerSum}, want: []string{"step_time: 182.025 s", "# gpus: no file says how many: give the key, or those of one node are taken\n"}},
		"samples of others":       {files: []string{sum("3.516", "9.9")}, want: []string{"step_time: 200 s # mean of all steps by train_steps_per_second 0.005, whose rounding is up to 10 %, with the first"}},
		"rounded to nothing":      {files: []string{strings.Replace(sum("0.005", "0.0"), "'train_samples_per_second': 3.516", "'x': 1", 1)}, err: "a: has train_runtime, but not how many steps took that long; give a log with its progress bar, or max_steps"},
		"four digits":             {files: []string{trainerCommand + "100%|######| 100/100 [5:03:20<00:00, 182.0s/it]\n{'train_runtime': '1.82e+04', 'train_samples_per_second': '3.516', 'train_steps_per_second': '0.005'}\n"}, want: []string{"step_time: 182 s # mean of all 100 steps, train_runtime over those of the progress bar"}},
		"resumed":                 {files: []string{trainerCommand + "  Continuing training from global step 60\n100%|######| 100/100 [5:03:20<00:00, 182.0s/it]\n" + trainerSum}, want: []string{"step_time: 455 s # mean of all 40 steps, train_runtime over those of the progress bar"}},
		"resumed without a bar":   {files: []string{trainerCommand + "  Continuing training from global step 60\n" + trainerSum}, err: "a: went on from step 60, and its rates count the steps before, too; give a log with its progress bar"},
		"resumed without a word":  {files: []string{trainerCommand + trainerBar(941, 1000) + "{'train_runtime': 325.0, 'train_steps_per_second': 3.077}\n"}, want: []string{"step_time: 5 s # mean of 53 steps, 947 to 1000, by the progress bar's whole seconds, with what came between them\n"}},
		"resumed to its end":      {files: []string{trainerCommand + trainerBar(991, 1000) + "{'train_runtime': 75.0, 'train_steps_per_second': 13.333}\n"}, err: "a: went on from a checkpoint, so that train_runtime is of fewer steps than are counted, and its progress bar shows 7 steps in 35 s after the first ones"},
		"going on":                {files: []string{trainerCommand + trainerBar(1, 60)}, want: []string{"step_time: 5 s # mean of 53 steps, 7 to 60, by the progress bar's whole seconds, with what came between them\n"}},
		"going on after others":   {files: []string{trainerCommand + "100%|####| 500/500 [50:00<00:00, 6.00s/it]\n" + trainerBar(1, 60)}, want: []string{"step_time: 5 s # mean of 53 steps, 7 to 60"}},
		"going on to a known end": {files: []string{strings.Replace(trainerCommand, " --output_dir", " --max_steps 1000 --output_dir", 1) + " 80%|####| 400/500 [50:00<00:00, 6.00s/it]\n" + trainerBar(1, 60)}, want: []string{"step_time: 5 s # mean of 53 steps, 7 to 60"}},
		"hardly begun":            {files: []string{trainerCommand + trainerBar(1, 12)}, err: "a: has no train_runtime, which a Trainer prints in the end, and its progress bar shows 9 steps in 45 s after the first ones; give a log with 10 steps and 10 s or more, as the bar has whole seconds"},
		"command beside":          {files: []string{trainerSum, trainerCommand}, want: []string{"step_time: 182.025 s", "gpus: 8 # --num_processes\n", "id: a\n"}},
		"log alone":               {files: []string{trainerSum}, err: "a: has what steps took, but not what they ran: give the configuration or the command that started them by another --from, as in --from train.sh --from a"},

		"state":                {files: []string{trainerCommand, trainerState}, want: []string{"step_time: 182 s # mean of all 100 steps, train_runtime over those of global_step, with", "gpus: 8 # --num_processes\n", "id: b\n"}},
		"state beside its log": {files: []string{trainerState, trainerCommand + trainerSum}, want: []string{"step_time: 182 s # mean of all 100 steps, train_runtime over those of global_step, with", "micro_batch: 4 # --per"}},
		"state alone":          {files: []string{trainerState}, err: "a: has what steps took, but not what they ran: give"},
		"state of a checkpoint": {files: []string{trainerCommand, strings.Replace(trainerState, "train_runtime", "runtime", 1)},
			err: "b:1:115: log_history: no entry has train_runtime, which a Trainer writes when training ends; give the trainer_state.json of the output folder itself"},

		"DeepSpeed beside":      {files: []string{deepspeed + trainerSum, sharded}, want: []string{"data_parallel: zero3 # zero_optimization.stage\n", "micro_batch: 4 # --per", "step_time: 182.025 s", "id: a\n"}},
		"DeepSpeed before":      {files: []string{sharded, deepspeed + trainerSum}, want: []string{"data_parallel: zero3 # zero_optimization.stage\n", "id: b\n"}},
		"DeepSpeed of two logs": {files: []string{sharded, deepspeed + trainerSum, trainerCommand + trainerSum}, err: "a: is beside 2 logs, and which of them it is of is not said; make a file of runs of each log with what is beside it: perfplan validate and --runs take several"},
		"no log":                {files: []string{sharded, titanFile}, err: "a: has no line that says what an iteration took; give logs of Megatron-LM, torchtitan, nanoGPT or a Trainer"},

		"torchtitan":           {files: []string{titanOneMesh + titanSteps, titanFile}, want: []string{"gpus: 8 # device mesh of the log\n", "step_time: 1.6 s # 8192 tokens of a GPU and step over tps 5120, the median of 2 lines after the first third\n", "peak_reserved: 47.51 GiB", "tp: 2 #", "id: a\n"}},
		"torchtitan, its mesh": {files: []string{titanFile, "[titan] - root - INFO - Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=4, etp=1\n" + titanSteps}, want: []string{"gpus: 8 # device mesh of the log\n", "step_time: 1.6 s", "id: b\n"}},
		"torchtitan, global":   {files: []string{titanOneMesh + titanSteps, strings.Replace(titanFile, "seq_len", "global_batch_size = 32\nseq_len", 1)}, want: []string{"step_time: 6.4 s # 32768 tokens of a GPU"}},
		"torchtitan, words":    {files: []string{titanOneMesh + strings.ReplaceAll(titanSteps, "tps", "wps"), titanFile}, want: []string{"step_time: 1.6 s"}},
		"torchtitan, traced":   {files: []string{traced + titanSteps, titanFile}, want: []string{"gpus: 8 # --nproc-per-node\n", "tp: 4 # --parallelism.tensor_parallel_degree\n", "step_time: 0.8 s # 4096 tokens"}},
		"torchtitan, alone":    {files: []string{titanOneMesh + titanSteps}, err: "a: has what steps took, but not what they ran: give the configuration or the command that started them by another --from, as in --from train.sh --from a"},
		"torchtitan, no ranks": {files: []string{titanSteps, titanFile}, err: "gpus is not known: neither the log's device mesh nor a degree says it; give the command that started it by another --from"},
		"torchtitan, one step": {files: []string{titanOneMesh + strings.SplitAfter(titanSteps, "\n")[0], titanFile}, err: "has no step but the first, which compiles and waits for data; give a log of more steps"},
		"torchtitan, other ranks": {files: []string{titanOneMesh + titanSteps, titanFile + "[parallelism.x]\n", "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 8192\n[parallelism]\ndata_parallel_shard_degree = 32\n"},
			err: "leave one of them out"},
	} {
		t.Run(name, func(t *testing.T) {
			var jobs []*launch.Job
			var err error
			for i, text := range c.files {
				var j *launch.Job
				if j, err = launch.Read(string(rune('a'+i)), []byte(text)); err != nil {
					break
				}
				jobs = append(jobs, j)
			}
			var got []byte
			if err == nil {
				got, err = launch.Runs(jobs)
			}
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			for _, w := range c.want {
				require.Contains(t, string(got), w)
			}
			d, err := yamlx.Parse("x", got)
			require.NoError(t, err)
			list, err := runs.Decode(d)
			require.NoError(t, err, string(got))
			require.NoError(t, list[0].Err, string(got))
		})
	}
}
