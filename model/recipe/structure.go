package recipe

import "github.com/perfplan/perfplan/internal/units"

// Structure says how a framework shapes the layers it is given, and what it does around them.
type Structure struct {
	LayerStructure     `yaml:",inline"`
	AttentionStructure `yaml:",inline"`
	LossStructure      `yaml:",inline"`
	ExpertStructure    `yaml:",inline"`
	AdapterStructure   `yaml:",inline"`
	RecomputeStructure `yaml:",inline"`
	TensorStructure    `yaml:",inline"`
	ContextStructure   `yaml:",inline"`
	PipelineStructure  `yaml:",inline"`
	ShardingStructure  `yaml:",inline"`
	GradientStructure  `yaml:",inline"`
	HostStructure      `yaml:",inline"`
}

// LayerStructure is of norms, MLPs and mixers, and what compiles them.
type LayerStructure struct {
	EncodesText bool `yaml:"encodes_text"`  // models with an encoder of text beside their decoder are run
	FusedGateUp bool `yaml:"fused_gate_up"` // one GEMM for gate and up
	ApartBias   bool `yaml:"apart_bias"`    // biases of these two are added by a kernel of their own
	// state-space mixers: whole, scan, gated norm and projection in one function, or apart; "": none
	Mixers string `yaml:"mixers"`
	// GELU and masked softmax run kernel by kernel, by programs named _plain, and so do biases, dropout
	// and residual sums
	PlainLayers bool    `yaml:"plain_layers"`
	UnfusedGate bool    `yaml:"unfused_gate"` // gates are applied kernel by kernel, by programs glu_unfused and expert_glu_unfused
	OlderGLU    bool    `yaml:"older_glu"`    // those programs are named _older, but where a model clamps what they multiply
	ScalarCat   bool    `yaml:"scalar_cat"`   // contiguous tensors are joined value by value: PyTorch before 2.8
	Dropout     float64 `yaml:"dropout"`      // default of models with LayerNorm and a plain MLP that name none, not even 0
	Compiled    bool    `yaml:"compiled"`     // kernels come from torch.compile (tape.Tape.Compiled)
	AnyLayout   bool    `yaml:"any_layout"`   // operands of one scale are cast to one copy where the GPU's GEMMs read it along both axes
	// fp32 is multiplied as PyTorch does by default, not in TF32, unless the job says otherwise
	PlainFP32        bool   `yaml:"plain_fp32"`
	CompiledScope    string `yaml:"compile_scope"`      // "", model, layer: what torch.compile sees at once
	WideEnds         bool   `yaml:"wide_ends"`          // first and last layers may multiply in 16 bits what others do in fewer
	UnfusedNorm      bool   `yaml:"unfused_norm"`       // RMS norms run by programs named _unfused
	UnfusedLayerNorm bool   `yaml:"unfused_layer_norm"` // and layer norms, which PyTorch has always had a kernel for
	// logits and scores meet their softmax in the dtype that they were made in, but for autocast:
	// programs named _as_is
	AsTheyAre  bool       `yaml:"as_they_are"`
	UsesLiger  bool       `yaml:"uses_liger"`  // Liger-Kernel's operators take the place of its own where nothing else is said
	OwnModels  []string   `yaml:"own_models"`  // but for models of these kinds, which have classes of its own
	OwnClass   string     `yaml:"own_class"`   // whose operators are those; "": as transformers'
	Unpadded   bool       `yaml:"unpadded"`    // the compiler leaves products as wide as they are
	NormWidths NormWidths `yaml:"norm_widths"` // none: norms have one kernel for all widths
}

