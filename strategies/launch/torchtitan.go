package launch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"github.com/perfplan/perfplan/internal/diag"
)

// titanModels are torchtitan's models in this program's catalog (torchtitan/models, flavors).
var titanModels = map[string]string{
	"llama3 8B": "llama3-8b", "llama3 70B": "llama3-70b", "llama3 405B": "llama3.1-405b", "llama4 17bx16e": "llama4-scout", "llama4 17bx128e": "llama4-maverick",
	"deepseek_v3 16B": "deepseek-v2-lite", "deepseek_v3 671B": "deepseek-v3", "qwen3 0.6B": "qwen3-0.6b", "qwen3 1.7B": "qwen3-1.7b", "qwen3 4B": "qwen3-4b", "qwen3 8B": "qwen3-8b",
	"qwen3 14B": "qwen3-14b", "qwen3 32B": "qwen3-32b", "qwen3 30B-A3B": "qwen3-30b-a3b", "qwen3 235B-A22B": "qwen3-235b-a22b", "gpt_oss 20b": "gpt-oss-20b", "gpt_oss 120b": "gpt-oss-120b",
}

// titanSchedules are PyTorch's schedules by the names that they have here.
var titanSchedules = map[string]string{"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved-1f1b", "loopedbfs": "looped-bfs", "interleavedzerobubble": "interleaved-zero-bubble", "zbvzerobubble": "zb-v", "dualpipev": "dualpipe-v"}

// titanKeys are those of its configurations, those of titanTables without the table.
var titanKeys = keysOf("torchtitan")

const (
	converted     = "converters"
	faultTolerant = "torchft"
)

// torchtitan reads a configuration of torchtitan, as it was until 2026-02 (TOML).
func (j *Job) torchtitan(name string, text []byte) error {
	j.toml = text
	return j.titan(name, text, nil)
}

// titan reads a configuration with what a command line has instead.
func (j *Job) titan(name string, text []byte, over map[string]string) error {
	var root map[string]any
	if err := toml.Unmarshal(text, &root); err != nil {
		e := &diag.Error{File: name, Message: fmt.Sprintf("is no TOML: %v; correct it", err)}
		var at *toml.DecodeError
		if errors.As(err, &at) {
			e.Line, e.Col = at.Position()
		}
		return e
	}
	overridden(root, over)
	c := &table{root: root}
	if c.at("training") == nil || c.at("model") == nil {
		hint := ""
		for _, table := range []string{"training", "model"} {
			if near := misspelt(table, slices.Sorted(maps.Keys(root))); c.at(table) == nil && near != "" {
				hint = fmt.Sprintf("; did you mean [%s] by [%s]?", table, near)
			}
		}
		return &diag.Error{File: name, Message: "is no configuration of torchtitan: it has no tables [model] and [training]; give one of its train_configs" + hint}
	}
	j.titanReads(c)
	for i := range j.Settings {
		j.Settings[i].From, _ = sources(j.Settings[i].From, over, nil, "")
	}
	if c.wrong != "" {
		return &diag.Error{File: name, Line: tomlLine(string(text), c.wrongKey()), Col: 1, Message: c.wrong}
	}
	return nil
}

// titanReads says what the keys of a configuration mean, wherever they come from.
func (j *Job) titanReads(c *table) {
	if id, ok := c.model(); ok {
		j.set("model", id, "model.name, model.flavor")
	} else {
		j.open("model", "model.flavor", fmt.Sprintf("%s of %s is not known: give the key", c.text("model.flavor"), c.text("model.name")))
	}
	j.titanRuntime(c)
	j.titanPlan(c)
	j.titanTrain(c)
	j.titanOptimizer(c)
	var with []string
	for _, d := range titanDegrees {
		if v, _ := c.first(d.name); v > 1 {
			with = append(with, d.key)
		}
	}
	if list, _ := c.at("model.converters").([]any); len(list) > 0 || c.on("float8.enable_float8_linear") {
		with = append(with, converted)
	}
	if c.on("fault_tolerance.enable") {
		with = append(with, faultTolerant)
	}
	j.titanLeft(c.root, "", with)
}

