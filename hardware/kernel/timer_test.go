package kernel

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

func timer(t require.TestingT, name string) (*Timer, *hardware.Profile) {
	p, err := hardware.Load(name)
	require.NoError(t, err)
	x, err := New(p)
	require.NoError(t, err, name)
	return x, p
}

// gemm is one matrix product as the tape records it.
func gemm(m, n, k int64, d tape.DType, l tape.Layout) *tape.Op {
	return &tape.Op{Class: tape.GEMM, Prim: "linear", DType: d, M: m, N: n, K: k, Batch: 1, Layout: l, Count: 1, Elements: float64(m * n),
		FLOPs: units.FLOPs(2 * float64(m) * float64(n) * float64(k)), Bytes: units.Bytes(m*k+n*k+m*n) * d.Size()}
}

func attention(batch, heads, kv, seq, width int64, backward bool) *tape.Op {
	s := &tape.AttentionShape{Batch: batch, Heads: heads, KVHeads: kv, Queries: seq, Keys: seq, QKDim: width, VDim: width, Causal: true, Backward: backward}
	io := units.Bytes(2 * batch * seq * width * (2*heads + 2*kv))
	return &tape.Op{Class: tape.Attention, Prim: "attention", DType: tape.BF16, Attn: s, Count: 1, FLOPs: s.FLOPs(), Bytes: io, Elements: float64(batch * heads * seq * width)}
}

// dtypeOf is a 16-bit format that the GPU multiplies in.
func dtypeOf(p *hardware.Profile) tape.DType {
	if p.GPU.Peak.BF16.Value > 0 {
		return tape.BF16
	}
	return tape.F16
}

// TestAda: torch.matmul of square matrices, loops of seconds, in TFLOP/s (zzc0721/torch-performance-test-data
// issues 78, 104, 120 and 43; mli/transformers-benchmarks issue 4): cards of one architecture, which
// their power limits at clocks far apart.
func TestAda(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int64
		rates []float64
	}{
		{"rtx-4090", 2048, []float64{159.4, 164.8, 167.1}}, {"rtx-4090", 4096, []float64{168.4, 151.5}}, {"rtx-4090", 8192, []float64{155.5, 160.2, 158.6}},
		{"rtx-5080", 2048, []float64{84.5}}, {"rtx-5080", 8192, []float64{102.9}},
		{"l4", 4096, []float64{53.0, 54.9}}, {"l4", 8192, []float64{53.8, 59.4}}, {"l40s", 8192, []float64{269.2}},
		{"rtx-6000-ada", 8192, []float64{145}}, // a harness of its own (hardware/catalog/rtx-6000-ada.yaml)
	} {
		x, _ := timer(t, c.name)
		o := GEMM(tape.LayoutForward, tape.BF16, c.size, c.size, c.size)
		for _, measured := range c.rates {
			require.InEpsilon(t, measured, float64(o.FLOPs.Per(x.Time(&o)))/1e12, 0.15, "%s %d", c.name, c.size)
		}
	}
}

// TestAmpereCards: as TestAda, of 16 bits on cards of GA102 and Turing (zzc0721/torch-performance-test-data
// issues 114, 46 and 181, its database.md @9d82827 for the RTX 3090), at sizes where these are not cut short.
func TestAmpereCards(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int64
		rates []float64
	}{
		{"rtx-3090", 8192, []float64{76.3, 76.7, 76.6}}, {"rtx-3080", 2048, []float64{58.9, 60.2}}, {"rtx-3080", 4096, []float64{61.5, 61.1}},
		{"rtx-3080", 8192, []float64{63.6, 63.9}}, {"rtx-a6000", 8192, []float64{123.3}}, {"rtx-2080-ti", 4096, []float64{50.9}}, {"rtx-2080-ti", 8192, []float64{49.6}},
	} {
		x, p := timer(t, c.name)
		o := GEMM(tape.LayoutForward, dtypeOf(p), c.size, c.size, c.size)
		for _, measured := range c.rates {
			require.InEpsilon(t, measured, float64(o.FLOPs.Per(x.Time(&o)))/1e12, 0.08, "%s %d", c.name, c.size)
		}
	}
}

