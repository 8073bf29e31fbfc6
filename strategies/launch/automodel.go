package launch

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
)

const (
	hubRecipe     = "automodel"
	expertsRecipe = "automodel-moe"
)

// scheduled tells a configuration of NeMo AutoModel.
var scheduled = lazily(`(?m)^step_scheduler:[ \t]*([{#].*)?$`)

// autoKeys are its keys that no key of a job stands for.
var autoKeys = keysOf("automodel")

// expertKernels are those of them that dense models do not read.
var expertKernels = []string{"model.backend.linear", "model.backend.rms_norm", "model.backend.attn", "model.backend.experts", "model.force_hf"}

// autoOptimizers are Adam's by their Python names.
var autoOptimizers = []string{"torch.optim.Adam", "torch.optim.AdamW"}

// autoModel is a configuration of NeMo AutoModel on its way to a job
// (nemo_automodel/recipes/llm/train_ft.py and components/*/config.py of main of 2026-08; older
// files have what splits a pipeline, and what wraps layers, at the top).
type autoModel struct {
	*Job
	doc     *yamlx.Document
	known   *model.Spec // nil: it is not in the catalog
	experts bool
	wrong   error // the first value that cannot be
}

// automodel reads a configuration of NeMo AutoModel (YAML).
func (j *Job) automodel(d *yamlx.Document) error {
	a := &autoModel{Job: j, doc: d}
	for _, key := range []string{"model", "step_scheduler.global_batch_size"} {
		if a.node(key) == nil {
			return &diag.Error{File: d.Name, Message: "is no configuration of NeMo AutoModel: it has no key " + key + "; give one that automodel starts a training of a language model with"}
		}
	}
	for _, key := range []string{"model", "model.backend", "distributed", "distributed.pipeline", "distributed.moe", "step_scheduler", "dataset", "packed_sequence", "peft", "optimizer", "loss_fn"} {
		if n := a.node(key); n != nil && n.Kind != yaml.MappingNode {
			return d.Errorf(n, "%s: is no mapping; give its keys", key)
		}
	}
	a.model()
	a.runtime()
	j.allocates(environment(d, "ci", "env_vars"))
	a.plan()
	a.train()
	a.adapters()
	if a.node("freeze_config") != nil && a.known != nil && a.known.Vision != nil && a.text("freeze_config.freeze_vision_tower") != "false" && a.node("peft") == nil { // components/utils/model_utils.py
		j.note("freeze_config.freeze_vision_tower: beside train.images give train.images.frozen: [encoder]")
	}
	for _, c := range autoKeys().costly {
		if v := a.text(c.Key); v != "" && !slices.Contains(strings.Fields(c.Free), v) && (a.experts || !slices.Contains(expertKernels, c.Key)) {
			j.note("%s", strings.TrimSuffix(c.Key+" "+v+": "+c.Why, ": "))
		}
	}
	return a.wrong
}

func (a *autoModel) node(key string) *yaml.Node {
	n := a.doc.At(strings.Split(key, ".")...)
	if n != nil && (n.Tag == "!!null" || n.Value == "none" || n.Value == "None") {
		return nil
	}
	return n
}

// text is the value of the first key that is there, "" where none is; of mappings and lists
// that there is one.
func (a *autoModel) text(keys ...string) string {
	n, _ := a.first(keys...)
	switch {
	case n == nil:
		return ""
	case n.Kind == yaml.ScalarNode && n.Tag == "!!bool":
		return strings.ToLower(n.Value)
	case n.Kind == yaml.ScalarNode:
		return n.Value
	}
	return "a list or mapping"
}

func (a *autoModel) first(keys ...string) (*yaml.Node, string) {
	for _, k := range keys {
		if n := a.node(k); n != nil {
			return n, k
		}
	}
	return nil, ""
}

// on reports whether a key is true.
func (a *autoModel) on(key string) bool {
	v := a.text(key)
	if v != "" && v != "true" && v != "false" && a.wrong == nil {
		a.wrong = a.doc.Errorf(a.node(key), "%s: %q; give true or false", key, v)
	}
	return v == "true"
}

