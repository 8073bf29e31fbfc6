package model

import "fmt"

// Spec is one model in the project's own terms: what the layers compute and
// which parameters they hold, whatever the vocabulary of its configuration
// file. Widths count elements. A Spec is a value; nothing here changes it after
// loading.
type Spec struct {
	Name      string // catalog name or file name, for printing
	ModelType string // Hugging Face model_type it was read as
	Defaulted []Size // sizes that the file leaves to its model_type
	Headless  string // its class, where that has no language model's head (architectures); "": it has
	Quantized string // how its weights are packed (quantization_config); "": they are not

	Hidden        int64 // hidden_size: width of the residual stream
	Layers        int64 // num_hidden_layers
	Vocab         int64 // vocab_size, as stored (padding is the framework's business)
	MaxPositions  int64 // max_position_embeddings; rows of a learned position table that positions take
	IdlePositions int64 // and rows of it in front of the first position's (OPT)
	TypeVocab     int64 // type_vocab_size: rows of a table of token types, which embeddings have a row of beside (BERT); 0: no table

	Heads   int64    // num_attention_heads
	KVHeads int64    // num_key_value_heads
	HeadDim int64    // width of a query or key head
	VDim    int64    // width of a value head; HeadDim but for MLA
	MLA     *MLA     // multi-head latent attention (DeepSeek); nil otherwise
	Indexer *Indexer // picks the keys that latent attention sees; nil: it sees all

	Compress *Compress // latent attention to a window and to sums of the tokens before it; nil: to all
	Streams  int64     // hc_mult: residual streams, of which a block reads one mixture and adds to all; 0: one

	FFN        int64      // intermediate_size: width of the dense MLP
	Activation Activation // of the MLP
	Gated      bool       // gate and up projections (SwiGLU, GeGLU)
	MoE        *MoE       // mixture of experts; nil for a dense model

	Norm     Norm
	Place    NormPlacement
	Parallel Parallel // attention and MLP both read the layer's input
	QKNorm   QKNorm   // norm on queries and keys before rotary

	ValueNorm bool      // norm without a weight on values (Gemma 4)
	Global    *Global   // what attention of layers without a window has of its own; nil: nothing
	KVLayers  int64     // layers, the first, that have keys and values; later ones read those of the last one of their kind; 0: all have
	WideFFN   bool      // use_double_wide_mlp: MLPs of layers that have none are twice as wide
	PerLayer  *PerLayer // embeddings that every layer adds its part of; nil: none

	Position  Position
	RotaryDim int64 // width of a head that rotary embedding turns

	TextOnly bool    // the language model of a multimodal file, whose other towers are left out
	Vision   *Vision // what makes tokens of images; nil: nothing does
	Encoder  *Spec   // a stack of text of its own, whose output every layer reads by attention beside that to its own tokens (T5, BART); nil: none

	Bidirectional bool // every position sees all, as in encoders and as patches of an image do
	Masked        bool // its class hands attention a mask, whatever the sequences are (Qwen's first)
	HeadMasks     bool // slopes of ALiBi are in one mask of every head, which is made for all layers (Baichuan)

	QKVBias, OutBias, MLPBias, HeadBias bool
	Einsum                              bool // projections are einsums, to whose results biases are added: in fp32 under autocast, which casts no operand of a sum
	FusedQKV                            bool // one parameter for q, k and v
	SeparateHeads                       bool // each head has projections of its own, and attends by itself
	FusedGateUp                         bool // one parameter for gate and up
	TransposedWeights                   bool // weights stored [in, out] (GPT-2's Conv1D)
	Tied                                bool // tie_word_embeddings
	Turn                                Turn // how the rotary embedding is written out
	TurnFirst                           bool // heads are turned as they lie beside each other, before they are transposed (Gemma 4)
	TurnJoins                           bool // what is turned is joined with the rest of a head even if there is none (Phi-3)
	KeysCopied                          bool // both parts of latent attention's keys are copied into a new tensor, not joined (GLM-4.7-Flash, Youtu)
	NormTurned                          bool // norms of queries and keys come after they are turned (HunYuan)
	QueryScale                          bool // turned queries times a factor of their position (Ministral 3)
	TurnScaled                          bool // and its cosines and sines are scaled (YaRN: gpt-oss)
	QKVSlices                           bool // queries, keys and values are cut from one projection by slices (Phi-3), not by a split
	QKVHeads                            bool // queries, keys and values of a head lie side by side, and are cut once heads are (GPT-NeoX)
	LossApart                           bool // transformers knows no loss by the name of the class, and says so, which ends the graph of a compiled model before its loss (GPT2LMHeadModel)
	KVLists                             bool // keys and values are cut from one projection by lists of indices (Falcon)
	EmbedScale                          bool // embeddings times sqrt(hidden) (Gemma)
	EmbedNorm                           bool // norm after the embedding (BLOOM)
	NarrowLoss                          bool // its class takes the loss of logits as the output layer made them (BERT), not in fp32
	NarrowSoftmax                       bool // and the softmax of scores that are written out is of these as they are (BART)
	FirstBare                           bool // the first layer has no norm before attention, since embeddings have one (ModernBERT)
	HeadDense                           bool // a projection, its activation and a norm come before the output layer (BERT)
	ResidScale, LogitScale              bool // what blocks add, and logits, times a constant (Granite)
	Factors                             bool // keys, gates and outputs of MLPs, what paired mixers read and make and their projection times constants (Falcon-H1)
	LayerScale                          bool // what a layer made times a constant of its own, in place (Gemma 4)
	NormHead                            bool // rows of the output layer are divided by their norms (Baichuan 2)
	Sinks                               bool // learned attention sink per head (gpt-oss)
	AttnSoftcap, LogitSoftcap           bool // tanh cap on scores, logits (Gemma 2)

	Buckets        int64 // relative_attention_num_buckets: rows of the table that the biases of scores are from (T5)
	OwnBiases      bool  // every layer has such a table (UMT5), where others have one for the stack
	HeadScale      bool  // hidden states times a constant before the output layer (T5 of its first version)
	StillPositions bool  // the table of positions is not trained (Marian, Pegasus)
	LogitsBias     bool  // a buffer of zeros is added to the logits (BART)
	Rewidened      bool  // the MLP's last projection gets what it reads in the dtype of its weight (T5)

	EmbedDropout, AttnDropout, ResidDropout float64 // probabilities; zero: the op is not there
	ActDropout, FinalDropout                float64 // of what the MLP's last projection reads, and of what the norm behind all layers makes
	Undropped                               Role    // the last projection of a block, attention's or the MLP's, whose output is added without dropout (DistilBERT, XLM-RoBERTa-XL)
	DropoutUnnamed                          bool    // the generic form says nothing of them, not even 0: frameworks have defaults

	Window  int64  // sliding_window: keys each query sees in a windowed layer; 0: no window
	Windows []bool // per layer: true when windowed; nil when Window is 0
	Chunked bool   // a window is a chunk that no query looks out of (Llama 4)

	NoRope []bool // per layer: true when a rotary embedding is left out; nil: in none

	GatedAttention bool // queries come with a gate of their width, whose sigmoid attention's output is multiplied by (Qwen3-Next)
	GateApart      bool // by a projection of its own (AFMoE)

	Mamba  *Mamba  // of the layers that have it for attention; nil: none has
	Delta  *Delta  // likewise
	Short  *Short  // likewise
	Mixers []Mixer // per layer: what mixes tokens; nil: attention in all
	NoMLP  []bool  // per layer: true when it has no MLP; nil: all have one

	MTPLayers int64 // num_nextn_predict_layers (multi-token prediction)
	MTPShared bool  // mtp_use_repeated_layer: one module runs for all of them

	// Of a job, no keys of a model.
	Source   int64    // tokens of the encoder's sequence; 0: as many as the decoder's
	LoRA     *LoRA    // trained beside frozen parameters; nil: all are trained
	WideEnds [2]int64 // so many layers, the first and the last, whose products are in 16 bits where others are in fewer
}

