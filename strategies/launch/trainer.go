package launch

import (
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/model"
)

// trainerKeys are the arguments that a job is read from, and others.
var trainerKeys = keysOf("trainer")

// cutPlugin is Axolotl's that brings the loss of Cut Cross-Entropy.
const cutPlugin = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"

// hub makes a job of arguments.
type hub struct {
	*Job
	*trainer
	kind, kindFrom string
	plain          argument // that chose the kind
}

// take makes a job of arguments; sharded: a configuration of DeepSpeed is beside them.
func (j *Job) take(t *trainer, sharded bool) error {
	if err := j.make(t, sharded); err != nil {
		return err
	}
	for _, w := range t.ways {
		o := &Job{}
		if err := o.make(w.trainer, sharded); err == nil {
			j.unsettle(o, w.by)
		}
	}
	return nil
}

// make makes a job of arguments as one way of the conditions of a script has them.
func (j *Job) make(t *trainer, sharded bool) error {
	*j = Job{source: j.source, trainer: t, Notes: slices.Clone(t.notes), clock: j.clock, peaks: j.peaks, mostSteps: t.get("max_steps").number()}
	h := &hub{Job: j, trainer: t}
	if err := h.choose(sharded || t.inline != nil); err != nil {
		return err
	}
	h.machine()
	if t.file != nil && !t.trains() {
		h.open("model", t.file.by, t.file.name+" has the arguments: name it by --from, too")
		if own := t.file.waits(); own != "" {
			h.note("%s: they go before what %s has", own, t.file.name)
		}
		j.ignores(t)
		return nil
	}
	if t.file != nil {
		h.note("%s %s, which may have more arguments: name it by --from, too", t.file.by, t.file.name)
	}
	h.model()
	if h.kind == byMegatron {
		h.megatron()
		h.batch()
		h.rest()
		j.ignores(t)
		return nil
	}
	h.runtime()
	h.adapters()
	if err := h.precision(); err != nil {
		return err
	}
	if err := h.plan(sharded || t.inline != nil); err != nil {
		return err
	}
	h.batch()
	h.optimizer()
	h.recompute()
	h.rest()
	j.ignores(t)
	if t.inline == nil {
		return nil
	}
	all, err := merge([]*Job{j, t.inline})
	if err != nil {
		return err
	}
	j.Settings, j.Notes, j.Ignored, j.Unknown = all.Settings, all.Notes, all.Ignored, all.Unknown
	return nil
}

// put sets a key to a whole number that an argument gives, where there is one.
func (h *hub) put(key, name string) bool {
	switch a := h.get(name); {
	case a.open != "":
		h.open(key, a.from, a.open)
	case a.value == "":
		return false
	default:
		h.set(key, a.number(), a.from)
	}
	return true
}

// model is the catalog's, where that has it.
func (h *hub) model() {
	switch a := h.get("model_name_or_path"); {
	case a.open != "":
		h.open("model", a.from, a.open)
	case a.value == "" && h.trains():
		h.open("model", h.without("model_name_or_path"), "give the key")
	case a.value == "":
	default:
		if name := model.Named(a.value); name != "" {
			h.set("model", name, a.from+" "+a.value)
		} else {
			h.open("model", a.from, a.value+" is not in the catalog: give the key, which may be the folder of the model or its config.json")
		}
	}
}

// perNode is how many processes a node has, 0 where nobody says.
func (h *hub) perNode() (n int64, from string) {
	nodes := h.get("num_machines")
	if a := h.get("per_node"); a.number() > 0 {
		return a.number(), a.from
	}
	if a := h.get("num_processes"); a.number() > 0 {
		return a.number() / max(nodes.number(), 1), a.from
	}
	return 0, ""
}