// TestGB10: a DGX Spark multiplies bf16 of 8192 cubed at 93.3 TFLOP/s, more than half of the rate that
// a halved one for fp32 accumulation would be, and copies 512 MB at 235.9 GB/s (log in a public repository, 2026-08).
func TestGB10(t *testing.T) {
	x, _ := timer(t, "gb10")
	o := GEMM(tape.LayoutForward, tape.BF16, 8192, 8192, 8192)
	require.InEpsilon(t, 93.3, float64(o.FLOPs.Per(x.Time(&o)))/1e12, 0.03)
	moved := &tape.Op{Class: tape.Vectorized, DType: tape.BF16, Count: 1, Elements: 256e6, Bytes: 1024e6}
	require.InEpsilon(t, 235.9e9, 1024e6/float64(x.Time(moved)), 0.03)
}

// TestFP32 runs products of fp32 on the vector units unless TF32 is asked for, on
// every GPU, and attention from three products in TF32 where there is one.
func TestFP32(t *testing.T) {
	for _, name := range hardware.Names() {
		x, p := timer(t, name)
		rate := func(o *tape.Op) float64 { return float64(o.FLOPs.Per(x.Time(o))) }
		peak, tf32 := float64(p.GPU.Peak.FP32.Value), float64(p.GPU.Peak.TF32.Value)
		require.Positive(t, peak, name)
		plain, tensor := GEMM(tape.LayoutForward, tape.F32, 8192, 8192, 8192), GEMM(tape.LayoutForward, tape.TF32, 8192, 8192, 8192)
		require.LessOrEqual(t, rate(&plain), peak, name)
		least := 0.4
		if name == "l4" || name == "rtx-6000-ada" {
			least = 0.35 // 72 W leave the L4 0.37, the RTX 6000 Ada has 0.39
		}
		require.Greater(t, rate(&plain), least*peak, name)
		if tf32 > peak {
			require.Greater(t, rate(&tensor), 1.5*rate(&plain), name)
		}
		require.Equal(t, plain.Bytes, tensor.Bytes)
		scores := Attention(tape.F32, tape.AttentionShape{Batch: 4, Heads: 32, KVHeads: 32, Queries: 8192, QKDim: 128, VDim: 128, Causal: true})
		most := max(peak, tf32/3)
		if rate(&tensor) > tf32 { // measured at clocks above the one that the peak is of
			most *= float64(p.GPU.TopClock()) / float64(p.GPU.Clock.Value)
		}
		require.LessOrEqual(t, rate(&scores), most, name)
		require.LessOrEqual(t, x.Utilization(&scores), 1.0)
	}
}

// TestNothingBeatsTheDatasheet: on no GPU is a product faster than its peak at the
// highest clock, nor a large copy than its memory.
func TestNothingBeatsTheDatasheet(t *testing.T) {
	for _, name := range hardware.Names() {
		x, p := timer(t, name)
		d := dtypeOf(p)
		peak := float64(p.GPU.Peak.Of(d.String())) * float64(p.GPU.TopClock()) / float64(p.GPU.Clock.Value)
		for _, m := range []int64{1, 64, 1000, 4096, 16384} {
			for _, n := range []int64{512, 4096, 11008, 128256} {
				for _, l := range []tape.Layout{tape.LayoutForward, tape.LayoutDgrad, tape.LayoutWgrad} {
					o := gemm(m, n, 4096, d, l)
					require.LessOrEqual(t, float64(o.FLOPs)/float64(x.Time(o)), peak, "%s: %d×%d", name, m, n)
				}
			}
		}
		copied := &tape.Op{Class: tape.Vectorized, DType: d, Count: 1, Elements: 1e9, Bytes: 4e9}
		require.LessOrEqual(t, 4e9/float64(x.Time(copied)), float64(p.GPU.Bandwidth.Value), name)
	}
}

