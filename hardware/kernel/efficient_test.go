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