// AttentionStructure is of attention: its projections, rotary embeddings, masks and kernels.
type AttentionStructure struct {
	// attention with biases of scores is written out, whatever is asked for, with biases and mask in one
	// tensor for a stack
	WrittenBiases bool `yaml:"written_biases"`
	FusedQKV      bool `yaml:"fused_qkv"`   // one GEMM for q, k, v
	GroupedQKV    bool `yaml:"grouped_qkv"` // which lie group by group: several queries, their key, their value
	CopiedQKV     bool `yaml:"copied_qkv"`  // and each is copied out of it
	WideHalves    bool `yaml:"wide_halves"` // halves of heads are turned in fp32, by program rotary_halves_fp32
	// attention to the keys that an indexer picks: masked, of all, or absorbed, of the latent alone; "":
	// none
	Indexer       string `yaml:"indexer"`
	PartialRotary bool   `yaml:"partial_rotary"` // the rotary kernel takes whole heads of which it turns a part
	FusedRotary   bool   `yaml:"fused_rotary"`   // latent attention is turned, cut and joined by one kernel each for q and for k, v
	FusedTurns    bool   `yaml:"fused_turns"`    // heads are turned by the program rotary_fused, one kernel, whatever the model's own way
	// files of one's own, of which a job may say how heads are turned and keys handed to attention
	OwnFile bool `yaml:"own_file"`
	// they turn heads as complex numbers, by program rotary_complex, or neighbours as pairs, by
	// rotary_interleaved; "": halves
	Rotary        string `yaml:"rotary"`
	HeadTables    bool   `yaml:"head_tables"`    // rotary tables have the dtype of the heads that they turn, not that of the hidden states
	ScaledRotary  bool   `yaml:"scaled_rotary"`  // scaled cosines and sines go by program rotary_apart: the kernel does not take them
	UnfusedRotary bool   `yaml:"unfused_rotary"` // and so do all others: there is no such kernel
	// packed documents are turned so apart, one after another, by tables that are joined, or gathered by
	// positions on the device; "": as one sequence
	PackedRotary string `yaml:"packed_rotary"`
	// cuDNN's attention has values copied that lie in one projection where keys do not any more
	CopiesValues bool `yaml:"copies_values"`
	// the output projection keeps what attention keeps of its output, not a quantized copy, unless
	// scales are known before
	SavesAttention bool `yaml:"saves_attention"`
	RepeatHeads    bool `yaml:"repeat_heads"` // shared heads are repeated before attention, and before context ranks exchange them
	SharesHeads    bool `yaml:"shares_heads"` // PyTorch's attention is asked to let query heads share those of keys (enable_gqa)
	// tensors lie sequence first, and batch first around flash attention alone, which selective
	// recomputation does not run again
	FlashBatches bool `yaml:"flash_batches"`
	ExplicitMask bool `yaml:"explicit_mask"` // attention reads a mask tensor and shared heads are repeated
	PaddingMask  bool `yaml:"padding_mask"`  // attention is told which tokens of a batch are padding
	// by one mask to add to the scores, made once for all layers, else by one of booleans, of which each
	// call makes such a mask
	AdditiveMask bool `yaml:"additive_mask"`
	OpenMask     bool `yaml:"open_mask"` // where every token sees all others the scores of an encoder get no mask
	// masks that are added to scores have the dtype of the embeddings, which autocast leaves wide
	WideMask   bool `yaml:"wide_mask"`
	NarrowAttn bool `yaml:"narrow_attention"` // flash attention can multiply in the 8 bits of the layers
	// projections multiply by a turned view of their weights (torch.einsum), whose gradients
	// AccumulateGrad copies
	TurnedWeights bool `yaml:"turned_weights"`
	PackedWaits   int  `yaml:"packed_waits"` // waits of the host for lengths of packed documents in each layer's attention
	// the kernel that masks and normalizes scores takes multiples of so many heads (sequences × heads of
	// a rank); 0: any
	SoftmaxHeads  int64 `yaml:"softmax_heads"`
	SoftmaxKeys   int64 `yaml:"softmax_keys"`   // and at most so many keys; 0: any
	CausalSoftmax bool  `yaml:"causal_softmax"` // it reads the causal half of them, and no mask
	// queries, keys and values are cut into heads as they are projected and go when both are turned, a
	// block's output when it is added, the embeddings when the last layer is done
	Transformers bool     `yaml:"transformers"`
	ImageCalls   bool     `yaml:"image_calls"` // attention takes the images or windows that lie in one sequence of patches one by one
	CuDNNFirst   []string `yaml:"cudnn_first"` // compute capabilities on which PyTorch's attention tries cuDNN's kernel before its own
	FirstFlash   bool     `yaml:"first_flash"` // PyTorch's FlashAttention is the first
	// The first release in which PyTorch's memory-efficient attention lets query heads share those of
	// keys.
	EfficientGroups units.Release `yaml:"efficient_groups"`
	MathWidens      bool          `yaml:"math_widens"` // PyTorch's attention by products of its own computes in fp32 what comes in 16 bits
	SDPAKernel      string        `yaml:"sdpa_kernel"` // that the framework's code has it try first (torch.nn.attention.sdpa_kernel); "": none
}

