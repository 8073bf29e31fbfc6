package kernel

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestScan: kernels of a state-space mixer with its gated norm, forward and backward, on an
// H100 (mamba_ssm @e9594ce1c732, causal-conv1d 1.6.1, PyTorch 2.11, Triton 3.6, 2026-11-24), in us.
func TestScan(t *testing.T) {
	timer, _ := timer(t, "h100-sxm")
	var off float64
	shapes := []struct {
		s                 tape.ScanShape
		forward, backward float64
	}{
		{tape.ScanShape{Batch: 1, Sequence: 8192, Heads: 64, HeadDim: 64, Groups: 8, State: 128, Chunk: 128}, 513, 1870},
		{tape.ScanShape{Batch: 4, Sequence: 8192, Heads: 64, HeadDim: 64, Groups: 8, State: 128, Chunk: 128}, 2099, 7221},
		{tape.ScanShape{Batch: 1, Sequence: 2048, Heads: 64, HeadDim: 64, Groups: 8, State: 128, Chunk: 128}, 139, 571},
		{tape.ScanShape{Batch: 1, Sequence: 1024, Heads: 64, HeadDim: 64, Groups: 8, State: 128, Chunk: 128}, 72, 346},
		{tape.ScanShape{Batch: 1, Sequence: 8192, Heads: 128, HeadDim: 64, Groups: 8, State: 128, Chunk: 128}, 943, 3253},
		{tape.ScanShape{Batch: 1, Sequence: 8192, Heads: 32, HeadDim: 64, Groups: 1, State: 128, Chunk: 128}, 257, 880},
		{tape.ScanShape{Batch: 1, Sequence: 8192, Heads: 64, HeadDim: 64, Groups: 1, State: 128, Chunk: 256}, 438, 1466},
		{tape.ScanShape{Batch: 2, Sequence: 4096, Heads: 32, HeadDim: 128, Groups: 8, State: 128, Chunk: 128}, 484, 1820},
		{tape.ScanShape{Batch: 1, Sequence: 8192, Heads: 64, HeadDim: 64, Groups: 8, State: 64, Chunk: 128}, 399, 1585},
		{tape.ScanShape{Batch: 1, Sequence: 4096, Heads: 64, HeadDim: 64, Groups: 8, State: 256, Chunk: 128}, 385, 1388},
	}
	for _, c := range shapes {
		forward, backward := scanned(c.s, true)
		off += offBy(t, timer, forward, c.forward, c.s) + offBy(t, timer, backward, c.backward, c.s)
	}
	require.Less(t, off/float64(2*len(shapes)), 0.06)
}

// offBy is how far from what was measured, in us, the kernels of ops are, over that: no more
// than a fifth.
func offBy(t *testing.T, timer *Timer, ops []tape.Op, want float64, shape any) float64 {
	t.Helper()
	var total units.Seconds
	for i := range ops {
		total += timer.Time(&ops[i])
	}
	e := float64(total/units.Seconds(1e-6))/want - 1
	require.InDelta(t, 0, e, 0.21, "%+v", shape)
	return max(e, -e)
}

// scanned are the ops of a mixer's function, with its norm or without.
func scanned(s tape.ScanShape, norm bool) (forward, backward []tape.Op) {
	t := tape.New()
	inner := s.Heads * s.HeadDim
	conv := inner + 2*s.Groups*s.State
	n := 0
	param := func(dims ...int64) *tape.Tensor {
		n++
		return t.Param(n-1, tape.BF16, true, dims...)
	}
	x := t.Input(tape.BF16, true, s.Batch, s.Sequence, inner+conv+s.Heads)
	w := tape.ScanWeights{Conv: param(conv, 4), ConvBias: param(conv), Step: param(s.Heads), Decay: param(s.Heads), Skip: param(s.Heads)}
	if norm {
		w.Norm = param(inner)
	}
	parts := sections(t, t.Scan(x, w, s), tape.BF16)
	return parts[0].Ops, parts[1].Ops
}

// TestScanKernels: as many kernels of each direction as a trace has (the same software), and
// the bytes that stay between them and that they need at most, of 16384 tokens of 64 heads:
// 269.0 MB kept and 1765.8 MB at most in the backward pass, beyond what was there.
func TestScanKernels(t *testing.T) {
	s := tape.ScanShape{Batch: 2, Sequence: 8192, Heads: 64, HeadDim: 64, Groups: 8, State: 128, Chunk: 128}
	forward, backward := scanned(s, true)
	count := func(ops []tape.Op, prims ...string) (n int) {
		for i := range ops {
			for _, p := range prims {
				if ops[i].Prim == p {
					n++
				}
			}
		}
		return n
	}
	require.Equal(t, 6, count(forward, "scan"))
	require.Equal(t, 16, count(backward, "scan_backward"))
	require.Equal(t, 3, count(backward, "scan_sum"))
	gated, _ := scanned(s, false)
	require.Equal(t, 6, count(gated, "scan"), "which gates besides")
	require.Zero(t, count(gated, "scan_norm"))
}

// TestScanElsewhere: on an H200, whose memory is 1.43 times as fast as an H100's, kernels of a mixer
// that hand states on and normalise take less, those that compute do not: all of a layer but sums of
// partial gradients in traces of whole steps (Granite 4.0 H Micro, ten layers of H Tiny and six of Bamba,
// mamba_ssm @e9594ce1c732, causal-conv1d 1.6.1, PyTorch 2.11, Triton 3.6, 2026-11-29), in us.
func TestScanElsewhere(t *testing.T) {
	timer, _ := timer(t, "h200-sxm")
	var off float64
	shapes := []struct {
		s    tape.ScanShape
		want float64
	}{
		{tape.ScanShape{Batch: 4, Sequence: 2048, Heads: 64, HeadDim: 64, Groups: 1, State: 128, Chunk: 256}, 1807},
		{tape.ScanShape{Batch: 4, Sequence: 4096, Heads: 48, HeadDim: 64, Groups: 1, State: 128, Chunk: 256}, 2538},
		{tape.ScanShape{Batch: 2, Sequence: 4096, Heads: 128, HeadDim: 64, Groups: 1, State: 128, Chunk: 256}, 3552},
	}
	for _, c := range shapes {
		forward, backward := scanned(c.s, true)
		kernels := slices.DeleteFunc(slices.Concat(forward, backward), func(o tape.Op) bool { return o.Class != tape.Scan || o.Prim == "scan_sum" })
		off += offBy(t, timer, kernels, c.want, c.s)
	}
	require.Less(t, off/float64(len(shapes)), 0.05)
}

// TestBareConvolution: convolutions of LFM2-1.2B that nothing activates, of 16384 tokens of 2048 channels
// (the same software, at 1980 MHz), forward and backward.
func TestBareConvolution(t *testing.T) {
	timer, _ := timer(t, "h200-sxm")
	p := tape.New()
	x := p.Input(tape.BF16, true, 4, 4096, 2048)
	parts := sections(p, p.ConvolveBare(x, p.Param(0, tape.BF16, true, 2048, 1, 3), nil), tape.BF16)
	for i, want := range []float64{39, 76} {
		for _, o := range parts[i].Ops {
			if o.Class == tape.Scan {
				require.InEpsilon(t, want, float64(timer.Time(&o))*1e6, 0.05)
			}
		}
	}
}
