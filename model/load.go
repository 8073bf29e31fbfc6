package model

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// Format is the value of the `perfplan:` key of a model file. The key may be
// left out, so that any config.json is a model file.
const Format = "model/v1"

// Load reads a model: a catalog name, a YAML or JSON file with the keys of a
// Hugging Face config.json, or a folder that holds a config.json. A catalog
// name wins over a file of that name; write ./name for the file.
func Load(name string) (*Spec, error) {
	doc, err := Document(name)
	if err != nil {
		return nil, err
	}
	return decodeAll(doc)
}

// Document finds and parses a model as Load does, without decoding it.
func Document(name string) (*yamlx.Document, error) {
	if doc, err := catalogFile(name); doc != nil || err != nil {
		return doc, err
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrPermission), err != nil && looksLikePath(name):
		return nil, diag.Unread(name, err)
	case err != nil:
		return nil, diag.Errorf("unknown model %q%s", name, catalogHint(name))
	case info.IsDir():
		folder := name
		name = filepath.Join(name, "config.json")
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return nil, &diag.Error{File: folder, Message: "is a folder without a config.json; name a file in it, or the folder of a model"}
		}
	}
	return yamlx.ReadFile(name)
}

// Known reports whether a name or alias is in the catalog.
func Known(name string) bool {
	doc, _ := catalogFile(name)
	return doc != nil
}

// Beside returns the name or path under which Load finds the model that a value of
// a document names.
func Beside(doc *yamlx.Document, n *yaml.Node) string {
	if !Known(n.Value) && looksLikePath(n.Value) {
		return doc.Path(n)
	}
	return n.Value
}

// looksLikePath tells a mistyped path from a mistyped catalog name.
func looksLikePath(name string) bool {
	return strings.ContainsRune(name, filepath.Separator) || slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(name))
}

// decodeAll reads a document that holds one model and names the model after it.
func decodeAll(doc *yamlx.Document) (*Spec, error) {
	s, errs := decodeMapping(doc, doc.Root)
	if err := errs.Err(); err != nil {
		return nil, err
	}
	if n := lookup(doc.Root, "name"); n != nil && n.Tag != "!!null" {
		return s, nil
	}
	s.Name = strings.TrimSuffix(filepath.Base(doc.Name), filepath.Ext(doc.Name))
	if filepath.Base(doc.Name) == "config.json" { // every Hugging Face folder has one
		if path, err := filepath.Abs(doc.Name); err == nil {
			s.Name = filepath.Base(filepath.Dir(path))
		}
	}
	return s, nil
}

// Decode reads the `model:` value of another file: a name or path, as Load
// takes it, or a mapping with the model written in place. A relative path is
// looked up beside the file that names it.
func Decode(doc *yamlx.Document, n *yaml.Node) (*Spec, diag.List) {
	if n = resolve(n); n == nil || n.Kind != yaml.ScalarNode {
		return decodeMapping(doc, n)
	}
	s, err := Load(Beside(doc, n))
	var list diag.List
	var one *diag.Error
	switch {
	case errors.As(err, &list):
		return nil, list
	case errors.As(err, &one) && one.Line > 0:
		return nil, diag.List{one}
	case err != nil: // about the name itself: point at it
		return nil, diag.List{doc.Errorf(n, "%s", err.Error())}
	}
	return s, nil
}

// resolve follows a YAML alias to the node it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// lookup returns the value of a key, or nil.
func lookup(n *yaml.Node, key string) *yaml.Node {
	_, value := yamlx.Key(n, key)
	return resolve(value)
}

// reader reads one mapping as one family.
type reader struct {
	doc   *yamlx.Document
	node  *yaml.Node
	vocab *vocabulary
	fam   *family
	known map[string]string // key as spelled → canonical name
	given map[string]entry  // canonical name → what the file says
	bad   map[string]bool   // canonical names whose value is in doubt
	errs  diag.List

	missing []string // keys, as the file would spell them
	guess   []string // families that a file may be of whose model_type is missing or misspelt
}

// maxComplaints ends the reading of a file that is not a model at all: each
// unknown key is compared with all known ones.
const maxComplaints = 100

// entry is one key of the file.
type entry struct{ key, value *yaml.Node }