// machine is the number of GPUs.
func (h *hub) machine() {
	each, nodes := h.get("per_node"), h.get("num_machines")
	switch {
	case h.put("gpus", "num_processes"):
	case each.open != "" || each.value != "" && nodes.open != "":
		a := each
		if each.open == "" {
			a = nodes
		}
		h.open("gpus", a.from, a.open)
	case each.number() > 0 && nodes.value == "":
		h.set("gpus", each.number(), each.from)
	case each.number() > 0 && nodes.number() > 0:
		h.set("gpus", each.number()*nodes.number(), each.from+", "+nodes.from)
	case h.get("ranks").given:
		h.put("gpus", "ranks")
	case nodes.number() > 1:
		h.open("gpus", nodes.from, "how many GPUs a node has is not said: give the key")
	case nodes.open != "":
		h.open("gpus", nodes.from, nodes.open)
	}
}

// attentions are the kernels by what they are called.
var attentions = map[string]string{
	"eager": "unfused", "disabled": "unfused", "sdpa": "sdpa", "flash_attn": "flash-attn", "flash_attention_2": "flash-attn", "fa2": "flash-attn", "kernels-community/flash-attn": "flash-attn", "kernels-community/flash-attn2": "flash-attn",
	"flash_attention_3": "flash-attn-3", "flash_attn_3": "flash-attn-3", "fa3": "flash-attn-3", "kernels-community/flash-attn3": "flash-attn-3", "kernels-community/vllm-flash-attn3": "flash-attn-3", "flash_attention_4": "flash-attn-4", "flex_attention": "flex",
}

func (h *hub) runtime() {
	compiled := h.get("torch_compile")
	if b := h.get("dynamo.backend"); !compiled.on() && b.on() {
		compiled = b
	}
	switch {
	case h.kind == byZeRO:
		h.set("runtime.recipe", deepspeedRecipe, h.kindFrom)
		if compiled.on() {
			h.note("%s: under DeepSpeed layers are taken to run eagerly", compiled.from)
		}
	case h.unsloth().on():
		h.set("runtime.recipe", "unsloth", h.unsloth().from)
	case compiled.on():
		h.set("runtime.recipe", "hf-compile", compiled.from)
		if r := h.get("dynamo.use_regional_compilation"); r.on() {
			h.set("runtime.compile_scope", "layer", r.from)
		}
		for _, name := range []string{"torch_compile_backend", "dynamo.backend"} {
			if b := h.get(name); b.value != "" && !strings.EqualFold(b.value, "inductor") {
				h.note("%s %s: inductor is taken", b.from, b.value)
			}
		}
		for _, name := range []string{"torch_compile_mode", "dynamo.mode"} {
			if m := h.get(name); m.value != "" && m.value != "default" {
				h.note("%s %s: what it replays from CUDA graphs or tunes; give runtime.cuda_graphs", m.from, m.value)
			}
		}
	default:
		h.set("runtime.recipe", "hf-eager", h.without("torch_compile"))
	}
	if a := h.get("use_unsloth"); a.on() && !h.unsloth().on() {
		h.note("%s: what it runs is known of adapters alone, on one GPU or under DDP", a.from)
	}
	if a := h.get("attn_implementation"); a.value != "" && a.value != "auto" {
		if kernel, ok := attentions[a.value]; ok {
			h.set("runtime.attention", kernel, a.from)
		} else {
			h.note("%s %s: give runtime.attention", a.from, a.value)
		}
	}
	h.liger()
	if h.kind != plainDDP {
		h.put("runtime.cpu_threads", "num_cpu_threads_per_process")
	}
	if h.trains() && !h.loops() {
		h.set("runtime.trainer", true, "what reads these arguments")
		if h.get("dataloader_num_workers").on() {
			h.put("runtime.data_workers", "dataloader_num_workers")
		}
	}
}

// unsloth is whether Unsloth loads and trains the model: adapters on one GPU or under DDP.
func (h *hub) unsloth() argument {
	if a := h.get("use_unsloth"); a.on() && h.adapted() && h.kind == plainDDP {
		return a
	}
	return argument{}
}

