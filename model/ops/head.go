package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// buildHead builds final norm, modules of multi-token prediction, head and loss: one unit,
// or the loss by itself where another rank computes it.
func buildHead(c Config, params model.Parameters) (head, loss Unit) {
	b := newBuilder(c, params.Head)
	t := b.t
	predict := b.predictor(params)
	t.Quantize = tape.F32 // frameworks leave the output layer in 16 bits, unless asked
	if h := c.Precision.Head; h.Set && h.Size() < c.Precision.Compute.Size() {
		t.Quantize = h.DType
	}
	batch, seq, width := b.hiddenDims()
	x := t.Input(b.hidden, true, batch, seq, width)
	h := t.Hold(x)
	if c.Spec.Streams > 1 {
		h = b.give(h, b.join(h))
	}
	if b.normed(model.RoleFinalNorm) {
		h = b.give(h, b.norm(h, model.RoleFinalNorm, true))
	}
	h = b.give(h, b.dropout(h, c.Spec.FinalDropout))
	if c.Spec.HeadScale {
		h = b.give(h, t.Scale("mul_scalar", h))
	}
	if c.Spec.HeadDense {
		h = b.give(h, b.headDense(h))
	}
	states := predict(x, h)
	t.Release(x)
	if c.LossApart {
		logits := b.logits(states[0])
		apart := newBuilder(c, nil)
		in := apart.t.Input(logits.DType(), true, logits.Dim(0), logits.Dim(1), logits.Dim(2))
		y := apart.loss(apart.t.Hold(in))
		apart.t.Release(in)
		return b.finish("head", x, logits), apart.finish("loss", in, y)
	}
	var y *tape.Tensor
	for i := len(states) - 1; i >= 0; i-- { // the main model's last (megatron/core/models/gpt/gpt_model.py, _postprocess)
		y = b.sum(y, b.headLoss(states[i]))
	}
	return b.finish("head", x, y), Unit{}
}

// headDense is what an encoder's head makes of hidden states before its output layer
// (transformers, models/bert/modeling_bert.py, BertPredictionHeadTransform).
func (b *builder) headDense(h *tape.Tensor) *tape.Tensor {
	b.t.Module = Head
	b.t.Call()
	y := b.t.Linear(h, b.p(model.RoleHeadDense), b.p(model.RoleHeadDense.Bias()), false)
	y = b.give(y, b.activation(y))
	return b.give(y, b.norm(y, model.RoleHeadNorm, true))
}

// headLoss is the loss of hidden states, which it takes over.
func (b *builder) headLoss(h *tape.Tensor) *tape.Tensor {
	switch {
	case b.LossChunks > 1 && (b.ChunksKeep == KeepLogits || b.ChunksKeep == KeepNothing):
		return b.summedLoss(h)
	case b.LossChunks > 1:
		return b.chunkedLoss(h)
	case b.LinearLoss == "":
		return b.loss(b.logits(h))
	}
	t := b.t
	t.Module = Loss
	t.Call()
	defer t.Kind(t.Kind(tape.Logits))
	t.Tiny("loss", b.recipe.Structure.LossTiny)
	w := b.headWeight()
	y := b.call(b.LinearLoss, tensorOf(h), tensorOf(w))[0].t
	t.Release(h, w)
	return y
}

// chunkedLoss is the loss of hidden states, which it takes over, by chunks of their tokens. The
// script has a name for the logits of one until those of the next are there (torchtitan,
// components/loss.py, ChunkedCELoss).
func (b *builder) chunkedLoss(h *tape.Tensor) *tape.Tensor {
	t := b.t
	in := b.headInput(h)
	weights := []*tape.Tensor{b.p(model.RoleHead)}
	if bias := b.p(model.RoleHead.Bias()); bias != nil {
		weights = append(weights, bias)
	}
	var last *tape.Tensor
	t.Module = Loss
	y := t.ChunkedLoss(in, b.LossChunks, b.Precision.Reduce.DType, func(chunk *tape.Tensor) *tape.Tensor {
		logits := b.logitsOf(chunk)
		t.Release(last)
		last = t.Hold(logits)
		return b.loss(logits)
	}, weights...)
	t.Release(in, last)
	return y
}