// decodeMapping reads a model written as a mapping.
func decodeMapping(doc *yamlx.Document, n *yaml.Node) (*Spec, diag.List) {
	r := &reader{doc: doc, node: n, vocab: vocabularyOnce(), given: map[string]entry{}, bad: map[string]bool{}}
	if n == nil || n.Kind != yaml.MappingNode {
		r.errorf(n, "a model is a mapping with the keys of a Hugging Face config.json, or a name or path")
		return nil, r.errs
	}
	if value := lookup(n, "perfplan"); value != nil && value.Value != Format {
		r.errorf(value, "perfplan: %q is not a model; a model file starts with \"perfplan: %s\"", value.Value, Format)
		return nil, r.errs
	}
	var tied *yaml.Node
	r.choose("")
	outer := r.fam
	nested := outer != nil && outer.text != ""
	if nested {
		tied = r.descend()
	}
	if r.fam == nil {
		r.skim()
		return nil, r.errs
	}
	d := r.fam.base
	d.ModelType = r.fam.name
	d.Name = cmp.Or(r.name(n), d.ModelType)
	r.read(&d)
	if tied != nil {
		r.errs = append(r.errs, doc.DecodeInto(tied, &d.Tied)...)
	}
	defaulted := r.defaulted(&d)
	d.DropoutUnnamed = r.fam.name == "decoder" && !r.gives("embedding_dropout", "attention_dropout", "residual_dropout")
	r.finish(&d)
	if nested {
		r.vision(n, outer, &d)
		d.TextOnly = d.Vision == nil
	}
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	d.Headless, d.Quantized = headless(n), cmp.Or(quantized(n), quantized(r.node))
	d.Defaulted = slices.DeleteFunc(defaulted, func(s Size) bool {
		return d.MoE == nil && (strings.Contains(s.Key, "expert") || strings.HasPrefix(s.Key, "moe_"))
	})
	for i := range d.Defaulted {
		d.Defaulted[i].Key = r.label(d.Defaulted[i].Key)
	}
	return &d.Spec, nil
}

// MaxName is how long a name may be that a model gives itself: it is the title of results.
const MaxName = 100

// name is what a model written in place is called, which no file or catalog says; "" where it
// does not say so itself.
func (r *reader) name(n *yaml.Node) string {
	given := lookup(n, "name")
	if given == nil || given.Tag == "!!null" {
		return ""
	}
	if given.Kind != yaml.ScalarNode || strings.TrimSpace(given.Value) == "" || len(given.Value) > MaxName || strings.ContainsFunc(given.Value, func(c rune) bool { return !unicode.IsPrint(c) }) {
		r.errorf(given, "name: give 1 to %d printable characters, or leave it out", MaxName)
	}
	return given.Value
}

// sizes are the keys that make a model as large as it is.
var sizes = []string{"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_intermediate_size"}

// defaulted are the sizes that the file leaves to its family, as transformers does: a file
// cut short is a model all the same, if not the one that was meant.
func (r *reader) defaulted(d *draft) []Size {
	var out []Size
	for _, name := range sizes {
		if r.gives(name) || name == "intermediate_size" && r.gives("block_ff_dim") || !slices.Contains(slices.Collect(maps.Values(r.known)), name) {
			continue
		}
		if v, ok := r.vocab.keys[name].to(d)[0].(*int64); ok && *v > 0 { // else it follows from others, or is not there
			out = append(out, Size{name, *v})
		}
	}
	return out
}

// gives reports whether the file gives one of some keys a value.
func (r *reader) gives(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, given := r.given[name]; return given })
}

// headless is the class of a file, where that is one without the language model's head:
// transformers' classifiers and bare towers, and reward models by custom code.
func headless(n *yaml.Node) string {
	list := lookup(n, "architectures")
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) != 1 {
		return ""
	}
	class := resolve(list.Content[0]).Value
	for _, end := range []string{"Classification", "QuestionAnswering", "Reward", "Model"} {
		if strings.HasSuffix(class, end) && !strings.HasSuffix(class, "LMHeadModel") {
			return class
		}
	}
	return ""
}

// quantized is how the weights of a file are packed.
func quantized(n *yaml.Node) string {
	how := lookup(n, "quantization_config")
	if how == nil || off(how) {
		return ""
	}
	if method := lookup(how, "quant_method"); method != nil && method.Value != "" {
		return method.Value
	}
	return "of an unknown quant_method"
}

// choose finds the family that r.node's model_type names; absent stands in for
// a missing one.
func (r *reader) choose(absent string) {
	value := lookup(r.node, "model_type")
	name := absent
	if value != nil && value.Kind == yaml.ScalarNode && value.Tag != "!!null" && value.Value != "" {
		name = value.Value
	}
	r.fam = r.vocab.families[name]
	if why := notModelled(name); r.fam == nil || why != "" {
		r.fam = nil
		r.unread(name, value, why)
	}
	if gated := lookup(r.node, "gated_mlp"); gated != nil && name == "decoder" && strings.EqualFold(gated.Value, "false") {
		r.fam = ungated()
	}
	r.known = r.vocab.known[r.fam]
}