// liger are Liger-Kernel's operators, all of them, Axolotl's one by one, and its loss.
func (h *hub) liger() {
	whole, loss := h.get("use_liger_kernel"), h.get("liger_fused_linear_cross_entropy")
	norm, gate, rope := h.get("liger_rms_norm"), h.get("liger_glu_activation"), h.get("liger_rope")
	if old := h.get("liger_swiglu"); old.on() {
		gate = old
	}
	var operators, said []string
	for i, a := range []argument{norm, gate, rope} {
		if a.on() {
			operators, said = append(operators, []string{"norm", "gate", "rotary"}[i]), append(said, a.from)
		}
	}
	by, all := whole, len(operators) == 3
	if len(operators) > 0 {
		by = argument{from: said[0]}
	}
	switch {
	case whole.on() || len(operators) > 0:
		why := ""
		if h.says("runtime.recipe", "hf-compile") {
			why = "is compiled"
		} else if m := specOf(model.Named(h.get("model_name_or_path").value)); m != nil {
			why = m.Ligerless()
		}
		if why != "" {
			h.note("%s, of norms, MLPs and rotary embedding: the model %s, and what Liger-Kernel replaces of such a one is not known; its own operators are taken", by.from, why)
		} else {
			h.set("runtime.liger_kernels", true, by.from)
			if !whole.on() && !all {
				h.set("runtime.liger_operators", operators, strings.Join(said, ", "))
			}
		}
	}
	h.linearLoss(whole, loss)
}

// linearLoss is a loss that is fused with the output layer, else one that Axolotl compiles, chunk by chunk of the
// logits (monkeypatch/loss/chunked.py).
func (h *hub) linearLoss(whole, loss argument) {
	stage := h.get("stage").value
	cut, chunked := h.get("plugins"), h.get("chunked_cross_entropy")
	switch off := h.get("cut_cross_entropy"); { // which the plugin has on (integrations/cut_cross_entropy/args.py)
	case slices.Contains(cut.all(), cutPlugin) && (off.value == "" || off.on()):
		h.set("runtime.fused_linear_cross_entropy", true, cut.from)
		h.set("runtime.cross_entropy_impl", "cut", cut.from)
	case h.speaks(llamaFactoryOne): // whose loss needs logits (core/base_trainer.py, compute_log_probs)
	case whole.on() && h.speaks(llamaFactory) && stage != "" && stage != "sft" && stage != "pt": // which needs logits (model/loader.py)
	case whole.on():
		h.set("runtime.fused_linear_cross_entropy", true, whole.from)
	case loss.on():
		h.set("runtime.fused_linear_cross_entropy", true, loss.from)
	case chunked.on() && h.says("runtime.liger_kernels", true):
		h.note("%s beside Liger-Kernel's operators: the loss is taken to be transformers' own", chunked.from)
	case chunked.on():
		h.set("runtime.fused_cross_entropy", true, chunked.from)
	}
}

// batch is what a step computes.
func (h *hub) batch() {
	h.put("train.micro_batch", "per_device_train_batch_size")
	if whole := h.put("train.global_batch", "global_batch_size"); !whole && h.kind != byMegatron {
		h.put("train.grad_accumulation", "gradient_accumulation_steps")
	}
	packing := h.get("packing")
	const key = "train.sequence_length"
	switch {
	case h.put(key, "block_size"):
	case h.put(key, "max_target_length"):
		h.source()
	case h.put(key, "max_length"):
		if !packing.on() && !h.get("pad_to_sequence_len").on() && !h.get("pad_to_max_length").on() && h.get("stage").value != "pt" {
			h.note("%s is the most: without packing a batch is as long as its longest sequence", h.get("max_length").from)
		}
	case h.trains():
		h.open(key, h.without("block_size"), "the script or its tokenizer has the length: give the key")
	}
	apart := h.speaks(axolotl) || h.speaks(trl) || h.speaks(swift) || h.get("neat_packing").on()
	if packing.on() && apart && strings.HasPrefix(attentions[h.get("attn_implementation").value], "flash") {
		h.apart(packing.from)
	}
	if s, b := h.get("stage"), h.get("beta"); s.value != "" && s.value != "sft" && s.value != "pt" {
		h.note("%s %s: a step is taken to train on next tokens", s.from, s.value)
	} else if s.value == "" && b.on() { // of all losses that compare answers
		h.note("%s %s: a step is taken to train on next tokens", b.from, b.value)
	}
	if s := h.get("rl"); s.on() {
		h.note("%s %s: a step is taken to train on next tokens", s.from, s.value)
	}
	h.chunkedLoss()
	if s := h.get("stage"); h.speaks(trl) && s.value == "sft" && !h.says("runtime.fused_linear_cross_entropy", true) && !h.says("runtime.loss_chunks_keep", "nothing") && !h.says("runtime.recipe", "unsloth") {
		h.set("train.token_metrics", true, s.from+" SFTTrainer")
	}
}

