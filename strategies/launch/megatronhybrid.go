package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// blockLetters are the blocks of a pattern that the model has (model/finish.go, blockKinds).
const blockLetters = "M*-E"

// mixerSizes are the arguments of a Mamba mixer that are keys of a model by the same names.
var mixerSizes = []string{"mamba_num_heads", "mamba_head_dim", "mamba_num_groups", "mamba_state_dim"}

// ratios are how older releases spread blocks over layers without a pattern.
var ratios = []string{"hybrid_attention_ratio", "hybrid_mlp_ratio"}

// mixes are programs whose layers are not all attention.
var mixes = lazily(`\bpretrain_(?:mamba|hybrid)\.py`)

// pattern is the argument with the letters of a hybrid model's layers, or its older name; ""
// where neither is given.
func (m *megatron) pattern() string {
	return m.first("hybrid_layer_pattern", "hybrid_override_pattern")
}

// blocks are the letters of layers that are one block each; "": they are none. known is false
// where nothing says what the layers are: it leaves the model open, which without them is
// another one.
func (m *megatron) blocks() (letters string, known bool) {
	name := m.pattern()
	open := func(name, why string) (string, bool) {
		m.open("model", m.from(name), why+": give the key")
		return "", false
	}
	if name == "" {
		for _, of := range append(ratios, "is_hybrid_model") {
			if x, err := strconv.ParseFloat(m.word(of), 64); err == nil && x > 0 || err != nil && m.has(of) {
				return open(of, "no letters say which layers are Mamba mixers")
			}
		}
		if p := mixes().FindString(m.text); p != "" {
			return open("hybrid_layer_pattern", "left out, so that no letters say which layers of "+strings.TrimSpace(p)+" are Mamba mixers")
		}
		return "", true
	}
	if f := m.flags[name]; f.open != "" {
		return open(name, f.takes())
	}
	letters, _, _ = strings.Cut(m.word(name), "/")
	letters = strings.ReplaceAll(letters, "|", "")
	for _, letter := range letters {
		if !strings.ContainsRune(blockLetters, letter) {
			return open(name, fmt.Sprintf("%q is none of the blocks that are known, M, *, - and E", string(letter)))
		}
	}
	if letters == "" {
		return open(name, "it has no letters")
	}
	return letters, true
}

// hybrid takes over layers that are one block each, which with | between stages of a pipeline
// and multi-token prediction after a / say how many layers there are, whatever num_layers does
// (megatron/core/models/hybrid/hybrid_layer_allocation.py).
func (m *megatron) hybrid(blocks string) {
	if blocks == "" {
		return
	}
	name := m.pattern()
	m.follows("num_layers", strconv.Itoa(len(blocks)), name)
	delete(m.flags, "moe_layer_freq") // the letters say which layers have experts
	m.set("model.hybrid_layer_pattern", blocks, m.from(name))
	if strings.Contains(blocks, "M") {
		for _, size := range mixerSizes {
			m.take("model."+size, size)
		}
	}
	predicts, like := m.word("mtp_hybrid_override_pattern"), "*-"
	if _, after, _ := strings.Cut(m.word(name), "/"); after != "" {
		m.follows("mtp_num_layers", strconv.Itoa(1+strings.Count(after, "/")), name)
		predicts, _, _ = strings.Cut(after, "/")
	}
	if strings.Contains(blocks, "E") {
		like = "*E"
	}
	if m.has("mtp_num_layers") && predicts != like {
		m.note("%s %s: multi-token prediction is taken to have the blocks %s", m.from(name), m.word(name), like)
	}
}
