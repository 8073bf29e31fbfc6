package launch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/launch"
)

// TestRows: what a configuration of NeMo or Bridge says is predicted as the measured run of
// the same job is, whose machine, release and environment no configuration has.
func TestRows(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing here starts anything that could race")
	}
	list, err := runs.Embedded(nil)
	require.NoError(t, err)
	for _, x := range []struct {
		file, id string
		set      map[string]string
	}{
		{"nemo.yaml", "dgxc25-gpt3-fp8-128", map[string]string{"runtime.attention": "flash-attn"}}, // NVTE_FUSED_ATTN=0
		{"nemo-llama.yaml", "nemo24-028", nil},
		{"nemo-old.yaml", "nemoci-2210-126m-tp1-pp1-16", nil},
		{"bridge.yaml", "bridge-080", nil},
		{"bridge-experts.yaml", "bridge-042", map[string]string{"hardware": "b200-sxm", "gpus": "256", "train.dtypes.gradients": "bf16", "train.dtypes.reduce": "bf16"}}, // grad_reduce_in_fp32 is off in the performance scripts
	} {
		t.Run(x.file, func(t *testing.T) {
			var run *runs.Run
			for i := range list {
				if list[i].ID == x.id {
					run = &list[i]
				}
			}
			require.NotNil(t, run)
			d, err := yamlx.Parse(x.file, written(t, x.file))
			require.NoError(t, err)
			set := map[string]string{"runtime.release": fmt.Sprintf("%q", run.Job.Runtime.Release)}
			for k, v := range x.set {
				set[k] = v
			}
			for k, v := range set {
				require.NoError(t, d.Set("--set", k, v, ""))
			}
			j, err := strategies.Decode(d, d.Root)
			require.NoError(t, err)
			j.Hardware = run.Job.Hardware
			got, err := estimate.Estimate(j, estimate.Options{})
			require.NoError(t, err)
			want, err := estimate.Estimate(run.Job, estimate.Options{})
			require.NoError(t, err)
			require.InEpsilon(t, float64(want.StepTime), float64(got.StepTime), 0.01)
		})
	}
}

// written is the job of a file of testdata.
func written(t *testing.T, name string) []byte {
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	j, err := launch.Read(name, text)
	require.NoError(t, err)
	out, err := j.YAML()
	require.NoError(t, err)
	return out
}

// TestNeMoErrors: bad values have the key and the place of the file, and what is no whole
// configuration is said to be none.
func TestNeMoErrors(t *testing.T) {
	for _, x := range []struct{ file, old, new, want string }{
		{"nemo.yaml", "num_layers: 96", "num_layers: many", `x:17:15: model.num_layers: "many"; give a whole number from 1 on`},
		{"nemo.yaml", "num_layers: 96", "num_layers: 0", `x:17:15: model.num_layers: "0"; give a whole number from 1 on`},
		{"nemo.yaml", "sequence_parallel: true", "sequence_parallel: 3", `x:24:22: model.sequence_parallel: "3"; give true or false`},
		{"nemo.yaml", "  hidden_size: 12288\n", "", "x: has no key model.hidden_size; give a configuration of a GPT of NeMo 1, as Hydra writes it in whole"},
		{"nemo.yaml", "trainer:", "trainer: {", "x:3:1: is not valid YAML"},
		{"bridge.yaml", "  num_layers: 80\n", "", "x: has no key model.num_layers; give the run_config.yaml that Megatron-Bridge writes beside a checkpoint, or a ConfigContainer's to_yaml"},
		{"bridge.yaml", "micro_batch_size: 1", "micro_batch_size: -1", `x:85:21: train.micro_batch_size: "-1"; give a whole number from 1 on`},
		{"bridge.yaml", "tp_comm_overlap: true", "tp_comm_overlap: maybe", `x:8:20: comm_overlap.tp_comm_overlap: "maybe"; give true or false`},
		{"bridge-experts.yaml", "bf16_with_mxfp8_mixed", "bf16_with_fp7_mixed", "x:5:18: mixed_precision: there is no bf16_with_fp7_mixed; give one of Megatron-Bridge's names, as in bf16_mixed or bf16_with_mxfp8_mixed"},
		{"bridge.yaml", "_target_: megatron.bridge.training.config.ConfigContainer", "_target_: nemo.collections.llm.api.pretrain",
			"x:2:11: _target_: nemo.collections.llm.api.pretrain: recipes of NeMo 2.0 leave the sizes of a model to Python; give the run_config.yaml of Megatron-Bridge, or a job with the model's name or config.json (perfplan init without --from)"},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", x.file))
		require.NoError(t, err)
		require.Contains(t, string(text), x.old)
		_, err = launch.Read("x", []byte(strings.Replace(string(text), x.old, x.new, 1)))
		require.Error(t, err, x.new)
		require.True(t, diag.IsInput(err), x.new)
		require.True(t, strings.HasPrefix(err.Error(), x.want), err.Error())
	}
}

