package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRefused: what no estimate has together, and what is taken instead, which one has.
func TestRefused(t *testing.T) {
	const (
		titan = "[model]\nname = 'llama3'\nflavor = '8B'\n[activation_checkpoint]\nmode = 'full'\n[training]\nenable_cpu_offload = true\n[parallelism]\n"
		qlora = "base_model: Qwen/Qwen2.5-7B\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true\nmicro_batch_size: 1\nbf16: true\nfsdp_version: 2\nfsdp_config: {offload_params: true, reshard_after_forward: true}"
		zero3 = `{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}}`
	)
	for _, c := range []struct {
		files []string
		want  []string
	}{
		{[]string{titan + "pipeline_parallel_degree = 2"}, []string{"# Not taken over: training.enable_cpu_offload beside a pipeline: what its stages do with parameters of the host is not known; all is taken to stay on the GPU"}},
		{[]string{titan + "data_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1"}, []string{"# Not taken over: training.enable_cpu_offload beside parallelism.data_parallel_replicate_degree, parallelism.data_parallel_shard_degree: replicas under DDP keep all; all is taken"}},
		{[]string{titan}, []string{"offload: parameters # training.enable_cpu_offload"}},
		{[]string{qlora}, []string{"precision: nf4-frozen # load_in_4bit", "clip_gradients: true", "data_parallel: fsdp2",
			"# Not taken over: fsdp_config.offload_params beside adapters: what of frozen weights is left to the host is not known; all is taken to stay on the GPU"}},
		{[]string{"model_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: lora\ncutoff_len: 512\nbf16: true\ndeepspeed: z3.json", zero3}, []string{"data_parallel: zero3", "# Not taken over: zero_optimization.offload_param beside adapters: what of"}},
		{[]string{"base_model: Qwen/Qwen2.5-1.5B\noptimizer: muon\nmicro_batch_size: 1"}, []string{"optimizer: muon # optimizer\n"}},
		{[]string{"base_model: Qwen/Qwen2.5-1.5B\noptimizer: muon\nmicro_batch_size: 1\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}"}, []string{"optimizer: muon # optimizer\n", "data_parallel: fsdp2"}},
		{[]string{"model_name_or_path: Qwen/Qwen2.5-1.5B\nfinetuning_type: full\nbf16: true\nuse_muon: true\ncutoff_len: 512"}, []string{"optimizer: muon # use_muon\n"}},
		{[]string{"swift sft --model Qwen/Qwen2.5-1.5B --torch_dtype bfloat16 --max_length 512 --gradient_accumulation_steps 2 --optimizer muon --tuner_type full"}, []string{"optimizer: muon # --optimizer\n"}},
		{[]string{"swift sft --model Qwen/Qwen2.5-1.5B --torch_dtype bfloat16 --max_length 512 --gradient_accumulation_steps 2 --optimizer muon --tuner_type lora"}, []string{"# Not taken over: --optimizer muon beside adapters: which matrices a rank updates is not known; AdamW is taken"}},
		{[]string{"model_name_or_path: Qwen/Qwen2.5-1.5B\nfinetuning_type: full\nbf16: true\nuse_muon: true\ncutoff_len: 512", "distributed_type: FSDP\nfsdp_config: {fsdp_version: 1, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_backward_prefetch: BACKWARD_PRE}"},
			[]string{"# Not taken over: use_muon muon beside fsdp_config.fsdp_version, FSDP of version 1: which"}},
		{[]string{"model_name_or_path: Qwen/Qwen2.5-1.5B\nfinetuning_type: full\nbf16: true\nuse_muon: true\ncutoff_len: 512\ndeepspeed: z.json", zero3}, []string{"# Not taken over: use_muon muon: AdamW with states in fp32 is taken"}},
		{[]string{"base_model: Qwen/Qwen2.5-1.5B\nadapter: lora\nlora_r: 8\nmicro_batch_size: 1\nlora_target_modules: [q_proj, v_proj, fc1, c_attn]"}, []string{"targets: [q, v] # lora_target_modules\n", "# Not taken over: lora_target_modules fc1: qwen2.5-1.5b has no such module that adapters are known beside; left out, as PEFT", "# Not taken over: lora_target_modules c_attn: qwen2.5-1.5b has"}},
		{[]string{"base_model: Qwen/Qwen3-30B-A3B\nadapter: lora\nlora_r: 8\nmicro_batch_size: 1\nlora_target_modules: [self_attn.q_proj, up_proj, mlp.k_proj]"}, []string{"targets: [q] # lora_target_modules\n", "# Not taken over: lora_target_modules up_proj: qwen3-30b-a3b has no such module"}},
		{[]string{"base_model: google/gemma-4-31B\nadapter: lora\nlora_r: 8\nmicro_batch_size: 1\nattn_implementation: flash_attention_2\nliger_rms_norm: true\nliger_glu_activation: true\nliger_rope: true\nlora_target_modules: 'model.layers.[\\d]+.(mlp|self_attn).(up|q|v)_proj'"},
			[]string{"targets: [up, q, v] # lora_target_modules\n", "attention: sdpa # attn_implementation\n", "# Not taken over: attn_implementation: heads of gemma4-31b have up to 512 elements, and FlashAttention takes 256; sdpa is taken in all layers", "the model casts its norms' weights to fp32, and what Liger-Kernel"}},
		{[]string{"base_model: Qwen/Qwen2.5-1.5B\nadapter: lora\nlora_r: 8\nmicro_batch_size: 1\nlora_target_modules: '.*\\.(q|up)_proj'"}, []string{"targets: [up, q] # lora_target_modules\n"}},
	} {
		got := initial(t, c.files...)
		for _, w := range c.want {
			require.Contains(t, got, w)
		}
		predictable(t, []byte(got), 8)
	}
}

