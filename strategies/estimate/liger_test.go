package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// TestForeachTemporary: while torch's foreach AdamW runs, it holds the root of every second
// moment beside weights, gradients and moments: 10 bytes a parameter in bf16, 20 in fp32, in
// shards of them under FSDP; the fused one holds none. IBM's fms-acceleration reads 67.46 and
// 33.74 GiB of Mistral 7B on one A100 and on two, whatever the batch (scripts/benchmarks/refs).
func TestForeachTemporary(t *testing.T) {
	for _, c := range []struct {
		gpus      int
		kind      string
		optimizer string
		precision string
		bytes     float64 // of a parameter of a rank's share
	}{
		{1, "ddp", "adamw-foreach", "bf16-pure", 10}, {1, "ddp", "adamw-fused", "bf16-pure", 8},
		{2, "fsdp2", "adamw-foreach", "bf16-pure", 10}, {1, "ddp", "adamw-foreach", "fp32", 20},
	} {
		r, err := Estimate(mustParse(t, fmt.Sprintf("{model: mistral-7b, hardware: b300-sxm, gpus: %d, runtime: {recipe: hf-eager, attention: flash-attn}, plan: {data_parallel: %s}, train: {sequence_length: 128, micro_batch: 1, precision: %s, optimizer: %s, recompute: full}}",
			c.gpus, c.kind, c.precision, c.optimizer)), Options{})
		require.NoError(t, err)
		share := float64(r.Job.Model.Params().Total) / float64(c.gpus)
		require.InEpsilon(t, c.bytes, float64(r.Memory.PeakAllocated)/share, 0.035, fmt.Sprint(c))
		if c.bytes == 10 {
			require.Equal(t, "optimizer", r.Memory.Moment)
			require.InEpsilon(t, []float64{67.46, 33.74}[c.gpus-1], float64(r.Memory.PeakAllocated)/(1<<30), 0.005)
		}
	}
}

// TestLinearLoss: in pieces the head and its loss multiply as much as whole, hold logits of one
// piece, and have both gradients before the backward pass begins, which waits once to learn
// that it has nothing to scale.
func TestLinearLoss(t *testing.T) {
	const text = "{model: llama3-8b, hardware: a100-80g-sxm, gpus: 4, runtime: {recipe: hf-eager, attention: flash-attn%s}, plan: {data_parallel: fsdp2}, train: {sequence_length: 4096, micro_batch: %d, precision: %s, optimizer: adamw-foreach, recompute: full}}"
	flops := func(s *tape.Section) (sum, logits float64, waits int) {
		for i := range s.Ops {
			o := &s.Ops[i]
			if sum += float64(o.FLOPs); o.Sync {
				waits++
			}
			if o.Class == tape.GEMM && o.Layout == tape.LayoutForward {
				logits = max(logits, float64(o.M))
			}
		}
		return
	}
	for _, precision := range []string{"bf16-pure", "bf16-autocast"} {
		whole, pieces := mustParse(t, fmt.Sprintf(text, "", 4, precision)), mustParse(t, fmt.Sprintf(text, ", fused_linear_cross_entropy: true", 4, precision))
		a, b := ops.Build(config(whole)).Head, ops.Build(config(pieces)).Head
		forward, rows, waits := flops(&a.Forward)
		backward, _, _ := flops(&a.Backward)
		require.Equal(t, 4*4096.0, rows)
		require.Zero(t, waits)
		f, rows, waits := flops(&b.Forward)
		g, _, last := flops(&b.Backward)
		require.InEpsilon(t, forward+backward, f, 1e-9)
		require.Zero(t, g)
		require.Equal(t, 512.0, rows, "16384 rows in 32 pieces: the vocabulary is 31.3 times as wide as the model")
		require.Equal(t, [2]int{1, 1}, [2]int{waits, last})
	}
	// fms-acceleration, Llama-3 8B on four A100 of 80 GB with Liger's loss: peaks of 37.41, 41.04 and 56.17 GiB (bf16 over fp32 shards).
	for batch, gib := range map[int]float64{4: 37.41, 8: 41.04, 16: 56.17} {
		r, err := Estimate(mustParse(t, fmt.Sprintf(text, ", fused_linear_cross_entropy: true", batch, "bf16-mixed")), Options{})
		require.NoError(t, err)
		require.InEpsilon(t, gib, float64(r.Memory.PeakAllocated)/(1<<30), 0.06, batch)
	}
}

