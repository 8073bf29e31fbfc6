package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/launch"
)

// auto is a configuration of NeMo AutoModel with more lines.
func auto(more string) string {
	return "step_scheduler: {global_batch_size: 128, local_batch_size: 8}\n" + more
}

// TestAutoModel: what configurations of NeMo AutoModel say, what they leave open, and what they
// have that no key stands for.
func TestAutoModel(t *testing.T) {
	const experts = "model: {config: {pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B}, backend: {enable_deepep: true, attn: sdpa}}\n"
	plain := "model: {pretrained_model_name_or_path: meta-llama/Llama-3.2-1B}\n"
	for text, want := range map[string][]string{
		plain: {"recipe: automodel", "data_parallel: fsdp2", "# train.sequence_length: dataset: batches are as long as their longest text", "recompute: none", "clip_gradients: true",
			"precision: bf16-pure # weights are taken to be stored", "reduce: fp32"},
		plain + "packed_sequence: {packed_sequence_size: 0}\ndataset: {seq_length: 512, padding: max_length}": {"sequence_length: 512 # dataset.seq_length"},
		plain + "dataset: {seq_length: 512}":                                                                                                                          {"# train.sequence_length: dataset.seq_length: texts are cut there"},
		plain + "recipe: BenchmarkingRecipeForNextTokenPrediction":                                                                                                    {"clip_gradients: false # recipe"},
		"model: {pretrained_model_name_or_path: x/y, torch_dtype: float32, attn_implementation: odd}":                                                                 {"# model: model.pretrained_model_name_or_path: x/y is not in the catalog", "precision: bf16-mixed", "attn_implementation odd: give runtime.attention"},
		"model: {config: {hidden_size: 64}}\ndistributed: {ep_size: 8, pp_size: 2, pipeline: {pp_schedule: Interleaved1F1B, layers_per_stage: 2}}":                    {"# model: model.config: what it builds is not in the catalog", "recipe: automodel-moe", "# plan.virtual_stages: distributed.pipeline.layers_per_stage: the model's layers"},
		plain + "distributed: {strategy: megatron_fsdp}":                                                                                                              {"# plan.data_parallel: distributed.strategy: megatron_fsdp has no recipe"},
		plain + "distributed: {dp_size: 2, tp_size: 4, pp_size: 4}":                                                                                                   {"gpus: 32 # distributed.dp_size times the other sizes\n"},
		plain + "distributed: {dp_replicate_size: 2, dp_size: none}":                                                                                                  {"# plan.shard_degree: distributed.dp_replicate_size: the data-parallel ranks over 2"},
		plain + "distributed: {pp_size: 2}\nautopipeline: {pp_schedule: 1f1b, pp_microbatch_size: 4}":                                                                 {"schedule: 1f1b # autopipeline.pp_schedule", "drain_every: 2", "micro_batch: 4 # autopipeline"},
		plain + "distributed: {pp_size: 2, pipeline: {pp_schedule: interleaved1f1b}}":                                                                                 {"virtual_stages: 2 # without distributed.pipeline.layers_per_stage", "drain_every: 8", "micro_batch: 1 # default of"},
		plain + "distributed: {pp_size: 3}":                                                                                                                           {"pp: 3", "schedule: 1f1b"},
		plain + "distributed: {pp_size: 2, pipeline: {pp_schedule: PipelineScheduleMulti}}":                                                                           {"# plan.schedule: distributed.pipeline.pp_schedule: PipelineScheduleMulti is not known"},
		plain + "fp8: {enabled: true}\ncompile: {enabled: false}":                                                                                                     {"# Not taken over: fp8.enabled true: products are taken to be of 16 bits"},
		plain + "peft: {match_all_linear: true}":                                                                                                                      {"rank: 8 # default of peft.dim"},
		plain + "peft: {target_modules: ['*.odd']}\nquantization: {load_in_4bit: true}":                                                                               {"peft.target_modules *.odd: which projections that is", "# train.lora.targets: peft.target_modules: none of them", "precision: nf4-frozen"},
		"model: {pretrained_model_name_or_path: google/gemma-2b, use_liger_kernel: false}\npeft: {dim: 8, use_triton: true}":                                          {"liger_kernels: false # model.use_liger_kernel", "triton_adapters: true # peft.use_triton"},
		plain + "optimizer: {_target_: dion.Muon}":                                                                                                                    {"optimizer dion.Muon: Adam with states"},
		experts + "distributed: {ep_size: 8, activation_checkpointing: selective, moe: {wrap_outer_model: false}}":                                                    {"token_dispatcher: deepep # model.backend.enable_deepep", "# runtime.release: model.backend.enable_deepep: an AutoModel of 2026-02 or before", "model.backend.attn sdpa: attention is taken to be", "recompute: selective", "reshard_after_forward: false # default of distributed.moe"},
		"model: {config: {pretrained_model_name_or_path: nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16}, num_nextn_predict_layers: 2, mtp_use_repeated_layer: false}": {"mtp_layers: 2 # model.num_nextn_predict_layers", "# Not taken over: model.mtp_use_repeated_layer false: the model's modules are taken as the catalog has them"},
		"model: {config: {pretrained_model_name_or_path: nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16}, num_nextn_predict_layers: 0}":                                {"recipe: automodel-moe"},
		"model: {pretrained_model_name_or_path: meta-llama/Llama-3.2-1B, num_nextn_predict_layers: 1}":                                                                {"# Not taken over: model.num_nextn_predict_layers 1: the model is taken as the catalog has it"},
		experts + "loss_fn: {_target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy}":                                                                  {"loss_fn.fp32_upcast true: logits are taken"},
	} {
		j, err := launch.Read("a.yaml", []byte(auto(text)))
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		for _, w := range want {
			require.Contains(t, string(got), w, text)
		}
	}
}