// LossStructure is of vocabulary, output layer and loss.
type LossStructure struct {
	TokenMetrics  bool  `yaml:"token_metrics"`  // a job may say that entropy and accuracy are taken from logits
	LossMetrics   int   `yaml:"loss_metrics"`   // how many metrics of training compute the loss of each micro batch again
	VocabParallel bool  `yaml:"vocab_parallel"` // embedding, head and loss cut over tp
	VocabMultiple int64 `yaml:"vocab_multiple"` // the vocabulary is padded to this times tp
	LossKept      bool  `yaml:"loss_kept"`      // a compiled loss keeps the probabilities of its logits, in fp32, for its backward pass
	LossWide      bool  `yaml:"loss_wide"`      // a loss in pieces casts their 16-bit logits to fp32 for its kernel, and the gradient back
	LossScaled    bool  `yaml:"loss_scaled"`    // and multiplies the gradient of a piece by its share of the labels
	// to which gradients of the output layer GEMMs of a loss in pieces add: wide, fp32 ones of 16-bit
	// logits; alike, those in the dtype of the logits; "": none
	LossGemmAdds string `yaml:"loss_gemm_adds"`
	LossChunks   int64  `yaml:"loss_chunks"` // unless the job says otherwise
	// program of the loss of the output layer's operands, unless the job says otherwise; "": the loss is
	// of logits
	LinearLoss string `yaml:"linear_loss"`
	// of fp32 logits that a chunk of that loss is of at most; 0: half of the device's memory that
	// weights leave
	LossGiB       float64 `yaml:"loss_gib"`
	RoundedChunks bool    `yaml:"rounded_chunks"`      // which are rounded to a multiple of four, half of four and less to one, else rounded up
	FusedLoss     bool    `yaml:"fused_cross_entropy"` // unless the job says otherwise
	LossAlone     bool    `yaml:"loss_alone"`          // a compiled graph returns the loss without the logits, unless the job says otherwise
	ApartLoss     bool    `yaml:"apart_loss"`          // the maximum of the logits is subtracted in a tensor of its own
	LossTiny      int     `yaml:"loss_kernels"`
	// modules of multi-token prediction: models, those of the model are trained; asked, where a job asks
	// for them; "": never
	MTP string `yaml:"mtp"`
	// logits are cast to fp32 before the loss, and the script holds them until gradients are made
	HeldLogits bool `yaml:"held_logits"`
	OuterLoss  bool `yaml:"outer_loss"` // the loss is computed outside the model that is sharded
}

