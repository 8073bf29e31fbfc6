package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// adding is a weight gradient of so many tokens whose result, of size bytes an element,
// is added to what is there; 0: a 16-bit product alone.
func adding(tokens, outputs, inputs, size int64) tape.Op {
	switch size {
	case 0:
		return GEMM(tape.LayoutWgrad, tape.BF16, tokens, outputs, inputs)
	case 2:
		return AddedGEMM(tape.BF16, tape.BF16, tokens, outputs, inputs)
	}
	return AddedGEMM(tape.BF16, tape.F32, tokens, outputs, inputs)
}

// TestAddedGradients: bf16 weight gradients alone, added to fp32 and to bf16 sums, in us
// (torch.mm, and torch.addmm with out_dtype, on an H100 and an H200 in bursts of 30 ms at
// full clock, PyTorch 2.11, 2026-11-23), with sums larger than L2.
func TestAddedGradients(t *testing.T) {
	var off, n float64
	for _, c := range []struct {
		machine                 string
		tokens, outputs, inputs int64
		alone, fp32, bf16       float64
	}{
		{"h100-sxm", 2048, 16384, 6144, 545, 685, 578},
		{"h100-sxm", 2048, 6144, 8192, 282, 378, 301},
		{"h100-sxm", 2048, 12288, 12288, 819, 1036, 868},
		{"h100-sxm", 2048, 9216, 12288, 620, 788, 655},
		{"h100-sxm", 2048, 12288, 3072, 211, 276, 225},
		{"h100-sxm", 4096, 32128, 6144, 2067, 2225, 2095},
		{"h100-sxm", 4096, 12288, 12288, 1593, 1730, 1628},
		{"h100-sxm", 8192, 16384, 6144, 2078, 2148, 2088},
		{"h100-sxm", 8192, 28672, 4096, 2456, 2549, 2486},
		{"h100-sxm", 8192, 4096, 14336, 1211, 1274, 1217},
		{"h100-sxm", 8192, 8192, 3584, 606, 630, 610},

		{"h200-sxm", 512, 16384, 6144, 163, 372, 216},
		{"h200-sxm", 512, 28672, 4096, 194, 432, 259},
		{"h200-sxm", 2048, 16384, 6144, 528, 663, 552},
		{"h200-sxm", 2048, 6144, 8192, 266, 321, 273},
		{"h200-sxm", 2048, 12288, 12288, 792, 985, 833},
		{"h200-sxm", 2048, 9216, 12288, 597, 745, 625},
		{"h200-sxm", 2048, 12288, 3072, 202, 258, 212},
		{"h200-sxm", 4096, 32128, 6144, 2000, 2139, 2036},
		{"h200-sxm", 4096, 12288, 12288, 1546, 1667, 1582},
		{"h200-sxm", 8192, 16384, 6144, 2017, 2085, 2034},
		{"h200-sxm", 8192, 28672, 4096, 2395, 2478, 2420},
		{"h200-sxm", 8192, 4096, 14336, 1192, 1230, 1198},
	} {
		x, _ := timer(t, c.machine)
		at := func(size int64) float64 {
			o := adding(c.tokens, c.outputs, c.inputs, size)
			return float64(x.Time(&o)) * 1e6
		}
		for size, want := range map[int64]float64{4: c.fp32 / c.alone, 2: c.bf16 / c.alone} {
			got := at(size) / at(0)
			require.InEpsilon(t, want, got, 0.13, "%v, %d bytes", c, size)
			off, n = off+math.Abs(got/want-1), n+1
		}
	}
	require.Less(t, off/n, 0.03)
}

