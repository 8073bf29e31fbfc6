package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// TestPolicy: torchtitan's selective checkpoints ask a function in Python about each op of both of
// their runs, once for all where the compiler asks it, and never where a checkpoint keeps nothing.
// The second run asks about what was kept, too, which no kernel makes again.
func TestPolicy(t *testing.T) {
	asked := func(recipe string, r Recompute) (forward, again int, of [2]int) {
		c := config(t, "llama3-8b", recipe)
		c.Recompute = r
		layer := &Build(c).Kinds[0]
		for i, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for _, o := range s.Ops {
				n := int(o.Host.Calls + o.Host.Views)
				if phase := []tape.Phase{tape.Forward, tape.Recompute}[i]; o.Phase == phase {
					of[i] += n
				} else {
					require.False(t, o.Host.Asked, "%s of the %s pass", o.Prim, o.Phase)
				}
				if o.Host.Asked && i == 0 {
					forward += n
				} else if o.Host.Asked {
					again += n
				}
			}
		}
		return forward, again, of
	}
	forward, again, of := asked("torchtitan-eager", SelectiveRecompute)
	require.InDelta(t, of[0], forward, 2)
	require.InDelta(t, of[1], again, 2)
	require.InDelta(t, of[0], of[1], 5, "every op is dispatched again, but the kernels of what was kept are not")
	for recipe, r := range map[string]Recompute{"torchtitan": SelectiveRecompute, "torchtitan-eager": FullRecompute, "hf-eager": FullRecompute} {
		forward, again, _ := asked(recipe, r)
		require.Zero(t, forward+again, recipe)
	}
}

// TestHalves: torchtitan turns halves of Qwen3's and gpt-oss' heads by joining them, in the model's
// 16 bits, and pairs of Llama's as complex numbers in 32 (models/qwen3/model, models/llama3/model).
func TestHalves(t *testing.T) {
	joined := func(name, recipe string) (n int) {
		c := config(t, name, recipe)
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Module == "rotary" && o.Prim == "cat" {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, joined("qwen3-30b-a3b", "torchtitan-eager"))
	require.Equal(t, 2, joined("gpt-oss-20b", "torchtitan-eager"))
	require.Zero(t, joined("llama3-8b", "torchtitan-eager"))
	require.Zero(t, joined("qwen3-30b-a3b", "torchtitan"), "the compiler joins it all")
}
