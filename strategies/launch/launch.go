package launch

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
)

// Job is what files that start a job say of it.
type Job struct {
	Settings []Setting
	Ignored  []string // flags and keys that change neither time nor memory, or that nobody knows
	Unknown  []string // those that seem to be misspelt, and of what
	Notes    []string // what is left out that may
	clock    clock    // what a log has of the time of steps, nil: no log
	peaks    peaks    // and of memory
	bare     bool     // a log that does not say what it ran
	source   string
	trainer  *trainer        // what it was read from, where that is a Trainer's
	neox     *yamlx.Document // what it was read from, where that is gpt-neox's
	nano     *nano           // what it was read from, where that is nanoGPT's

	toml      []byte            // torchtitan's configuration
	overrides map[string]string // its keys that a command line has instead
	yaml      []byte            // a configuration that a command line's own arguments are put into
	command   *Job              // what that line says where no configuration is beside it

	mostSteps     int64  // a Trainer's --max_steps
	squareBucket  bool   // a Trainer makes a bucket of the width of the model squared
	contextReduce string // the dtype in which DeepSpeed reduces gradients where ranks share sequences
}

// Measured says what a step took in a log, "" where there is none.
func (j *Job) Measured() string {
	if j.clock == nil {
		return ""
	}
	t, why := j.clock.step(j)
	if why != "" {
		return ""
	}
	return fmt.Sprintf("%.4g s a step, the %s", t.seconds, t.how)
}

// sections are the parts of a job file, in order.
var sections = []string{"model", "gpus", "runtime", "plan", "train"}

// lazily compiles a pattern when it is first asked: together they would take a program that
// reads no launch a tenth of its time.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// tables are what tells a configuration in TOML.
var tables = lazily(`(?m)^\[(training|parallelism|model|job)\]\s*(#.*)?$`)

// own tells a job or runs of perfplan's.
var own = lazily(`\A(?:\s*#.*\n|\s*\n)*perfplan:\s*(job|runs)/`)

// python tells a program, of which a call may be taken for arguments.
var python = lazily(`(?m)^(?:from [\w.]+ import |import [\w.]+)`)

// printed reports whether a text that begins as JSON does is what a Trainer prints, in Python's quotes.
func printed(text []byte) bool {
	return bytes.HasPrefix(text, []byte("{'")) && ofTrainer(string(text)) != nil
}

// logs reports whether a text has lines of a training's steps. Ranks that write one at a time tear
// each other's characters.
func logs(text []byte) bool {
	return slices.ContainsFunc([]func() *regexp.Regexp{elapsed, ended, barred, titanStepped, nanoStep, dumped}, func(line func() *regexp.Regexp) bool { return line().Match(text) })
}

// unrun is said of a program or a notebook: what it does is in no keys.
const unrun = "in Python, which is not run; give the command that starts one with its arguments, a log that has them or the configuration that it reads, or fill in what perfplan init writes without --from"

// remedy is what to give instead of a file that is none of these.
const remedy = "give a script, a log or a configuration of Megatron-LM, DeepSpeed, torchtitan (TOML), NeMo, NeMo AutoModel, Megatron-Bridge, gpt-neox, nanoGPT, transformers' Trainer, TRL, accelerate, LLaMA-Factory, Axolotl or ms-swift"

