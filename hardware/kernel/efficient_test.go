package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// TestEfficientAttention: PyTorch's memory-efficient kernels of heads of 64 and 128, in us. H100: pytorch pull 137036, comment
// of 2024-10-29 (noop, causal and sliding_window, which has a mask). A100: facebookresearch/xformers issue 712 (CUDA 11.8,
// forward), NVIDIA/cutlass pull 992 (v3, backward).
func TestEfficientAttention(t *testing.T) {
	for _, c := range []struct {
		gpu                         string
		batch, heads, tokens, width int64
		causal, masked, backward    bool
		took                        float64
	}{
		{"h100-sxm", 4, 16, 16384, 64, false, false, false, 31588},
		{"h100-sxm", 4, 16, 16384, 64, false, false, true, 105106},
		{"h100-sxm", 4, 16, 16384, 64, true, false, false, 16291},
		{"h100-sxm", 4, 16, 16384, 64, true, false, true, 55505},
		{"h100-sxm", 4, 16, 16384, 64, false, true, false, 47664},
		{"h100-sxm", 4, 16, 16384, 64, false, true, true, 116763},
		{"a100-80g-sxm", 2, 8, 8192, 128, false, false, false, 5256},
		{"a100-80g-sxm", 1, 8, 4096, 128, false, false, false, 728},
		{"a100-80g-sxm", 16, 16, 1024, 128, false, false, false, 1373},
		{"a100-80g-sxm", 16, 16, 1024, 64, false, false, false, 838},
		{"a100-80g-sxm", 8, 20, 2048, 128, false, false, true, 10063},
		{"a100-80g-sxm", 1, 8, 4096, 128, false, false, true, 2386},
		{"a100-80g-sxm", 2, 8, 4096, 128, false, true, true, 4333},
	} {
		x, _ := timer(t, c.gpu)
		o := Attention(tape.BF16, tape.AttentionShape{Batch: c.batch, Heads: c.heads, KVHeads: c.heads, Queries: c.tokens, Keys: c.tokens, QKDim: c.width, VDim: c.width, Causal: c.causal, Backward: c.backward, Flavour: "efficient"})
		o.Attn.Masked = c.masked
		require.InEpsilon(t, c.took, float64(x.Time(&o))*1e6, 0.1, "%+v", c)
	}
	// Without room for the gradient's kernel of 128 the next takes its place; heads of 96 run as 128.
	l40s, _ := timer(t, "l40s")
	took := func(flavour string, width int64) float64 {
		o := Attention(tape.BF16, tape.AttentionShape{Batch: 4, Heads: 16, KVHeads: 16, Queries: 4096, Keys: 4096, QKDim: width, VDim: width, Backward: true, Flavour: flavour})
		return float64(l40s.Time(&o))
	}
	require.Greater(t, took("efficient-small", 128), 3*took("efficient", 128))
	require.InEpsilon(t, took("efficient", 64), took("efficient-small", 64), 1e-9)
	require.InEpsilon(t, took("efficient", 96), took("efficient", 128), 1e-9)
}

// TestKeptSums: where L2 holds what the gradient's kernel of narrow blocks sums up it takes less: 28 layers of 16 heads of 2048 tokens on an RTX 4090
// some 29.5 ms (by a step's difference to FlashAttention's, infrabench_08_single), where memory does 2.65 times as long.
func TestKeptSums(t *testing.T) {
	x, _ := timer(t, "rtx-4090")
	took := func(heads, tokens, width int64) float64 {
		o := Attention(tape.BF16, tape.AttentionShape{Batch: 1, Heads: heads, KVHeads: heads, Queries: tokens, Keys: tokens, QKDim: width, VDim: width, Causal: true, Backward: true, Flavour: "efficient-small"})
		return float64(x.Time(&o))
	}
	require.InEpsilon(t, 29.5e-3, 28*took(16, 2048, 128), 0.05)
	longer := func(width int64) float64 { return took(128, 8192, width) / took(16, 2048, width) / (8 * 16) }
	require.InEpsilon(t, 2.65, longer(128)/longer(64), 0.05)
}