// Global are the sizes of attention in layers that see all keys, where they differ from
// those of layers with a window (Gemma 4).
type Global struct {
	HeadDim       int64 // global_head_dim
	KVHeads       int64 // num_global_key_value_heads
	KeysAreValues bool  // attention_k_eq_v: values are what the keys' projection made, before its norm
}

// PerLayer are embeddings of tokens for each layer, a table beside the model's own to which
// a projection of the embedded tokens is added (Gemma 3n, Gemma 4 E2B and E4B).
type PerLayer struct {
	Width int64 // hidden_size_per_layer_input, of one layer's part
	Vocab int64 // vocab_size_per_layer_input
}

// Of is the model as layers of kind k see it.
func (s *Spec) Of(k LayerKind) *Spec {
	wide := k.Borrows && s.WideFFN
	if !k.Global && !wide {
		return s
	}
	own := *s
	if k.Global {
		own.HeadDim, own.VDim, own.RotaryDim, own.KVHeads = s.Global.HeadDim, s.Global.HeadDim, s.Global.HeadDim, s.Global.KVHeads
	}
	if wide {
		own.FFN *= 2
	}
	return &own
}

// WidestHead is the width of the widest heads of any layer's attention.
func (s *Spec) WidestHead() int64 {
	w := max(s.HeadDim, s.VDim)
	if s.Global != nil {
		w = max(w, s.Global.HeadDim)
	}
	return w
}

