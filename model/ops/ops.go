package ops

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// ChunksKeep is what a chunk of the output layer and loss keeps for its backward pass.
type ChunksKeep string

const (
	KeepGradients ChunksKeep = "gradients" // which are made at once: logits are those of one chunk
	KeepLogits    ChunksKeep = "logits"    // and what the loss saves: all logits, chunk by chunk
	KeepNothing   ChunksKeep = "nothing"   // a checkpoint: the backward pass makes logits and loss of each chunk again
)

// Recompute says what a layer computes again in its backward pass.
type Recompute string

const (
	NoRecompute        Recompute = "none"
	SelectiveRecompute Recompute = "selective" // parts of a layer: Modules
	FullRecompute      Recompute = "full"      // the whole layer from its input
)

// Modules are the parts of a layer that selective recomputation computes again. The
// first four are checkpoints of their inputs; of the others the outputs are let go of
// (Megatron-Core, transformer_config.py, recompute_modules).
type Modules uint8

const (
	CoreAttention Modules = 1 << iota // scores, softmax, weighted sum: where no module is named
	DenseMLP
	Experts // router, exchange and experts
	SharedExperts
	ExpertActivation
	LayerNorms       // those that no projection has taken in: in front of experts and of latent attention
	LatentProjection // queries, keys and values of latent attention from their low ranks
	StreamMixes      // of residual streams, but for those that a layer hands on
)

// ModuleNames are the names of Modules, the lowest bit first.
var ModuleNames = []string{"core_attn", "mlp", "moe", "shared_experts", "moe_act", "layernorm", "mla_up_proj", "mhc"}

// Away are the parts of a layer that leave to the host what they save for their gradients
// (Megatron-Core, transformer_config.py, offload_modules).
type Away uint8

const (
	AttentionNorm Away = 1 << iota // where it is a module of its own: in front of latent attention
	Projection                     // of queries, keys and values, with the norm that it takes in
	Core                           // of attention
	OutputProjection
	ExpertsNorm // the norm in front of experts
	ExpertsFirst
	ExpertsGate // their activation
	ExpertsMLP  // all of their MLPs, where these are one module
)

// AwayNames are the names of Away, the lowest bit first.
var AwayNames = []string{"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act", "fused_group_mlp"}

// OfExperts are those inside experts.
const OfExperts = ExpertsFirst | ExpertsGate | ExpertsMLP

// Shard is how one rank's part of a layer is cut.
type Shard struct {
	TP, CP, EP, ExpertTP int64
	CPHeads              bool  // context ranks exchange positions for heads around the attention kernel, instead of keys in a ring
	SequenceParallel     bool  // norms and residuals are cut over tp along the sequence
	Flex                 bool  // rows go to experts' ranks by a kernel of their own, once to each: the flex dispatcher
	DeepEP               bool  // that kernel is DeepEP's, not Hybrid-EP's
	Domains              int64 // NVLink domains that the expert-parallel ranks span; 0: one
}

// Config is everything the ops of a rank depend on.
type Config struct {
	Spec        *model.Spec
	Recipe      *recipe.Recipe
	LayerRecipe *recipe.Recipe // of the layers, when they are compiled one by one; nil: Recipe
	Precision   recipe.Precision
	Shard       Shard

	InputConfig
	KernelConfig
	CheckpointConfig
	LossConfig
	ExpertConfig
	AdapterConfig
	GraphConfig

	vision *model.Vision // whose encoder's layers these are
	stream tape.DType    // of their residual stream, where it is not that of other layers
	planes bool          // which lies width by width
	fixed  bool          // no gradient goes back through what they read
}

// InputConfig says what lies in the sequences of a micro batch.
type InputConfig struct {
	MicroBatch int64   // sequences
	Sequence   int64   // tokens of a sequence, before context parallelism cuts it
	Source     int64   // tokens of the sequence that an encoder of text reads beside it
	Document   int64   // tokens of the documents that a sequence is packed of, which attention keeps apart; 0: it is one
	Padding    float64 // share of the tokens that are padding, which attention is told; 0: none
}