// descend moves from a multimodal file to its text_config, the language model, which is
// the file itself in the first ones of Qwen2-VL and Qwen2.5-VL. It returns the outer
// tie_word_embeddings, which is the one that counts.
func (r *reader) descend() (tied *yaml.Node) {
	outer := r.fam
	text := lookup(r.node, "text_config")
	if text == nil && lookup(r.node, "hidden_size") != nil {
		text = r.node
	} else {
		r.known = maps.Clone(r.vocab.known[outer])
		r.known["text_config"], r.known["tie_word_embeddings"] = "", ""
		r.each(func(string, entry) {}) // for its complaints
		tied = lookup(r.node, "tie_word_embeddings")
	}
	if r.fam = nil; text == nil || text.Kind != yaml.MappingNode {
		r.errorf(r.node, "%s files nest the language model under text_config, which is missing", outer.name)
		return nil
	}
	r.node = text
	if r.choose(outer.text); r.fam == outer { // some files repeat the outer type
		r.fam = r.vocab.families[outer.text]
		r.known = r.vocab.known[r.fam]
	}
	return tied
}

// each calls f for every key the family knows, and reports all others.
func (r *reader) each(f func(canonical string, e entry)) { r.eachOf(r.node, "", f) }

// eachOf is each of a mapping whose keys the family knows by their names after a prefix.
func (r *reader) eachOf(n *yaml.Node, prefix string, f func(canonical string, e entry)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		e := entry{n.Content[i], resolve(n.Content[i+1])}
		spelled := prefix + e.key.Value
		if len(r.errs) >= maxComplaints {
			r.errorf(e.key, "too many errors; the rest of the keys is not read")
			return
		}
		if seen[spelled] {
			r.errorf(e.key, "key %q is given twice; leave one of them out", spelled)
			continue
		}
		seen[spelled] = true
		canonical, ok := r.known[spelled]
		value, one := strings.CutPrefix(canonical, fixed)
		switch {
		case !ok:
			r.other(spelled, e)
		case canonical == nested && e.value.Kind == yaml.MappingNode:
			r.eachOf(e.value, spelled+nested, f)
		case canonical == nested && e.value.Tag != "!!null":
			r.errorf(e.value, "%s: expected a mapping", spelled)
		case canonical == nested:
		case one:
			r.only(spelled, value, e.value)
		default:
			f(canonical, e)
		}
	}
}

// sameNumber reports whether two texts are spellings of one number, as 0 and 0.0 are.
func sameNumber(a, b string) bool {
	x, err := strconv.ParseFloat(a, 64)
	y, other := strconv.ParseFloat(b, 64)
	return err == nil && other == nil && x == y
}

// only refuses what a key, or an entry of its list, says other than the value that is modelled;
// null is the default.
func (r *reader) only(spelled, want string, n *yaml.Node) {
	for _, entry := range n.Content {
		r.only(spelled, want, entry)
	}
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" && !strings.EqualFold(n.Value, want) && !sameNumber(n.Value, want) {
		r.errorf(n, "%s: %s is not modelled; only %s is", spelled, n.Value, want)
	}
}

// other judges a key the family does not know. Keys of config.json that change
// nothing pass; keys of other families pass when they are switched off, as in
// files that were written by converting another model, and unknown ones that are
// null, unless they are likely meant for one that null takes something from. False
// and 0 of those do not pass: they may turn off what the family is read to have.
// The generic form is written by hand, so there none of them does.
func (r *reader) other(spelled string, e entry) {
	bare := e.key.Value
	if want, ok := only[bare]; ok {
		r.only(spelled, want, e.value)
		return
	}
	if r.vocab.irrelevant[bare] || strings.HasPrefix(bare, "_") {
		return
	}
	others := r.vocab.spoken[spelled]
	if len(r.guess) > 0 && len(others) > 0 {
		return // of the family that it is
	}
	if len(others) > 0 {
		if r.fam.name != "decoder" && off(e.value) {
			r.overruled(spelled, e)
			return
		}
		remedy := "remove it or change model_type"
		if canonical := r.vocab.families[others[0]].names()[spelled]; r.known[canonical] != "" {
			remedy = "write " + canonical
		}
		r.errorf(e.key, "%q is a key of %s, not of %s; %s", spelled, strings.Join(others[:min(3, len(others))], ", "), r.fam.name, remedy)
		return
	}
	near := diag.Nearest(spelled, append(sorted(r.known), sorted(r.vocab.irrelevant)...))
	if k := r.vocab.keys[r.known[near]]; e.value.Tag == "!!null" && r.fam.name != "decoder" && (k == nil || !k.optional) {
		return
	}
	if near == "" && len(r.guess) > 0 {
		return
	}
	if near == "" {
		r.errorf(e.key, "unknown key %q; no configuration of %s has it; remove it if it changes nothing of the model", spelled, r.fam.name)
		return
	}
	r.fail(r.known[near], e.key, "unknown key %q; did you mean %q?", spelled, near)
}

