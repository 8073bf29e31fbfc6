package model

import (
	"fmt"
	"slices"
	"strings"
)

// unmodelled are model_types of transformers that cannot be predicted yet: what they have
// that is not modelled, and what comes nearest.
var unmodelled = []struct {
	names string // words
	has   string
	as    string // the model_type that reads their files; "": none does
	then  string // what is predicted as that type, or what else to do
}{
	{"minimax minimax_m1 minimax_text_01", "lightning attention in most layers", "", "its experts and its other layers are model_type mixtral"},
	{"kimi_linear", "delta nets whose decay is of every channel beside latent attention without rotary embedding", "", "gated delta nets come near"},
	{"gemma3n gemma3n_text", "several residual streams, low-rank branches and activations cut to the largest", "", "gemma4-e2b and gemma4-e4b of the catalog come near"},
	{"longcat_flash", "two attentions and two MLPs around the experts of a layer, some of which do nothing", "", ""},
	{"jamba mamba falcon_mamba", "mixers of the first Mamba", "", "hybrid_layer_pattern has Mamba-2"},
	{"mamba2", "no configuration that is read", "", "hybrid_layer_pattern of one M for each layer has its mixers"},
	{"electra", "embeddings narrower than its layers", "bert", "what BERT of those sizes takes"},
	{"albert", "layers that share their parameters", "bert", "what BERT of those sizes takes, with parameters of their own"},
	{"mpnet deberta deberta-v2", "positions relative to each other in its scores", "bert", "what BERT of those sizes takes"},
	{"megatron-bert", "attention of its own code", "roberta-prelayernorm", "it with fused attention, and a norm of its embeddings"},
	{"longt5 t5gemma t5gemma2 switch_transformers pegasus_x whisper nllb-moe led fsmt bigbird_pegasus " +
		"seamless_m4t seamless_m4t_v2 blenderbot blenderbot-small mvp plbart prophetnet bert-generation", "an encoder beside its decoder", "", "t5, mt5, umt5, bart, mbart, marian, pegasus and m2m_100 are modelled, and come near where sizes are theirs"},
	// Of modeling_*.py of transformers 5, where no other source is given.
	{"gpt_neo codegen", "attention in fp32 by its own code", "", "gpt2 and gptj come near"},
	{"xglm openai-gpt ctrl xlm gpt_neox_japanese", "attention of its own code", "", ""},
	{"persimmon", "norms of queries and keys that are cut from a projection head by head", "", "gpt_neox comes near"},
	{"laguna step3p5", "layers of other numbers of heads, whose outputs have gates", "", ""}, // step3p5: NeMo AutoModel, models/step3p5/layers.py
	{"nemotron-nas", "layers without attention, and MLPs of several widths", "", ""},         // Puzzle, arXiv 2411.19146
	{"mimo_v2_flash", "values narrower than keys, and other heads in layers with a window", "", ""},
	{"granite_swa granitemoe_swa", "sinks that scale attention's output by the sum of its exponentials", "", "sinks as gpt_oss has them come near"},
	{"granitemoeshared", "shared experts whose gate and up projections are one", "", "n_shared_experts has them apart"},
	{"cohere2_moe", "experts that are chosen by products in 16 bits and averaged with shared ones", "", ""},
	{"minicpm3", "latent attention that turns halves, and hidden states scaled before the output layer", "", "latent attention of deepseek_v3 comes near"},
	{"nanochat", "norms without weights, also of turned queries and keys", "", "recipe nanochat runs nanochat's own code"},
	{"modernbert-decoder", "a loss of shifted copies of its logits", "", "model_type modernbert with is_causal: true comes near"},
	{"diffllama", "attention by the difference of two", "", ""},
	{"jetmoe", "experts of attention", "", ""},
	{"recurrent_gemma rwkv xlstm", "recurrences in the place of attention", "", ""},
	{"zamba zamba2", "attention of shared parameters beside Mamba mixers", "", "hybrid_layer_pattern has both with parameters of their own"},
	{"bitnet", "weights of three values and norms inside attention and MLP", "llama", "16-bit weights without those norms"},
}

// notModelled says what is not modelled of a model_type, and what to do; "" where nothing is known of it.
func notModelled(name string) string {
	for _, u := range unmodelled {
		if !slices.Contains(strings.Fields(u.names), name) {
			continue
		}
		remedy := "describe what is left by model_type: decoder"
		switch {
		case u.as != "":
			remedy = fmt.Sprintf("model_type: %s (--set model.model_type=%s, and --set model.KEY=null for each key that it has not) predicts %s", u.as, u.as, u.then)
		case u.then != "":
			remedy += "; " + u.then
		}
		return fmt.Sprintf("it has %s, which is not modelled; %s", u.has, remedy)
	}
	return ""
}
