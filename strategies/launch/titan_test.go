package launch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/launch"
)

// predictable holds that a job that was read is one, on so many GPUs where it says no number itself.
func predictable(t *testing.T, text []byte, gpus int) {
	t.Helper()
	if gpus > 0 && !strings.Contains(string(text), "\ngpus: ") {
		text = fmt.Appendf(text, "\ngpus: %d", gpus)
	}
	d, err := yamlx.Parse("x", text)
	require.NoError(t, err)
	job, err := strategies.Decode(d, d.Root)
	require.NoError(t, err, string(text))
	_, err = estimate.Estimate(job, estimate.Options{})
	require.NoError(t, err, string(text))
}

// TestTitanKeys: what a configuration of torchtitan says, by what becomes of it: a key, a note, a
// word without a key, or nothing.
func TestTitanKeys(t *testing.T) {
	const pipeline = "[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = 'Interleaved1F1B'\n"
	for text, want := range map[string]string{
		"[optimizer]\nname = 'AdamW'\nimplementation = 'foreach'":                                                        "optimizer: adamw-foreach # optimizer.implementation\n",
		"[optimizer]\nimplementation = 'for-loop'":                                                                       "optimizer: adamw # optimizer.implementation\n",
		"[optimizer]\nfused = true":                                                                                      "optimizer: adamw-fused # optimizer.fused\n",
		"[optimizer]\nimplementation = 'fused_opt_states_bf16'":                                                          "# Not taken over: optimizer.implementation fused_opt_states_bf16: which is not known; give train.optimizer\n",
		"[optimizer]\nname = 'Muon'":                                                                                     "# Not taken over: optimizer.name Muon: AdamW",
		pipeline:                                                                                                         "virtual_stages: 2 # without pipeline_parallel_layers_per_stage\n",
		pipeline + "pipeline_parallel_layers_per_stage = 2":                                                              "virtual_stages: 4 # parallelism.pipeline_parallel_layers_per_stage, of 32 layers\n",
		pipeline + "pipeline_parallel_layers_per_stage = 5":                                                              "# plan.virtual_stages: parallelism.pipeline_parallel_layers_per_stage: 32 layers make 7 stages of 5, no multiple of the pipeline's 4 ranks: give the key\n",
		strings.Replace(pipeline, "Interleaved1F1B", "1F1B", 1):                                                          "schedule: 1f1b # parallelism.pipeline_parallel_schedule\n",
		strings.Replace(pipeline, "Interleaved1F1B", "PipelineScheduleMulti", 1):                                         "# Not taken over: parallelism.pipeline_parallel_schedule PipelineScheduleMulti: which is not known; give plan.schedule\n",
		strings.Replace(pipeline, "Interleaved1F1B", "DualPipeV", 1):                                                     "schedule: dualpipe-v # parallelism.pipeline_parallel_schedule\n  virtual_stages: 2 # without",
		strings.Replace(pipeline, "Interleaved1F1B", "loopedbfs", 1):                                                     "schedule: looped-bfs # parallelism.pipeline_parallel_schedule\n  virtual_stages: 2 # without",
		"[training]\ndtype = 'bfloat16'":                                                                                 "dtypes:\n    weights: bf16 # training.dtype\n    gradients: bf16 # training.dtype\n    moments: bf16 # training.dtype\n",
		"[training]\ndtype = 'float32'":                                                                                  "recompute: full # activation_checkpoint.mode\n\n",
		pipeline + "pipeline_parallel_first_stage_less_layers = 0":                                                       "# Not taken over: parallelism.pipeline_parallel_first_stage_less_layers 0: give plan.stage_layers\n",
		"[parallelism]\npipeline_parallel_first_stage_less_layers = 0":                                                   "",
		"[parallelism]\ntensor_parallel_degree = 2\ndisable_loss_parallel = true":                                        "loss_parallel: false # parallelism.disable_loss_parallel\n",
		"[training]\ntensor_parallel_degree = 2\ndisable_loss_parallel = false":                                          "tp: 2 # training.tensor_parallel_degree\n",
		"[parallelism]\ndisable_loss_parallel = true":                                                                    "",
		"[experimental]\ncontext_parallel_degree = 2\ncontext_parallel_rotate_method = 'alltoall'":                       "# Not taken over: experimental.context_parallel_rotate_method alltoall: keys and values",
		"[parallelism]\ncontext_parallel_degree = 2\ncontext_parallel_rotate_method = 'allgather'":                       "cp: 2 # parallelism.context_parallel_degree\n",
		"[compile]\nenable = true\ncomponents = ['model']":                                                               "# Not taken over: compile.components [model]: the loss is taken to be compiled",
		"[compile]\nenable = true\ncomponents = ['loss']":                                                                "fused_cross_entropy: true # compile.components\n",
		"[compile]\nenable = true\ncomponents = []":                                                                      "recipe: torchtitan-eager # compile.components\n",
		"[compile]\nenable = true\ncomponents = ['model', 'loss']":                                                       "recipe: torchtitan # compile.enable\n",
		"[float8]\nenable_float8_linear = true":                                                                          "gather: bf16 # without enable_fsdp_float8_all_gather\n",
		"[float8]\nenable_float8_linear = true\nenable_fsdp_float8_all_gather = true":                                    "precision: fp8 # float8.enable_float8_linear\n",
		pipeline + "pipeline_parallel_layers_per_stage = 3":                                                              "virtual_stages: 3 # parallelism.pipeline_parallel_layers_per_stage, of 32 layers\n",
		"[float8]\nenable_float8_linear = true\nrecipe_name = 'rowwise'":                                                 "precision: fp8-rowwise # float8.recipe_name\n",
		"[float8]\nenable_float8_linear = true\nrecipe_name = 'rowwise_with_gw_hp'":                                      "# Not taken over: float8.recipe_name rowwise_with_gw_hp: one scale",
		"[quantize.linear.float8]\nrecipe_name = 'rowwise'\nunheard = 1":                                                 "",
		"[fault_tolerance]\nenable = true\nreplica_id = 1":                                                               "# Not taken over: fault_tolerance.enable true: the job is taken to be one group of replicas",
		"[fault_tolerance]\nenable = true\nsemi_sync_method = 'diloco'\nsync_steps = 20":                                 "# Not taken over: fault_tolerance.semi_sync_method diloco: groups of replicas are brought together every so many",
		"[fault_tolerance]\nenable = true\nprocess_group = 'gloo'":                                                       "# Not taken over: fault_tolerance.process_group gloo: by which",
		"[fault_tolerance]\nenable = false\nprocess_group = 'gloo'\nsemi_sync_method = 'diloco'":                         "",
		"[parallelism]\nunheard = 1\n[unknown]\nkey = 2\n[metrics]\nlog_freq = 10":                                       "# Without a key: parallelism.unheard unknown.key\n",
		"[parallelism]\ndata_parallel_replicate_degree = 2\ntensor_parallel_degree = 8\npipeline_parallel_degree = 2":    "# Not taken over: parallelism.data_parallel_replicate_degree 2: give plan.shard_degree, the GPUs over 2 replicas × tp 8 × pp 2 = 32\n",
		"[parallelism]\ndata_parallel_replicate_degree = 2":                                                              "# Not taken over: parallelism.data_parallel_replicate_degree 2: give plan.shard_degree, the GPUs over 2\n",
		"[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\ncontext_parallel_degree = 2": "shard_degree: 8 # parallelism.data_parallel_shard_degree\n",
		"[parallelism]\ndata_parallel_shard_degree = 4\ntensor_parallel_degree = 8":                                      "gpus: 32 # parallelism.data_parallel_shard_degree times the other degrees\n",
		"[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 1":                              "data_parallel: ddp # parallelism.data_parallel_replicate_degree, parallelism.data_parallel_shard_degree\n",
	} {
		training, text := "[training]\nlocal_batch_size = 8\nseq_len = 8192\n", text
		if more, ok := strings.CutPrefix(text, "[training]\n"); ok {
			training, text = training+more+"\n", ""
		}
		j, err := launch.Read("x", []byte("[model]\nname = 'llama3'\nflavor = '8B'\n"+training+"[activation_checkpoint]\nmode = 'full'\n"+text))
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got)+"\n", want, text)
		require.Equal(t, strings.HasPrefix(want, "# Not"), len(j.Notes) > 0, "%s: %s", text, j.Notes)
		require.Equal(t, strings.HasPrefix(want, "# Without"), len(j.Ignored) > 0, "%s: %s", text, j.Ignored)
		predictable(t, got, 32)
	}
}