// TestNeMoValues: keys that others, versions and defaults mean.
func TestNeMoValues(t *testing.T) {
	for _, x := range []struct{ file, old, new, want string }{
		{"nemo.yaml", "  num_nodes: 16\n", "", `# gpus: trainer.devices: the file does not say how many there are: give the key`},
		{"nemo.yaml", "micro_batch_size: 1\n", "micro_batch_size: ${oc.env:MBS}\n", "# train.micro_batch: model.micro_batch_size: line 10 takes ${oc.env:MBS}, which the file does not set: give the key"},
		{"nemo.yaml", "${.encoder_seq_length}", "${training.model.encoder_seq_length}", "max_position_embeddings: 2048 # model.max_position_embeddings"},
		{"nemo.yaml", "distributed_fused_adam", "fused_adam", "data_parallel: ddp # model.optim.name"},
		{"nemo.yaml", "distributed_fused_adam", "fused_adam", "overlap_grad_reduce: false # model.optim.name"},
		{"nemo.yaml", "distributed_fused_adam", "mcore_distributed_optim", "overlap_grad_reduce: false # default of model.optim.overlap_grad_sync"},
		{"nemo.yaml", "distributed_fused_adam", "lion", "# Not taken over: model.optim.name lion: Adam is taken"},
		{"nemo.yaml", "fp8_params: true", "fp8_params: false", "gather: bf16 # model.fp8_params"},
		{"nemo.yaml", "precision: bf16", "precision: 32", "precision: fp8-delayed # model.fp8"},
		{"nemo.yaml", "fp8_params: true", "fp8_params: true\n  make_vocab_size_divisible_by: 64", "vocab_multiple: 64 # model.make_vocab_size_divisible_by"},
		{"bridge.yaml", "make_vocab_size_divisible_by: 128", "make_vocab_size_divisible_by: 128\n  should_pad_vocab: false", "vocab_multiple: 1 # model.should_pad_vocab"},
		{"nemo.yaml", "fp8_params: true", "fp8_params: true\n  reduce_amax: False", "amax_reduction: none # model.reduce_amax"},
		{"nemo.yaml", "fp8_params: true", "fp8_params: true\n  tp_only_amax_red: True", "amax_reduction: tensor # model.tp_only_amax_red"},
		{"nemo.yaml", "gradient_accumulation_fusion: true", "gradient_accumulation_fusion: false", "gradient_fusion: false # model.gradient_accumulation_fusion"},
		{"bridge.yaml", "gradient_accumulation_fusion: true", "gradient_accumulation_fusion: false", "gradient_fusion: false # model.gradient_accumulation_fusion"},
		{"bridge.yaml", "gradient_accumulation_fusion: true", "softmax_type: learnable", "# Not taken over: model.softmax_type learnable"},
		{"nemo-llama.yaml", "fast-swiglu", "fast-geglu", "hidden_act: gelu # model.activation"},
		{"nemo-old.yaml", "  activations_checkpoint_granularity: null\n", "", "recompute: full # model.activations_checkpoint_method"},
		{"nemo-old.yaml", "megatron_amp_O2: true", "use_flash_attention: true", "attention: flash-attn # model.use_flash_attention"},
		{"nemo-old.yaml", "megatron_amp_O2: true", "fsdp: true", "# Not taken over: model.fsdp true"},
		{"bridge.yaml", "cuda_graph_impl: none", "cuda_graph_impl: local", "# Not taken over: model.cuda_graph_impl: which parts of a layer are replayed; give runtime.cuda_graphs"},
		{"bridge.yaml", "cuda_graph_impl: none\n  cuda_graph_scope: full", "cuda_graph_impl: transformer_engine\n  cuda_graph_scope: [attn, mlp]", "cuda_graphs: layers # model.cuda_graph_scope"},
		{"bridge.yaml", "cuda_graph_impl: none\n  cuda_graph_scope: full", "cuda_graph_impl: local\n  cuda_graph_scope: full_iteration", "cuda_graphs: full # model.cuda_graph_scope"},
		{"bridge.yaml", "check_for_nan_in_grad: false", "check_for_nan_in_grad: true", "recipe: megatron-script # ddp.check_for_nan_in_grad"},
		{"bridge.yaml", "manual_gc: true", "manual_gc: false", "nan_checks: false # ddp.check_for_nan_in_grad"},
		{"bridge.yaml", "cross_entropy_fusion_impl: te", "cross_entropy_fusion_impl: native", "cross_entropy_impl: native # model.cross_entropy_fusion_impl"},
		{"bridge.yaml", "cross_entropy_fusion_impl: te", "calculate_per_token_loss: false", "cross_entropy_impl: native # default of model.cross_entropy_fusion_impl"},
		{"bridge.yaml", "sequence_parallel: true", "sequence_parallel: false", "tp_overlap: false # comm_overlap.tp_comm_overlap, not without sequence_parallel"},
		{"bridge.yaml", "first_last_layers_bf16: false", "first_last_layers_bf16: true\n  num_layers_at_start_in_bf16: 0\n  num_layers_at_end_in_bf16: 4", "  num_layers_at_end_in_bf16: 4 # mixed_precision.num_layers_at_end_in_bf16\n"},
		{"bridge.yaml", "bf16: true\n  first", "bf16: false\n  first", "precision: fp8 # mixed_precision.fp8"},
		{"bridge.yaml", "use_megatron_fsdp: false", "use_megatron_fsdp: true", "data_parallel: fsdp1 # default of data_parallel_sharding_strategy of ddp.use_megatron_fsdp"},
		{"bridge.yaml", "use_megatron_fsdp: false", "use_megatron_fsdp: true\n  data_parallel_sharding_strategy: optim", "data_parallel: zero1 # ddp.data_parallel_sharding_strategy of ddp.use_megatron_fsdp"},
		{"bridge.yaml", "tokenizer:", "peft: {dim: 16}\ntokenizer:", "# Not taken over: peft {dim: 16}"},
		{"bridge-experts.yaml", "bf16_with_mxfp8_mixed\nmodel:\n", "bf16_with_fp8_delayed_scaling_mixed\nmodel:\n  tp_only_amax_red: true\n", "amax_reduction: tensor # model.tp_only_amax_red"},
		{"bridge-experts.yaml", "bf16_with_mxfp8_mixed", "bf16-with-fp8-current-scaling-mixed", "num_layers_at_start_in_bf16: 1 # mixed_precision: num_layers_at_start_in_bf16\n  num_layers_at_end_in_bf16: 1 # mixed_precision: num_layers_at_end_in_bf16\n"},
		{"bridge-experts.yaml", "bf16_with_mxfp8_mixed", "nanov2_bf16_with_fp8_current_scaling_mixed", "precision: fp8-block # mixed_precision: fp8"},
		{"bridge-experts.yaml", "bf16_with_mxfp8_mixed", "nemotron_3_super_bf16_with_nvfp4_mixed", "  num_layers_at_end_in_bf16: 14 # mixed_precision: num_layers_at_end_in_bf16\n"},
		{"bridge-experts.yaml", "torch.nn.functional.silu", "megatron.core.activations.squared_relu", "hidden_act: relu2 # model.activation_func"},
		{"bridge-experts.yaml", "moe_grouped_gemm: true", "moe_grouped_gemm: false", "# Not taken over: model.moe_grouped_gemm false"},
		{"bridge-experts.yaml", "virtual_pipeline_model_parallel_size: 4", "virtual_pipeline_model_parallel_size: null", "virtual_stages: 4 # model.pipeline_model_parallel_layout"},
		{"bridge-experts.yaml", "expert_tensor_parallel_size: 1\n", "expert_tensor_parallel_size: null\n", "ep: 64 # model.expert_model_parallel_size"},
		{"bridge-experts.yaml", "exp_avg_sq_dtype: *half", "exp_avg_sq_dtype: null", "# Not taken over: optimizer.exp_avg_dtype bfloat16, optimizer.exp_avg_sq_dtype None: one dtype for both is known"},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", x.file))
		require.NoError(t, err)
		require.Contains(t, string(text), x.old)
		j, err := launch.Read("x", []byte(strings.Replace(string(text), x.old, x.new, 1)))
		require.NoError(t, err, x.new)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), x.want, x.new)
	}
}

