package strategies

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
)

// Runtime is the framework and its switches.
type Runtime struct {
	Recipe    string `yaml:"recipe" json:"recipe"`
	Attention string `yaml:"attention" json:"attention"`
	// what PyTorch's attention tries first (torch.nn.attention.sdpa_kernel): cudnn, flash, efficient;
	// left out: as the release chooses
	SDPAKernel        string `yaml:"sdpa_kernel" json:"sdpa_kernel,omitempty"`
	CompileScope      string `yaml:"compile_scope" json:"compile_scope,omitempty"`
	TF32              *bool  `yaml:"tf32" json:"tf32,omitempty"` // fp32 operands are multiplied on the tensor cores; see Job.TF32
	FusedCrossEntropy *bool  `yaml:"fused_cross_entropy" json:"fused_cross_entropy,omitempty"`
	ReturnsLogits     *bool  `yaml:"returns_logits" json:"returns_logits,omitempty"` // what is compiled returns logits beside its loss
	// the loop has a name for what the model returned until gradients are made
	KeepsLogits *bool `yaml:"keeps_logits" json:"keeps_logits,omitempty"`
	// whose fusion that is (Megatron's cross_entropy_fusion_impl); left out: Transformer Engine's, as
	// nearly all scripts that fuse it have it, and Liger-Kernel's with the output layer
	CrossEntropyImpl string `yaml:"cross_entropy_impl" json:"cross_entropy_impl,omitempty"`

	// logits and scores are cast to fp32 before their softmax, as transformers does; left out: as the
	// recipe has it
	Upcast *bool `yaml:"upcast" json:"upcast,omitempty"`

	// loss and output layer together, without all logits (Liger-Kernel, Cut Cross-Entropy)
	FusedLinearCrossEntropy *bool `yaml:"fused_linear_cross_entropy" json:"fused_linear_cross_entropy,omitempty"`

	// tensor ranks compute the loss of their parts of the vocabulary, or gather all logits before
	// (torchtitan's disable_loss_parallel); left out: the former
	LossParallel *bool `yaml:"loss_parallel" json:"loss_parallel,omitempty"`

	// tensor ranks gather once what several projections read (torchtitan's PrepareModuleInput), or each
	// gathers its own (input_layouts of each ColwiseParallel); left out: the former
	SharedTPInput *bool `yaml:"shared_tp_input" json:"shared_tp_input,omitempty"`
	// tensor ranks cut embedding and output layer, or hold them whole; left out: the former
	VocabParallel *bool `yaml:"vocab_parallel" json:"vocab_parallel,omitempty"`
	// the vocabulary is padded to a multiple of this times the tensor ranks (Megatron's
	// make_vocab_size_divisible_by); 0: as the recipe has it
	VocabMultiple int64 `yaml:"vocab_multiple" json:"vocab_multiple,omitempty"`

	// chunks of tokens that output layer and loss take one by one (torchtitan's ChunkedLossWrapper); 1:
	// all at once, 0: as the recipe has it
	LossChunks     int64          `yaml:"loss_chunks" json:"loss_chunks,omitempty"`
	LossChunksKeep ops.ChunksKeep `yaml:"loss_chunks_keep" json:"loss_chunks_keep,omitempty"` // what each keeps for its backward pass; left out: as the recipe has it

	LigerOperators LigerOperators `yaml:"liger_operators" json:"liger_operators,omitempty"` // of liger_kernels; left out: all

	// Liger-Kernel's norms, gates and rotary embedding in the place of transformers'; left out: as the
	// recipe has it
	LigerKernels *bool `yaml:"liger_kernels" json:"liger_kernels,omitempty"`

	// adapters run in functions with gradients by hand (Axolotl's lora_mlp_kernel, lora_qkv_kernel and
	// lora_o_kernel)
	LoRAKernels    *bool `yaml:"lora_kernels" json:"lora_kernels,omitempty"`
	TritonAdapters *bool `yaml:"triton_adapters" json:"triton_adapters,omitempty"` // adapters are Triton kernels (NeMo AutoModel's peft.use_triton)

	// tensor ranks exchange pieces beside the GEMM that makes or reads them (torch's async TP,
	// Megatron's tp_comm_overlap); left out: as the recipe has it
	TPOverlap *bool `yaml:"tp_overlap" json:"tp_overlap,omitempty"`

	// gradients are reduced beside the backward pass (Megatron's flag of this name, DeepSpeed's
	// overlap_comm of ZeRO-1 and 2); left out: as the recipe has it
	OverlapGradReduce *bool `yaml:"overlap_grad_reduce" json:"overlap_grad_reduce,omitempty"`
	// parameters that ZeRO-1 updated are gathered beside the next forward pass (Megatron's flag of this
	// name); left out: as the recipe has it
	OverlapParamGather *bool `yaml:"overlap_param_gather" json:"overlap_param_gather,omitempty"`

	// experts exchange rows beside another micro batch (Megatron's overlap_moe_expert_parallel_comm);
	// left out: as the recipe has it
	EPOverlap *bool `yaml:"ep_overlap" json:"ep_overlap,omitempty"`
	// of experts: alltoall, deepep, hybridep, or flex: Hybrid-EP in a rack, else DeepEP; left out: as
	// the recipe has it
	TokenDispatcher string `yaml:"token_dispatcher" json:"token_dispatcher,omitempty"`

	// kernels of their own move experts' rows (Megatron's moe_permute_fusion); left out: as the recipe
	// has it
	PermuteFusion *bool `yaml:"permute_fusion" json:"permute_fusion,omitempty"`

	// kernels of their own choose experts (Megatron's moe_router_fusion); left out: as the recipe has it
	RouterFusion *bool `yaml:"router_fusion" json:"router_fusion,omitempty"`

	// one kernel squares the ReLU of experts and weighs it (Megatron's use_fused_weighted_squared_relu);
	// left out: as the recipe has it
	SquaredReLUFusion *bool `yaml:"squared_relu_fusion" json:"squared_relu_fusion,omitempty"`
	// both products of all experts of a rank in kernels that cast and activate (Megatron's
	// use_transformer_engine_op_fuser with NVTE_CUTEDSL_FUSED_GROUPED_MLP); left out: where whole steps
	// with experts are replayed
	GroupedMLPFusion *bool `yaml:"grouped_mlp_fusion" json:"grouped_mlp_fusion,omitempty"`
	// what multiplies for the experts of a rank: cublas, cutlass, torch; left out: as the recipe has it
	ExpertGEMM string `yaml:"expert_gemm" json:"expert_gemm,omitempty"`
	// one kernel applies the gate of an MLP (Megatron's bias_activation_fusion, --no-bias-swiglu-
	// fusion); left out: as the recipe has it
	GateFusion *bool `yaml:"gate_fusion" json:"gate_fusion,omitempty"`
	// one kernel normalises (PyTorch's nn.RMSNorm from 2.8 on), or norms are written out op by op; left
	// out: as the recipe has it
	NormFusion *bool  `yaml:"norm_fusion" json:"norm_fusion,omitempty"`
	Rotary     string `yaml:"rotary" json:"rotary,omitempty"` // how heads are turned: halves, interleaved, complex; left out: halves
	// rotary tables are cast to the dtype of the heads that they turn; left out: as the recipe has it
	CastRotary *bool `yaml:"cast_rotary" json:"cast_rotary,omitempty"`
	// query heads share keys and values in attention (PyTorch's enable_gqa), else these are repeated;
	// left out: repeated, but for FlashAttention's package
	EnableGQA *bool `yaml:"enable_gqa" json:"enable_gqa,omitempty"`
	// DeepSpeed's zero.Init makes the model, and with it products that keep no view of what ZeRO 3
	// gathers; left out: it does
	ZeroInit *bool `yaml:"zero_init" json:"zero_init,omitempty"`
	// products of weights' gradients add to what is kept of them (Megatron's
	// gradient_accumulation_fusion); left out: as the recipe has it
	GradientFusion *bool `yaml:"gradient_fusion" json:"gradient_fusion,omitempty"`
	// one kernel turns queries or keys (Megatron's apply_rope_fusion); left out: as the recipe has it
	RopeFusion *bool `yaml:"rope_fusion" json:"rope_fusion,omitempty"`

	// one kernel cuts a projection into queries, keys and values and turns them (Megatron's
	// fused_single_qkv_rope); left out: off
	QKVRopeFusion *bool `yaml:"qkv_rope_fusion" json:"qkv_rope_fusion,omitempty"`

	// the host looks for NaNs in losses and gradients (Megatron's check_for_nan_in_loss_and_grad); left
	// out: as the recipe has it
	NaNChecks *bool `yaml:"nan_checks" json:"nan_checks,omitempty"`

	// ranks that agree on the largest values of delayed scaling: all, tensor, none; left out: as the
	// recipe has it
	AmaxReduction string `yaml:"amax_reduction" json:"amax_reduction,omitempty"`
	// Transformer Engine's op fuser runs dense MLPs and projections with adapters (Megatron's
	// use_transformer_engine_op_fuser); left out: off
	OpFuser *bool `yaml:"op_fuser" json:"op_fuser,omitempty"`

	// replayed without the host's launches: full steps, layers but for their experts, their router,
	// their mixers, none; left out: as the recipe has it
	CUDAGraphs string `yaml:"cuda_graphs" json:"cuda_graphs,omitempty"`

	// CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel; left out: where the recipe needs it
	LaunchBlocking *bool `yaml:"launch_blocking" json:"launch_blocking,omitempty"`

	// transformers' Trainer makes the steps: its host waits for the loss of each micro batch; left out:
	// a loop that does not
	Trainer *bool `yaml:"trainer" json:"trainer,omitempty"`
	// processes that make batches beside that host (dataloader_num_workers); 0: it does
	DataWorkers int64 `yaml:"data_workers" json:"data_workers,omitempty"`

	// CUDA_DEVICE_MAX_CONNECTIONS=1: kernels of all streams start in the order of their launches; left
	// out: where the framework asks for it
	OneConnection *bool `yaml:"one_connection" json:"one_connection,omitempty"`

	// of PyTorch's allocator, which maps pages to one segment a pool and stream (PYTORCH_ALLOC_CONF);
	// left out: as the framework starts its processes
	ExpandableSegments *bool `yaml:"expandable_segments" json:"expandable_segments,omitempty"`

	// year and month of the software; 0: what the recipe describes, or the newest
	Release units.Release `yaml:"release" json:"release,omitempty"`
	// of PyTorch and the CUDA libraries beneath it, where they are not of the same time; 0: Release
	Libraries units.Release `yaml:"libraries" json:"libraries,omitempty"`

	Stragglers *Stragglers `yaml:"stragglers" json:"stragglers,omitempty"`
	OwnRuns    *OwnRuns    `yaml:"own_runs" json:"own_runs,omitempty"`
	// of the CPUs that launch the kernels, over that of the machine's own; 0: 1
	HostSpeed float64 `yaml:"host_speed" json:"host_speed,omitempty"`
	// of a rank, for what is left to the host (OMP_NUM_THREADS); 0: what the launcher sets
	CPUThreads int64 `yaml:"cpu_threads" json:"cpu_threads,omitempty"`
	// standard deviation of the pace of a rank, as a share; the slowest of all sets that of the step
	Jitter float64 `yaml:"jitter" json:"jitter,omitempty"`
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