// TestTitanDefaults: what torchtitan makes of what a configuration leaves out.
func TestTitanDefaults(t *testing.T) {
	for text, want := range map[string]string{
		"[training]\nsteps = 10": "sequence_length: 2048 # default of training.seq_len\n  micro_batch: 8 # default of training.local_batch_size\n  grad_accumulation: 1 # without training.global_batch_size\n",
		"[training]\nglobal_batch_size = 512\n[parallelism]\npipeline_parallel_degree = 2": "micro_batch: 1 # default of pipeline_parallel_microbatch_size\n  global_batch: 512 # training.global_batch_size\n",
	} {
		j, err := launch.Read("x", []byte("[model]\nname = 'llama3'\nflavor = '8B'\n[activation_checkpoint]\nmode = 'full'\n"+text))
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got)+"\n", want, text)
		predictable(t, got, 8)
	}
}

// TestTitanNumbers: counts that torchtitan does not start with, and those that -1 leaves open.
func TestTitanNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"local_batch_size = 0":                       "x:5:1: training.local_batch_size: 0; give a whole number from 1 on",
		"local_batch_size = -1":                      "x:5:1: training.local_batch_size: -1; give a whole number from 1 on",
		"batch_size = 1.5":                           "x:5:1: training.batch_size: 1.5; give a whole number from 1 on",
		"seq_len = -8192":                            "x:5:1: training.seq_len: -8192; give a whole number from 1 on",
		"global_batch_size = 0":                      "x:5:1: training.global_batch_size: 0; give a whole number from 1 on, or -1",
		"global_batch_size = -1":                     "",
		"data_parallel_shard_degree = -1":            "",
		"data_parallel_shard_degree = 0":             "x:5:1: training.data_parallel_shard_degree: 0; give a whole number from 1 on, or -1",
		"data_parallel_replicate_degree = -1":        "x:5:1: training.data_parallel_replicate_degree: -1; give a whole number from 1 on",
		"tensor_parallel_degree = 0":                 "x:5:1: training.tensor_parallel_degree: 0; give a whole number from 1 on",
		"[parallelism]\nexpert_parallel_degree = -2": "x:6:1: parallelism.expert_parallel_degree: -2; give a whole number from 1 on",
		"[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_microbatch_size = 0\n[training]\nlocal_batch_size = 4": "x:6:1: parallelism.pipeline_parallel_microbatch_size: 0; give a whole number from 1 on",
	} {
		head := "[model]\nname = 'llama3'\nflavor = '8B'\n"
		if !strings.Contains(text, "[training]") {
			head += "[training]\n"
		}
		_, err := launch.Read("x", []byte(head+text))
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.EqualError(t, err, want)
	}
}