// TestExpertCalls: products of experts with so many rows each by one call of cuBLAS for
// each, four streams in turn, replayed from a CUDA graph on an H100 (PyTorch 2.11, 2026-11-23), in
// us: forward, input gradients, weight gradients alone and added to fp32 and to bf16 sums.
// Rows are equal here, so that half of a tile less is empty than where tokens are routed.
func TestExpertCalls(t *testing.T) {
	x, _ := timer(t, "h100-sxm")
	var off [5]float64
	cases := []struct {
		experts, rows, outputs, inputs int64
		want                           [5]float64
	}{
		{16, 512, 1536, 2048, [5]float64{138, 126, 107, 216, 130}},
		{16, 1024, 1536, 2048, [5]float64{196, 183, 169, 247, 182}},
		{16, 4096, 1536, 2048, [5]float64{578, 568, 575, 615, 582}},
		{16, 512, 2048, 768, [5]float64{83, 118, 75, 123, 84}},
		{16, 2048, 2048, 768, [5]float64{172, 196, 195, 215, 197}},
		{8, 128, 4096, 7168, [5]float64{203, 183, 192, 928, 483}},
		{8, 512, 4096, 7168, [5]float64{378, 349, 379, 927, 515}},
		{8, 2048, 4096, 7168, [5]float64{1245, 1428, 1243, 1430, 1284}},
		{8, 512, 7168, 2048, [5]float64{202, 249, 206, 478, 254}},
		{8, 4096, 7168, 2048, [5]float64{1244, 1235, 1317, 1404, 1336}},
		{4, 512, 28672, 4096, [5]float64{642, 725, 786, 1894, 1016}},
		{4, 2048, 28672, 4096, [5]float64{2466, 2426, 2549, 3031, 2673}},
		{4, 2048, 16384, 6144, [5]float64{2095, 2085, 2148, 2573, 2237}},
		{4, 4096, 16384, 6144, [5]float64{4236, 4157, 4174, 4497, 4255}},
	}
	for _, c := range cases {
		for i, want := range c.want {
			layout := min(tape.Layout(i), tape.LayoutWgrad)
			o := GEMM(layout, tape.BF16, c.rows, c.outputs, c.inputs)
			if layout == tape.LayoutWgrad {
				o = adding(c.rows, c.outputs, c.inputs, [...]int64{0, 4, 2}[i-2])
			}
			o.Class, o.Calls, o.Batch = tape.GroupedGEMM, true, c.experts
			o.Bytes *= units.Bytes(c.experts)
			got := float64(x.Time(&o)) * 1e6
			require.InEpsilon(t, want, got, 0.35, "%v %d", c, i)
			off[i] += math.Abs(got/want - 1)
		}
	}
	for i := range off {
		require.Less(t, off[i]/float64(len(cases)), 0.11, "%d", i)
	}
}

// TestDroppedAttention: what dropout inside costs FlashAttention 2 and cuDNN, forward and
// backward with the small kernels around, over the same without, on an H100 (PyTorch
// 2.11, 2026-11-23).
func TestDroppedAttention(t *testing.T) {
	x, _ := timer(t, "h100-sxm")
	for _, c := range []struct {
		flavour              string
		heads, tokens, width int64
		want                 [2]float64
	}{
		{"flash", 24, 2048, 128, [2]float64{466. / 380, 1420. / 1266}},
		{"flash", 12, 8192, 128, [2]float64{951. / 776, 2327. / 2042}},
		{"flash", 12, 4096, 64, [2]float64{304. / 240, 761. / 671}},
		{"", 24, 2048, 128, [2]float64{414. / 203, 835. / 708}},
		{"", 12, 8192, 128, [2]float64{836. / 383, 1365. / 1114}},
		{"", 12, 4096, 64, [2]float64{363. / 148, 587. / 414}},
	} {
		for i, want := range c.want {
			s := tape.AttentionShape{Batch: 4, Heads: c.heads, KVHeads: c.heads, Queries: c.tokens, QKDim: c.width, VDim: c.width, Causal: true, Flavour: c.flavour, Backward: i == 1}
			o := Attention(tape.BF16, s)
			alone := x.Time(&o)
			with := *o.Attn
			with.Dropout = true
			o.Attn = &with
			require.InEpsilon(t, want, float64(x.Time(&o)/alone), 0.13, "%v %d", c, i)
		}
	}
}

