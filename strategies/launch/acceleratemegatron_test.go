package launch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAccelerateMegatron: accelerate's arguments for Megatron-LM, on a command line and in its file.
func TestAccelerateMegatron(t *testing.T) {
	const (
		program = " run_clm.py --output_dir x --model_name_or_path gpt2 --block_size 512 --per_device_train_batch_size 4 --bf16"
		flags   = "accelerate launch --num_processes 8 --use_megatron_lm --megatron_lm_tp_degree 2 --megatron_lm_pp_degree 2 --megatron_lm_num_micro_batches 4 --megatron_lm_sequence_parallelism true --megatron_lm_use_distributed_optimizer true --megatron_lm_recompute_activations true --megatron_lm_gradient_clipping 1.0"
		file    = "compute_environment: LOCAL_MACHINE\ndistributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n  megatron_lm_pp_degree: 2\n  megatron_lm_num_micro_batches: 4\n  megatron_lm_sequence_parallelism: true\n  megatron_lm_use_distributed_optimizer: true\n  megatron_lm_recompute_activations: true\n  megatron_lm_gradient_clipping: 1.0"
	)
	want := []string{"recipe: megatron-pretrain", "tp: 2", "pp: 2", "sequence_parallel: true", "data_parallel: zero1", "recompute: selective", "clip_gradients: true", "precision: bf16 # --bf16", "micro_batch: 4 #", "grad_accumulation: 4 #", "gpus: 8"}
	for _, files := range [][]string{{flags + program}, {"accelerate launch" + program, file}, {file, "accelerate launch" + program}} {
		got := initial(t, files...)
		for _, w := range want {
			require.Contains(t, got, w, files)
		}
		require.NotContains(t, got, "Without a key")
		predictable(t, []byte(got[:len(got)-1]), 0)
	}
	got := initial(t, "accelerate launch --use_megatron_lm --megatron_lm_recompute_granularity full --megatron_lm_recompute_method block --megatron_lm_recompute_num_layers 2 --megatron_lm_unheard 1"+program)
	for _, w := range []string{"recompute: full # --megatron_lm_recompute_granularity", "recompute_method: block", "recompute_num_layers: 2", "data_parallel: ddp # without use_distributed_optimizer", "# Without a key: --megatron_lm_unheard"} {
		require.Contains(t, got, w)
	}
	require.Contains(t, initial(t, "accelerate launch --use_megatron_lm"+strings.Replace(program, "--bf16", "--fp16", 1)), "gradients: fp16 # --fp16\n    reduce: fp16 # --fp16\n")
	require.Contains(t, initial(t, "accelerate launch --use_megatron_lm"+program), "# train.recompute: without recompute_granularity: accelerate recomputes all layers by default since 2025")
}
