package launch

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/strategies/launch/shell"
)

// nanoFile tells a training file after nanoGPT's, a configuration of one or its log: assignments in
// Python, which no shell has with spaces.
var nanoFile = lazily(`(?m)^(?:Overriding: )?(?:block_size|n_layer|n_embd|init_from) += `)

// nanoProgram tells a training file among programs.
var nanoProgram = lazily(`(?m)^n_layer += (?s:.*?)^n_head += `)

// nanoCommand is one that starts such a file.
var nanoCommand = lazily(`(?m)^[^#\n]*\btrain\w*\.py(?:[ \t]+(?:\./)?config/[^ \t\n]+\.py\b|(?:[ \t]+--\w+=\S+)*?[ \t]+--n_(?:layer|head|embd)=)[^\n]*`)

// What their lines say: nanoLine an assignment, or an argument in a log (configurator.py), nanoStep
// what an iteration took.
var (
	nanoLine     = lazily(`(?m)^(?:Overriding: )?([a-z]\w*) *= *([^=\n][^\n]*)$`)
	nanoRun      = lazily(`--(?:block_size|batch_size|gradient_accumulation_steps|init_from|max_iters)=`)
	nanoStarted  = lazily(`\btrain\w*\.py\b`)
	nanoArgument = lazily(`[ \t]--(\w+)=(\S+)`)
	nanoProcess  = lazily(`[^\n]*--nproc[-_]per[-_]node[= ]+(\d+)[^\n]*`)
	nanoAlone    = lazily(`^[ \t$]*(?:\w+=\S+ +)*python3?(?: -u)? +[\w./]*\.py`)
	nanoNodes    = lazily(`--nnodes[= ]+(\d+)`)
	nanoStep     = lazily(`(?m)^iter \d+: loss \S+, time ([0-9.]+)ms`)
	nanoTimed    = lazily(`(?m)^iter \d+: loss \S+, time [0-9.]+ms, mfu `)
	nanoConfig   = lazily(`[ \t](?:\./)?(config/[^ \t]+\.py)\b`)
	nanoWord     = lazily(`^["']([^"']*)["']`)
	nanoProduct  = lazily(`^([-+0-9.e]+(?: *\* *[-+0-9.e]+)*)[ \t]*(?:#.*)?$`)
)

// nanoDefaults are what train.py of nanoGPT @3adf61e assigns.
var nanoDefaults = map[string]string{
	"n_layer": "12", "n_head": "12", "n_embd": "768", "block_size": "1024", "batch_size": "12", "gradient_accumulation_steps": "40", "dropout": "0", "bias": "False",
	"compile": "True", "dtype": "'bfloat16'", "grad_clip": "1", "init_from": "'scratch'", "dataset": "'openwebtext'", "device": "'cuda'",
}

// What forks call what nanoGPT has no name for: heads of keys and values, the width of an MLP, the optimizer.
var (
	nanoHeads  = []string{"n_kv_head", "n_kv_heads", "num_kv_heads", "num_key_value_heads"}
	nanoWidths = []string{"d_ff", "intermediate_size"}
	nanoSteps  = []string{"optimizer", "optimizer_name", "optimizer_type", "optim"}
)

// What names of forks tell of, where they are on: nanoSharded of ranks that share states, nanoOther of another model than GPT-2.
var (
	nanoSharded = lazily(`^(?:use_)?(?:deepspeed|fsdp\d?|zero_?\d)$`)
	nanoOther   = lazily(`(?:^|_)(?:moe|n_experts?|latent|lora|rope|rotary|alibi|rms_?norm|qk_norm|norm_type|swiglu|(?:mlp|ffn)_type|activation|normalization|sliding_window|att(?:entio)?n_type|norm_position|model_type)$|^(?:pos|position)_(?:enc|emb)\w*$`)
)

// plainNano are values of such names that say what nanoGPT has anyway.
var plainNano = []any{nil, false, int64(0), "", "gpt", "GPT", "gpt2", "gelu", "causal", "learned", "learned_absolute", "absolute", "layernorm", "standard", "pre"}

// nanoPretrained are what names are where training begins with OpenAI's weights, whatever else is said of
// them (model.py, from_pretrained); dropout is not among them.
var nanoPretrained = map[any]map[string]any{
	"gpt2":        pretrained(12, 12, 768),
	"gpt2-medium": pretrained(24, 16, 1024),
	"gpt2-large":  pretrained(36, 20, 1280),
	"gpt2-xl":     pretrained(48, 25, 1600),
}