// source is the length of what an encoder reads beside a decoder's sequences (transformers,
// examples/pytorch/summarization/run_summarization.py; translation/run_translation.py).
func (h *hub) source() {
	most := []string{h.get("max_target_length").from}
	if h.put("train.source_length", "max_source_length") {
		most = append(most, h.get("max_source_length").from)
	}
	if !h.get("pad_to_max_length").on() {
		h.note("%s: without --pad_to_max_length a batch is as long as its longest sequences; these are the most", strings.Join(most, ", "))
	}
}

// lossChunk are the tokens of a chunk of TRL's loss, which keeps nothing for its backward pass
// (trainer/sft_trainer.py, _chunked_cross_entropy_loss).
const lossChunk = 256

// chunkedLoss is TRL's loss by chunks, its default since 1.7.
func (h *hub) chunkedLoss() {
	a, stage := h.get("loss_type"), h.get("stage").value
	chunks := (h.count("train.micro_batch")*h.count("train.sequence_length") + lossChunk - 1) / lossChunk
	cuts := h.speaks(trl) && (stage == "" || stage == "sft") && (h.says("runtime.recipe", "hf-eager") || h.says("runtime.recipe", "hf-compile"))
	switch {
	case h.says("runtime.fused_linear_cross_entropy", true) || chunks == 1:
	case a.value == "chunked_nll" && cuts && chunks > 1:
		h.set("runtime.loss_chunks", chunks, a.from)
		h.set("runtime.loss_chunks_keep", "nothing", a.from)
	case a.value == "chunked_nll":
		h.note("%s chunked_nll: the loss is taken to be of whole logits", a.from)
	case a.value == "" && cuts && chunks > 1:
		h.note("%s: the loss is taken to be of whole logits; TRL from 1.7 on has chunked_nll: give it, or runtime.loss_chunks: %d with loss_chunks_keep: nothing", h.without("loss_type"), chunks)
	}
}

// optimizers are those of the recipes, by TrainingArguments' names.
var optimizers = map[string]string{"adamw_torch_fused": "adamw-fused", "adamw_torch": "adamw-foreach", "sgd": "sgd", "muon": "muon"}

// tensorwise are those whose states are of whole tensors: bitsandbytes' and Adafactor.
var tensorwise = map[string]string{"adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit", "paged_adamw_32bit": "paged-adamw-32bit", "paged_adamw_8bit": "paged-adamw-8bit",
	"adafactor": "adafactor", "lion_32bit": "lion-32bit", "lion_8bit": "lion-8bit", "paged_lion_32bit": "paged-lion-32bit", "paged_lion_8bit": "paged-lion-8bit"}

func (h *hub) optimizer() {
	a := h.get("optim")
	name, ok := optimizers[a.value]
	if own, there := tensorwise[a.value]; there && h.kind == plainDDP {
		name, ok = own, true
	}
	switch {
	case a.value == "":
	case !ok, name == "muon" && h.kind == byZeRO:
		states := "fp32"
		if h.says("train.precision", "bf16-pure") && !h.mentions("train.dtypes.adapters") {
			states = "bf16, as weights are,"
		}
		h.note("%s %s: AdamW with states in %s is taken", a.from, a.value, states)
	case h.kind == byZeRO: // whose configuration has one, or puts its own in the place of AdamW
	case !a.given && a.value == "adamw_torch_fused" && !h.speaks(axolotl):
		h.set("train.optimizer", name, a.from+" since PyTorch 2.8")
	default:
		h.set("train.optimizer", name, a.from)
	}
	switch g := h.get("max_grad_norm"); {
	case !g.on() || h.kind == byZeRO:
	case h.mentions("plan.offload") && !h.adapted(): // beside which nothing stays there (refused.go)
		h.note("%s, %s: the host clips the gradients that it has", g.from, g.value)
	default:
		h.set("train.clip_gradients", true, g.from+", "+g.value)
	}
}

