package strategies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/whole"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// DataParallel is how replicas share parameters, gradients and optimizer states.
type DataParallel string

const (
	DDP   DataParallel = "ddp"   // nothing sharded; gradients all-reduced in buckets
	ZeRO1 DataParallel = "zero1" // optimizer states sharded
	ZeRO2 DataParallel = "zero2" // and gradients
	ZeRO3 DataParallel = "zero3" // and parameters, gathered layer by layer
	FSDP1 DataParallel = "fsdp1" // PyTorch FullyShardedDataParallel
	FSDP2 DataParallel = "fsdp2" // PyTorch fully_shard
)

var dataParallels = []string{"ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"}

// UnmarshalText accepts one of the kinds.
func (d *DataParallel) UnmarshalText(b []byte) error {
	if slices.Contains(dataParallels, string(b)) {
		*d = DataParallel(b)
		return nil
	}
	return fmt.Errorf("%q is not a kind of data parallelism%s", b, diag.DidYouMean(strings.ReplaceAll(string(b), "-", ""), dataParallels))
}

// ShardsParameters reports whether parameters are gathered layer by layer.
func (d DataParallel) ShardsParameters() bool { return d == ZeRO3 || d == FSDP1 || d == FSDP2 }

// FSDP reports whether it is one of PyTorch's.
func (d DataParallel) FSDP() bool { return d == FSDP1 || d == FSDP2 }

// Plan is one way to split a job over its GPUs. Zero values mean the default.
type Plan struct {
	TP               int64        `yaml:"tp" json:"tp"`
	SequenceParallel *bool        `yaml:"sequence_parallel" json:"sequence_parallel,omitempty"`
	CP               int64        `yaml:"cp" json:"cp"`
	CPCommType       CPCommType   `yaml:"cp_comm_type" json:"cp_comm_type,omitempty"`
	EP               int64        `yaml:"ep" json:"ep"`
	ExpertTP         int64        `yaml:"expert_tp" json:"expert_tp,omitempty"`
	PP               int64        `yaml:"pp" json:"pp"`
	VirtualStages    int64        `yaml:"virtual_stages" json:"virtual_stages"`
	Schedule         string       `yaml:"schedule" json:"schedule,omitempty"`
	StageLayers      StageLayers  `yaml:"stage_layers" json:"stage_layers,omitempty"`
	DrainEvery       int64        `yaml:"drain_every" json:"drain_every,omitempty"` // micro batches after which the pipeline is empty again (torchtitan's and AutoModel's local batches); 0: those of a step
	DP               int64        `yaml:"dp" json:"dp"`
	DataParallel     DataParallel `yaml:"data_parallel" json:"data_parallel"`

	ShardDegree         int64       `yaml:"shard_degree" json:"shard_degree,omitempty"`       // HSDP, copies of ZeRO-1 states: ranks that share one copy
	ShardOptimizer      *bool       `yaml:"shard_optimizer" json:"shard_optimizer,omitempty"` // of which each has a part of the optimizer's states alone (Megatron-FSDP's outer_dp_sharding_strategy optim)
	Bucket              units.Bytes `yaml:"bucket" json:"bucket,omitempty"`
	ReshardAfterForward *bool       `yaml:"reshard_after_forward" json:"reshard_after_forward,omitempty"`
	BucketView          *bool       `yaml:"bucket_view" json:"bucket_view,omitempty"`     // PyTorch's DDP: gradients are views of the buckets (gradient_as_bucket_view); left out: they are
	AdapterUnits        *bool       `yaml:"adapter_units" json:"adapter_units,omitempty"` // FSDP1: each matrix of adapters is a unit of its own (PEFT's fsdp_auto_wrap_policy, which a Trainer takes); left out: it is
	Units               Units       `yaml:"units" json:"units,omitempty"`                 // PyTorch's FSDP: what is gathered and reduced as a whole; left out: layers
	UnitParams          UnitParams  `yaml:"unit_params" json:"unit_params,omitempty"`     // modules of at least so many parameters are units: alone (units: size), or beside layers their matrices
	WrapOneRank         *bool       `yaml:"wrap_one_rank" json:"wrap_one_rank,omitempty"` // FSDP2 wraps units where there is one rank, too; left out: it does not
	SyncEveryMicroBatch *bool       `yaml:"sync_every_micro_batch" json:"sync_every_micro_batch,omitempty"`
	Offload             Offload     `yaml:"offload" json:"offload,omitempty"`                   // to the host's memory; left out: nothing
	OffloadFraction     float64     `yaml:"offload_fraction" json:"offload_fraction,omitempty"` // of the optimizer, the rest of which the GPU updates meanwhile (Megatron's optimizer_offload_fraction); 0: all
	OffloadOverlap      *bool       `yaml:"offload_overlap" json:"offload_overlap,omitempty"`   // tensors go to the host and come back while it updates others (Megatron's overlap_cpu_optimizer_d2h_h2d); left out: they do not

	Order Order `yaml:"order" json:"order,omitempty"`
}

// Splits reports whether a plan says into what a job is split, or nothing at all, which is
// everything by default. One that only says how it runs, such as its schedule or bucket,
// leaves that to be chosen.
func (p *Plan) Splits() bool {
	how := Plan{SequenceParallel: p.SequenceParallel, CPCommType: p.CPCommType, Schedule: p.Schedule, Bucket: p.Bucket,
		ReshardAfterForward: p.ReshardAfterForward, BucketView: p.BucketView, AdapterUnits: p.AdapterUnits, Units: p.Units, UnitParams: p.UnitParams, WrapOneRank: p.WrapOneRank, SyncEveryMicroBatch: p.SyncEveryMicroBatch, Offload: p.Offload,
		OffloadFraction: p.OffloadFraction, OffloadOverlap: p.OffloadOverlap, Order: p.Order}
	return *p != how || how == Plan{}
}

