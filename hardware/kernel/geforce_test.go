package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestGeForceProducts: TFLOP/s of single products by cuBLAS in 16 bits (cloudrift-ai/emmy
// goldens/rtx4090_sm89.yaml @1f500fe3 and rtx5090_sm120.yaml @0f77e4ba; main-horse.github.io
// 5090-mm-perf: the one with 1280 inputs). Loops of seconds reach 8 % less or more.
func TestGeForceProducts(t *testing.T) {
	for _, c := range []struct {
		gpu     string
		m, n, k int64
		tflops  float64
	}{
		{"rtx-4090", 1024, 1024, 1024, 118.6},
		{"rtx-4090", 2048, 2048, 2048, 149.1},
		{"rtx-4090", 4096, 4096, 4096, 167.1},
		{"rtx-4090", 512, 4096, 4096, 144.4},
		{"rtx-4090", 512, 12288, 4096, 157.1},
		{"rtx-4090", 512, 28672, 4096, 166.8},
		{"rtx-4090", 512, 4096, 14336, 155.0},
		{"rtx-5090", 2048, 2048, 2048, 174.7},
		{"rtx-5090", 4096, 4096, 4096, 214.4},
		{"rtx-5090", 512, 4096, 4096, 180.4},
		{"rtx-5090", 512, 12288, 4096, 205.7},
		{"rtx-5090", 512, 28672, 4096, 215.6},
		{"rtx-5090", 16384, 8192, 1280, 224.3},
	} {
		x, _ := timer(t, c.gpu)
		o := GEMM(tape.LayoutForward, tape.BF16, c.m, c.n, c.k)
		require.InEpsilon(t, c.tflops, 2e-12*float64(c.m*c.n*c.k)/float64(x.Time(&o)), 0.08, "%v", c)
	}
}

// TestGeForceAttention: TFLOP/s of FlashAttention 2 on an RTX 4090, sequences of 2048, as its
// benchmark counts them (apache/tvm tl_doc/flash_perf.md), taken as 16,384 tokens in heads of
// 2048 elements in all; backward with the two kernels around it.
func TestGeForceAttention(t *testing.T) {
	x, _ := timer(t, "rtx-4090")
	const tokens, sequences, hidden = 2048, 8, 2048
	for _, c := range []struct {
		width            int64
		causal, backward bool
		tflops           float64
	}{
		{64, false, false, 168.91},
		{128, false, false, 169.28},
		{256, false, false, 156.15},
		{64, true, false, 142.23},
		{128, true, false, 151.19},
		{256, true, false, 144.12},
		{64, false, true, 124.81},
		{128, false, true, 124.57},
		{64, true, true, 96.53},
		{128, true, true, 99.23},
	} {
		heads := hidden / c.width
		o := Attention(tape.BF16, tape.AttentionShape{Batch: sequences, Heads: heads, KVHeads: heads, Queries: tokens, Keys: tokens, QKDim: c.width, VDim: c.width, Causal: c.causal, Backward: c.backward})
		flops, took := 4e-12*sequences*hidden*tokens*tokens, x.Time(&o)
		if c.causal {
			flops /= 2
		}
		if c.backward {
			flops *= 2.5
			const n = sequences * tokens * hidden
			for _, each := range []units.Bytes{8, 6} { // products with the output, and what is cast
				took += x.Time(&tape.Op{Class: tape.FusedReduce, DType: tape.BF16, Elements: n, Bytes: each * n, Count: 1})
			}
		}
		require.InEpsilon(t, c.tflops, flops/float64(took), 0.03, "%v", c)
	}
}
