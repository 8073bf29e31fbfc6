package ops

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
)

// TestGraphs: a bucket that holds its cap, or more, ends a graph with the operation before; that of the last graph is 1 MiB,
// and all of a small bucket (torch/_dynamo/backends/distributed.py of PyTorch 2.11, compile_fn).
func TestGraphs(t *testing.T) {
	const m = units.MiB
	for _, c := range []struct {
		bucket units.Bytes
		reads  []units.Bytes // of operations, from the last to the first
		want   []byte
	}{
		{25 * m, []units.Bytes{1, 1, 1}, []byte{0, 0, 0}},
		{25 * m, []units.Bytes{m - 1, 1, 1}, []byte{0, 0, 1}},
		{25 * m, []units.Bytes{100 * m, 24 * m, m - 1, 1, 0, 1}, []byte{0, 1, 1, 1, 2, 2}},
		{25 * m, []units.Bytes{m, 25 * m, 25 * m, 30 * m, 1}, []byte{0, 1, 2, 3, 4}},
		{m / 2, []units.Bytes{m / 2, m / 4, m / 4, 1}, []byte{0, 1, 1, 2}},
	} {
		g, got := newGraphs(c.bucket), []byte(nil)
		for _, b := range c.reads {
			got = append(got, g.add(b))
		}
		require.Equal(t, c.want, got, "%+v", c)
	}
}

// TestGraphsOfLayers: two H200 allocated 319 MB a layer more than one, beside the buckets, of weights in 32 bits under autocast, and 92
// of weights in 16 (PyTorch 2.11, compiled whole, 2026-11-30; calibrate/runs/data/compiled-plain.yaml).
func TestGraphsOfLayers(t *testing.T) {
	const tokens, width, mlp = 16384, 2048, 5632
	for _, c := range []struct {
		precision string
		graphs    []string // of q, k, v, o, gate, up and down, in the last layer and in the one before
		more      float64  // bytes that the two keep in graphs
		measured  float64
	}{
		// what the gate's activation makes, and a 16-bit copy for q and k, for v, for gate and for up, where there was one of each norm
		{"bf16-autocast", []string{"4433210", "4433210"}, 2 * 2 * (mlp + 2*width) * tokens, 2 * 319e6},
		{"bf16-pure", []string{"2221100", "2222110"}, 2 * mlp * tokens, 2 * 92e6},
	} {
		x := config(t, "llama2-7b", "nanogpt")
		s := *x.Spec
		s.Hidden, s.Heads, s.KVHeads, s.FFN, s.Layers = width, 16, 16, mlp, 12
		x.Spec, x.Precision, x.Attention, x.MicroBatch, x.Sequence = &s, x.Recipe.Precision[c.precision], "sdpa", 8, tokens/8
		x.OneGraph = true
		alone := Build(x)
		x.OneGraph, x.Bucket = false, 25*units.MiB
		cut := Build(x)
		g := newGraphs(x.Bucket)
		g.unit(&alone.Head, x.Precision.Weights.Size())
		var more units.Bytes
		for i, want := range c.graphs {
			layer := &alone.Kinds[0]
			of := g.unit(layer, x.Precision.Weights.Size())
			var got []byte
			for _, r := range []model.Role{model.RoleQ, model.RoleK, model.RoleV, model.RoleO, model.RoleGate, model.RoleUp, model.RoleDown} {
				at := slices.IndexFunc(layer.Params, func(p Param) bool { return p.Role == r })
				got = append(got, '0'+of[at])
			}
			require.Equal(t, want, string(got), c.precision)
			more += cut.Kinds[cut.Layers[11-i]].Saved() - layer.Saved()
		}
		require.InEpsilon(t, c.more, float64(more), 1e-3, c.precision)
		require.InEpsilon(t, c.measured, float64(more), 0.01, c.precision)
	}
}
