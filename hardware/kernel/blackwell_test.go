package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// requireAttention holds the forward kernel, and the backward one with those around it,
// against what they took, in ms.
func requireAttention(t *testing.T, machine string, s tape.AttentionShape, forward, backward, within float64) {
	t.Helper()
	timer, _ := timer(t, machine)
	for _, want := range []float64{forward, backward} {
		o := Attention(tape.BF16, s)
		got := timer.Time(&o)
		for _, o := range AroundAttention(tape.BF16, s) {
			if s.Backward {
				got += timer.Time(&o)
			}
		}
		require.InEpsilon(t, want, float64(got/units.Seconds(1e-3)), within, "%s, %d heads of width %d, %d tokens, window %d, backward %t", machine, s.Heads, s.QKDim, s.Queries, s.Window, s.Backward)
		s.Backward = true
	}
}

// TestBlackwellAttention: causal attention of two sequences with cuDNN 9.22
// (NVIDIA/cudnn-frontend @50c8aeb benchmark/sdpa_benchmark_training/results), in ms.
func TestBlackwellAttention(t *testing.T) {
	for _, c := range []struct {
		machine           string
		heads, kv, qk     int64
		tokens            int64
		forward, backward float64
	}{
		{"gb200-nvl72", 64, 8, 128, 2048, 0.125, 0.389},
		{"gb200-nvl72", 64, 8, 128, 4096, 0.391, 1.198},
		{"gb200-nvl72", 64, 8, 128, 8192, 1.397, 4.127},
		{"gb200-nvl72", 128, 128, 192, 4096, 0.977, 3.383},
		{"gb200-nvl72", 64, 64, 192, 8192, 1.733, 6.005},
		{"gb300-nvl72", 64, 8, 128, 2048, 0.100, 0.356},
		{"gb300-nvl72", 64, 8, 128, 4096, 0.323, 1.101},
		{"gb300-nvl72", 64, 8, 128, 8192, 1.185, 3.832},
		{"gb300-nvl72", 128, 128, 192, 4096, 0.864, 3.127},
		{"gb300-nvl72", 64, 64, 192, 8192, 1.466, 5.466},
	} {
		s := tape.AttentionShape{Batch: 2, Heads: c.heads, KVHeads: c.kv, Queries: c.tokens, QKDim: c.qk, VDim: 128, Causal: true}
		requireAttention(t, c.machine, s, c.forward, c.backward, 0.08)
	}
}

// TestNarrowAttention: two causal sequences in 8 bits with cuDNN 9.22 (same source, of 2026-04-24),
// in ms: the backward kernel skips nothing outside a window.
func TestNarrowAttention(t *testing.T) {
	for _, c := range []struct {
		machine, dtype            string
		heads, kv, qk, v, window  int64
		tokens                    int64
		forward, backward, within float64
	}{
		{"gb200-nvl72", "mxfp8", 64, 8, 128, 128, 0, 4096, 0.326, 1.305, 0.03},
		{"gb200-nvl72", "mxfp8", 64, 8, 128, 128, 0, 16384, 4.4, 15.315, 0.03},
		{"gb200-nvl72", "mxfp8", 128, 128, 192, 128, 0, 4096, 0.714, 2.62, 0.05},
		{"gb200-nvl72", "mxfp8", 64, 64, 192, 128, 0, 8192, 1.254, 4.546, 0.05},
		{"gb200-nvl72", "mxfp8", 128, 128, 64, 64, 128, 4096, 0.21, 2.08, 0.15},
		{"gb200-nvl72", "mxfp8", 128, 128, 64, 64, 128, 16384, 0.826, 27.94, 0.15},
		{"gb200-nvl72", "fp8", 128, 128, 192, 128, 0, 4096, 0.656, 2.112, 0.05},
		{"gb300-nvl72", "mxfp8", 64, 8, 128, 128, 0, 4096, 0.242, 1.203, 0.03},
		{"gb300-nvl72", "mxfp8", 128, 128, 192, 128, 0, 4096, 0.546, 2.348, 0.06},
		{"gb300-nvl72", "mxfp8", 64, 64, 192, 128, 0, 16384, 3.613, 14.766, 0.06},
		{"gb300-nvl72", "mxfp8", 128, 128, 64, 64, 128, 4096, 0.175, 1.871, 0.15},
		{"gb300-nvl72", "fp8", 64, 8, 128, 128, 0, 8192, 0.759, 3.087, 0.03},
	} {
		s := tape.AttentionShape{Batch: 2, Heads: c.heads, KVHeads: c.kv, Queries: c.tokens, QKDim: c.qk, VDim: c.v, Window: c.window, Causal: true, Flavour: c.dtype}
		requireAttention(t, c.machine, s, c.forward, c.backward, c.within)
	}
}

// TestNarrowAttentionOnHopper: one causal sequence of 64 heads of width 128 in 8 bits with
// cuDNN 9.19 on an H200 (same source, of 2026-02-27), in ms. The forward kernel gains a third,
// the backward one, which reads twice the copies, nothing: 6.392 ms at 8192 tokens where 16 bits
// take 5.083.
func TestNarrowAttentionOnHopper(t *testing.T) {
	for _, c := range []struct {
		tokens            int64
		forward, backward float64
	}{{2048, 0.098, 0.437}, {4096, 0.322, 1.459}, {8192, 1.141, 6.392}} {
		s := tape.AttentionShape{Batch: 1, Heads: 64, KVHeads: 8, Queries: c.tokens, QKDim: 128, VDim: 128, Causal: true, Flavour: "fp8"}
		requireAttention(t, "h200-sxm", s, c.forward, c.backward, 0.09)
	}
}