// TestUncut: adapters on tensor ranks, which estimate refuses, are noted, and nothing else is.
func TestUncut(t *testing.T) {
	const (
		plain = "model: {pretrained_model_name_or_path: meta-llama/Llama-3.2-1B}\n"
		ranks = "distributed: {tp_size: 2}\n"
		lora  = "peft: {dim: 8, match_all_linear: true}\n"
		axo   = "base_model: meta-llama/Llama-3.2-1B\ntensor_parallel_size: 2\n"
		uncut = " beside adapters: how recipe "
	)
	for text, want := range map[string]string{
		auto(plain + ranks + lora):       "# Not taken over: distributed.tp_size 2 beside adapters: how recipe automodel cuts them over tensor ranks is not known, and estimate refuses the two; set plan.tp to 1, or leave train.lora out",
		auto(plain + lora):               "",
		auto(plain + ranks):              "",
		axo + "adapter: lora\nlora_r: 8": "# Not taken over: tensor_parallel_size 2 beside adapters: how recipe hf-eager cuts them",
		axo + "lora_r: 8":                "",
	} {
		j, err := launch.Read("a.yaml", []byte(text))
		require.NoError(t, err, text)
		j, err = launch.Join([]*launch.Job{j})
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), want, text)
		if want == "" {
			require.NotContains(t, string(got), uncut, text)
			continue
		}
		d, err := yamlx.Parse("a.yaml", append(got, "\ngpus: 8"...))
		require.NoError(t, err)
		job, err := strategies.Decode(d, d.Root)
		if err == nil {
			_, err = estimate.Estimate(job, estimate.Options{})
		}
		require.ErrorContains(t, err, "cuts adapters over tensor ranks is not known", text)
	}
}

// TestAutoModelErrors: values that cannot be, at their place.
func TestAutoModelErrors(t *testing.T) {
	const plain = "model: {pretrained_model_name_or_path: meta-llama/Llama-3.2-1B}\n"
	for text, want := range map[string]string{
		"step_scheduler: {local_batch_size: 8}":                                                                  "a.yaml: is no configuration of NeMo AutoModel: it has no key model; give one that automodel starts a training of a language model with",
		auto(plain + "distributed: {tp_size: two}"):                                                              `a.yaml:3:24: distributed.tp_size: "two"; give a whole number from 1 on`,
		auto(plain + "peft: {dim: 0}"):                                                                           `a.yaml:3:13: peft.dim: "0"; give a whole number from 1 on`,
		auto(plain + "distributed: {pp_size: 2, pipeline: {pp_microbatch_size: 3}}"):                             "a.yaml:1:60: step_scheduler.local_batch_size: 8 is no multiple of distributed.pipeline.pp_microbatch_size, 3; give one",
		auto(plain + "distributed: {pp_size: 3, pipeline: {pp_schedule: interleaved1f1b, layers_per_stage: 2}}"): "a.yaml:3:86: distributed.pipeline.layers_per_stage: 2 makes 8 stages of 16 layers, no multiple of the pipeline's 3 ranks, which AutoModel refuses; give another, or round_virtual_stages_to_pp_multiple",
		auto(plain + "distributed: {pp_size: 4, pipeline: {pp_schedule: interleaved1f1b, layers_per_stage: 3, round_virtual_stages_to_pp_multiple: down}}"): "3 makes 4 stages of 16 layers, less than two for each of the pipeline's 4 ranks, which AutoModel refuses",
		auto(plain + "distributed: {pp_size: 2, pipeline: {layers_per_stage: 2}}"):                                                                          "2 makes 8 stages of 16 layers, more than one for each of the pipeline's 2 ranks, which AutoModel refuses",
		auto(plain + "distributed: 3"):                                                           "a.yaml:3:14: distributed: is no mapping; give its keys",
		auto(plain + "distributed: {reshard_after_forward: 2}"):                                  `a.yaml:3:38: distributed.reshard_after_forward: "2"; give true or false`,
		auto("model: {pretrained_model_name_or_path: google/gemma-2b, use_liger_kernel: maybe}"): `model.use_liger_kernel: "maybe"; give true or false`,
		auto(plain + "peft: {use_triton: maybe}"):                                                `a.yaml:3:20: peft.use_triton: "maybe"; give true or false`,
		auto(plain + "peft: {dropout: x}"):                                                       `a.yaml:3:17: peft.dropout: "x"; give a number`,
		auto(plain + "distributed: {tp_size: [2]}"):                                              `distributed.tp_size: "a list or mapping"; give a whole number from 1 on`,
		auto("model: ["): "",
	} {
		_, err := launch.Read("a.yaml", []byte(text))
		require.Error(t, err, text)
		if want != "" {
			require.Contains(t, err.Error(), want)
		}
	}
}
