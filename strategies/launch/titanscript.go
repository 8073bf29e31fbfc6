package launch

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// titanCommand is how torchtitan is started: by its script, or by what that starts.
var titanCommand = lazily(`(?:^|[\s/])run_train\.sh(?:\s|$)|-m torchtitan\.train(?:\s|$)|torchtitan/train\.py(?:\s|$)`)

// titanScript reads what starts torchtitan: how many processes there are, and which keys of its
// configuration the command line has instead, which Join puts in.
func (j *Job) titanScript(s start) {
	j.Notes = append(j.Notes, s.Notes...)
	m := &megatron{Job: j, start: s, names: map[string]string{}} // whose launchers are torchtitan's, too
	m.flags = maps.Clone(s.flags)
	if v, ok := s.env["NGPU"]; ok && strings.Contains(s.text, "run_train.sh") {
		text, open := s.Show(v)
		m.flags["nproc_per_node"], m.names["nproc_per_node"] = flag{value: text, open: open, line: 1}, "NGPU"
	}
	m.machine()
	file := s.env["CONFIG_FILE"]
	j.overrides = map[string]string{}
	for name, f := range s.flags {
		switch {
		case name == "job.config_file":
			file = f.value
		case !strings.Contains(name, "."):
		case f.open != "":
			j.note("--%s %s: the file does not say what that is", name, f.open)
		default:
			j.overrides[name] = strings.Trim(f.value, `"'`)
		}
	}
	file, _ = s.Show(file)
	if !strings.HasSuffix(file, ".toml") {
		file = "its configuration"
	}
	j.open("model", path.Base(strings.TrimSpace(titanCommand().FindString(s.text))), file+" has it: name it by --from, too")
}

// override puts what command lines of torchtitan say into the configuration beside them.
func override(jobs []*Job) ([]*Job, error) {
	over := map[string]string{}
	for _, j := range jobs {
		maps.Copy(over, j.overrides)
	}
	out := slices.Clone(jobs)
	for i, j := range jobs {
		if j.toml == nil || len(over) == 0 {
			continue
		}
		out[i] = &Job{source: j.source}
		if err := out[i].titan(j.source, j.toml, over); err != nil {
			return nil, err
		}
	}
	return out, nil
}

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
		if on, ok := strings.CutPrefix(last, "no_"); ok && value.V == true {
			last, value.V = on, false
		}
		in[last] = value.V
	}
}