// ExpertStructure is of experts: who has which, how rows reach them, and what runs them.
type ExpertStructure struct {
	BiasedMLPs    bool `yaml:"biased_mlps"`    // kernels that run all of the experts' MLPs add biases and clamp (program experts_joint)
	FusedReLU2    bool `yaml:"fused_relu2"`    // experts without a gate square a ReLU and weigh it in one kernel, program expert_relu2
	OlderReLU2    bool `yaml:"older_relu2"`    // elsewhere a ReLU is squared by program relu2_older
	RandomRouting bool `yaml:"random_routing"` // benchmarks draw each token's experts at random; else all ranks get as many rows
	ExpertCalls   bool `yaml:"expert_calls"`   // a grouped GEMM is a call of cuBLAS for each expert, on some streams in turn
	// but for products along a multiple of 128 values, which one kernel makes (tape.Tape.JointProducts)
	JointProducts  bool    `yaml:"joint_products"`
	BusiestExpert  float64 `yaml:"busiest_expert"`  // its rows over the mean of all experts; 0: 1
	ExpertModels   string  `yaml:"expert_models"`   // the recipe for models with experts, of which this one has none; "": it has any
	ExpertsOnly    string  `yaml:"experts_only"`    // the recipe for models without experts, of which this one has none; "": it has any
	ExpertParallel bool    `yaml:"expert_parallel"` // experts can be cut over ranks
	// experts are those of DeepSpeed's layer: of equal capacity, the mean unless a job says otherwise,
	// one or two of a token, whole on a rank, of tokens that tensor ranks hold whole, and not under ZeRO
	// 3
	DeepSpeedMoE bool  `yaml:"deepspeed_moe"`
	LeastRows    int64 `yaml:"least_rows"` // of equal capacity have at least so many rows
	// experts are modules that run one after another, each on rows that the host asks the device for:
	// all, or those hit, which it asks for, too; "": they are not
	ExpertLoop    string `yaml:"expert_loop"`
	LeafExperts   bool   `yaml:"leaf_experts"`   // hooks of ZeRO 3 run for a block with experts as for one module
	ExpertModules bool   `yaml:"expert_modules"` // experts run one after another, each by products of its own
	// tensor ranks gather a layer's tokens before its router and reduce what its experts make of them:
	// all, which divide the rows where they do not cut the experts, or the cutting ones, and these are
	// either all or none, all where nobody shares out experts; "": no ranks, and any may cut experts
	GatherTokens string `yaml:"gather_tokens"`
	// gather_tokens: the gradients that are reduced are those of rows of experts that are cut, not those
	// of tokens
	ReduceRows bool `yaml:"reduce_rows"`
	// of tokens that tensor ranks hold whole each sends a part to experts, and gathers what comes back
	DroppedTokens bool `yaml:"dropped_tokens"`
	PipedExperts  bool `yaml:"piped_experts"` // deepspeed_moe: layers with experts may be in a pipeline
	// of which models a kernel of its own exchanges experts' rows across NVLink domains: mla, those with
	// latent attention; all, inside such domains, too; none: of those that ask for it
	FlexDispatcher     string `yaml:"flex_dispatcher"`
	UnfusedRouter      bool   `yaml:"unfused_router"`      // the router's programs are those named _unfused
	UnfusedPermutation bool   `yaml:"unfused_permutation"` // and so are the experts': no kernel permutes rows
	PaddedExperts      bool   `yaml:"padded_experts"`      // the experts' program is the one named _padded
	// biases of experts' rows take the host two waits for the device, and zeros of padded rows are
	// joined to them
	WaitingBiases bool `yaml:"waiting_biases"`
	RowMaps       bool `yaml:"row_maps"` // Hybrid-EP permutes rows by a map of them and experts, which it makes first
	// and apply probabilities to the rows that come back, not inside the experts: _unfused_back, if
	// there is one
	WeighedBack bool `yaml:"weighed_back"`
}

// AdapterStructure is of adapters of LoRA, and the frozen weights beside them.
type AdapterStructure struct {
	PackedInputs bool `yaml:"packed_inputs"` // products of a weight in few bits keep what they read, which no gradient needs
	Adapters     bool `yaml:"adapters"`      // trains those of LoRA beside frozen weights
	// which are scaled between A and B, and dropout follows B (NeMo AutoModel, components/_peft/lora.py)
	InnerScale     bool `yaml:"inner_scale"`
	TritonAdapters bool `yaml:"triton_adapters"` // and are kernels of their own where a job says so (peft.use_triton)
	// and run inside functions whose gradients are written out by hand, where all projections that read
	// the same have one, without dropout (tape/adapted.go)
	ByHand       bool `yaml:"by_hand"`
	HandKernels  bool `yaml:"hand_kernels"`  // by_hand where a job says so (Axolotl's lora_mlp_kernel and its like)
	KeptAdapters bool `yaml:"kept_adapters"` // by_hand: functions keep adapters as they cast them, and take biases
	HandLayers   bool `yaml:"hand_layers"`   // and so are layers, of models as Llama
	VariedLayers bool `yaml:"varied_layers"` // or with layer norms, MLPs without a gate, GELU, positions that are learned or none
	AdaptersOnly bool `yaml:"adapters_only"` // of which nothing but adapters is trained
	UnpackBuffer bool `yaml:"unpack_buffer"` // and unpack frozen weights of few bits to one buffer, which stays
}

