package ops

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestAsTheyAre: a plain PyTorch loop takes logarithms of the logits as they are, also under autocast, which casts
// for nll_loss alone (aten/native/LossNLL.cpp, autocast_mode.h), and the softmax of its scores as they are but for
// autocast. Transformers casts either to fp32.
func TestAsTheyAre(t *testing.T) {
	dtypes := func(s *tape.Section, module string) (out []string) {
		for _, o := range s.Ops {
			switch o.Prim {
			case "to", "log_softmax", "softmax", "masked_fill_", "nll_loss", "log_softmax_backward", "softmax_backward":
				if o.Module == module {
					out = append(out, o.Prim+" "+o.DType.String())
				}
			}
		}
		return
	}
	for _, c := range []struct {
		precision        string
		asTheyAre        bool
		loss, back, core []string
	}{
		{"bf16-pure", false, []string{"to fp32", "log_softmax fp32", "nll_loss fp32"}, []string{"log_softmax_backward fp32", "to bf16"}, []string{"to fp32", "softmax fp32", "to bf16"}},
		{"bf16-pure", true, []string{"log_softmax bf16", "nll_loss bf16"}, []string{"log_softmax_backward bf16"}, []string{"masked_fill_ bf16", "softmax bf16"}},
		{"bf16-pure-autocast", true, []string{"log_softmax bf16", "to fp32", "nll_loss fp32"}, []string{"to bf16", "log_softmax_backward bf16"}, []string{"masked_fill_ bf16", "to fp32", "softmax fp32"}},
		{"fp16-autocast", true, []string{"log_softmax fp16", "to fp32", "nll_loss fp32"}, []string{"to fp16", "log_softmax_backward fp16"}, []string{"masked_fill_ fp16", "softmax fp16"}},
		{"bf16-autocast", true, []string{"log_softmax bf16", "to fp32", "nll_loss fp32"}, []string{"to bf16", "log_softmax_backward bf16"}, []string{"masked_fill_ bf16", "to fp32", "softmax fp32"}},
	} {
		x := config(t, "llama3-8b", "hf-eager")
		x.Precision, x.Attention, x.AsTheyAre = x.Recipe.Precision[c.precision], "unfused", c.asTheyAre
		m := Build(x)
		require.Equal(t, c.loss, dtypes(&m.Head.Forward, "loss"), "%+v", c)
		require.Equal(t, c.back, dtypes(&m.Head.Backward, "loss"), "%+v", c)
		require.Subset(t, dtypes(&m.Kinds[0].Forward, "attention"), c.core, "%+v", c)
		if c.asTheyAre && c.precision == "bf16-pure" {
			require.NotContains(t, dtypes(&m.Kinds[0].Forward, "attention"), "softmax fp32")
		}
	}
}

// TestHalfSoftmax: PyTorch's softmax in fp32 of fp16 scores reads them as they are and makes their gradient, one kernel each; of bf16 a
// cast stands before it and one behind its gradient (aten/src/ATen/native/SoftMax.cpp, softmax: half_to_float; cuda/SoftMax.cu, softmax_backward_cuda_out).
// Autocast asks for fp32 (autocast_mode.h, AT_FORALL_FP32_SET_OPT_DTYPE), and so does transformers (eager_attention_forward), whose masks make scores
// wide under autocast as they are added (masking_utils.py, eager_mask: the dtype of the embeddings; traces of Falcon on an H200).
func TestHalfSoftmax(t *testing.T) {
	for _, c := range []struct {
		recipe, precision string
		asTheyAre         bool
		casts, back       int // of the scores, of their gradient
		read              int64
	}{
		{"hf-eager", "bf16-autocast", false, 0, 1, 4}, {"hf-eager", "fp16-autocast", false, 0, 1, 4}, {"hf-eager", "bf16-pure", false, 1, 1, 4},
		{"pytorch", "bf16-autocast", true, 1, 1, 4}, {"pytorch", "fp16-autocast", true, 0, 0, 2},
	} {
		x := config(t, "gpt2", c.recipe)
		x.Precision, x.Attention, x.AsTheyAre = x.Recipe.Precision[c.precision], "unfused", c.asTheyAre
		layer := &Build(x).Kinds[0]
		scores := x.MicroBatch * int64(x.Spec.Heads) * x.Sequence * x.Sequence
		casts := func(s *tape.Section, to tape.DType) (n int) {
			for _, o := range s.Ops {
				if o.Prim == "to" && o.Elements == float64(scores) && o.DType == to {
					n++
				}
			}
			return
		}
		of := func(s *tape.Section, prim string) units.Bytes {
			return s.Ops[slices.IndexFunc(s.Ops, func(o tape.Op) bool { return o.Prim == prim })].Bytes
		}
		require.Equal(t, c.casts, casts(&layer.Forward, tape.F32), "%+v", c)
		require.Equal(t, c.back, casts(&layer.Backward, x.Precision.Compute.DType), "%+v", c)
		require.Equal(t, units.Bytes(scores*(c.read+4)), of(&layer.Forward, "softmax"), "%+v", c)
		require.Equal(t, units.Bytes(scores*(8+c.read)), of(&layer.Backward, "softmax_backward"), "%+v", c)
	}
}