// TestMoreWorkTakesLonger: the time of each class grows with its size, is at least the
// floor, and n equal kernels take n times as long.
func TestMoreWorkTakesLonger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, p := timer(t, rapid.SampledFrom(hardware.Names()).Draw(t, "hardware"))
		c := tape.Class(rapid.IntRange(int(tape.Vectorized), int(tape.SplitCopy)).Draw(t, "class"))
		n := rapid.Float64Range(1, 1e9).Draw(t, "elements")
		op := func(n float64) *tape.Op {
			return &tape.Op{Class: c, DType: tape.BF16, Count: 1, Elements: n, Bytes: units.Bytes(4 * n), N: 4096, Index: 6}
		}
		small, large := x.Time(op(n)), x.Time(op(n*rapid.Float64Range(1, 100).Draw(t, "more")))
		require.LessOrEqual(t, float64(small), float64(large)*(1+1e-9), c.String())
		require.GreaterOrEqual(t, small, p.Laws.Launch.Floor)
		three := op(n)
		three.Count = 3
		require.InEpsilon(t, 3*float64(small), float64(x.Time(three)), 1e-12)
	})
}

// TestProductsGrow: a product takes no less time when it gets larger in any direction;
// tiles that fit better save up to a quarter where the law knows of tiles.
func TestProductsGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, p := timer(t, rapid.SampledFrom(hardware.Names()).Draw(t, "hardware"))
		d := dtypeOf(p)
		dim := func(name string) int64 { return 64 * rapid.Int64Range(1, 256).Draw(t, name) }
		m, n, k := dim("m"), dim("n"), dim("k")
		base := x.Time(gemm(m, n, k, d, tape.LayoutForward))
		for _, o := range []*tape.Op{gemm(2*m, n, k, d, tape.LayoutForward), gemm(m, 2*n, k, d, tape.LayoutForward), gemm(m, n, 2*k, d, tape.LayoutForward)} {
			require.LessOrEqual(t, 0.75*float64(base), float64(x.Time(o)), "%d×%d×%d", m, n, k)
		}
		require.Less(t, float64(base), float64(x.Time(gemm(4*m, 2*n, 2*k, d, tape.LayoutForward))))
	})
}

// TestAttention: the backward pass takes longer than the forward one, and a sequence
// twice as long more than twice the time where it fills the GPU.
func TestAttention(t *testing.T) {
	for _, name := range hardware.Names() {
		x, _ := timer(t, name)
		forward, backward := x.Time(attention(2, 32, 8, 4096, 128, false)), x.Time(attention(2, 32, 8, 4096, 128, true))
		require.Greater(t, backward, forward, name)
		require.Greater(t, float64(x.Time(attention(2, 32, 8, 8192, 128, false))), 2*float64(forward), name)
	}
}

// TestH200 holds single kernels against measured ones: medians of profiler traces of
// Llama training steps on H200 (PyTorch 2.11, CUDA 13.0).
func TestH200(t *testing.T) {
	x, _ := timer(t, "h200-sxm")
	for _, c := range []struct {
		name     string
		op       *tape.Op
		rate     float64 // of work per second
		work     float64
		accuracy float64
	}{
		{"large projections run at 772 to 790 TFLOP/s", gemm(8192, 14336, 4096, tape.BF16, tape.LayoutForward), 780e12, 2 * 8192 * 14336 * 4096, 0.05},
		{"and so do their weight gradients", gemm(14336, 4096, 8192, tape.BF16, tape.LayoutWgrad), 780e12, 2 * 8192 * 14336 * 4096, 0.07},
		{"contiguous elementwise kernels move 4.2 TB/s", &tape.Op{Class: tape.Vectorized, DType: tape.BF16, Count: 1, Elements: 1 << 26, Bytes: 6 << 26}, 4.2e12, 6 << 26, 0.05},
	} {
		require.InEpsilon(t, c.rate, c.work/float64(x.Time(c.op)), c.accuracy, c.name)
	}
}

