package launch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReentrant: how far recomputation runs by what a framework has beside transformers' default, and
// where a file says otherwise (sources with hub.reentrant).
func TestReentrant(t *testing.T) {
	const (
		factory = "model_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: full\nbf16: true\n"
		axo     = "base_model: gpt2\nmicro_batch_size: 1\nbf16: true\ngradient_checkpointing: true\n"
		swift   = "swift sft --model Qwen/Qwen2.5-7B --tuner_type full --torch_dtype bfloat16 "
		trl     = "trl sft --model_name_or_path gpt2 --bf16 --gradient_checkpointing --output_dir x "
		trainer = "run_clm.py --model_name_or_path gpt2 --bf16 --gradient_checkpointing --output_dir x "
		none    = ""
	)
	for _, c := range []struct {
		files []string
		want  string // none: as transformers does
	}{
		{[]string{factory}, "use_reentrant: true # default of use_reentrant_gc"},
		{[]string{factory + "use_reentrant_gc: false"}, "use_reentrant: false # use_reentrant_gc"},
		{[]string{factory + "disable_gradient_checkpointing: true"}, none},
		{[]string{factory, "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}"}, "use_reentrant: false # LLaMA-Factory's under FSDP2"},
		{[]string{factory, "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_version: 1, fsdp_sharding_strategy: FULL_SHARD}"}, "use_reentrant: true # default of use_reentrant_gc"},
		{[]string{axo}, "use_reentrant: true # default of gradient_checkpointing_kwargs.use_reentrant"},
		{[]string{axo + "gradient_checkpointing_kwargs: {use_reentrant: false}"}, "use_reentrant: false # gradient_checkpointing_kwargs.use_reentrant"},
		{[]string{axo + "gradient_checkpointing_kwargs: {preserve_rng_state: false}"}, none},
		{[]string{axo + "rl: dpo"}, none},
		{[]string{strings.Replace(axo, "gpt2", "google/gemma-4-31B", 1)}, none},
		{[]string{axo + "torch_compile: true"}, none},
		{[]string{axo + "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true, activation_checkpointing: true}"}, none},
		{[]string{"NPROC_PER_NODE=4 " + swift}, none},
		{[]string{swift}, "use_reentrant: true # default of --gradient_checkpointing_kwargs.use_reentrant"},
		{[]string{"NPROC_PER_NODE=4 " + swift + "--deepspeed zero3"}, "use_reentrant: true"},
		{[]string{"NPROC_PER_NODE=4 " + swift + "--fsdp fsdp2"}, none},
		{[]string{trl}, none},
		{[]string{trainer}, none},
		{[]string{trainer + `--gradient_checkpointing_kwargs '{"use_reentrant": true}'`}, "use_reentrant: true # --gradient_checkpointing_kwargs use_reentrant"},
	} {
		got := initial(t, c.files...)
		if c.want == none {
			require.NotContains(t, got, "  use_reentrant", c.files)
			continue
		}
		require.Contains(t, got, c.want, c.files)
	}
}
