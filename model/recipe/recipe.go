package recipe

import (
	"cmp"
	"embed"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

//go:embed *.yaml base/*.yaml
var files embed.FS

// Recipe is what a framework does with a model: its programs, dtypes, host costs
// and overlap.
type Recipe struct {
	Name    string
	Title   string `yaml:"title"`
	Source  string `yaml:"source"`
	Extends string `yaml:"extends"`
	Liger   string `yaml:"liger"` // that of Liger-Kernel's operators, which can take the place of its own; "": not known to
	Shared  string `yaml:"with"`  // whose programs, widths of norms and costs of primitives it has, too, before those of what it extends

	Kernels          map[string]string    `yaml:"attention_kernels"`  // runtime.attention → flavour of the attention law; absent: what PyTorch picks
	DataParallel     []string             `yaml:"data_parallel"`      // kinds it offers, the usual one first
	AlsoParallel     []string             `yaml:"also_data_parallel"` // kinds that its framework has, too, and that a search leaves out
	CPCommTypes      []string             `yaml:"cp_comm_types"`      // how its context ranks can come by keys and values, the usual way first: p2p, a2a; none: there is no context parallelism
	Recomputes       []string             `yaml:"recomputes"`         // kinds of recomputation that it has, the least first; none: all
	RecomputeModules []string             `yaml:"recompute_modules"`  // parts of a layer that selective recomputation may name; none: the attention core alone
	RecomputeMethods []string             `yaml:"recompute_methods"`  // ways to recompute some layers in full, the usual one first; none: all layers or no layer
	LossChunksKeep   []string             `yaml:"loss_chunks_keep"`   // what chunks of the output layer and loss may keep for their backward pass, the usual first; none: there are no chunks
	Scopes           map[string]string    `yaml:"scopes"`             // compile scope → recipe of the layers
	Around           string               `yaml:"around"`             // recipe of what is not compiled when layers are, one by one
	Schedules        []string             `yaml:"schedules"`          // orders of a pipeline's work that its framework has
	Structure        Structure            `yaml:"structure"`
	Precision        map[string]Precision `yaml:"precision"`
	Default          string               `yaml:"default_precision"`
	AdapterPrecision string               `yaml:"adapter_precision"` // the default where LoRA is trained; "": Default
	DefaultOptimizer string               `yaml:"default_optimizer"`
	Attention        string               `yaml:"default_attention"`
	Optimizer        map[string]Optimizer `yaml:"optimizer"`
	Host             Host                 `yaml:"host"`
	Offload          Offload              `yaml:"offload"`
	Overlap          Overlap              `yaml:"overlap"`
	Release          units.Release        `yaml:"release"`             // of the software that it describes, where that is not the newest
	Releases         []Older              `yaml:"releases"`            // what older software did otherwise, the oldest last
	PyTorch          []Older              `yaml:"pytorch"`             // likewise of PyTorch beneath the framework, which comes first
	IndexerSpread    float64              `yaml:"indexer_spread"`      // the same of steps whose attention is to keys that an indexer picks
	Spread           float64              `yaml:"spread"`              // relative standard deviation of whole steps of this software that nothing else accounts for
	Expandable       bool                 `yaml:"expandable_segments"` // of PyTorch's allocator, PYTORCH_CUDA_ALLOC_CONF
	Context          units.Bytes          `yaml:"context"`             // CUDA context of this software; 0: that of the hardware profile
	Images           map[string]Images    `yaml:"images"`              // encoders of images that it runs, by the model_type of their vision_config
	Programs         Programs             `yaml:"programs"`
}

// Images is what the host does around an encoder of images in a forward pass, in kernels too
// small to matter but for their launch.
type Images struct {
	Pass     Hosted `yaml:"pass"`     // before patches are projected
	Image    Hosted `yaml:"image"`    // likewise, for each image
	Tables   Hosted `yaml:"tables"`   // after it: rotary tables of patches
	Places   Hosted `yaml:"places"`   // to find the places of images' tokens
	Sequence Hosted `yaml:"sequence"` // for the positions of each sequence
	Turned   Hosted `yaml:"turned"`   // and of each image in it
	Masks    int    `yaml:"masks"`    // kernels over all pairs of positions of the language model
	Lists    bool   `yaml:"lists"`    // tokens are put by lists of places, between copies of all, not by a mask as wide as they
}

// Hosted is so many small kernels, and after them so many waits of the host for the device.
type Hosted struct {
	Kernels int `yaml:"kernels"`
	Waits   int `yaml:"waits"`
}

// Older is what a framework's software before a release did otherwise: keys of a recipe
// with the values that they had. Of precision and optimizer only what a recipe has is changed.
type Older struct {
	Before    units.Release       `yaml:"before"`
	Kernels   map[string]string   `yaml:"attention_kernels"`
	Structure Override            `yaml:"structure"`
	Overlap   Override            `yaml:"overlap"`
	Precision map[string]Override `yaml:"precision"`
	Optimizer map[string]Override `yaml:"optimizer"`
	Host      Override            `yaml:"host"`
	Offload   Override            `yaml:"offload"`
	Expands   *bool               `yaml:"expandable_segments"`
	Contexts  *[]string           `yaml:"cp_comm_types"`
	Recompute []string            `yaml:"recomputes"`
	Source    string              `yaml:"source"`
}

// ByParts reports whether full recomputation of a model of a type is of parts of a layer, each by
// itself, and not of whole layers.
func (r *Recipe) ByParts(modelType string) bool {
	s := &r.Structure
	return s.PartsAgain == "all" || s.PartsAgain == "own" && slices.Contains(s.OwnModels, modelType)
}

// RecomputesSince is the release that brought the framework a kind of recomputation; 0: it has
// none, or always had it.
func (r *Recipe) RecomputesSince(kind string) units.Release {
	for _, o := range r.Releases {
		if o.Recompute != nil && !slices.Contains(o.Recompute, kind) {
			return o.Before
		}
	}
	return 0
}

// ContextsSince is the release that brought the framework context parallelism; 0: it has none, or
// always had it.
func (r *Recipe) ContextsSince() units.Release {
	for _, o := range r.Releases {
		if o.Contexts != nil && len(*o.Contexts) == 0 {
			return o.Before
		}
	}
	return 0
}

// Override is a part of a recipe that is decoded over what another has.
type Override struct {
	doc  *yamlx.Document
	node *yaml.Node
}

// DecodeNode keeps the node.
func (o *Override) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	o.doc, o.node = d, n
	return nil
}

// over decodes it over what is in out.
func (o Override) over(out any) {
	if o.node != nil {
		if err := o.doc.DecodeInto(o.node, out).Err(); err != nil {
			panic(err)
		}
	}
}

// At is the recipe with the framework of a release.
func (r *Recipe) At(release units.Release) *Recipe { return r.with(r.Releases, release) }

// OnPyTorch is the recipe with PyTorch of a release beneath the framework.
func (r *Recipe) OnPyTorch(release units.Release) *Recipe { return r.with(r.PyTorch, release) }