// Read reads one file. Its name is for messages.
func Read(name string, text []byte) (*Job, error) {
	j := &Job{source: name}
	text = bytes.TrimLeft(text, "\ufeff") // byte order marks
	if !utf8.Valid(text) && logs(text) {
		text = bytes.ToValidUTF8(text, []byte(" "))
	}
	if err := diag.NotText(name, text, "a script, a log or a configuration in UTF-8"); err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	text = bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printable(r)
	}, text)
	switch trimmed := bytes.TrimSpace(text); {
	case len(trimmed) == 0:
		return nil, &diag.Error{File: name, Message: "is empty; " + remedy}
	case own().Match(text):
		is := map[string]string{"job": "is a job of perfplan already; give it to perfplan estimate", "runs": "is a file of perfplan's measured runs; give it to perfplan validate"}
		return nil, &diag.Error{File: name, Message: is[string(own().FindSubmatch(text)[1])] + ", or a file that another program reads"}
	case titanPython().Match(text):
		return nil, &diag.Error{File: name, Message: "makes configurations of torchtitan in Python, which is not run; give the command that takes one, as MODULE=llama3 CONFIG=llama3_8b ./run_train.sh with what it has instead, or a TOML of older releases"}
	case j.ofNano(string(text)):
	case j.titanLog(name, string(text)):
	case trimmed[0] == '{' && !printed(trimmed) || scheduled().Match(text) || (keyed.Match(text) || neoxFile().Match(text)) && !bytes.HasPrefix(trimmed, []byte("#!")):
		if state, err := j.ofState(name, text); err != nil {
			return nil, err
		} else if state {
			break
		}
		if err := j.configuration(name, text, nil); err != nil {
			return nil, err
		}
	case tables().Match(text):
		if err := j.torchtitan(name, text); err != nil {
			return nil, err
		}
	case nemoFile(text):
		if err := j.nemo(name, text); err != nil {
			return nil, err
		}
	default:
		if err := j.script(name, string(text)); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// Framework tells whose configuration a document in YAML or JSON is, and the value that says
// so; nil for a job, a model or anything else.
func Framework(d *yamlx.Document) (string, *yaml.Node) {
	const nemo = "NeMo or Megatron-Bridge"
	if n := d.At("pipe_parallel_size"); n != nil {
		return "gpt-neox", n
	}
	if n := d.At("zero_optimization"); n != nil {
		return "DeepSpeed", n
	}
	if n := d.At("step_scheduler"); n != nil {
		return "NeMo AutoModel", n
	}
	if n := cmp.Or(d.At("_target_"), d.At("model", "_target_")); n != nil {
		return nemo, n
	}
	if n := d.At(axolotl.marks[0]); n != nil { // which has a model_type, too
		return "a Trainer", n
	}
	if has := func(k string) bool { return d.At(k) != nil }; slices.ContainsFunc([]string{"model_type", "gpus", "plan", "train"}, has) {
		return "", nil // a config.json may say how it generates in a Trainer's words, a job may err
	}
	if n := d.At("trainer"); n != nil && d.At("model") != nil {
		return nemo, n
	}
	for _, of := range dialects {
		for _, mark := range of.marks {
			if n := d.At(mark); n != nil {
				return "a Trainer", n
			}
		}
	}
	return "", nil
}

// printable is a character that a comment may hold.
func printable(r rune) rune {
	if unicode.IsControl(r) || !unicode.IsPrint(r) && !unicode.IsSpace(r) || r == utf8.RuneError {
		return ' '
	}
	return r
}

// configuration reads YAML or JSON: of NeMo AutoModel, of DeepSpeed, or else of a Trainer; own is what
// a command line has instead of keys.
func (j *Job) configuration(name string, text []byte, own map[string]argument) error {
	d, err := parse(name, text) // JSON is YAML
	if err != nil {
		return err
	}
	if err := j.instead(d, own); err != nil {
		return err
	}
	if scheduled().Match(text) {
		j.yaml = text
		return j.automodel(d)
	}
	for _, read := range []func(*yamlx.Document) (bool, error){j.ofSwift, j.ofNeox, j.ofFactory} {
		if ok, err := read(d); ok || err != nil {
			j.yaml = text
			return err
		}
	}
	if ok, err := j.keys(d); ok || err != nil {
		return err
	}
	return j.deepspeed(name, d)
}

// script reads a command line, a script or a log.
func (j *Job) script(name, text string) error {
	all := starts(text)
	j.listens(text, all[0].logged)
	if err := j.started(name, all[0]); err != nil && j.clock != nil && !all[0].logged && all[0].says() == 0 {
		j.bareLog()
		return nil
	} else if err != nil {
		return err
	}
	for _, s := range all[1:] {
		o := &Job{}
		if o.started(name, s) != nil {
			continue
		}
		if j.command != nil && o.command != nil {
			j.command.unsettle(o.command, s.By)
		}
		if j.unsettle(o, s.By); j.trainer != nil && o.trainer != nil {
			j.trainer.ways = append(j.trainer.ways, way{s.By, o.trainer})
		}
	}
	return nil
}

// started reads what starts a job of one of the two frameworks.
func (j *Job) started(name string, s start) error {
	var err error
	switch {
	case s.titan:
		err = j.titanScript(name, s)
	case s.file == nil && swiftMegatron().MatchString(s.text):
		err = j.swiftMegatron(name, s, "--")
	default:
		if ok, wrong := j.arguments(name, s); ok || wrong != nil {
			return wrong
		}
		err = j.megatron(name, s)
	}
	j.allocates(s.env)
	j.connects(s.env)
	return err
}

// Join puts together what several files say of one job. Those of a Trainer are read as one:
// what one leaves open another may say.
func Join(jobs []*Job) (*Job, error) {
	if i := slices.IndexFunc(jobs, func(j *Job) bool { return !j.bare }); i < 0 && len(jobs) > 0 {
		return nil, jobs[0].unstarted()
	}
	jobs, err := override(jobs)
	if err == nil {
		jobs, err = joinNeox(joinNano(jobs))
	}
	if err != nil {
		return nil, err
	}
	if jobs, err = commanded(jobs); err != nil {
		return nil, err
	}
	sharded := slices.ContainsFunc(jobs, func(j *Job) bool { return j.trainer == nil && j.says("runtime.recipe", deepspeedRecipe) })
	var rest []*Job
	var one *Job
	for _, j := range jobs {
		switch {
		case j.trainer == nil:
			rest = append(rest, j)
		case one == nil:
			own := *j
			one = &own
			rest = append(rest, one)
		default:
			t, err := one.trainer.join(j.trainer)
			if err != nil {
				return nil, err
			}
			one.trainer, one.source = t, one.source+", "+j.source
			one.hears(j)
		}
	}
	if one != nil {
		if err := one.take(one.trainer, sharded); err != nil {
			return nil, err
		}
	}
	all, err := merge(rest)
	if err != nil {
		return nil, err
	}
	if one != nil && all.squareBucket {
		all.bucket()
	}
	all.shared()
	all.oneWay()
	all.unliger()
	all.uncut()
	all.stay()
	all.unflash()
	all.unmuon()
	all.disconnect()
	return all, nil
}

// bucket is what a Trainer makes of reduce_bucket_size auto, of a model that is known
// (transformers/integrations/deepspeed.py, trainer_config_finalize).
func (j *Job) bucket() {
	if m := specOf(j.textOf("model")); m != nil {
		j.set("plan.bucket", fmt.Sprintf("%.6g MB", 2*float64(m.Hidden*m.Hidden)/1e6), "zero_optimization.reduce_bucket_size auto: hidden_size squared, of 16 bits")
	}
}

// shared takes the dtype that gradients are reduced in where ranks share sequences
// (DeepSpeed, runtime/engine.py, communication_data_type).
func (j *Job) shared() {
	const key = "train.dtypes.reduce"
	if j.contextReduce == "" || j.count("plan.cp") <= 1 {
		return
	}
	j.drop(key)
	j.set(key, j.contextReduce, "seq_parallel_communication_data_type")
}

// merge puts jobs together, of which no two may say a key otherwise.
func merge(jobs []*Job) (*Job, error) {
	all := &Job{}
	for _, j := range jobs {
		for _, s := range j.Settings {
			i := all.at(s.Key)
			switch {
			case i < 0:
				all.Settings = append(all.Settings, s)
			case s.last: // as another file has it
			case all.Settings[i].last:
				all.Settings[i] = s
			case s.Value == nil: // another file says it
			case all.Settings[i].Value == nil:
				all.Settings[i] = s
			case s.Key == "runtime.recipe": // of two frameworks the one that shards
				megatrons := []any{megatronRecipe, shardedRecipe}
				if was := all.Settings[i].Value; s.Value == deepspeedRecipe && slices.Contains(megatrons, was) || was == deepspeedRecipe && slices.Contains(megatrons, s.Value) {
					s.Value, s.From = shardedRecipe, cmp.Or(s.From, all.Settings[i].From)
				}
				all.Settings[i] = s
			case fmt.Sprint(all.Settings[i].Value) != fmt.Sprint(s.Value):
				return nil, diag.Errorf("%s: %s says %v, but %s before it %v; leave one of them out", s.Key, s.From, s.Value, all.Settings[i].From, all.Settings[i].Value)
			}
		}
		all.squareBucket = all.squareBucket || j.squareBucket
		all.contextReduce = cmp.Or(all.contextReduce, j.contextReduce)
		all.Ignored, all.Unknown = append(all.Ignored, j.Ignored...), append(all.Unknown, j.Unknown...)
		all.Notes = append(all.Notes, j.Notes...)
		all.hears(j)
		all.source = strings.TrimPrefix(all.source+", "+j.source, ", ")
	}
	return all, nil
}

// copies says what the GPUs go by for those that share one of several copies.
func copies(replicas, tp, pp int64) string {
	if tp*pp == 1 {
		return fmt.Sprint(replicas)
	}
	return fmt.Sprintf("%d replicas × tp %d × pp %d = %d", replicas, tp, pp, replicas*tp*pp)
}

func (j *Job) note(format string, args ...any) {
	j.Notes = append(j.Notes, fmt.Sprintf(format, args...))
}

// apart notes that packed sequences keep their documents apart, which from says.
func (j *Job) apart(from string) {
	j.note("%s: attention keeps documents apart, whose mean length the file does not have; give train.document_length", from)
}

// YAML writes a job file: every key with what said so beside it.
func (j *Job) YAML() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode, HeadComment: "A training step to predict, read from " + j.source}
	if m := j.Measured(); m != "" {
		root.HeadComment += "\nMeasured: " + m
	}
	add(root, "perfplan", "job/v1", "")
	j.named().sections(root)
	root.FootComment = j.foot()
	return yamlx.Encode(root)
}

