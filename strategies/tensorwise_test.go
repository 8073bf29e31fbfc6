package strategies

import (
	"fmt"
	"testing"
)

// TestCheckTensorwise: where an optimizer may be whose states are of whole tensors.
func TestCheckTensorwise(t *testing.T) {
	const job = "{model: gpt2, hardware: h100-sxm, gpus: 8, runtime: {recipe: %s}, plan: {%s}, train: {optimizer: adamw-8bit, micro_batch: 1, grad_accumulation: 2%s}}"
	for _, c := range []struct{ recipe, plan, train, want string }{
		{"hf-eager", "dp: 8, data_parallel: ddp", "", ""},
		{"hf-compile", "dp: 8, data_parallel: ddp", "", ""},
		{"hf-eager", "dp: 8, data_parallel: fsdp2", "", "train.optimizer: adamw-8bit beside data_parallel fsdp2, of which no update is known; use ddp, or adamw-fused"},
		{"hf-eager", "pp: 2, dp: 4, data_parallel: ddp", "", "train.optimizer: adamw-8bit with tp 1 and pp 2"},
		{"hf-eager", "dp: 8, data_parallel: ddp", ", dtypes: {moments: bf16}", "train.dtypes.moments: bf16, but adamw-8bit has states of its own"},
		{"torchtitan", "dp: 8, data_parallel: ddp", "", "recipe torchtitan has no \"adamw-8bit\""},
	} {
		refuses(t, fmt.Sprintf(job, c.recipe, c.plan, c.train), c.want)
	}
}