// with is the recipe with what software of a release did otherwise.
func (r *Recipe) with(older []Older, release units.Release) *Recipe {
	out := *r
	out.Precision, out.Optimizer, out.Host.Primitives = maps.Clone(r.Precision), maps.Clone(r.Optimizer), maps.Clone(r.Host.Primitives)
	for _, o := range older {
		if !release.Before(o.Before) {
			continue
		}
		if o.Kernels != nil {
			out.Kernels = o.Kernels
		}
		o.Structure.over(&out.Structure)
		o.Overlap.over(&out.Overlap)
		o.Host.over(&out.Host)
		o.Offload.over(&out.Offload)
		if o.Expands != nil {
			out.Expandable = *o.Expands
		}
		if o.Contexts != nil {
			out.CPCommTypes = *o.Contexts
		}
		if o.Recompute != nil {
			out.Recomputes = o.Recompute
		}
		change(out.Precision, o.Precision)
		change(out.Optimizer, o.Optimizer)
	}
	return &out
}

// change decodes entries of was over those of the same name.
func change[T any](of map[string]T, was map[string]Override) {
	for name, o := range was {
		if v, ok := of[name]; ok {
			o.over(&v)
			of[name] = v
		}
	}
}

// NormWidths are the widths of rows that RMS and layer norms have kernels tuned for; others
// run general ones.
type NormWidths struct {
	RMS   []int64 `yaml:"rms"`
	Layer []int64 `yaml:"layer"`
}

