package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/calibrate/trace"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/launch"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// setting is a flag that stands for one key of a job.
type setting struct {
	flag, path, value, help string
	known                   []string // for completion
}

// settings are the flags of every command that takes a job.
var settings = []setting{
	{"gpus", "gpus", "N", "number of GPUs", nil},
	{"hardware", "hardware", "NAME", "catalog name or file of the machine (perfplan hardware list)", hardware.Names()},
	{"recipe", "runtime.recipe", "NAME", "framework, such as megatron-core or hf-eager: which kernels run", recipe.Names()},
	{"attention", "runtime.attention", "KIND", diag.Or(strategies.Attentions), strategies.Attentions},
	{"seq", "train.sequence_length", "TOKENS", "tokens of a sequence", nil},
	{"images", "train.images.per_sequence", "N", "images in a sequence, of a vision-language model", nil},
	{"image-size", "train.images.size", "PIXELS", "height and width of each, as in 448x672", nil},
	{"micro-batch", "train.micro_batch", "N", "sequences per GPU and micro step", nil},
	{"global-batch", "train.global_batch", "N", "sequences per step over all GPUs", nil},
	{"grad-accumulation", "train.grad_accumulation", "N", "micro steps per step", nil},
	{"precision", "train.precision", "NAME", "bf16, fp16, fp8, bf16-mixed, bf16-pure, fp32, ...; see the recipe", nil},
	{"optimizer", "train.optimizer", "NAME", "optimizer, such as adamw-fused", nil},
	{"recompute", "train.recompute", "KIND", "none, selective or full", strategies.Recomputes},
	{"tp", "plan.tp", "N", "tensor-parallel degree", nil},
	{"pp", "plan.pp", "N", "pipeline-parallel degree", nil},
	{"cp", "plan.cp", "N", "context-parallel degree", nil},
	{"ep", "plan.ep", "N", "expert-parallel degree", nil},
	{"dp", "plan.dp", "N", "data-parallel degree; default: the rest of the GPUs", nil},
	{"virtual-stages", "plan.virtual_stages", "N", "model chunks per pipeline rank", nil},
	{"schedule", "plan.schedule", "NAME", "pipeline schedule: gpipe, 1f1b, interleaved-1f1b, zb-h1, ...", schedules()},
	{"offload", "plan.offload", "WHAT", "what lives in the hosts' memory: optimizer or parameters", []string{"none", "optimizer", "parameters"}},
	{"straggler", stragglers, "RANK", "a slow rank, as in rank=3,slowdown=1.3, or with slow links, as in rank=3,link=2 (repeatable)", nil},
	{"data-parallel", "plan.data_parallel", "KIND", "ddp, zero1, zero2, zero3, fsdp1 or fsdp2", []string{"ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"}},
}

// schedules are the names of pipeline schedules, each with what it is, as shells show them.
func schedules() (out []string) {
	for _, name := range pipeline.Names() {
		info, _ := pipeline.Lookup(name) // it is one of them
		out = append(out, name+"\t"+info.Doc)
	}
	return out
}

// stragglers is the path of a flag that adds to what it was given before.
const stragglers = "runtime.stragglers"

// edit is one flag as given.
type edit struct{ origin, path, value string }

// jobFlags collects the edits of a command line in their order.
type jobFlags struct {
	cmd   *cobra.Command
	own   []setting // of this command, in front of those of every command
	runs  []string  // files of the user's own runs
	edits []edit
	files []string // what may be read: arguments, values of flags, what the job names
	jobs  int      // arguments that are jobs, for completion; 0: one
	more  bool     // files follow them
}

// settingValue is the pflag.Value of a setting, and of --set when path is "".
type settingValue struct {
	flags *jobFlags
	setting
}

func (v *settingValue) String() string { return "" }
func (v *settingValue) Type() string   { return v.value }

func (v *settingValue) Set(text string) error {
	for i := range v.flags.edits {
		if x := &v.flags.edits[i]; v.path == stragglers && x.path == stragglers {
			x.value += "; " + text
			return nil
		}
	}
	if share := strings.TrimSpace(text); v.value == "SHARE" && strings.HasSuffix(share, "%") {
		x, err := units.ParsePercent(share)
		if err != nil {
			return usage("%v", err)
		}
		text = strconv.FormatFloat(x, 'g', -1, 64)
	}
	if v.path != "" {
		v.flags.edits = append(v.flags.edits, edit{"--" + v.flag, v.path, text})
		return nil
	}
	path, value, ok := strings.Cut(text, "=")
	if path = strings.TrimSpace(path); !ok || path == "" {
		return usage("%q is not path=value; write it as in plan.tp=4", text)
	}
	v.flags.edits = append(v.flags.edits, edit{"--set " + path, path, value})
	return nil
}