func (h *hub) recompute() {
	const key = "train.recompute"
	a := h.get("gradient_checkpointing")
	if inner := h.get("fsdp.activation_checkpointing"); inner.on() && h.kind == byFSDP {
		a = inner
	}
	away := h.away()
	adapted := away.from != "" && h.speaks(axolotl) && h.adapted()
	if away.from != "" && h.speaks(axolotl) { // core/builders/base.py, loaders/model.py: whoever recomputes layers
		a = argument{value: "true", from: away.from, given: true}
	}
	if adapted && strings.EqualFold(away.value, "true") {
		h.note("%s: Axolotl's guide has what is offloaded in the place of recomputation beside adapters, but its loader turns that on all the same, in releases from 2025-07 to 2026-06 twice; once is taken", away.from)
	}
	switch {
	case h.unsloth().on(): // LLaMA-Factory, model/model_utils/unsloth.py
		h.set(key, "full", h.unsloth().from)
		h.set("train.offload_activations", true, h.unsloth().from)
	case a.open != "":
		h.open(key, a.from, a.open)
	case a.on() && !a.given && h.speaks(llamaFactory):
		h.set(key, "full", h.without("disable_gradient_checkpointing"))
		h.reentrant()
	case a.on():
		h.set(key, "full", a.from)
		if g := h.get("gradient_checkpointing"); adapted || g.on() && g.from == a.from && !h.mentions("train.offload_activations") { // not FSDP's own, nor those of what streams activations
			h.reentrant()
		}
		if a.value != "offload" && !slices.Contains([]string{"true", "True", "yes", "1"}, a.value) {
			h.note("%s %s: inputs of layers are taken to stay on the GPU", a.from, a.value)
		}
	case a.value != "" && a.given:
		h.set(key, "none", a.from)
	case a.value != "":
		h.set(key, "none", h.without("gradient_checkpointing"))
	case h.speaks(trl):
		h.open(key, h.without("gradient_checkpointing"), "TRL turned it on by default in 2025: give the key")
	}
}

// away sets that activations go to the host, as TRL does it, and returns what says so.
func (h *hub) away() argument {
	a := h.get("activation_offloading")
	said := a.value
	if g := h.get("gradient_checkpointing"); g.value == "offload" {
		a, said = argument{value: "true", from: g.from}, g.value
	}
	switch {
	case !a.on():
		return argument{}
	case !h.says("runtime.recipe", "hf-eager") || !strings.EqualFold(a.value, "true"):
		h.note("%s %s: activations are taken to stay on the GPU", a.from, said)
	default:
		h.set("train.offload_activations", true, a.from)
	}
	return a
}

// adapted reports whether low-rank adapters are trained. To Axolotl its key alone says so
// (loaders/adapter.py, load_adapter).
func (h *hub) adapted() bool {
	whole := h.speaks(axolotl) && h.get("adapter").value == ""
	return h.get("use_peft").on() || h.get("use_peft").value == "" && h.given["lora_r"].value != "" && !whole
}