// Structure says how a framework shapes the layers it is given.
type Structure struct {
	FusedQKV       bool    `yaml:"fused_qkv"`           // one GEMM for q, k, v
	GroupedQKV     bool    `yaml:"grouped_qkv"`         // which lie group by group: several queries, their key, their value
	CopiedQKV      bool    `yaml:"copied_qkv"`          // and each is copied out of it
	WideHalves     bool    `yaml:"wide_halves"`         // halves of heads are turned in fp32, by program rotary_halves_fp32
	FusedGateUp    bool    `yaml:"fused_gate_up"`       // one GEMM for gate and up
	ApartBias      bool    `yaml:"apart_bias"`          // biases of these two are added by a kernel of their own
	GraphedDense   bool    `yaml:"graphed_dense"`       // a step without experts is replayed from CUDA graphs where an NVLink domain spans nodes
	GraphedLayers  bool    `yaml:"graphed_layers"`      // and of layers with experts all but these
	Mixers         string  `yaml:"mixers"`              // state-space mixers: whole, scan, gated norm and projection in one function, or apart; "": none
	Indexer        string  `yaml:"indexer"`             // attention to the keys that an indexer picks: masked, of all, or absorbed, of the latent alone; "": none
	PartialRotary  bool    `yaml:"partial_rotary"`      // the rotary kernel takes whole heads of which it turns a part
	FusedRotary    bool    `yaml:"fused_rotary"`        // latent attention is turned, cut and joined by one kernel each for q and for k, v
	FusedTurns     bool    `yaml:"fused_turns"`         // heads are turned by the program rotary_fused, one kernel, whatever the model's own way
	OwnFile        bool    `yaml:"own_file"`            // files of one's own, of which a job may say how heads are turned and keys handed to attention
	Rotary         string  `yaml:"rotary"`              // they turn heads as complex numbers, by program rotary_complex, or neighbours as pairs, by rotary_interleaved; "": halves
	HeadTables     bool    `yaml:"head_tables"`         // rotary tables have the dtype of the heads that they turn, not that of the hidden states
	PackedInputs   bool    `yaml:"packed_inputs"`       // products of a weight in few bits keep what they read, which no gradient needs
	ScaledRotary   bool    `yaml:"scaled_rotary"`       // scaled cosines and sines go by program rotary_apart: the kernel does not take them
	BiasedMLPs     bool    `yaml:"biased_mlps"`         // kernels that run all of the experts' MLPs add biases and clamp (program experts_joint)
	FusedReLU2     bool    `yaml:"fused_relu2"`         // experts without a gate square a ReLU and weigh it in one kernel, program expert_relu2
	OlderReLU2     bool    `yaml:"older_relu2"`         // elsewhere a ReLU is squared by program relu2_older
	UnfusedRotary  bool    `yaml:"unfused_rotary"`      // and so do all others: there is no such kernel
	PackedChunks   bool    `yaml:"packed_chunks"`       // context ranks that exchange heads for positions of packed documents find the parts of each by the host
	PackedRotary   string  `yaml:"packed_rotary"`       // packed documents are turned so apart, one after another, by tables that are joined, or gathered by positions on the device; "": as one sequence
	PlainLayers    bool    `yaml:"plain_layers"`        // GELU and masked softmax run kernel by kernel, by programs named _plain, and so do biases, dropout and residual sums
	UnfusedGate    bool    `yaml:"unfused_gate"`        // gates are applied kernel by kernel, by programs glu_unfused and expert_glu_unfused
	OlderGLU       bool    `yaml:"older_glu"`           // those programs are named _older, but where a model clamps what they multiply
	SharedTPInput  bool    `yaml:"shared_tp_input"`     // one collective for all column-parallel projections of a block; else one each
	OwnTPInputs    bool    `yaml:"own_tp_inputs"`       // the job has one each, unlike the recipe
	SharedSum      bool    `yaml:"shared_sum"`          // of a layer whose blocks run beside each other tensor ranks sum both at once
	FunctionalTP   bool    `yaml:"functional_tp"`       // tensor ranks use torch's functional collectives: what is gathered or cut along the sequence is copied, and a compiled layer keeps what it gathered
	DTensorOps     string  `yaml:"dtensor_ops"`         // what of layers that are not compiled runs on distributed tensors beside products and norms along the sequence: all; attention, of models that norm queries, have sinks or latent attention; "": nothing
	ScalarCat      bool    `yaml:"scalar_cat"`          // contiguous tensors are joined value by value: PyTorch before 2.8
	TokenMetrics   bool    `yaml:"token_metrics"`       // a job may say that entropy and accuracy are taken from logits
	LossMetrics    int     `yaml:"loss_metrics"`        // how many metrics of training compute the loss of each micro batch again
	CopiesValues   bool    `yaml:"copies_values"`       // cuDNN's attention has values copied that lie in one projection where keys do not any more
	SavesAttention bool    `yaml:"saves_attention"`     // the output projection keeps what attention keeps of its output, not a quantized copy, unless scales are known before
	RepeatHeads    bool    `yaml:"repeat_heads"`        // shared heads are repeated before attention, and before context ranks exchange them
	SharesHeads    bool    `yaml:"shares_heads"`        // PyTorch's attention is asked to let query heads share those of keys (enable_gqa)
	VocabParallel  bool    `yaml:"vocab_parallel"`      // embedding, head and loss cut over tp
	VocabMultiple  int64   `yaml:"vocab_multiple"`      // the vocabulary is padded to this times tp
	AmaxRanks      string  `yaml:"amax_ranks"`          // that agree after each pass on the largest values of delayed scaling, unless the job says otherwise: all, tensor, none; "": none
	Dropout        float64 `yaml:"dropout"`             // default of models with LayerNorm and a plain MLP that name none, not even 0
	StepSync       bool    `yaml:"step_sync"`           // the host waits for the device once per forward pass
	GradScaler     bool    `yaml:"grad_scaler"`         // gradients of fp16 under autocast are unscaled in a pass of their own, and the host waits for whether all are finite where the update does not ask
	NormStays      bool    `yaml:"norm_stays"`          // and never for the norm of gradients that it clips by
	SelectiveOps   bool    `yaml:"selective_ops"`       // recompute: selective keeps attention, what sequence-parallel ranks reduced and every other matrix multiply of a layer, else it recomputes the attention core
	KeptExchanges  string  `yaml:"kept_exchanges"`      // selective_ops: of which models it keeps the experts' rows too, as exchanged: all; unnormed, those without norms of queries and keys; "": of none
	KeptBiased     bool    `yaml:"kept_biased"`         // selective_ops: it keeps every matrix multiply that adds a bias, and counts none of them
	LossKept       bool    `yaml:"loss_kept"`           // a compiled loss keeps the probabilities of its logits, in fp32, for its backward pass
	LossWide       bool    `yaml:"loss_wide"`           // a loss in pieces casts their 16-bit logits to fp32 for its kernel, and the gradient back
	LossScaled     bool    `yaml:"loss_scaled"`         // and multiplies the gradient of a piece by its share of the labels
	LossGemmAdds   string  `yaml:"loss_gemm_adds"`      // to which gradients of the output layer GEMMs of a loss in pieces add: wide, fp32 ones of 16-bit logits; alike, those in the dtype of the logits; "": none
	LossChunks     int64   `yaml:"loss_chunks"`         // unless the job says otherwise
	PartsAgain     string  `yaml:"parts_again"`         // of which models full recomputation is of norms, attention and MLP each by itself, whose inputs are kept: all; own, those of OwnModels; "": of none
	EarlyStop      bool    `yaml:"early_stop"`          // recomputation ends after the last saved tensor
	Reentrant      bool    `yaml:"reentrant"`           // but for that of layers, unless the job says so or FSDP's own checkpoints wrap them (strategies, Job.WholeLayers)
	Compiled       bool    `yaml:"compiled"`            // kernels come from torch.compile (tape.Tape.Compiled)
	FlashBatches   bool    `yaml:"flash_batches"`       // tensors lie sequence first, and batch first around flash attention alone, which selective recomputation does not run again
	ExplicitMask   bool    `yaml:"explicit_mask"`       // attention reads a mask tensor and shared heads are repeated
	PaddingMask    bool    `yaml:"padding_mask"`        // attention is told which tokens of a batch are padding
	AdditiveMask   bool    `yaml:"additive_mask"`       // by one mask to add to the scores, made once for all layers, else by one of booleans, of which each call makes such a mask
	OpenMask       bool    `yaml:"open_mask"`           // where every token sees all others the scores of an encoder get no mask
	WideMask       bool    `yaml:"wide_mask"`           // masks that are added to scores have the dtype of the embeddings, which autocast leaves wide
	NarrowAttn     bool    `yaml:"narrow_attention"`    // flash attention can multiply in the 8 bits of the layers
	AnyLayout      bool    `yaml:"any_layout"`          // operands of one scale are cast to one copy where the GPU's GEMMs read it along both axes
	RandomRouting  bool    `yaml:"random_routing"`      // benchmarks draw each token's experts at random; else all ranks get as many rows
	ExpertCalls    bool    `yaml:"expert_calls"`        // a grouped GEMM is a call of cuBLAS for each expert, on some streams in turn
	JointProducts  bool    `yaml:"joint_products"`      // but for products along a multiple of 128 values, which one kernel makes (tape.Tape.JointProducts)
	Adapters       bool    `yaml:"adapters"`            // trains those of LoRA beside frozen weights
	InnerScale     bool    `yaml:"inner_scale"`         // which are scaled between A and B, and dropout follows B (NeMo AutoModel, components/_peft/lora.py)
	TritonAdapters bool    `yaml:"triton_adapters"`     // and are kernels of their own where a job says so (peft.use_triton)
	ByHand         bool    `yaml:"by_hand"`             // and run inside functions whose gradients are written out by hand, where all projections that read the same have one, without dropout (tape/adapted.go)
	HandKernels    bool    `yaml:"hand_kernels"`        // by_hand where a job says so (Axolotl's lora_mlp_kernel and its like)
	KeptAdapters   bool    `yaml:"kept_adapters"`       // by_hand: functions keep adapters as they cast them, and take biases
	HandLayers     bool    `yaml:"hand_layers"`         // and so are layers, of models as Llama
	VariedLayers   bool    `yaml:"varied_layers"`       // or with layer norms, MLPs without a gate, GELU, positions that are learned or none
	AdaptersOnly   bool    `yaml:"adapters_only"`       // of which nothing but adapters is trained
	UnpackBuffer   bool    `yaml:"unpack_buffer"`       // and unpack frozen weights of few bits to one buffer, which stays
	TurnedWeights  bool    `yaml:"turned_weights"`      // projections multiply by a turned view of their weights (torch.einsum), whose gradients AccumulateGrad copies
	LinearLoss     string  `yaml:"linear_loss"`         // program of the loss of the output layer's operands, unless the job says otherwise; "": the loss is of logits
	LossGiB        float64 `yaml:"loss_gib"`            // of fp32 logits that a chunk of that loss is of at most; 0: half of the device's memory that weights leave
	RoundedChunks  bool    `yaml:"rounded_chunks"`      // which are rounded to a multiple of four, half of four and less to one, else rounded up
	PackedWaits    int     `yaml:"packed_waits"`        // waits of the host for lengths of packed documents in each layer's attention
	MainGradients  bool    `yaml:"main_gradients"`      // weight gradients are added into a persistent buffer
	GradientHook   bool    `yaml:"gradient_hook"`       // main_gradients are added by a kernel of their own, not by the weight-gradient GEMM
	HookCasts      bool    `yaml:"hook_casts"`          // which adds a copy in the dtype of the main gradients
	GradientSweep  bool    `yaml:"gradient_sweep"`      // gradient_hook: once the backward pass is over, until when all gradients are there
	AllReduce      bool    `yaml:"all_reduce"`          // ZeRO 1 and 2 all-reduce gradients, of which each rank uses its part
	WholeNorm      bool    `yaml:"whole_norm"`          // and takes the norm of all of them
	Partitions     bool    `yaml:"partitions"`          // DeepSpeed: gradients leave autograd for buckets; ZeRO 3 has a bucket and its part of all gradients between steps, too
	BucketPasses   int     `yaml:"bucket_passes"`       // kernels that read and write all of a bucket around its reduction
	PartPasses     int     `yaml:"part_passes"`         // and those that do so with a rank's part of it
	SubGroup       int64   `yaml:"sub_group"`           // and updates so many of a rank's at once
	LiveParameters int64   `yaml:"live_parameters"`     // of ZeRO 3, so many stay gathered from the end of the forward pass to the backward pass
	ListParameters bool    `yaml:"list_parameters"`     // ZeRO 1 and 2 gather parameters into a list of flat tensors and copy each rank's part of each parameter out
	FlatOnDevice   bool    `yaml:"flat_on_device"`      // the weights that ZeRO 1 and 2 join are on the device, in tensors of their own
	FlatStates     bool    `yaml:"flat_states"`         // DeepSpeed: the optimizer's buffers are flat, and main gradients of the compute dtype are autograd's own
	ReduceBucket   int64   `yaml:"reduce_bucket"`       // flat_states, list_gather: so many 16-bit gradients at most are reduced together
	ZeroGradients  bool    `yaml:"zero_gradients"`      // main gradients are set to zero at the start of a step
	CheckGradients bool    `yaml:"check_gradients"`     // and read once for NaNs before they are reduced
	ScaleGradients string  `yaml:"scale_gradients"`     // and divided by the replicas in a pass of their own: all, or experts alone
	NaNChecks      bool    `yaml:"nan_checks"`          // a job may say whether losses and gradients are looked at for NaNs
	GathersAll     bool    `yaml:"gathers_all"`         // the optimizers of dense parameters and of experts' each gather all parameters, where nothing runs beside
	OuterRecompute bool    `yaml:"outer_recompute"`     // layers are checkpointed from outside of what FSDP wraps
	Trainer        bool    `yaml:"trainer"`             // a job may say that transformers' Trainer makes its steps
	OneConnection  bool    `yaml:"one_connection"`      // streams may share one connection to the device, which tensor and context ranks ask for before Blackwell
	MainCopies     bool    `yaml:"main_copies"`         // the optimizer casts 16-bit main gradients to the master's dtype, unscales those of fp16 in a pass of their own, and copies the weights back tensor by tensor
	SingleRank     bool    `yaml:"single_rank_calls"`   // collectives over one rank are called too, and main gradients divided by one replica
	NodeGradients  bool    `yaml:"node_gradients"`      // layers that exchange experts' rows beside another micro batch hold gradients of their parts' inputs until all layers are done
	DummyGradients bool    `yaml:"dummy_gradients"`     // autograd gets an unused tensor in the place of each main gradient, one for all weights of a shape
	StateCopies    bool    `yaml:"state_copies"`        // ZeRO-1 may have its states in several copies, among which reduced gradients are summed
	ListGather     bool    `yaml:"list_gather"`         // ZeRO-3: each parameter by itself, into a list of tensors, while the host waits
	ReduceToOwners bool    `yaml:"reduce_to_owners"`    // ZeRO 1 and 2 reduce each rank's part of 16-bit gradients to it by a call of its own
	FusedLoss      bool    `yaml:"fused_cross_entropy"` // unless the job says otherwise
	LossAlone      bool    `yaml:"loss_alone"`          // a compiled graph returns the loss without the logits, unless the job says otherwise
	ApartLoss      bool    `yaml:"apart_loss"`          // the maximum of the logits is subtracted in a tensor of its own
	PostValidation bool    `yaml:"post_validation"`     // schedules without bubble: the norm is looked at after the optimizer's update, and no rank waits for the others
	Ring           string  `yaml:"ring"`                // whose kernels merge the steps of ring attention: transformer-engine, torch; "": none
	PlainFP32      bool    `yaml:"plain_fp32"`          // fp32 is multiplied as PyTorch does by default, not in TF32, unless the job says otherwise
	PrologueTiny   int     `yaml:"prologue_kernels"`    // tiny kernels per forward pass (masks, positions)
	TableTiny      int     `yaml:"table_kernels"`       // of these, those of the rotary tables, after the host has waited
	MaskTiny       int     `yaml:"mask_kernels"`        // tiny kernels that make the mask of unfused attention
	WindowMaskTiny int     `yaml:"window_mask_kernels"`
	SoftmaxHeads   int64   `yaml:"softmax_heads"`  // the kernel that masks and normalizes scores takes multiples of so many heads (sequences × heads of a rank); 0: any
	SoftmaxKeys    int64   `yaml:"softmax_keys"`   // and at most so many keys; 0: any
	CausalSoftmax  bool    `yaml:"causal_softmax"` // it reads the causal half of them, and no mask
	BusiestExpert  float64 `yaml:"busiest_expert"` // its rows over the mean of all experts; 0: 1
	LossTiny       int     `yaml:"loss_kernels"`
	CompiledScope  string  `yaml:"compile_scope"`         // "", model, layer: what torch.compile sees at once
	ContextReduce  DType   `yaml:"context_reduce"`        // dtype that gradients are reduced in where context ranks share sequences
	CopiedHeads    bool    `yaml:"copied_heads"`          // context ranks that trade positions for heads get copies of keys and values of fewer heads
	TradeCopies    int     `yaml:"trade_copies"`          // of gradients, beside one before each such all-to-all and one after it
	TradeKernels   int     `yaml:"trade_kernels"`         // tiny kernels before they trade
	Distributed    bool    `yaml:"distributed_attention"` // context ranks trade heads in DeepSpeed's module of this name: beside neither tensor nor pipeline ranks, and what it makes is not recomputed by itself
	OwnKeys        bool    `yaml:"own_keys"`              // which trades keys and values of as many heads as queries have alone
	WholeModels    bool    `yaml:"whole_models"`          // there is no pipeline parallelism
	WholeMatrices  bool    `yaml:"whole_matrices"`        // there is no tensor parallelism
	ExpertModels   string  `yaml:"expert_models"`         // the recipe for models with experts, of which this one has none; "": it has any
	ExpertsOnly    string  `yaml:"experts_only"`          // the recipe for models without experts, of which this one has none; "": it has any
	ExpertParallel bool    `yaml:"expert_parallel"`       // experts can be cut over ranks
	DeepSpeedMoE   bool    `yaml:"deepspeed_moe"`         // experts are those of DeepSpeed's layer: of equal capacity, the mean unless a job says otherwise, one or two of a token, whole on a rank, of tokens that tensor ranks hold whole, and not under ZeRO 3
	LeastRows      int64   `yaml:"least_rows"`            // of equal capacity have at least so many rows
	ExpertLoop     string  `yaml:"expert_loop"`           // experts are modules that run one after another, each on rows that the host asks the device for: all, or those hit, which it asks for, too; "": they are not
	LeafExperts    bool    `yaml:"leaf_experts"`          // hooks of ZeRO 3 run for a block with experts as for one module
	ExpertModules  bool    `yaml:"expert_modules"`        // experts run one after another, each by products of its own
	GatherTokens   string  `yaml:"gather_tokens"`         // tensor ranks gather a layer's tokens before its router and reduce what its experts make of them: all, which divide the rows where they do not cut the experts, or the cutting ones, and these are either all or none, all where nobody shares out experts; "": no ranks, and any may cut experts
	ReduceRows     bool    `yaml:"reduce_rows"`           // gather_tokens: the gradients that are reduced are those of rows of experts that are cut, not those of tokens
	DroppedTokens  bool    `yaml:"dropped_tokens"`        // of tokens that tensor ranks hold whole each sends a part to experts, and gathers what comes back
	PipedExperts   bool    `yaml:"piped_experts"`         // deepspeed_moe: layers with experts may be in a pipeline
	PipelineEngine bool    `yaml:"pipeline_engine"`       // a model of one stage runs as a pipeline, too
	KeptLogits     int     `yaml:"kept_logits"`           // pipelines keep the logits of so many micro batches
	GatheredStages bool    `yaml:"gathered_stages"`       // pipeline stages keep their parameters gathered from the first micro batch to the last
	TorchPipeline  bool    `yaml:"torch_pipeline"`        // torch.distributed.pipelining: its own interleaving, outputs of the last stage kept
	StepsInLine    bool    `yaml:"steps_in_line"`         // torch_pipeline: schedules of several stages on a rank run in time steps, at whose end ranks wait for each other: torch before 2.9
	ScaledSums     bool    `yaml:"scaled_sums"`           // torch_pipeline: sums of gradients are divided by the number of micro batches at the end (scale_grads)
	DroppedOutputs bool    `yaml:"dropped_outputs"`       // torch_pipeline: outputs of the last stage are not held to the end of the step
	CopiedSums     bool    `yaml:"copied_sums"`           // plain tensors on tensor ranks, each projection with hooks of its own that sum copies (transformers, integrations/tensor_parallel.py)
	GatheredHead   bool    `yaml:"gathered_head"`         // tensor ranks cut the output layer, unless it is tied, and each gathers all logits; not vocab_parallel
	DTensor        bool    `yaml:"dtensor"`               // tensor parallelism by DTensor
	ReduceSetsAll  bool    `yaml:"reduce_sets_all"`       // a 16-bit reduce_dtype keeps gradients in 16 bits too
	EvenChunks     bool    `yaml:"even_chunks"`           // virtual stages have equal numbers of layers
	FullStages     bool    `yaml:"full_stages"`           // layers that do not divide fill the first stages
	LargerFirst    bool    `yaml:"larger_first"`          // layers that do not divide give the first stages one more each
	CostStages     bool    `yaml:"cost_stages"`           // stages take layers and head until their parameters pass the stage's share
	SyncTransfers  bool    `yaml:"sync_transfers"`        // blocking transfers synchronize the device; those of schedules with one chunk on a rank block whatever overlaps
	SendsMask      bool    `yaml:"sends_mask"`            // blocking transfers one by one (Host.Transfer): stages with layers take in a mask beside the hidden states
	WeighedEnds    bool    `yaml:"weighed_ends"`          // stages take as many layers each, where embedding and head count as one
	KeepGathered   bool    `yaml:"keep_gathered"`         // layers keep what sequence-parallel ranks gathered, not their shard of it
	WideEnds       bool    `yaml:"wide_ends"`             // first and last layers may multiply in 16 bits what others do in fewer
	MTP            string  `yaml:"mtp"`                   // modules of multi-token prediction: models, those of the model are trained; asked, where a job asks for them; "": never
	FlexDispatcher string  `yaml:"flex_dispatcher"`       // of which models a kernel of its own exchanges experts' rows across NVLink domains: mla, those with latent attention; all, inside such domains, too; none: of those that ask for it
	ExposedRoot    bool    `yaml:"exposed_root"`          // embedding, final norm and head form one FSDP unit
	GatherAhead    bool    `yaml:"gather_ahead"`          // an FSDP unit is gathered before the one before it runs, also where that waits for the device
	HeldHead       bool    `yaml:"held_head"`             // the unit of the head stays gathered for its backward pass, which begins at once
	ShardedMixed   bool    `yaml:"sharded_mixed"`         // mixed precision is FSDP's: tensor and pipeline ranks without it compute in the weights' dtype
	HeldLogits     bool    `yaml:"held_logits"`           // logits are cast to fp32 before the loss, and the script holds them until gradients are made
	Transformers   bool    `yaml:"transformers"`          // queries, keys and values are cut into heads as they are projected and go when both are turned, a block's output when it is added, the embeddings when the last layer is done
	OwnReductions  bool    `yaml:"own_reductions"`        // the optimizer exchanges gradients among replicas, after the last backward pass: no DDP is around the model
	OuterLoss      bool    `yaml:"outer_loss"`            // the loss is computed outside the model that is sharded

	ImageCalls bool `yaml:"image_calls"` // attention takes the images or windows that lie in one sequence of patches one by one

	UnfusedRouter      bool `yaml:"unfused_router"`      // the router's programs are those named _unfused
	UnfusedPermutation bool `yaml:"unfused_permutation"` // and so are the experts': no kernel permutes rows
	PaddedExperts      bool `yaml:"padded_experts"`      // the experts' program is the one named _padded
	WaitingBiases      bool `yaml:"waiting_biases"`      // biases of experts' rows take the host two waits for the device, and zeros of padded rows are joined to them
	RowMaps            bool `yaml:"row_maps"`            // Hybrid-EP permutes rows by a map of them and experts, which it makes first
	WeighedBack        bool `yaml:"weighed_back"`        // and apply probabilities to the rows that come back, not inside the experts: _unfused_back, if there is one
	UnfusedNorm        bool `yaml:"unfused_norm"`        // and RMS norms
	UnfusedLayerNorm   bool `yaml:"unfused_layer_norm"`  // and layer norms, which PyTorch has always had a kernel for
	AsTheyAre          bool `yaml:"as_they_are"`         // logits and scores meet their softmax in the dtype that they were made in, but for autocast: programs named _as_is

	UsesLiger bool     `yaml:"uses_liger"` // Liger-Kernel's operators take the place of its own where nothing else is said
	OwnModels []string `yaml:"own_models"` // but for models of these kinds, which have classes of its own
	OwnClass  string   `yaml:"own_class"`  // whose operators are those; "": as transformers'

	CuDNNFirst []string `yaml:"cudnn_first"` // compute capabilities on which PyTorch's attention tries cuDNN's kernel before its own
	FirstFlash bool     `yaml:"first_flash"` // PyTorch's FlashAttention is the first
	// The first release in which PyTorch's memory-efficient attention lets query heads share those of keys.
	EfficientGroups units.Release `yaml:"efficient_groups"`
	MathWidens      bool          `yaml:"math_widens"` // PyTorch's attention by products of its own computes in fp32 what comes in 16 bits
	Unpadded        bool          `yaml:"unpadded"`    // the compiler leaves products as wide as they are
	SDPAKernel      string        `yaml:"sdpa_kernel"` // that the framework's code has it try first (torch.nn.attention.sdpa_kernel); "": none

	NormWidths NormWidths `yaml:"norm_widths"` // none: norms have one kernel for all widths
}