// named is the job with a name for a model that is written in place: that of the file, without
// which results of all such jobs have the same title.
func (j *Job) named() *Job {
	first, _, _ := strings.Cut(j.source, ", ")
	name := stem(first)
	in := slices.ContainsFunc(j.Settings, func(s Setting) bool { return s.Key == "model.model_type" })
	if !in || name == "" || len(name) > model.MaxName || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return j
	}
	out := *j
	out.Settings = append([]Setting{{Key: "model.name", Value: name}}, j.Settings...)
	return &out
}

// stem is the name of a file without its folder and ending, of standard input what programs
// call it.
func stem(file string) string {
	if file == "-" {
		return "stdin"
	}
	return strings.TrimSuffix(path.Base(filepath.ToSlash(file)), filepath.Ext(file))
}

// Unmeasured is what no log has of a run.
const Unmeasured = "hardware: no log says on which GPUs it ran: give each run the key, or h100-sxm is taken"

// sections appends the keys of a job.
func (j *Job) sections(root *yaml.Node) {
	for _, section := range sections {
		var of *yaml.Node
		var open []string
		for _, s := range j.Settings {
			head, key, nested := strings.Cut(s.Key, ".")
			switch {
			case head != section:
			case s.Value == nil:
				open = append(open, s.Open())
			case !nested:
				add(root, head, s.Value, s.From)
			default:
				if of == nil {
					of = &yaml.Node{Kind: yaml.MappingNode}
				}
				add(of, key, s.Value, s.From)
			}
		}
		if of != nil {
			root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: section}, of)
		}
		if n := len(root.Content); len(open) > 0 {
			root.Content[n-2].HeadComment = strings.TrimPrefix(root.Content[n-2].HeadComment+"\n"+strings.Join(open, "\n"), "\n")
		}
	}
}

