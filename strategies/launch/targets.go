package launch

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// projections are modules of transformers' models, by what they are in the catalog's.
var projections = map[string][]string{
	"q_proj": {"q"}, "k_proj": {"k"}, "v_proj": {"v"}, "o_proj": {"o"}, "out_proj": {"o"}, "gate_proj": {"gate"}, "up_proj": {"up"}, "down_proj": {"down"}, "qkv_proj": {"qkv"}, "gate_up_proj": {"gate_up"},
	"query_key_value": {"qkv"}, "Wqkv": {"qkv"}, "dense_h_to_4h": {"up"}, "dense_4h_to_h": {"down"}, "c_attn": {"qkv"}, "c_fc": {"up"}, "c_proj": {"o", "down"}, "fc1": {"up"}, "fc2": {"down"},
	"q": {"q"}, "k": {"k"}, "v": {"v"}, "o": {"o"}, "wi": {"up"}, "wi_0": {"gate"}, "wi_1": {"up"}, "wo": {"down"},
}

// modulesOf are those of a model's layers that adapters are known beside, by their paths in a layer, or
// all projections by their own names where it is not in the catalog.
func modulesOf(name string) map[string][]string {
	m := specOf(name)
	if m == nil {
		return projections
	}
	out, tensors := map[string][]string{}, m.Tensors()
	for _, k := range m.Kinds() {
		for _, t := range tensors.Layer(k.LayerKind) {
			role := string(t.Role)
			module := strings.TrimSuffix(t.Name, ".weight")
			if slices.Contains(out[module], role) {
				continue
			}
			if _, err := m.Adapted(1, []string{role}, 0); err == nil {
				out[module] = append(out[module], role)
			}
		}
	}
	return out
}

// projected are the projections of all modules whose names match.
func projected(modules map[string][]string, match func(module string) bool) (out []string) {
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		for _, p := range modules[module] {
			if match(module) && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// leaf is the last part of a module's path.
func leaf(module string) string { return module[strings.LastIndex(module, ".")+1:] }

// inLayers finds what an expression of paths says of all layers alike: what follows their number.
var inLayers = lazily(`layers\\?\.(?:\[\\d\]\+|\\d\+|\[0-9\]\+|\.\*)\\?\.(.+)$`)

// matching is how PEFT takes a name, which is the end of a module's path, or an expression for whole
// paths. One that tells layers apart matches nothing here.
func matching(name string) func(module string) bool {
	if !strings.ContainsAny(name, `*+?[(|\`) {
		return func(module string) bool {
			if !strings.Contains(module, ".") { // of a model that is not in the catalog
				return module == leaf(name)
			}
			return strings.HasSuffix("."+module, "."+name)
		}
	}
	before := "model.layers.0."
	if m := inLayers().FindStringSubmatch(name); m != nil {
		name, before = m[1], ""
	}
	paths, err := regexp.Compile("^(?:" + name + ")$")
	if err != nil || strings.Contains(name, "layers") {
		return func(string) bool { return false }
	}
	return func(module string) bool {
		if strings.Contains(module, ".") {
			return paths.MatchString(before + module)
		}
		return paths.MatchString(before+"self_attn."+module) || paths.MatchString(before+"mlp."+module)
	}
}

// adapt sets the targets of adapters by the names that a file has for them, which match modules as
// its program takes them. What the model lacks is left out, as PEFT does while it has another.
func (j *Job) adapt(from string, names []string, match func(string) func(string) bool) {
	const key = "train.lora.targets"
	name := j.textOf("model")
	modules := modulesOf(name)
	var out []any
	for _, n := range names {
		found := projected(modules, match(n))
		switch {
		case len(found) == 0 && len(projected(projections, match(n))) > 0:
			j.note("%s %s: %s has no such module that adapters are known beside; left out, as PEFT leaves out what a model lacks", from, n, name)
		case len(found) == 0:
			j.note("%s %s: which projections that is; give train.lora.targets", from, n)
		}
		for _, p := range found {
			if !slices.Contains(out, any(p)) {
				out = append(out, p)
			}
		}
	}
	if len(out) > 0 {
		j.set(key, out, from)
	} else {
		j.open(key, from, "none of them is known: give the key")
	}
}

// everyLinear is a name of all projections.
func everyLinear(name string) bool {
	return slices.Contains([]string{"all", "all-linear", "all_linear"}, name)
}

// targets are the projections that have adapters; all of them where a job has none.
func (h *hub) targets() {
	const key = "train.lora.targets"
	a := h.get("lora_target_modules")
	switch names := a.all(); {
	case a.open != "":
		h.open(key, a.from, a.open)
	case len(names) == 0:
		h.open(key, h.without("lora_target_modules"), "PEFT chooses by the kind of model, q and v of Llama's: give the key")
	case slices.ContainsFunc(names, everyLinear): // as a job has it that names none
		for _, n := range names {
			if !everyLinear(n) {
				h.note("%s %s: it has no adapter here", a.from, n)
			}
		}
	default:
		h.adapt(a.from, names, matching)
	}
}