// RecomputeStructure says what is recomputed in the backward pass, and how far.
type RecomputeStructure struct {
	// recompute: selective keeps attention, what sequence-parallel ranks reduced and every other matrix
	// multiply of a layer, else it recomputes the attention core
	SelectiveOps bool `yaml:"selective_ops"`
	// selective_ops: of which models it keeps the experts' rows too, as exchanged: all; unnormed, those
	// without norms of queries and keys; "": of none
	KeptExchanges string `yaml:"kept_exchanges"`
	KeptBiased    bool   `yaml:"kept_biased"` // selective_ops: it keeps every matrix multiply that adds a bias, and counts none of them
	// of which models full recomputation is of norms, attention and MLP each by itself, whose inputs are
	// kept: all; own, those of OwnModels; "": of none
	PartsAgain string `yaml:"parts_again"`
	EarlyStop  bool   `yaml:"early_stop"` // recomputation ends after the last saved tensor
	// but for that of layers, unless the job says so or FSDP's own checkpoints wrap them (strategies,
	// Job.WholeLayers)
	Reentrant      bool `yaml:"reentrant"`
	OuterRecompute bool `yaml:"outer_recompute"` // layers are checkpointed from outside of what FSDP wraps
}

// TensorStructure says what tensor ranks cut and exchange.
type TensorStructure struct {
	SharedTPInput bool `yaml:"shared_tp_input"` // one collective for all column-parallel projections of a block; else one each
	OwnTPInputs   bool `yaml:"own_tp_inputs"`   // the job has one each, unlike the recipe
	// each such projection reduces its own gradient where nothing was gathered for it, after all of its
	// products
	OwnTPGradients bool `yaml:"own_tp_gradients"`
	WholeLoss      bool `yaml:"whole_loss"` // vocab_parallel: each tensor rank gathers all logits before the loss
	SharedSum      bool `yaml:"shared_sum"` // of a layer whose blocks run beside each other tensor ranks sum both at once
	// tensor ranks use torch's functional collectives: what is gathered or cut along the sequence is
	// copied, and a compiled layer keeps what it gathered
	FunctionalTP bool `yaml:"functional_tp"`
	// what of layers that are not compiled runs on distributed tensors beside products and norms along
	// the sequence: all; attention, of models that norm queries, have sinks or latent attention; "":
	// nothing
	DTensorOps string `yaml:"dtensor_ops"`
	// that agree after each pass on the largest values of delayed scaling, unless the job says
	// otherwise: all, tensor, none; "": none
	AmaxRanks     string `yaml:"amax_ranks"`
	WholeMatrices bool   `yaml:"whole_matrices"` // there is no tensor parallelism
	// plain tensors on tensor ranks, each projection with hooks of its own that sum copies
	// (transformers, integrations/tensor_parallel.py)
	CopiedSums bool `yaml:"copied_sums"`
	// tensor ranks cut the output layer, unless it is tied, and each gathers all logits; not
	// vocab_parallel
	GatheredHead bool `yaml:"gathered_head"`
	DTensor      bool `yaml:"dtensor"`       // tensor parallelism by DTensor
	KeepGathered bool `yaml:"keep_gathered"` // layers keep what sequence-parallel ranks gathered, not their shard of it
}

// ContextStructure says what context ranks exchange.
type ContextStructure struct {
	// context ranks that exchange heads for positions of packed documents find the parts of each by the
	// host
	PackedChunks  bool   `yaml:"packed_chunks"`
	Ring          string `yaml:"ring"`           // whose kernels merge the steps of ring attention: transformer-engine, torch; "": none
	ContextReduce DType  `yaml:"context_reduce"` // dtype that gradients are reduced in where context ranks share sequences
	// context ranks that trade positions for heads get copies of keys and values of fewer heads
	CopiedHeads  bool `yaml:"copied_heads"`
	TradeCopies  int  `yaml:"trade_copies"`  // of gradients, beside one before each such all-to-all and one after it
	TradeKernels int  `yaml:"trade_kernels"` // tiny kernels before they trade
	// context ranks trade heads in DeepSpeed's module of this name: beside neither tensor nor pipeline
	// ranks, and what it makes is not recomputed by itself
	Distributed bool `yaml:"distributed_attention"`
	OwnKeys     bool `yaml:"own_keys"` // which trades keys and values of as many heads as queries have alone
}

