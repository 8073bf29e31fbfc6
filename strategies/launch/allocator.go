package launch

import "strings"

// allocatorVariables configure PyTorch's allocator, the one that it reads first (from 2.9 on) before the older
// (c10/core/AllocatorConfig.h, c10/cuda/CUDAAllocatorConfig.cpp).
var allocatorVariables = []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}

// expandable is what the environment says of expandable segments, and where; "" for nothing.
func expandable(env map[string]string) (value, from string) {
	for _, name := range allocatorVariables {
		text, set := env[name]
		if !set {
			continue
		}
		for option := range strings.SplitSeq(text, ",") {
			key, v, _ := strings.Cut(strings.TrimSpace(option), ":")
			if v = strings.TrimSpace(v); key == "expandable_segments" && (v == "True" || v == "False") {
				value = strings.ToLower(v)
			}
		}
		return value, name
	}
	return "", ""
}

// allocates takes how the environment has PyTorch's allocator grow.
func (j *Job) allocates(env map[string]string) {
	if value, from := expandable(env); value != "" {
		j.set("runtime.expandable_segments", value == "true", from)
	}
}

// allocates is the same of a Trainer's environment.
func (t *trainer) allocates(env map[string]string) {
	if value, from := expandable(env); value != "" {
		t.given["expandable_segments"] = argument{value: value, from: from, given: true}
	}
}

// allocates says how PyTorch's allocator grows: as the environment has it, else as Axolotl does, whose command
// sets the variable where nobody has (axolotl/utils/__init__.py, set_pytorch_cuda_alloc_conf, from 2024-12 on).
func (h *hub) allocates() {
	switch a := h.get("expandable_segments"); {
	case a.given:
		h.set("runtime.expandable_segments", a.on(), a.from)
	case h.speaks(axolotl) && h.trains():
		h.set("runtime.expandable_segments", true, "Axolotl's PYTORCH_ALLOC_CONF")
	}
}
