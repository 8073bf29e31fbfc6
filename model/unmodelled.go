package model

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// unmodelled are model_types of transformers that cannot be predicted yet: what they have
// that is not modelled, and what comes nearest.
var unmodelled = []struct {
	names string // words
	has   string
	as    string // the model_type that reads their files; "": none does
	then  string // what is predicted as that type, or what else to do

	unless func(*yaml.Node) bool // files of the type that do not have it; nil: all have
}{
	{"minimax minimax_m1 minimax_text_01", "lightning attention in most layers", "", "its experts and its other layers are model_type mixtral", nil},
	{"kimi_linear", "delta nets whose decay is of every channel beside latent attention without rotary embedding", "", "gated delta nets come near", nil},
	{"gemma3n gemma3n_text", "several residual streams, low-rank branches and activations cut to the largest", "", "gemma4-e2b and gemma4-e4b of the catalog come near", nil},
	{"falcon_h1", "attention and a Mamba-2 mixer side by side in every layer", "", "hybrid_layer_pattern has them one after another", nil},
	{"granitemoehybrid bamba", "Mamba-2 mixers with an MLP or experts in the same layer", "", "hybrid_layer_pattern has them one after another", attends},
	{"longcat_flash", "two attentions and two MLPs around the experts of a layer, some of which do nothing", "", "", nil},
	{"lfm2 lfm2_moe", "short convolutions in the place of attention in most layers", "", "", nil},
	{"jamba mamba falcon_mamba", "mixers of the first Mamba", "", "hybrid_layer_pattern has Mamba-2", nil},
	{"mamba2", "no configuration that is read", "", "hybrid_layer_pattern of one M for each layer has its mixers", nil},
	{"electra", "embeddings narrower than its layers", "bert", "what BERT of those sizes takes", nil},
	{"albert", "layers that share their parameters", "bert", "what BERT of those sizes takes, with parameters of their own", nil},
	{"mpnet deberta deberta-v2", "positions relative to each other in its scores", "bert", "what BERT of those sizes takes", nil},
	{"t5 mt5 umt5 longt5 bart mbart pegasus marian whisper", "an encoder beside its decoder", "", "", nil},
	{"bitnet", "weights of three values and norms inside attention and MLP", "llama", "16-bit weights without those norms", nil},
}

// attends reports whether all layers of a file of such a type have attention and an MLP alone:
// a missing list is of mixers, and experts that are not mentioned are there (configuration_granitemoehybrid.py).
func attends(n *yaml.Node) bool {
	kinds, experts := lookup(n, "layer_types"), lookup(n, "num_local_experts")
	if kinds == nil || kinds.Kind != yaml.SequenceNode || experts == nil || !off(experts) {
		return false
	}
	return !slices.ContainsFunc(kinds.Content, func(kind *yaml.Node) bool { return kind.Value == "mamba" })
}

// notModelled says what is not modelled of a file of a model_type, and what to do; "" where nothing is known of it.
func notModelled(name string, n *yaml.Node) string {
	for _, u := range unmodelled {
		if !slices.Contains(strings.Fields(u.names), name) || u.unless != nil && u.unless(n) {
			continue
		}
		remedy := "describe what is left by model_type: decoder"
		switch {
		case u.as != "":
			remedy = fmt.Sprintf("model_type: %s (--set model.model_type=%s) predicts %s", u.as, u.as, u.then)
		case u.then != "":
			remedy += "; " + u.then
		}
		return fmt.Sprintf("it has %s, which is not modelled; %s", u.has, remedy)
	}
	return ""
}
