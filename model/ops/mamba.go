package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// How a recipe runs mixers other than attention: state-space mixers and gated delta nets.
const (
	WholeMixer = "whole" // on one rank; the scan, its gated norm and projection in one function (transformers)
	ApartMixer = "apart" // cut over tensor and context ranks, the scan by itself (Megatron-Core)
)

// mixerInput enters a mixer that is no attention, on the normed input h, which it borrows.
func (b *builder) mixerInput(h *tape.Tensor, module, what string) *tape.Tensor {
	if b.recipe.Structure.Mixers == "" {
		panic(b.missing(what))
	}
	b.t.Call()
	b.t.Module = module
	return b.block(h)
}

// mamba runs the state-space mixer on the normed input h, which it borrows.
func (b *builder) mamba(h *tape.Tensor) *tape.Tensor {
	t, m := b.t, b.Spec.Mamba
	in := b.mixerInput(h, "mamba", "a Mamba mixer")
	x := b.column(in, model.RoleMambaIn)
	t.Release(in)
	tp, cp := max(b.Shard.TP, 1), max(b.Shard.CP, 1)
	if cp > 1 {
		x = b.give(x, b.headsOf(x, cp))
	}
	s := tape.ScanShape{Batch: b.MicroBatch, Sequence: b.Sequence, Heads: ceilDiv(m.Heads, tp*cp), HeadDim: m.HeadDim, Groups: ceilDiv(m.Groups, tp*cp), State: m.State, Chunk: m.Chunk}
	w := tape.ScanWeights{Conv: b.p(model.RoleMambaConv), ConvBias: b.p(model.RoleMambaConv.Bias()), Step: b.p(model.RoleMambaStep), Decay: b.p(model.RoleMambaDecay), Skip: b.p(model.RoleMambaSkip)}
	if b.recipe.Structure.Mixers == WholeMixer {
		t.Call() // the norm and the convolution are modules, but not called
		w.Norm, w.Out, w.Transposed = b.p(model.RoleMambaNorm), b.p(model.RoleMambaOut), b.Spec.TransposedWeights
		return b.give(x, t.Scan(x, w, s))
	}
	x = b.give(x, b.sequencesFirst(x))
	y := b.give(x, t.Scan(x, w, s))
	y = b.give(y, b.sequencesFirst(y))
	if cp > 1 {
		y = b.give(y, b.positionsOf(y, cp))
	}
	y = b.give(y, b.groupNorm(y, ceilDiv(m.Groups, tp)))
	z := b.row(y, model.RoleMambaOut)
	t.Release(y)
	return z
}

// sequencesFirst copies x where positions of several sequences lie side by side, as
// Megatron's layers have them and a scan does not (mamba_mixer.py, _ssm_training).
func (b *builder) sequencesFirst(x *tape.Tensor) *tape.Tensor {
	if b.MicroBatch == 1 {
		return b.t.Hold(x)
	}
	return b.reorder(x, 1)
}

// groupNorm normalises each of so many groups of a row: the scan's own norm, in Triton
// (mamba_ssm, ops/triton/layernorm_gated.py).
func (b *builder) groupNorm(x *tape.Tensor, groups int64) *tape.Tensor {
	b.t.Module = "mamba"
	f := tape.Fused{Prim: "group_norm", Class: tape.FusedReduce, Back: tape.Scan, DType: x.DType(), Save: []int{0}, SaveRows: int(groups), BackWork: tape.GroupNormGradient(x.Dim(-1) / groups)}
	return b.t.Fuse(f, x, b.p(model.RoleMambaNorm))[0]
}

// headsOf exchanges positions for heads among cp context ranks (mamba_context_parallel.py,
// pre_conv_ssm): of all channels of some positions it makes some of all.
func (b *builder) headsOf(x *tape.Tensor, cp int64) *tape.Tensor {
	return b.exchangeDims(x, x.Dim(1)*cp, x.Dim(2)/cp)
}

// positionsOf is the way back.
func (b *builder) positionsOf(x *tape.Tensor, cp int64) *tape.Tensor {
	return b.exchangeDims(x, x.Dim(1)/cp, x.Dim(2)*cp)
}

func (b *builder) exchangeDims(x *tape.Tensor, positions, channels int64) *tape.Tensor {
	y := b.trade(x, 0, 0, 1)
	return b.give(y, b.t.Reshape(y, x.Dim(0), positions, channels))
}