// TestElsewhere holds kernels whose laws were measured on an H200 against medians of
// traces of an H100 (PyTorch 2.11, CUDA 13.0, two Llama and one GPT-2 step, 2026-11).
func TestElsewhere(t *testing.T) {
	there, _ := timer(t, "h100-sxm")
	here, _ := timer(t, "h200-sxm")
	const n = 16 << 20
	for _, c := range []struct {
		name     string
		op       tape.Op
		took     units.Seconds
		accuracy float64
	}{
		{"cast of a norm", tape.Op{Class: tape.Unrolled, Elements: n, Bytes: 6 * n}, 54.4e-6, 0.03},
		{"product with a row's scale", tape.Op{Class: tape.Strided4, Elements: n, Index: 6, Bytes: 8 * n}, 57.5e-6, 0.06},
		{"product with a weight", tape.Op{Class: tape.Strided2, Elements: n, Index: 6, Bytes: 4 * n}, 47.3e-6, 0.08},
		{"product with cosines", tape.Op{Class: tape.Strided2, Elements: n, Index: 9, Bytes: 4*n + 2<<20}, 50.3e-6, 0.03},
		{"sum of two rotated halves", tape.Op{Class: tape.Strided2, Elements: n, Index: 12, Bytes: 6 * n}, 59.4e-6, 0.03},
		{"half of each row negated", tape.Op{Class: tape.Strided2, Elements: n / 2, Index: 4, Bytes: 2 * n}, 24.5e-6, 0.2},
		{"two halves joined", tape.Op{Class: tape.Concat, Elements: n, Bytes: 4 * n}, 71.7e-6, 0.03},
	} {
		c.op.DType, c.op.Count = tape.BF16, 1
		require.InEpsilon(t, float64(c.took), float64(there.Time(&c.op)), c.accuracy, c.name)
		require.Greater(t, there.Time(&c.op), here.Time(&c.op), c.name)
	}
	// Instructions that touch little memory know nothing of it.
	sorted := tape.Op{Class: tape.TopK, DType: tape.F32, Elements: 1 << 16, Bytes: 1 << 18, Count: 1}
	require.InEpsilon(t, float64(here.Time(&sorted)), float64(there.Time(&sorted)), 1e-3)
}

// Work elsewhere grows with either limit and is that of the law's own GPU where neither
// differs.
func TestElsewhereGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, most float64) float64 { return rapid.Float64Range(0.01, most).Draw(t, name) }
		work, bytes, issue, memory := draw("work", 100), draw("bytes", 100), draw("issue", 5), draw("memory", 5)
		at := elsewhere(work, bytes, issue, memory)
		require.InEpsilon(t, work, elsewhere(work, bytes, 1, 1), 1e-9)
		require.GreaterOrEqual(t, elsewhere(work, bytes, issue*2, memory), at)
		require.Greater(t, elsewhere(work, bytes, issue, memory*2), at)
		require.LessOrEqual(t, at, work*max(issue, memory)*(1+1e-9))
		require.GreaterOrEqual(t, at, work*min(issue, memory)*(1-1e-9))
	})
}

// TestColumnSums holds sums of columns against bursts of PyTorch 2.11's from cold caches,
// in microseconds (2026-11): the same bytes take longer the more parts they are summed in.
func TestColumnSums(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	h100, _ := timer(t, "h100-sxm")
	for _, c := range []struct {
		rows, columns int64
		dtype         tape.DType
		h200, h100    float64
	}{
		{2048, 1024, tape.BF16, 8.5, 10.0}, {8192, 1024, tape.BF16, 17.1, 19.5}, {16384, 1024, tape.BF16, 31.8, 35.6}, {32768, 1024, tape.BF16, 44.4, 56.6},
		{8192, 768, tape.BF16, 16.1, 17.9}, {4096, 2048, tape.BF16, 13.7, 16.1}, {8192, 2048, tape.BF16, 24.9, 28.9}, {16384, 2048, tape.F32, 54.2, 69.0},
		{1024, 4096, tape.BF16, 8.5, 9.8}, {4096, 4096, tape.BF16, 21.2, 25.2}, {8192, 4096, tape.BF16, 33.1, 41.6}, {8192, 4096, tape.F32, 48.7, 63.9},
		{8192, 6400, tape.BF16, 42.0, 53.5}, {4096, 14336, tape.BF16, 43.3, 56.1}, {2048, 12288, tape.BF16, 25.0, 31.1}, {16384, 4096, tape.F32, 80.8, 107.3},
	} {
		n := c.rows * c.columns
		o := tape.Op{Class: tape.ColReduce, DType: c.dtype, Elements: float64(n), N: c.columns, Bytes: units.Bytes(n+c.columns) * c.dtype.Size(), Count: 1}
		require.InEpsilon(t, c.h200*1e-6, float64(h200.Time(&o)), 0.12, "H200: %d × %d", c.rows, c.columns)
		require.InEpsilon(t, c.h100*1e-6, float64(h100.Time(&o)), 0.17, "H100: %d × %d", c.rows, c.columns)
	}
}