// whole is a whole number from 1 on and its key; 0: it is not there.
func (a *autoModel) whole(keys ...string) (int64, string) {
	n, key := a.first(keys...)
	if n == nil {
		return 0, ""
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if (err != nil || v < 1) && a.wrong == nil {
		a.wrong = a.doc.Errorf(n, "%s: %q; give a whole number from 1 on", key, a.text(key))
	}
	return v, key
}

// model is the catalog's, where that has it.
func (a *autoModel) model() {
	n, from := a.first("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path", "model.config.name_or_path", "model.config")
	ep, _ := a.whole("distributed.ep_size")
	a.experts = ep > 1 || a.node("model.backend.experts") != nil
	switch {
	case n == nil:
		a.open("model", "model", "the file does not name it: give the key")
	case n.Kind != yaml.ScalarNode || model.Named(n.Value) == "":
		what := n.Value
		if n.Kind != yaml.ScalarNode {
			what = "what it builds"
		}
		a.open("model", from, what+" is not in the catalog: give the key, which may be the folder of the model or its config.json")
	default:
		name := model.Named(n.Value)
		a.set("model", name, from+" "+n.Value)
		if m := specOf(name); m != nil {
			a.known, a.experts = m, m.MoE != nil
		}
		if a.node("model.config.num_hidden_layers") != nil {
			a.note("model.config: what it says of the model's sizes; give the keys of model")
		}
	}
}

// runtime chooses between classes of Hugging Face and AutoModel's own.
func (a *autoModel) runtime() {
	if n, from := a.first("distributed._target_", "autopipeline", "parallelizer", "model.backend.enable_deepep"); n != nil {
		a.open("runtime.release", from, `an AutoModel of 2026-02 or before reads it, and today's is taken: give the key, as in "25.12"`)
	}
	if !a.experts {
		a.set("runtime.recipe", hubRecipe, "")
		if name := a.text("model.attn_implementation"); name != "" {
			if kernel, ok := attentions[name]; ok {
				a.set("runtime.attention", kernel, "model.attn_implementation")
			} else {
				a.note("model.attn_implementation %s: give runtime.attention", name)
			}
		}
		if liger := "model.use_liger_kernel"; !a.on(liger) && a.node(liger) != nil { // true leaves it to AutoModel, as nothing does
			a.set("runtime.liger_kernels", false, liger)
		}
		if a.on("peft.use_triton") {
			a.set("runtime.triton_adapters", true, "peft.use_triton")
		}
	} else {
		a.set("runtime.recipe", expertsRecipe, "a model with experts")
		switch d := a.text("model.backend.dispatcher"); {
		case d == "deepep" || d == "hybridep":
			a.set("runtime.token_dispatcher", d, "model.backend.dispatcher")
		case a.on("model.backend.enable_deepep"): // until 2026
			a.set("runtime.token_dispatcher", "deepep", "model.backend.enable_deepep")
		case d != "":
			a.note("model.backend.dispatcher %s: DeepEP's exchanges are taken", d)
		}
	}
	switch of := a.text("loss_fn._target_"); {
	case strings.HasSuffix(of, "FusedLinearCrossEntropy"):
		a.set("runtime.fused_linear_cross_entropy", true, "loss_fn")
		a.set("runtime.cross_entropy_impl", "cut-unfiltered", "loss_fn, filter_eps None (components/loss/linear_ce.py)")
	case strings.HasSuffix(of, "MaskedCrossEntropy"):
		if a.experts && a.text("loss_fn.fp32_upcast") != "false" {
			a.note("loss_fn.fp32_upcast true: logits are taken to stay in 16 bits, as its benchmarks have them")
		}
	case of != "":
		a.note("loss_fn %s: logits are taken to be held whole", of[strings.LastIndex(of, ".")+1:])
	}
}

// counted says how many GPUs the degrees come to, where that of replicas is a number (components/distributed/mesh_utils.py),
// or that there are several nodes of them.
func (a *autoModel) counted() {
	n, at := a.whole("distributed.dp_size")
	for _, key := range []string{"tp", "pp", "cp"} {
		v, _ := a.whole("distributed." + key + "_size")
		n *= max(v, 1)
	}
	nodes, of := a.whole("benchmark.num_nodes")
	switch {
	case n > 0:
		a.set("gpus", n, at+" times the other sizes")
	case nodes > 1:
		a.open("gpus", of, strconv.FormatInt(nodes, 10)+" nodes: give their GPUs")
	}
}

// plan reads degrees; a file without one leaves it at 1.
func (a *autoModel) plan() {
	a.counted()
	for _, key := range []string{"tp", "pp", "cp", "ep"} {
		if v, at := a.whole("distributed." + key + "_size"); v > 1 || at != "" && (key == "tp" || key == "pp") {
			a.set("plan."+key, v, at)
		}
	}
	switch s := a.text("distributed.strategy"); s {
	case "":
		a.set("plan.data_parallel", "fsdp2", "default of distributed.strategy")
	case "fsdp2", "ddp":
		a.set("plan.data_parallel", s, "distributed.strategy")
	default:
		a.open("plan.data_parallel", "distributed.strategy", s+" has no recipe: give the key")
	}
	shards, _ := a.whole("distributed.dp_size")
	switch replicas, at := a.whole("distributed.dp_replicate_size"); {
	case replicas > 1 && shards >= replicas:
		a.set("plan.shard_degree", shards/replicas, "distributed.dp_size over "+at)
	case replicas > 1:
		a.open("plan.shard_degree", at, "the data-parallel ranks over "+strconv.FormatInt(replicas, 10)+": give the key")
	}
	if a.on("distributed.sequence_parallel") {
		a.set("plan.sequence_parallel", true, "distributed.sequence_parallel")
	}
	reshard := "distributed.reshard_after_forward"
	if a.experts {
		reshard = "distributed.moe.reshard_after_forward"
	}
	switch on := a.on(reshard); {
	case a.text(reshard) != "":
		a.set("plan.reshard_after_forward", on, reshard)
	case a.experts && a.node("distributed.moe") != nil:
		a.set("plan.reshard_after_forward", false, "default of "+reshard)
	}
	if pp, _ := a.whole("distributed.pp_size"); pp > 1 {
		a.stages(pp)
	}
}

// pipelineKeys are the keys that say something of a pipeline, the second that of older files.
func pipelineKeys(name string) []string {
	return []string{"distributed.pipeline." + name, "autopipeline." + name}
}

// stages cuts a model in stages that differ by a layer at most, the first the larger, which ranks
// take in turn (components/distributed/pipelining/functional.py, calculate_virtual_stages).
func (a *autoModel) stages(pp int64) {
	name := a.text(pipelineKeys("pp_schedule")...)
	schedule, ok := titanSchedules[strings.ToLower(name)]
	if name == "" {
		schedule, ok = "1f1b", true
	}
	_, from := a.first(pipelineKeys("pp_schedule")...)
	if !ok {
		a.open("plan.schedule", from, name+" is not known: give the key")
		return
	}
	from = cmp.Or(from, "default of "+pipelineKeys("pp_schedule")[0])
	a.set("plan.schedule", schedule, from)
	stages := pp // of schedules that have one on each rank
	several := schedule != "1f1b" && schedule != "gpipe"
	if several {
		stages = 2 * pp
	}
	each, at := a.whole(pipelineKeys("layers_per_stage")...)
	switch {
	case a.wrong != nil:
	case a.known != nil:
		a.virtual(pp, stages, each, at, several)
	case each > 0 && several:
		a.open("plan.virtual_stages", at, "the model's layers over it and the ranks: give the key")
	case several:
		a.set("plan.virtual_stages", stages/pp, "without "+pipelineKeys("layers_per_stage")[0])
	}
}

// virtual sets the stages of a rank: there are so many stages in all, or, where each is above 0, as
// many as have each layers.
func (a *autoModel) virtual(pp, stages, each int64, at string, several bool) {
	layers, from := a.known.Layers, at
	if each == 0 {
		from = "without " + pipelineKeys("layers_per_stage")[0]
	} else {
		refuse := func(n int64, why string) {
			node, _ := a.first(at)
			a.wrong = a.doc.Errorf(node, "%s: %d makes %d stages of %d layers, %s, which AutoModel refuses; give another, or round_virtual_stages_to_pp_multiple", at, each, n, layers, why)
		}
		stages = (layers + each - 1) / each
		switch round := a.text(pipelineKeys("round_virtual_stages_to_pp_multiple")...); {
		case stages%pp == 0:
		case round == "down":
			stages -= stages % pp
		case round == "up":
			stages += pp - stages%pp
		default:
			refuse(stages, fmt.Sprintf("no multiple of the pipeline's %d ranks", pp))
			return
		}
		switch {
		case several && stages < 2*pp:
			refuse(stages, fmt.Sprintf("less than two for each of the pipeline's %d ranks", pp))
			return
		case !several && stages != pp:
			refuse(stages, fmt.Sprintf("more than one for each of the pipeline's %d ranks", pp))
			return
		}
	}
	if several {
		a.set("plan.virtual_stages", stages/pp, from)
	}
}

func (a *autoModel) train() {
	lengths := []string{"dataset.seq_len", "packed_sequence.packed_sequence_size", "dataset.seq_length"}
	if a.text(lengths[1]) == "0" { // not packed
		lengths = slices.Delete(lengths, 1, 2)
	}
	switch n, at := a.whole(lengths...); {
	case at == "dataset.seq_length" && a.text("dataset.padding") != "max_length" && !a.on("dataset.pad_to_max_length"):
		a.open("train.sequence_length", at, "texts are cut there and may be shorter: give the key, the length of a batch")
	case at != "":
		a.set("train.sequence_length", n, at)
		if strings.HasPrefix(at, "packed") {
			a.apart(at)
		}
	default:
		a.open("train.sequence_length", "dataset", "batches are as long as their longest text: give the key")
	}
	a.batches()
	if a.on("model.backend.fake_balanced_gate") && a.experts {
		a.set("train.routing", "in-turn", "model.backend.fake_balanced_gate")
	}
	a.predictions()
	switch kind := a.text("distributed.activation_checkpointing", "parallelizer.activation_checkpointing"); kind {
	case "", "false":
		a.set("train.recompute", "none", "without distributed.activation_checkpointing")
	case "true", "full":
		a.set("train.recompute", "full", "distributed.activation_checkpointing")
	case "selective":
		a.set("train.recompute", "selective", "distributed.activation_checkpointing")
	default:
		a.note("distributed.activation_checkpointing %s: give train.recompute", kind)
	}
	const optimizer = "optimizer._target_"
	switch of := a.text(optimizer); {
	case of == "":
	case !slices.Contains(autoOptimizers, of):
		a.note("optimizer %s: Adam with states in the dtype of the weights is taken", of)
	case a.on("optimizer.fused"):
		a.set("train.optimizer", "adamw-fused", "optimizer.fused")
	case a.text("optimizer.foreach") == "false":
		a.set("train.optimizer", "adamw", "optimizer.foreach")
	default:
		a.set("train.optimizer", "adamw-foreach", optimizer)
	}
	if strings.HasPrefix(a.text("recipe"), "Benchmarking") {
		a.set("train.clip_gradients", false, "recipe")
	} else {
		a.set("train.clip_gradients", true, "clip_grad_norm.max_norm, 1 where left out")
	}
	a.precision()
}

// predictions are the modules of multi-token prediction, which the classes for models with
// experts train (components/models/common/mtp).
func (a *autoModel) predictions() {
	const key, shared = "model.num_nextn_predict_layers", "model.mtp_use_repeated_layer"
	if a.text(key) == "0" { // none
		return
	}
	n, at := a.whole(key)
	switch {
	case n == 0:
	case !a.experts:
		a.note("%s %d: the model is taken as the catalog has it", at, n)
	default:
		a.set("train.mtp_layers", n, at)
		if a.known != nil && n > 1 && a.on(shared) != a.known.MTPShared {
			a.note("%s %v: the model's modules are taken as the catalog has them", shared, a.on(shared))
		}
	}
}

// batches: with a pipeline, pieces of a local batch go through the stages, which are empty after each.
func (a *autoModel) batches() {
	const local = "step_scheduler.local_batch_size"
	batch, at := a.whole(local)
	pp, _ := a.whole("distributed.pp_size")
	switch {
	case at == "":
		a.open("train.micro_batch", local, "the file leaves it out: give the key")
	case pp > 1:
		piece, by := a.whole(pipelineKeys("pp_microbatch_size")...)
		if by == "" {
			piece, by = 1, "default of "+pipelineKeys("pp_microbatch_size")[0]
		}
		if a.wrong == nil && batch%piece != 0 {
			n, _ := a.first(at)
			a.wrong = a.doc.Errorf(n, "%s: %d is no multiple of %s, %d; give one", at, batch, by, piece)
		} else if a.wrong == nil {
			a.set("plan.drain_every", batch/piece, at)
			a.set("train.micro_batch", piece, by)
		}
	default:
		a.set("train.micro_batch", batch, at)
	}
	global, at := a.whole("step_scheduler.global_batch_size")
	a.set("train.global_batch", global, at)
}

// precision: weights keep the dtype that they are loaded in, and are cast to 16 bits for each use
// where it is wider.
func (a *autoModel) precision() {
	kind := strings.TrimPrefix(a.text("model.torch_dtype"), "torch.")
	four := a.on("quantization.load_in_4bit")
	switch {
	case four:
		a.set("train.precision", "nf4-frozen", "quantization.load_in_4bit")
	case kind == "float32" || kind == "fp32":
		a.set("train.precision", "bf16-mixed", "model.torch_dtype")
	case kind == "" || kind == "auto":
		a.set("train.precision", "bf16-pure", "weights are taken to be stored in 16 bits")
	case kind == "bf16" || kind == "bfloat16":
		a.set("train.precision", "bf16-pure", "model.torch_dtype")
	default:
		a.open("train.precision", "model.torch_dtype", kind+" has none: give the key")
	}
	if a.on("quantization.load_in_8bit") {
		a.note("quantization.load_in_8bit true: weights are taken to be of 16 bits")
	}
	if a.node("peft") == nil && !a.experts {
		a.set("train.dtypes.reduce", "fp32", "default of distributed.mp_policy")
	}
}

// adapters: patterns name modules by the end of their names (components/_peft/module_matcher.py).
func (a *autoModel) adapters() {
	if a.node("peft") == nil {
		return
	}
	if a.experts {
		a.note("peft: what adapters beside AutoModel's experts take is not known; without train.lora all is taken to be trained")
	}
	rank, from := a.whole("peft.dim")
	if from == "" {
		rank, from = 8, "default of peft.dim"
	}
	a.set("train.lora.rank", rank, from)
	for _, k := range []string{"alpha", "dropout"} {
		at := "peft." + k
		v, err := strconv.ParseFloat(cmp.Or(a.text(at), "0"), 64)
		if err != nil && a.wrong == nil {
			a.wrong = a.doc.Errorf(a.node(at), "%s: %q; give a number", at, a.text(at))
		} else if v > 0 {
			a.set("train.lora."+k, v, at)
		}
	}
	n := a.node("peft.target_modules")
	if a.on("peft.match_all_linear") || n == nil {
		return // as a job has it that names none
	}
	patterns := n.Content
	if n.Kind == yaml.ScalarNode {
		patterns = []*yaml.Node{n}
	}
	var names []string
	for _, p := range patterns {
		if last := leaf(p.Value); last == "*" || last == "*_proj" {
			return
		}
		names = append(names, p.Value)
	}
	a.adapt("peft.target_modules", names, func(pattern string) func(string) bool {
		return func(module string) bool {
			ok, _ := path.Match(leaf(pattern), leaf(module))
			return ok
		}
	})
}