// What Structure.MTP may be.
const (
	NoMTP     = ""
	AskedMTP  = "asked"
	ModelsMTP = "models"
)

// What Structure.FlexDispatcher may be: models with latent attention, all, and none that do not ask for it.
const (
	LatentModels = "mla"
	AllModels    = "all"
	NoModels     = "none"
)

// What Structure.GatherTokens may be: all tensor ranks, and those that cut experts.
const (
	AllRanks     = "all"
	CuttingRanks = "cutting"
)

// HitExperts are those that have rows, in Structure.ExpertLoop, which may also be AllModels.
const HitExperts = "hit"

// UnnormedModels are the models without norms of queries and keys, in Structure.KeptExchanges,
// which may also be AllModels.
const UnnormedModels = "unnormed"

// Flavour is the implementation of the attention law that runs for a runtime.attention;
// "": the law's own. flash-attn is that package also where a framework that may use it
// would take another kernel (NVTE_FUSED_ATTN=0 for Transformer Engine). flash-attn-3 and -4
// are cuDNN's, which the law is of: within 11 % from 2048 tokens on (kernel's
// TestLaterFlashAttention).
func (r *Recipe) Flavour(attention string) string {
	f, ok := r.Kernels[attention]
	switch {
	case ok:
		return f
	case attention == "flex":
		return attention
	case attention == "flash-attn":
		return cmp.Or(r.Kernels["flash"], "flash")
	}
	return ""
}

