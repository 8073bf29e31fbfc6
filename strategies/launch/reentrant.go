package launch

import (
	"slices"
	"strings"

	"github.com/perfplan/perfplan/model"
)

// checkpointArguments is what arguments of torch.utils.checkpoint begin with.
const checkpointArguments = "gradient_checkpointing_kwargs."

// reentrant says how far layers are recomputed that are not checkpointed by FSDP, where that is not
// transformers' own way: as a file says, or by a default that the framework has beside it.
//
//	LLaMA-Factory  use_reentrant_gc: true since 2024-12, unasked before (model/model_utils/checkpointing.py)
//	Axolotl        true, but of Gemma 4, unless kwargs, rl or unfrozen_parameters are given (utils/config/__init__.py, core/builders/base.py)
//	ms-swift       true since 3.0, since 2025-06 but of DDP (trainers/mixin.py, _fix_gradient_checkpointing)
//	TRL            as transformers, but false since 2026-01 (trainer/sft_trainer.py); that of adapters under ZeRO-3 is not read
func (h *hub) reentrant() {
	const key, name = "train.use_reentrant", checkpointArguments + "use_reentrant"
	if !h.says("runtime.recipe", "hf-eager") && !h.says("runtime.recipe", "deepspeed-hf") {
		return // compilers drop what nobody reads, Unsloth has one way
	}
	switch r := h.get(name); {
	case h.kind == byFSDP && h.get("fsdp.version").value == "2" && h.speaks(llamaFactory):
		h.set(key, false, "LLaMA-Factory's under FSDP2")
	case r.on():
		if r.given || h.isReentrant() {
			h.set(key, true, r.from)
		}
	case r.given && strings.EqualFold(r.value, "false"):
		h.set(key, false, r.from)
	}
}

// isReentrant reports whether a framework's own default holds for a file.
func (h *hub) isReentrant() bool {
	switch {
	case h.speaks(axolotl):
		for other := range h.given {
			if strings.HasPrefix(other, checkpointArguments) {
				return false
			}
		}
		if m := specOf(model.Named(h.get("model_name_or_path").value)); m != nil && strings.HasPrefix(m.ModelType, "gemma4") {
			return false // utils/config/__init__.py: shared norms are marked ready twice
		}
		return !slices.ContainsFunc([]string{"rl", "unfrozen_parameters"}, func(name string) bool { return h.get(name).value != "" })
	case h.speaks(swift):
		return h.kind != plainDDP || h.count("gpus") <= 1
	}
	return true
}