// TestWindowedAttention: sliding windows at width 64 over two sequences with cuDNN 9.19 (1024
// keys) and 9.24 (128 keys; NVIDIA/cudnn-frontend benchmark/sdpa_benchmark_training/results, gpt_oss
// of 2026-02-26 and 2026-06-15), in ms: blocks at the far edge of the window are computed whole.
func TestWindowedAttention(t *testing.T) {
	within := map[string]float64{"gb200-nvl72": 0.13, "gb300-nvl72": 0.13, "h200-sxm": 0.03}
	for _, c := range []struct {
		machine           string
		heads, kv, window int64
		tokens            int64
		forward, backward float64
	}{
		{"gb200-nvl72", 128, 128, 128, 4096, 0.210, 0.455},
		{"gb200-nvl72", 128, 128, 128, 32768, 1.634, 3.623},
		{"gb200-nvl72", 64, 8, 1024, 4096, 0.209, 0.487},
		{"gb200-nvl72", 64, 8, 1024, 32768, 1.711, 4.099},
		{"gb300-nvl72", 128, 128, 128, 4096, 0.193, 0.439},
		{"gb300-nvl72", 128, 128, 128, 32768, 1.503, 3.426},
		{"gb300-nvl72", 64, 8, 1024, 4096, 0.178, 0.472},
		{"gb300-nvl72", 64, 8, 1024, 32768, 1.448, 3.930},
		{"h200-sxm", 64, 8, 1024, 2048, 0.166, 0.488},
		{"h200-sxm", 64, 8, 1024, 4096, 0.358, 1.042},
		{"h200-sxm", 64, 8, 1024, 16384, 1.499, 4.392},
		{"h200-sxm", 64, 8, 1024, 32768, 3.021, 9.045},
	} {
		s := tape.AttentionShape{Batch: 2, Heads: c.heads, KVHeads: c.kv, Queries: c.tokens, QKDim: 64, VDim: 64, Causal: true, Window: c.window}
		requireAttention(t, c.machine, s, c.forward, c.backward, within[c.machine])
	}
}

// TestAttentionOfFewHeads: the forward kernel over 4096 tokens against that of 32
// heads, in loops on a B200 (MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json,
// sdp_fwd and sdp_bwd): few heads cannot share a block among SMs.
func TestAttentionOfFewHeads(t *testing.T) {
	timer, _ := timer(t, "b200-sxm")
	at := func(heads int64, backward bool) float64 {
		o := Attention(tape.BF16, tape.AttentionShape{Batch: 1, Heads: heads, KVHeads: heads / 4, Queries: 4096, QKDim: 128, VDim: 128, Causal: true, Backward: backward})
		return float64(timer.Time(&o))
	}
	for _, c := range []struct {
		heads             int64
		forward, backward float64 // of the time of 32 heads
	}{
		{4, 91.0 / 167, 110.0 / 384},
		{8, 98.5 / 167, 116.0 / 384},
		{16, 106.0 / 167, 202.0 / 384},
	} {
		require.InEpsilon(t, c.forward, at(c.heads, false)/at(32, false), 0.1, "%d heads", c.heads)
		require.InEpsilon(t, c.backward, at(c.heads, true)/at(32, true), 0.2, "%d heads, backward", c.heads)
	}
}

// TestBlockScaledGEMM: the 12 products of a layer 4096 wide over 15872 tokens on a B300,
// operands cast before, in fp8 with one scale, MXFP8 and NVFP4, 6.812, 7.161 and 3.764 ms
// (Transformer Engine docs/examples/gemm_profiling), and NVFP4 over MXFP8 on a B200 at
// 8192 and 32768 cubed (triton-lang/triton pull 9697).
func TestBlockScaledGEMM(t *testing.T) {
	time := func(machine string, d tape.DType, shapes ...[3]int64) float64 {
		timer, _ := timer(t, machine)
		sum := 0.0
		for _, s := range shapes {
			for _, layout := range []tape.Layout{tape.LayoutForward, tape.LayoutDgrad, tape.LayoutWgrad} {
				o := GEMM(layout, d, s[0], s[1], s[2])
				sum += float64(timer.Time(&o))
			}
		}
		return sum
	}
	layer := [][3]int64{{15872, 12288, 4096}, {15872, 4096, 4096}, {15872, 16384, 4096}, {15872, 4096, 16384}}
	one := time("b300-sxm", tape.FP8, layer...)
	require.InEpsilon(t, 7.161/6.812, time("b300-sxm", tape.MXFP8, layer...)/one, 0.02)
	require.InEpsilon(t, 3.764/6.812, time("b300-sxm", tape.FP4, layer...)/one, 0.02)
	for cube, faster := range map[int64]float64{8192: 5590. / 2895, 32768: 4933. / 2587} {
		shape := [3]int64{cube, cube, cube}
		require.InEpsilon(t, faster, time("b200-sxm", tape.MXFP8, shape)/time("b200-sxm", tape.FP4, shape), 0.03)
	}
	require.Equal(t, time("h100-sxm", tape.FP8, layer...), time("h100-sxm", tape.MXFP8, layer...), "nobody has measured it")
}

// TestBlackwellVectorProducts: cuBLAS in fp32 without TF32 on a B200, 55 to 57 TFLOP/s of 384 and
// 919 rows by 18,432 columns from 3072 (stored text 71241304405, 2026-10).
func TestBlackwellVectorProducts(t *testing.T) {
	x, _ := timer(t, "b200-sxm")
	for _, rows := range []int64{384, 919} {
		o := GEMM(tape.LayoutForward, tape.F32, rows, 18432, 3072)
		require.InEpsilon(t, 56, 2e-12*float64(rows*18432*3072)/float64(x.Time(&o)), 0.08, "%d", rows)
	}
}