// TestEfficientDropout: PyTorch's memory-efficient kernels in 16 and 32 bits without dropout and with 0.1, forward and backward, in us
// (H200, PyTorch 2.11, torch.profiler, 2026-11-30). What dropout adds goes by the width.
func TestEfficientDropout(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	for _, c := range []struct {
		dtype                       tape.DType
		batch, heads, tokens, width int64
		causal                      bool
		took                        [4]float64
	}{
		{tape.BF16, 2, 32, 2048, 128, false, [4]float64{807.8, 1318.5, 2528.6, 4284.4}},
		{tape.BF16, 2, 32, 2048, 128, true, [4]float64{479.3, 750.7, 1545, 2573.5}},
		{tape.BF16, 4, 8, 1024, 256, false, [4]float64{228.1, 284.4, 2712.7, 2697.3}},
		{tape.BF16, 4, 8, 1024, 256, true, [4]float64{174.6, 215.4, 1906.5, 1941.5}},
		{tape.BF16, 4, 16, 2048, 64, false, [4]float64{546.1, 1065.6, 1667.9, 2448.7}},
		{tape.BF16, 4, 16, 2048, 64, true, [4]float64{336.6, 642.1, 1011.6, 1456.8}},
		{tape.BF16, 8, 16, 1024, 64, false, [4]float64{282.9, 544.2, 855.6, 1244.8}},
		{tape.BF16, 8, 16, 1024, 64, true, [4]float64{179.7, 337.2, 530.5, 763.7}},
		{tape.BF16, 8, 16, 1024, 128, false, [4]float64{417.3, 669.4, 1301.2, 2178.6}},
		{tape.BF16, 8, 16, 1024, 128, true, [4]float64{260.5, 403.9, 842.6, 1392.7}},
		{tape.BF16, 32, 12, 512, 64, false, [4]float64{219.2, 412.4, 623.6, 915.6}},
		{tape.BF16, 32, 12, 512, 64, true, [4]float64{145.5, 258, 413.9, 593.5}},
		{tape.F32, 2, 32, 2048, 128, false, [4]float64{3049.1, 3771.3, 9266.2, 10229.6}},
		{tape.F32, 2, 32, 2048, 128, true, [4]float64{1681.9, 2067.6, 5119.7, 5623.8}},
		{tape.F32, 4, 8, 1024, 256, false, [4]float64{795.6, 877.3, 2425.6, 2675}},
		{tape.F32, 4, 8, 1024, 256, true, [4]float64{542.9, 602.5, 1641.7, 1782.6}},
		{tape.F32, 4, 16, 2048, 64, false, [4]float64{2010.8, 2684.9, 4844.5, 5633.8}},
		{tape.F32, 4, 16, 2048, 64, true, [4]float64{1176.2, 1544.6, 2730.6, 3186.4}},
		{tape.F32, 8, 16, 1024, 64, false, [4]float64{1027.3, 1358.7, 2417.8, 2819.3}},
		{tape.F32, 8, 16, 1024, 64, true, [4]float64{612.3, 812.7, 1437.4, 1647.8}},
		{tape.F32, 8, 16, 1024, 128, false, [4]float64{1561.1, 1925.2, 4682, 5166.1}},
		{tape.F32, 8, 16, 1024, 128, true, [4]float64{907.4, 1104.2, 2774.9, 3052.8}},
		{tape.F32, 32, 12, 512, 64, false, [4]float64{790.4, 1021.4, 1819.7, 2113.2}},
		{tape.F32, 32, 12, 512, 64, true, [4]float64{491.5, 624, 1123.2, 1292.2}},
	} {
		var times [4]float64
		for i := range times {
			o := Attention(c.dtype, tape.AttentionShape{Batch: c.batch, Heads: c.heads, KVHeads: c.heads, Queries: c.tokens, Keys: c.tokens, QKDim: c.width, VDim: c.width, Causal: c.causal, Backward: i > 1})
			o.Attn.Dropout = i%2 == 1
			if c.dtype != tape.F32 {
				o.Attn.Flavour = "efficient"
			}
			times[i] = float64(h200.Time(&o)) * 1e6
		}
		for i := 0; i < 4; i += 2 {
			require.InEpsilon(t, c.took[i+1]/c.took[i], times[i+1]/times[i], 0.075, "%+v", c)
		}
		if c.dtype == tape.F32 {
			for i, took := range c.took {
				require.InEpsilon(t, took, times[i], 0.13, "%+v, %d", c, i)
			}
		}
	}
}