// TestLaterFlashAttention: FlashAttention 3 and 4 are priced as cuDNN's kernels, here of 2048
// tokens and more. TFLOP/s on an H100 (arXiv 2407.08608, figures 5 to 7: 16,384 tokens, heads of
// 2048 elements in all) and a B200 (Dao-AILab/flash-attention pull request 2280: 4 sequences, 16 heads).
func TestLaterFlashAttention(t *testing.T) {
	for _, c := range []struct {
		machine                     string
		batch, heads, tokens, width int64
		causal, backward            bool
		tflops                      float64
	}{
		{"h100-sxm", 8, 32, 2048, 64, false, false, 460},
		{"h100-sxm", 1, 32, 16384, 64, false, false, 497},
		{"h100-sxm", 8, 16, 2048, 128, false, false, 625},
		{"h100-sxm", 1, 16, 16384, 128, false, false, 648},
		{"h100-sxm", 8, 16, 2048, 128, true, false, 521},
		{"h100-sxm", 1, 16, 16384, 128, true, false, 616},
		{"h100-sxm", 8, 8, 2048, 256, true, false, 537},
		{"h100-sxm", 1, 8, 16384, 256, false, false, 756},
		{"h100-sxm", 8, 32, 2048, 64, false, true, 422},
		{"h100-sxm", 1, 32, 16384, 64, false, true, 474},
		{"h100-sxm", 8, 16, 2048, 128, false, true, 501},
		{"h100-sxm", 1, 16, 16384, 128, false, true, 561},
		{"b200-sxm", 4, 16, 8192, 128, false, false, 1535},
		{"b200-sxm", 4, 16, 8192, 128, true, false, 1418},
		{"b200-sxm", 4, 16, 8192, 128, false, true, 1360},
		{"b200-sxm", 4, 16, 8192, 128, true, true, 1209},
	} {
		x, _ := timer(t, c.machine)
		o := Attention(tape.BF16, tape.AttentionShape{Batch: c.batch, Heads: c.heads, KVHeads: c.heads, Queries: c.tokens, QKDim: c.width, VDim: c.width, Causal: c.causal, Backward: c.backward})
		flops := 4 * float64(c.batch*c.heads*c.tokens*c.tokens*c.width)
		if c.causal {
			flops /= 2
		}
		if c.backward {
			flops *= 2.5
		}
		require.InEpsilon(t, c.tflops, flops/float64(x.Time(&o))/1e12, 0.11, "%v", c)
	}
}

