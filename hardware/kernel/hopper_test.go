package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestSinks: gradients of learned sinks, of 64 heads of 4096 tokens at width 64 and of 32 at 128,
// on an H100 (Transformer Engine 2.9, cuDNN 9.19, 2026-11-23).
func TestSinks(t *testing.T) {
	timer, _ := timer(t, "h100-sxm")
	for _, c := range []struct {
		batch, heads, width int64
		longer              float64 // us
	}{{1, 64, 64, 367}, {4, 64, 64, 1690}, {1, 32, 128, 178}} {
		s := tape.AttentionShape{Batch: c.batch, Heads: c.heads, KVHeads: 8, Queries: 4096, Keys: 4096, QKDim: c.width, VDim: c.width, Causal: true, Backward: true}
		without := Attention(tape.BF16, s)
		s.Sinks = true
		with := Attention(tape.BF16, s)
		require.InEpsilon(t, c.longer, float64((timer.Time(&with)-timer.Time(&without))/units.Seconds(1e-6)), 0.12, "%v", c) // 1.36 to 1.61 ns
	}
}

// TestBlocksOf128: layers of an H100 in 8 bits with scales of blocks against one scale, forward,
// input gradient and weight gradient (Transformer Engine 2.9, 2026-11-23), in us.
func TestBlocksOf128(t *testing.T) {
	timer, _ := timer(t, "h100-sxm")
	for _, c := range []struct {
		m, n, k    int64
		one, block [3]float64
	}{
		{4096, 4096, 4096, [3]float64{97.95, 102.4, 97.99}, [3]float64{112.1, 112.48, 135.91}},
		{4096, 8192, 8192, [3]float64{357.16, 373.48, 388.39}, [3]float64{414.76, 415.43, 526.73}},
		{4096, 18432, 7168, [3]float64{715.66, 758.06, 750.67}, [3]float64{804.08, 814.77, 1026.97}},
		{4096, 7168, 2048, [3]float64{92.22, 88.67, 87.65}, [3]float64{105.57, 96.45, 121.51}},
		{2048, 4096, 7168, [3]float64{82.72, 89.16, 93.83}, [3]float64{96.13, 98.05, 132.45}},
	} {
		for i, layout := range []tape.Layout{tape.LayoutForward, tape.LayoutDgrad, tape.LayoutWgrad} {
			one, block := GEMM(layout, tape.FP8, c.m, c.n, c.k), GEMM(layout, tape.FP8Block, c.m, c.n, c.k)
			require.InEpsilon(t, c.one[i], float64(timer.Time(&one)/units.Seconds(1e-6)), 0.12, "%v, %d", c, i)
			require.InEpsilon(t, c.block[i], float64(timer.Time(&block)/units.Seconds(1e-6)), 0.12, "%v, %d", c, i)
		}
	}
}

// TestRoundedProducts: products of fp32 in tf32 on an H200 (PyTorch 2.11, CUDA 13.0, CUPTI, 2026-11-27),
// forward, input gradient and weight gradient, in us; m need not be even.
func TestRoundedProducts(t *testing.T) {
	timer, _ := timer(t, "h200-sxm")
	for _, c := range []struct {
		m, n, k  int64
		measured [3]float64
	}{
		{256, 10752, 1536, [3]float64{38.5, 48.4, 54.8}},
		{1024, 10752, 1536, [3]float64{98.5, 110.2, 147.8}},
		{3001, 10752, 1536, [3]float64{272.3, 284.9, 423.5}},
		{1024, 1536, 5376, [3]float64{59.2, 62.3, 79.6}},
		{8192, 1536, 5376, [3]float64{326.0, 410.4, 552.8}},
		{1024, 14336, 4096, [3]float64{325.2, 288.0, 504.5}},
		{3001, 3072, 3072, [3]float64{158.5, 179.0, 247.0}},
		{1024, 2048, 1024, [3]float64{16.8, 21.8, 28.0}},
		// 2026-11-30: the tiles of these weight gradients fill no wave
		{16384, 3072, 768, [3]float64{216.0, 239.7, 374.5}},
		{16384, 768, 3072, [3]float64{211.2, 248.5, 377.9}},
		{16384, 1536, 1536, [3]float64{210.4, 248.7, 386.9}},
		{16384, 4864, 896, [3]float64{380.3, 455.9, 632.8}},
		{4096, 768, 3072, [3]float64{68.9, 66.8, 109.0}},
	} {
		for i, layout := range []tape.Layout{tape.LayoutForward, tape.LayoutDgrad, tape.LayoutWgrad} {
			o := GEMM(layout, tape.TF32, c.m, c.n, c.k)
			require.InEpsilon(t, c.measured[i], float64(timer.Time(&o)/units.Seconds(1e-6)), 0.2, "%v, %s", c, layout)
		}
	}
}