// TestTitanConverters: what makes layers multiply in 8 bits, and what they gather in.
func TestTitanConverters(t *testing.T) {
	for converters, want := range map[string][]string{
		"['float8']":                 {"precision: fp8 # model.converters\n", "gather: bf16 # without enable_fsdp_float8_all_gather\n"},
		"['quantize.linear.float8']": {"precision: fp8 # model.converters\n", "gather: bf16 # without enable_fsdp_float8_all_gather\n"},
		"['quantize.linear.mx']":     {"# Not taken over: model.converters quantize.linear.mx: which dtypes it multiplies and gathers in; give train.precision, train.dtypes.gather\n"},
		"[]":                         {"recompute: full # activation_checkpoint.mode\n"},
	} {
		j, err := launch.Read("x", []byte("[model]\nname = 'llama3'\nflavor = '8B'\nconverters = "+converters+"\n[training]\nlocal_batch_size = 8\nseq_len = 8192\n[activation_checkpoint]\nmode = 'full'\n"))
		require.NoError(t, err, converters)
		got, err := j.YAML()
		require.NoError(t, err)
		for _, w := range want {
			require.Contains(t, string(got)+"\n", w, converters)
		}
		predictable(t, got, 8)
	}
}

// TestTitanScript: what starts torchtitan beside its configuration.
func TestTitanScript(t *testing.T) {
	const config = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n[activation_checkpoint]\nmode = 'full'\n"
	for script, want := range map[string][]string{
		"NGPU=4 LOG_RANK=0 CONFIG_FILE=./llama3_8b.toml ./run_train.sh --training.seq_len=4096 --parallelism.tensor_parallel_degree 2 --compile.enable": {"gpus: 4 # NGPU\n", "sequence_length: 4096 # --training.seq_len\n", "micro_batch: 2 # training.local_batch_size\n",
			"tp: 2 # --parallelism.tensor_parallel_degree\n", "recipe: torchtitan # --compile.enable\n"},
		"torchrun --nproc_per_node=8 --nnodes 2 -m torchtitan.train --job.config_file x.toml --model.flavor 70B": {"gpus: 16 # --nproc-per-node, --nnodes\n", "model: llama3-70b # model.name, --model.flavor\n", "sequence_length: 8192 # training.seq_len\n"},
	} {
		for _, files := range [][]string{{script, config}, {config, script}} {
			got := initial(t, files...)
			for _, w := range want {
				require.Contains(t, got, w, script)
			}
			require.NotContains(t, got, "name it by")
			predictable(t, []byte(got), 0)
		}
	}
	require.Contains(t, initial(t, "NGPU=4 CONFIG_FILE=./a.toml ./run_train.sh"), "# model: run_train.sh: ./a.toml has it: name it by --from, too\n")
	_, err := launch.Read("x", []byte("perfplan: job/v1\nmodel: gpt2\n"))
	require.EqualError(t, err, "x: is a job of perfplan already; give it to perfplan estimate, or a file that another program reads")
}