// Handed is the width of what one layer hands to the next: of all residual streams.
func (s *Spec) Handed() int64 { return s.Hidden * max(s.Streams, 1) }

// CrossLayer reports whether layers read more of what came before than the residual stream.
func (s *Spec) CrossLayer() bool { return s.PerLayer != nil || s.KVLayers > 0 }

// Size is one size of a model, by its key.
type Size struct {
	Key   string
	Value int64
}

// Mixer is what mixes the tokens of a sequence in a layer.
type Mixer string

const (
	AttentionMixer Mixer = ""
	MambaMixer     Mixer = "mamba"
	DeltaMixer     Mixer = "delta"
	ShortMixer     Mixer = "conv"
	PairedMixer    Mixer = "paired" // attention and a state-space mixer side by side, whose outputs are added (Falcon-H1)
	NoMixer        Mixer = "none"   // the layer is an MLP alone
)

// Attends and Scans report whether it has attention, and a state-space mixer.
func (m Mixer) Attends() bool { return m == AttentionMixer || m == PairedMixer }
func (m Mixer) Scans() bool   { return m == MambaMixer || m == PairedMixer }

// Mamba is the state-space mixer of Mamba-2 (arXiv 2405.21060): gates, inputs, B, C and
// time steps from one projection, a causal convolution over the middle three, a scan with
// a state of HeadDim × State for each head, a gated norm and a projection.
type Mamba struct {
	Heads    int64 // mamba_num_heads
	HeadDim  int64 // mamba_head_dim
	Groups   int64 // n_groups: heads of a group share B and C
	State    int64 // ssm_state_size
	Conv     int64 // conv_kernel: width of the convolution
	Chunk    int64 // chunk_size: tokens that the scan takes at once
	Bias     bool  // of both projections
	ConvBias bool
	Normless bool // what is scanned is gated, but not normalised
}

// Inner is the width of the mixer's inputs.
func (m *Mamba) Inner() int64 { return m.Heads * m.HeadDim }

// Convolved is the width of what the convolution reads: inputs, B and C.
func (m *Mamba) Convolved() int64 { return m.Inner() + 2*m.Groups*m.State }

// Projected is the width of the first projection: gates, what is convolved, time steps.
func (m *Mamba) Projected() int64 { return m.Inner() + m.Convolved() + m.Heads }

// Delta is the gated delta net (arXiv 2412.06464): queries, keys and values from
// projections through a causal convolution, a state of KeyDim × ValueDim for each value
// head that forgets and is corrected token by token, a norm over each head with a gate, and
// a projection. A query and a key head serve ValueHeads / KeyHeads value heads.
type Delta struct {
	KeyHeads   int64 // linear_num_key_heads
	ValueHeads int64 // linear_num_value_heads
	KeyDim     int64 // linear_key_head_dim
	ValueDim   int64 // linear_value_head_dim
	Conv       int64 // linear_conv_kernel_dim
}

// Keys is the width of all queries, and of all keys.
func (d *Delta) Keys() int64 { return d.KeyHeads * d.KeyDim }

// Values is the width of all values, of their gates and of the net's output.
func (d *Delta) Values() int64 { return d.ValueHeads * d.ValueDim }

// Convolved is the width of what the convolution reads: queries, keys and values.
func (d *Delta) Convolved() int64 { return 2*d.Keys() + d.Values() }

// Short is a short convolution (LFM2, arXiv 2511.23404): of one projection's three parts one
// gates another before a causal convolution of each channel, one what it makes, and a
// projection follows. All are as wide as the model.
type Short struct {
	Conv int64 // conv_L_cache: width of the convolution
	Bias bool  // conv_bias: of the convolution and of both projections
}

