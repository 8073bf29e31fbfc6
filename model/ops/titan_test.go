package ops

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
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

// TestOwnTPInputs: where each ColwiseParallel has input_layouts of its own, a checkpointed layer of Llama gathers
// 12 times and reduces 8 times over tensor ranks along the sequence, as KempnerForge's profile of 13B has it
// (benchmarks/profiling/13b_24gpu_profiling.md: 9679 and 6420 calls of 40 layers in 20 micro batches); with
// PrepareModuleInput before each block 6 and 5 times. Without sequence parallelism each gradient is summed.
func TestOwnTPInputs(t *testing.T) {
	for _, c := range []struct {
		own, sequence               bool
		gathers, scatters, reducers int
	}{
		{false, true, 6, 5, 0},
		{true, true, 12, 8, 0},
		{false, false, 0, 0, 5},
		{true, false, 0, 0, 8},
	} {
		job := config(t, "llama3-8b", "torchtitan-eager")
		own := *job.Recipe
		own.Structure.OwnTPInputs, own.Structure.FusedQKV = c.own, false
		job.Recipe, job.Recompute = &own, FullRecompute
		job.Shard.TP, job.Shard.SequenceParallel = 4, c.sequence
		layer := Build(job).Kinds[0]
		calls := map[string]int{}
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for _, o := range s.Ops {
				if o.Comm != nil {
					calls[o.Comm.Kind]++
				}
			}
		}
		require.Equal(t, []int{c.gathers, c.scatters, c.reducers}, []int{calls["all-gather"], calls["reduce-scatter"], calls["all-reduce"]}, "%+v", c)
	}
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

// TestKeptProducts: torchtitan's policy keeps every other product of a layer with experts (queries,
// keys, values, output) and never the router's; those with a bias, which PyTorch calls by another
// name (addmm), all or, until 114151a of 2026-03-23, none (of gpt-oss the router's is taken to have none). Where the compiler has such a layer in
// pieces, until 5242bdf of 2026-04-14, it sees none of them. From 3396a4b of 2026-06-24 on queries,
// keys and values are one.
func TestKeptProducts(t *testing.T) {
	for _, p := range []struct {
		model, recipe, release string
		again                  int // of linear layers, the router's among them
	}{
		{"qwen3-30b-a3b", "torchtitan-eager", "26.02", 3}, {"qwen3-30b-a3b", "torchtitan", "26.02", 5},
		{"qwen3-30b-a3b", "torchtitan-eager", "26.05", 3}, {"qwen3-30b-a3b", "torchtitan", "26.05", 3}, {"qwen3-30b-a3b", "torchtitan", "26.07", 2},
		{"gpt-oss-20b", "torchtitan-eager", "26.02", 5}, {"gpt-oss-20b", "torchtitan-eager", "26.04", 1}, {"gpt-oss-20b", "torchtitan", "26.05", 1},
	} {
		c := config(t, p.model, p.recipe)
		c.Recipe, c.Recompute = c.Recipe.At(released(t, p.release)), SelectiveRecompute
		n := 0
		for _, o := range Build(c).Kinds[0].Backward.Ops {
			if o.Phase == tape.Recompute && o.Prim == "linear" {
				n++
			}
		}
		require.Equal(t, p.again, n, "%+v", p)
	}
}

// TestCopiedQKV: what is cut from one projection without a compiler is copied three times, and its
// gradients joined once (torchtitan, models/common/attention.py, FusedQKVLinear, from 3396a4b of 2026-06-24 on).
func TestCopiedQKV(t *testing.T) {
	for _, p := range []struct {
		release         string
		linears, copies int
	}{{"26.06", 7, 0}, {"26.07", 5, 3}} {
		c := config(t, "llama3-8b", "torchtitan-eager")
		c.Recipe = c.Recipe.At(released(t, p.release))
		layer := &Build(c).Kinds[0]
		require.Equal(t, []int{p.linears, p.copies}, []int{number(&layer.Forward, "linear"), number(&layer.Forward, "clone")}, p.release)
	}
}

// TestEagerGPTOSS: what runs of gpt-oss without a compiler as torchtitan's files have it: clamps and all
// else of a gate one by one, with experts' rows padded or not (models/gpt_oss/moe.py, swiglu), two waits of
// the host for the rows of each bias until 81e7625 of 2026-03-05, and halves of heads turned in 16 bits until
// 3da072e of 2026-03-14 (models/common/rope.py). A compiler makes one kernel of a gate. Either rescales what
// attention makes by the heads' sinks, which learn of it (models/gpt_oss/model.py).
func TestEagerGPTOSS(t *testing.T) {
	for _, p := range []struct {
		recipe, release     string
		clamps, glus, waits int
		turned              tape.DType
	}{
		{"torchtitan-eager", "26.02", 2, 0, 4, tape.BF16},
		{"torchtitan-eager", "26.03", 2, 0, 0, tape.BF16},
		{"torchtitan-eager", "26.05", 2, 0, 0, tape.F32},
		{"torchtitan", "26.02", 0, 1, 4, tape.BF16},
		{"torchtitan", "26.05", 0, 1, 0, tape.BF16},
	} {
		c := config(t, "gpt-oss-20b", p.recipe)
		c.Recipe, c.Attention = c.Recipe.At(released(t, p.release)), "flash"
		layer := &Build(c).Kinds[0]
		waits, rescaled := 0, 0
		for _, o := range layer.Forward.Ops {
			if o.Sync {
				waits++
			}
			switch {
			case o.Module == "rotary" && o.Class != tape.NoKernel && o.Prim != "to":
				require.Equal(t, p.turned, o.DType, "%+v: %s", p, o.Prim)
			case o.Module == "attention" && (o.Prim == "mul" || o.Prim == "sinks"):
				rescaled++
				require.EqualValues(t, c.MicroBatch*c.Sequence*c.Spec.Heads*c.Spec.HeadDim, o.Elements, "%+v", p)
			}
		}
		require.Equal(t, []int{p.clamps, p.glus, p.waits, 1}, []int{number(&layer.Forward, "clamp"), number(&layer.Forward, "glu"), waits, rescaled}, "%+v", p)
		require.True(t, slices.ContainsFunc(layer.Backward.Grads, func(g tape.ParamGrad) bool { return layer.Params[g.Param].Role == model.RoleSinks }), "%+v", p)
	}
}