// Train is what one step computes.
type Train struct {
	SequenceLength   int64         `yaml:"sequence_length" json:"sequence_length"`
	MicroBatch       int64         `yaml:"micro_batch" json:"micro_batch"`
	GradAccumulation int64         `yaml:"grad_accumulation" json:"grad_accumulation"`
	GlobalBatch      int64         `yaml:"global_batch" json:"global_batch"`
	Precision        string        `yaml:"precision" json:"precision"`
	ReduceDType      recipe.DType  `yaml:"reduce_dtype" json:"-"`
	DTypes           DTypes        `yaml:"dtypes" json:"-"`
	Optimizer        string        `yaml:"optimizer" json:"optimizer"`
	Recompute        ops.Recompute `yaml:"recompute" json:"recompute"`
	Routing          string        `yaml:"routing" json:"routing,omitempty"`                   // how evenly experts get tokens; left out: as the recipe's benchmarks route
	Imbalance        float64       `yaml:"expert_imbalance" json:"expert_imbalance,omitempty"` // tokens of the busiest expert rank over the mean; 0: as Routing has it
	Capacity         float64       `yaml:"expert_capacity" json:"expert_capacity,omitempty"`   // rows of every expert over the mean, dropped and padded to; 0: as many as are routed to it

	ClipGradients *bool `yaml:"clip_gradients" json:"clip_gradients,omitempty"` // by their norm, before the update (max_grad_norm, --clip-grad); left out: as the framework does by itself

	OffloadLayers int64 `yaml:"offload_layers" json:"offload_layers,omitempty"` // whose activations go to the host between their passes, the first of the model (Megatron's cpu_offloading_num_layers); left out: none

	OffloadActivations bool `yaml:"offload_activations" json:"offload_activations,omitempty"` // what all layers keep goes there, tensor by tensor (TRL's and Axolotl's activation_offloading, torchtune's enable_activation_offloading)

	OffloadModules         OffloadModules `yaml:"offload_modules" json:"offload_modules,omitempty"`                         // parts of a layer that leave there what they save (Megatron's flag of this name); left out: none
	MinOffloadedTensorSize *int64         `yaml:"min_offloaded_tensor_size" json:"min_offloaded_tensor_size,omitempty"`     // elements of a tensor that goes (likewise); left out: 2^20
	OffloadedShare         *float64       `yaml:"activation_offload_fraction" json:"activation_offload_fraction,omitempty"` // of these parts, the first in a chunk of the model (likewise); left out: all

	DocumentLength int64 `yaml:"document_length" json:"document_length,omitempty"` // mean tokens of the documents that a sequence is packed of, none of which attention lets see another; left out: a sequence is one

	Padding float64 `yaml:"padding" json:"padding,omitempty"` // share of a batch's tokens that are padding, of which attention is told; 0: none

	LengthSpread float64 `yaml:"length_spread" json:"length_spread,omitempty"` // standard deviation of the tokens of sequences, or of the documents that they are packed of, over their mean; 0: all alike

	Images *Images `yaml:"images" json:"images,omitempty"` // of a vision-language model, in each sequence; left out: none, and no encoder

	MTPLayers *int64 `yaml:"mtp_layers" json:"mtp_layers,omitempty"` // modules of multi-token prediction that are trained; left out: the model's own where the recipe trains them

	NumLayersAtStartInBF16 int64 `yaml:"num_layers_at_start_in_bf16" json:"num_layers_at_start_in_bf16,omitempty"` // whose products are in 16 bits where those of others are in fewer (Megatron's first_last_layers_bf16); left out: none
	NumLayersAtEndInBF16   int64 `yaml:"num_layers_at_end_in_bf16" json:"num_layers_at_end_in_bf16,omitempty"`

	IndexerLoss *bool `yaml:"indexer_loss" json:"indexer_loss,omitempty"` // the indexer of sparse attention learns from attention's scores (Megatron's dsa_indexer_loss_coeff above 0); left out: where the recipe can

	LoRA *LoRA `yaml:"lora" json:"lora,omitempty"` // low-rank adapters are trained, beside frozen weights; left out: all parameters

	TokenMetrics bool `yaml:"token_metrics" json:"token_metrics,omitempty"` // entropy and accuracy are taken from the logits of each micro batch (TRL's SFTTrainer without Liger)

	UseReentrant *bool `yaml:"use_reentrant" json:"use_reentrant,omitempty"` // layers are recomputed to their end, and no further than the last tensor that is needed else (torch.utils.checkpoint); left out: as the recipe has it

	RecomputeModules RecomputeModules `yaml:"recompute_modules" json:"recompute_modules,omitempty"` // of selective recomputation; left out: the attention core

	RecomputeMethod    RecomputeMethod `yaml:"recompute_method" json:"recompute_method,omitempty"`         // of full recomputation by layers; left out: the recipe's first
	RecomputeNumLayers *int64          `yaml:"recompute_num_layers" json:"recompute_num_layers,omitempty"` // left out: every layer by itself
}