// PipelineStructure says how layers are cut into stages, and what stages keep and send.
type PipelineStructure struct {
	// each tensor rank sends the next stage all of what they share, not the part that its counterpart
	// gathers
	WholeSends bool `yaml:"whole_sends"`
	// schedules without bubble: the norm is looked at after the optimizer's update, and no rank waits
	// for the others
	PostValidation bool `yaml:"post_validation"`
	WholeModels    bool `yaml:"whole_models"`    // there is no pipeline parallelism
	PipelineEngine bool `yaml:"pipeline_engine"` // a model of one stage runs as a pipeline, too
	KeptLogits     int  `yaml:"kept_logits"`     // pipelines keep the logits of so many micro batches
	GatheredStages bool `yaml:"gathered_stages"` // pipeline stages keep their parameters gathered from the first micro batch to the last
	TorchPipeline  bool `yaml:"torch_pipeline"`  // torch.distributed.pipelining: its own interleaving, outputs of the last stage kept
	// torch_pipeline: schedules of several stages on a rank run in time steps, at whose end ranks wait
	// for each other: torch before 2.9
	StepsInLine bool `yaml:"steps_in_line"`
	// torch_pipeline: sums of gradients are divided by the number of micro batches at the end
	// (scale_grads)
	ScaledSums     bool `yaml:"scaled_sums"`
	DroppedOutputs bool `yaml:"dropped_outputs"` // torch_pipeline: outputs of the last stage are not held to the end of the step
	EvenChunks     bool `yaml:"even_chunks"`     // virtual stages have equal numbers of layers
	FullStages     bool `yaml:"full_stages"`     // layers that do not divide fill the first stages
	LargerFirst    bool `yaml:"larger_first"`    // layers that do not divide give the first stages one more each
	EvenModules    bool `yaml:"even_modules"`    // stages take as many of embedding, layers, norm and head each, the first ones one more
	CostStages     bool `yaml:"cost_stages"`     // stages take layers and head until their parameters pass the stage's share
	// blocking transfers synchronize the device; those of schedules with one chunk on a rank block
	// whatever overlaps
	SyncTransfers bool `yaml:"sync_transfers"`
	// blocking transfers one by one (Host.Transfer): stages with layers take in a mask beside the hidden
	// states
	SendsMask   bool `yaml:"sends_mask"`
	WeighedEnds bool `yaml:"weighed_ends"` // stages take as many layers each, where embedding and head count as one
}

// ShardingStructure says how data parallelism gathers and reduces, and where it keeps states.
type ShardingStructure struct {
	AllReduce bool `yaml:"all_reduce"` // ZeRO 1 and 2 all-reduce gradients, of which each rank uses its part
	WholeNorm bool `yaml:"whole_norm"` // and takes the norm of all of them
	// DeepSpeed: gradients leave autograd for buckets; ZeRO 3 has a bucket and its part of all gradients
	// between steps, too
	Partitions     bool  `yaml:"partitions"`
	BucketPasses   int   `yaml:"bucket_passes"`   // kernels that read and write all of a bucket around its reduction
	PartPasses     int   `yaml:"part_passes"`     // and those that do so with a rank's part of it
	SubGroup       int64 `yaml:"sub_group"`       // and updates so many of a rank's at once
	LiveParameters int64 `yaml:"live_parameters"` // of ZeRO 3, so many stay gathered from the end of the forward pass to the backward pass
	// ZeRO 1 and 2 gather parameters into a list of flat tensors and copy each rank's part of each
	// parameter out
	ListParameters bool `yaml:"list_parameters"`
	FlatOnDevice   bool `yaml:"flat_on_device"` // the weights that ZeRO 1 and 2 join are on the device, in tensors of their own
	// DeepSpeed: the optimizer's buffers are flat, and main gradients of the compute dtype are
	// autograd's own
	FlatStates   bool  `yaml:"flat_states"`
	ReduceBucket int64 `yaml:"reduce_bucket"` // flat_states, list_gather: so many 16-bit gradients at most are reduced together
	// the optimizers of dense parameters and of experts' each gather all parameters, where nothing runs
	// beside
	GathersAll bool `yaml:"gathers_all"`
	// a pipeline stage begins to gather its parameters in its first forward pass, unless chunks are gathered ahead
	GathersInTurn  bool `yaml:"gathers_in_turn"`
	SingleRank     bool `yaml:"single_rank_calls"` // collectives over one rank are called too, and main gradients divided by one replica
	StateCopies    bool `yaml:"state_copies"`      // ZeRO-1 may have its states in several copies, among which reduced gradients are summed
	ListGather     bool `yaml:"list_gather"`       // ZeRO-3: each parameter by itself, into a list of tensors, while the host waits
	ReduceToOwners bool `yaml:"reduce_to_owners"`  // ZeRO 1 and 2 reduce each rank's part of 16-bit gradients to it by a call of its own
	ReduceSetsAll  bool `yaml:"reduce_sets_all"`   // a 16-bit reduce_dtype keeps gradients in 16 bits too
	ExposedRoot    bool `yaml:"exposed_root"`      // embedding, final norm and head form one FSDP unit
	// an FSDP unit is gathered before the one before it runs, also where that waits for the device
	GatherAhead bool `yaml:"gather_ahead"`
	HeldHead    bool `yaml:"held_head"` // the unit of the head stays gathered for its backward pass, which begins at once
	// mixed precision is FSDP's: tensor and pipeline ranks without it compute in the weights' dtype
	ShardedMixed bool `yaml:"sharded_mixed"`
	// the optimizer exchanges gradients among replicas, after the last backward pass: no DDP is around
	// the model
	OwnReductions bool `yaml:"own_reductions"`
}

