package recipe

import (
	"fmt"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// Precision is the dtype of everything that is stored or computed.
type Precision struct {
	Weights   DType `yaml:"weights"`   // parameters as stored between steps
	Compute   DType `yaml:"compute"`   // activations and GEMM inputs
	GEMM      DType `yaml:"gemm"`      // GEMM operands when narrower than Compute (fp8)
	Head      DType `yaml:"head"`      // operands of the output layer when narrower than Compute, as layers have them; unset: Compute
	Embedding DType `yaml:"embedding"` // tables under autocast as stored, and the residual stream that they begin; unset: as the weights
	Attention DType `yaml:"attention"` // operands of fused attention when narrower than Compute, as layers have them; unset: Compute
	Scan      DType `yaml:"scan"`      // what Mamba mixers convolve and scan in where it is wider than Compute; unset: Compute
	Autocast  bool  `yaml:"autocast"`  // weights are cast where they are used
	Gradients DType `yaml:"gradients"` // of parameters, as kept until the optimizer
	Master    DType `yaml:"master"`    // second copy of the weights; unset: none
	Moments   DType `yaml:"moments"`   // Adam's two states
	Frozen    DType `yaml:"frozen"`    // frozen matrices of layers as stored, when they are unpacked for each product; unset: as the weights
	Adapters  DType `yaml:"adapters"`  // those of LoRA as stored and as they compute, and their gradients and moments; unset: as the weights
	Without   int64 `yaml:"-"`         // of these two, how many the job's optimizer does without
	States    DType `yaml:"-"`         // of these, as the job's optimizer has them whatever is trained; unset: as Moments
	Reduce    DType `yaml:"reduce"`    // gradient collectives
	Gather    DType `yaml:"gather"`    // parameter collectives (ZeRO, FSDP)

	QuantizeRead  float64 `yaml:"quantize_read"`  // what a cast to GEMM costs, in readings of its input beside writing the results; 0: 1
	QuantizeOne   float64 `yaml:"quantize_one"`   // the same of a cast to one of two copies; 0: QuantizeRead
	ScaleKernels  int64   `yaml:"scale_kernels"`  // tiny kernels of each expert's cast, beside the readings
	RaggedRows    float64 `yaml:"ragged_rows"`    // the same of experts' rows cast to two copies of one scale, over QuantizeRead: their numbers are no multiple of a kernel's tile; 0: 1
	Delayed       bool    `yaml:"delayed"`        // scales of GEMM are those of the passes before, and ranks agree on them after each (amax_ranks)
	SyncFree      bool    `yaml:"sync_free"`      // experts run from numbers of rows on the device, whole steps are replayed from a CUDA graph
	TPApart       bool    `yaml:"tp_apart"`       // tensor ranks do not exchange beside their GEMMs though the recipe has it
	Primary       bool    `yaml:"primary"`        // weights that quantized GEMMs read are stored as those read them alone, though they are gathered in 16 bits
	CuDNNNorms    bool    `yaml:"cudnn_norms"`    // norms run in cuDNN, whatever the width of rows
	Rescales      bool    `yaml:"rescales"`       // gradients of products with scales by row are multiplied by them in a kernel of their own
	NarrowGathers int64   `yaml:"narrow_gathers"` // tensor ranks gather operands in GEMM, gradients in so many copies: one, or two that have scales of blocks; 0: in Compute
}

// AttentionCopies is the number of copies of its operands that attention reads in 8 bits: two
// where scales are of blocks along an axis. 0: it reads them in Compute.
func (p Precision) AttentionCopies() int64 {
	switch {
	case !p.Attention.Set || p.Attention.DType == p.Compute.DType:
		return 0
	case p.Attention.DType == tape.FP8:
		return 1
	}
	return 2
}

// AttentionCasts is how what attention reads is cast: as operands of layers are, or, where
// those are narrower, with a scale known before (Transformer Engine's NVTE_DPA_FP8_RECIPE
// DelayedScaling; dot_product_attention.py, its table of recipes).
func (p Precision) AttentionCasts() tape.Narrowing {
	n := tape.Narrowing{Copies: p.AttentionCopies(), DType: p.Attention.DType, Read: 1}
	if p.Attention.DType == p.Operands().DType {
		n.Read = max(p.QuantizeRead, 1)
	}
	return n
}

// Trained is the precision of what is trained of a model: as all of it, but for adapters that
// are stored in a dtype of their own, as are their gradients and moments.
func (p Precision) Trained() Precision {
	if p.Adapters.Set {
		p.Weights, p.Gradients, p.Moments, p.Master = p.Adapters, p.Adapters, p.Adapters, DType{}
	}
	if p.States.Set {
		p.Moments = p.States
	}
	return p
}

// Operands is the dtype that matrix multiplies read.
func (p Precision) Operands() DType {
	if p.GEMM.Set {
		return p.GEMM
	}
	return p.Compute
}

// Copies is the number of copies of an operand that quantized GEMMs read: along rows and
// along columns, or one where they read those of one scale along both. 0: none is quantized.
func (p Precision) Copies(anyLayout bool) int64 {
	switch {
	case !p.GEMM.Set || p.GEMM.Size() >= p.Compute.Size():
		return 0
	case anyLayout && p.GEMM.DType == tape.FP8:
		return 1
	}
	return 2
}

// KeptQuantized reports whether weights that quantized GEMMs read are stored as those read
// them alone: where they are gathered so, too (Megatron, fp8_param_gather), and in Primary ones.
func (p Precision) KeptQuantized() bool {
	return p.GEMM.Set && (p.Primary || p.Gather.DType == p.GEMM.DType)
}

// MomentBytes are the bytes of a parameter's moments.
func (p Precision) MomentBytes() units.Bytes { return units.Bytes(2-p.Without) * p.Moments.Size() }

// DType is a tape.DType that reads its name from YAML; unset means "not there".
type DType struct {
	tape.DType
	Set bool
}

// UnmarshalText reads a dtype name: fp32, bf16, fp16, fp8, mxfp8, fp8-block, fp8-rowwise, fp4.
func (d *DType) UnmarshalText(b []byte) error {
	t, ok := tape.DTypeOf(string(b))
	if t == tape.TF32 {
		return fmt.Errorf("no tensor is stored in tf32; use fp32; runtime.tf32 says how it is multiplied")
	}
	if !ok {
		return fmt.Errorf("%q is not a dtype; use fp32, bf16, fp16, fp8, mxfp8, fp8-block, fp8-rowwise or fp4", b)
	}
	*d = DType{t, true}
	return nil
}

// Size is the bytes per element, 0 when unset.
func (d DType) Size() units.Bytes {
	if !d.Set {
		return 0
	}
	return d.DType.Size()
}
