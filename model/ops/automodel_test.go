package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// TestReachInTurn: on how many ranks and nodes of 8 the experts of a token lie when tokens take
// them in turn (NeMo AutoModel, components/moe/layers.py, FakeBalancedGate), counted
// token by token.
func TestReachInTurn(t *testing.T) {
	for _, c := range []struct {
		experts, k, parts int64
		want              float64
	}{
		{256, 8, 64, 2}, {256, 8, 8, 1}, // DeepSeek-V3: 4 experts a rank, 32 a node
		{128, 8, 8, 1}, {32, 4, 8, 1}, {128, 4, 64, 2}, // Qwen3 30B, gpt-oss 20B and 120B
		{8, 2, 8, 2}, {8, 2, 1, 1},
	} {
		require.Equal(t, c.want, ReachInTurn(&model.MoE{Experts: c.experts, TopK: c.k}, c.parts), "%+v", c)
	}
	for _, m := range []model.MoE{{Experts: 128, TopK: 6}, {Experts: 512, TopK: 22}, {Experts: 64, TopK: 6}, {Experts: 7, TopK: 3}} {
		for parts := int64(1); parts <= m.Experts; parts++ {
			if m.Experts%parts > 0 {
				continue
			}
			reached, part := 0, m.Experts/parts
			for token := range m.Experts {
				of := map[int64]bool{}
				for i := range m.TopK {
					of[(token*m.TopK+i)%m.Experts/part] = true
				}
				reached += len(of)
			}
			got := ReachInTurn(&m, parts)
			require.InDelta(t, float64(reached)/float64(m.Experts), got, 1e-12, "%+v on %d", m, parts)
			require.LessOrEqual(t, got, Reach(&m, parts)+1, "hardly more than at random")
		}
	}
}

// TestInTurn: without a router its matrix is not read, and of the rows' weights a gradient is
// made all the same.
func TestInTurn(t *testing.T) {
	at := func(inTurn bool) *Model {
		c := config(t, "qwen3-30b-a3b", "automodel-moe")
		c.Shard.EP, c.Shard.Flex, c.Shard.DeepEP, c.InTurn = 8, true, true, inTurn
		return Build(c)
	}
	sent := func(s *tape.Section) (bytes units.Bytes) {
		for i := range s.Ops {
			if c := s.Ops[i].Comm; c != nil && c.Kind == "deepep-exchange" {
				bytes += units.Bytes(float64(c.Bytes))
			}
		}
		return
	}
	router, none := at(false).Kinds[0], at(true).Kinds[0]
	used := func(u Unit) bool {
		for _, p := range u.Params {
			if p.Role == model.RoleRouter {
				return p.Used
			}
		}
		return false
	}
	require.True(t, used(router))
	require.False(t, used(none))
	require.Less(t, sent(&none.Forward), sent(&router.Forward)/4, "8 experts of a token lie on one rank, not on 5.3")
	require.True(t, hasOp(&none.Backward, "glu_row_sum"), "the gradient of the weights")
}

// hasOp reports whether a section has an op of a primitive.
func hasOp(s *tape.Section, prim string) bool {
	for i := range s.Ops {
		if s.Ops[i].Prim == prim {
			return true
		}
	}
	return false
}

// TestExpertsBiases: both biases of gpt-oss's experts are added expert by expert, the second
// weighed, and joined (NeMo AutoModel 2025-10, components/moe/layers.py, _apply_bias).
func TestExpertsBiases(t *testing.T) {
	c := config(t, "gpt-oss-20b", "automodel-moe")
	c.Shard.EP, c.Shard.Flex, c.Shard.DeepEP = 8, true, true
	layer := Build(c).Kinds[0]
	experts := c.Spec.MoE.Experts / 8
	adds, joins := int64(0), 0
	for i := range layer.Forward.Ops {
		switch o := &layer.Forward.Ops[i]; {
		case o.Module == "experts" && o.Prim == "add":
			adds += int64(o.Count)
		case o.Module == "experts" && o.Prim == "cat":
			joins++
		}
	}
	require.Equal(t, 2*experts, adds)
	require.Equal(t, 2, joins)
	sums := int64(0)
	for i := range layer.Backward.Ops {
		if o := &layer.Backward.Ops[i]; o.Module == "experts" && o.Prim == "sum" && o.Class == tape.ColReduce {
			sums += int64(o.Count)
		}
	}
	require.Equal(t, 2*experts, sums, "gradients of both")
	for _, p := range layer.Params {
		require.True(t, p.Used || p.Split != model.ExpertSplit, p.Name)
	}
}

// TestFusedTurns: Transformer Engine's kernel turns AutoModel's queries and keys from 2026-01 to
// 2026-07, and YaRN's factor is multiplied in by one more.
func TestFusedTurns(t *testing.T) {
	for _, p := range []struct {
		model, release string
		kernels        int // forward, of queries and keys
	}{
		{"qwen3-30b-a3b", "25.12", 14}, {"qwen3-30b-a3b", "26.01", 2}, {"qwen3-30b-a3b", "26.06", 2}, {"qwen3-30b-a3b", "26.07", 14},
		{"gpt-oss-20b", "26.06", 4}, {"gpt-oss-20b", "26.07", 14},
	} {
		c := config(t, p.model, "automodel-moe")
		var release units.Release
		require.NoError(t, release.UnmarshalText([]byte(p.release)))
		c.Recipe = c.Recipe.At(release)
		n := 0
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Module == "rotary" && o.Class != tape.NoKernel {
				n++
			}
		}
		require.Equal(t, p.kernels, n, "%s %s", p.model, p.release)
	}
}
