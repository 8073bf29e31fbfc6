package probe

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// attention measures fused attention of training, with the statistics that the
// backward pass needs, as the heuristic of cuDNN picks it, which is what PyTorch runs.
// The time of the backward pass has all its kernels in it.
//
// Case: batch, seq, heads, kv_heads, head_dim, causal, direction (fwd, bwd), dtype
// (bf16, fp16).
var attention = Probe{
	Key: "attention", Doc: "fused attention, forward and backward (cuDNN)", Share: 3, Duty: 0.35,
	Applicable: func(w *World) error {
		if err := w.needs("libcudnn", "libnvrtc"); err != nil {
			return fmt.Errorf("%w; a fitted machine inherits the catalog's attention", err)
		}
		if w.device().Capability[0] < 8 {
			return &cuda.Unavailable{Text: "cuDNN's fused attention needs a GPU of compute capability 8.0 or later"}
		}
		return nil
	},
	Cases: attentionCases,
	Setup: attentionSetup,
	Prepare: func(_ *World, b *Bench, c Case) (Trial, error) {
		op, err := b.GPU.Attention(b.Stream, attentionOn(b, attentionOf(c)))
		if err != nil {
			return Trial{}, err
		}
		return b.Trial(op)
	},
	Verify: verifyAttention,
}

// attentionShape is batch, sequence, heads, key/value heads and head width.
type attentionShape [5]int64

// Shapes of the models that the catalog holds, from GPT-2 to Llama 70B, whole and
// split by tensor parallelism. The first ones are also those of a quick calibration.
var attentionShapes = []attentionShape{
	{16, 1024, 12, 12, 64}, {2, 4096, 32, 8, 64}, {1, 2048, 8, 8, 128}, {4, 2048, 32, 8, 128}, {1, 4096, 8, 2, 128}, {1, 8192, 32, 8, 128}, {2, 2048, 16, 16, 256},
	{32, 512, 12, 12, 64}, {4, 1024, 12, 12, 64}, {8, 1024, 16, 16, 64}, {16, 1024, 16, 16, 64}, {2, 2048, 32, 8, 64}, {8, 2048, 32, 8, 64}, {1, 8192, 32, 8, 64},
	{2, 2048, 16, 16, 80}, {2, 2048, 16, 16, 96},
	{1, 2048, 32, 32, 128}, {4, 2048, 32, 32, 128}, {1, 4096, 32, 32, 128}, {1, 4096, 32, 8, 128}, {4, 4096, 32, 8, 128}, {8, 1024, 24, 8, 128}, {4, 2048, 40, 8, 128},
	{4, 4096, 8, 2, 128}, {2, 8192, 8, 2, 128}, {1, 16384, 32, 8, 128},
}

const quickAttention = 7

func attentionCases(w *World, e Effort) []Case {
	shapes := attentionShapes
	if e == Quick {
		shapes = attentionShapes[:quickAttention]
	}
	var out []Case
	add := func(s attentionShape, causal bool, dtype string) {
		for _, direction := range []string{"fwd", "bwd"} {
			c := Case{"batch": itoa(s[0]), "seq": itoa(s[1]), "heads": itoa(s[2]), "kv_heads": itoa(s[3]), "head_dim": itoa(s[4]),
				"causal": strconv.FormatBool(causal), "direction": direction, "dtype": dtype}
			// Eight tensors are shared; every prepared case holds its workspace, and cuDNN
			// takes about as much again.
			a, half := attentionOf(c), Room(w.device())/2
			if queries, _, _ := a.Sizes(); 8*queries*cuda.Width(dtype) < half && 8*a.Workspace() < half/int64(len(attentionShapes)) {
				out = append(out, c)
			}
		}
	}
	for _, s := range shapes {
		add(s, true, "bf16")
	}
	for _, s := range []attentionShape{{4, 2048, 32, 8, 128}, {2, 4096, 32, 8, 64}} { // no mask, and the other dtype
		if e == Full || s[4] == 128 {
			add(s, false, "bf16")
			add(s, true, "fp16")
		}
	}
	return out
}

// attentionOf reads a case.
func attentionOf(c Case) cuda.Attention {
	causal, _ := strconv.ParseBool(c["causal"]) // Cases wrote it
	return cuda.Attention{Batch: c.num("batch"), Sequence: c.num("seq"), Heads: c.num("heads"), KVHeads: c.num("kv_heads"), Width: c.num("head_dim"),
		Causal: causal, Backward: c["direction"] == "bwd", DType: c["dtype"]}
}