// overruled reports a key that the family spells otherwise, whose zero would change nothing
// of what the file sets by the family's own, or of the family's default.
func (r *reader) overruled(spelled string, e entry) {
	if e.value.Kind != yaml.ScalarNode || e.value.Tag == "!!null" || e.value.Value == "" {
		return
	}
	canonical := r.vocab.families[r.vocab.spoken[spelled][0]].names()[spelled]
	own := ""
	for _, s := range sorted(r.known) {
		if r.known[s] != canonical || canonical == "" {
			continue
		}
		own = s
		if at := slices.IndexFunc(r.node.Content, func(n *yaml.Node) bool { return n.Value == s }); at >= 0 && at%2 == 0 {
			if value := resolve(r.node.Content[at+1]); !off(value) {
				r.errorf(e.key, "%s is what %s calls %q, and the file has %s for it; change that one", s, r.fam.name, spelled, value.Value)
			}
			return
		}
	}
	if own != "" {
		r.errorf(e.key, "%s is what %s calls %q; write that", own, r.fam.name, spelled)
	}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// off reports whether a value means "not there".
func off(n *yaml.Node) bool {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Tag == "!!null" || slices.Contains([]string{"false", "False", "0", "0.0", ""}, n.Value)
	case yaml.SequenceNode, yaml.MappingNode:
		return len(n.Content) == 0
	}
	return false
}

// read fills the draft from the keys of the mapping.
func (r *reader) read(d *draft) {
	r.each(func(canonical string, e entry) {
		if canonical == "" {
			return
		}
		if first, twice := r.given[canonical]; twice {
			if first.value.Value != e.value.Value && e.value.Tag != "!!null" {
				r.fail(canonical, e.key, "%s and %s name the same thing and differ (%s, %s); keep one, or change %s alone", first.key.Value, e.key.Value, first.value.Value, e.value.Value, first.key.Value)
			}
			return
		}
		k := r.vocab.keys[canonical]
		if e.value.Tag == "!!null" {
			if k.optional {
				for _, p := range k.to(d) {
					reflect.ValueOf(p).Elem().SetZero()
				}
			}
			return
		}
		r.given[canonical] = e
		r.value(k, e, d)
	})
}

// value decodes one value and checks it alone. A value that is refused leaves
// the default in place, so that later checks work with possible sizes.
func (r *reader) value(k *key, e entry, d *draft) {
	for _, p := range k.to(d) {
		before := reflect.ValueOf(p).Elem()
		restore := reflect.New(before.Type()).Elem()
		restore.Set(before)
		if errs := r.doc.DecodeInto(e.value, p); len(errs) > 0 {
			for _, err := range errs {
				err.Message = e.key.Value + ": " + err.Message
			}
			r.errs = append(r.errs, errs...)
			r.bad[k.name] = true
			return
		}
		var x float64
		switch p := p.(type) {
		case *int64:
			x = float64(*p)
		case *automatic:
			x = float64(*p)
		case *float64:
			x = *p
		}
		if k.max > 0 && (x < float64(k.min) || x > float64(k.max)) {
			before.Set(restore)
			r.fail(k.name, e.value, "%s: %s is out of range; use %d to %d", e.key.Value, e.value.Value, k.min, k.max)
			return
		}
	}
	if k.one != nil && !slices.Contains(k.one, e.value.Value) {
		r.fail(k.name, e.value, "%s: %q is not known%s", e.key.Value, e.value.Value, diag.DidYouMean(e.value.Value, k.one))
	}
}

func (r *reader) errorf(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, r.doc.Errorf(n, format, args...))
}

// fail reports a complaint about a key and keeps later checks off it.
func (r *reader) fail(canonical string, n *yaml.Node, format string, args ...any) {
	r.errorf(n, format, args...)
	r.bad[canonical] = true
}

// check reports a broken rule at the first of the keys it is about, unless one
// of them is already in doubt.
func (r *reader) check(ok bool, about []string, format string, args ...any) bool {
	for _, name := range about {
		if r.bad[name] {
			return false
		}
	}
	if ok {
		return true
	}
	at := r.node
	for _, name := range about {
		if e, given := r.given[name]; given {
			at = e.value
			break
		}
	}
	r.fail(about[0], at, format, args...)
	return false
}

// label is how the file spells a key; the canonical name when it does not.
func (r *reader) label(canonical string) string {
	if e, ok := r.given[canonical]; ok {
		return e.key.Value
	}
	if _, ok := r.known[canonical]; ok {
		return canonical
	}
	for spelled, c := range r.known {
		if c == canonical {
			canonical = min(canonical, spelled)
		}
	}
	return canonical
}
