package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/launch"
)

// TestTypos: names that seem to be misspelt, apart from those that may be names of other releases.
func TestTypos(t *testing.T) {
	const titan = "[model]\nname = 'llama3'\nflavor = '8B'\n"
	for text, want := range map[string]string{
		"base_model: gpt2\nmicro_batch_sise: 2":                                            "# Not known: micro_batch_sise; did you mean micro_batch_size?",
		"base_model: gpt2\nmicro_batch_size: 2\nfsdp_config: {reshard_after_forwrd: true}": "# Not known: fsdp_config.reshard_after_forwrd; did you mean fsdp_reshard_after_forward?",
		"p.py --output_dir x --model_name_or_path gpt2 --gradient_acumulation_steps 2":     "# Not known: --gradient_acumulation_steps; did you mean --gradient_accumulation_steps?",
		"p.py --num-layers 4 --micro-batch-size 1 --bf16 --tensor-model-paralel-size 2":    "# Not known: --tensor-model-paralel-size; did you mean --tensor-model-parallel-size?",
		`{"zero_optimisation": {"stage": 2}, "bf16": {"enabled": true}}`:                   "# Not known: zero_optimisation; did you mean zero_optimization?",
		titan + "[training]\nseq_lenn = 4096":                                              "# Not known: training.seq_lenn; did you mean training.seq_len?",
		titan + "[training]\nsteps = 1\n[parallelism]\ntensor_paralel_degree = 2":          "# Not known: parallelism.tensor_paralel_degree; did you mean parallelism.tensor_parallel_degree?",
		titan + "[training]\nsteps = 1\n[paralelism]\ntensor_parallel_degree = 2":          "# Not known: paralelism.tensor_parallel_degree; did you mean parallelism.tensor_parallel_degree?",
		"p.py --num-layers 4 --micro-batch-size 1 --bf16 --unheard 2":                      "# Without a key: --unheard",
		"p.py --num-layers 4 --micro-batch-size 1 --bf16 --micro-batch-sizes 2":            "# Not known: --micro-batch-sizes; did you mean --micro-batch-size, which is there, too?",
		"p.py --num-layers 4 --micro-batch-size 1 --use-mcore-models --use-mcore-modls":    "# Not known: --use-mcore-modls; did you mean --use-mcore-models, which is there, too?",
		"megatron sft --model Qwen/Qwen2.5-7B --micro_batch_sise 2 --max_length 100":       "# Not known: --micro_batch_sise; did you mean --micro_batch_size?",
		"base_model: gpt2\nmicro_batch_size: 2\nmicro_batch_sise: 4":                       "# Not known: micro_batch_sise; did you mean micro_batch_size, which is there, too?",
		`{"zero_optimization": {"stage": 2, "stages": 3, "reduce_bucket_sise": 5}}`:        "# Not known: zero_optimization.stages; did you mean zero_optimization.stage, which is there, too?\n# Not known: zero_optimization.reduce_bucket_sise; did you mean zero_optimization.reduce_bucket_size?",
		`{"pos_emb": "rotary", "num_layers": 4, "num_layer": 5}`:                           "# Not known: num_layer; did you mean num_layers, which is there, too?",
		titan + "[training]\nseq_len = 4096\nseq_lenn = 2048":                              "# Not known: training.seq_lenn; did you mean training.seq_len, which is there, too?",
	} {
		require.Contains(t, initial(t, text), want)
	}
	_, err := launch.Read("x", []byte(titan+"[traning]\nseq_len = 4096"))
	require.ErrorContains(t, err, "it has no tables [model] and [training]; give one of its train_configs; did you mean [training] by [traning]?")
}