// loraKernels says whether adapters run in Axolotl's functions with gradients by hand: where a file asks for them,
// or, since 2025-04, names none of them and nothing speaks against it (utils/schemas/config.py,
// check_auto_enable_lora_kernels).
func (h *hub) loraKernels() {
	names := []string{"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"}
	var on, off []argument
	for _, n := range names {
		switch a := h.get(n); {
		case a.on():
			on = append(on, a)
		case a.value != "":
			off = append(off, a)
		}
	}
	dropout, part := h.get("lora_dropout"), len(on) > 0 && len(on) < len(names)
	switch {
	case len(on) == 0 && (len(off) > 0 || h.get("rl").on() || h.get("load_in_8bit").on() || h.get("trust_remote_code").on()):
	case dropout.on() && len(on) == 0:
		h.note("%s Axolotl from 2026-03 on runs functions of its own for adapters with dropout, too, which are not known", h.without(names[0]))
	case dropout.on():
		h.note("%s: what it runs beside dropout (%s) is not known", on[0].from, dropout.from)
	case h.get("torch_compile").on() || h.kind == byFSDP && h.get("fsdp.version").value != "2":
		if len(on) > 0 {
			h.note("%s: its kernels are not known of what is compiled or under FSDP1", on[0].from)
		}
	case part:
		h.note("%s alone: runtime.lora_kernels is all of %s", on[0].from, strings.Join(names, ", "))
	case len(on) > 0:
		h.set("runtime.lora_kernels", true, on[0].from)
	default:
		h.set("runtime.lora_kernels", true, h.without(names[0])+" Axolotl's own since 2025-04")
	}
}

// tunings are the ways of training that are told apart, by the arguments that choose them.
var tunings = []struct {
	name  string
	kinds []string
}{{"finetuning_type", []string{"lora", "full", "freeze", "oft"}}, {"adapter", []string{"lora", "qlora"}}}

func (h *hub) adapters() {
	if kind := h.get("finetuning_type"); kind.value == "freeze" || kind.value == "oft" {
		h.note("%s %s: all parameters are taken to be trained", kind.from, kind.value)
	}
	for _, of := range tunings {
		if a := h.get(of.name); a.given && a.open == "" && a.value != "" && !slices.Contains(of.kinds, a.value) {
			h.note("%s %s: which is taken for what the other arguments say", a.from, a.value)
		}
	}
	if !h.adapted() {
		if r := h.given["lora_r"]; h.speaks(axolotl) && r.value != "" {
			h.note("%s %s: without adapter Axolotl trains the whole model and heeds no lora_ keys; give adapter: lora for adapters", r.from, r.value)
		}
		return
	}
	if !h.put("train.lora.rank", "lora_r") {
		h.open("train.lora.rank", h.without("lora_r"), "give the key")
	}
	for _, n := range []struct{ name, key string }{{"lora_alpha", "train.lora.alpha"}, {"lora_dropout", "train.lora.dropout"}} {
		if a := h.get(n.name); a.on() {
			if v, err := strconv.ParseFloat(a.value, 64); err == nil {
				h.set(n.key, v, a.from)
			}
		}
	}
	h.targets()
	if h.speaks(axolotl) {
		h.loraKernels()
	}
}

// images notes which parts of a model with images are not trained, as a job says beside how many
// images there are, which no file has.
func (h *hub) images() {
	m := specOf(h.textOf("model"))
	if m == nil || m.Vision == nil {
		return
	}
	var frozen, by []string
	for _, part := range []string{"encoder", "projector"} {
		switch a := h.get("images." + part); {
		case a.on() && !h.adapted(): // beside which both are frozen anyhow
			frozen, by = append(frozen, part), append(by, a.from)
		case a.given && !a.on() && h.adapted():
			h.note("%s %s: the %s is taken to be frozen, as beside adapters", a.from, a.value, part)
		}
	}
	if len(frozen) > 0 {
		h.note("%s: beside train.images give train.images.frozen: [%s]", strings.Join(slices.Compact(by), ", "), strings.Join(frozen, ", "))
	}
}

// rest says what else there is.
func (h *hub) rest() {
	h.allocates()
	h.images()
	for _, c := range trainerKeys().costly {
		a, free := h.get(c.Key), strings.Fields(c.Free)
		if dear := slices.DeleteFunc(slices.Clone(a.all()), func(w string) bool { return slices.Contains(free, w) }); a.on() && (c.Free == "" || len(dear) > 0) {
			h.charge(c, a.from, strings.Join(dear, " "))
		}
	}
}
