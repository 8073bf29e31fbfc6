package dataparallel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
)

// stretches are those of a model with so many of its layers.
func stretches(t *testing.T, name string, layers int) []*ops.Unit {
	t.Helper()
	s, err := model.Load(name)
	require.NoError(t, err)
	of := func(layers int64, tensors []model.Tensor) *ops.Unit {
		u := &ops.Unit{Layers: layers}
		for _, x := range tensors {
			u.Params = append(u.Params, ops.Param{Tensor: x, Local: x.Size()})
		}
		return u
	}
	all := s.Tensors()
	list := []*ops.Unit{of(0, all.Embedding)}
	for range layers {
		list = append(list, of(1, all.Layer(model.LayerKind{})))
	}
	return append(list, of(0, all.Head))
}

// TestUnits: parameters of the root, of the rest in front of the head, and of the units in the
// order of their stretches, in millions. Those by size are what torch/distributed/fsdp/wrap.py,
// _recursive_wrap, makes: of Qwen2.5 7B each MLP, table and head, of 72B each matrix of an MLP and
// the attention of a layer (a public comparison of InfiniBand and TCP says so of its runs).
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		model      string
		policy     strategies.UnitPolicy
		root, rest int64
		units      []int64
		leaves     int
	}{
		{"qwen2.5-7b", strategies.UnitPolicy{Units: strategies.ModelUnit}, 1556, 0, nil, 0},
		{"qwen2.5-7b", strategies.UnitPolicy{Units: strategies.SizeUnits, Least: 100e6}, 58, 0, []int64{544, 203, 203, 544}, 2},
		{"qwen2.5-7b", strategies.UnitPolicy{Units: strategies.SizeUnits, Least: 50e6}, 0, 58, []int64{544, 67, 67, 67, 67, 67, 67, 544}, 6},
		{"qwen2.5-72b", strategies.UnitPolicy{Units: strategies.SizeUnits, Least: 100e6}, 0, 0, []int64{1245, 151, 242, 242, 242, 151, 242, 242, 242, 1245}, 8},
		{"llama3.1-8b", strategies.UnitPolicy{Units: strategies.ModuleUnits}, 1050, 0, []int64{41, 176, 41, 176}, 4},
		{"llama3.1-8b", strategies.UnitPolicy{Least: 10e6}, 0, 0, []int64{525, 16, 16, 58, 58, 58, 8, 16, 16, 58, 58, 58, 8, 525}, 10},
		{"gpt2", strategies.UnitPolicy{Units: strategies.LayerUnits, Least: 1e6}, 39, 0, []int64{1, 2, 2, 0, 1, 2, 2, 0}, 6}, // table and head are one tensor
	} {
		list := stretches(t, c.model, 2)
		p := Units(c.policy, list)
		n, leaves := make([]int64, len(p.Leaf)), 0
		for i, of := range p.Of {
			for k, unit := range of {
				if x := &list[i].Params[k]; !x.TiedCopy {
					n[unit] += x.Size()
				}
			}
		}
		for unit := range n {
			n[unit] /= 1e6
			if p.Leaf[unit] {
				leaves++
			}
		}
		require.Equal(t, [2]int64{c.root, c.rest}, [2]int64(n[:2]), c)
		require.Equal(t, c.units, append([]int64(nil), n[2:]...), c)
		require.Equal(t, c.leaves, leaves, c)
		spans, drops := p.Spans()
		require.Equal(t, c.rest > 0, drops, c)
		require.Equal(t, p.Of[1][0] < firstUnit, spans[1][0], c)
	}
}