// recipe is the one that a flag gives, else the default.
func (f *jobFlags) recipe() string {
	for _, e := range f.edits {
		if e.path == "runtime.recipe" {
			return e.value
		}
	}
	return strategies.DefaultRecipe
}

func (f *jobFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	cmd.Flags().SortFlags = false
	for _, s := range slices.Concat(f.own, settings) {
		cmd.Flags().Var(&settingValue{f, s}, s.flag, s.help)
		if s.known != nil {
			if s.flag == "hardware" || s.flag == "model" {
				completeOrFile(cmd, s.flag, s.known)
				continue
			}
			complete(cmd, s.flag, s.known)
		}
	}
	for flag, of := range map[string]func(*recipe.Recipe) []string{
		"precision": func(r *recipe.Recipe) []string { return slices.Sorted(maps.Keys(r.Precision)) },
		"optimizer": func(r *recipe.Recipe) []string { return slices.Sorted(maps.Keys(r.Optimizer)) },
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { // the flag exists
			r, err := recipe.Load(f.recipe())
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return of(r), cobra.ShellCompDirectiveNoFileComp
		})
	}
	cmd.Flags().StringArrayVar(&f.runs, "runs", nil, "runs/v1 `FILE` of your own runs, of the same recipe and GPU: scale all times by what they took against their predictions (repeatable)")
	cmd.Flags().Var(&settingValue{f, setting{flag: "set", value: "PATH=VALUE"}}, "set", "set any key of the job, as in plan.bucket=25MiB; null removes it, and of flags that set one key the last counts (repeatable)")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) < max(f.jobs, 1):
			return model.Names(), cobra.ShellCompDirectiveDefault
		case f.more:
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// load reads the argument, applies the flags and decodes the result. It returns
// the job as written beside the job as resolved.
func (f *jobFlags) load(e *env, args []string) (*strategies.Job, *yaml.Node, error) {
	doc, err := f.document(e, args)
	if err != nil {
		return nil, nil, err
	}
	j, _, err := f.decode(doc)
	return j, doc.Root, err
}

// decode applies the flags to a document and decodes the result. malformed says that
// an error is about how something is written, not about a rule of jobs. It changes
// the document but none of its nodes.
func (f *jobFlags) decode(doc *yamlx.Document) (j *strategies.Job, malformed bool, err error) {
	modelName, err := f.openModel(doc)
	if err != nil {
		return nil, true, err
	}
	machineName := f.openHardware(doc)
	for _, x := range f.edits {
		if err := doc.Set(x.origin, x.path, x.value, under(x.path)); err != nil {
			return nil, true, err
		}
	}
	if j, err = strategies.Decode(doc, doc.Root); err != nil {
		return nil, strategies.Malformed(doc, doc.Root), err
	}
	if modelName != "" {
		j.ModelName = modelName + changed
	}
	if machineName != "" {
		h := *j.Hardware
		h.Name = machineName + changed
		j.Hardware = &h
	}
	return j, false, nil
}

// with returns how to make the job of a document, before the flags, again with settings
// behind them, as --set takes them.
func (f *jobFlags) with(doc *yamlx.Document) func(set []string) (*strategies.Job, error) {
	before := *doc
	return func(set []string) (*strategies.Job, error) {
		more := jobFlags{edits: slices.Clone(f.edits)}
		for _, text := range set {
			if err := (&settingValue{&more, setting{}}).Set(text); err != nil {
				return nil, err
			}
		}
		again := before
		j, _, err := more.decode(&again)
		return j, err
	}
}

// changed marks the name of something that flags set a part of.
const changed = " (changed)"

// given reports whether a flag sets a key itself.
func (f *jobFlags) given(path string) bool {
	return slices.ContainsFunc(f.edits, func(x edit) bool { return x.path == path })
}

// sets reports whether a flag sets something inside a key.
func (f *jobFlags) sets(key string) bool {
	return slices.ContainsFunc(f.edits, func(x edit) bool { return strings.HasPrefix(x.path, key+".") })
}

