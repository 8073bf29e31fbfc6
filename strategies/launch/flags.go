package launch

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
	"mvdan.cc/sh/v3/syntax"

	"github.com/perfplan/perfplan/strategies/launch/shell"
)

// flag is an argument with its value: "true" where it has none.
type flag struct {
	value string
	words []string // of those that may have several
	line  int
	open  string // what is in it that the file does not give: $MBS, $(nproc)
}

// unread is what a script has of commands and of changes to values, which are not looked at.
var unread = lazily("^(?:\\$\\(|`|let |\\$\\{\\w+[^\\w}:.])")

// takes says why the value of an argument is open.
func (f flag) takes() string {
	why := "which the file does not set"
	if unread().MatchString(f.open) {
		why = "which is not read"
	}
	return "line " + strconv.Itoa(f.line) + " takes " + f.open + ", " + why
}

// flags are arguments by their names, with underscores.
type flags map[string]flag

// start is what a file starts a job with.
type start struct {
	shell.Reading
	flags  flags
	logged bool   // all arguments are there
	alone  bool   // they are those of one command
	text   string // of it
	env    map[string]string
	file   *configured // that has the arguments
	titan  bool        // they are torchtitan's
	holds  []string    // what in the command may hold more of them, and is not set, but what it is given itself
}

var (
	dumped    = lazily(`(?m)^(?:.*:)?[ \t]{2,}([a-z][a-z0-9_]*) \.{3,} (.*?)\s*$`)
	written   = lazily(`--([A-Za-z][\w-]*)`)
	named     = lazily(`^--([A-Za-z][^=]*)(?:=(.*))?$`)
	holder    = lazily(`(?i)^\$\w*(args|opts?|options|params|flags)\w*$`)
	listed    = lazily(`["']--[A-Za-z][\w-]*["']\s*,`)
	reference = lazily(`\$\W*(\w+)`)
)

// telling are arguments that tell a training of Megatron-LM from other commands, training those
// of a Trainer.
var (
	telling  = []string{"num_layers", "micro_batch_size", "tensor_model_parallel_size"}
	training = []string{"per_device_train_batch_size", "model_name_or_path"}
)

// several are arguments that may have several words.
var several = []string{"fsdp", "lora_target_modules", "target_modules", "recompute_modules", "offload_modules", "cuda_graph_scope", "cuda_graph_modules", "cp_comm_type", "hierarchical_context_parallel_sizes", "num_experts", "compile.components", "rampup_batch_size"}

// count is how many arguments of a list there are.
func (f flags) count(list []string) (n int) {
	for _, name := range list {
		if _, ok := f[name]; ok {
			n++
		}
	}
	return n
}

// says is how sure it is that arguments are those of a training: 0 is not at all.
func (s start) says() int {
	n := 8 * s.flags.count(telling)
	if n == 0 {
		n = s.flags.count(slices.Concat(trl.marks, trainerArguments.marks, swift.marks, llamaFactory.marks)) + 2*s.flags.count(training)
	}
	if n == 0 && (s.config() != "" || s.file != nil || s.titan) {
		n = 1
	}
	return n
}

// config is the file with the configuration of DeepSpeed that the flags name, if the script
// writes it.
func (s start) config() string {
	for _, name := range []string{"deepspeed_config", "deepspeed"} {
		if _, ok := s.Files[s.flags[name].value]; ok {
			return s.flags[name].value
		}
	}
	return ""
}

// starts are what a text says: the arguments that a log of Megatron-LM lists, those in YAML or
// those of the command that a shell script comes to, and else all after two dashes. Where a
// script does not decide a condition there is one for each way, the likeliest first.
func starts(text string) []start {
	if f := ofLog(text); len(f) > 0 {
		return []start{{flags: f, logged: true}}
	}
	p := find(text)
	for _, script := range []string{ofYAML(text), text} {
		if script == "" || listed().MatchString(text) { // a list of Python, which may pass for a script
			continue
		}
		if all := p.walk(script); len(all) > 0 && all[0].says() > 0 {
			return all
		}
	}
	return []start{{flags: p.ofWords(text), text: text}}
}

func ofLog(text string) flags {
	out := flags{}
	for _, at := range dumped().FindAllStringSubmatchIndex(text, -1) {
		out[text[at[2]:at[3]]] = flag{value: text[at[4]:at[5]], line: 1 + strings.Count(text[:at[0]], "\n")}
	}
	return out
}

// places are the lines of a text, and those that flags are in.
type places struct {
	lines []string
	at    map[string][]int
}