// TestLinearLossOfLogits: before 0.5.0 Liger-Kernel casts the logits of a piece to fp32 for its kernel and their gradient back, and
// before 0.5.3 multiplies that by the piece's share of the labels (ops/fused_linear_cross_entropy.py): bytes for each logit
// beside products, under either of two programs that run it.
func TestLinearLossOfLogits(t *testing.T) {
	for _, c := range []struct {
		release string
		bytes   float64
	}{
		{"25.03", 3 * 2},
		{"25.02", 3*2 + 2*2},
		{"24.12", (2 + 4) + 3*4 + (4 + 2) + 2*2},
	} {
		for _, recipe := range []string{"recipe: hf-eager, liger_kernels: true", "recipe: deepspeed-hf, liger_kernels: true"} {
			j := mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: h100-sxm, gpus: 1, runtime: {%s, fused_linear_cross_entropy: true, release: %q}, plan: {}, train: {sequence_length: 4096, micro_batch: 1, precision: bf16-pure}}", recipe, c.release))
			var bytes float64
			for _, o := range ops.Build(config(j)).Head.Forward.Ops {
				if o.Count > 1 && o.Class != tape.GEMM {
					bytes += float64(o.Bytes) * float64(o.Count)
				}
			}
			require.InEpsilon(t, c.bytes, bytes/float64(4096*j.Model.Vocab), 0.001, "%s %+v", recipe, c)
		}
	}
}

// TestLinearLossOfWideWeights: with fp32 weights under autocast each piece casts Wᵀ anew, and its share
// of the gradient of W is cast and added by kernels of their own before Liger-Kernel 0.8.1, by its GEMM
// since. With 16-bit weights there is no cast of them, whatever the release, and before 0.6.2 the GEMM
// adds to their gradient, which it reads beside.
func TestLinearLossOfWideWeights(t *testing.T) {
	for _, c := range []struct {
		precision, release string
		casts, adds        bool    // kernels of their own for each piece
		bytes              float64 // of kernels and wider gradients for each weight and piece, beside products
	}{
		{"bf16-autocast", "25.10", true, true, (4 + 2) + (2 + 4) + (4 + 4 + 4)},
		{"bf16-autocast", "26.08", true, false, (4 + 2) + (4 + 4 - 2)},
		{"bf16-pure", "25.10", false, true, (2 + 4) + (4 + 2 + 2)},
		{"bf16-pure", "26.08", false, true, (2 + 4) + (4 + 2 + 2)},
		{"bf16-pure", "25.08", false, false, 2},
	} {
		j := mustParse(t, fmt.Sprintf("{model: qwen3-0.6b, hardware: h100-sxm, gpus: 1, runtime: {recipe: hf-eager, fused_linear_cross_entropy: true, release: %q}, plan: {}, train: {sequence_length: 4096, micro_batch: 1, precision: %s}}", c.release, c.precision))
		weights := float64(j.Model.Vocab * j.Model.Hidden)
		var casts, adds bool
		var bytes float64
		head := ops.Build(config(j)).Head.Forward.Ops
		for i := range head {
			o := &head[i]
			switch pieces := o.Count > 1; {
			case pieces && o.Prim == "to":
				casts = casts || o.DType == tape.BF16
				bytes += float64(o.Bytes)
			case pieces && o.Prim == "add_":
				adds = true
				bytes += float64(o.Bytes)
			case o.Adds:
				bytes += float64(o.Bytes) - 2*float64(o.M*o.K+o.K*o.N+o.M*o.N) // what is beyond operands and result
			}
		}
		require.Equal(t, [2]bool{c.casts, c.adds}, [2]bool{casts, adds}, c)
		require.InEpsilon(t, c.bytes, bytes/weights, 1e-9, c)
	}
}

