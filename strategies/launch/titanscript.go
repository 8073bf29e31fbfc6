package launch

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/perfplan/perfplan/internal/diag"
)

// titanCommand is how torchtitan is started: by its script, or by what that starts.
var titanCommand = lazily(`(?:^|[\s/])(?:run_train\.sh|torchtitan_train)(?:\s|$)|-m torchtitan\.train(?:\s|$)|torchtitan/train\.py(?:\s|$)`)

// titanPolicy is how activations are kept, which since 2026-06 is a word by itself.
var titanPolicy = lazily(`\sactivation[-_]checkpoint:([\w-]+)`)

// titanScript reads what starts torchtitan: how many processes there are, and which keys of its
// configuration the command line has instead. Join puts these into a configuration beside it;
// where there is none the command line alone says what the job is.
func (j *Job) titanScript(name string, s start) error {
	j.Notes = append(j.Notes, s.Notes...)
	m := &megatron{Job: j, start: s, names: map[string]string{}} // whose launchers are torchtitan's, too
	m.flags = maps.Clone(s.flags)
	if v, ok := s.env["NGPU"]; ok && strings.Contains(s.text, "run_train.sh") {
		text, open := s.Show(v)
		m.flags["nproc_per_node"], m.names["nproc_per_node"] = flag{value: text, open: open, line: 1}, "NGPU"
	}
	m.machine()
	j.overrides = map[string]string{}
	unset := map[string]flag{}
	for _, name := range slices.Sorted(maps.Keys(s.flags)) {
		switch f := s.flags[name]; {
		case name == "job.config_file" || !strings.Contains(name, "."):
		case f.open != "":
			unset[name] = f
			j.note("--%s %s: the file does not say what that is", name, f.open)
		default:
			j.overrides[name] = strings.Trim(f.value, `"'`)
		}
	}
	if p := titanPolicy().FindStringSubmatch(s.text); p != nil {
		j.overrides["activation_checkpoint.mode"] = strings.ReplaceAll(p[1], "-", "_")
	}
	return j.titanAlone(name, s, unset)
}

// titanSilent are keys of a job that are left out where a configuration has torchtitan's defaults.
var titanSilent = []struct {
	key, from string
	standard  any
}{
	{"plan.tp", "parallelism.tensor_parallel_degree", int64(1)}, {"plan.pp", "parallelism.pipeline_parallel_degree", int64(1)}, {"plan.cp", "parallelism.context_parallel_degree", int64(1)},
	{"plan.ep", "parallelism.expert_parallel_degree", int64(1)}, {"train.precision", "model.converters", "bf16"},
}

// titanAlone reads a command line without its configuration: what that has is left open, but of
// configurations that torchtitan comes with.
func (j *Job) titanAlone(name string, s start, unset map[string]flag) error {
	file, module, function := s.titanConfiguration()
	known, whole := registered(module, function, j.overrides)
	root := map[string]any{}
	for key := range unset {
		delete(known, key)
	}
	overridden(root, known)
	overridden(root, j.overrides)
	c := &table{root: root, partial: true}
	j.command = &Job{}
	j.command.titanReads(c)
	if c.wrong != "" {
		return &diag.Error{File: name, Line: s.flags[c.wrongKey()].line, Col: 1, Message: c.wrong}
	}
	elsewhere := Setting{From: path.Base(strings.TrimSpace(titanCommand().FindString(s.text))), Why: file + " has it: name it by --from, too"}
	if function != "" {
		elsewhere.Why = function + ", a function in Python that is not read, has it: give the key"
		j.command.replays(c)
		j.command.parted(c)
	}
	for _, d := range titanSilent {
		if _, set := unset[d.from]; (!whole || set) && !j.command.mentions(d.key) {
			j.command.set(d.key, d.standard, "default of "+d.from)
		}
	}
	for i := range j.command.Settings {
		at := &j.command.Settings[i]
		first := strings.TrimPrefix(at.From, "default of ")
		f, open := unset[first]
		from, all := sources(at.From, j.overrides, known, function)
		switch {
		case at.From == "" || at.Value == nil && at.Key != "model": // what is torchtitan's, or open already
		case open:
			*at = Setting{Key: at.Key, From: "--" + first, Why: f.takes() + ": give the key"}
		case all || whole:
			at.From = from
		default:
			*at = Setting{Key: at.Key, From: elsewhere.From, Why: elsewhere.Why}
		}
	}
	return nil
}

// sources writes the keys that say something by where they come from: a command line, or what is
// known of a function of the registry. all is false where one is neither's.
func sources(from string, over, known map[string]string, function string) (text string, all bool) {
	keys := strings.Split(from, ", ")
	all = true
	for i, k := range keys {
		switch {
		case over[k] != "":
			keys[i] = "--" + k
		case known[k] != "":
			keys[i] = k + " of " + function
		default:
			all = false
		}
	}
	return strings.Join(keys, ", "), all
}

// titanConfiguration is the file with the configuration of a command, or the function that makes it
// with its module, "" where they are not named.
func (s start) titanConfiguration() (file, module, function string) {
	shown := func(name, variable string) string {
		text := s.flags[name].value
		if _, ok := s.flags[name]; !ok {
			text = s.env[variable]
		}
		text, _ = s.Show(text)
		return text
	}
	file = shown("job.config_file", "CONFIG_FILE")
	if !strings.HasSuffix(file, ".toml") {
		file = "its configuration"
	}
	return file, shown("module", "MODULE"), shown("config", "CONFIG")
}

// override puts what command lines of torchtitan say into the configuration beside them.
func override(jobs []*Job) ([]*Job, error) {
	over := map[string]string{}
	for _, j := range jobs {
		maps.Copy(over, j.overrides)
	}
	configured := slices.ContainsFunc(jobs, func(j *Job) bool { return j.toml != nil })
	out := slices.Clone(jobs)
	for i, j := range jobs {
		switch {
		case j.command != nil && !configured:
			both, err := merge([]*Job{j, j.command})
			if err != nil {
				return nil, err
			}
			both.source = j.source
			out[i] = both
		case j.toml != nil && len(over) > 0:
			out[i] = &Job{source: j.source}
			if err := out[i].titan(j.source, j.toml, over); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// titanLists are keys whose values are lists, which a command line may have as one word or several.
var titanLists = []string{"compile.components", "model.converters"}

// overridden puts values into a configuration, by keys that dots join.
func overridden(root map[string]any, over map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(over)) {
		in, names := root, strings.Split(key, ".")
		last := names[len(names)-1]
		for _, name := range names[:len(names)-1] {
			next, ok := in[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				in[name] = next
			}
			in = next
		}
		var value struct{ V any }
		if toml.Unmarshal([]byte("V = "+over[key]), &value) != nil {
			value.V = over[key]
		}
		if _, list := value.V.([]any); slices.Contains(titanLists, key) && !list {
			value.V = plain("[" + strings.Trim(over[key], "[]") + "]")
		}
		if on, ok := strings.CutPrefix(last, "no_"); ok && value.V == true {
			last, value.V = on, false
		}
		in[last] = value.V
	}
}
