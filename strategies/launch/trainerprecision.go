package launch

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/model"
)

// mixed is the dtype of autocast or of FSDP's mixed precision, "" where there is none, and
// whether a Trainer's default is not the same in all releases.
func (h *hub) mixed() (dtype string, by argument, unsure bool) {
	bf16, fp16, mixed := h.get("bf16"), h.get("fp16"), h.get("mixed_precision")
	switch {
	case h.speaks(llamaFactoryOne):
		dtype, by = h.ownMixed()
		return dtype, by, false
	case fp16.on():
		return "fp16", fp16, false
	case bf16.on() || bf16.open != "":
		return "bf16", bf16, false
	case mixed.value == "fp8":
		return "bf16", mixed, false
	case mixed.on():
		return mixed.value, mixed, false
	}
	return "", argument{from: h.without("bf16") + " and fp16"}, h.speaks(trl) && bf16.value == ""
}

// loaded is the dtype that weights are loaded in, "" where nobody says.
func (h *hub) loaded() (dtype string, by argument) {
	by = h.get("dtype")
	mixed, mixedBy, _ := h.mixed()
	switch {
	case h.speaks(llamaFactoryOne):
		return h.ownLoaded()
	case by.value != "":
		return map[string]string{"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "auto": "auto"}[by.value], by
	case (h.speaks(axolotl) || h.speaks(llamaFactory)) && mixed != "": // cfg.torch_dtype, model_args.compute_dtype
		return mixed, mixedBy
	case h.speaks(axolotl):
		return "fp32", mixedBy
	}
	return "", argument{from: h.without("dtype")}
}

// precision chooses among those of the recipes: which dtype weights are kept in depends on who
// loads them, and on who shards them.
func (h *hub) precision() error {
	const key = "train.precision"
	mixed, by, unsure := h.mixed()
	if a := h.get("mixed_precision"); a.open != "" && mixed == "" {
		h.open(key, a.from, a.open)
		return nil
	}
	if mixed != "" && mixed != "bf16" && mixed != "fp16" {
		return by.fail("%s: there is no %q; give no, fp16, bf16 or fp8", by.from, mixed)
	}
	if by.value == "fp8" {
		h.note("%s fp8: bf16 is taken", by.from)
	}
	weights, loader := h.loaded()
	set := func(value string, from ...string) { h.set(key, value, strings.Join(slices.Compact(from), ", ")) }
	four, eight := h.get("load_in_4bit"), h.get("load_in_8bit")
	switch {
	case h.speaks(swift) && weights == "" && mixed == "":
		h.open(key, loader.from, "the dtype that the model is stored in, most often bf16: give the key")
	case unsure:
		h.open(key, by.from, "TRL turned bf16 on by default in 2025: give the key, or bf16")
	case !h.trains() && mixed == "":
	case h.kind == byZeRO && mixed == "" && !h.trains():
	case h.speaks(deepspeedScript) && mixed == "":
		h.open(key, by.from, "the script, or the configuration of DeepSpeed, has it: give the key")
	case h.kind == byZeRO && mixed == "": // DeepSpeed's configuration goes before what is left out
		h.Settings = append(h.Settings, Setting{Key: key, Value: "fp32", From: by.from, last: true})
	case h.kind == byZeRO:
		set(mixed, by.from)
	case (four.on() || eight.on()) && !h.adapted():
		h.open(key, cmp.Or(four.from, eight.from), "what is trained beside frozen weights of a few bits is not known: give the key")
	case four.on() && strings.HasPrefix(mixed, "fp16"):
		set("nf4-fp16", four.from, by.from)
	case four.on():
		set("nf4-frozen", four.from)
		if h.speaks(trl) && h.kind != byFSDP { // models/utils.py, prepare_peft_model, until 2025-12, but of what FSDP shards
			h.note("%s: TRL before 0.27 casts to fp32 what is not in 4 bits, which train.precision nf4-prepared is", four.from)
		}
		if d := h.get("bnb_4bit_use_double_quant"); d.value != "" && !d.on() {
			h.note("%s: scales of the 4 bits are not quantized again, which takes 0.37 bits of each weight more", d.from)
		}
		if mixed == "" {
			h.note("%s: autocast to bf16 is taken", by.from)
		}
	case eight.on():
		h.open(key, eight.from, "frozen weights in 8 bits of bitsandbytes have none: give the key")
	case weights == "auto":
		h.open(key, loader.from, "weights are loaded as they are stored: give the key, of 16 bits bf16-pure, of 32 bf16-autocast")
	case mixed == "" && h.speaks(llamaFactory) && weights == "":
		h.open(key, by.from, "weights are loaded as they are stored, and those that are trained are kept in fp32: give the key")
	case mixed == "" && weights == "fp16":
		h.open(key, loader.from, "weights in fp16 without mixed precision have none: give the key")
	case mixed == "" && weights == "bf16":
		set("bf16-pure", loader.from)
		if h.adapted() {
			h.set("train.dtypes.adapters", "fp32", "PEFT's autocast_adapter_dtype")
		}
	case mixed == "":
		set("fp32", by.from)
		h.tf32()
	case h.adapted() && weights == "bf16":
		set("bf16-frozen", by.from, loader.from)
	case h.kind == byFSDP && mixed == "bf16": // which upcasts what is trained (accelerate/accelerator.py, utils/fsdp_utils.py)
		set("bf16-mixed", by.from, h.kindFrom)
	case weights == "bf16" && (!h.speaks(llamaFactory) || h.get("pure_bf16").on()): // which keeps what it trains in fp32 else (model/adapter.py)
		set("bf16-pure", by.from, loader.from)
	default:
		set(mixed+"-autocast", by.from)
		if weights == "" && h.kind == plainDDP {
			h.note("%s weights are taken to be kept in fp32, as transformers 4 loads them; 5 loads them as they are stored, which bf16-pure is of 16 bits", loader.from)
		}
	}
	h.packed(four, eight)
	h.widened(four, mixed)
	h.reduces(mixed)
	if a := h.get("tf32"); a.given && a.value != "auto" && a.open == "" && !h.mentions("runtime.tf32") {
		h.set("runtime.tf32", a.on(), a.from)
	} else if m := specOf(model.Named(h.get("model_name_or_path").value)); m != nil && m.Position == model.RelativeBias && !h.mentions("runtime.tf32") { // whose scores are products in fp32
		h.tf32()
	}
	return nil
}

// packed notes frozen weights of a few bits that are not known under DeepSpeed.
func (h *hub) packed(four, eight argument) {
	switch {
	case h.kind != byZeRO:
	case four.on():
		h.note("%s: frozen weights of 4 bits are not known under DeepSpeed, and are taken to be as wide as those that are trained; recipe hf-eager with train.precision nf4-frozen and plan.data_parallel ddp is the nearest", four.from)
	case eight.on():
		h.note("%s: frozen weights of 8 bits are not known, and are taken to be as wide as those that are trained", eight.from)
	}
}

// widened notes frozen weights of 4 bits that are to be multiplied in fp32. bitsandbytes from 0.47 of 2025-08 on casts
// inputs and weights to that dtype (nn/modules.py, Linear4bit; before, it took that of 16-bit inputs), and autocast, where
// there is one, both back to its own (autograd/_functions.py, MatMul4Bit).
func (h *hub) widened(four argument, mixed string) {
	by := h.multiplies()
	said := by.from
	if by.given {
		said += " " + by.value
	}
	switch {
	case !four.on() || h.kind == byZeRO || dtypes[by.value] != "fp32":
	case mixed == "":
		h.note("%s: 4-bit weights are taken to be multiplied in 16 bits; fp32 takes many times as long", said)
	default:
		h.note("%s: bitsandbytes from 0.47 on casts inputs and 4-bit weights to fp32, and autocast both to %s, of which no time is taken", said, mixed)
	}
}

// multiplies is the dtype in which bitsandbytes is to multiply weights of 4 bits. TRL has it from dtype, fp32 since
// 2026-01 (trainer/utils.py, get_quantization_config; trainer/model_config.py), ms-swift from that of the model
// (arguments/base_args/quant_args.py), Axolotl and LLaMA-Factory from mixed precision's.
func (h *hub) multiplies() argument {
	by := h.get("bnb_4bit_compute_dtype")
	weights, loader := h.loaded()
	switch {
	case h.speaks(trl) && h.get("dtype").value == "":
		return argument{value: "float32", from: h.without("dtype") + ", float32 by TRL"}
	case h.speaks(trl):
		return h.get("dtype")
	case by.value == "" && h.speaks(swift) && (weights == "fp16" || weights == "fp32"):
		return argument{value: "float32", from: loader.from + " " + loader.value + ", float32 by ms-swift"}
	}
	return by
}

// reduces says in which dtype FSDP reduces gradients, and gathers weights for fp16.
func (h *hub) reduces(mixed string) {
	switch {
	case h.kind != byFSDP:
	case h.speaks(llamaFactoryOne):
		h.set("train.dtypes.reduce", "fp32", "LLaMA-Factory's reduce_dtype")
	case mixed != "": // accelerate/utils/dataclasses.py, set_mixed_precision
		h.set("train.dtypes.reduce", mixed, "accelerate's reduce_dtype")
		if mixed == "fp16" {
			h.set("train.dtypes.gather", mixed, "accelerate's param_dtype")
		}
	}
}

// tf32 says how fp32 operands are multiplied where nothing is narrower: PyTorch leaves TF32 off.
func (h *hub) tf32() {
	if a, c := h.get("tf32"), h.get("torch_compile"); a.value == "" && c.on() {
		h.set("runtime.tf32", true, c.from)
	} else if a.value == "" && h.trains() && !h.speaks(axolotl) {
		h.set("runtime.tf32", false, h.without("tf32"))
	}
}