func pretrained(layers, heads, width int64) map[string]any {
	return map[string]any{"n_layer": layers, "n_head": heads, "n_embd": width, "vocab_size": int64(50257), "bias": true}
}

// nanoKeys are further ones.
var nanoKeys = keysOf("nanogpt")

// nano is what the files of a run say: those with a later index go before the others.
type nano struct {
	said  [3]map[string]string
	gpus  int64
	from  string // what says so
	runs  bool   // in the command, not a comment
	file  string // the configuration that the command names
	alone bool   // micro steps are counted by each rank, as train.py did until 2023-04
}

// What may say something of a run after nanoGPT's.
const (
	nanoTraining = iota
	nanoConfiguration
	nanoArguments
)

// ofNano reads a training file after nanoGPT's, a configuration of it, a command that starts one
// or a log; false: it is none.
func (j *Job) ofNano(text string) bool {
	assigns, timed := nanoFile().MatchString(text), nanoTimed().MatchString(text)
	program := python().MatchString(strings.ReplaceAll(text, "import time\n", "")) // by which a configuration names its run
	command := starting(text)
	if !assigns && !program && nanoStarted().MatchString(text) {
		command = cmp.Or(walked(text), command)
	}
	if !assigns && command == "" && !timed || program && !nanoProgram().MatchString(text) || tables().MatchString(text) {
		return false
	}
	n := &nano{}
	for i := range n.said {
		n.said[i] = map[string]string{}
	}
	kind := nanoConfiguration
	if program {
		kind, n.alone, command = nanoTraining, !strings.Contains(text, "gradient_accumulation_steps //="), "" // whose examples are several
	}
	if assigns {
		settings, _, _ := strings.Cut(text, "\nconfig_keys = ") // of all names, which a program computes more of
		for _, part := range []string{settings, text} {
			for _, at := range nanoLine().FindAllStringSubmatch(part, -1) {
				if _, known := nanoDefaults[at[1]]; known || len(part) < len(text) || kind == nanoConfiguration {
					n.said[kind][at[1]] = strings.TrimSpace(at[2])
				}
			}
		}
	}
	_, arguments, _ := strings.Cut(command, ".py")
	for _, at := range nanoArgument().FindAllStringSubmatch(arguments, -1) {
		n.said[nanoArguments][at[1]] = at[2]
	}
	if file := nanoConfig().FindStringSubmatch(arguments); file != nil && !assigns {
		n.file = file[1]
	} else if !assigns && command == "" {
		n.file = "the log's configuration"
	}
	if strings.Contains(command, "deepspeed ") {
		n.said[nanoArguments]["deepspeed"] = "True"
	}
	if n.launched(command); n.gpus == 0 && nanoAlone().MatchString(command) {
		n.gpus, n.from = 1, "python without torchrun"
	}
	if n.gpus > 0 {
		n.runs = true
	} else if kind != nanoTraining {
		n.launched(text)
	}
	j.nano = n
	if all := ofIterations(nanoStep().FindAllStringSubmatch(text, -1)); len(all) > 0 {
		j.clock = all
	}
	j.nanoReads()
	return true
}

// starting is the first command of lines that starts a training file, "" where there is none: it names a
// configuration, or more than the model, which others call so, too.
func starting(lines string) string {
	command := nanoCommand().FindString(lines)
	if !nanoConfig().MatchString(command) && !nanoRun().MatchString(command) {
		return ""
	}
	return command
}

// walked is the first command of a script that starts a training file, "" where there is none.
func walked(script string) string {
	for _, r := range shell.Read(script, slurm) {
		for _, c := range r.Commands {
			line, _ := r.Show(strings.Join(c.Words, " "))
			if command := starting(line); command != "" {
				return command
			}
		}
	}
	return ""
}

// launched takes how many GPUs torchrun starts a process for.
func (n *nano) launched(text string) {
	each := nanoProcess().FindStringSubmatch(text)
	if each == nil {
		return
	}
	nodes := nanoNodes().FindStringSubmatch(each[0])
	if n.gpus, n.from = wholeNumber(each[1]), "--nproc_per_node"; nodes != nil {
		n.gpus, n.from = n.gpus*wholeNumber(nodes[1]), n.from+", --nnodes"
	}
}