func find(text string) places {
	p := places{strings.Split(text, "\n"), map[string][]int{}}
	for i, line := range p.lines {
		if t := strings.TrimSpace(line); strings.HasPrefix(t, "#") && !strings.HasPrefix(t, "#SBATCH") {
			continue
		}
		for _, m := range written().FindAllStringSubmatch(line, -1) {
			name := strings.ReplaceAll(m[1], "-", "_")
			p.at[name] = append(p.at[name], i)
		}
	}
	return p
}

// line is the last line with a flag, and with what its value takes.
func (p places) line(name, open string) int {
	all := p.at[name]
	for _, i := range slices.Backward(all) {
		if strings.Contains(p.lines[i], strings.TrimPrefix(open, "$")) {
			return 1 + i
		}
	}
	if len(all) > 0 {
		return 1 + all[len(all)-1]
	}
	return 1
}

// add takes the flags among words, which show writes with what is open in them; rest are those
// that may be flags themselves.
func (p places) add(f flags, words []string, show func(string) (text, open string)) (rest []string) {
	last := ""
	for _, w := range apart(words) {
		w, open := show(w)
		var m []string
		if strings.HasPrefix(w, "--") {
			m = named().FindStringSubmatch(w)
		}
		now, known := f[last]
		switch {
		case m != nil:
			last = strings.ReplaceAll(m[1], "-", "_")
			f[last] = flag{value: "true", line: p.line(last, "")}
			if strings.Contains(w, "=") {
				f[last] = flag{value: m[2], words: m[2:], line: p.line(last, open), open: open}
			}
		case open != "" && w == open && (holder().MatchString(open) || !known || now.words != nil):
			if last = ""; !slices.Contains(rest, open) {
				rest = append(rest, open)
			}
		case known && w != "-" && (now.words == nil || slices.Contains(several, last)):
			now.words, now.open = append(now.words, w), cmp.Or(now.open, open)
			if now.value = now.words[0]; len(now.words) > 1 {
				now.value = "[" + strings.Join(now.words, ", ") + "]"
			}
			now.line = p.line(last, now.open)
			f[last] = now
		default:
			last = ""
		}
	}
	return rest
}

// apart takes words apart that hold several flags.
func apart(words []string) (out []string) {
	for _, w := range words {
		if strings.HasPrefix(strings.TrimSpace(w), "--") {
			out = append(out, strings.Fields(w)...)
		} else {
			out = append(out, w)
		}
	}
	return out
}

// walk reads a script. Ways that never come to a training are left out where others do.
func (p places) walk(script string) (out []start) {
	for _, r := range shell.Read(script, slurm) {
		out = append(out, p.start(script, r))
	}
	for _, good := range []func(start) bool{func(s start) bool { return s.alone }, func(s start) bool { return s.says() > 0 }} {
		if slices.ContainsFunc(out, good) {
			return slices.DeleteFunc(out, func(s start) bool { return !good(s) })
		}
	}
	return out
}