// GradientStructure says where gradients are made and what is done to them before the update.
type GradientStructure struct {
	MainGradients  bool   `yaml:"main_gradients"`  // weight gradients are added into a persistent buffer
	GradientHook   bool   `yaml:"gradient_hook"`   // main_gradients are added by a kernel of their own, not by the weight-gradient GEMM
	HookCasts      bool   `yaml:"hook_casts"`      // which adds a copy in the dtype of the main gradients
	GradientSweep  bool   `yaml:"gradient_sweep"`  // gradient_hook: once the backward pass is over, until when all gradients are there
	ZeroGradients  bool   `yaml:"zero_gradients"`  // main gradients are set to zero at the start of a step
	CheckGradients bool   `yaml:"check_gradients"` // and read once for NaNs before they are reduced
	ScaleGradients string `yaml:"scale_gradients"` // and divided by the replicas in a pass of their own: all, or experts alone
	NaNChecks      bool   `yaml:"nan_checks"`      // a job may say whether losses and gradients are looked at for NaNs
	// the optimizer casts 16-bit main gradients to the master's dtype, unscales those of fp16 in a pass
	// of their own, and copies the weights back tensor by tensor
	MainCopies bool `yaml:"main_copies"`
	// layers that exchange experts' rows beside another micro batch hold gradients of their parts'
	// inputs until all layers are done
	NodeGradients bool `yaml:"node_gradients"`
	// autograd gets an unused tensor in the place of each main gradient, one for all weights of a shape
	DummyGradients bool `yaml:"dummy_gradients"`
}

// HostStructure says what the host waits for and launches around the layers.
type HostStructure struct {
	GraphedDense  bool `yaml:"graphed_dense"`  // a step without experts is replayed from CUDA graphs where an NVLink domain spans nodes
	GraphedLayers bool `yaml:"graphed_layers"` // and of layers with experts all but these
	StepSync      bool `yaml:"step_sync"`      // the host waits for the device once per forward pass
	// gradients of fp16 under autocast are unscaled in a pass of their own, and the host waits for
	// whether all are finite where the update does not ask
	GradScaler bool `yaml:"grad_scaler"`
	NormStays  bool `yaml:"norm_stays"` // and never for the norm of gradients that it clips by
	Trainer    bool `yaml:"trainer"`    // a job may say that transformers' Trainer makes its steps
	// streams may share one connection to the device, which tensor and context ranks ask for before
	// Blackwell
	OneConnection  bool `yaml:"one_connection"`
	PrologueTiny   int  `yaml:"prologue_kernels"` // tiny kernels per forward pass (masks, positions)
	TableTiny      int  `yaml:"table_kernels"`    // of these, those of the rotary tables, after the host has waited
	MaskTiny       int  `yaml:"mask_kernels"`     // tiny kernels that make the mask of unfused attention
	WindowMaskTiny int  `yaml:"window_mask_kernels"`
}

// NormWidths are the widths of rows that RMS and layer norms have kernels tuned for; others
// run general ones.
type NormWidths struct {
	RMS   []int64 `yaml:"rms"`
	Layer []int64 `yaml:"layer"`
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