// AddsGradients reports whether every gradient is added into a buffer apart from what
// autograd makes, by its GEMM or by a hook. DeepSpeed's 16-bit gradients are autograd's own:
// those of the first micro batch stay, later ones are added to them.
func (s *Structure) AddsGradients(p *Precision) bool {
	return s.MainGradients && !(s.FlatStates && p.Gradients == p.Compute)
}

// Optimizer is the cost of one optimizer step per parameter.
type Optimizer struct {
	Class   string  `yaml:"class"`   // kernel class: optimizer, multi-tensor, vectorized
	Moments *int64  `yaml:"moments"` // kept of each parameter; not set: Adam's two
	Calls   float64 `yaml:"calls"`   // launches for each tensor, one by one; 0: one launch takes many
	Vectors float64 `yaml:"vectors"` // the same for those of one dimension; 0: as many
	DTensor float64 `yaml:"dtensor"` // what a distributed tensor costs the host beyond a plain one, over the same of the fused AdamW; 0: 1
	Read    float64 `yaml:"read"`    // passes over the parameter beyond reading p, g, m, v
	Temp    float64 `yaml:"temp"`    // of a moment's size, held for all parameters while it runs (foreach)
	Passing float64 `yaml:"passing"` // likewise, of the tensor at hand alone, where it goes tensor by tensor
	Clip    bool    `yaml:"clip"`    // gradients are clipped by their norm first
	Norm    float64 `yaml:"norm"`    // bytes that the norm moves of each gradient; 0: it reads them once, as they are
	Check   float64 `yaml:"check"`   // the same of a test for infinities, of gradients that ZeRO 1 and 2 reduced
	Join    float64 `yaml:"join"`    // and of joining them into one tensor
	Each    bool    `yaml:"each"`    // tensor by tensor: norm, scaling, update and the copy to 16 bits are calls of their own, none of which the host waits for
	Zero    float64 `yaml:"zero"`    // a parameter whose gradient and moments are all zero takes as many elements more
	OnHost  OnHost  `yaml:"on_host"` // where the host runs it
	// Programs that update each matrix of a layer by itself, with one moment, all else being
	// left to the optimizer that the other keys describe: as it is, and as a DTensor of the
	// ranks of FSDP2. "": there is none.
	Matrix string `yaml:"matrix"`
	Shards string `yaml:"shards"`
	Dealt  bool   `yaml:"dealt"` // whole matrices and parts of the rest are dealt out to the ranks of DDP, which scatter gradients and gather weights in all as long as its all-reduce takes
	// Kept of tensors one by one, in a dtype of its own; those of embeddings as the optimizer of
	// that name has them, "": as all others.
	States    DType   `yaml:"states"`    // dtype of the moments, whatever the precision says; unset: the precision's
	Embedding string  `yaml:"embedding"` // another one of the list
	Paged     int64   `yaml:"paged"`     // moments of tensors of so many values, but for their scales, are managed memory outside the allocator, fetched before each update; 0: none
	Waits     bool    `yaml:"waits"`     // the host waits for the update of each tensor
	Work      float64 `yaml:"work"`      // a value takes so many times as long as its class says; 0: 1
	// Updated in fp32, whatever weights are in, by kernels one after the other.
	Bytes float64 `yaml:"bytes"` // of a value that these move, beside casts; 0: what gradient, states and weight make
	Held  float64 `yaml:"held"`  // of a value that temporaries of the tensor at hand have, beside casts
	Steps float64 `yaml:"steps"` // a timed step is about the how manyth: rows of the embedding no token asked for are zero
}