// Runtime is the framework and its switches.
type Runtime struct {
	Recipe            string `yaml:"recipe" json:"recipe"`
	Attention         string `yaml:"attention" json:"attention"`
	SDPAKernel        string `yaml:"sdpa_kernel" json:"sdpa_kernel,omitempty"` // what PyTorch's attention tries first (torch.nn.attention.sdpa_kernel): cudnn, flash, efficient; left out: as the release chooses
	CompileScope      string `yaml:"compile_scope" json:"compile_scope,omitempty"`
	TF32              *bool  `yaml:"tf32" json:"tf32,omitempty"` // fp32 operands are multiplied on the tensor cores; see Job.TF32
	FusedCrossEntropy *bool  `yaml:"fused_cross_entropy" json:"fused_cross_entropy,omitempty"`
	ReturnsLogits     *bool  `yaml:"returns_logits" json:"returns_logits,omitempty"`         // what is compiled returns logits beside its loss
	KeepsLogits       *bool  `yaml:"keeps_logits" json:"keeps_logits,omitempty"`             // the loop has a name for what the model returned until gradients are made
	CrossEntropyImpl  string `yaml:"cross_entropy_impl" json:"cross_entropy_impl,omitempty"` // whose fusion that is (Megatron's cross_entropy_fusion_impl); left out: Transformer Engine's, as nearly all scripts that fuse it have it, and Liger-Kernel's with the output layer

	Upcast *bool `yaml:"upcast" json:"upcast,omitempty"` // logits and scores are cast to fp32 before their softmax, as transformers does; left out: as the recipe has it

	FusedLinearCrossEntropy *bool `yaml:"fused_linear_cross_entropy" json:"fused_linear_cross_entropy,omitempty"` // loss and output layer together, without all logits (Liger-Kernel, Cut Cross-Entropy)

	LossParallel *bool `yaml:"loss_parallel" json:"loss_parallel,omitempty"` // tensor ranks compute the loss of their parts of the vocabulary, or gather all logits before (torchtitan's disable_loss_parallel); left out: the former

	SharedTPInput *bool `yaml:"shared_tp_input" json:"shared_tp_input,omitempty"` // tensor ranks gather once what several projections read (torchtitan's PrepareModuleInput), or each gathers its own (input_layouts of each ColwiseParallel); left out: the former
	VocabParallel *bool `yaml:"vocab_parallel" json:"vocab_parallel,omitempty"`   // tensor ranks cut embedding and output layer, or hold them whole; left out: the former
	VocabMultiple int64 `yaml:"vocab_multiple" json:"vocab_multiple,omitempty"`   // the vocabulary is padded to a multiple of this times the tensor ranks (Megatron's make_vocab_size_divisible_by); 0: as the recipe has it

	LossChunks     int64          `yaml:"loss_chunks" json:"loss_chunks,omitempty"`           // chunks of tokens that output layer and loss take one by one (torchtitan's ChunkedLossWrapper); 1: all at once, 0: as the recipe has it
	LossChunksKeep ops.ChunksKeep `yaml:"loss_chunks_keep" json:"loss_chunks_keep,omitempty"` // what each keeps for its backward pass; left out: as the recipe has it

	LigerOperators LigerOperators `yaml:"liger_operators" json:"liger_operators,omitempty"` // of liger_kernels; left out: all

	LigerKernels *bool `yaml:"liger_kernels" json:"liger_kernels,omitempty"` // Liger-Kernel's norms, gates and rotary embedding in the place of transformers'; left out: as the recipe has it

	LoRAKernels    *bool `yaml:"lora_kernels" json:"lora_kernels,omitempty"`       // adapters run in functions with gradients by hand (Axolotl's lora_mlp_kernel, lora_qkv_kernel and lora_o_kernel)
	TritonAdapters *bool `yaml:"triton_adapters" json:"triton_adapters,omitempty"` // adapters are Triton kernels (NeMo AutoModel's peft.use_triton)

	TPOverlap *bool `yaml:"tp_overlap" json:"tp_overlap,omitempty"` // tensor ranks exchange pieces beside the GEMM that makes or reads them (torch's async TP, Megatron's tp_comm_overlap); left out: as the recipe has it

	OverlapGradReduce  *bool `yaml:"overlap_grad_reduce" json:"overlap_grad_reduce,omitempty"`   // gradients are reduced beside the backward pass (Megatron's flag of this name, DeepSpeed's overlap_comm of ZeRO-1 and 2); left out: as the recipe has it
	OverlapParamGather *bool `yaml:"overlap_param_gather" json:"overlap_param_gather,omitempty"` // parameters that ZeRO-1 updated are gathered beside the next forward pass (Megatron's flag of this name); left out: as the recipe has it

	EPOverlap       *bool  `yaml:"ep_overlap" json:"ep_overlap,omitempty"`             // experts exchange rows beside another micro batch (Megatron's overlap_moe_expert_parallel_comm); left out: as the recipe has it
	TokenDispatcher string `yaml:"token_dispatcher" json:"token_dispatcher,omitempty"` // of experts: alltoall, deepep, hybridep, or flex: Hybrid-EP in a rack, else DeepEP; left out: as the recipe has it

	PermuteFusion *bool `yaml:"permute_fusion" json:"permute_fusion,omitempty"` // kernels of their own move experts' rows (Megatron's moe_permute_fusion); left out: as the recipe has it

	RouterFusion *bool `yaml:"router_fusion" json:"router_fusion,omitempty"` // kernels of their own choose experts (Megatron's moe_router_fusion); left out: as the recipe has it

	SquaredReLUFusion *bool  `yaml:"squared_relu_fusion" json:"squared_relu_fusion,omitempty"` // one kernel squares the ReLU of experts and weighs it (Megatron's use_fused_weighted_squared_relu); left out: as the recipe has it
	GroupedMLPFusion  *bool  `yaml:"grouped_mlp_fusion" json:"grouped_mlp_fusion,omitempty"`   // both products of all experts of a rank in kernels that cast and activate (Megatron's use_transformer_engine_op_fuser with NVTE_CUTEDSL_FUSED_GROUPED_MLP); left out: where whole steps with experts are replayed
	ExpertGEMM        string `yaml:"expert_gemm" json:"expert_gemm,omitempty"`                 // what multiplies for the experts of a rank: cublas, cutlass, torch; left out: as the recipe has it
	GateFusion        *bool  `yaml:"gate_fusion" json:"gate_fusion,omitempty"`                 // one kernel applies the gate of an MLP (Megatron's bias_activation_fusion, --no-bias-swiglu-fusion); left out: as the recipe has it
	NormFusion        *bool  `yaml:"norm_fusion" json:"norm_fusion,omitempty"`                 // one kernel normalises (PyTorch's nn.RMSNorm from 2.8 on), or norms are written out op by op; left out: as the recipe has it
	Rotary            string `yaml:"rotary" json:"rotary,omitempty"`                           // how heads are turned: halves, interleaved, complex; left out: halves
	CastRotary        *bool  `yaml:"cast_rotary" json:"cast_rotary,omitempty"`                 // rotary tables are cast to the dtype of the heads that they turn; left out: as the recipe has it
	EnableGQA         *bool  `yaml:"enable_gqa" json:"enable_gqa,omitempty"`                   // query heads share keys and values in attention (PyTorch's enable_gqa), else these are repeated; left out: repeated, but for FlashAttention's package
	ZeroInit          *bool  `yaml:"zero_init" json:"zero_init,omitempty"`                     // DeepSpeed's zero.Init makes the model, and with it products that keep no view of what ZeRO 3 gathers; left out: it does
	GradientFusion    *bool  `yaml:"gradient_fusion" json:"gradient_fusion,omitempty"`         // products of weights' gradients add to what is kept of them (Megatron's gradient_accumulation_fusion); left out: as the recipe has it
	RopeFusion        *bool  `yaml:"rope_fusion" json:"rope_fusion,omitempty"`                 // one kernel turns queries or keys (Megatron's apply_rope_fusion); left out: as the recipe has it

	QKVRopeFusion *bool `yaml:"qkv_rope_fusion" json:"qkv_rope_fusion,omitempty"` // one kernel cuts a projection into queries, keys and values and turns them (Megatron's fused_single_qkv_rope); left out: off

	NaNChecks *bool `yaml:"nan_checks" json:"nan_checks,omitempty"` // the host looks for NaNs in losses and gradients (Megatron's check_for_nan_in_loss_and_grad); left out: as the recipe has it

	AmaxReduction string `yaml:"amax_reduction" json:"amax_reduction,omitempty"` // ranks that agree on the largest values of delayed scaling: all, tensor, none; left out: as the recipe has it
	OpFuser       *bool  `yaml:"op_fuser" json:"op_fuser,omitempty"`             // Transformer Engine's op fuser runs dense MLPs and projections with adapters (Megatron's use_transformer_engine_op_fuser); left out: off

	CUDAGraphs string `yaml:"cuda_graphs" json:"cuda_graphs,omitempty"` // replayed without the host's launches: full steps, layers but for their experts, their router, their mixers, none; left out: as the recipe has it

	LaunchBlocking *bool `yaml:"launch_blocking" json:"launch_blocking,omitempty"` // CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel; left out: where the recipe needs it

	Trainer     *bool `yaml:"trainer" json:"trainer,omitempty"`           // transformers' Trainer makes the steps: its host waits for the loss of each micro batch; left out: a loop that does not
	DataWorkers int64 `yaml:"data_workers" json:"data_workers,omitempty"` // processes that make batches beside that host (dataloader_num_workers); 0: it does

	OneConnection *bool `yaml:"one_connection" json:"one_connection,omitempty"` // CUDA_DEVICE_MAX_CONNECTIONS=1: kernels of all streams start in the order of their launches; left out: where the framework asks for it

	ExpandableSegments *bool `yaml:"expandable_segments" json:"expandable_segments,omitempty"` // of PyTorch's allocator, which maps pages to one segment a pool and stream (PYTORCH_ALLOC_CONF); left out: as the framework starts its processes

	Release   units.Release `yaml:"release" json:"release,omitempty"`     // year and month of the software; 0: what the recipe describes, or the newest
	Libraries units.Release `yaml:"libraries" json:"libraries,omitempty"` // of PyTorch and the CUDA libraries beneath it, where they are not of the same time; 0: Release

	Stragglers *Stragglers `yaml:"stragglers" json:"stragglers,omitempty"`
	OwnRuns    *OwnRuns    `yaml:"own_runs" json:"own_runs,omitempty"`
	HostSpeed  float64     `yaml:"host_speed" json:"host_speed,omitempty"`   // of the CPUs that launch the kernels, over that of the machine's own; 0: 1
	CPUThreads int64       `yaml:"cpu_threads" json:"cpu_threads,omitempty"` // of a rank, for what is left to the host (OMP_NUM_THREADS); 0: what the launcher sets
	Jitter     float64     `yaml:"jitter" json:"jitter,omitempty"`           // standard deviation of the pace of a rank, as a share; the slowest of all sets that of the step
}