// TestBlackwellExperts: the same on a B200, as shares of 2250 TFLOP/s: forward, input
// gradients, and weight gradients added to bf16 or fp32 (MooreThreads/SimuMax
// configs/system/b200_bf16_ceperm.json, group_matmul; loops of 57 ms and more, taken at
// 0.83 of the full clock, between that of dense products and what those that draw less
// leave).
func TestBlackwellExperts(t *testing.T) {
	x, _ := timer(t, "b200-sxm")
	var off [3]float64
	cases := []struct {
		experts, rows, outputs, inputs, sums int64
		share                                [3]float64
	}{
		{64, 512, 4096, 7168, 2, [3]float64{0.3635, 0.3988, 0.2891}},
		{64, 512, 7168, 2048, 2, [3]float64{0.3927, 0.2958, 0.2844}},
		{40, 616, 3072, 5120, 2, [3]float64{0.4703, 0.3450, 0.3430}},
		{40, 616, 5120, 1536, 2, [3]float64{0.3008, 0.2810, 0.3612}},
		{32, 1024, 4096, 7168, 2, [3]float64{0.4580, 0.4336, 0.3469}},
		{32, 1024, 7168, 2048, 2, [3]float64{0.4021, 0.4575, 0.2948}},
		{20, 1232, 3072, 5120, 2, [3]float64{0.4502, 0.3896, 0.3849}},
		{20, 1232, 5120, 1536, 2, [3]float64{0.3933, 0.3781, 0.3603}},
		{40, 2460, 3072, 5120, 4, [3]float64{0.4868, 0.4520, 0.4166}},
		{40, 2460, 5120, 1536, 4, [3]float64{0.4958, 0.4888, 0.4026}},
		{40, 9832, 3072, 5120, 4, [3]float64{0.4746, 0.4755, 0.4186}},
		{40, 9832, 5120, 1536, 4, [3]float64{0.4447, 0.4634, 0.4134}},
	}
	for _, c := range cases {
		for layout, share := range c.share {
			o := GEMM(tape.Layout(layout), tape.BF16, c.rows, c.outputs, c.inputs)
			if tape.Layout(layout) == tape.LayoutWgrad {
				o = adding(c.rows, c.outputs, c.inputs, c.sums)
			}
			o.Class, o.Calls, o.Batch = tape.GroupedGEMM, true, c.experts
			o.Bytes *= units.Bytes(c.experts)
			rate := 2 * float64(c.experts*c.rows*c.outputs*c.inputs) / float64(x.Time(&o))
			off[layout] += math.Abs(math.Log(rate / (share * 2250e12 / 0.83)))
		}
	}
	for layout, sum := range off {
		require.Less(t, sum/float64(len(cases)), 0.14, tape.Layout(layout))
	}
}

// TestFlexAttention: FlexAttention's kernels in Triton on an H200 (PyTorch 2.11, 2026-11-30), in us. Documents are problems of their own.
func TestFlexAttention(t *testing.T) {
	x, _ := timer(t, "h200-sxm")
	off := 0.0
	cases := []struct {
		batch, heads, kv, tokens, width, window int64
		forward, backward                       float64
	}{
		{1, 32, 32, 4096, 128, 0, 406, 970}, {1, 32, 8, 8192, 128, 0, 1404, 3907}, {4, 16, 16, 2048, 128, 0, 237, 554}, {1, 16, 16, 16384, 128, 0, 2775, 6887}, {2, 32, 32, 1024, 128, 0, 79.2, 183}, {8, 12, 12, 1024, 128, 0, 112, 263},
		{1, 32, 32, 4096, 64, 0, 236, 666}, {1, 32, 8, 8192, 64, 0, 796, 2620}, {4, 16, 16, 2048, 64, 0, 132, 374}, {1, 16, 16, 16384, 64, 0, 1514, 4669}, {2, 32, 32, 1024, 64, 0, 48.5, 123}, {8, 12, 12, 1024, 64, 0, 65.1, 179},
		{1, 32, 8, 8192, 256, 0, 3592, 20891}, {1, 16, 16, 4096, 192, 0, 402, 2760}, {1, 16, 16, 4096, 96, 0, 221, 523},
		{1, 32, 8, 8192, 128, 1024, 408, 1080}, {1, 32, 8, 8192, 64, 1024, 237, 709},
		{8, 32, 8, 1024, 128, 0, 268, 682}, {4, 32, 8, 2048, 128, 0, 437, 1157}, // documents
	}
	for _, c := range cases {
		for i, want := range []float64{c.forward, c.backward} {
			o := Attention(tape.BF16, tape.AttentionShape{Batch: c.batch, Heads: c.heads, KVHeads: c.kv, Queries: c.tokens, QKDim: c.width, VDim: c.width, Window: c.window, Causal: true, Flavour: "flex", Backward: i == 1})
			got := float64(x.Time(&o)) * 1e6
			t.Log(c, i, got, want, got/want)
			require.InEpsilon(t, want, got, 0.2, "%v %d", c, i)
			off += math.Abs(got/want-1) / float64(2*len(cases))
		}
	}
	require.Less(t, off, 0.08)
}