// TestLossChunks: in eight chunks output layer and loss make the same products, all before the
// decoder's backward pass, over an eighth of the logits each; gradients of the weight are added up in
// the dtype that they are reduced in (torchtitan, components/loss.py, ChunkedCELoss).
func TestLossChunks(t *testing.T) {
	for _, p := range []struct {
		recipe string
		fused  bool
		tp     int64
	}{{"torchtitan", true, 1}, {"torchtitan-eager", false, 1}, {"torchtitan", true, 4}, {"hf-eager", true, 1}, {"hf-compile", false, 1}} {
		c := config(t, "llama3-8b", p.recipe)
		c.FusedLoss, c.Shard.TP, c.Shard.SequenceParallel, c.MicroBatch, c.Sequence = p.fused, p.tp, p.tp > 1, 16, 8192
		of := func(chunks int64) (products [3]int, flops units.FLOPs, widest units.Bytes, head Unit) {
			c.LossChunks = chunks
			head = Build(c).Head
			for i, s := range []*tape.Section{&head.Forward, &head.Backward} {
				for _, o := range s.Ops {
					if o.Class == tape.GEMM {
						flops += o.FLOPs
						products[i]++
					}
				}
				for _, e := range s.Events {
					if e.Kind == tape.Logits {
						widest = max(widest, e.Bytes)
					}
				}
			}
			for _, o := range head.Forward.Ops {
				if o.Prim == "add_" && o.DType == tape.F32 && int64(o.Elements) == c.Spec.Vocab*c.Spec.Hidden/p.tp {
					products[2]++
				}
			}
			return
		}
		whole, flops, most, _ := of(0)
		require.Equal(t, [3]int{1, 2, 0}, whole, "%+v", p)
		chunked, again, least, head := of(8)
		require.Equal(t, [3]int{24, 0, 7}, chunked, "%+v", p)
		require.InEpsilon(t, float64(flops), float64(again), 1e-12, "%+v", p)
		require.Equal(t, most/8, least, "%+v", p)
		i := slices.IndexFunc(head.Backward.Grads, func(g tape.ParamGrad) bool { return head.Params[g.Param].Role == model.RoleHead })
		require.GreaterOrEqual(t, i, 0)
		require.EqualValues(t, 4*c.Spec.Vocab*c.Spec.Hidden/p.tp, head.Backward.Grads[i].Bytes, "%+v", p)
		require.Zero(t, left(&head.Forward)+left(&head.Backward)-units.Bytes(gradients(&head)), "%+v: nothing stays but gradients", p)
	}
}

// TestSummedLoss: chunks whose gradients the backward pass makes. With their logits kept, output layer and
// loss make what they make at once, chunk by chunk (torchtune, modules/transformer.py, chunked_output); as
// checkpoints they make logits a second time, and hold those of one chunk (torch.utils.checkpoint).
func TestSummedLoss(t *testing.T) {
	for _, p := range []struct {
		recipe string
		fused  bool
	}{{"hf-eager", false}, {"hf-eager", true}, {"nanogpt", false}, {"litgpt", false}, {"litgpt", true}} {
		of := func(chunks int64, keep ChunksKeep) (products [2]int, flops units.FLOPs, kept units.Bytes) {
			c := config(t, "llama3-8b", p.recipe)
			c.FusedLoss, c.LossChunks, c.ChunksKeep, c.MicroBatch, c.Sequence = p.fused, chunks, keep, 2, 8192
			head := Build(c).Head
			for i, s := range []*tape.Section{&head.Forward, &head.Backward} {
				for _, o := range s.Ops {
					if o.Class == tape.GEMM {
						flops += o.FLOPs
						products[i]++
					}
				}
			}
			kept = left(&head.Forward) + left(&tape.Section{Events: head.Forward.Deferred}) // autocast's copy of the weight goes as the forward pass ends
			require.Zero(t, kept+left(&head.Backward)-units.Bytes(gradients(&head)), "%+v %s: nothing stays but gradients", p, keep)
			return products, flops, kept
		}
		whole, flops, saved := of(0, "")
		require.Equal(t, [2]int{1, 2}, whole, "%+v", p)
		logits, same, alike := of(4, KeepLogits)
		require.Equal(t, [2]int{4, 8}, logits, "%+v", p)
		require.InEpsilon(t, float64(flops), float64(same), 1e-12, "%+v", p)
		require.InEpsilon(t, float64(saved), float64(alike), 0.1, "%+v", p)
		nothing, more, least := of(4, KeepNothing)
		require.Equal(t, [2]int{4, 12}, nothing, "%+v", p)
		require.InEpsilon(t, 4./3, float64(more)/float64(flops), 1e-12, "%+v", p)
		require.Less(t, float64(least), 0.2*float64(saved), "%+v", p)
	}
}

// gradients are the bytes of what parameters of a unit keep.
func gradients(u *Unit) (sum units.Bytes) {
	for _, g := range u.Backward.Grads {
		sum += g.Bytes
	}
	return sum
}