// Recomputes and Attentions are what a job may name, of recomputation and of attention.
var (
	Recomputes = []string{"none", "selective", "full"}
	Attentions = []string{"sdpa", "flash", "flash-attn", "flash-attn-3", "flash-attn-4", "flex", "math", "unfused"}
)

// What multiplies for the experts of a rank: a call of cuBLAS for each; Transformer Engine's
// CUTLASS kernel for all (NVTE_USE_CUTLASS_GROUPED_GEMM); torch._grouped_mm, over one tensor of all.
const (
	CuBLASExperts  = "cublas"
	CUTLASSExperts = "cutlass"
	TorchExperts   = "torch"
)

// Token dispatchers: NCCL's all-to-all, and a kernel of its own.
const (
	AllToAllDispatcher = "alltoall"
	FlexDispatcher     = "flex"
	DeepEPDispatcher   = "deepep"
	HybridEPDispatcher = "hybridep"
)

var dispatchers = []string{AllToAllDispatcher, FlexDispatcher, DeepEPDispatcher, HybridEPDispatcher}

// How tokens are routed to experts.
const (
	EvenRouting       = "even"       // to all as many
	RandomRouting     = "random"     // to k of them at will
	LearnedRouting    = "learned"    // by a router that an auxiliary loss of 0.01 or biases balance as it learns
	WeakRouting       = "weak"       // by one that a loss of 0.001 balances
	UnbalancedRouting = "unbalanced" // by one that nothing balances
	UntrainedRouting  = "untrained"  // by one of random weights, before it has learned or been balanced
	InTurnRouting     = "in-turn"    // every token to the k after those of the one before, without a router (NeMo AutoModel's fake_balanced_gate)
)

var routings = []string{EvenRouting, RandomRouting, LearnedRouting, WeakRouting, UnbalancedRouting, UntrainedRouting, InTurnRouting}