// foot is what a job leaves out.
func (j *Job) foot() string {
	var lines []string
	for _, n := range j.Notes {
		lines = append(lines, strings.Map(printable, "Not taken over: "+n))
	}
	for _, n := range j.Unknown {
		lines = append(lines, strings.Map(printable, "Not known: "+n))
	}
	if w := j.Without(); w != "" {
		lines = append(lines, "Without a key: "+w)
	}
	return strings.Join(lines, "\n")
}

// Without are the names that a job has no key for and that nobody knows, "" where there are none.
func (j *Job) Without() string { return strings.Map(printable, strings.Join(j.Ignored, " ")) }

// add appends a key; dots in it are mappings within.
func add(to *yaml.Node, key string, value any, comment string) {
	head, rest, nested := strings.Cut(key, ".")
	if nested {
		for i := 0; i < len(to.Content); i += 2 {
			if to.Content[i].Value == head {
				add(to.Content[i+1], rest, value, comment)
				return
			}
		}
		in := &yaml.Node{Kind: yaml.MappingNode}
		to.Content = append(to.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: head}, in)
		add(in, rest, value, comment)
		return
	}
	v := &yaml.Node{}
	if err := v.Encode(value); err != nil { // of strings, numbers, booleans and lists of them
		panic(err)
	}
	if v.Kind == yaml.SequenceNode {
		v.Style = yaml.FlowStyle
	}
	v.LineComment = strings.Map(printable, comment)
	to.Content = append(to.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, v)
}