var tomlTable = lazily(`^\s*\[([\w.]+)\]`)

// tomlLine is the line of a key that tables before it and dots in it make, 1 where it is not found.
func tomlLine(text, key string) int {
	in, n := "", 0
	for line := range strings.Lines(text) {
		n++
		if m := tomlTable().FindStringSubmatch(line); m != nil {
			in = m[1] + "."
		}
		if name, _, ok := strings.Cut(line, "="); ok && in+strings.TrimSpace(name) == key {
			return n
		}
	}
	return 1
}

func (j *Job) titanRuntime(c *table) {
	recipe, from := "torchtitan-eager", "without compile.enable"
	if c.on("compile.enable") || c.on("training.compile") {
		parts, given := c.at("compile.components").([]any)
		switch layers, loss := slices.Contains(parts, any("model")), slices.Contains(parts, any("loss")); {
		case given && !layers:
			if from = "compile.components"; loss {
				j.set("runtime.fused_cross_entropy", true, from)
			}
		case given && !loss:
			j.note("compile.components %v: the loss is taken to be compiled, as layers are", parts)
			fallthrough
		default:
			recipe, from = "torchtitan", "compile.enable"
		}
	}
	j.set("runtime.recipe", recipe, from)
	for _, k := range []string{"compile.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel", "experimental.enable_async_tensor_parallel"} {
		if c.on(k) {
			j.set("runtime.tp_overlap", true, k)
		}
	}
	if !c.partial { // components/loss.py, ChunkedCELoss, came two months after configurations in Python
		j.set("runtime.loss_chunks", int64(1), "a TOML, of releases that had no chunks")
	} else if n, ok := c.number("loss.num_chunks"); ok {
		j.set("runtime.loss_chunks", n, "loss.num_chunks")
	}
	tp, _ := c.first("tensor_parallel_degree")
	for _, in := range titanTables {
		if k := in + "disable_loss_parallel"; tp > 1 && c.on(k) {
			j.set("runtime.loss_parallel", false, k)
		}
	}
}

// titanDegrees are the ranks of each kind.
var titanDegrees = []struct{ name, key string }{{"tensor_parallel_degree", "tp"}, {"pipeline_parallel_degree", "pp"}, {"context_parallel_degree", "cp"}, {"expert_parallel_degree", "ep"}, {"expert_tensor_parallel_degree", "expert_tp"}}

// titanPlan reads degrees, which older versions had in other tables.
func (j *Job) titanPlan(c *table) {
	for _, d := range titanDegrees {
		if v, at := c.first(d.name); at != "" && (v > 1 || d.key == "tp" || d.key == "pp") {
			j.set("plan."+d.key, v, at)
		}
	}
	replicas, at := c.first("data_parallel_replicate_degree")
	shard, by := c.first("data_parallel_shard_degree")
	tp, _ := c.first("tensor_parallel_degree")
	pp, _ := c.first("pipeline_parallel_degree")
	cp, _ := c.first("context_parallel_degree")
	if shard >= 1 { // else it is what the ranks leave (distributed/parallel_dims.py)
		j.set("gpus", shard*max(replicas, 1)*max(tp, 1)*max(pp, 1)*max(cp, 1), by+" times the other degrees")
	}
	whole := replicas > 1 && shard == 1 && cp <= 1
	if whole {
		j.set("plan.data_parallel", "ddp", at+", "+by)
	} else {
		j.set("plan.data_parallel", "fsdp2", "")
	}
	switch {
	case whole:
	case replicas > 1 && shard >= 1: // context ranks hold shards, too
		j.set("plan.shard_degree", shard*max(cp, 1), by)
	case replicas > 1:
		j.note("%s %d: give plan.shard_degree, the GPUs over %s", at, replicas, copies(replicas, max(tp, 1), max(pp, 1)))
	}
	for _, in := range titanTables {
		if always, ok := map[string]bool{"always": true, "never": false}[c.text(in+"fsdp_reshard_after_forward")]; ok && !whole {
			j.set("plan.reshard_after_forward", always, in+"fsdp_reshard_after_forward")
		}
		if s := c.text(in + "pipeline_parallel_schedule"); s != "" {
			if known, ok := titanSchedules[strings.ToLower(s)]; ok && pp > 1 {
				j.set("plan.schedule", known, in+"pipeline_parallel_schedule")
				j.titanStages(c, known, pp)
			} else if pp > 1 {
				j.note("%spipeline_parallel_schedule %s: which is not known; give plan.schedule", in, s)
			}
		}
	}
}