// Whose loss runs.
const (
	EngineLoss  = "te"             // Transformer Engine's: of Megatron-Core
	NativeLoss  = "native"         // its own, of compiled pieces
	LigerLoss   = "liger"          // Liger-Kernel's, with the output layer, in pieces of rows
	CutLoss     = "cut"            // Cut Cross-Entropy's, with the output layer, in blocks
	WholeCut    = "cut-unfiltered" // and without leaving out gradients near zero
	WrittenLoss = "written"        // the loop's own, written out, of logits as they are made
)

var losses = []string{EngineLoss, NativeLoss, LigerLoss, CutLoss, WholeCut, WrittenLoss}

// linearLosses are the programs of recipes that make each loss together with the output layer.
var linearLosses = map[string]string{"": "linear_cross_entropy", LigerLoss: "linear_cross_entropy", CutLoss: "cut_cross_entropy", WholeCut: "unfiltered_cut_cross_entropy"}

// What is replayed from CUDA graphs.
const (
	NoGraphs     = "none"
	MixerGraphs  = "mixers" // of a layer attention or its state-space mixer
	RouterGraphs = "router" // of a layer with experts, what comes before the exchange of their rows
	LayerGraphs  = "layers" // all of a layer but its experts
	FullGraphs   = "full"   // whole steps
)

var graphKinds = []string{NoGraphs, MixerGraphs, RouterGraphs, LayerGraphs, FullGraphs}

// SP reports whether sequence parallelism is on.
func (p *Plan) SP() bool { return p.SequenceParallel != nil && *p.SequenceParallel && p.TP > 1 }

// Reshard reports whether gathered parameters are dropped after the forward pass.
func (p *Plan) Reshard() bool { return p.ReshardAfterForward == nil || *p.ReshardAfterForward }

// TorchDDP reports whether PyTorch's DDP reduces gradients: alone, or before an optimizer that shares out
// its states (ZeroRedundancyOptimizer).
func (p *Plan) TorchDDP(r *recipe.Recipe) bool {
	return !r.Structure.MainGradients && !r.Structure.OwnReductions && (p.DataParallel == DDP || p.DataParallel == ZeRO1 && !r.Structure.Partitions)
}

// BucketViews reports whether gradients under PyTorch's DDP are views of the buckets, or
// tensors of their own that are copied into them and back.
func (p *Plan) BucketViews() bool { return p.BucketView == nil || *p.BucketView }

// Shard is the number of ranks that share one copy of what is sharded.
func (p *Plan) Shard() int64 {
	if p.ShardDegree > 0 {
		return p.ShardDegree
	}
	return p.DP * max(p.CP, 1) // context-parallel ranks hold the same parameters
}

// Replicas is the number of such copies.
func (p *Plan) Replicas() int64 { return p.DP * max(p.CP, 1) / p.Shard() }

// Shape is what a legality check needs besides the plan.
type Shape struct {
	Model   *model.Spec
	Recipe  *recipe.Recipe
	GPUs    int64
	Train   *Train
	DTensor bool // tensor parallelism by DTensor: key/value heads must divide
}

// Complete fills what a plan leaves open: degrees of one, dp from the rest, the
// schedule of the recipe.
func (p *Plan) Complete(s Shape) error {
	if p.ExpertTP == 0 && p.cutsExperts(s) {
		p.ExpertTP = p.TP
	}
	if schedule, err := pipeline.Lookup(p.Schedule); p.VirtualStages == 0 && p.PP > 1 && err == nil {
		p.VirtualStages = schedule.Usual()
	}
	for _, d := range []*int64{&p.TP, &p.CP, &p.EP, &p.ExpertTP, &p.PP, &p.VirtualStages} {
		if *d == 0 {
			*d = 1
		}
	}
	for _, d := range []struct {
		name string
		v    int64
	}{{"tp", p.TP}, {"cp", p.CP}, {"ep", p.EP}, {"expert_tp", p.ExpertTP}, {"pp", p.PP}, {"virtual_stages", p.VirtualStages}, {"dp", p.DP}, {"shard_degree", p.ShardDegree}} {
		if d.v < 0 {
			return diag.Errorf("plan.%s: %d is negative; give 1 or more", d.name, d.v)
		}
		if d.v > s.GPUs && d.name != "virtual_stages" {
			return diag.Errorf("plan.%s: %d exceeds the %d GPUs of the job; give 1 to %d%s", d.name, d.v, s.GPUs, s.GPUs, p.orGPUs(s))
		}
	}
	inner := p.TP * p.CP * p.PP
	if s.GPUs%inner != 0 {
		first := "tp" // that does not go with those before it
		if s.GPUs%(p.TP*p.CP) == 0 {
			first = "pp"
		} else if s.GPUs%p.TP == 0 {
			first = "cp"
		}
		return diag.Errorf("plan.%s: tp %d × cp %d × pp %d = %d does not divide the %d GPUs; %s", first, p.TP, p.CP, p.PP, inner, s.GPUs, p.changes(s))
	}
	rest := s.GPUs / inner
	if p.DP == 0 {
		p.DP = rest
	}
	if p.DP != rest {
		return diag.Errorf("plan.dp: %d × tp %d × cp %d × pp %d = %d is not the %d GPUs of the job; leave dp out or use %d%s", p.DP, p.TP, p.CP, p.PP, p.DP*inner, s.GPUs, rest, p.orGPUs(s))
	}
	if p.DataParallel == "" {
		p.DataParallel = s.usual(p.Offload)
	}
	if p.CP > 1 {
		p.CPCommType = s.contextsBy(p)
	}
	if p.Schedule == "" && p.PP > 1 {
		p.Schedule = "1f1b"
		if p.VirtualStages > 1 {
			p.Schedule = "interleaved-1f1b"
		}
	}
	if p.SequenceParallel == nil {
		on := p.TP > 1 && s.Recipe.Structure.SharedTPInput && !s.deepSpeedMoE()
		p.SequenceParallel = &on
	}
	if p.ReshardAfterForward == nil && p.PP > 1 && p.DataParallel.ShardsParameters() && s.Recipe.Structure.GatheredStages {
		p.ReshardAfterForward = new(bool)
	}
	return nil
}