// KernelConfig says which kernels run where a framework has several.
type KernelConfig struct {
	Attention  string // sdpa, flash or unfused
	Efficient  string // flavour of the attention law that PyTorch's memory-efficient kernels have on the GPU
	SDPA       string // flavour that PyTorch's attention has; "": the law's own
	MaskedSDPA string // and where it reads a mask
	HeadsApart bool   // no fused attention of PyTorch that runs lets query heads share those of keys, as it is asked to
	TF32       bool   // fp32 operands are multiplied in TF32
	AnyLayout  bool   // GEMMs read 8-bit operands of one scale along rows and columns alike
	OpFuser    bool   // Transformer Engine's op fuser runs dense MLPs and projections with adapters
	QKVRotary  bool   // one kernel cuts a projection into queries, keys and values, and turns them
}

// CheckpointConfig says what layers compute again in the backward pass, and what they leave to the host until then.
type CheckpointConfig struct {
	Recompute   Recompute
	Modules     Modules // of selective recomputation; 0: the recipe's own
	WholeLayers bool    // full recomputation runs to the end of a layer, whatever the recipe stops at
	Partly      bool    // some layers are recomputed and others not: Model.Kept
	Together    int64   // layers that are recomputed as one, from the input of the first; 0: 1
	Away        Away    // modules that leave to the host what they save
	Least       int64   // elements of a tensor that goes, at least
}

// LossConfig says how output layer and loss are computed.
type LossConfig struct {
	LossApart   bool    // head and loss are units of their own, as a pipeline that cuts between them has them
	FusedLoss   bool    // cross entropy fused with the cast (no fp32 logits)
	NativeLoss  bool    // and then by Megatron-Core's own compiled pieces
	WrittenLoss bool    // the loop's own, kernel by kernel
	KeepsLogits bool    // the loop holds what the model made to the end of the backward pass
	LossAlone   bool    // a compiled graph returns the loss without the logits
	WholeLoss   bool    // each tensor rank gathers all logits and computes the loss of all
	Metrics     bool    // of the logits of each micro batch, beside its loss
	AsTheyAre   bool    // logits and scores meet their softmax in the dtype that they were made in, but for autocast
	LinearLoss  string  // program that makes the loss of the output layer's operands, without all logits; "": of logits
	FreeGiB     float64 // of device memory beside the weights, where the loss's chunks go by that
	LossChunks  int64   // chunks of tokens that output layer and loss take one by one; 0: all at once
	ChunksKeep  ChunksKeep
}

// ExpertConfig says how tokens come to experts, and how these run.
type ExpertConfig struct {
	SyncFree  bool    // experts take the numbers of rows from the device
	JointMLPs bool    // MLPs of all experts of a rank run in kernels of both GEMMs, cast and activation, where they multiply in MXFP8
	Capacity  float64 // rows of every expert over the mean; 0: as many as are routed to it
	Imbalance float64 // tokens of the busiest expert rank over the mean, without such ranks of the busiest expert; 0, 1: balanced
	InTurn    bool    // every token goes to the experts after those of the one before, by program router_in_turn
}

// AdapterConfig says how FSDP1 wraps matrices of adapters.
type AdapterConfig struct {
	UnitApart  bool // FSDP1 has each matrix of adapters as a unit of its own
	UnitCopies bool // which keep copies of their inputs in the first step
}

// GraphConfig says what a compiler makes one graph of.
type GraphConfig struct {
	OneGraph    bool        // a compiler makes one graph of the whole backward pass
	LayerGraphs bool        // and one of each layer of a model compiled whole, which hooks around it cut out
	Bucket      units.Bytes // of PyTorch's DDP: compiled graphs end with each; 0: with none
	graphs      string      // that read each parameter of the unit, numbered from its end; "": one reads all
}