// titanStages says how many stages each rank of a pipeline has: two, unless stages have so many
// layers each, or the schedule has one on each.
func (j *Job) titanStages(c *table, schedule string, pp int64) {
	if schedule == "1f1b" || schedule == "gpipe" {
		return
	}
	const key = "plan.virtual_stages"
	each, at := c.first("pipeline_parallel_layers_per_stage")
	if each <= 0 {
		j.set(key, int64(2), "without pipeline_parallel_layers_per_stage")
		return
	}
	id, _ := c.model()
	m := specOf(id)
	if m == nil {
		j.open(key, at, "the model's layers over it and the ranks: give the key")
		return
	}
	// Embedding and output layer count as layers since 2025 (pipeline_parallel.py, pipeline_llm).
	for _, ends := range []int64{c.less("first") + c.less("last"), 0} {
		if stages := (m.Layers + ends + each - 1) / each; stages%pp == 0 {
			j.set(key, stages/pp, fmt.Sprintf("%s, of %d layers", at, m.Layers))
			return
		}
	}
	j.open(key, at, fmt.Sprintf("%d layers make %d stages of %d, no multiple of the pipeline's %d ranks: give the key", m.Layers, (m.Layers+each-1)/each, each, pp))
}

// less is how many layers less the first or the last stage of a pipeline has.
func (t *table) less(end string) int64 {
	if n, ok := t.at("parallelism.pipeline_parallel_" + end + "_stage_less_layers").(int64); ok {
		return n
	}
	return 1
}

// titanOptimizers are torch's ways of an update by their names; older versions had a switch.
var titanOptimizers = map[string]string{"fused": "adamw-fused", "foreach": "adamw-foreach", "for-loop": "adamw", "true": "adamw-fused", "false": "adamw-foreach"}

func (j *Job) titanOptimizer(c *table) {
	if name := c.text("optimizer.name"); name != "" && name != "AdamW" && name != "Adam" {
		states := "fp32"
		if c.text("training.dtype") == "bfloat16" {
			states = "bf16, as weights are,"
		}
		j.note("optimizer.name %s: AdamW with states in %s is taken", name, states)
	}
	for _, k := range []string{"optimizer.implementation", "optimizer.fused"} {
		if how := c.text(k); titanOptimizers[how] != "" {
			j.set("train.optimizer", titanOptimizers[how], k)
			return
		} else if how != "" {
			j.note("%s %s: which is not known; give train.optimizer", k, how)
		}
	}
}

// titanNames are all of them that are known, with their tables.
var titanNames = sync.OnceValue(func() (out []string) {
	for _, k := range titanKeys().known() {
		if strings.Contains(k, ".") {
			out = append(out, k)
			continue
		}
		for _, in := range titanTables {
			out = append(out, in+k)
		}
	}
	slices.Sort(out)
	return out
})

// titanLeft notes which keys cost something that no key of a job stands for, and lists those that
// nobody knows; with are the kinds of ranks that a job has, and whether it converts its model.
func (j *Job) titanLeft(in map[string]any, table string, with []string) {
	keys := titanKeys()
	for _, name := range slices.Sorted(maps.Keys(in)) {
		key, bare := table+name, name
		if !slices.Contains(titanTables, table) {
			bare = key
		}
		within, nested := in[name].(map[string]any)
		switch {
		case slices.Contains([]string{"quantize", "float8", "mx"}, key) && !slices.Contains(with, converted): // not in use
		case nested:
			j.titanLeft(within, key+".", with)
		case keys.read[key] || keys.read[bare] || keys.harmless.MatchString(key):
		case j.costs(keys.costly, bare, key, fmt.Sprint(in[name]), with...) || j.costs(keys.costly, key, key, fmt.Sprint(in[name]), with...):
		default:
			given := func(near string) bool { _, ok := in[strings.TrimPrefix(near, table)]; return ok }
			j.ignore(key, key, titanNames(), given, func(near string) string { return near })
		}
	}
}