// TestVocabularySoftmax holds logarithms of the softmax over vocabularies against PyTorch
// 2.11's from cold caches, in microseconds (2026-11-23).
func TestVocabularySoftmax(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	h100, _ := timer(t, "h100-sxm")
	a100, _ := timer(t, "a100-80g-sxm")
	softmax := func(rows, columns int64, d tape.DType) *tape.Op {
		n := rows * columns
		return &tape.Op{Class: tape.SoftmaxForward, DType: d, Elements: float64(n), N: columns, Bytes: 2 * units.Bytes(n) * d.Size(), Count: 1}
	}
	for _, c := range []struct {
		rows, columns int64
		dtype         tape.DType
		h200, h100    float64
		elsewhere     float64 // accuracy on the H100
	}{
		{8192, 50304, tape.BF16, 556.7, 755.9, 0.15}, {4096, 65536, tape.BF16, 415.7, 673.3, 0.2}, {4096, 102400, tape.BF16, 797.2, 1099, 0.1}, {4096, 128256, tape.BF16, 1010.2, 1380.4, 0.05},
		{2048, 256000, tape.BF16, 1007.3, 1408, 0.05}, {8192, 32000, tape.F32, 824.5, 1305.2, 0.1}, {8192, 50304, tape.F32, 1566.8, 2160.4, 0.05}, {4096, 128256, tape.F32, 2023.4, 2800.9, 0.05},
	} {
		o := softmax(c.rows, c.columns, c.dtype)
		require.InEpsilon(t, c.h200*1e-6, float64(h200.Time(o)), 0.08, "H200: %s %d × %d", c.dtype, c.rows, c.columns)
		require.InEpsilon(t, c.h100*1e-6, float64(h100.Time(o)), c.elsewhere, "H100: %s %d × %d", c.dtype, c.rows, c.columns)
	}
	// linkedin/Liger-Kernel benchmark/data/all_benchmark_data.csv, cross_entropy by PyTorch on an A100-SXM4-80GB
	require.InEpsilon(t, 10.615e-3, float64(a100.Time(softmax(16384, 65536, tape.F32))), 0.1)
	require.InEpsilon(t, 20.726e-3, float64(a100.Time(softmax(16384, 131072, tape.F32))), 0.1)
}