// Dropouts are the probabilities after the embedding, on attention scores and in
// front of residual sums: the model's own, which a class of Hugging Face's always has,
// or the framework's default for models of the GPT kind that name none, not even 0.
func (c *Config) Dropouts() (embed, attention, resid float64) {
	s := c.Spec
	if d := c.Recipe.Structure.Dropout; s.DropoutUnnamed && !s.Gated && s.Norm == model.LayerNorm && !s.Bidirectional {
		return d, d, d
	}
	return s.EmbedDropout, s.AttnDropout, s.ResidDropout
}

// Param is a parameter as this rank holds it.
type Param struct {
	model.Tensor
	Dims  []int64 // on this rank, before data-parallel sharding
	Local int64   // elements of Dims
	Used  bool    // some op of the unit uses it
	Order int     // the place of the first that does among those of other parameters
	Wide  bool    // products read it in 16 bits though they read others in fewer
}

// Packs reports whether a parameter may be stored in 4 bits: a frozen matrix of a layer.
func (p *Param) Packs() bool { return p.Frozen && len(p.Dims) == 2 && p.Split != model.VocabSplit }

// Narrowed reports whether GEMMs in 8 bits read a parameter of the unit, so that unit-wise
// sharding may gather it in 8: the matrices of layers, of experts where they are modules that
// hold them so (Transformer Engine's GroupedLinear, but not under torchao/float8, which
// converts linear modules; configs leave out the head).
func (u *Unit) Narrowed(p *Param, experts bool) bool {
	return u.Layers > 0 && len(p.Dims) > 1 && !p.Wide && (experts || p.Split != model.ExpertSplit)
}

// Modules of the ops of the last unit.
const (
	Head = "head"
	Loss = "loss"
)

// Unit is a stretch of the model with its ops: the embedding, a layer, the head.
type Unit struct {
	Name     string
	Layers   int64 // of the model that it holds: more than one where they are recomputed together
	Forward  tape.Section
	Backward tape.Section
	Params   []Param
	// Input and Output are the sizes of the activation the unit takes over and
	// hands on, 0 for the ends of the model.
	Input, Output units.Bytes
	InputStore    int32 // storage of Input in the events, -1: none
	OutputStore   int32 // storage of Output in the forward events, -1: none
	GradStore     int32 // storage of the output's gradient in the backward events, -1: none
	InGradStore   int32 // storage of the input's gradient in the backward events, -1: none
}

// Model is the ops of one rank over a whole model; a pipeline stage takes a
// range of its layers and, at the ends, embedding and head.
type Model struct {
	Encoder   []Unit // of images or of text, its parts that differ
	Encodes   []int  // the order in which they run, before the embedding
	Embedding Unit
	Kinds     []Unit // one per distinct kind of layer, or of layers that are recomputed together
	Kept      []Unit // the same without recomputation, where only some layers are recomputed
	Layers    []int  // kind of each layer, an index into Kinds
	Head      Unit
	Loss      Unit // without ops unless Config.LossApart
}

// Saved is what the unit keeps from its forward to its backward pass.
func (u *Unit) Saved() units.Bytes { return u.saved(func(tape.StoreKind) bool { return true }) }

// SavedTensors is Saved without parameters that were cast.
func (u *Unit) SavedTensors() units.Bytes {
	return u.saved(func(k tape.StoreKind) bool { return k != tape.WeightCopy })
}

func (u *Unit) saved(counts func(tape.StoreKind) bool) units.Bytes {
	live := map[int32]units.Bytes{}
	if u.InputStore >= 0 {
		live[u.InputStore] = u.Input
	}
	for _, events := range [][]tape.Event{u.Forward.Events, u.Forward.Deferred} {
		for _, e := range events {
			if live[e.Store] = e.Bytes; e.Bytes <= 0 || !counts(e.Kind) {
				delete(live, e.Store)
			}
		}
	}
	delete(live, u.OutputStore)
	var sum units.Bytes
	for _, b := range live {
		sum += b
	}
	return sum
}

// LocalParams is the number of parameters on this rank, without copies of tied ones.
func (u *Unit) LocalParams() int64 {
	var n int64
	for _, p := range u.Params {
		if !p.TiedCopy {
			n += p.Local
		}
	}
	return n
}