// attentionSetup allocates the tensors of the largest case, random where they are
// read. Statistics begin as zeros: the time of the backward pass does not depend on
// them as long as exponentials stay finite.
func attentionSetup(_ *World, b *Bench, cases []Case) error {
	var wide, stats int64
	for _, c := range cases {
		a := attentionOf(c)
		queries, _, rows := a.Sizes()
		wide, stats = max(wide, queries*cuda.Width(a.DType)), max(stats, rows*4)
	}
	for seed, purpose := range []string{"q", "k", "v", "o", "do", "dq", "dk", "dv"} {
		m, err := b.Shared(purpose, wide)
		if err != nil {
			return fmt.Errorf("%s: %w", purpose, err)
		}
		if err := b.Randomize(m, "bf16", uint64(seed)<<40); err != nil { // as fp16 these are finite too
			return fmt.Errorf("random data of %s: %w", purpose, err)
		}
	}
	m, err := b.Shared("stats", stats)
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	op, err := b.GPU.Fill(b.Stream, m, stats)
	if err != nil {
		return err
	}
	return errors.Join(op.Enqueue(1), b.Stream.Sync(), op.Close())
}

// attentionOn puts a problem on the shared buffers.
func attentionOn(b *Bench, a cuda.Attention) cuda.Attention {
	a.Q, a.K, a.V, a.O, a.Stats = b.shared["q"], b.shared["k"], b.shared["v"], b.shared["o"], b.shared["stats"]
	if a.Backward {
		a.DO, a.DQ, a.DK, a.DV = b.shared["do"], b.shared["dq"], b.shared["dk"], b.shared["dv"]
	}
	return a
}

// attentionTolerance is the error of a tensor relative to its size, both as root mean
// squares: bf16 holds 8 bits, and probabilities and scores are rounded to it between.
const attentionTolerance = 1e-2

// verifyAttention holds small problems, with heads that share keys, against the
// formula: the forward pass, then the gradients from its results.
func verifyAttention(_ *World, b *Bench) error {
	for _, causal := range []bool{false, true} {
		a := cuda.Attention{Batch: 2, Sequence: 128, Heads: 4, KVHeads: 2, Width: 64, Causal: causal, DType: "bf16"}
		queries, keys, stats := a.Sizes()
		var err error
		tensor := func(n, period int64) (cuda.Buffer, []float32) {
			m, e := b.Alloc(max(2*n, 4*stats))
			v := ramp(n, period)
			for i := range v {
				v[i] /= 32 // exact in bf16
			}
			if e == nil {
				e = b.GPU.Write(m, bf16Bytes(v))
			}
			err = errors.Join(err, e)
			return m, v
		}
		var q, k, v, do []float32
		a.Q, q = tensor(queries, 101)
		a.K, k = tensor(keys, 103)
		a.V, v = tensor(keys, 107)
		a.DO, do = tensor(queries, 109)
		a.O, _ = tensor(queries, 1)
		a.Stats, _ = tensor(stats, 1)
		a.DQ, _ = tensor(queries, 1)
		a.DK, _ = tensor(keys, 1)
		a.DV, _ = tensor(keys, 1)
		if err != nil {
			return err
		}
		for _, backward := range []bool{false, true} {
			a.Backward = backward
			op, err := b.GPU.Attention(b.Stream, a)
			if err != nil {
				return err
			}
			if err := errors.Join(op.Enqueue(1), b.Stream.Sync(), op.Close()); err != nil {
				return err
			}
		}
		o, dq, dk, dv := a.Reference(q, k, v, do)
		for _, t := range []struct {
			name string
			m    cuda.Buffer
			want []float32
		}{{"O", a.O, o}, {"dV", a.DV, dv}, {"dK", a.DK, dk}, {"dQ", a.DQ, dq}} {
			raw, err := b.GPU.Read(t.m, 2*int64(len(t.want)))
			if err != nil {
				return err
			}
			if off := apart(bf16Floats(raw), t.want); !(off <= attentionTolerance) {
				return fmt.Errorf("%v, causal %t: %s is %.3g off, relative to its size", a, causal, t.name, off)
			}
		}
	}
	return nil
}

// apart is the root mean square of a difference over that of what is wanted.
func apart(got, want []float32) float64 {
	var difference, size float64
	for i, w := range want {
		difference += math.Pow(float64(got[i]-w), 2)
		size += math.Pow(float64(w), 2)
	}
	return math.Sqrt(difference / size)
}