// OnHost is the cost of an update by the host, over that of the fused AdamW of which a
// machine's offload law is.
type OnHost struct {
	Work    float64 `yaml:"work"`    // a thread's time for a value; 0: 1
	Traffic float64 `yaml:"traffic"` // bytes of a value that go through memory beside what is read and written once: temporaries
}

// Offload is what a framework can leave to the host: with the optimizer its states and the
// update, with parameters these and their gradients, too. Each is known beside some kinds
// of data parallelism.
type Offload struct {
	Optimizer   []string      `yaml:"optimizer"`
	Parameters  []string      `yaml:"parameters"`
	Layers      bool          `yaml:"layers"`      // and, without pipeline or recomputation, what the first layers keep for their backward passes
	Activations bool          `yaml:"activations"` // what all layers keep, tensor by tensor
	Buffers     int64         `yaml:"buffers"`     // activations: a layer's input comes back to one of so many buffers, which stay
	Modules     []string      `yaml:"modules"`     // parts of a layer that may send what they save
	Reduced     bool          `yaml:"reduced"`     // gradients go to the host as they are reduced, to that of the rank that has their states, for which the others wait; else when all are there
	Checked     units.Seconds `yaml:"checked"`     // reduced: what the host takes for each gradient before it leaves, its norm and a test for infinities, for whose outcome it waits
	Parted      bool          `yaml:"parted"`      // of the optimizer also a part, and copies beside the update where that is asked for
	Recast      []string      `yaml:"recast"`      // beside which kinds weights come back cast by the host through memory that is new and not page-locked
	Back        int64         `yaml:"back"`        // bytes of a weight that come back: master's, or those of the copy that computes
	Threads     int64         `yaml:"threads"`     // of a rank, where the launcher does not give it all that it has a part of, as torchrun, which sets OMP_NUM_THREADS=1 for ranks that share a node
	Source      string        `yaml:"source"`
}