// Indexer picks, for each query of latent attention, the keys that it sees: few heads of
// their own score all keys before it by a sum of weighted ReLUs (DeepSeek-V3.2, section 2.1).
type Indexer struct {
	Heads   int64  // index_n_heads
	HeadDim int64  // index_head_dim; one key serves all heads
	TopK    int64  // index_topk: keys that a query sees at most
	Frozen  bool   // it is no parameter that is trained
	Idle    bool   // it learns nothing: its loss is not computed
	Pairs   bool   // neighbours are turned as pairs, as attention's are; else halves
	Follow  []bool // per layer: true when it sees the keys that the one before it saw (GLM-5.2); nil: none
}

// Compress is attention whose one key of a head's width is its value too, and of which a
// query sees the last Window and sums of the tokens before it: of Picked tokens those that
// the indexer picks, of more tokens all. Outputs of a group of heads are projected by
// themselves (DeepSeek-V4, section 2.3).
type Compress struct {
	Window int64   // sliding_window
	Ratios []int64 // compress_ratios: tokens of a sum, per layer and of those of multi-token prediction; 0: there are none
	Picked int64   // of these the ratio whose sums an indexer picks, which overlap
	Groups int64   // o_groups
	Out    int64   // o_lora_rank: width of what a group is projected to
}

// Sums is how many widths of a head a sum of so many tokens is of: two where sums overlap.
func (c *Compress) Sums(ratio int64) int64 {
	if ratio == c.Picked {
		return 2
	}
	return 1
}

// Shared reports whether layers see keys that others picked.
func (x *Indexer) Shared() bool { return x != nil && x.Follow != nil }

// MLA is multi-head latent attention: queries and keys/values are projected
// through low-rank latents; each head has a part with and one without rotary
// embedding (DeepSeek-V2, arXiv 2405.04434).
type MLA struct {
	QLora  int64 // q_lora_rank; 0: queries are projected directly
	KVLora int64 // kv_lora_rank
	Rope   int64 // qk_rope_head_dim
	Nope   int64 // qk_nope_head_dim
}

// MoE is a mixture-of-experts MLP.
type MoE struct {
	Experts     int64 // routed experts
	TopK        int64 // num_experts_per_tok
	Groups      int64 // n_group: equal parts of the experts, of which a token takes the best alone; 0: no such choice
	TopGroups   int64 // topk_group: how many of them
	FFN         int64 // moe_intermediate_size: width of one routed expert
	Latent      int64 // moe_latent_size: width of what routed experts read and write; 0: the hidden size
	Shared      int64 // n_shared_experts
	SharedFFN   int64 // width of all shared experts together
	SharedGate  bool  // sigmoid gate on the shared experts (Qwen2-MoE)
	Router      Router
	LowRouter   bool   // whose scores or their product stay in 16 bits, by transformers (MiniMax-M2, Qwen, OLMoE)
	RouterBias  bool   // bias or correction term per expert
	ExpertBias  bool   // biases in the experts (gpt-oss)
	Transposed  bool   // experts stored [expert, in, out] (gpt-oss, Llama 4)
	NormTopK    bool   // norm_topk_prob
	Corrected   bool   // scores are chosen by after a correction is added, which is not trained and not counted (ERNIE 4.5)
	Sampled     bool   // experts are drawn, the second without the first (SparseMixer: Phi-3.5-MoE)
	Jitter      bool   // input_jitter_noise: what router and experts read is multiplied by noise, twice
	ChosenFirst bool   // softmax of the chosen alone, by a router without a bias (Granite)
	Beside      bool   // routed and shared experts have norms of their own, and the router reads the residual stream (Gemma 4)
	WideSum     bool   // routed and shared experts are added in fp32 (HunYuan 3)
	Clamped     bool   // gate and up projections are clamped (gpt-oss)
	Dense       []bool // per layer: true when the layer has the dense MLP instead
}

// Activation is the nonlinearity of the MLP, by its Hugging Face name.
type Activation string

const (
	SiLU      Activation = "silu"
	GELU      Activation = "gelu"              // erf form, one kernel
	GELUTanh  Activation = "gelu_pytorch_tanh" // tanh form, one kernel
	GELUNew   Activation = "gelu_new"          // tanh form written out in elementwise kernels
	QuickGELU Activation = "quick_gelu"        // x times the sigmoid of 1.702 x
	ReLU      Activation = "relu"
	ReLU2     Activation = "relu2"
	XIELU     Activation = "xielu" // with two parameters of its own, in elementwise kernels (Apertus)
)

// Norm is the kind of normalisation.
type Norm string