// TestTitanAlone: a command that starts torchtitan without the TOML of its configuration.
func TestTitanAlone(t *testing.T) {
	const (
		graphs = "# runtime.cuda_graphs: without --training.disable_cuda_graphs: releases from 2026-08 on replay the passes: give the key, full there\n"
		eager  = " --training.disable_cuda_graphs"
		python = ", a function in Python that is not read, has it: give the key\n"
	)
	for script, want := range map[string][]string{
		"NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --parallelism.tensor_parallel_degree 2 --compile.enable --training.local_batch_size 2": {"model: llama3-8b # model.name of llama3_8b, model.flavor of llama3_8b\n", "gpus: 8 # NGPU\n", graphs,
			"recipe: torchtitan # --compile.enable\n", "tp: 2 # --parallelism.tensor_parallel_degree\n", "sequence_length: 8192 # training.seq_len of llama3_8b\n", "micro_batch: 2 # --training.local_batch_size\n", "grad_accumulation: 1 # without training.global_batch_size\n", "recompute: selective # activation_checkpoint.mode of llama3_8b\n"},
		"torchtitan_train --module torchtitan.models.llama3 --config llama3_70b activation-checkpoint:none":                         {"model: llama3-70b #", "tp: 8 # parallelism.tensor_parallel_degree of llama3_70b\n", "recompute: none # --activation_checkpoint.mode\n", "recipe: torchtitan-eager # without compile.enable\n"},
		"MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --loss.num_chunks 4":                                                         {"loss_chunks: 4 # --loss.num_chunks\n"},
		"MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.max_context_length 4096 --parallelism.tensor_parallel_degree $TP": {"micro_batch: 2 # training.num_tokens_per_microbatch_per_dp_rank of llama3_8b, --training.max_context_length\n", "# plan.tp: --parallelism.tensor_parallel_degree: line 1 takes $TP, which the file does not set: give the key\n"},
		"MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.num_tokens_per_microbatch_per_dp_rank 10000":                      {"# train.micro_batch: training.num_tokens_per_microbatch_per_dp_rank, training.max_context_length: 10000 tokens are no whole number of sequences of 8192: give the key\n"},
		"MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.num_tokens_per_train_step 1048576 --compile.enable --compile.enable_async_tensor_parallel --parallelism.tensor_parallel_degree 2" + eager: {
			"global_batch: 128 # --training.num_tokens_per_train_step, training.max_context_length of llama3_8b\n", "tp_overlap: true # --compile.enable_async_tensor_parallel\n"},
		"NGPU=64 MODULE=deepseek_v3 CONFIG=deepseek_v3_16b ./run_train.sh --compile.components model loss --parallelism.pipeline_parallel_degree 2 --parallelism.num_pp_microbatches 8 --training.num_tokens_per_microbatch_per_dp_rank 4096" + eager: {
			"model: deepseek-v2-lite #", "recipe: torchtitan # compile.enable of deepseek_v3_16b\n", "ep: 8 # parallelism.expert_parallel_degree of deepseek_v3_16b\n", "micro_batch: 1 # --training.num_tokens", "grad_accumulation: 8 # --parallelism.num_pp_microbatches\n"},
		"MODULE=deepseek_v3 CONFIG=deepseek_v3_16b ./run_train.sh": {"recipe: torchtitan-eager # compile.components of deepseek_v3_16b\n", "fused_cross_entropy: true # compile.components of deepseek_v3_16b\n"},
		"NGPU=8 MODULE=qwen3 CONFIG=qwen3_30b_a3b ./run_train.sh":  {"# Not taken over: without attn_backend: releases from 2026-06 on attend within documents: give runtime.attention: flex and train.document_length"},
		"NGPU=8 MODULE=gpt_oss CONFIG=gpt_oss_20b ./run_train.sh":  {"attend within documents: give runtime.attention: flash-attn and"},
		"MODULE=llama3 CONFIG=llama3_8b_mxfp8 ./run_train.sh --training.seq_len 4096": {"model: llama3-8b # model.name of llama3_8b_mxfp8, model.flavor of llama3_8b_mxfp8\n", "sequence_length: 4096 # --training.seq_len\n", "# runtime.recipe: run_train.sh: llama3_8b_mxfp8" + python,
			"# plan.tp: run_train.sh: llama3_8b_mxfp8" + python, "# train.micro_batch: run_train.sh: llama3_8b_mxfp8" + python, "# train.recompute: run_train.sh: llama3_8b_mxfp8" + python, "# train.precision: run_train.sh: llama3_8b_mxfp8" + python},
		"MODULE=mine.llama3 CONFIG=llama3_8b ./run_train.sh --training.seq_len 4096":                                          {"# model: run_train.sh: llama3_8b" + python, "# train.micro_batch: run_train.sh: llama3_8b" + python},
		"torchrun --nproc_per_node 8 -m torchtitan.train --module ${MODULE} --config ${CONFIG} $@":                            {"# model: -m torchtitan.train: $CONFIG" + python},
		"NGPU=4 CONFIG_FILE=./a.toml ./run_train.sh --parallelism.context_parallel_degree=2":                                  {"cp: 2 # --parallelism.context_parallel_degree\n", "# plan.tp: run_train.sh: ./a.toml has it: name it by --from, too\n", "# train.sequence_length: run_train.sh: ./a.toml has it: name it by --from, too\n"},
		"if [ $1 = a ]; then B=2; else B=4; fi\nMODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.local_batch_size $B": {"# train.micro_batch: --training.local_batch_size: 2 or 4:"},
	} {
		got := initial(t, script)
		for _, w := range want {
			require.Contains(t, got+"\n", w, script)
		}
		if strings.Contains(script, eager) {
			require.NotContains(t, got, "cuda_graphs", script)
			predictable(t, []byte(got), 0)
		}
	}
	_, err := launch.Read("x", []byte("MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.seq_len 0"))
	require.EqualError(t, err, "x:1:1: training.seq_len: 0; give a whole number from 1 on")
	_, err = launch.Read("config_registry.py", []byte("def small() -> Trainer.Config:\n    return Trainer.Config()\n"))
	require.ErrorContains(t, err, "config_registry.py: makes configurations of torchtitan in Python, which is not run; give the command that takes one, as MODULE=llama3")
}
