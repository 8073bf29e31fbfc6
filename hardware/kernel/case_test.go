package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

func TestGEMMCase(t *testing.T) {
	for layout, want := range map[tape.Layout][3]int64{
		tape.LayoutForward: {4096, 14336, 2048}, tape.LayoutDgrad: {4096, 2048, 14336}, tape.LayoutWgrad: {14336, 2048, 4096},
	} {
		for _, d := range []tape.DType{tape.F32, tape.BF16, tape.F16, tape.FP8} {
			o := GEMM(layout, d, 4096, 14336, 2048)
			require.Equal(t, tape.GEMM, o.Class)
			require.Equal(t, d, o.DType)
			require.Equal(t, want, [3]int64{o.M, o.N, o.K}, layout)
			require.InDelta(t, 2.0*4096*14336*2048, float64(o.FLOPs), 0)
			require.EqualValues(t, 1, o.Count)
		}
	}
}

func TestAttentionCase(t *testing.T) {
	s := tape.AttentionShape{Batch: 2, Heads: 32, KVHeads: 8, Queries: 4096, QKDim: 128, VDim: 128, Causal: true}
	forward := Attention(tape.BF16, s)
	s.Backward = true
	backward := Attention(tape.BF16, s)
	require.InDelta(t, 2*2*32*4096*4097/2*256, float64(forward.FLOPs), 0) // both products over the causal half
	require.InEpsilon(t, 2.5, float64(backward.FLOPs/forward.FLOPs), 1e-12)
	require.EqualValues(t, 4096, backward.Attn.Keys)
}

// Each kind is the kernel that its name says, and moves the bytes asked for.
func TestAccessCases(t *testing.T) {
	class := map[string]tape.Class{
		"copy": tape.Vectorized, "add": tape.Vectorized, "rmw": tape.Vectorized, "memcpy": tape.Memcpy, "fill": tape.Fill, "reduce_row": tape.RowReduce, "reduce_col": tape.ColReduce, "strided": tape.Strided2,
		"cast": tape.Vectorized, "upcast": tape.Unrolled, "broadcast": tape.Strided2, "concat": tape.Concat, "slice": tape.Strided2, "softmax_fp32": tape.SoftmaxForward, "softmax_fp32_backward": tape.SoftmaxBackward,
	}
	require.Len(t, Kinds(), len(class))
	for _, kind := range Kinds() {
		require.NotEmpty(t, KindText(kind))
		rapid.Check(t, func(t *rapid.T) {
			want := units.Bytes(rapid.Float64Range(1e6, 1e10).Draw(t, "bytes"))
			o, err := Access(kind, "", want)
			require.NoError(t, err)
			require.Equal(t, class[kind], o.Class, kind)
			require.InDelta(t, float64(want), float64(o.Bytes), max(0.002*float64(want), 3*4*vocabulary), kind)
		})
	}
	_, err := Access("stridded", "", units.MiB)
	require.ErrorContains(t, err, `did you mean "strided"?`)
	_, err = Access("upcast", "fp32", units.MiB)
	require.ErrorContains(t, err, `upcast has no kernel of type "fp32"; known: bf16`)
	wide, err := Access("strided", "fp32", units.MiB)
	require.NoError(t, err)
	require.Equal(t, tape.Strided4, wide.Class)
	o, err := Access("softmax_fp32", "", 1)
	require.NoError(t, err)
	require.Positive(t, float64(o.Bytes), "at least a row")
}

// No attention beats the tensor cores, whatever its mask; without a mask it costs
// about twice the causal one.
func TestAttentionWithoutMask(t *testing.T) {
	timer := h200(t)
	for _, backward := range []bool{false, true} {
		s := tape.AttentionShape{Batch: 1, Heads: 32, KVHeads: 8, Queries: 8192, QKDim: 128, VDim: 128, Backward: backward}
		full := Attention(tape.BF16, s)
		s.Causal = true
		causal := Attention(tape.BF16, s)
		q := timer.Quote(&full)
		require.Less(t, float64(q.Rate), 0.8*float64(q.Peak))
		require.InDelta(t, 2, float64(q.Time/timer.Time(&causal)), 0.15)
	}
}

func TestQuote(t *testing.T) {
	o := GEMM(tape.LayoutForward, tape.BF16, 8192, 8192, 8192)
	q := h200(t).Quote(&o)
	require.InEpsilon(t, 1401.8e-6, float64(q.Time), 1e-9, "a measured point of laws/hopper.yaml")
	require.InEpsilon(t, 2*8192.0*8192*8192/1401.8e-6, float64(q.Rate), 1e-9)
	require.InEpsilon(t, 989.4e12, float64(q.Peak), 1e-9)
	require.Equal(t, "bf16", q.Format)
	require.Equal(t, 1980e6, float64(q.Clock))
	require.Empty(t, q.On)
	require.InEpsilon(t, math.Exp(2*1.2816*0.04), float64(q.High/q.Low), 1e-9)

	h100, err := hardware.Load("h100-sxm")
	require.NoError(t, err)
	timer, err := New(h100)
	require.NoError(t, err)
	other := timer.Quote(&o)
	require.Equal(t, "NVIDIA H200", other.On)
	require.Greater(t, other.RelErr, q.RelErr, "a law of another GPU is less sure")
}

func h200(t *testing.T) *Timer {
	timer, _ := timer(t, "h200-sxm")
	return timer
}
