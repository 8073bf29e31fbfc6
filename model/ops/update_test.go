package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// kernelsOf lists what a section launches but for its products and their copies.
func kernelsOf(sec tape.Section) (out []string) {
	for _, o := range sec.Ops {
		if o.Class != tape.NoKernel && o.Prim != "newton_schulz" && o.Prim != "copy" {
			out = append(out, o.Prim+" "+o.Class.String())
		}
	}
	return out
}

// TestUpdate: the kernels around the products of an update, and what it allocates at most, as
// profiles and the allocator of an H100 show them (torch.optim.Muon of PyTorch 2.11;
// Emerging-Optimizers 0.4), of which DTensor's norm takes more.
func TestUpdate(t *testing.T) {
	torch, err := recipe.Load("hf-eager")
	require.NoError(t, err)
	megatron, err := recipe.Load("megatron-core")
	require.NoError(t, err)
	tall, square := Matrix{Rows: 14336, Cols: 4096}, Matrix{Rows: 4096, Cols: 4096}
	for _, c := range []struct {
		name    string
		r       *recipe.Recipe
		program string
		m       Matrix
		d       tape.DType
		ranks   int64
		want    []string
		peak    units.Bytes // 0: not compared
	}{
		{"torch, bf16", torch, "muon", tall, tape.BF16, 1,
			[]string{"lerp_ vectorized", "lerp vectorized", "norm row-reduce", "clamp vectorized", "div_ strided2", "mul_ vectorized", "add_ transposed"}, 419.4e6},
		{"torch, square", torch, "muon", square, tape.BF16, 1, nil, 167.8e6},
		{"torch, fp32", torch, "muon", tall, tape.F32, 1,
			[]string{"lerp_ vectorized", "lerp vectorized", "to vectorized", "norm row-reduce", "clamp vectorized", "div_ strided2", "mul_ vectorized", "add_ transposed"}, 536.9e6},
		{"Megatron", megatron, "muon", tall, tape.F32, 1,
			[]string{"mul_ vectorized", "lerp_ vectorized", "norm row-reduce", "clamp vectorized", "div strided4", "to vectorized", "to unrolled", "mul_scalar vectorized", "mul_scalar vectorized", "add_ transposed"}, 0},
		{"Megatron, two tensor ranks", megatron, "muon", Matrix{Rows: 2048, Cols: 4096, Group: "tp", ByRows: true}, tape.F32, 2,
			[]string{"mul_ vectorized", "lerp_ vectorized", "all-gather collective", "cat memcpy", "norm row-reduce", "clamp vectorized", "div strided4", "to vectorized", "to unrolled", "mul_scalar vectorized", "mul_scalar vectorized", "add_ vectorized"}, 0},
		{"two ranks of FSDP2", torch, "muon_shards", Matrix{Rows: 4096, Cols: 2048, Group: Shards, ByRows: true}, tape.F32, 2,
			[]string{"lerp_ vectorized", "lerp vectorized", "to vectorized", "norm row-reduce", "tiny vectorized", "tiny vectorized", "tiny vectorized", "all-reduce collective", "clamp vectorized", "div_ strided2"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			sec := Update(c.r, c.program, c.m, c.d, c.d, c.d, c.ranks)
			got := kernelsOf(sec)
			if c.want != nil {
				require.Equal(t, c.want, got[:min(len(got), len(c.want))])
			}
			live, peak := units.Bytes(0), units.Bytes(0)
			for _, e := range sec.Events {
				live += e.Bytes
				peak = max(peak, live)
			}
			require.Zero(t, live)
			if c.peak > 0 {
				require.InEpsilon(t, float64(c.peak), float64(peak), 0.01)
			}
			for _, o := range sec.Ops {
				require.Equal(t, tape.Optimize, o.Phase, o.Prim)
			}
		})
	}
}

// TestJoined: of a matrix that two tensor ranks share each orthogonalizes all (Megatron-Core,
// --muon-tp-mode duplicated), and updates its own part.
func TestJoined(t *testing.T) {
	megatron, err := recipe.Load("megatron-core")
	require.NoError(t, err)
	flops := func(m Matrix, ranks int64) (n units.FLOPs) {
		for _, o := range Update(megatron, "muon", m, tape.F32, tape.F32, tape.F32, ranks).Ops {
			n += o.FLOPs
		}
		return
	}
	whole := flops(Matrix{Rows: 4096, Cols: 11008}, 1)
	require.Equal(t, whole, flops(Matrix{Rows: 2048, Cols: 11008, Group: "tp", ByRows: true}, 2))
	require.Equal(t, whole, flops(Matrix{Rows: 4096, Cols: 5504, Group: "tp"}, 2))
}
