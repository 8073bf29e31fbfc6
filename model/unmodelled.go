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
	{"megatron-bert", "attention of its own code", "roberta-prelayernorm", "it with fused attention, and a norm of its embeddings", nil},
	{"t5 mt5 umt5 longt5 t5gemma t5gemma2 switch_transformers bart mbart pegasus pegasus_x marian whisper m2m_100 nllb-moe led fsmt bigbird_pegasus " +
		"seamless_m4t seamless_m4t_v2 blenderbot blenderbot-small mvp plbart prophetnet bert-generation", "an encoder beside its decoder", "", "", nil},
	// Of modeling_*.py of transformers 5, where no other source is given.
	{"gpt_neo codegen", "attention in fp32 by its own code", "", "gpt2 and gptj come near", nil},
	{"xglm openai-gpt ctrl xlm gpt_neox_japanese", "attention of its own code", "", "", nil},
	{"persimmon", "norms of queries and keys that are cut from a projection head by head", "", "gpt_neox comes near", nil},
	{"laguna", "layers of other numbers of heads, whose outputs have gates", "", "", nil},
	{"mimo_v2_flash", "values narrower than keys, and other heads in layers with a window", "", "", nil},
	{"granite_swa granitemoe_swa", "sinks that scale attention's output by the sum of its exponentials", "", "sinks as gpt_oss has them come near", nil},
	{"granitemoeshared", "shared experts whose gate and up projections are one", "", "n_shared_experts has them apart", nil},
	{"cohere2_moe", "experts that are chosen by products in 16 bits and averaged with shared ones", "", "", nil},
	{"minicpm3", "latent attention that turns halves, and hidden states scaled before the output layer", "", "latent attention of deepseek_v3 comes near", nil},
	{"nanochat", "norms without weights, also of turned queries and keys", "", "recipe nanochat runs nanochat's own code", nil},
	{"modernbert-decoder", "a loss of shifted copies of its logits", "", "model_type modernbert with is_causal: true comes near", nil},
	{"diffllama", "attention by the difference of two", "", "", nil},
	{"jetmoe", "experts of attention", "", "", nil},
	{"recurrent_gemma rwkv xlstm", "recurrences in the place of attention", "", "", nil},
	{"zamba zamba2", "attention of shared parameters beside Mamba mixers", "", "hybrid_layer_pattern has both with parameters of their own", nil},
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