// TestUnaligned holds products whose extents do not fill 16-byte accesses against
// measured ones: H200 with cuBLAS of CUDA 13 (medians of repeated calls); A100 with that
// of CUDA 11.3, from the layouts of BLOOM's search, and with later ones (see hardware/laws/ampere.yaml).
func TestUnaligned(t *testing.T) {
	batched := func(m, n, k, batch int64) *tape.Op {
		o := gemm(m, n, k, tape.BF16, tape.LayoutForward)
		o.Batch = batch
		return o
	}
	for _, c := range []struct {
		hardware string
		op       *tape.Op
		tflops   float64
		accuracy float64
	}{
		{"h200-sxm", gemm(4096, 4100, 4096, tape.BF16, tape.LayoutForward), 261, 0.1},
		{"h200-sxm", gemm(4096, 4096, 4098, tape.BF16, tape.LayoutForward), 254, 0.12},
		{"h200-sxm", gemm(4096, 50260, 768, tape.BF16, tape.LayoutForward), 245, 0.15},
		{"h200-sxm", gemm(4096, 50257, 768, tape.BF16, tape.LayoutForward), 95, 0.25},
		// Of 80 shapes (hardware/laws/hopper.yaml)
		{"h200-sxm", gemm(32768, 30522, 768, tape.BF16, tape.LayoutForward), 245, 0.03},
		{"h200-sxm", gemm(32768, 768, 30522, tape.BF16, tape.LayoutDgrad), 265, 0.03},
		{"h200-sxm", gemm(30522, 768, 32768, tape.BF16, tape.LayoutWgrad), 252, 0.1},
		{"h200-sxm", gemm(8192, 128259, 2048, tape.BF16, tape.LayoutForward), 99, 0.04},
		{"h200-sxm", gemm(8192, 2048, 128259, tape.BF16, tape.LayoutDgrad), 142, 0.04},
		{"h200-sxm", gemm(128259, 2048, 8192, tape.BF16, tape.LayoutWgrad), 155, 0.04},
		{"h200-sxm", batched(2048, 2048, 108, 32), 118, 0.25}, // 82 to 96 of the scores, 201 of the context
		{"h200-sxm", batched(2048, 2048, 150, 32), 125, 0.25}, // 107 and 150
		// GPT-2 with nanoGPT's batch, PyTorch 2.11: products in TF32 are aligned by their bytes as those of 16 bits with twice the extents
		{"h100-sxm", gemm(16384, 50257, 768, tape.TF32, tape.LayoutForward), 130.8, 0.02},
		{"h100-sxm", gemm(16384, 768, 50257, tape.TF32, tape.LayoutDgrad), 132.7, 0.02},
		{"h100-sxm", gemm(50257, 768, 16384, tape.TF32, tape.LayoutWgrad), 119.9, 0.02},
		{"a100-80g-sxm", batched(2048, 2048, 108, 32), 69, 0.25}, // an H200's, by SMs and clock
		{"a100-80g-sxm", batched(2048, 2048, 150, 32), 73, 0.25},
		{"a100-80g-sxm of 22.06", batched(2048, 2048, 108, 64), 10, 0.2},
		{"a100-80g-sxm of 22.06", batched(2048, 2048, 150, 32), 10, 0.2},
	} {
		name, release, _ := strings.Cut(c.hardware, " of ")
		x, p := timer(t, name)
		if release != "" {
			x, _ = before(t, p, release)
		}
		work := 2 * float64(c.op.M*c.op.N*c.op.K*max(c.op.Batch, 1))
		require.InEpsilon(t, c.tflops, work/float64(x.Time(c.op))/1e12, c.accuracy, "%s %d×%d×%d", c.hardware, c.op.M, c.op.N, c.op.K)
	}
}

// TestCopied: where a profile says what share of its bandwidth contiguous kernels move, laws of another
// GPU do not promise more; what issue limits does not change.
func TestCopied(t *testing.T) {
	p, err := hardware.Load("vr-nvl72")
	require.NoError(t, err)
	contiguous := tape.Op{Class: tape.Vectorized, DType: tape.BF16, Elements: 1 << 31, Bytes: 8 << 30, Count: 1}
	program := tape.Op{Class: tape.RowProgram, DType: tape.BF16, Elements: 1 << 20, Bytes: 1 << 20, Count: 1}
	times := func() (copy, rows float64) {
		vr, err := New(p)
		require.NoError(t, err)
		return float64(vr.Time(&contiguous)), float64(vr.Time(&program))
	}
	copied, rows := times()
	require.InEpsilon(t, 10.8e12, float64(contiguous.Bytes)/copied, 0.03)
	other := *p
	p, other.GPU.Copied = &other, hardware.Datum[float64]{}
	sooner, same := times()
	require.InEpsilon(t, copied*10.8/(0.892*19.2), sooner, 0.01)
	require.InEpsilon(t, rows, same, 1e-9)
}

// TestExplainSmall: what a launch takes most of is not bound by what it computes or moves.
func TestExplainSmall(t *testing.T) {
	x, _ := timer(t, "h200-sxm")
	for _, c := range []struct {
		op   *tape.Op
		want Bound
	}{
		{gemm(1, 1, 1, tape.BF16, tape.LayoutForward), Latency},
		{gemm(4096, 4096, 4096, tape.BF16, tape.LayoutForward), Compute},
		{attention(1, 16, 16, 16, 64, false), Latency},
		{attention(1, 16, 16, 16, 64, true), Latency},
		{attention(8, 16, 16, 4096, 64, false), Compute},
		{&tape.Op{Class: tape.Vectorized, Count: 1, Elements: 1, Bytes: 4}, Latency},
		{&tape.Op{Class: tape.Vectorized, Count: 1, Elements: 1e7, Bytes: 4e7}, Memory},
	} {
		require.Equal(t, c.want, x.Explain(c.op).Bound, "%+v", c.op)
	}
}