// TestLossBesideGraph: a compiled model's loss is two kernels of its graph (Inductor's output for compiled Llama steps on an H200), or, outside of
// it, eager as a loop writes it. The compiler fuses softmax of scores either way.
func TestLossBesideGraph(t *testing.T) {
	for _, c := range []struct {
		fused, asTheyAre bool
		want             string
		dtype            tape.DType
		casts            int
	}{{true, false, "fused_loss", tape.BF16, 0}, {false, false, "log_softmax", tape.F32, 2}, {false, true, "log_softmax", tape.BF16, 0}} {
		x := config(t, "llama3-8b", "litgpt")
		x.Precision, x.Attention, x.FusedLoss, x.AsTheyAre = x.Recipe.Precision["bf16-pure"], "unfused", c.fused, c.asTheyAre
		m := Build(x)
		i := slices.IndexFunc(m.Head.Forward.Ops, func(o tape.Op) bool { return o.Prim == c.want })
		require.GreaterOrEqual(t, i, 0, "%+v", c)
		require.Equal(t, c.dtype, m.Head.Forward.Ops[i].DType, "%+v", c)
		casts := 0 // eager ones, of logits and of their gradient (h200-compiled-plain-llama-lossout-bf16-float)
		for _, o := range slices.Concat(m.Head.Forward.Ops, m.Head.Backward.Ops) {
			if o.Module == "loss" && o.Prim == "to" {
				require.NotEqual(t, tape.FusedPointwise, o.Class, "%+v", c)
				casts++
			}
		}
		require.Equal(t, c.casts, casts, "%+v", c)
		require.True(t, slices.ContainsFunc(m.Kinds[0].Forward.Ops, func(o tape.Op) bool { return o.Prim == "softmax" && o.Class == tape.LossForward }), "%+v", c)
	}
}

// TestLossAlone: the gradient of logits that a compiled graph keeps to itself takes their place, and none of zeros is read
// (torch/_functorch/aot_autograd.py, donated buffers; nanochat on an H200).
func TestLossAlone(t *testing.T) {
	x := config(t, "llama3-8b", "litgpt")
	x.FusedLoss = true
	bytes := func(alone bool) units.Bytes {
		x.LossAlone = alone
		ops := Build(x).Head.Backward.Ops
		return ops[slices.IndexFunc(ops, func(o tape.Op) bool { return o.Class == tape.LossBackward })].Bytes
	}
	logits := units.Bytes(2 * x.MicroBatch * x.Sequence * x.Spec.Vocab)
	require.Equal(t, 3*logits, bytes(false))
	require.Equal(t, 2*logits, bytes(true))
}

// TestMaskedDocuments: PyTorch's attention computes all pairs of a sequence of documents, as of one with padding; others keep
// documents apart.
func TestMaskedDocuments(t *testing.T) {
	of := func(attention string, documents int64, padding float64) *tape.Op {
		x := config(t, "llama3-8b", "hf-eager")
		x.Attention, x.MaskedSDPA, x.Document, x.Padding = attention, "efficient", documents, padding
		layer := &Build(x).Kinds[0]
		i := slices.IndexFunc(layer.Forward.Ops, func(o tape.Op) bool { return o.Class == tape.Attention })
		require.GreaterOrEqual(t, i, 0)
		return &layer.Forward.Ops[i]
	}
	require.Equal(t, of("sdpa", 0, 0.001), of("sdpa", 256, 0))
	require.Greater(t, of("sdpa", 256, 0).FLOPs, 4*of("flash", 256, 0).FLOPs)
}

// TestMathAttention: PyTorch's math attention multiplies in fp32, whatever autocast has cast for it (attention.cpp,
// _scaled_dot_product_attention_math), keeps the probabilities in fp32 alone, and hands on 16 bits.
func TestMathAttention(t *testing.T) {
	for _, precision := range []string{"bf16-pure", "bf16-autocast"} {
		x := config(t, "llama3-8b", "hf-eager")
		x.Precision, x.Attention = x.Recipe.Precision[precision], "math"
		layer := &Build(x).Kinds[0]
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			n := 0
			for _, o := range s.Ops {
				if o.Class == tape.GEMM && o.Batch > 1 {
					require.Equal(t, tape.F32, o.DType, "%s %s", precision, o.Prim)
					n++
				}
				if o.Prim == "softmax" || o.Prim == "isneginf" || o.Prim == "softmax_backward" {
					require.Equal(t, tape.F32, o.DType, "%s %s", precision, o.Prim)
				}
			}
			require.Positive(t, n)
		}
	}
}