const (
	RMSNorm       Norm = "rmsnorm"
	WideRMSNorm   Norm = "rmsnorm_fp32_weight" // weight multiplied before the cast back (OLMo 2, gpt-oss)
	GemmaRMSNorm  Norm = "gemma_rmsnorm"       // weight stored as w-1, multiplied in fp32
	CastRMSNorm   Norm = "rmsnorm_cast_weight" // weight cast to fp32 and multiplied there (Gemma 4)
	NarrowRMSNorm Norm = "rmsnorm_as_is"       // multiplied as it comes, in fp32 for its variance alone, and cast to the weight's dtype (T5)
	LayerNorm     Norm = "layernorm"
	PlainNorm     Norm = "layernorm_no_params"   // OLMo 1
	LayerNormNoB  Norm = "layernorm_no_bias"     // MPT
	LayerNormCast Norm = "layernorm_cast_weight" // no bias, all of it written out in fp32 (Command R)
	LayerNorm1P   Norm = "layernorm_1p"          // weight stored as w-1, and nothing in fp32 under autocast (Nemotron)
)

// Layer reports whether n is PyTorch's layer norm, with a bias or without.
func (n Norm) Layer() bool { return n == LayerNorm || n == LayerNormNoB }

// NormPlacement is where a layer normalises.
type NormPlacement string

const (
	PreNorm  NormPlacement = "pre"      // input of attention and of MLP
	PostNorm NormPlacement = "post"     // output of attention and of MLP (OLMo 2)
	Sandwich NormPlacement = "sandwich" // both (Gemma 2 and 3)
	SumNorm  NormPlacement = "sum"      // what attention and what the MLP are added to, which layers hand on (BERT)
)

// Parallel says whether attention and MLP run side by side on the layer input.
type Parallel string

const (
	Serial          Parallel = ""
	ParallelOneNorm Parallel = "one_norm"  // GPT-J, Falcon 7B: one shared norm
	ParallelTwoNorm Parallel = "two_norms" // GPT-NeoX, Falcon 40B
)

// QKNorm is a norm on queries and keys.
type QKNorm string

const (
	NoQKNorm   QKNorm = ""
	HeadQKNorm QKNorm = "head" // over each head, one weight of head width (Qwen3, Gemma 3)
	EachQKNorm QKNorm = "each" // over each head, with a weight of its own (Command R+)
	FullQKNorm QKNorm = "full" // over all heads at once (OLMo 2)
)

// Position is how a model knows the order of its tokens.
type Position string

const (
	Rotary          Position = "rope"
	LearnedPosition Position = "learned"
	ALiBi           Position = "alibi"
	Sinusoidal      Position = "sinusoidal" // a table that is no parameter (M2M100)
	RelativeBias    Position = "relative"   // biases of scores, by how far key and query are apart (T5)
	NoPosition      Position = "none"
)

// Turn is how a model's code writes out the rotary embedding.
type Turn string

const (
	TurnHalves Turn = ""       // x·cos + (-x2, x1)·sin
	TurnFP32   Turn = "fp32"   // the same with fp32 tables, cast back (OLMo)
	TurnFloats Turn = "floats" // each of the two products by itself of queries and keys in fp32, cast back (ModernBERT)
	TurnJoined Turn = "joined" // all in fp32, joined with the rest of a head even if there is none, cast back (Qwen's first)
	TurnParts  Turn = "parts"  // each half by itself, then joined (gpt-oss, DeepSeek)

	// Neighbours of a head are a pair, not its halves.
	TurnPairParts  Turn = "pair_parts"  // the first and the second of each by themselves, then joined as halves (GLM-4.7-Flash)
	TurnPairs      Turn = "pairs"       // as halves (GLM, Helium)
	TurnPairsMixed Turn = "pairs_mixed" // multiplied in fp32 (ERNIE 4.5)
	TurnPairsFP32  Turn = "pairs_fp32"  // all in fp32 (Command R)
)

// TurnsPairs reports whether the rotary embedding turns neighbours of a head.
func (s *Spec) TurnsPairs() bool {
	return s.Turn == TurnPairs || s.Turn == TurnPairsMixed || s.Turn == TurnPairsFP32 || s.Turn == TurnPairParts
}

// Router is how a token picks its experts.
type Router string

const (
	SoftmaxRouter Router = "softmax"
	SigmoidRouter Router = "sigmoid" // DeepSeek-V3

	sqrtRouter Router = "sqrtsoftplus" // DeepSeek-V4: taken for a sigmoid, whose kernels are as long
)

