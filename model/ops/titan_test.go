package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
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

// TestWholeLoss: with disable_loss_parallel the output layer's layout is Replicate() (models/llama3/infra/parallelize.py
// of v0.2.2): every tensor rank gathers all logits, computes the loss of all, and takes its part of their gradient.
func TestWholeLoss(t *testing.T) {
	const tp = 4
	for _, c := range []struct {
		recipe       string
		whole, fused bool
		gathered     int   // times the logits are
		sums         int   // over tensor ranks, of rows' maxima, sums and targets
		cut          int64 // share of the widest tensor's columns: a rank's, or all
	}{
		{"torchtitan-eager", false, false, 0, 3, tp},
		{"torchtitan-eager", true, false, 1, 0, 1},
		{"torchtitan", false, true, 0, 3, tp},
		{"torchtitan", true, true, 1, 0, 1},
		{"hf-eager", true, false, 0, 0, 1}, // which cuts no output layer
	} {
		job := config(t, "llama3-8b", c.recipe)
		job.Shard.TP, job.Shard.SequenceParallel, job.FusedLoss, job.WholeLoss = tp, true, c.fused, c.whole
		head := Build(job).Head
		all := units.Bytes(job.MicroBatch * job.Sequence * job.Spec.Vocab)
		var gathers, sums int
		var most units.Bytes
		for _, s := range []*tape.Section{&head.Forward, &head.Backward} {
			for _, o := range s.Ops {
				switch {
				case o.Comm == nil:
				case o.Comm.Kind == "all-gather" && o.Comm.Bytes == 2*all:
					gathers++
				case o.Comm.Kind == "all-reduce":
					sums++
				}
			}
			for _, e := range s.Events {
				most = max(most, e.Bytes)
			}
		}
		require.Equal(t, c.gathered, gathers, "%+v", c)
		require.Equal(t, c.sums, sums, "%+v", c)
		wide := units.Bytes(4)
		if c.fused && c.whole {
			wide = 2 // compiled over whole logits, no tensor is in fp32
		}
		require.Equal(t, wide*all/units.Bytes(c.cut), most, "%+v", c)
	}
}