// TestExplain: the reasons add up to the same time and say where it comes from.
func TestExplain(t *testing.T) {
	x, _ := timer(t, "h200-sxm")
	for _, o := range []*tape.Op{gemm(4096, 4096, 4096, tape.BF16, tape.LayoutForward), attention(1, 16, 16, 2048, 64, false), attention(1, 16, 16, 2048, 64, true),
		{Class: tape.Vectorized, Count: 1, Elements: 1e7, Bytes: 4e7}, {Class: tape.Strided2, Count: 2, Elements: 1e7, Bytes: 4e7, Index: 6}, {Class: tape.Vectorized, Count: 1, Elements: 1, Bytes: 4}} {
		e := x.Explain(o)
		require.Equal(t, x.Time(o), e.Time)
		require.NotEmpty(t, e.Bound)
		require.NotEmpty(t, e.Formula)
		require.NotEmpty(t, e.Source)
		require.Positive(t, e.RelErr)
		u := x.Utilization(o)
		if o.Elements == 1 {
			require.Zero(t, u, "launch and drain draw no power")
			continue
		}
		require.True(t, u > 0 && u <= 1, "utilization %v", u)
	}
	require.Zero(t, x.Time(&tape.Op{Class: tape.NoKernel}))
	require.Zero(t, x.Time(&tape.Op{Class: tape.Collective}))
}

// TestFlashAttention2 holds FlashAttention 2 on an H200 against bursts of PyTorch 2.11's,
// causal, at clocks of 1965 and 1980 MHz (2026-11): TFLOP/s of both directions, the small
// kernels around the backward one included.
func TestFlashAttention2(t *testing.T) {
	timer, _ := timer(t, "h200-sxm")
	for _, c := range []struct {
		batch, heads, seq, width int64
		forward, backward        float64
	}{
		{16, 32, 1024, 128, 267, 175}, {8, 32, 2048, 128, 304, 224}, {4, 32, 4096, 128, 324, 263}, {2, 32, 8192, 128, 336, 288}, {1, 32, 16384, 128, 345, 313},
		{8, 32, 2048, 64, 263, 198}, {4, 32, 4096, 64, 285, 233}, {2, 32, 8192, 64, 296, 256},
		{8, 16, 2048, 256, 291, 195}, {4, 16, 4096, 256, 303, 224}, {2, 16, 8192, 256, 309, 243},
	} {
		for _, backward := range []bool{false, true} {
			s := tape.AttentionShape{Batch: c.batch, Heads: c.heads, KVHeads: c.heads, Queries: c.seq, QKDim: c.width, VDim: c.width, Causal: true, Flavour: "flash", Backward: backward}
			o := Attention(tape.BF16, s)
			took, want, passes := timer.Time(&o), c.forward, 1.0
			if backward {
				want, passes = c.backward, 2.5
			}
			for _, o := range AroundAttention(tape.BF16, s) {
				took += timer.Time(&o)
			}
			rate := passes * 2 * float64(c.batch*c.heads*c.seq*c.seq*c.width) / float64(took) / 1e12
			require.InEpsilon(t, want, rate, 0.08, "%+v", s)
		}
	}
}

// TestOperands: products whose operands are all that they wait for take what the GPU was measured to
// move, where it was, and otherwise what others with HBM do.
func TestOperands(t *testing.T) {
	for name, share := range map[string]float64{"h200-sxm": 0.9, "h100-sxm": 0.9, "vr-nvl72": 0.5625, "t4": 0.74, "gb10": 0.864} {
		x, p := timer(t, name)
		one := gemm(32, 32768, 8192, dtypeOf(p), tape.LayoutForward)
		two := gemm(32, 65536, 8192, dtypeOf(p), tape.LayoutForward)
		least := float64((two.Bytes - one.Bytes).At(p.GPU.Bandwidth.Value)) / share
		took := float64(x.Time(two) - x.Time(one))
		require.InEpsilon(t, least, took, 0.06, "%s: %v of the memory's rate", name, least/took*share)
	}
}