// What a batch is where nothing is said (torchtitan/config/job_config.py).
const titanLength, titanBatch = 2048, 8

// titanDTypes are the dtypes of a job that a key says, unless it has its own value. That of
// training is the one that the model and its optimizer are made in, without a wider copy.
var titanDTypes = []struct {
	from, standard string
	keys           []string
}{{"mixed_precision_param", "bf16", []string{"compute"}}, {"mixed_precision_reduce", "fp32", []string{"reduce"}}, {"dtype", "fp32", []string{"weights", "gradients", "moments"}}}

// titanTokens is how many tokens a rank's piece of a batch has, titanStep how many those of all
// ranks together have in a step, and titanContext how long a sequence is, where torchtitan counts
// tokens, as it does since 2026-08.
const (
	titanTokens  = "training.num_tokens_per_microbatch_per_dp_rank"
	titanStep    = "training.num_tokens_per_train_step"
	titanContext = "training.max_context_length"
)

// titanBatches says what a step trains on: so many sequences of a length on each rank, or as many
// as so many tokens make.
func (j *Job) titanBatches(c *table) {
	length, from := c.either(titanLength, "training.seq_len", titanContext)
	j.set("train.sequence_length", length, from)
	local, at := c.either(titanBatch, "training.local_batch_size", "training.batch_size")
	all, whole := c.either(0, "training.global_batch_size", titanStep)
	each := max(length, 1) // what is less is refused
	if whole == titanStep {
		all, whole = all/each, whole+", "+from
	}
	micro, by := local, at
	times, per := int64(1), "without training.global_batch_size"
	pp, _ := c.first("pipeline_parallel_degree")
	switch tokens, ok := c.number(titanTokens); {
	case ok:
		micro, by = tokens/each, titanTokens+", "+from
		if pp > 1 {
			times, per = c.either(1, "parallelism.num_pp_microbatches")
		}
		if tokens%each != 0 {
			j.open("train.micro_batch", by, fmt.Sprintf("%d tokens are no whole number of sequences of %d: give the key", tokens, each))
			micro = 0
		}
	case pp > 1: // pieces of a local batch go through the stages
		if micro, by = c.first("pipeline_parallel_microbatch_size"); micro == 0 {
			micro, by = 1, "default of pipeline_parallel_microbatch_size"
		}
		times, per = local/micro, at
	}
	if micro > 0 {
		j.set("train.micro_batch", micro, by)
	}
	switch {
	case all > 0 && pp > 1: // local batches, after each of which the pipeline is empty
		j.set("plan.drain_every", times, per)
		fallthrough
	case all > 0:
		j.set("train.global_batch", all, whole)
	default:
		j.set("train.grad_accumulation", times, per)
	}
}

func (j *Job) titanTrain(c *table) {
	j.titanBatches(c)
	switch mode := c.text("activation_checkpoint.mode"); mode {
	case "none", "full":
		j.set("train.recompute", mode, "activation_checkpoint.mode")
	case "selective", "":
		option := c.text("activation_checkpoint.selective_ac_option")
		if n, err := number(option); err == nil { // every so many layers, whole
			j.set("train.recompute", "full", "activation_checkpoint.mode selective")
			j.set("train.recompute_method", "every", "activation_checkpoint.selective_ac_option")
			j.set("train.recompute_num_layers", int64(n), "activation_checkpoint.selective_ac_option")
			break
		}
		if option == "" && !c.partial {
			j.note("activation_checkpoint.selective_ac_option is left out, whose default differs between versions: what matrix multiplies make is taken to be kept (op)")
		}
		j.set("train.recompute", "selective", "activation_checkpoint.mode")
	default:
		j.note("activation_checkpoint.mode %s", mode)
	}
	j.titanNarrow(c)
	for _, p := range titanDTypes {
		v, known := map[string]string{"bfloat16": "bf16", "float32": "fp32"}[c.text("training."+p.from)]
		if known && v != p.standard {
			for _, key := range p.keys {
				j.set("train.dtypes."+key, v, "training."+p.from)
			}
		}
	}
	if c.on("optimizer.early_step_in_backward") {
		j.note("optimizer.early_step_in_backward true")
	}
	if c.on("training.enable_cpu_offload") {
		j.set("plan.offload", "parameters", "training.enable_cpu_offload")
	}
}

