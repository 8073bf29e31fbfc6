package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// blockKinds are the blocks that a layer may be by itself, by the letter of a pattern and
// by transformers' words, the older after the newer.
var blockKinds = map[string]LayerKind{
	"M": mambaAlone, "linear_attention": mambaAlone, "mamba": mambaAlone,
	"*": attentionAlone, "full_attention": attentionAlone, "attention": attentionAlone,
	"-": {Mixer: NoMixer}, "mlp": {Mixer: NoMixer},
	"E": {Mixer: NoMixer, MoE: true}, "moe": {Mixer: NoMixer, MoE: true},
}

var (
	mambaAlone     = LayerKind{Mixer: MambaMixer, NoMLP: true}
	attentionAlone = LayerKind{NoMLP: true}
)

// blocks reads layers that are one block each, from a pattern or a list.
func (r *reader) blocks(d *draft) {
	names, about := d.blocks, "layers_block_type"
	switch {
	case d.pattern != "":
		about = "hybrid_override_pattern"
		pattern, _, _ := strings.Cut(d.pattern, "/") // what follows is of multi-token prediction
		names = strings.Split(strings.ReplaceAll(pattern, "|", ""), "")
	case names == nil:
		return
	}
	if d.Layers == 0 && !r.bad["num_hidden_layers"] {
		d.Layers = int64(len(names))
	}
	if !r.check(d.Layers == int64(len(names)), []string{about, "num_hidden_layers"},
		"%s has %d blocks for num_hidden_layers %d; make them as many, or leave num_hidden_layers out", r.label(about), len(names), d.Layers) {
		return
	}
	experts := false
	for i, name := range names {
		k, ok := blockKinds[name]
		if !r.check(ok, []string{about}, "%s: %q is no block; M or mamba, * or attention, - or mlp, E or moe are", r.label(about), name) {
			d.Mixers, d.NoMLP = nil, nil
			return
		}
		d.Mixers, d.NoMLP = append(d.Mixers, k.Mixer), append(d.NoMLP, k.NoMLP)
		if experts = experts || k.MoE; !k.MoE {
			d.denseLayers = append(d.denseLayers, int64(i))
		}
	}
	if !experts { // their keys may be there all the same
		d.moe = MoE{}
		r.given["num_experts"] = entry{}
		return
	}
	r.needs("num_experts", d.moe.Experts)
}

// attentionKinds are what layer_types calls layers with attention and an MLP.
var attentionKinds = []string{"full_attention", "sliding_attention", "chunked_attention"}

// layerKinds are the words that a model's layer_types may have.
func (d *draft) layerKinds() []string {
	return append(slices.Sorted(maps.Keys(d.mixes)), attentionKinds...)
}

// mixers settles what mixes tokens in layers that have an MLP, too: what layer_types says, or
// attention in every so many, or in those that are listed.
func (r *reader) mixers(d *draft) {
	if d.listed {
		r.needs("layer_types", int64(len(d.layerTypes)))
	}
	r.layerList("attention_layers", d.attends, d.Layers)
	if d.Mixers == nil { // or layers are one block each
		d.Mixers = d.mixersOf()
	}
	r.mamba(d)
	r.delta(d)
	r.short(d)
}

// mixersOf is what mixes tokens layer by layer; nil: attention in all.
func (d *draft) mixersOf() []Mixer {
	out := make([]Mixer, d.Layers)
	for i := range out {
		switch {
		case d.layerTypes != nil && i < len(d.layerTypes):
			out[i] = d.mixes[d.layerTypes[i]]
		case d.layerTypes == nil && d.deltaEvery > 0 && int64(i+1)%d.deltaEvery != 0:
			out[i] = DeltaMixer
		case d.layerTypes == nil && d.attends != nil && !slices.Contains(d.attends, int64(i)):
			out[i] = d.elsewhere
		}
	}
	if !slices.ContainsFunc(out, func(m Mixer) bool { return m != AttentionMixer }) {
		return nil
	}
	return out
}

// mamba settles the state-space mixer.
func (r *reader) mamba(d *draft) {
	if !slices.ContainsFunc(d.Mixers, Mixer.Scans) {
		r.check(r.fam.name != "decoder" || d.mamba == genericMamba, []string{"mamba_num_heads", "mamba_head_dim", "mamba_num_groups", "mamba_state_dim"},
			"no layer has a Mamba mixer; say which have by hybrid_layer_pattern or layer_types")
		return
	}
	m := d.mamba
	inner := cmp.Or(d.mambaInner, max(d.mambaExpand, 2)*d.Hidden)
	switch {
	case m.Heads == 0 && m.HeadDim > 0:
		m.Heads = inner / m.HeadDim
	case m.HeadDim == 0 && m.Heads > 0:
		m.HeadDim = inner / m.Heads
	}
	r.needs("mamba_num_heads", m.Heads)
	r.needs("mamba_head_dim", m.HeadDim)
	r.check(m.Heads%m.Groups == 0, []string{"mamba_num_groups", "mamba_num_heads"},
		"%s %d does not divide %s %d; use %s", r.label("mamba_num_groups"), m.Groups, r.label("mamba_num_heads"), m.Heads, divisors(m.Heads))
	d.Mamba = &m
}

// delta settles the gated delta net.
func (r *reader) delta(d *draft) {
	if !slices.Contains(d.Mixers, DeltaMixer) {
		r.check(r.fam.name != "decoder" || d.delta == genericDelta, []string{"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"},
			"no layer has a gated delta net; say which have by full_attention_interval or layer_types")
		return
	}
	n := d.delta
	r.needs("linear_num_key_heads", n.KeyHeads)
	r.needs("linear_num_value_heads", n.ValueHeads)
	if n.KeyHeads > 0 {
		r.check(n.ValueHeads%n.KeyHeads == 0, []string{"linear_num_key_heads", "linear_num_value_heads"},
			"%s %d does not divide %s %d; use %s", r.label("linear_num_key_heads"), n.KeyHeads, r.label("linear_num_value_heads"), n.ValueHeads, divisors(n.ValueHeads))
	}
	d.Delta = &n
}

// short settles the short convolution.
func (r *reader) short(d *draft) {
	if !slices.Contains(d.Mixers, ShortMixer) {
		r.check(r.fam.name != "decoder" || d.conv == genericShort, []string{"conv_L_cache", "conv_bias"}, "no layer has a short convolution; say which have by layer_types")
		return
	}
	c := d.conv
	d.Short = &c
}