// summedLoss is the loss of hidden states, which it takes over, as the sum of those of chunks of their
// tokens, whose gradients the backward pass makes: of their logits, which were kept (torchtune,
// modules/transformer.py, chunked_output, and modules/loss, CEWithChunkedOutputLoss), or of
// checkpoints, which make them again (torch.utils.checkpoint around each chunk).
func (b *builder) summedLoss(h *tape.Tensor) *tape.Tensor {
	t := b.t
	in := b.headInput(h)
	var logits []*tape.Tensor // of all chunks, for which the script has a name until their losses are added up
	var sum *tape.Tensor
	for _, piece := range t.Pieces(in, 1, b.LossChunks) {
		chunk := t.Contiguous(piece)
		t.Release(piece)
		if b.ChunksKeep == KeepLogits {
			logits = append(logits, b.logitsOf(chunk))
			continue
		}
		ofChunk := func(ins []*tape.Tensor) *tape.Tensor { return b.loss(b.logitsOf(t.Hold(ins[0]))) }
		sum = b.sum(sum, t.Checkpoint(b.Recipe.Structure.EarlyStop, ofChunk, chunk))
		t.Release(chunk)
	}
	for _, l := range logits {
		sum = b.sum(sum, b.loss(t.Hold(l)))
	}
	t.Release(logits...)
	t.Release(in)
	return sum
}

// sum is x + y, which it takes over; y alone where there is no x yet.
func (b *builder) sum(x, y *tape.Tensor) *tape.Tensor {
	if x == nil {
		return y
	}
	z := b.t.Add(x, y)
	b.t.Release(x, y)
	return z
}

// logits are those of hidden states, which it takes over.
func (b *builder) logits(h *tape.Tensor) *tape.Tensor { return b.logitsOf(b.headInput(h)) }

// headInput is what the output layer reads of hidden states, which it takes over.
func (b *builder) headInput(h *tape.Tensor) *tape.Tensor {
	b.t.Module = Head
	defer b.t.Kind(b.t.Kind(tape.Logits))
	if b.Recipe.Structure.VocabParallel || b.Shard.SequenceParallel || b.gathersLogits() {
		return b.give(h, b.columnInput(h))
	}
	return h
}

// logitsOf are those of what the output layer reads, which it takes over.
func (b *builder) logitsOf(in *tape.Tensor) *tape.Tensor {
	t, c := b.t, &b.Config
	t.Module = Head
	defer t.Kind(t.Kind(tape.Logits))
	t.Call()
	w := b.headWeight()
	bias := b.p(model.RoleHead.Bias())
	var logits *tape.Tensor
	if bias != nil && c.Spec.Einsum {
		logits = t.Linear(in, w, nil, false)
		logits = b.give(logits, t.Add(logits, bias))
	} else {
		logits = t.Linear(in, w, bias, false)
	}
	t.Release(in, w)
	if c.WholeLoss && c.Recipe.Structure.VocabParallel || c.gathersLogits() { // output_layouts=Replicate() of the output layer: gradients are cut again
		logits = b.give(logits, t.Communicate(tape.CommSpec{Group: "tp", Ranks: c.Shard.TP, Dim: 2, Grow: true, Forward: "all-gather", Join: c.Recipe.Structure.FunctionalTP || c.Recipe.Structure.WholeLoss || c.gathersLogits()}, logits))
	}
	if c.Spec.LogitsBias {
		logits = b.give(logits, t.Add(logits, t.Outside(b.weight, 1, logits.Dim(-1))))
	}
	if b.scaledInLoss() {
		return logits
	}
	if c.Spec.LogitScale {
		logits = b.give(logits, t.Scale("mul_scalar", logits))
	}
	if c.Spec.LogitSoftcap {
		logits = b.give(logits, t.Scale("mul_scalar", logits))
		logits = b.give(logits, t.Unary("tanh", logits))
		logits = b.give(logits, t.Scale("mul_scalar", logits))
	}
	return logits
}