// Host is what the CPU pays. Times are for the reference CPU of the source.
type Host struct {
	Source            string                   `yaml:"source"`
	Speed             float64                  `yaml:"speed"`    // of the CPUs as runs of the framework leave them, over that at which it costs the following; 0: 1
	Spread            float64                  `yaml:"spread"`   // relative standard deviation of what a host that nobody measured takes for the same
	Skew              float64                  `yaml:"skew"`     // relative standard deviation between the hosts' parts of the ranks of one step
	Call              units.Seconds            `yaml:"call"`     // a dispatched op that launches a kernel, forward
	Backward          units.Seconds            `yaml:"backward"` // the same from the autograd engine (C++, no Python)
	View              units.Seconds            `yaml:"view"`
	ViewBack          units.Seconds            `yaml:"view_backward"`
	Policy            units.Seconds            `yaml:"policy"` // asking the policy of a checkpoint that keeps some outputs, for each dispatched op of its runs
	Module            units.Seconds            `yaml:"module"`
	Node              units.Seconds            `yaml:"node"`
	Expert            units.Seconds            `yaml:"expert"`             // one expert of a grouped GEMM
	ScaledExpert      units.Seconds            `yaml:"scaled_expert"`      // the same of quantized operands; 0: as expert
	WrapExpert        units.Seconds            `yaml:"wrap_expert"`        // one expert of a grouped GEMM that one kernel makes of tensors of each
	ExpertCast        units.Seconds            `yaml:"expert_cast"`        // casting the rows of one expert to quantized operands of a grouped GEMM
	ExpertGrad        units.Seconds            `yaml:"expert_grad"`        // handing over the gradient of one expert's weight
	Primitives        map[string]units.Seconds `yaml:"primitives"`         // what one call of a primitive costs beyond Call
	Called            map[string]units.Seconds `yaml:"called"`             // the same of collectives that are no pieces beside GEMMs (Overlap.TP), where these cost less
	Again             map[string]units.Seconds `yaml:"again"`              // what every further call in a row costs in all; of others Call
	Large             float64                  `yaml:"large"`              // factor on ops whose tensors exceed LargeTensor; 0: 1
	Step              units.Seconds            `yaml:"step"`               // per optimizer step: Python around it
	Tensor            units.Seconds            `yaml:"tensor"`             // optimizer bookkeeping per tensor
	Clip              units.Seconds            `yaml:"clip"`               // a call that clips gradients
	ClipTensor        units.Seconds            `yaml:"clip_tensor"`        // and of each of its tensors
	DTensorParam      units.Seconds            `yaml:"dtensor_tensor"`     // the same for a distributed tensor (FSDP2, DTensor); 0: as tensor
	FSDPUnit          units.Seconds            `yaml:"fsdp_unit"`          // hooks and flat copies of one FSDP unit, forward
	FSDPBack          units.Seconds            `yaml:"fsdp_unit_backward"` // without what reduces its gradients
	KeptUnit          units.Seconds            `yaml:"fsdp_kept"`          // the same of a unit that stays gathered after the forward pass
	KeptBack          units.Seconds            `yaml:"fsdp_kept_backward"`
	FSDPReduce        units.Seconds            `yaml:"fsdp_reduce"` // of a unit's gradients, either way
	Hooks             Hooks                    `yaml:"hooks"`
	Buckets           Buckets                  `yaml:"buckets"`
	Trainer           Trainer                  `yaml:"trainer"`
	DTensor           units.Seconds            `yaml:"dtensor"` // further cost of one op on distributed tensors, forward
	DTensorBack       units.Seconds            `yaml:"dtensor_backward"`
	DTensorOp         units.Seconds            `yaml:"dtensor_op"`     // of one op between these on distributed tensors, either way
	DTensorGather     units.Seconds            `yaml:"dtensor_gather"` // of what is cut along the sequence and gathered, forward
	DTensorGatherBack units.Seconds            `yaml:"dtensor_gather_backward"`
	Graph             units.Seconds            `yaml:"graph"` // around a layer that is compiled by itself, forward: guards, and entry of its graph
	GraphBack         units.Seconds            `yaml:"graph_backward"`
	Split             units.Seconds            `yaml:"split"` // around a piece of a compiled graph that buckets of gradients cut, forward
	SplitBack         units.Seconds            `yaml:"split_backward"`
	Pass              units.Seconds            `yaml:"pass"`             // around the forward or the backward pass of a micro batch, once for each
	Pipeline          units.Seconds            `yaml:"pipeline_action"`  // the pipeline runtime's cost of one forward or backward, beside that
	Runtime           units.Seconds            `yaml:"pipeline_runtime"` // the same of schedules without a loop of their own (pipeline.Plan.Listed); 0: as pipeline_action
	PartedPass        float64                  `yaml:"parted_backward"`  // factor on a backward pass by input and by weights; 0: 1
	Transfer          units.Seconds            `yaml:"transfer"`         // blocking transfers go one tensor at a time: what the hosts of two stages do for each while both wait; 0: together, and hosts go on
	Blocking          Blocking                 `yaml:"blocking"`
}

// Trainer is what the host does more where transformers' Trainer makes the steps, while the device
// has nothing to do.
type Trainer struct {
	Pass  units.Seconds `yaml:"pass"`  // between the loss of a micro batch, for which it waits, and the next one
	Token units.Seconds `yaml:"token"` // to make a tensor of each, where no other process does
}

// Hooks are what the host does for sharded parameters module by module, beyond FSDPUnit and
// FSDPBack.
type Hooks struct {
	Module    units.Seconds `yaml:"module"`    // around one call of a module
	Backward  units.Seconds `yaml:"backward"`  // around its backward pass
	Parameter units.Seconds `yaml:"parameter"` // to gather a matrix for a pass, by a call of its own, and to free it
	Gradient  units.Seconds `yaml:"gradient"`  // to put the gradient of a parameter into a bucket
	Cut       units.Seconds `yaml:"cut"`       // to cut it into the parts of the ranks, where there is more than one
	Step      units.Seconds `yaml:"step"`      // of each parameter that is trained, before their norm is taken
	Flush     units.Seconds `yaml:"flush"`     // to hand out a bucket
	Reduce    units.Seconds `yaml:"reduce"`    // to reduce it before that, where there is more than one rank
	Spread    float64       `yaml:"spread"`    // relative standard deviation of all that the host does where hooks run, beside that of its speed
}

// Any reports whether there are hooks.
func (h *Hooks) Any() bool { return *h != (Hooks{}) }

// Buckets are what the host does for gradients that leave autograd for buckets (Structure.Partitions)
// while parameters stay whole.
type Buckets struct {
	Gradient units.Seconds `yaml:"gradient"` // to put one into a bucket
	Reduce   units.Seconds `yaml:"reduce"`   // to reduce a bucket and hand it out
}