// usual is the kind of data parallelism that users of the recipe run, with something left to
// the host.
func (s *Shape) usual(o Offload) DataParallel {
	if kinds := beside(s.Recipe, o); len(kinds) > 0 {
		return DataParallel(kinds[0])
	}
	return DDP
}

func list(v []int64) string { return strings.Join(texts(v), ", ") }

// rule checks one thing of a completed plan.
type rule func(*Plan, Shape) error

// keeps returns the first error of some rules.
func (p *Plan) keeps(s Shape, rules ...rule) error {
	for _, r := range rules {
		if err := r(p, s); err != nil {
			return err
		}
	}
	return nil
}

// Check returns the first rule that a completed plan breaks, as an error with the
// nearest legal values.
func (p *Plan) Check(s Shape) error {
	return p.keeps(s, (*Plan).checkCuts, (*Plan).checkPipeline, (*Plan).checkRecompute, (*Plan).checkOrder, (*Plan).checkDataParallel,
		(*Plan).checkMatrices, (*Plan).checkTensorwise, (*Plan).checkRowScales, (*Plan).checkOffloadLayers, (*Plan).checkOffloadModules, (*Plan).checkOffload)
}

// checkCuts returns the first rule that cutting layers breaks.
func (p *Plan) checkCuts(s Shape) error {
	return p.keeps(s, (*Plan).checkTP, (*Plan).checkMixers, (*Plan).checkContexts, (*Plan).checkSequence, (*Plan).checkExperts)
}

// checkSequence checks that sequence parallelism cuts a sequence evenly.
func (p *Plan) checkSequence(s Shape) error {
	if seq := s.Train.SequenceLength; p.SP() && seq/p.CP%p.TP != 0 {
		return diag.Errorf("plan.tp: %d does not divide the %d tokens of a sequence over cp %d, which sequence parallelism cuts; use %stp 1, or plan.sequence_parallel: false", p.TP, seq, p.CP, p.evenSequences(s))
	}
	return nil
}

// checkTP returns the first rule that cutting matrices over tensor ranks breaks.
func (p *Plan) checkTP(s Shape) error {
	m := s.Model
	if n := max(p.TP, p.ExpertTP); n > 1 && s.Recipe.Structure.WholeMatrices {
		remedy := "use 1, and more of dp"
		if m.MoE != nil {
			remedy = "use tp 1 and expert_tp 1, and ep or more of dp"
		}
		return diag.Errorf("plan.tp: %d, but recipe %s cuts no matrices over ranks; %s", n, s.Recipe.Name, remedy)
	}
	if m.Heads%p.TP != 0 {
		return diag.Errorf("plan.tp: %d does not divide num_attention_heads %d (use %s)", p.TP, m.Heads, list(p.legalTP(s)))
	}
	if p.TP > 1 && m.Compress != nil {
		return diag.Errorf("plan.tp: %d, but attention to sums of tokens is cut over none (megatron/core/transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py); use tp 1", p.TP)
	}
	if g := m.Global; g != nil && !s.sharesKV(p.TP, g.KVHeads) {
		return diag.Errorf("plan.tp: %d does not divide num_global_key_value_heads %d (use %s)", p.TP, g.KVHeads, list(p.legalTP(s)))
	}
	if m.MLA == nil && m.KVHeads%p.TP != 0 && p.TP%m.KVHeads != 0 {
		return diag.Errorf("plan.tp: %d neither divides num_key_value_heads %d nor is a multiple of it (use %s)", p.TP, m.KVHeads, list(p.legalTP(s)))
	}
	if s.DTensor && m.MLA == nil && m.KVHeads%p.TP != 0 {
		return diag.Errorf("plan.tp: %d does not divide num_key_value_heads %d, which recipe %s needs (use %s)", p.TP, m.KVHeads, s.Recipe.Name, list(p.legalTP(s)))
	}
	if m.FFN%p.TP != 0 {
		return diag.Errorf("plan.tp: %d does not divide intermediate_size %d (use %s)", p.TP, m.FFN, list(p.legalTP(s)))
	}
	return nil
}

// checkExperts returns the first rule that sharing out and cutting experts breaks.
func (p *Plan) checkExperts(s Shape) error {
	if s.Model.MoE == nil && p.EP > 1 {
		return diag.Errorf("plan.ep: %d, but the model has no experts; leave ep out", p.EP)
	}
	if s.deepSpeedMoE() {
		if err := p.checkDeepSpeedMoE(s); err != nil {
			return err
		}
	}
	if p.ExpertTP > 1 {
		if err := p.checkExpertTP(s); err != nil {
			return err
		}
	}
	if err := p.checkCutting(s); err != nil || s.Model.MoE == nil {
		return err
	}
	return p.checkEP(s)
}

// checkEP returns the first rule that sharing out experts breaks.
func (p *Plan) checkEP(s Shape) error {
	m, t := s.Model, s.Train
	if p.EP > 1 && !s.Recipe.Structure.ExpertParallel {
		return diag.Errorf("plan.ep: recipe %s has no expert parallelism; use 1 or a recipe that has it", s.Recipe.Name)
	}
	if m.MoE.Experts%p.EP != 0 {
		return diag.Errorf("plan.ep: %d does not divide the %d experts (use %s)", p.EP, m.MoE.Experts, list(p.legalEP(s)))
	}
	if ranks := p.TP * p.CP * p.DP; ranks%(p.EP*p.ExpertTP) != 0 {
		return diag.Errorf("plan.ep: ep %d × expert_tp %d does not divide tp·cp·dp = %d (use ep %s%s)", p.EP, p.ExpertTP, ranks, list(p.legalEP(s)), p.anyDP().orGPUs(s))
	}
	if p.EP > 1 && t.Imbalance > float64(p.EP) {
		return diag.Errorf("train.expert_imbalance: %g, but one of %d expert ranks has at most %d times the mean, all tokens; give 1 to %d", t.Imbalance, p.EP, p.EP, p.EP)
	}
	return nil
}

