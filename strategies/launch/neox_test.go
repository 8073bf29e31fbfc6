package launch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/launch"
)

// A run of gpt-neox in two files: what is trained, and how.
const (
	neoxModel = `# small
{
  "pipe-parallel-size": 2,
  "model_parallel_size": 1,
  "num_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "seq_length": 512, "max_position_embeddings": 512,
  "pos_emb": "rotary", "rotary_pct": 0.25, "no-weight-tying": true, "gpt_j_residual": true, "bias_gelu_fusion": True, "scaled_upper_triang_masked_softmax_fusion": True,
  "attention_config": [[["global"], 4]],
`
	neoxTraining = `
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8, "data_impl": "mmap", "checkpoint_activations": true, "checkpoint_factor": 1000,
  "optimizer": {"type": "Adam", "params": {"lr": 0.0006}}, "zero_optimization": {"stage": 1, "overlap_comm": True, "reduce_scatter": True}, "fp16": {"enabled": true, "fp16": true}, "gradient_clipping": 1.0,
}`
)

// TestNeox: keys of gpt-neox, of one file or of the files of a run.
func TestNeox(t *testing.T) {
	for _, files := range [][]string{{neoxModel + neoxTraining}, {neoxModel + "}", "{" + neoxTraining}} {
		got := initial(t, files...)
		for _, want := range []string{
			"num_hidden_layers: 4 # num_layers\n", "intermediate_size: 2048 # of hidden_size\n", "norm: layernorm # default of norm\n", "position: rope # pos_emb\n", "partial_rotary_factor: 0.25 # rotary_pct\n", "parallel: two_norms # gpt_j_residual\n",
			"tie_word_embeddings: false # no_weight_tying\n", "residual_dropout: 0 # default of hidden_dropout\n", "vocab_size: 50257 # default of tokenizer_type\n", "recipe: megatron-deepspeed # gpt-neox\n", "# Not taken over: zero_optimization.overlap_comm true: recipe megatron-deepspeed is known with one way to reduce gradients, which is taken\n",
			"tp: 1 # model_parallel_size\n", "pp: 2 # pipe_parallel_size\n", "data_parallel: zero1 # zero_optimization.stage\n", "micro_batch: 4 # train_micro_batch_size_per_gpu\n", "grad_accumulation: 8 # gradient_accumulation_steps\n", "recompute: full # checkpoint_activations\n",
			"precision: fp16 # fp16.enabled\n", "# gpus: hostfile: the file does not say how many there are: give the key\n",
		} {
			require.Contains(t, got, want)
		}
		require.Equal(t, 1, strings.Count(got, "Not taken over"), got)
		require.Contains(t, got, "# Without a key: fp16.fp16\n")
		predictable(t, []byte(got), 8)
	}
}

// TestNeoxKeys: what single keys say, by what becomes of them.
func TestNeoxKeys(t *testing.T) {
	for keys, want := range map[string]string{
		`"activation": "swiglu", "mlp_multiple_of": 256`:             "intermediate_size: 768 # of hidden_size, a third with a gate\n",
		`"activation": "swiglu"`:                                     "hidden_act: silu # activation\n",
		`"activation": "geglu"`:                                      "gated_mlp: true # activation\n",
		`"activation": "mish"`:                                       "# Not taken over: activation mish: gelu is taken; give model.hidden_act\n",
		`"intermediate_size": 1000, "mlp_multiple_of": 256`:          "intermediate_size: 1024 # intermediate_size\n",
		`"expansion_factor": 2`:                                      "intermediate_size: 1024 # expansion_factor\n",
		`"num-kv-heads": 2`:                                          "num_key_value_heads: 2 # num_kv_heads\n",
		`"norm": "te_rmsnorm"`:                                       "norm: rmsnorm # norm\n",
		`"norm": "scalenorm"`:                                        "# Not taken over: norm scalenorm: layernorm is taken\n",
		`"use_bias_in_mlp": False, "use_bias_in_attn_linear": False`: "bias: false # use_bias_in_mlp\n",
		`"use_bias_in_mlp": False`:                                   "qkv_bias: true # default of use_bias_in_attn_linear\n",
		`"use_bias_in_attn_linear": False`:                           "# Not taken over: use_bias_in_attn_linear false: biases are taken to be in attention",
		`"precision": "bfloat16"`:                                    "precision: bf16 # precision\n",
		`"model_parallel_size": 2, "partition_activations": true`:    "# Not taken over: partition_activations true\n",
		`"num_gpus": 4, "num_nodes": 2`:                              "gpus: 8 # num_gpus, num_nodes\n",
		`"attention_config": [[["flash"], 4]]`:                       "attention: flash-attn # attention_config\n",
		`"bias_gelu_fusion": false`:                                  "# Not taken over: without bias_gelu_fusion: biases and activations",
		`"gpt_j_residual": true, "gpt_j_tied": true`:                 "parallel: one_norm # gpt_j_residual\n",
		`"make_vocab_size_divisible_by": 64`:                         "vocab_multiple: 64 # make_vocab_size_divisible_by\n",
		`"unheard": 1`:                                               "# Without a key: unheard\n",
		`"deepspeed_extra_args": {"bf16": {"enabled": true}}`:        "precision: bf16 # bf16.enabled\n",
		``: "grad_accumulation: 1 # default of gradient_accumulation_steps\n",
	} {
		got := initial(t, `{"pos_emb": "rotary", "num_layers": 4, "hidden_size": 512, "num_attention_heads": 8, `+keys+"}")
		require.Contains(t, got+"\n", want, keys)
	}
	require.Contains(t, initial(t, "{'vocab_file': 'x', 'checkpoint_factor': 10}"), "# model: num_layers: another file of the run has it: name it by --from, too\n")
}

// TestNeoxErrors: what is not modelled, and what a run may not have.
func TestNeoxErrors(t *testing.T) {
	for keys, want := range map[string]string{
		`"attention_config": [[["mamba"], 4]]`: "x:1:42: attention_config: layers of mamba are not modelled; global and flash are",
		`"moe-num-experts": 8`:                 "x:1:37: moe_num_experts: experts of gpt-neox are not read; give a job that has model.num_experts (perfplan init without --from)",
		`"num_layers": 0`:                      `x:1:32: num_layers: "0"; give a whole number from 1 on`,
	} {
		_, err := launch.Read("x", []byte(`{"pos_emb": "rotary", `+keys+"}"))
		require.ErrorContains(t, err, strings.SplitN(want, ": ", 2)[1], keys)
	}
	one, err := launch.Read("a", []byte(neoxModel+"}"))
	require.NoError(t, err)
	two, err := launch.Read("b", []byte(`{"checkpoint_factor": 1, "num_layers": 4}`))
	require.NoError(t, err)
	_, err = launch.Join([]*launch.Job{one, two})
	require.ErrorContains(t, err, "num_layers: another file of the run has it, too, which gpt-neox refuses; leave one of them out")
	other, err := launch.Read("c", []byte(`{"zero_optimization": {"stage": 1}, "un-heard": true}`))
	require.NoError(t, err)
	require.Equal(t, []string{"un-heard"}, other.Ignored, "of DeepSpeed, which has no hyphens")
}