// TestTargets: names and expressions of a model's modules, in the catalog or not, and those that are
// not understood.
func TestTargets(t *testing.T) {
	const layers = `model.language_model.layers.[\d]+.(_checkpoint_wrapped_module.)?`
	for name, want := range map[string][2]string{
		"q_proj":                     {"targets: [q] #", "targets: [q] #"},
		"self_attn.q_proj":           {"targets: [q] #", "targets: [q] #"},
		"mlp.q_proj":                 {"# train.lora.targets: lora_target_modules: none", "targets: [q] #"},
		layers + `(mlp).(up|q)_proj`: {"targets: [up] #", "targets: [q, up] #"},
		`.*\.mlp\.(up|down)_proj`:    {"targets: [down, up] #", "targets: [down, up] #"},
		`.*\.layers\.(3|7)\.self_attn\.q_proj|.*\.mlp\.up_proj`: {"lora_target_modules .*\\.layers\\.(3|7)\\.self_attn\\.q_proj|.*\\.mlp\\.up_proj: which projections that is", "none of them is known"},
		`.*(q_proj`: {"none of them is known", "none of them is known"},
	} {
		for i, model := range []string{"Qwen/Qwen2.5-1.5B", "a/Own-7B"} {
			got := initial(t, "base_model: "+model+"\nadapter: lora\nlora_r: 8\nlora_target_modules: '"+name+"'")
			require.Contains(t, got, want[i], name)
		}
	}
}

// TestFrozenParts: which parts of a model with images are not trained, by each program's names and
// defaults, which a job says beside its images alone.
func TestFrozenParts(t *testing.T) {
	const (
		vision = "Qwen/Qwen2.5-VL-7B-Instruct"
		both   = "beside train.images give train.images.frozen: [encoder, projector]"
		swift  = "swift sft --torch_dtype bfloat16 --max_length 512 --model "
		axo    = "micro_batch_size: 1\nbase_model: "
	)
	for text, want := range map[string]string{
		swift + vision + " --tuner_type full":                                             "# Not taken over: default of --freeze_vit, default of --freeze_aligner: " + both,
		swift + vision + " --tuner_type full --freeze_aligner false":                      "# Not taken over: default of --freeze_vit: beside train.images give train.images.frozen: [encoder]",
		swift + vision + " --tuner_type lora --freeze_vit false":                          "# Not taken over: --freeze_vit false: the encoder is taken to be frozen, as beside adapters",
		swift + vision + " --tuner_type lora":                                             "",
		swift + "Qwen/Qwen2.5-7B --tuner_type full":                                       "",
		swift + vision + " --tuner_type full --freeze_llm true":                           "# Not taken over: --freeze_llm true: all parameters are taken to be trained",
		"finetuning_type: full\nfreeze_vision_tower: true\nmodel_name_or_path: " + vision: "# Not taken over: freeze_vision_tower, default of freeze_multi_modal_projector: " + both,
		axo + vision + "\nfreeze_mm_modules: true":                                        "# Not taken over: freeze_mm_modules: " + both,
		axo + vision: "",
		auto("model: {pretrained_model_name_or_path: " + vision + "}\nfreeze_config: {freeze_language_model: false}"): "# Not taken over: freeze_config.freeze_vision_tower: beside train.images give train.images.frozen: [encoder]",
		auto("model: {pretrained_model_name_or_path: " + vision + "}\nfreeze_config: {freeze_language_model: true}"):  "# Not taken over: freeze_config.freeze_language_model true: all parameters",
	} {
		got := initial(t, text)
		require.Contains(t, got, want, text)
		if want == "" {
			require.NotContains(t, got, "frozen:", text)
		}
		require.NotContains(t, got, "Without a key", text)
	}
	require.Contains(t, initial(t, "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, seq_parallel_communication_data_type: bf16}"), "# Not taken over: deepspeed_config.seq_parallel_communication_data_type bf16: accelerate hands it on to nobody")
}