// titanNarrow says in what layers multiply and parameters are gathered: in 8 bits where a
// converter, or the switch that was before them, makes layers so, gathers with a switch of
// their own (torchtitan/components/quantization/float8.py).
func (j *Job) titanNarrow(c *table) {
	var by, gathers string
	for _, k := range []string{"float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather"} {
		if c.on(k) {
			by, gathers = k, k
		}
	}
	if k := "float8.enable_float8_linear"; c.on(k) {
		by = k
	}
	list, _ := c.at("model.converters").([]any)
	for _, name := range list {
		if name != any("float8") && name != any("quantize.linear.float8") {
			j.note("model.converters %v: which dtypes it multiplies and gathers in; give train.precision, train.dtypes.gather", name)
		} else if by == "" {
			by = "model.converters"
		}
	}
	rows := ""
	for _, k := range []string{"float8.recipe_name", "quantize.linear.float8.recipe_name"} {
		if c.text(k) == "rowwise" { // weights are gathered in 16 bits
			rows = k
		}
	}
	switch {
	case by == "":
	case rows != "":
		j.set("train.precision", "fp8-rowwise", rows)
	default:
		j.set("train.precision", "fp8", by)
	}
	if by != "" && gathers == "" && rows == "" {
		j.set("train.dtypes.gather", "bf16", "without enable_fsdp_float8_all_gather")
	}
}

// titanTables are where torchtitan had its degrees, the newest first.
var titanTables = []string{"parallelism.", "training.", "experimental."}

// table is a configuration with its keys, which dots join.
type table struct {
	root    map[string]any
	partial bool   // keys that are not there may be elsewhere
	wrong   string // a key that is not the whole number that it should be, with its value and what to give
}

// wrongKey is that key.
func (t *table) wrongKey() string {
	key, _, _ := strings.Cut(t.wrong, ": ")
	return key
}

func (t *table) at(key string) any {
	var v any = t.root
	for k := range strings.SplitSeq(key, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

func (t *table) text(key string) string {
	if v := t.at(key); v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

func (t *table) on(key string) bool { return t.at(key) == true }

// titanRests are the keys that -1 leaves to the others (torchtitan/config/job_config.py).
var titanRests = []string{"data_parallel_shard_degree", "global_batch_size", "num_tokens_per_train_step"}

func (t *table) number(key string) (int64, bool) {
	at := t.at(key)
	v, ok := at.(int64)
	rests := slices.Contains(titanRests, key[strings.LastIndex(key, ".")+1:])
	if at == nil || v > 0 || rests && v == -1 {
		return v, ok
	}
	t.wrong = fmt.Sprintf("%s: %#v; give a whole number from 1 on", key, at)
	if rests {
		t.wrong += ", or -1"
	}
	return v, ok
}

// either is the number of the first of some keys that has one, and which that is; a fallback where
// none has.
func (t *table) either(fallback int64, keys ...string) (int64, string) {
	for _, k := range keys {
		if v, ok := t.number(k); ok {
			return v, k
		}
	}
	return fallback, "default of " + keys[0]
}

// model is that of the catalog, if it is there.
func (t *table) model() (id string, ok bool) {
	id, ok = titanModels[t.text("model.name")+" "+t.text("model.flavor")]
	return id, ok
}

// first is a number in the newest table that has it, and its key; "": none has.
func (t *table) first(name string) (int64, string) {
	for _, in := range titanTables {
		if v, ok := t.number(in + name); ok {
			return v, in + name
		}
	}
	return 0, ""
}