// start is the command of a script that starts a training, or all words where none does.
func (p places) start(script string, r shell.Reading) start {
	s := start{Reading: r, flags: p.header(r), text: script}
	var first shell.Command
	var rest []string
	var cut []shell.Command
	others := 0
	for _, c := range r.Commands {
		one := start{Reading: r, flags: p.header(r)}
		one.file, one.titan = configures(c.Words, r), titanCommand().MatchString(strings.Join(c.Words, " "))
		words := c.Words
		if one.file != nil {
			words = one.file.dashed(words)
		}
		left := p.launching(one.flags, words, r)
		switch {
		case strings.HasPrefix(c.Words[0], "--"): // a piece of a script
			cut = append(cut, c)
		case one.says() == 0:
		case !s.alone || one.says() > s.says():
			s.alone, s.flags, s.file, s.titan, first, rest = true, one.flags, one.file, one.titan, c, left
		case !slices.Equal(c.Words, first.Words) && 2*one.says() > s.says():
			others++
		}
	}
	if !s.alone {
		for _, words := range r.Words {
			p.add(s.flags, words, r.Show)
		}
		return s
	}
	s.text, s.env = strings.Join(first.Words, " "), first.Env
	at := "line " + strconv.Itoa(first.Line)
	for _, name := range rest {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(strings.TrimPrefix(name, "$")) + `\+?=`).MatchString(script) { // but not where the conditions go this way
			s.Notes = append(s.Notes, name+" in the command of "+at+", which the file does not set, may hold more arguments")
			if name != "$@" && name != "$*" {
				s.holds = append(s.holds, name)
			}
		}
	}
	for _, c := range cut {
		if before := p.lines[max(min(c.Line, len(p.lines))-2, 0)]; strings.Contains(before, "#") && strings.HasSuffix(strings.TrimSpace(before), `\`) {
			s.Notes = append(s.Notes, "line "+strconv.Itoa(c.Line)+" and what follows, "+c.Words[0]+" first: the comment above ends the command, so that it is not given these")
		}
	}
	if others > 0 {
		s.Notes = append(s.Notes, "other trainings than that of "+at+": "+strconv.Itoa(others)+" more; give each its own file")
	}
	return s
}

// launching takes the flags of a command: of what starts its processes those alone that count
// them, and all of accelerate. Python's file, or its module, parts the two.
func (p places) launching(f flags, words []string, r shell.Reading) (rest []string) {
	words = long(apart(words))
	cut := slices.IndexFunc(words, func(w string) bool { return strings.HasSuffix(w, ".py") })
	for i := 1; i < len(words) && cut < 0; i++ {
		if words[i-1] == "-m" && !slices.Contains(words[i:], "-m") {
			cut = i
		}
	}
	if i := slices.IndexFunc(words, func(w string) bool { return path.Base(w) == "swift" || path.Base(w) == "megatron" }); i >= 0 && i < cut { // whose plugins are files
		cut = i
	}
	cut = max(cut, 0)
	before := flags{}
	p.add(before, words[:cut], r.Show)
	all := slices.ContainsFunc(words[:cut], func(w string) bool { return path.Base(w) == "accelerate" })
	for name, g := range before {
		if all || slices.Contains(launchers, name) {
			f[name] = g
		}
	}
	return p.add(f, words[cut:], r.Show)
}

// ofYAML writes flags in mappings and lists, the variables and the scripts in them, as a script,
// each in its line; "" where a text is no YAML.
func ofYAML(text string) string {
	d, err := parse("", []byte(text))
	if err != nil || d.Root.Kind == yaml.ScalarNode { // as a script of one word a line may be
		return ""
	}
	y := &translator{}
	y.translate(d.Root)
	if len(y.flags) > 0 {
		y.emit(0, "python .py "+strings.Join(y.flags, " "))
	}
	return y.out.String()
}

// translator makes a script of YAML.
type translator struct {
	out   strings.Builder
	line  int
	flags []string // that are keys of mappings, with their values
}

func (y *translator) emit(line int, statement string) {
	y.out.WriteString(strings.Repeat("\n", max(line-1-y.line, 0)) + statement + "\n")
	y.line = max(y.line, line-1) + 1 + strings.Count(statement, "\n")
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var inQuotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`")

func (y *translator) translate(n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i].Value, n.Content[i+1]
			switch {
			case strings.HasPrefix(key, "--"):
				y.argument(key, value)
			case value.Kind == yaml.ScalarNode && syntax.ValidName(key) && !strings.Contains(value.Value, "--"):
				y.emit(value.Line, key+"="+quote(value.Value))
			default:
				y.translate(value)
			}
		}
	case yaml.SequenceNode:
		var words []string
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				y.translate(c)
			} else {
				words = append(words, quote(c.Value))
			}
		}
		y.emit(n.Line, strings.Join(words, " "))
	case yaml.ScalarNode:
		if strings.Contains(n.Value, "--") {
			y.emit(n.Line, "bash -c "+quote(n.Value))
		}
	}
}

// argument is a flag with its value, in which variables are put in.
func (y *translator) argument(key string, value *yaml.Node) {
	text := value.Value
	if value.Kind == yaml.SequenceNode {
		var words []string
		for _, c := range value.Content {
			words = append(words, c.Value)
		}
		text = "[" + strings.Join(words, ", ") + "]"
	}
	y.flags = append(y.flags, quote(key))
	if value.Tag != "!!null" {
		y.flags = append(y.flags, `"`+inQuotes.Replace(text)+`"`)
	}
}

// ofWords reads flags in what is no language that is known.
func (p places) ofWords(text string) flags {
	var words []string
	for line := range strings.Lines(text) {
		for _, w := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`,;\\", r) }) {
			if strings.HasPrefix(w, "#") {
				break
			}
			if i := strings.Index(w, "--"); i > 0 && strings.ContainsAny(w[i-1:i], "(=[{-:") { // ARGS=(--bf16
				w = w[i:]
			}
			if !strings.ContainsAny(w, "([{") {
				w = strings.TrimRight(w, ")]}:")
			}
			words = append(words, w)
		}
	}
	f := flags{}
	p.add(f, words, func(w string) (text, open string) {
		if !strings.Contains(w, "$") { // as of most words of a long log
			return w, ""
		}
		m := reference().FindStringSubmatch(w)
		if m == nil {
			return w, ""
		}
		return w, "$" + m[1]
	})
	return f
}