// LayerKind is what distinguishes the layers of one model.
type LayerKind struct {
	MoE      bool
	Windowed bool
	NoRope   bool
	Mixer    Mixer
	NoMLP    bool
	Global   bool  // attention is as Spec.Global has it
	Borrows  bool  // keys and values are those of a layer before (Spec.KVLayers)
	Follows  bool  // attention sees the keys that the layer before it picked (Indexer.Follow)
	Ratio    int64 // tokens of the sums that attention sees (Compress.Ratios); 0: it sees none
	Deep     bool  // what an inner layer of the vision encoder made of images is added to its output
	Bare     bool  // it has no norm before attention (Spec.FirstBare)
	Wide     bool  // its products are in 16 bits where those of others are in fewer (Spec.WideEnds)
}

// Plain reports whether a layer has attention and an MLP, as most models' all have.
func (k LayerKind) Plain() bool { return k.Mixer == AttentionMixer && !k.NoMLP }

// parameters is the kind by which layers have parameters: windows, rotary embeddings, what is
// added of images and the dtype of products have none.
func (k LayerKind) parameters() LayerKind {
	k.Windowed, k.NoRope, k.Deep, k.Wide = false, false, false, false
	return k
}

// String names a kind of layer.
func (k LayerKind) String() string {
	switch {
	case k.Mixer == NoMixer && k.MoE:
		return "experts alone"
	case k.Mixer == NoMixer:
		return "MLP alone"
	}
	name := "layer"
	if k.MoE {
		name = "moe layer"
	}
	switch {
	case k.Mixer == MambaMixer:
		name = "mamba " + name
	case k.Mixer == PairedMixer:
		name = "paired " + name
	case k.Mixer == DeltaMixer:
		name = "delta " + name
	case k.Mixer == ShortMixer:
		name = "conv " + name
	case k.NoMLP:
		name = "attention " + name
	}
	if k.Windowed {
		name = "windowed " + name
	}
	if k.Global {
		name = "global " + name
	}
	if k.Borrows {
		name = "borrowing " + name
	}
	if k.NoRope {
		name = "no-rope " + name
	}
	if k.Ratio > 0 {
		name = fmt.Sprintf("%s on sums of %d", name, k.Ratio)
	}
	if k.Deep {
		name = "deepstack " + name
	}
	if k.Wide {
		name = "16-bit " + name
	}
	return name
}

// Kind returns the kind of layer i.
func (s *Spec) Kind(i int64) LayerKind {
	k := LayerKind{}
	if s.NoMLP != nil {
		k.NoMLP = s.NoMLP[i]
	}
	if s.Mixers != nil {
		k.Mixer = s.Mixers[i]
	}
	if s.MoE != nil {
		k.MoE = !k.NoMLP && (s.MoE.Dense == nil || !s.MoE.Dense[i])
	}
	if s.Windows != nil {
		k.Windowed = s.Windows[i]
	}
	if s.NoRope != nil {
		k.NoRope = s.NoRope[i]
	}
	k.Global = s.Global != nil && !k.Windowed
	k.Borrows = s.KVLayers > 0 && i >= s.KVLayers
	k.Follows = s.Indexer.Shared() && s.Indexer.Follow[i]
	if s.Compress != nil {
		k.Ratio = s.Compress.Ratios[i]
	}
	k.Deep = s.Vision != nil && i < int64(len(s.Vision.Deep))
	k.Bare = s.FirstBare && i == 0
	k.Wide = i < s.WideEnds[0] || i >= s.Layers-s.WideEnds[1]
	return k
}

// Split says how tensor or expert parallelism cuts a parameter.
type Split uint8

const (
	Replicated  Split = iota // on every tensor-parallel rank whole
	ColumnSplit              // output dimension divided by tp (q, k, v, gate, up)
	RowSplit                 // input dimension divided by tp (o, down)
	VocabSplit               // vocabulary divided by tp
	ExpertSplit              // whole experts divided by ep
)

// Tensor is one parameter of a module, in the order the framework creates it.
type Tensor struct {
	Role     Role   // what the layer uses it for, the same name in every family
	Name     string // as in the checkpoint, without the layer prefix
	Shape    []int64
	Split    Split
	KVHead   bool // divided by key/value heads: replicated when tp exceeds them
	NoDecay  bool // norms and biases: usually without weight decay
	TiedCopy bool // shares storage with an earlier tensor; counts no parameters
	Frozen   bool // not trained: no gradient, no state of an optimizer
	Adapter  bool // of LoRA: stored [out, in] whatever the model's weights are
}

