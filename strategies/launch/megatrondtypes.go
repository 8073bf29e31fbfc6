package launch

import "github.com/perfplan/perfplan/model/recipe"

// kept says in what gradients are kept and reduced, and what an optimizer that is aware of
// precision keeps.
func (m *megatron) kept() {
	const mainGrads = "main_grads_dtype"
	switch {
	case m.textOf("train.precision") == "fp16": // whose buffers heed neither
	case m.has(narrowGradients):
		m.keep("bf16", m.from(narrowGradients))
	case m.has(mainGrads) && dtypes[m.dtypeName(mainGrads)] == "bf16":
		m.keep("bf16", m.from(mainGrads))
	}
	if m.sharding() != "" {
		m.shardTypes()
	} else if !m.has("use_torch_fsdp2") {
		m.unasked()
	}
	if m.has("use_precision_aware_optimizer") {
		m.states()
	}
}

// What has gradients added up and reduced in fp32, and in bf16.
const wideGradients, narrowGradients = "accumulate_allreduce_grads_in_fp32", "grad_reduce_in_bf16"

// unasked says in what gradients are where no argument says it, if the recipe has them otherwise: with bf16, be it
// beside fewer bits, in fp32, with fp16 in 16 bits unless more is asked for (megatron/training/arguments.py;
// swift/megatron/arguments/megatron_args.py). NeMo, Megatron-Bridge and DeepSpeed have keys of their own for it.
func (m *megatron) unasked() {
	own := m.recipe == megatronRecipe || m.recipe == guidedRecipe && m.dashes != nil
	r, err := recipe.Load(m.recipe)
	precision := m.textOf("train.precision")
	if err != nil || precision == "" || !own || m.has("deepspeed") || m.mentions("train.dtypes.gradients") {
		return
	}
	kept, from := "fp32", m.given(narrowGradients)
	if m.has("fp16") && !m.has(wideGradients) {
		kept, from = "fp16", m.given(wideGradients)+", "+m.from("fp16")
	}
	if r.Precision[precision].Gradients.String() != kept {
		m.keep(kept, from)
	}
}

// keep has gradients added up and reduced in a dtype.
func (j *Job) keep(dtype, from string) {
	j.set("train.dtypes.gradients", dtype, from)
	j.set("train.dtypes.reduce", dtype, from)
}

// states says in what an optimizer keeps its moments and the weights that it updates.
func (m *megatron) states() {
	first, second := m.dtypeName("exp_avg_dtype"), m.dtypeName("exp_avg_sq_dtype")
	if first == second {
		m.dtype("moments", "exp_avg_dtype")
	} else {
		m.note("%s %s, %s %s: one dtype for both is known", m.from("exp_avg_dtype"), first, m.from("exp_avg_sq_dtype"), second)
	}
	m.dtype("master", "main_params_dtype")
}

// narrow says what beside the layers' GEMMs is in 8 bits. Recipes but pretrain_gpt.py's
// have some of it so where nothing is said.
func (m *megatron) narrow(kind string) {
	for _, of := range []struct {
		name, key string
		unless    bool
	}{{"fp8_param_gather", "gather", kind == "mxfp8"}, {"fp8_dot_product_attention", "attention", false}, {"fp8_output_proj", "head", false}} {
		switch _, given := m.flags[of.name]; {
		case of.unless:
		case m.has(of.name):
			m.set("train.dtypes."+of.key, kind, m.from(of.name))
		case given && m.recipe != megatronRecipe:
			m.set("train.dtypes."+of.key, "bf16", m.from(of.name))
		}
	}
}