// TestLayout: layouts of pipelines in letters, of scripts too.
func TestLayout(t *testing.T) {
	const rest = " --num-layers 8 --hidden-size 64 --num-attention-heads 4 --bf16 --vocab-size 128 --pipeline-model-parallel-size 2"
	for layout, want := range map[string]string{
		"Ett|ttt|tt|tL": "  virtual_stages: 2 # --pipeline-model-parallel-layout\n  stage_layers: [2, 3, 2, 1] # --pipeline-model-parallel-layout\n",
		"Et*3|t*5L":     "  stage_layers: [3, 5] #",
		"Et|x":          "# Not taken over: --pipeline-model-parallel-layout Et|x",
	} {
		j, err := launch.Read("x", []byte(`--pipeline-model-parallel-layout "`+layout+`"`+rest))
		require.NoError(t, err)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), want)
	}
}

// TestNeMoMamba: hybrids with Mamba mixers, whose layers are all mixers without a pattern.
func TestNeMoMamba(t *testing.T) {
	const mamba = "trainer: {num_nodes: 1, devices: 8, precision: bf16}\nmodel:\n  {mcore_gpt: true, megatron_amp_O2: true, num_layers: 4, hidden_size: 512, ffn_hidden_size: 1024, num_attention_heads: 8, num_query_groups: 8, encoder_seq_length: 512, max_position_embeddings: 512," +
		" micro_batch_size: 1, global_batch_size: 8, normalization: RMSNorm, position_embedding_type: rope, hidden_dropout: 0.0, attention_dropout: 0.0, tokenizer: {type: x}, optim: {name: distributed_fused_adam}, "
	for keys, want := range map[string][]string{
		"hybrid_override_pattern: null, mamba_ssm_ngroups: 8, vocab_size: 1024}": {"hybrid_layer_pattern: MMMM # without model.hybrid_override_pattern\n", "mamba_num_groups: 8 # model.mamba_ssm_ngroups\n", "vocab_size: 1024 # model.vocab_size\n",
			"position: none # model.mamba_ssm_ngroups\n", "tie_word_embeddings: false # model.mamba_ssm_ngroups\n", "bias: false # default of model.add_bias_linear\n"},
		"hybrid_override_pattern: M-M*}": {"hybrid_layer_pattern: M-M* # model.hybrid_override_pattern\n", "vocab_size: 65536 # default of model.vocab_size\n", "position: none # model.hybrid_override_pattern\n", "gated_mlp: false # default of model.gated_linear_unit\n"},
	} {
		got := initial(t, mamba+keys)
		for _, w := range want {
			require.Contains(t, got, w)
		}
		predictable(t, []byte(got), 0)
	}
	require.Contains(t, initial(t, strings.Replace(mamba, "num_layers: 4", "num_layers: '${n}'", 1)+"mamba_ssm_ngroups: 8}"), "# model: model.mamba_ssm_ngroups: no letters say which layers are Mamba mixers: give the key\n")
	require.NotContains(t, initial(t, mamba+"share_embeddings_and_output_weights: true}"), "hybrid")
}