// Blocking says which jobs of a recipe hang but with CUDA_LAUNCH_BLOCKING=1: the
// host waits for every kernel. No nodes: none does.
type Blocking struct {
	Parameters int64      `yaml:"parameters"` // of the model, at least
	Nodes      int64      `yaml:"nodes"`      // at least
	Network    units.Rate `yaml:"network"`    // of one GPU, at most
}

// LargeTensor is the size from which the caching allocator uses its large pool
// (c10/cuda/CUDACachingAllocator.cpp, kSmallSize).
const LargeTensor = units.MiB

// Overlap says which communication hides behind compute.
type Overlap struct {
	GradReduce  bool        `yaml:"grad_reduce"`            // data-parallel gradient collectives run during backward
	ParamGather bool        `yaml:"param_gather"`           // distributed-optimizer parameter gathers run during forward
	TP          bool        `yaml:"tp"`                     // tensor-parallel collectives overlap with their GEMMs
	TPWgrad     bool        `yaml:"tp_wgrad"`               // the backward input-gradient collective hides behind the weight-gradient GEMM
	Streams     bool        `yaml:"tp_streams"`             // the pieces of a GEMM whose operands tensor ranks exchange beside it are multiplied on several streams: as fast as the whole
	PP          bool        `yaml:"pp"`                     // pipeline sends and receives run beside compute
	SyncFreeEP  bool        `yaml:"sync_free_ep"`           // exchanges of sync-free experts run beside another micro batch
	RemoteEP    bool        `yaml:"remote_ep"`              // and so do those between NVLink domains, of interleaved schedules
	CP          bool        `yaml:"cp"`                     // context-parallel ring steps hide behind attention
	SyncEvery   bool        `yaml:"sync_every_micro_batch"` // gradients are reduced after every micro batch
	SyncSharded bool        `yaml:"sync_sharded"`           // the same of gradients of sharded parameters alone
	Bucket      units.Bytes `yaml:"bucket"`                 // default bucket of the gradient reduction
	Values      int64       `yaml:"bucket_values"`          // the same in gradients, of the first stage; later stages have one bucket each
	RankValues  int64       `yaml:"bucket_rank_values"`     // at least as many for each data rank
	Switches    []string    `yaml:"switches"`               // which of GradReduceSwitch and ParamGatherSwitch a job may turn
}

// Switches of Overlap, by their keys.
const (
	GradReduceSwitch  = "grad_reduce"
	ParamGatherSwitch = "param_gather"
)

// Programs are the module programs of a recipe by name.
type Programs map[string]*Program

// DecodeNode parses a mapping of headings to texts.
func (p *Programs) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	var errs diag.List
	*p = Programs{}
	if n.Kind != yaml.MappingNode {
		return diag.List{d.Errorf(n, "programs: expected a mapping")}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		prog, err := ParseProgram(n.Content[i].Value, n.Content[i+1].Value)
		if err != nil {
			errs = append(errs, d.Errorf(n.Content[i], "%v", err))
			continue
		}
		(*p)[prog.Name] = prog
	}
	return errs
}

var (
	cacheMu sync.Mutex
	cache   = map[string]*Recipe{}
)

// Names lists the recipes; what only serves to be extended (base/) is not one.
func Names() []string {
	entries, _ := files.ReadDir(".")
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// Sharing lists the kinds of data parallelism that the framework has, the usual one first.
func (r *Recipe) Sharing() []string { return slices.Concat(r.DataParallel, r.AlsoParallel) }

// Takes reports whether the recipe is for models with experts, or for those without.
func (s *Structure) Takes(experts bool) bool {
	if experts {
		return s.ExpertModels == ""
	}
	return s.ExpertsOnly == ""
}

// Having lists the recipes of which has holds.
func Having(has func(*Recipe) bool) []string {
	var names []string
	for _, name := range Names() {
		if r, err := Load(name); err == nil && has(r) {
			names = append(names, name)
		}
	}
	return names
}

// Load returns a recipe by name, with what it extends filled in.
func Load(name string) (*Recipe, error) {
	if known := Names(); !slices.Contains(known, name) {
		return nil, diag.Errorf("runtime.recipe: there is no recipe %q%s", name, cmp.Or(diag.DidYouMean(name, known), "; there are "+strings.Join(known, ", ")))
	}
	cacheMu.Lock()
	defer cacheMu.Unlock()
	return load(name)
}

func load(name string) (*Recipe, error) {
	if r, ok := cache[name]; ok {
		return r, nil
	}
	data, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return nil, err
	}
	doc, err := yamlx.Parse("recipe/"+name+".yaml", data)
	if err != nil {
		return nil, err
	}
	r := &Recipe{}
	if node := doc.At("extends"); node != nil {
		base, err := load(node.Value)
		if err != nil {
			return nil, err
		}
		*r = *base
		r.Programs, r.Shared = nil, ""
		r.Precision, r.Optimizer = nil, nil
		r.Host.Primitives, r.Host.Called, r.Host.Again = nil, nil, nil
	}
	file := struct {
		Format  string `yaml:"perfplan"`
		*Recipe `yaml:",inline"`
	}{Recipe: r}
	if err := doc.Decode(&file); err != nil {
		return nil, err
	}
	if file.Format != "recipe/v1" {
		return nil, diag.Errorf("recipe/%s.yaml: expected perfplan: recipe/v1", name)
	}
	r.Name = name
	if node := doc.At("with"); node != nil {
		shared, err := load(node.Value)
		if err != nil {
			return nil, err
		}
		r.Programs = merged(shared.Programs, r.Programs)
		r.Host.Primitives = merged(shared.Host.Primitives, r.Host.Primitives)
		r.Structure.NormWidths = shared.Structure.NormWidths
	}
	if r.Extends != "" {
		base := cache[r.Extends]
		r.Programs = merged(base.Programs, r.Programs)
		r.Precision = merged(base.Precision, r.Precision)
		r.Optimizer = merged(base.Optimizer, r.Optimizer)
		r.Host.Primitives, r.Host.Called = merged(base.Host.Primitives, r.Host.Primitives), merged(base.Host.Called, r.Host.Called)
		r.Host.Again = merged(base.Host.Again, r.Host.Again)
	}
	cache[name] = r
	return r, nil
}

// With is the recipe with the programs and costs of primitives of another in the place of its own.
func (r *Recipe) With(name string) (*Recipe, error) {
	cacheMu.Lock()
	defer cacheMu.Unlock()
	other, err := load(name)
	if err != nil {
		return nil, err
	}
	own := *r
	own.Programs = merged(r.Programs, other.Programs)
	own.Host.Primitives = merged(r.Host.Primitives, other.Host.Primitives)
	return &own, nil
}

// merged is base overridden by own.
func merged[M ~map[string]V, V any](base, own M) M {
	m := make(M, len(base)+len(own))
	maps.Copy(m, base)
	maps.Copy(m, own)
	return m
}