// document is the job before the flags: a job file, or a job of nothing but the
// model that the argument names.
func (f *jobFlags) document(e *env, args []string) (*yamlx.Document, error) {
	go collective.Prepare() // beside the job, whose files take as long to read
	f.files = slices.Concat(f.files, args, f.runs)
	for _, x := range f.edits {
		f.files = append(f.files, x.value)
	}
	doc, err := f.open(e, args)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"model", "hardware"} {
		if n := doc.At(key); n != nil && n.Kind == yaml.ScalarNode {
			f.files = append(f.files, doc.Path(n))
		}
	}
	return doc, nil
}

// open is document without a record of what is read.
func (f *jobFlags) open(e *env, args []string) (*yamlx.Document, error) {
	if err := f.carryOver(); err != nil {
		return nil, err
	}
	if len(args) == 0 {
		if f.given("model") {
			return jobOf(nil), nil
		}
		return nil, usage("name a job file, a model or - for standard input, as in %q", firstExample(f.cmd))
	}
	name := args[0]
	if name == "-" {
		text, err := io.ReadAll(io.LimitReader(e.in, yamlx.MaxFileSize+1))
		if err != nil {
			return nil, err
		}
		doc, err := yamlx.Parse("-", text)
		if err != nil {
			return nil, err
		}
		return inner(doc, nil)
	}
	path := scalar(name)
	if info, err := os.Stat(name); model.Known(name) || err == nil && info.IsDir() {
		return jobOf(path), nil
	} else if err != nil {
		if hardware.Known(name) {
			return nil, usage("%q is hardware; name a model and give --hardware %s", name, name)
		}
		_, err := model.Document(name) // for its complaint
		return nil, err
	}
	if err := scripted(name, neither); err != nil {
		return nil, err
	}
	doc, err := yamlx.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return inner(doc, path)
}

// scripted refuses a script, a log or a TOML that is there, by its name: as YAML it would be told of brackets.
func scripted(name, message string) error {
	if _, err := os.Stat(name); err != nil || !slices.Contains([]string{".toml", ".sh", ".sbatch", ".slurm", ".log", ".out"}, filepath.Ext(name)) {
		return nil
	}
	return &diag.Error{File: name, Message: fmt.Sprintf(message, name)}
}

// neither is said of what can be no job.
const neither = "is neither a job nor a model; a job has a key model:, a model the keys of a Hugging Face config.json, and of a script, a log or a framework's configuration perfplan init --from %s makes a job"

// carryOver makes what --runs says of the user's own runs a flag like others, once for
// all documents of a command.
func (f *jobFlags) carryOver() error {
	if len(f.runs) == 0 {
		return nil
	}
	list, err := measured(f.runs)
	if err != nil {
		return err
	}
	own, err := runs.Own(list, runs.Validate(list).Rows)
	if err != nil {
		return usage("--runs: %v", err)
	}
	for _, copies := range runs.Copies(list) {
		fmt.Fprintf(f.cmd.ErrOrStderr(), "perfplan: %s\n", copies)
	}
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	f.runs, f.edits = nil, append(f.edits, edit{"--runs", "runtime.own_runs", string(text)})
	return nil
}

// inner tells a job from a model by what the document holds. A model is put into
// a job: by its path when it has one, so that it is named after the file.
func inner(doc *yamlx.Document, path *yaml.Node) (*yamlx.Document, error) {
	if doc.Root.Kind != yaml.MappingNode {
		return nil, doc.Errorf(doc.Root, neither, doc.Name)
	}
	format := doc.At("perfplan")
	framework, says := launch.Framework(doc)
	switch {
	case report.IsResult(doc):
		return nil, doc.Errorf(doc.At("schema"), "is a result, not a job; perfplan diff compares results, and the job is what the result has under job")
	case format == nil && foreign(doc) != nil:
		return nil, foreign(doc)
	case format == nil && says != nil:
		return nil, doc.Errorf(says, "is a configuration of %s, not a job; perfplan init --from %s makes one of it", framework, doc.Name)
	case format == nil && slices.ContainsFunc(jobKeys, func(k string) bool { return doc.At(k) != nil }), format != nil && format.Value == "job/v1":
		return doc, nil
	case format == nil, format.Value == model.Format:
	case format.Value == "hardware/v1":
		return nil, doc.Errorf(format, "is a machine, not a job; name a model and give --hardware %s", doc.Name)
	case format.Value == runs.Format:
		return nil, doc.Errorf(format, "is a file of measured runs; see perfplan validate")
	default:
		return nil, doc.Errorf(format, "perfplan: %q is not a format%s", format.Value, diag.DidYouMean(format.Value, []string{"job/v1", model.Format}))
	}
	if path != nil {
		return jobOf(path), nil
	}
	whole := *doc
	whole.Root = jobOf(doc.Root).Root
	return &whole, nil
}