// TestNeMoOthers: models that are no decoders that are known are refused.
func TestNeMoOthers(t *testing.T) {
	for keys, want := range map[string]string{
		"bert_binary_head: true":     "x:3:21: model.bert_binary_head: the model has a head for pairs of sentences (Megatron's BERT), which is not modelled; give a configuration of a GPT or a Mamba hybrid",
		"mcore_bert: true":           "x:3:15: model.mcore_bert: the model has a head for pairs",
		"retro: {retro_layers: 2}":   "x:3:10: model.retro: the model has retrieved texts with an encoder of their own (RETRO), which is not modelled",
		"logits_soft_cap: 30.0":      "x:3:20: model.logits_soft_cap: the model has recurrences in most layers (Griffin), which is not modelled",
		"hyena: {max_seq_length: 1}": "x:3:10: model.hyena: the model has convolutions as long as a sequence (Hyena), which is not modelled",
	} {
		_, err := launch.Read("x", []byte("trainer: {devices: 8}\nmodel:\n  "+keys+"\n"))
		require.ErrorContains(t, err, want)
	}
}

// TestBridgeParts: what a recipe of Megatron-Bridge is to have instead is not all of a training.
func TestBridgeParts(t *testing.T) {
	for _, text := range []string{
		"# mine\nmodel:\n  seq_length: 4096\ntrain:\n  train_iters: 10\n  global_batch_size: 8\n",
		"train: # steps\n  global_batch_size: 8\n",
		"R=llama3_8b_pretrain_config\nsrun bash -c \"python scripts/training/run_recipe.py --recipe $R train.micro_batch_size=1\"\n",
		"torchrun my.py model.tensor_model_parallel_size=2 train.global_batch_size=8\n",
		"torchrun run_script.py --model_family_name llama --model_recipe_name llama3_8b --compute_dtype bf16 --micro_batch_size 1\n",
		"python setup_experiment.py --model_name llama3 --model_size 8b --compute_dtype fp8_cs --tensor_model_parallel_size 2\n", // up to v0.2
	} {
		_, err := launch.Read("x", []byte(text))
		require.EqualError(t, err, "x: has what a recipe of Megatron-Bridge, in Python, is to have instead, but not the recipe; give the run_config.yaml that Megatron-Bridge writes beside a checkpoint, or a ConfigContainer's to_yaml", text)
	}
	_, err := launch.Read("x", []byte("train:\n  steps: 10\n"))
	require.ErrorContains(t, err, "x: has none of the arguments")
}