// scaledInLoss reports whether what logits are multiplied by, and their cap, are part of the kernels of the loss: a compiler finds all in one graph.
func (b *builder) scaledInLoss() bool { return b.t.Compiled && b.FusedLoss && b.LinearLoss == "" }

// fusedLoss is a loss that a compiler makes.
func (b *builder) fusedLoss(logits *tape.Tensor, use tape.LogitsUse) []value {
	if use == tape.Shifted && b.Spec.LossApart {
		use = tape.LossAlone
	}
	return one(b.t.FusedLoss(logits, use, b.Spec.LogitSoftcap && b.scaledInLoss(), b.recipe.Structure.LossKept))
}

// gathersLogits is whether tensor ranks cut the output layer alone, and gather what it makes.
func (c *Config) gathersLogits() bool {
	return c.Recipe.Structure.GatheredHead && c.Shard.TP > 1 && !c.Spec.Tied
}

// headWeight is what the output layer multiplies by.
func (b *builder) headWeight() *tape.Tensor {
	w := b.p(model.RoleHead)
	if !b.Spec.NormHead {
		return b.t.Hold(w)
	}
	return b.call("norm_head", tensorOf(w))[0].t
}

// loss is the cross entropy of logits, which it takes over.
func (b *builder) loss(logits *tape.Tensor) *tape.Tensor {
	t, c := b.t, &b.Config
	t.Module = Loss
	defer t.Kind(t.Kind(tape.Logits))
	compiled := t.Compiled
	defer func() { t.Compiled = compiled }()
	t.Compiled = compiled && (c.FusedLoss || c.NativeLoss) // else it runs beside the graph
	if t.Tiny("loss", 1); c.Spec.Encoder == nil {          // whose labels are not shifted
		t.Tiny("loss", c.Recipe.Structure.LossTiny-1)
	}
	if c.KeepsLogits {
		t.Held(logits)
	}
	if b.program("loss_input") { // which lets go of the 16-bit ones
		logits = b.give(logits, b.call("loss_input", tensorOf(logits))[0].t)
	}
	if c.Recipe.Structure.HeldLogits {
		logits = b.give(logits, t.Float(logits))
		t.Held(logits)
	}
	name := "cross_entropy"
	switch {
	case c.WrittenLoss:
		if name = "written_cross_entropy"; !c.AsTheyAre {
			logits = b.give(logits, t.Float(logits))
		}
	case c.NativeLoss:
		name = "native_cross_entropy"
	case c.FusedLoss:
		name = "fused_cross_entropy"
		if c.LossChunks > 1 && b.program(name+"_of_chunk") {
			name += "_of_chunk"
		} else if c.LossAlone {
			name += "_alone"
		}
	case c.AsTheyAre:
		name += "_as_is"
	case c.Spec.NarrowLoss:
		name = b.variant(name, "_as_is")
	case c.Shard.CPHeads && b.program(name+"_contexts"):
		name += "_contexts"
	case c.Recipe.Structure.ApartLoss:
		name = b.variant(name, "_apart")
	}
	if c.Recipe.Structure.VocabParallel && c.Shard.TP > 1 && !c.WholeLoss && b.program("parallel_"+name) {
		name = "parallel_" + name
	}
	y := b.call(name, tensorOf(logits))[0].t
	for range c.Recipe.Structure.LossMetrics {
		t.LossMetric(logits)
	}
	if c.Metrics {
		t.Compiled = false // of logits that the graph returns
		t.TokenMetrics(logits)
	}
	t.Release(logits)
	if c.Recipe.Structure.CheckGradients { // isnan, then isinf (megatron/core/rerun_state_machine.py, validate_result)
		for _, kernels := range [...]int{1, 3} {
			t.Tiny("loss", kernels)
			t.Wait()
		}
	}
	return y
}