// checkPipeline returns the first rule that a pipeline breaks.
func (p *Plan) checkPipeline(s Shape) error {
	return p.keeps(s, (*Plan).checkStages, (*Plan).checkLayers, (*Plan).checkChunks, (*Plan).checkSchedule)
}

// checkStages checks that the recipe has a pipeline, and no more stages than layers to give them.
func (p *Plan) checkStages(s Shape) error {
	m := s.Model
	if p.PP == 1 && p.VirtualStages > 1 {
		return diag.Errorf("plan.virtual_stages: %d needs pipeline parallelism; set pp above 1 or leave it out", p.VirtualStages)
	}
	if p.PP > 1 && s.Recipe.Structure.WholeModels {
		return diag.Errorf("plan.pp: recipe %s has no pipeline parallelism; use 1 or a recipe that has it", s.Recipe.Name)
	}
	stages := p.PP * p.VirtualStages
	if stages > m.Layers+2 || p.PP > m.Layers {
		return diag.Errorf("plan.pp: %d stages (pp %d × virtual_stages %d) are more than the %d layers with embedding and head; %s", stages, p.PP, p.VirtualStages, m.Layers, p.fewerStages(s))
	}
	return nil
}

// checkChunks checks that the recipe's way to split layers gives every stage its share.
func (p *Plan) checkChunks(s Shape) error {
	m, stages := s.Model, p.PP*p.VirtualStages
	if s.Recipe.Structure.CostStages && p.PP > 1 && p.StageLayers == "" {
		if _, head := splitByCost(m, m.Layers, stages); head < stages-2 {
			return diag.Errorf("plan.pp: recipe %s splits by cost, which leaves the last %d of %d stages without work; use a smaller pp", s.Recipe.Name, stages-2-head, stages)
		}
	}
	if p.VirtualStages > 1 && s.Recipe.Structure.EvenChunks && p.StageLayers == "" && m.Layers%stages != 0 && (m.Layers+2)%stages != 0 {
		return diag.Errorf("plan.virtual_stages: pp %d × virtual_stages %d does not divide the %d layers, with or without embedding and head as one layer each, which recipe %s needs (use %s)",
			p.PP, p.VirtualStages, m.Layers, s.Recipe.Name, list(whole.Divisors(m.Layers/p.PP, 64)))
	}
	return p.checkPicks(s)
}

// checkSchedule returns the first rule that the order of a pipeline's work breaks, or the
// kind of data parallelism beside it.
func (p *Plan) checkSchedule(s Shape) error {
	var schedule *pipeline.Info
	if p.Schedule != "" {
		var err error
		if schedule, err = pipeline.Lookup(p.PipelineSchedule(s.Recipe)); err != nil {
			return diag.Errorf("plan.schedule: %v", err)
		}
	}
	if err := p.checkDrain(s); err != nil || p.PP == 1 {
		return err
	}
	if err := schedule.Check(int(p.PP), int(p.VirtualStages), int(p.Fill(s.Train))); err != nil {
		return diag.Errorf("plan.schedule: %v", err)
	}
	if p.ReducesOnce() && p.SyncEveryMicroBatch != nil && *p.SyncEveryMicroBatch {
		return diag.Errorf("plan.sync_every_micro_batch: true, but PyTorch's pipelines reduce sharded gradients once, at the end of a step; leave it out, or set plan.pp to 1")
	}
	switch p.DataParallel {
	case FSDP1:
		return diag.Errorf("plan.data_parallel: fsdp1 does not compose with pipeline parallelism; use %s", piped(s.Recipe))
	case ZeRO2, ZeRO3:
		return diag.Errorf("plan.data_parallel: %s does not compose with pipeline parallelism, which needs whole gradients over all micro batches; use %s", p.DataParallel, piped(s.Recipe))
	}
	return nil
}

// ReducesOnce reports whether sharded gradients can only be reduced at the end of a step: PyTorch's
// schedules turn the reduction off for all micro batches (torch/distributed/pipelining/stage.py,
// backward_maybe_with_nosync).
func (p *Plan) ReducesOnce() bool { return p.PP > 1 && p.DataParallel.ShardsParameters() }

// piped says which kinds of data parallelism a framework has beside a pipeline.
func piped(r *recipe.Recipe) string {
	var out []string
	for _, k := range r.Sharing() {
		if k := DataParallel(k); k == DDP || k == ZeRO1 || k == FSDP2 {
			out = append(out, string(k))
		}
	}
	return diag.Or(append(out, "pp 1"))
}

// Fill is how many micro batches go through a pipeline before it is empty again.
func (p *Plan) Fill(t *Train) int64 { return cmp.Or(p.DrainEvery, t.GradAccumulation) }

// checkDrain checks after how many micro batches a pipeline is empty.
func (p *Plan) checkDrain(s Shape) error {
	switch n := s.Train.GradAccumulation; {
	case p.DrainEvery == 0:
	case p.PP == 1:
		return diag.Errorf("plan.drain_every: %d, but there is no pipeline; leave it out, or set pp", p.DrainEvery)
	case !s.Recipe.Structure.TorchPipeline:
		return diag.Errorf("plan.drain_every: %d, but pipelines of recipe %s take in all micro batches of a step; leave it out", p.DrainEvery, s.Recipe.Name)
	case p.DrainEvery < 0 || n%p.DrainEvery > 0:
		return diag.Errorf("plan.drain_every: %d does not divide the %d micro batches of a step (use %s)", p.DrainEvery, n, list(whole.Divisors(n, 4096)))
	}
	return nil
}

// adaptersApart reports whether adapters may be units of their own: under PyTorch's FSDP1, not Megatron's.
func (p *Plan) adaptersApart(m *model.Spec, r *recipe.Recipe) bool {
	return p.DataParallel == FSDP1 && m.LoRA != nil && !r.Structure.MainGradients && r.Host.Primitives["adapter_units"] > 0
}