// Size returns the number of elements.
func (t Tensor) Size() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// approximateSize is Size in floating point, which cannot overflow.
func (t Tensor) approximateSize() float64 {
	n := 1.0
	for _, d := range t.Shape {
		n *= float64(d)
	}
	return n
}

// Matrices is how many matrices of a layer a parameter is of, each of which an optimizer such as
// Muon updates by itself: one, or one for every expert where each has weights of its own; none if
// it is a table, a vector or a stack, which are left to another optimizer.
func (t Tensor) Matrices(each bool) int64 {
	switch {
	case t.Frozen || t.Adapter || t.Split == VocabSplit || t.Role.Table():
		return 0
	case t.Split == ExpertSplit && len(t.Shape) == 3 && each:
		return t.Shape[0]
	case t.Split == ExpertSplit || len(t.Shape) != 2:
		return 0
	}
	return 1
}

// Role names a parameter by its use, independent of a family's own spelling.
// A bias has the role of its weight with "_b" appended.
type Role string

// Table reports whether it is one of nn.Embedding: of words, of positions or of token types.
func (r Role) Table() bool {
	return r == RoleEmbed || r == RolePosition || r == RoleType || r == RoleRelative
}

const (
	RoleEmbed     Role = "embed"
	RolePosition  Role = "position"   // learned positions
	RoleType      Role = "type"       // token types
	RoleEmbedNorm Role = "embed_norm" // also embed_norm_b
	RoleRelative  Role = "relative"   // biases of scores by distance

	RoleNorm1 Role = "norm1" // input of attention
	RoleNorm2 Role = "norm2" // input of the MLP
	RoleNorm3 Role = "norm3" // output of attention (post and sandwich), or what it is added to (sum)
	RoleNorm4 Role = "norm4" // output of the MLP, likewise
	RoleNorm5 Role = "norm5" // output of the MLP that experts are beside, their input and their output
	RoleNorm6 Role = "norm6"
	RoleNorm7 Role = "norm7"

	RoleLayerEmbed     Role = "layer_embed" // embeddings for each layer: their table, what is added to them, its norm
	RoleLayerEmbedIn   Role = "layer_embed_in"
	RoleLayerEmbedNorm Role = "layer_embed_norm"
	RoleLayerGate      Role = "layer_gate" // and what a layer makes of its part, with the norm after it
	RoleLayerUp        Role = "layer_up"
	RoleNorm8          Role = "norm8"

	RoleQ     Role = "q"
	RoleK     Role = "k"
	RoleV     Role = "v"
	RoleQKV   Role = "qkv" // FusedQKV
	RoleO     Role = "o"
	RoleOGate Role = "o_gate" // GateApart
	RoleQNorm Role = "q_norm"
	RoleKNorm Role = "k_norm"
	RoleSinks Role = "sinks"

	RoleCrossQ    Role = "cross_q" // attention to what an encoder made
	RoleCrossK    Role = "cross_k"
	RoleCrossV    Role = "cross_v"
	RoleCrossO    Role = "cross_o"
	RoleCrossNorm Role = "cross_norm" // of its input, or of what it is added to

	RoleMambaIn    Role = "mamba_in"
	RoleMambaConv  Role = "mamba_conv"
	RoleMambaStep  Role = "mamba_step"  // bias of the time steps
	RoleMambaDecay Role = "mamba_decay" // logarithms
	RoleMambaSkip  Role = "mamba_skip"
	RoleMambaNorm  Role = "mamba_norm" // gated
	RoleMambaOut   Role = "mamba_out"

	RoleDeltaIn    Role = "delta_in"   // all its projections in one
	RoleDeltaQKVZ  Role = "delta_qkvz" // queries, keys, values and gates
	RoleDeltaBA    Role = "delta_ba"   // strengths and decays
	RoleDeltaQKV   Role = "delta_qkv"  // or apart
	RoleDeltaZ     Role = "delta_z"    // gates
	RoleDeltaB     Role = "delta_b"    // strengths
	RoleDeltaA     Role = "delta_a"    // decays
	RoleDeltaConv  Role = "delta_conv"
	RoleDeltaStep  Role = "delta_step"  // bias of the decays
	RoleDeltaDecay Role = "delta_decay" // logarithms
	RoleDeltaNorm  Role = "delta_norm"  // gated
	RoleDeltaOut   Role = "delta_out"

	RoleShortIn   Role = "short_in" // gates and what they gate
	RoleShortConv Role = "short_conv"
	RoleShortOut  Role = "short_out"

	RoleQDown      Role = "q_down" // MLA: hidden to query latent
	RoleQDownNorm  Role = "q_down_norm"
	RoleQUp        Role = "q_up"    // latent (or hidden without one) to query heads
	RoleKVDown     Role = "kv_down" // hidden to key/value latent and rotary key
	RoleKVDownNorm Role = "kv_down_norm"
	RoleKVUp       Role = "kv_up"

	RoleIndexQ       Role = "index_q" // of an indexer: queries, of attention's latent
	RoleIndexK       Role = "index_k"
	RoleIndexKNorm   Role = "index_k_norm"
	RoleIndexWeights Role = "index_weights" // of the heads' scores

	RoleIndexSumKV   Role = "index_sum_kv" // and of the sums of tokens that it scores
	RoleIndexSumGate Role = "index_sum_gate"
	RoleIndexSumBias Role = "index_sum_bias"
	RoleIndexSumNorm Role = "index_sum_norm"

	RoleOGroups Role = "o_groups" // Compress: outputs of a group of heads
	RoleSumKV   Role = "sum_kv"   // what sums are made of, their weights, what these have for each place, norm of a sum
	RoleSumGate Role = "sum_gate"
	RoleSumBias Role = "sum_bias"
	RoleSumNorm Role = "sum_norm"

	RoleMix1      Role = "mix1" // residual streams, before attention: to the weights of their mixtures, biases, factors
	RoleMix1Bias  Role = "mix1_bias"
	RoleMix1Scale Role = "mix1_scale"
	RoleMix2      Role = "mix2" // before the MLP
	RoleMix2Bias  Role = "mix2_bias"
	RoleMix2Scale Role = "mix2_scale"
	RoleMix3      Role = "mix3" // before the final norm
	RoleMix3Bias  Role = "mix3_bias"
	RoleMix3Scale Role = "mix3_scale"

	RoleGate   Role = "gate"
	RoleUp     Role = "up"
	RoleGateUp Role = "gate_up" // FusedGateUp
	RoleDown   Role = "down"

	RoleActPositive Role = "act_positive" // parameters of the activation, of what is above zero and of what is not
	RoleActNegative Role = "act_negative"

	RoleRouter        Role = "router"
	RoleRouterScale   Role = "router_scale" // factors of what the router reads, and of each expert
	RoleExpertScale   Role = "expert_scale"
	RoleExpertsGateUp Role = "experts_gate_up" // [experts, 2·ffn, hidden]; up alone when not gated
	RoleExpertsDown   Role = "experts_down"    // [experts, hidden, ffn]
	RoleLatentDown    Role = "latent_down"     // hidden to what experts read
	RoleLatentUp      Role = "latent_up"       // and back
	RoleSharedGate    Role = "shared_gate"
	RoleSharedGateUp  Role = "shared_gate_up" // FusedGateUp
	RoleSharedUp      Role = "shared_up"
	RoleSharedDown    Role = "shared_down"
	RoleSharedRouter  Role = "shared_router" // sigmoid gate of the shared experts

	RolePatches   Role = "patches"    // of a vision encoder: a convolution that takes each patch once
	RoleClass     Role = "class"      // its token in front of the patches
	RoleMergeNorm Role = "merge_norm" // projector of images
	RoleMergeUp   Role = "merge_up"
	RoleMergeDown Role = "merge_down"

	RoleFinalNorm Role = "final_norm"
	RoleHeadDense Role = "head_dense" // HeadDense
	RoleHeadNorm  Role = "head_norm"
	RoleHead      Role = "lm_head"

	RoleMTPEmbedNorm  Role = "mtp_embed_norm"  // of the next token's embedding
	RoleMTPHiddenNorm Role = "mtp_hidden_norm" // of the hidden states
	RoleMTPProj       Role = "mtp_proj"        // both to one
	RoleMTPStreams    Role = "mtp_streams"     // or residual streams apart
	RoleMTPNorm       Role = "mtp_norm"        // what head and next module read
)

// Bias returns the role of the bias beside weight r.
func (r Role) Bias() Role { return r + "_b" }

// Of is the role of one head's projection, where heads are separate.
func (r Role) Of(head int64) Role { return r + Role(fmt.Sprintf(".%d", head)) }
