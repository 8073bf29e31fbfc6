package launch

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// Setting is a key of a job file.
type Setting struct {
	Key   string // "plan.tp"
	Value any    // string, int64, float64, bool, or []any; nil: it is not known, and Why says so
	From  string // what said so: a flag, a key
	Why   string
}

// Job is what files that start a job say of it.
type Job struct {
	Settings []Setting
	Ignored  []string // flags and keys that change neither time nor memory, or that nobody knows
	Notes    []string // what is left out that may
	StepTime float64  // s, as a log has it: the median of Steps iterations after the first third; 0: no log
	Steps    int
	source   string
}

// Measured says what a step took in a log, "" where there is none.
func (j *Job) Measured() string {
	if j.Steps == 0 {
		return ""
	}
	return fmt.Sprintf("%.4g s a step, the median of %d iterations after the first third", j.StepTime, j.Steps)
}

// sections are the parts of a job file, in order.
var sections = []string{"model", "gpus", "runtime", "plan", "train"}

// tables are what tells a configuration in TOML.
var tables = regexp.MustCompile(`(?m)^\[(training|parallelism|model|job)\]\s*(#.*)?$`)

// Read reads one file. Its name is for messages.
func Read(name string, text []byte) (*Job, error) {
	j := &Job{source: name}
	text = bytes.Map(func(r rune) rune { // what no comment may hold
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || !unicode.IsPrint(r) && !unicode.IsSpace(r) || r == utf8.RuneError) {
			return ' '
		}
		return r
	}, text)
	switch trimmed := bytes.TrimSpace(text); {
	case len(trimmed) == 0:
		return nil, &diag.Error{File: name, Message: "is empty; give a script or a log of Megatron-LM, or a configuration of DeepSpeed or torchtitan"}
	case trimmed[0] == '{':
		if err := j.deepspeed(name, text); err != nil {
			return nil, err
		}
	case tables.Match(text):
		if err := j.torchtitan(name, text); err != nil {
			return nil, err
		}
	default:
		if err := j.megatron(name, string(text)); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// Join puts together what several files say of one job.
func Join(jobs []*Job) (*Job, error) {
	all := &Job{}
	for _, j := range jobs {
		for _, s := range j.Settings {
			i := slices.IndexFunc(all.Settings, func(o Setting) bool { return o.Key == s.Key })
			switch {
			case i < 0:
				all.Settings = append(all.Settings, s)
			case s.Key == "runtime.recipe": // of two frameworks the one that shards
				if s.Value == deepspeedRecipe && all.Settings[i].Value == megatronRecipe {
					s.Value = shardedRecipe
				}
				all.Settings[i] = s
			case fmt.Sprint(all.Settings[i].Value) != fmt.Sprint(s.Value):
				return nil, diag.Errorf("%s: %s says %v, but %s before it %v; leave one of them out", s.Key, s.From, s.Value, all.Settings[i].From, all.Settings[i].Value)
			}
		}
		all.Ignored = append(all.Ignored, j.Ignored...)
		all.Notes = append(all.Notes, j.Notes...)
		if j.Steps > 0 {
			all.StepTime, all.Steps = j.StepTime, j.Steps
		}
		all.source = strings.TrimPrefix(all.source+", "+j.source, ", ")
	}
	return all, nil
}

func (j *Job) set(key string, value any, from string) {
	j.Settings = append(j.Settings, Setting{Key: key, Value: value, From: from})
}

func (j *Job) note(format string, args ...any) {
	j.Notes = append(j.Notes, fmt.Sprintf(format, args...))
}

// YAML writes a job file: every key with what said so beside it.
func (j *Job) YAML() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode, HeadComment: "A training step to predict, read from " + j.source}
	if m := j.Measured(); m != "" {
		root.HeadComment += "\nMeasured: " + m
	}
	add(root, "perfplan", "job/v1", "")
	j.sections(root)
	root.FootComment = j.foot()
	return yamlx.Encode(root)
}

// Runs writes measured runs, one of each log, for perfplan validate and for --runs.
func Runs(jobs []*Job) ([]byte, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	ids := map[string]int{}
	for _, j := range jobs {
		if j.Steps == 0 {
			return nil, &diag.Error{File: j.source, Message: "has no line that says what an iteration took; give logs of Megatron-LM, or leave --measured out for a job"}
		}
		for _, s := range j.Settings {
			if s.Value == nil {
				return nil, &diag.Error{File: j.source, Message: fmt.Sprintf("%s is not known: %s: %s; a log that begins with its arguments has it", s.Key, s.From, s.Why)}
			}
		}
		id := strings.TrimSuffix(path.Base(filepath.ToSlash(j.source)), filepath.Ext(j.source))
		if ids[id]++; ids[id] > 1 {
			id = fmt.Sprintf("%s-%d", id, ids[id])
		}
		run := &yaml.Node{Kind: yaml.MappingNode, HeadComment: j.foot()}
		add(run, "id", id, "")
		j.sections(run)
		add(run, "measured.step_time", fmt.Sprintf("%.6g s", j.StepTime), fmt.Sprintf("median of %d iterations after the first third", j.Steps))
		list.Content = append(list.Content, run)
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	add(root, "perfplan", "runs/v1", "")
	add(root, "source", "logs of Megatron-LM", "")
	root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "runs"}, list)
	return yamlx.Encode(root)
}

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
				open = append(open, fmt.Sprintf("%s: %s: %s", s.Key, s.From, s.Why))
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
			root.Content[n-2].HeadComment = strings.Join(open, "\n")
		}
	}
}

// foot is what a job leaves out.
func (j *Job) foot() string {
	var lines []string
	for _, n := range j.Notes {
		lines = append(lines, "Not taken over: "+n)
	}
	if len(j.Ignored) > 0 {
		lines = append(lines, "Without a key: "+strings.Join(j.Ignored, " "))
	}
	return strings.Join(lines, "\n")
}

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
	v.LineComment = comment
	to.Content = append(to.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, v)
}