func wholeNumber(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// joinNano makes one job of the files of a run.
func joinNano(jobs []*Job) []*Job {
	var one *Job
	var rest []*Job
	for _, j := range jobs {
		switch {
		case j.nano == nil:
			rest = append(rest, j)
			continue
		case one == nil:
			one = &Job{source: j.source, nano: &nano{said: [3]map[string]string{{}, {}, {}}}}
		default:
			one.source += ", " + j.source
		}
		for i := range j.nano.said {
			maps.Copy(one.nano.said[i], j.nano.said[i])
		}
		o := one.nano
		if o.alone = o.alone || j.nano.alone; j.nano.gpus > 0 && (j.nano.runs || !o.runs) {
			o.gpus, o.from, o.runs = j.nano.gpus, j.nano.from, j.nano.runs
		}
		if o.file = cmp.Or(o.file, j.nano.file); len(o.said[nanoConfiguration]) > 0 {
			o.file = ""
		}
		one.hears(j)
	}
	if one == nil {
		return jobs
	}
	one.nanoReads()
	return append([]*Job{one}, rest...)
}

// value is what a name has, read as Python does, nil where that takes more than to read it; from
// is what says so.
func (n *nano) value(name string) (value any, from string) {
	if name != "init_from" {
		init, from := n.value("init_from")
		if value, has := nanoPretrained[init][name]; has {
			return value, from
		}
	}
	text, from := nanoDefaults[name], "default of "+name
	for i, said := range n.said {
		if own, ok := said[name]; ok {
			text, from = own, name
			if i == nanoArguments {
				from = "--" + name
			}
		}
	}
	switch word := nanoWord().FindStringSubmatch(text); {
	case word != nil:
		return word[1], from
	case strings.HasPrefix(text, "True"), strings.HasPrefix(text, "False"):
		return text[0] == 'T', from
	case nanoProduct().MatchString(text):
		product := 1.0
		for _, factor := range strings.Split(nanoProduct().FindStringSubmatch(text)[1], "*") {
			x, err := number(strings.TrimSpace(factor))
			if err != nil {
				return nil, from
			}
			product *= x
		}
		if product == float64(int64(product)) {
			return int64(product), from
		}
		return product, from
	case from == "--"+name && !strings.Contains(text, "$"): // a word in no quotes
		return text, from
	}
	return nil, from
}

// nanoReads says what they mean.
func (j *Job) nanoReads() {
	n := j.nano
	put := func(key, name string, of func(v any) any) {
		v, from := n.value(name)
		if v != nil {
			v = of(v)
		}
		if v == nil {
			j.open(key, from, "it is computed; give the key")
			return
		}
		j.set(key, v, from)
	}
	as := func(v any) any { return v }
	j.nanoModel(put)
	if n.gpus > 0 {
		j.set("gpus", n.gpus, n.from)
	} else {
		j.open("gpus", "--nproc_per_node", "torchrun says so; give the key")
	}
	put("runtime.recipe", "compile", func(v any) any { return map[any]any{true: "nanogpt", false: "pytorch"}[v] })
	if sharded := n.on(nanoSharded()); len(sharded) > 0 {
		j.open("plan.data_parallel", sharded[0], "nanoGPT has DDP alone; give the key")
	} else if n.gpus != 1 {
		j.set("plan.data_parallel", "ddp", "DistributedDataParallel")
		j.set("plan.bucket_view", false, "DistributedDataParallel's own")
	}
	put("train.sequence_length", "block_size", as)
	put("train.micro_batch", "batch_size", as)
	if each, isCount := n.count("batch_size"); n.alone || !isCount {
		put("train.grad_accumulation", "gradient_accumulation_steps", as)
	} else {
		put("train.global_batch", "gradient_accumulation_steps", func(v any) any {
			if steps, ok := v.(int64); ok {
				return steps * each
			}
			return nil
		})
	}
	put("train.precision", "dtype", func(v any) any {
		return map[any]any{"bfloat16": "bf16-autocast", "float16": "fp16-autocast", "float32": "fp32"}[v]
	})
	other := slices.IndexFunc(nanoSteps, func(name string) bool {
		kind, _ := n.value(name)
		return kind != nil && !strings.HasPrefix(strings.ToLower(text(kind)), "adam")
	})
	if other >= 0 {
		j.open("train.optimizer", nanoSteps[other], "nanoGPT has AdamW alone; give the key")
	} else {
		j.set("train.optimizer", "adamw-fused", "model.py, configure_optimizers")
	}
	put("train.clip_gradients", "grad_clip", func(v any) any { return v != int64(0) })
	j.nanoNotes()
}

// nanoNotes says what of the files a job has no key for.
func (j *Job) nanoNotes() {
	n := j.nano
	if device, _ := n.value("device"); device != nil && !strings.HasPrefix(text(device), "cuda") {
		j.note("device %v: GPUs of NVIDIA are taken", device)
	}
	if only, _ := n.value("eval_only"); only == true {
		j.note("eval_only: the run trains nothing; a training step is taken")
	}
	if n.file != "" {
		j.note("%s: name it by --from, too; nanoGPT's own settings are taken", n.file)
	}
	others := n.on(nanoOther())
	for _, name := range others {
		v, _ := n.value(name)
		j.note("%s %v: nanoGPT's model.py has none; GPT-2's layers are taken", name, v)
	}
	told := slices.Concat(others, n.on(nanoSharded()), nanoHeads, nanoWidths, nanoSteps, []string{"vocab_size"})
	for _, name := range n.names() {
		if _, known := nanoDefaults[name]; known || nanoKeys().harmless.MatchString(name) || slices.Contains(told, name) {
			continue
		}
		j.ignore(name, name, namesOf(nanoDefaults), func(near string) bool { return slices.Contains(n.names(), near) }, func(near string) string { return near })
	}
}

// names are all that the files say something of.
func (n *nano) names() []string {
	all := map[string]string{}
	for _, said := range n.said {
		maps.Copy(all, said)
	}
	return slices.Sorted(maps.Keys(all))
}

// on are the names of a kind whose values say another thing than nanoGPT has.
func (n *nano) on(kind *regexp.Regexp) []string {
	return slices.DeleteFunc(n.names(), func(name string) bool {
		v, _ := n.value(name)
		return !kind.MatchString(name) || slices.Contains(plainNano, v)
	})
}

// count is a whole number that a name has.
func (n *nano) count(name string) (int64, bool) {
	v, _ := n.value(name)
	i, ok := v.(int64)
	return i, ok
}

// has reports whether a name has a whole number.
func (n *nano) has(name string) bool {
	_, has := n.count(name)
	return has
}

// nanoModel says what model.py makes of the names: GPT-2, perhaps without biases.
func (j *Job) nanoModel(put func(key, name string, of func(v any) any)) {
	n := j.nano
	as := func(v any) any { return v }
	if init, from := n.value("init_from"); init == "resume" {
		j.note("%s resume: the checkpoint has the model's shape, which goes before what the files say", from)
	}
	j.set("model.model_type", "decoder", "model.py")
	put("model.hidden_size", "n_embd", as)
	put("model.num_hidden_layers", "n_layer", as)
	put("model.num_attention_heads", "n_head", as)
	if i := slices.IndexFunc(nanoHeads, n.has); i >= 0 {
		put("model.num_key_value_heads", nanoHeads[i], as)
	}
	if i := slices.IndexFunc(nanoWidths, n.has); i >= 0 {
		put("model.intermediate_size", nanoWidths[i], as)
	} else {
		put("model.intermediate_size", "n_embd", func(v any) any {
			if width, ok := v.(int64); ok {
				return 4 * width
			}
			return nil
		})
	}
	for _, x := range []struct {
		key   string
		value any
	}{{"gated_mlp", false}, {"hidden_act", "gelu"}, {"norm", "layernorm"}, {"position", "learned"}, {"tie_word_embeddings", true}} {
		j.set("model."+x.key, x.value, "model.py")
	}
	put("model.bias", "bias", as)
	put("model.max_position_embeddings", "block_size", as)
	switch data, from := n.value("dataset"); {
	case n.has("vocab_size"):
		put("model.vocab_size", "vocab_size", as)
	case data == "shakespeare_char":
		j.set("model.vocab_size", int64(65), from)
	case strings.HasSuffix(text(data), "_char"):
		j.open("model.vocab_size", from, "meta.pkl of the data has it: give the key")
	default:
		j.set("model.vocab_size", int64(50304), "train.py: GPT-2's 50257, rounded up")
	}
	if drop, _ := n.value("dropout"); drop != int64(0) {
		for _, of := range []string{"residual", "embedding", "attention"} {
			put("model."+of+"_dropout", "dropout", as)
		}
	}
}

// text is a value that is one, "" where it is none.
func text(v any) string {
	s, _ := v.(string)
	return s
}
