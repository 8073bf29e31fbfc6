package memory

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
)

// encoded is a step of a model in pure bf16 on one GPU, with its encoder's units in front.
func encoded(t testing.TB, s *model.Spec, again ops.Recompute, in ops.InputConfig) *Step {
	t.Helper()
	r, err := recipe.Load("hf-eager")
	require.NoError(t, err)
	m := ops.Build(ops.Config{Spec: s, Recipe: r, Precision: r.Precision["bf16-pure"], Shard: ops.Shard{TP: 1, CP: 1, EP: 1, ExpertTP: 1},
		KernelConfig: ops.KernelConfig{Attention: "sdpa"}, InputConfig: in, CheckpointConfig: ops.CheckpointConfig{Recompute: again}, ExpertConfig: ops.ExpertConfig{Imbalance: 1}})
	step := &Step{MicroBatches: 1}
	for _, k := range m.Encodes {
		step.Units = append(step.Units, &m.Encoder[k])
	}
	step.Units = append(step.Units, &m.Embedding)
	for _, k := range m.Layers {
		step.Units = append(step.Units, &m.Kinds[k])
	}
	step.Units = append(step.Units, &m.Head)
	count := s.Params()
	step.Static[Parameters], step.Static[OptimizerStates] = 2*units.Bytes(count.Total), 4*units.Bytes(count.Trained)
	return step
}

// looking is a step of a vision-language model, two images in each of two sequences.
func looking(t testing.TB, name string, again ops.Recompute, i model.Images) *Step {
	t.Helper()
	s, err := model.Load(name)
	require.NoError(t, err)
	i.Each = 2
	s.Vision = s.Vision.Of(i)
	return encoded(t, s, again, ops.InputConfig{MicroBatch: 2, Sequence: 2048})
}

// encoders are one of each kind, with a size that it takes.
var encoders = map[string]int64{"qwen3-vl-2b": 448, "qwen2.5-vl-3b": 448, "gemma3-4b": 896, "llava-1.5-7b": 336}

// TestEncoderReturnsToTheStart: after a step only what lives between steps is left, whatever of
// an encoder is frozen, and further steps are like the first. A frozen unit in front of trained
// ones, as layers in front of inner projectors are, leaves nothing gathered.
// (Of a layer norm that ends a unit some kB of gradients are taken after they are released.)
func TestEncoderReturnsToTheStart(t *testing.T) {
	for name, size := range encoders {
		for _, frozen := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
			for mode, change := range map[string]func(*Step){
				"plain": func(*Step) {}, "accumulating": func(s *Step) { s.MicroBatches = 3 }, "buckets": func(s *Step) { s.Mode = Bucketed }, "swept": func(s *Step) { s.Mode = Swept },
				"sharded": func(s *Step) { shard(s, 4) }, "sharded accumulating": func(s *Step) { shard(s, 4); s.MicroBatches = 3 },
				"sharded, no root": func(s *Step) { shard(s, 4); s.Sharding.Root = false }, "sharded, kept": func(s *Step) { shard(s, 4); s.Sharding.Reshard = false },
				"flat": func(s *Step) { shard(s, 4); s.Sharding.Copies = false },
			} {
				for _, again := range []ops.Recompute{ops.NoRecompute, ops.FullRecompute} {
					s := looking(t, name, again, model.Images{Height: size, Width: size, FrozenEncoder: frozen[0], FrozenProjector: frozen[1]})
					change(s)
					w := new(tracker).walkers([]*Step{s}, 2)[0]
					begin(w)
					w.step()
					require.InDelta(t, float64(s.Static.Total()), float64(w.t.now), 1<<16, "%s, %v, %s, %s", name, frozen, mode, again)
					first := w.t.peak
					w.step()
					require.InDelta(t, float64(first), float64(w.t.peak), 1<<16, "%s, %v, %s, %s: steps are alike", name, frozen, mode, again)
				}
			}
		}
	}
}

// TestFrozenEncoderKeepsNothing: the peak of a step whose encoder and projector are frozen does
// not depend on how many layers it has, but for their parameters; of a trained one every layer
// keeps its activations, or under full recomputation its input, in 16 bits. Qwen3-VL 2B, whose
// encoder has 24 layers of width 1024; 28 by 28 patches of each of four images.
func TestFrozenEncoderKeepsNothing(t *testing.T) {
	peak := func(again ops.Recompute, frozen bool, layers int) float64 {
		s := looking(t, "qwen3-vl-2b", again, model.Images{Height: 448, Width: 448, FrozenEncoder: frozen, FrozenProjector: frozen})
		s.Static = Bytes{}
		var list []*ops.Unit
		for _, u := range s.Units {
			if u.Name == "vision layer" {
				if layers--; layers < 0 {
					continue
				}
			}
			list = append(list, u)
		}
		s.Units = list
		return float64(Measure(s, nil).Allocated)
	}
	const positions, h = 4 * 28 * 28, 1024
	require.InDelta(t, peak(ops.NoRecompute, true, 12), peak(ops.NoRecompute, true, 24), 1)
	require.InDelta(t, peak(ops.FullRecompute, true, 12), peak(ops.FullRecompute, true, 24), 1)
	require.InDelta(t, 12*2*positions*h, peak(ops.FullRecompute, false, 24)-peak(ops.FullRecompute, false, 12), 1)
	// Else inputs of norms and of products (2, 2), what q, k and v are parts of and q and k turned (3, 2), what attention
	// puts out image by image and in one (2), the MLP before and after GELU (8); in fp32 what softmax of 16 heads and norms keep.
	require.InDelta(t, 12*positions*(2*19*h+4*16+2*2*4), peak(ops.NoRecompute, false, 24)-peak(ops.NoRecompute, false, 12), 12*positions)
}

// TestEncoderInTheRoot: under FSDP2 what is around the encoder's layers is of the root, with
// embedding and head, which stays gathered. Frozen layers have nothing to do backward, and are
// not gathered for it.
func TestEncoderInTheRoot(t *testing.T) {
	s := looking(t, "qwen3-vl-2b", ops.NoRecompute, model.Images{Height: 448, Width: 448, FrozenEncoder: true, FrozenProjector: true})
	shard(s, 4)
	w := new(tracker).walkers([]*Step{s}, 2)[0]
	begin(w)
	var root, layer units.Bytes
	for i, u := range s.Units {
		n := units.Bytes(0)
		for k := range u.Params {
			if w.own(&u.Params[k]) {
				n += units.Bytes(u.Params[k].Local)
			}
		}
		switch {
		case u.Layers == 0:
			root += n
			require.Equal(t, i == 0, w.parts[i].params > 0, u.Name)
		case u.Name == "vision layer":
			layer = n
			fallthrough
		default:
			require.Equal(t, n, w.parts[i].params, u.Name)
		}
	}
	require.Equal(t, root, w.parts[0].params)

	s.Record = true
	forward := 0
	for _, p := range Measure(s, nil).Points {
		if !strings.HasPrefix(p.Label, "vision layer") {
			continue
		}
		require.True(t, strings.HasSuffix(p.Label, "forward"), p.Label)
		if forward++; forward > 1 { // until then there is what the root was copied out from, then what a layer was
			require.LessOrEqual(t, float64(p.By[Gathered]), 1.001*float64(2*(root+2*layer)), p.Label)
		}
	}
	require.Equal(t, 24, forward)
}