// foreign is a complaint about a file that others take for a job, by the key that tells
// what it is; nil where none does.
func foreign(doc *yamlx.Document) error {
	if n := doc.At("schema"); n != nil && n.Value == trace.SummarySchema {
		return doc.Errorf(n, "schema: %s is a trace, not a job; hold it against a job by perfplan compare JOB %s", n.Value, doc.Name)
	}
	if n := doc.At("schema"); n != nil && strings.HasSuffix(n.Value, "/v1") {
		return doc.Errorf(n, "schema: %s is neither a job nor what perfplan estimate -o json writes (result/v1), which perfplan diff takes, too; give a job, a model or such a result", n.Value)
	}
	if n := doc.At("traceEvents"); n != nil {
		return doc.Errorf(n, "is a profiler's trace, not a job; hold it against a job by perfplan compare JOB %s", doc.Name)
	}
	if launch.State(doc) {
		return doc.Errorf(doc.At("log_history"), "is what a Trainer did (trainer_state.json), not a job; perfplan init --measured --from train.sh --from %s makes a measured run of it, where train.sh is the command or the configuration that started it", doc.Name)
	}
	n := doc.At("peft_type")
	if n == nil {
		return nil
	}
	base, rank := "its model", "16"
	if n := doc.At("base_model_name_or_path"); n != nil && n.Value != "" {
		base = n.Value
	}
	if n := doc.At("r"); n != nil && n.Value != "" {
		rank = n.Value
	}
	return doc.Errorf(n, "peft_type: %s is an adapter of PEFT, not a model; name the model that it is of (%s), and describe the adapter in train.lora, as in --set train.lora.rank=%s", n.Value, base, rank)
}

// jobKeys tell a job without a format from a model.
var jobKeys = []string{"model", "hardware", "gpus", "runtime", "plan", "train", "run"}

// jobOf is the document of a job that gives nothing but its model.
func jobOf(model *yaml.Node) *yamlx.Document {
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if model != nil {
		root.Content = []*yaml.Node{scalar("model"), model}
	}
	return &yamlx.Document{Root: root}
}

// openModel replaces the name of a model by its keys when a flag sets one of them,
// and returns the name.
func (f *jobFlags) openModel(doc *yamlx.Document) (string, error) {
	n := doc.At("model")
	if n == nil || n.Kind != yaml.ScalarNode || !f.sets("model") {
		return "", nil
	}
	name := n.Value
	found, err := model.Document(model.Beside(doc, n))
	if err != nil {
		return "", err
	}
	unplace(found.Root)
	root := *doc.Root
	root.Content = slices.Clone(root.Content)
	root.Content[slices.Index(root.Content, n)] = found.Root
	doc.Root = &root
	return name, nil
}

// openHardware returns the name of the machine when a flag sets a part of it, and
// writes down the default one.
func (f *jobFlags) openHardware(doc *yamlx.Document) string {
	if !f.sets("hardware") || doc.Root.Kind != yaml.MappingNode {
		return ""
	}
	for _, x := range f.edits {
		if x.path == "hardware" {
			return x.value
		}
	}
	switch n := doc.At("hardware"); {
	case n == nil:
		root := *doc.Root
		root.Content = slices.Concat(root.Content, []*yaml.Node{scalar("hardware"), scalar(strategies.DefaultHardware)})
		doc.Root = &root
		return strategies.DefaultHardware
	case n.Kind == yaml.ScalarNode:
		return n.Value
	}
	return ""
}

func scalar(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// unplace removes the positions of nodes that come from another file than the one
// they are put into.
func unplace(n *yaml.Node) {
	n.Line, n.Column = 0, 0
	for _, c := range n.Content {
		unplace(c)
	}
}

// under is the key that keeps a name when something inside it is set.
func under(path string) string {
	if strings.HasPrefix(path, "hardware.") {
		return "inherits"
	}
	return ""
}