// checkDataParallel returns the first rule that sharing out states breaks.
func (p *Plan) checkDataParallel(s Shape) error {
	if p.BucketView != nil && !p.TorchDDP(s.Recipe) {
		return diag.Errorf("plan.bucket_view: only PyTorch's DDP has it, not %s under recipe %s; leave it out", p.DataParallel, s.Recipe.Name)
	}
	if p.AdapterUnits != nil && !p.adaptersApart(s.Model, s.Recipe) {
		return diag.Errorf("plan.adapter_units: only PyTorch's FSDP1 has units, and adapters need train.lora; leave it out, or use fsdp1 under hf-eager with train.lora")
	}
	if err := p.checkUnits(s); err != nil {
		return err
	}
	if p.WrapOneRank != nil && (p.DataParallel != FSDP2 || p.PP > 1) {
		return diag.Errorf("plan.wrap_one_rank: FSDP2 alone wraps one rank, which FSDP1 leaves whole, and it is not known of pipelines; leave it out, or use fsdp2 and no pp")
	}
	return p.checkCopies(s)
}

// torchInterleaved is interleaved-1f1b as PyTorch runs it.
const torchInterleaved = "interleaved-1f1b-torch"

// PipelineSchedule is the schedule as the recipe's framework runs it: PyTorch's
// interleaving differs from Megatron's in what it allows.
func (p *Plan) PipelineSchedule(r *recipe.Recipe) string {
	if p.Schedule == "interleaved-1f1b" && r.Structure.TorchPipeline {
		return torchInterleaved
	}
	return p.Schedule
}

// Split returns the number of layers of each of n stages: equal parts, or, when they
// do not divide, with embedding and head counting as one layer each and what is
// left over in the middle (Megatron's account_for_embedding_in_pipeline_split,
// DeepSpeed's partition by type:transformer|embedding). Where that leaves a rest too
// and full is set, each stage takes as many as the fullest needs until none are left
// (DeepSpeed's partition by type:transformer, which runtime/utils.py,
// partition_balanced, fills from the first stage on).
func Split(layers, n int64, full bool) []int64 {
	out := make([]int64, n)
	if layers%n == 0 {
		for i := range out {
			out[i] = layers / n
		}
		return out
	}
	each, more := (layers+2)/n, (layers+2)%n
	if full && more > 0 && layers > n {
		most := (layers + n - 1) / n
		for i := range out {
			out[i] = min(most, layers-(n-1-int64(i))) // later ones need a layer each
			layers -= out[i]
		}
		return out
	}
	from := (n - more) / 2
	for i := range out {
		out[i] = each
		if int64(i) >= from && int64(i) < from+more {
			out[i]++
		}
	}
	out[0]--
	out[n-1]--
	return out
}

// splitWeighed is Split with embedding and head counting as a layer each also where the
// layers divide, and what is left over in the first stages (torchtitan,
// distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part).
func splitWeighed(layers, n int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = (layers + 2) / n
		if int64(i) < (layers+2)%n {
			out[i]++
		}
	}
	out[0]--
	out[n-1]--
	return out
}

// LossApart reports whether the last stage of a pipeline computes the loss alone, of
// logits that it receives.
func (p *Plan) LossApart(m *model.Spec, r *recipe.Recipe) bool {
	if !r.Structure.CostStages || p.PP <= 1 || p.StageLayers != "" {
		return false
	}
	_, head := splitByCost(m, m.Layers, p.PP*p.VirtualStages)
	return head < p.PP*p.VirtualStages-1
}

// splitByCost is SplitByCost with the number of parameters as cost.
func splitByCost(m *model.Spec, layers, n int64) (each []int64, head int64) {
	layer := 4*m.Heads*m.HeadDim*m.Hidden + 3*m.FFN*m.Hidden
	return SplitByCost(layers, n, float64(layer), float64(m.Vocab*m.Hidden))
}

// SplitByCost returns the number of layers of each of n stages and the stage of the head,
// where a stage takes layers, and then the head, until the cost of all so far is more
// than its end's share of the whole (nanotron, models/base.py, build_model). A costly
// head may thus be alone, and before the loss, which costs nothing.
func SplitByCost(layers, n int64, layer, head float64) (each []int64, at int64) {
	each = make([]int64, n)
	total, sum := layer*float64(layers)+head, 0.0
	for range layers {
		each[at]++
		if sum += layer; sum > total*float64(at+1)/float64(n) {
			at++
		}
	}
	return each, at
}

// String is the short form of a plan: what differs from one GPU.
func (p *Plan) String() string {
	var parts []string
	add := func(name string, v int64) {
		if v > 1 {
			parts = append(parts, fmt.Sprintf("%s %d", name, v))
		}
	}
	add("tp", p.TP)
	if p.SP() {
		parts[len(parts)-1] += "+sp"
	}
	add("cp", p.CP)
	if p.ByHeads() {
		parts[len(parts)-1] += " " + string(p.CPCommType)
	}
	add("ep", p.EP)
	add("expert_tp", p.ExpertTP)
	add("pp", p.PP)
	if p.PP > 1 {
		s := p.Schedule
		if p.VirtualStages > 1 {
			s += fmt.Sprintf(" ×%d", p.VirtualStages)
		}
		if p.StageLayers != "" {
			s += ", layers " + strings.ReplaceAll(string(p.StageLayers), ",", "-")
		}
		if p.DrainEvery > 0 {
			s += fmt.Sprintf(", empty after every %d", p.DrainEvery)
		}
		parts[len(parts)-1] += " (" + s + ")"
	}
	add("dp", p.DP)
	if p.DP*max(p.CP, 1) > 1 || p.Wraps(1) {
		d := string(p.DataParallel)
		if p.ShardDegree > 0 {
			d += fmt.Sprintf(" shard %d", p.ShardDegree)
		}
		if p.StatesOverCopies() {
			d += ", optimizer over all"
		}
		d += p.UnitPolicy().text()
		parts = append(parts, d)
	}
	if p.Offloads() {
		parts = append(parts, p.OffloadText())
	}
	if p.Order != "" {
		parts = append(parts, "order "+string(p.Order))
	}
	if len(parts) == 0 {
		return "one GPU"
	}
	return strings.Join(parts, ", ")
}
