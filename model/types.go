package model

import (
	"cmp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
)

// Type is a model_type that files may have.
type Type struct {
	Name   string
	Models []string // those of the catalog that are read as it
}

// Types lists the model_types that are read, by name, each with its models of the catalog.
// Every file of these is parsed.
func Types() []Type {
	of := map[string][]string{}
	for _, name := range Names() {
		if doc, err := catalogFile(name); err == nil { // a test loads every file
			if n := doc.At("model_type"); n != nil {
				of[n.Value] = append(of[n.Value], name)
			}
		}
	}
	var out []Type
	for _, name := range modelTypes() {
		out = append(out, Type{name, of[name]})
	}
	return out
}

// all is where a message points to that has no room for all names.
const all = "perfplan model types lists all"

// unread reports a model_type that is not read, and what to do.
func (r *reader) unread(name string, value *yaml.Node, why string) {
	near, text := respelled(name), r.text()
	switch {
	case why != "":
		r.errorf(value, "model_type %q: %s", name, why)
	case name == "" && r.job() != "":
		r.errorf(r.node, "is a job, not a model: it has %s; give the model that a job names, or a config.json", r.job())
	case name == "" && lookup(r.node, "schema") != nil:
		r.errorf(lookup(r.node, "schema"), "schema: %s is not a model; give a name of the catalog or a config.json", lookup(r.node, "schema").Value)
	case name == "":
		r.guess = r.likely()
		remedy := "as in model_type: llama"
		if len(r.guess) > 0 {
			remedy = "which may be " + diag.Or(r.guess) // by its class or its keys
		}
		r.errorf(cmp.Or(value, r.node), "model_type is missing; add it, %s; %s", remedy, all)
	case near != "":
		r.guess = []string{near}
		r.errorf(value, "model_type %q is not known; did you mean %q?", name, near)
	case text != "":
		r.errorf(value, "model_type %q is not known, but %s of the file is; write that to a file of its own for the language model alone", name, text)
	default:
		spelled := ""
		if like := diag.Like(name, modelTypes(), 3); len(like) > 0 {
			spelled = "; names like it are those of " + diag.Or(like)
		}
		r.errorf(value, "model_type %q is not known; describe the model with model_type: decoder%s; %s", name, spelled, all)
	}
}

// job is the key that tells a job in the place of a model, "" where none does.
func (r *reader) job() string {
	for _, key := range []string{"model", "gpus", "train", "plan", "runtime"} {
		if lookup(r.node, key) != nil {
			return key + ":"
		}
	}
	return ""
}

// likely are at most three families that a mapping without a model_type may be of: the one that
// its class is named after, else the first that know the most of its keys. None where no key tells.
func (r *reader) likely() []string {
	if list := lookup(r.node, "architectures"); list != nil && len(list.Content) == 1 {
		class, _, _ := strings.Cut(resolve(list.Content[0]).Value, "For")
		if name := respelled(class); name != "" {
			return []string{name}
		}
	}
	score := map[string]int{}
	best := 0
	for i := 0; i+1 < len(r.node.Content); i += 2 {
		for _, name := range r.vocab.spoken[r.node.Content[i].Value] {
			if r.vocab.families[name].text == "" { // whose own keys say nothing of the language model
				score[name]++
				best = max(best, score[name])
			}
		}
	}
	var out []string
	for i := range families {
		if name := families[i].name; score[name] == best && best > 0 && len(out) < 3 && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// skim reads keys and values of a mapping whose model_type is missing or misspelt as the family
// that it is likely of, so that its other mistakes are not told one after another. What hangs on
// which family it is stays unsaid.
func (r *reader) skim() {
	if len(r.guess) == 0 || r.node.Kind != yaml.MappingNode {
		return
	}
	r.fam = r.vocab.families[r.guess[0]]
	if r.fam.text != "" {
		return // keys of a file that nests its language model
	}
	r.known = r.vocab.known[r.fam]
	d := r.fam.base
	r.read(&d)
}

// text is where a multimodal file of a type that is not known has a language model that is, as in
// text_config (model_type: llama); "": nowhere.
func (r *reader) text() string {
	for _, path := range []string{"text_config", "thinker_config.text_config", "llm_config", "language_config"} {
		n := r.node
		for key := range strings.SplitSeq(path, ".") {
			n = lookup(n, key)
		}
		if kind := lookup(n, "model_type"); kind != nil && r.vocab.families[kind.Value] != nil {
			return path + " (model_type: " + kind.Value + ")"
		}
	}
	return ""
}

// respelled is the family whose name differs by case, separators and doubled letters at most:
// other names that are like it are of other architectures (gpt_neo, mllama, pixtral).
func respelled(name string) string {
	plain := func(s string) string {
		letters := slices.DeleteFunc([]rune(strings.ToLower(s)), func(c rune) bool { return strings.ContainsRune("-_. ", c) })
		return string(slices.Compact(letters))
	}
	for _, known := range modelTypes() {
		if plain(name) == plain(known) {
			return known
		}
	}
	return ""
}

// modelTypes lists the families by name.
func modelTypes() []string {
	var names []string
	for i := range families {
		if i == 0 || families[i].name != families[i-1].name {
			names = append(names, families[i].name)
		}
	}
	slices.Sort(names)
	return names
}