// TestLigerLoss: Liger-Kernel's loss of whole logits has no log-probabilities, and its gradient
// overwrites what it reads: 32,768 tokens take 27.8 GiB less, and less time. Halo, with it, has 181
// and 235 GiB of Qwen3 4B and 8B on one B300: 16-bit logits more, which it holds meanwhile.
func TestLigerLoss(t *testing.T) {
	const text = "{model: %s, hardware: b300-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: flash-attn-4, liger_kernels: true%s}, plan: {}, train: {sequence_length: 2048, micro_batch: 16, grad_accumulation: 1, precision: bf16-pure, recompute: none}}"
	const gib = 1 << 30
	for model, peak := range map[string]float64{"qwen3-4b": 181, "qwen3-8b": 235} {
		own, one := mustEstimate(t, mustParse(t, fmt.Sprintf(text, model, ""))), mustEstimate(t, mustParse(t, fmt.Sprintf(text, model, ", fused_cross_entropy: true")))
		logits := 32768.0 * 151936 * 2 / gib
		require.InDelta(t, 3*logits, float64(own.Memory.PeakAllocated-one.Memory.PeakAllocated)/gib, 0.1, model)
		require.InEpsilon(t, peak, float64(one.Memory.PeakAllocated)/gib+logits, 0.01, model)
		require.Less(t, one.StepTime, own.StepTime, model)
	}
}

// TestCutLoss: Cut Cross-Entropy multiplies all logits out in the forward pass and again in the backward
// pass, whose gradients take a share of two products, of a frozen head of one, and no tensor is as large
// as the logits of a hundredth of the rows.
func TestCutLoss(t *testing.T) {
	const text = "{model: llama3-8b, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager, fused_linear_cross_entropy: true, cross_entropy_impl: %s}, train: {sequence_length: 4096, micro_batch: 4, precision: %s}}"
	const frozen = "bf16-frozen, lora: {rank: 8}"
	for _, c := range []struct {
		impl, precision string
		adds            float64 // products added to gradients, in those of the logits
	}{
		{"cut", "bf16-pure", 2 * 0.25},
		{"cut-unfiltered", "bf16-pure", 2},
		{"cut-unfiltered", "bf16-autocast", 2},
		{"cut", frozen, 0.25},
		{"cut-unfiltered", frozen, 1},
	} {
		j := mustParse(t, fmt.Sprintf(text, c.impl, c.precision))
		head := ops.Build(config(j)).Head
		logits := 4 * 4096 * float64(j.Model.Vocab)
		products := func(s *tape.Section) (blocks, adds float64) {
			for i := range s.Ops {
				switch o := &s.Ops[i]; o.Class {
				case tape.LossBlocks:
					blocks += o.Elements
				case tape.LossAdds, tape.LossKept:
					adds += o.Elements
				case tape.GEMM:
					require.Fail(t, "a product of its own", o.Prim)
				}
			}
			for _, e := range s.Events {
				require.Less(t, float64(e.Bytes), max(2*logits/100, float64(4*j.Model.Vocab*j.Model.Hidden+1<<20)))
			}
			return blocks / (logits * float64(j.Model.Hidden)), adds / (logits * float64(j.Model.Hidden))
		}
		blocks, adds := products(&head.Forward)
		require.Equal(t, [2]float64{1, 0}, [2]float64{blocks, adds}, c)
		blocks, adds = products(&head.Backward)
		require.Equal(t, [2]float64{1, c.adds}, [2]float64{blocks, adds}, c)
	}
}
