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
	in := b.times(b.mixerInput(h, "mamba", "a Mamba mixer"))
	x := b.column(in, model.RoleMambaIn)
	t.Release(in)
	if b.Spec.Factors { // of each part of the projection its own
		factors := t.Outside(x.DType(), 1, 1, x.Dim(2))
		x = b.give(x, t.Mul(x, factors))
		t.Release(factors)
	}
	tp, cp := max(b.Shard.TP, 1), max(b.Shard.CP, 1)
	if cp > 1 {
		heads, groups := m.Heads/tp, ceilDiv(m.Groups, tp)
		copies := max(cp/groups, 1) // of a group that ranks have heads of
		x = b.give(x, b.headsOf(x, cp,
			channels{heads * m.HeadDim, 1}, channels{heads * m.HeadDim, 1}, channels{groups * m.State, copies}, channels{groups * m.State, copies}, channels{heads, 1}))
	}
	s := tape.ScanShape{Batch: b.MicroBatch, Sequence: b.Sequence, Heads: ceilDiv(m.Heads, tp*cp), HeadDim: m.HeadDim, Groups: ceilDiv(m.Groups, tp*cp), State: m.State, Chunk: m.Chunk}
	w := tape.ScanWeights{Conv: b.p(model.RoleMambaConv), ConvBias: b.p(model.RoleMambaConv.Bias()), Step: b.p(model.RoleMambaStep), Decay: b.p(model.RoleMambaDecay), Skip: b.p(model.RoleMambaSkip)}
	if b.recipe.Structure.Mixers == WholeMixer {
		t.Call() // the norm and the convolution are modules, but not called
		w.Norm, w.Out, w.Transposed = b.p(model.RoleMambaNorm), b.p(model.RoleMambaOut), b.Spec.TransposedWeights
		return b.give(x, t.Scan(x, w, s))
	}
	x = b.give(x, b.sequencesFirst(x))
	y := b.give(x, b.scan(x, w, s))
	y = b.give(y, b.sequencesFirst(y))
	if cp > 1 {
		y = b.give(y, b.positionsOf(y, cp))
	}
	y = b.give(y, b.groupNorm(y, ceilDiv(m.Groups, tp)))
	z := b.row(y, model.RoleMambaOut)
	t.Release(y)
	return z
}

// scan runs it in the precision's dtype of scans: from casts, which the backward pass makes
// again, and the scan with them, so that no more is kept (geodesic-megatron,
// pipeline_training_patches.py, ISAMBARD_FP32_SSM_STATE=checkpoint).
func (b *builder) scan(x *tape.Tensor, w tape.ScanWeights, s tape.ScanShape) *tape.Tensor {
	t, wide := b.t, b.Precision.Scan
	if !wide.Set || wide.DType == x.DType() {
		return t.Scan(x, w, s)
	}
	return t.Checkpoint(true, func(ins []*tape.Tensor) *tape.Tensor {
		in := t.To(ins[0], wide.DType)
		y := b.give(in, t.Scan(in, w, s))
		return b.give(y, t.To(y, ins[0].DType()))
	}, x)
}

// paired runs a state-space mixer and attention on the normed input h, which it borrows, and adds what
// they make (modeling_falcon_h1.py, FalconH1DecoderLayer).
func (b *builder) paired(h *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	m := b.times(b.mamba(h))
	in := b.times(b.t.Hold(h))
	a := b.times(b.attention(in, kind))
	b.t.Release(in)
	z := b.residual(m, a)
	b.t.Release(m, a)
	return z
}

// times is x, which it takes over, times a constant where the model has such factors.
func (b *builder) times(x *tape.Tensor) *tape.Tensor {
	if b.Spec.Factors {
		return b.give(x, b.t.Scale("mul_scalar", x))
	}
	return x
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
	f := tape.Fused{Prim: "group_norm", Class: tape.FusedReduce, Back: tape.Scan, DType: x.DType(), Save: []int{0}, SaveRows: int(groups), BackWork: tape.GroupNormGradient(x.Dim(-1)/groups, 3*x.DType().Size())}
	return b.t.Fuse(f, x, b.p(model.RoleMambaNorm))[0]
}

// channels are some that context ranks exchange by themselves, each copied so many times before.
type channels struct{ width, copies int64 }

// headsOf exchanges positions for heads among cp context ranks (mamba_context_parallel.py,
// pre_conv_ssm; gated_delta_net, tensor_a2a_cp2hp): of all channels of some positions it makes
// some of all, part by part. What came is joined and put in the order of its positions.
func (b *builder) headsOf(x *tape.Tensor, cp int64, parts ...channels) *tape.Tensor {
	t := b.t
	widths := make([]int64, len(parts))
	for i, p := range parts {
		widths[i] = p.width
	}
	pieces := t.Split(x, widths...)
	for i, p := range parts {
		y := pieces[i]
		if p.copies > 1 {
			y = b.give(y, t.Reshape(y, y.Dim(0), y.Dim(1), 1, p.width))
			y = b.give(y, t.Expand(y, y.Dim(0), y.Dim(1), p.copies, p.width))
			y = b.give(y, t.Reshape(y, y.Dim(0), y.Dim(1), p.copies*p.width))
		}
		y = b.give(y, b.reorder(y, 1))
		y = b.give(y, b.swap(y, 0, 0))
		pieces[i] = b.give(y, t.Reshape(y, y.Dim(0), y.Dim(1)*cp, y.Dim(2)/cp))
	}
	y := t.Concat(pieces...)
	t.Release(pieces...)
	if !b.places() {
		return b.give(y, b.reorder(y, 1))
	}
	ranks := make([]*tape.Tensor, cp)
	for i, n := int64(0), y.Dim(1)/cp; i < cp; i++ {
		ranks[i] = t.Slice(y, 1, i*n, (i+1)*n)
	}
	t.Release(y)
	y = t.Place(1, ranks...)
	t.Release(ranks...)
	return y
}

// positionsOf is the way back.
func (b *builder) positionsOf(x *tape.Tensor, cp int64) *tape.Tensor {
	t := b.t
	var y *tape.Tensor
	if b.places() {
		y = t.Reshape(x, x.Dim(0)*x.Dim(1), x.Dim(2))
		y = b.give(y, t.IndexSelect(y, y.Dim(0)))
	} else {
		y = b.reorder(x, 1)
	}
	y = b.give(y, b.swap(y, 0, 0))
	y = b.give(y, b.reorder(y, 1))
	return b.give(y, t.Reshape(y, x.Dim(0), x.Dim(1)/cp, x.Dim(2)*cp))
}

// places reports whether the order of positions is that of packed documents, in which each
// context rank has an early and a late part of each: rows go there by lists of them
// (_undo_attention_load_balancing), of which gated delta nets have none.
func (b *builder) places() bool { return b.Spec.Mamba != nil && b.documents() > 0 }