// before prices by the libraries of a release.
func before(t *testing.T, p *hardware.Profile, release string) (*Timer, units.Release) {
	var r units.Release
	require.NoError(t, r.UnmarshalText([]byte(release)))
	older, err := New(p.At(r))
	require.NoError(t, err)
	return older, r
}

// TestOlderLibrary: the twelve products of a layer by cuBLAS 12.4.5 over those by 13.1.0 on
// one H100, bursts at the full clock (2026-11-24); in loops at the power limit 1.012, 1.033,
// 1.042 and 1.052, so that both draw as much while they run.
func TestOlderLibrary(t *testing.T) {
	fresh, p := timer(t, "h100-sxm")
	older, old := before(t, p, "24.04")
	for _, c := range []struct {
		model  string
		tokens int64
		shapes [4][2]int64 // outputs, inputs
		want   float64
	}{
		{"MPT 7B", 16384, [4][2]int64{{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384}}, 1.015},
		{"MPT 1B", 28672, [4][2]int64{{6144, 2048}, {2048, 2048}, {8192, 2048}, {2048, 8192}}, 1.033},
		{"Llama-3 8B", 8192, [4][2]int64{{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}, 1.044},
		{"Llama 70B, 8 tensor ranks", 8192, [4][2]int64{{1280, 8192}, {8192, 1024}, {7168, 8192}, {8192, 3584}}, 1.048},
	} {
		var times [2]float64
		for _, s := range c.shapes {
			for _, l := range []tape.Layout{tape.LayoutForward, tape.LayoutDgrad, tape.LayoutWgrad} {
				o := GEMM(l, tape.BF16, c.tokens, s[0], s[1])
				times[0] += float64(fresh.Time(&o))
				times[1] += float64(older.Time(&o))
				require.InDelta(t, fresh.Utilization(&o), older.Utilization(&o), 0.1, "it draws as much while it runs")
			}
		}
		require.InEpsilon(t, c.want, times[1]/times[0], 0.035, c.model)
	}
	require.Same(t, p, p.At(0), "no release: the newest")
	require.NotEqual(t, p.Laws.GEMM.Rate, p.At(old).Laws.GEMM.Rate, "the profile itself is left as it was")
	require.Equal(t, p.Laws.GEMM.Rate["fp8"], p.At(old + 5).Laws.GEMM.Rate["fp8"], "8 bits went faster before 16 did")
}

// TestOlderAttention: the FlashAttention 3 paper's rates of cuDNN (2024-07, figures 5 and 6) in TFLOP/s,
// 16,384 tokens of an H100 in sequences, and cuDNN 9.19's in the same loops (2026-11-27).
// FlashAttention 2, the same in both, went 1.02 to 1.06 times as fast there.
func TestOlderAttention(t *testing.T) {
	fresh, p := timer(t, "h100-sxm")
	older, _ := before(t, p, "24.07")
	const control = 1.04
	for _, c := range []struct {
		width, sequence  int64
		causal, backward bool
		paper, today     float64
	}{
		{128, 2048, true, false, 484, 514}, {128, 8192, true, false, 529, 580}, {128, 16384, true, false, 539, 592}, {128, 4096, false, false, 609, 638}, {128, 16384, false, false, 595, 617},
		{64, 2048, false, false, 395, 465}, {64, 8192, false, false, 412, 487}, {256, 2048, true, false, 450, 520}, {256, 8192, true, false, 497, 606},
		{128, 2048, false, true, 465, 489}, {128, 16384, false, true, 516, 533}, {64, 2048, false, true, 395, 416},
	} {
		s := tape.AttentionShape{Batch: 16384 / c.sequence, Heads: 2048 / c.width, KVHeads: 2048 / c.width, Queries: c.sequence, Keys: c.sequence, QKDim: c.width, VDim: c.width, Causal: c.causal, Backward: c.backward}
		o := Attention(tape.BF16, s)
		require.InEpsilon(t, c.paper/control/c.today, float64(fresh.Time(&o)/older.Time(&o)), 0.06, "%+v", c)
	}
	later, _ := before(t, p, "24.10")
	o := Attention(tape.BF16, tape.AttentionShape{Batch: 1, Heads: 16, KVHeads: 16, Queries: 4096, Keys: 4096, QKDim: 128, VDim: 128, Causal: true})
	require.Equal(t, fresh.Time(&o), later.Time(&o))
}

// TestAttentionBlocks: 16 heads of sequences short and long, with all keys and causal, of
// widths that kernels are made for and others, which run as the next wider one does; from cold
// caches on an H100 (cuDNN 9 of PyTorch 2.11, 2026-11-26), in us forward and backward.
func TestAttentionBlocks(t *testing.T) {
	h100, _ := timer(t, "h100-sxm")
	for _, c := range []struct {
		batch, tokens, width int64
		causal               bool
		forward, backward    float64
	}{
		{1, 64, 64, false, 4.9, 5.8},
		{1, 256, 64, true, 6.9, 11.6},
		{1, 1024, 64, false, 14.3, 28.4},
		{1, 2048, 64, true, 37.9, 88.6},
		{4, 128, 64, false, 6.0, 7.8},
		{4, 512, 64, true, 15.7, 33.3},
		{4, 1024, 64, false, 44.2, 111.3},
		{32, 256, 64, false, 31.2, 92.6},
		{32, 1024, 64, true, 201.4, 558.8},
		{1, 512, 72, false, 11.7, 24.0},
		{4, 1024, 72, false, 63.8, 173.2},
		{32, 256, 72, false, 48.6, 124.9},
		{32, 1024, 72, false, 438.2, 1277.7},
		{1, 64, 80, false, 5.7, 7.1},
		{4, 2048, 80, true, 136.4, 366.1},
		{32, 512, 80, false, 125.5, 370.2},
		{1, 128, 128, true, 6.6, 10.6},
		{1, 512, 128, false, 11.7, 23.4},
		{4, 256, 128, false, 11.1, 17.5},
		{4, 1024, 128, true, 47.4, 132.1},
		{4, 2048, 128, false, 212.5, 599.0},
		{32, 256, 128, true, 53.7, 140.8},
		{32, 1024, 128, false, 439.6, 1237.4},
		{2, 2048, 112, true, 82.1, 217.5},
		{2, 2048, 192, true, 115.8, 451.8},
		{2, 2048, 256, false, 206.6, 957.1},
	} {
		for i, measured := range []float64{c.forward, c.backward} {
			s := tape.AttentionShape{Batch: c.batch, Heads: 16, KVHeads: 16, Queries: c.tokens, Keys: c.tokens, QKDim: c.width, VDim: c.width, Causal: c.causal, Backward: i == 1}
			o := Attention(tape.BF16, s)
			require.InEpsilon(t, measured, float64(h100.Time(&o))*1e6, 0.2, "%+v", s)
		}
	}
}

// TestShortRows: PyTorch's RMS norms of 64M values of 16 bits and their gradients, in us, by the values of
// a row (2.11, H200, 2026-11-26). A block of threads takes a row, however short it is; kernels that
// take several at once do not know rows.
func TestShortRows(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	for _, c := range []struct{ width, forward, backward float64 }{
		{64, 640, 718}, {96, 431, 486}, {128, 322, 360}, {192, 237, 284}, {256, 180, 216},
	} {
		const n = 1 << 26
		f := tape.Op{Prim: "layer_norm", Class: tape.RMSRows, RowBlocks: true, DType: tape.BF16, N: int64(c.width), Elements: n, Bytes: 4 * n, Count: 1}
		b := tape.Op{Prim: "layer_norm_backward", Class: tape.NormBackward, RowBlocks: true, DType: tape.BF16, N: int64(c.width), Elements: n, Bytes: 6 * n, Count: 1}
		require.InEpsilon(t, c.forward, float64(h200.Time(&f))*1e6, 0.12, "rows of %g", c.width)
		require.InEpsilon(t, c.backward, float64(h200.Time(&b))*1e6, 0.1, "gradients of rows of %g", c.width)
		f.RowBlocks = false
		require.Less(t, float64(h200.Time(&f))*1e6, 130.0)
	}
}

// TestBeyondTheCache: kernels of PyTorch on strided values of 16 bits in steps of models with experts
// on two H200 (2.11, traces of 2026-11-27), in us: masks over rows, and products of halves of rows. What
// the second-level cache holds takes up to a fifth less.
func TestBeyondTheCache(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	for _, c := range []struct {
		prim            string
		values, operand units.Bytes // operand: those read and written
		index, us       float64
	}{
		{"masked_fill_", 176e6, 2, 6, 476.7}, {"masked_fill_", 67.1e6, 2, 6, 185.5}, {"masked_fill_", 44e6, 2, 6, 124.2}, {"masked_fill_", 33.6e6, 2, 6, 95.4}, {"masked_fill_", 16.8e6, 2, 6, 43.5},
		{"masked_fill_", 12.6e6, 2, 6, 29.3}, {"mul", 88.1e6, 3, 6, 236.2}, {"mul", 33.6e6, 3, 6, 93.9}, {"mul", 22e6, 3, 6, 62.8},
		{"silu", 88.1e6, 2, 4 + 4, 239}, {"silu", 33.6e6, 2, 4 + 4, 95.3}, {"silu", 22e6, 2, 4 + 4, 63.2}, {"silu", 8.39e6, 2, 4 + 4, 22},
		{"silu_backward", 88.1e6, 3, 6 + 4, 273.6}, {"silu_backward", 33.6e6, 3, 6 + 4, 106.4}, {"silu_backward", 22e6, 3, 6 + 4, 71.5}, {"silu_backward", 8.39e6, 3, 6 + 4, 28.8},
	} {
		o := tape.Op{Prim: c.prim, Class: tape.Strided2, DType: tape.BF16, Elements: float64(c.values), Index: c.index, Bytes: 2 * c.operand * c.values, Count: 1}
		require.InEpsilon(t, c.us, float64(h200.Time(&o))*1e6, 0.13, "%s of %g", c.prim, float64(c.values))
	}
}

// TestRowsInRegisters: Transformer Engine's scaled_masked_softmax of bf16 scores and its gradient on
// an H200 and an H100 (common/fused_softmax, compiled by itself, 2026-11-27), in us, by heads and keys.
func TestRowsInRegisters(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	h100, _ := timer(t, "h100-sxm")
	for _, c := range []struct{ heads, keys, forward, backward, forward100, backward100 float64 }{
		{8, 1024, 15.7, 19.6, 16.6, 22.9}, {8, 2048, 81.1, 63.7, 85.4, 74.3}, {8, 4096, 441.4, 256.7, 456.3, 312.3}, {8, 8192, 3283, 3042, 3493, 3697}, {8, 16384, 21351, 20196, 23516, 22944},
		{32, 512, 16.1, 18.4, 15.2, 23.6}, {32, 1024, 56.8, 59.5, 68.4, 83.5}, {32, 2048, 278.6, 213.8, 325.3, 270.8}, {32, 4096, 1728, 980.6, 1804, 1211}, {32, 8192, 13031, 12044, 13937, 14732},
		{128, 1024, 196.3, 211.2, 246.3, 312.4}, {128, 2048, 1085, 811.6, 1174, 1059}, {128, 4096, 6836, 3888, 7185, 4829},
	} {
		n := c.heads * c.keys * c.keys
		forward := tape.Op{Class: tape.RowHeld, DType: tape.BF16, N: int64(c.keys), Elements: n, Bytes: units.Bytes(4 * n), Count: 1}
		backward := tape.Op{Class: tape.RowHeldBack, DType: tape.BF16, N: int64(c.keys), Elements: n, Bytes: units.Bytes(6 * n), Count: 1}
		for _, x := range []struct {
			op       *tape.Op
			timer    *Timer
			measured float64
			within   float64
		}{{&forward, h200, c.forward, 0.16}, {&backward, h200, c.backward, 0.16}, {&forward, h100, c.forward100, 0.2}, {&backward, h100, c.backward100, 0.27}} {
			require.InEpsilon(t, x.measured, float64(x.timer.Time(x.op))*1e6, x.within, "%s: %g heads of %g keys", x.op.Class, c.heads, c.keys)
		}
	}
}

// TestWideAttention: heads of 512, causal and with a mask of all pairs, by PyTorch's
// memory-efficient kernels on an H100 (PyTorch 2.11, 2026-11-26), in us forward and backward.
// Where no SM has two blocks of 128 keys, what a block takes depends on how many others there
// are, which the law does not know.
func TestWideAttention(t *testing.T) {
	h100, _ := timer(t, "h100-sxm")
	for _, c := range []struct {
		batch, heads, tokens int64
		masked               bool
		forward, backward    float64
	}{
		{1, 8, 2048, false, 401.5, 6550.6},
		{1, 8, 2048, true, 586.5, 8627.7},
		{1, 8, 8192, false, 5087.4, 48030.1},
		{1, 8, 8192, true, 9480.9, 80100.4},
		{4, 8, 512, false, 105.3, 1744.1},
		{4, 8, 512, true, 146.1, 2165.0},
		{4, 8, 2048, false, 1267.8, 12638.7},
		{4, 8, 2048, true, 2286.0, 20468.8},
		{1, 32, 1024, false, 360.9, 4421.1},
		{1, 32, 1024, true, 589.2, 6153.1},
		{1, 32, 4096, false, 4784.9, 41165.3},
		{1, 32, 4096, true, 9396.3, 72395.5},
	} {
		for i, measured := range []float64{c.forward, c.backward} {
			s := tape.AttentionShape{Batch: c.batch, Heads: c.heads, KVHeads: c.heads, Queries: c.tokens, Keys: c.tokens, QKDim: 512, VDim: 512, Causal: true, Backward: i == 1, Flavour: "efficient"}
			o := Attention(tape.BF16, s)
			o.Attn.Masked = c.masked
			within := 0.12
			if i == 1 && c.batch*c.heads*c.tokens/128 < 2*132 {
				within = 0.5
			}
			require.InEpsilon(t, measured, float64(h100.Time(&o))*1e6, within, "%+v", s)
		}
	}
}

// TestFP32Attention: PyTorch's memory-efficient attention in fp32 on an H200 (PyTorch 2.11, 2026-11-28), in us.
func TestFP32Attention(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	for _, c := range []struct {
		batch, heads, tokens, width int64
		causal                      bool
		forward, backward           float64
	}{
		{4, 16, 1024, 64, true, 357, 801},
		{2, 32, 2048, 64, true, 1175, 2733},
		{2, 32, 2048, 64, false, 2012, 4895},
		{1, 8, 8192, 64, true, 2571, 5711},
		{2, 32, 2048, 128, true, 1686, 5123},
		{2, 8, 2048, 128, false, 796, 2356},
		{1, 32, 4096, 128, true, 3251, 9759},
		{8, 32, 512, 128, true, 520, 1597},
		{4, 16, 1024, 96, false, 734, 2181},
		{2, 32, 2048, 256, true, 3443, 10588},
		{1, 8, 8192, 256, true, 7362, 19484},
	} {
		for i, measured := range []float64{c.forward, c.backward} {
			o := Attention(tape.F32, tape.AttentionShape{Batch: c.batch, Heads: c.heads, KVHeads: c.heads, Queries: c.tokens, Keys: c.tokens, QKDim: c.width, VDim: c.width, Causal: c.causal, Backward: i == 1})
			require.InEpsilon(t, measured, float64(h200.Time(&o))*1e6, 0.11, "%+v, %d", c, i)
		}
	}
}

// TestVectorProducts: torch.bmm of fp32 without TF32 on an H200 (PyTorch 2.11, 2026-11-27), in us, by
// rows, columns, K and products: of up to 32 rows all take as long, and what K elements take
// beside a tile's edges grows with it; one row by matrices of 8 to 64 rows goes by another kernel.
func TestVectorProducts(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	for _, c := range [][5]int64{
		{8, 1024, 128, 1024, 269}, {16, 1024, 128, 4096, 1076}, {32, 2048, 128, 1024, 585}, {33, 2048, 128, 1024, 905}, {64, 2048, 128, 1024, 918}, {96, 2048, 128, 1024, 1577}, {128, 2048, 128, 512, 821},
		{16, 2048, 64, 4096, 1150}, {16, 2048, 256, 1024, 1044}, {4, 512, 512, 2048, 1015}, {256, 512, 128, 512, 422}, {512, 512, 512, 64, 352}, {1024, 1024, 128, 64, 414}, {64, 64, 128, 4096, 133}, {128, 128, 64, 4096, 289},
		{1, 2048, 8, 2048, 62}, {1, 6144, 8, 6144, 522}, {1, 1024, 16, 1024, 27}, {1, 1024, 16, 4096, 102}, {1, 2048, 24, 4096, 278}, {1, 2048, 32, 2048, 167}, {1, 3072, 48, 3072, 541}, {1, 4096, 64, 4096, 1296},
	} {
		m, n, k, batch := c[0], c[1], c[2], c[3]
		o := tape.Op{Class: tape.GEMM, DType: tape.F32, M: m, N: n, K: k, Batch: batch, Bytes: units.Bytes(4 * batch * (m*k + k*n + m*n)), Count: 1}
		within := 0.13
		if m == 1 {
			within = 0.21
		}
		require.InEpsilon(t, c[4], float64(h200.Time(&o))*1e6, within, "%d of %d×%d×%d", batch, m, n, k)
	}
}

// TestCopiedForQueries: keys of all heads copied turned for every query, by sequences, tokens and width,
// in us (torch.matmul with expanded keys on an H200, two of steps of an H100; PyTorch 2.11, 2026-11-27).
func TestCopiedForQueries(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	h100, _ := timer(t, "h100-sxm")
	for _, c := range []struct {
		timer                *Timer
		dtype                tape.DType
		batch, tokens, width float64
		measured             float64
	}{
		{h200, tape.F32, 2, 1024, 128, 1570}, {h200, tape.F32, 4, 1024, 64, 1186}, {h200, tape.F32, 2, 2048, 64, 3157}, {h200, tape.F32, 8, 1024, 128, 6281}, {h200, tape.F32, 2, 3072, 64, 7644},
		{h200, tape.BF16, 2, 1024, 128, 1157}, {h200, tape.BF16, 4, 1024, 64, 1101}, {h200, tape.BF16, 2, 2048, 64, 2325}, {h200, tape.BF16, 8, 1024, 128, 4628},
		{h100, tape.F32, 4, 2048, 128, 15344}, {h100, tape.BF16, 4, 2048, 128, 14368},
	} {
		n, size := c.batch*c.tokens*c.tokens*c.width, float64(c.dtype.Size())
		o := tape.Op{Class: tape.TransposedAgain, DType: c.dtype, Elements: n, N: int64(c.tokens * c.width * size), Bytes: units.Bytes(n * size), Count: 1}
		require.InEpsilon(t, c.measured, float64(c.timer.Time(&o))*1e6, 0.06, "%+v", c)
	}
}

// TestTransformerEngineNorms: RMS and layer norms of rows in 16 bits, forward and backward,
// and the sum of the weight's partial gradients, in us: Transformer Engine 2.11 on an H200
// (PyTorch 2.11, profiler, 2026-11-27); the tuned ones of an H100 from a traced step.
func TestTransformerEngineNorms(t *testing.T) {
	const rms, ln = false, true
	for _, c := range []struct {
		gpu                    string
		layer, tuned           bool
		width, rows            int64
		forward, backward, sum float64
	}{
		{"h200-sxm", rms, true, 512, 131072, 70.2, 103.8, 4.1}, {"h200-sxm", rms, true, 2048, 10752, 23.6, 38, 3.2}, {"h200-sxm", rms, true, 4096, 16384, 70.7, 102.9, 2.8},
		{"h200-sxm", rms, true, 8192, 8192, 72.1, 144.8, 3.2}, {"h100-sxm", rms, true, 4096, 8192, 49.8, 68.5, 3.2},
		{"h200-sxm", rms, false, 64, 1048576, 172.7, 229.4, 74.9}, {"h200-sxm", rms, false, 128, 524288, 87.9, 133, 75.6}, {"h200-sxm", rms, false, 192, 349525, 97.3, 183.5, 25.9},
		{"h200-sxm", rms, false, 1536, 43690, 131.1, 143.2, 33.4}, {"h200-sxm", rms, false, 2304, 29127, 237.3, 194.1, 20.8}, {"h200-sxm", rms, false, 3072, 7168, 67.8, 59.7, 20.8},
		{"h200-sxm", rms, false, 5120, 13107, 187.1, 270.1, 12.4}, {"h200-sxm", rms, false, 7168, 9362, 182.9, 236.4, 11.6}, {"h200-sxm", rms, false, 12288, 5461, 233.3, 220.8, 8.4},
		{"h200-sxm", rms, false, 16384, 4096, 217.2, 222.4, 6.8}, {"h200-sxm", rms, false, 20480, 3276, 237.4, 234.2, 6},
		{"h200-sxm", ln, true, 1024, 65536, 68.3, 114.6, 2.7}, {"h200-sxm", ln, true, 4096, 16384, 89.3, 128.5, 3.2}, {"h200-sxm", ln, true, 8192, 8192, 83.1, 199.6, 3.4},
		{"h200-sxm", ln, true, 16384, 4096, 108.3, 206.6, 4.9}, {"h200-sxm", ln, false, 128, 524288, 109.6, 152.4, 76}, {"h200-sxm", ln, false, 1600, 41943, 213.8, 170.9, 32.3},
		{"h200-sxm", ln, false, 3584, 18724, 225.4, 240, 17.1}, {"h200-sxm", ln, false, 7168, 9362, 197.7, 326.3, 9.5}, {"h200-sxm", ln, false, 14336, 4681, 282.5, 337.4, 5.9},
	} {
		tm, _ := timer(t, c.gpu)
		classes := map[[2]bool][2]tape.Class{
			{rms, true}: {tape.RMSTuned, tape.RMSTunedBack}, {rms, false}: {tape.RMSGeneral, tape.RMSGeneralBack},
			{ln, true}: {tape.LNTuned, tape.LNTunedBack}, {ln, false}: {tape.LNGeneral, tape.LNGeneralBack},
		}[[2]bool{c.layer, c.tuned}]
		n := float64(c.rows * c.width)
		for i, want := range []float64{c.forward, c.backward} {
			o := tape.Op{Class: classes[i], DType: tape.BF16, N: c.width, Elements: n, Bytes: units.Bytes(2*(2+i)) * units.Bytes(n), Count: 1}
			require.InEpsilon(t, want, float64(tm.Time(&o))*1e6, 0.12, "%+v, pass %d", c, i)
		}
		sum := tape.Op{Class: tape.NormSum, DType: tape.F32, N: c.width, Count: 1}
		if !c.tuned {
			sum.Elements = 1
		}
		require.InDelta(t, c.sum, float64(tm.Time(&sum))*1e6, 0.12*c.sum+5, "%+v", c)
	}
}

// TestPartialSums: a block of threads that general norms of Transformer Engine leave running on an SM leaves a
// row of partial gradients, and one kernel of few blocks adds rows up one after the other: fewer SMs take it
// less long, slower ones longer.
func TestPartialSums(t *testing.T) {
	of := func(gpu string) (work float64, g *hardware.GPU) {
		tm, p := timer(t, gpu)
		o := tape.Op{Class: tape.NormSum, DType: tape.F32, N: 128, Elements: 1, Count: 1}
		return float64(tm.Time(&o)) - 3e-6, &p.GPU
	}
	h200, on := of("h200-sxm")
	require.InEpsilon(t, 72e-6, h200, 0.01)
	for _, name := range []string{"a10g", "a100-80g-sxm", "b200-sxm"} {
		got, gpu := of(name)
		want := h200 * float64(gpu.SMs.Value) / float64(on.SMs.Value) * float64(on.TopClock()) / float64(gpu.TopClock())
		require.InEpsilon(t, want, got, 0.01, name)
	}
}
