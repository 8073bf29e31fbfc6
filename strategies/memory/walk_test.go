package memory

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies/memory/allocator"
)

// llama is a step of TinyLlama in pure bf16 on one GPU with what lives between steps.
func llama(t testing.TB, again ops.Recompute) *Step { return llamaOf(t, again, 2048) }

// llamaOf has sequences of so many tokens.
func llamaOf(t testing.TB, again ops.Recompute, tokens int64) *Step {
	t.Helper()
	s, err := model.Load("tinyllama-1.1b")
	require.NoError(t, err)
	r, err := recipe.Load("hf-eager")
	require.NoError(t, err)
	m := ops.Build(ops.Config{Spec: s, Recipe: r, Precision: r.Precision["bf16-pure"], Shard: ops.Shard{TP: 1, CP: 1, EP: 1, ExpertTP: 1},
		KernelConfig: ops.KernelConfig{Attention: "sdpa"}, InputConfig: ops.InputConfig{MicroBatch: 4, Sequence: tokens}, CheckpointConfig: ops.CheckpointConfig{Recompute: again}, ExpertConfig: ops.ExpertConfig{Imbalance: 1}})
	step := &Step{MicroBatches: 1, Units: []*ops.Unit{&m.Embedding}}
	for _, k := range m.Layers {
		step.Units = append(step.Units, &m.Kinds[k])
	}
	step.Units = append(step.Units, &m.Head)
	n := units.Bytes(s.Params().Total)
	step.Static[Parameters], step.Static[OptimizerStates] = 2*n, 4*n
	return step
}

// TestPeakByHand: static memory, what every layer saves (20h + 4hk + 8f + 4a bytes per
// token), and 12 bytes per logit with the final norm's 8h at the backward pass of
// the loss; measured peaks on H200 agree to 0.06 %.
func TestPeakByHand(t *testing.T) {
	s := llama(t, ops.NoRecompute)
	p := Measure(s, nil)
	const h, hk, f, a, tokens, layers, vocab = 2048, 256, 5632, 32, 4 * 2048, 22, 32000
	want := float64(s.Static.Total()) + layers*tokens*(20*h+4*hk+8*f+4*a) + tokens*(8*h+12*vocab)
	require.InEpsilon(t, want, float64(p.Allocated), 2e-3)
	require.Equal(t, "head backward", p.Moment)
	require.InEpsilon(t, float64(p.Allocated), float64(p.By.Total()), 1e-12)
	require.InEpsilon(t, 12.0*tokens*vocab, float64(p.By[LogitsLoss]), 1e-3)
	require.Zero(t, p.Reserved, "without an allocator")
}

// TestWalkReturnsToTheStart: after a step only what lives between steps is left.
func TestWalkReturnsToTheStart(t *testing.T) {
	for name, change := range map[string]func(*Step){
		"plain": func(*Step) {}, "accumulating": func(s *Step) { s.MicroBatches = 3 },
		"buckets": func(s *Step) { s.Mode = Bucketed }, "main buffers": func(s *Step) { s.Mode = MainBuffers },
		"nodes":                       func(s *Step) { s.Mode, s.Nodes, s.MicroBatches = MainBuffers, true, 3 },
		"swept":                       func(s *Step) { s.Mode = Swept },
		"sharded":                     func(s *Step) { shard(s, 4) },
		"zero 1":                      func(s *Step) { buckets(s, Plain) },
		"zero 1 accumulating":         func(s *Step) { buckets(s, Plain); s.MicroBatches = 3 },
		"zero 2":                      func(s *Step) { buckets(s, Sharded) },
		"zero 2 accumulating":         func(s *Step) { buckets(s, Sharded); s.MicroBatches, s.SyncEvery = 3, true },
		"sharded accumulating":        func(s *Step) { shard(s, 4); s.MicroBatches = 3 },
		"sharded alike, accumulating": func(s *Step) { shard(s, 4); s.MicroBatches, s.Sharding.Reduce = 3, 2 },
		"sharded, every":              func(s *Step) { shard(s, 4); s.MicroBatches, s.SyncEvery = 3, true },
		"sharded, kept":               func(s *Step) { shard(s, 4); s.Sharding.Reshard = false },
		"gradients alone":             func(s *Step) { s.Mode, s.Sharding = Sharded, Sharding{Ranks: 4, ExpertRanks: 4, Reduce: 2} },
	} {
		for _, again := range []ops.Recompute{ops.NoRecompute, ops.SelectiveRecompute, ops.FullRecompute} {
			s := llama(t, again)
			change(s)
			w := new(tracker).walkers([]*Step{s}, 2)[0]
			begin(w)
			w.step()
			require.InDelta(t, float64(s.Static.Total()), float64(w.t.now), 1, "%s, %s", name, again)
			first := w.t.peak
			w.step()
			require.Equal(t, first, w.t.peak, "%s, %s: steps are alike", name, again)
		}
	}
}

// shard makes a step one of FSDP2 over n ranks.
func shard(s *Step, n int64) {
	s.Mode = Sharded
	s.Sharding = Sharding{Ranks: n, ExpertRanks: n, Gather: 2, Reduce: 4, Reshard: true, Root: true, Copies: true, Recasts: true}
}

// TestRootsCastStays: the root's shard, cast for its second gather, is there until what is
// reduced has been cast, too: 16 bits of a reduction's output beside 32 of what is kept.
func TestRootsCastStays(t *testing.T) {
	s := llamaOf(t, ops.FullRecompute, 16)
	shard(s, 2)
	s.Record, s.Sharding.Reduce, s.Sharding.Kept = true, 2, 4
	const root = 2*32000*2048 + 2048
	const layers = 1100048384 - root
	points := Measure(s, nil).Points
	last := points[len(points)-1]
	require.Equal(t, "embedding backward", last.Label)
	require.InDelta(t, float64(s.Static.Total()+4*layers/2+(2+2/2+4/2+2/2)*root), float64(last.Allocated), 3e6, "what goes in and comes out, what is kept, and the cast")
}

// TestAccumulatedGradients: what FSDP2 keeps of gradients until they are reduced is where autograd
// left it, or cast, and further micro batches add to it.
func TestAccumulatedGradients(t *testing.T) {
	for reduce, all := range map[units.Bytes]units.Bytes{2: 2 * 1100048384, 4: 4 * 1100048384} {
		s := llama(t, ops.FullRecompute)
		shard(s, 4)
		s.MicroBatches, s.Sharding.Reduce, s.Sharding.Kept = 3, reduce, 4
		w := new(tracker).walkers([]*Step{s}, 2)[0]
		begin(w)
		for k := range 2 {
			w.slot(min(k, 1))
			w.forward()
			w.backward(k == 0, false)
			require.Equal(t, all, w.t.by[Gradients], "reduced in %d bytes, after micro batch %d", reduce, k)
		}
		w.forward()
		w.backward(false, true)
		require.Equal(t, units.Bytes(4*1100048384/4), w.t.by[Gradients], "a rank's part in fp32")
	}
}

// TestRecastShards: both of PyTorch's FSDP keep a rank's part of the gradients as wide as the parameters, whatever
// they are reduced in (_accumulate_sharded_grad in _runtime_utils.py, foreach_reduce in _fsdp_collectives.py).
// Megatron-FSDP keeps them as they were reduced.
func TestRecastShards(t *testing.T) {
	for _, c := range []struct {
		copies, recasts bool
		each            units.Bytes
	}{{true, true, 4}, {false, true, 4}, {false, false, 2}} {
		for _, batches := range []int{1, 3} {
			s := llama(t, ops.FullRecompute)
			shard(s, 4)
			s.MicroBatches, s.SyncEvery = int64(batches), true
			s.Sharding.Reduce, s.Sharding.Kept, s.Sharding.Copies, s.Sharding.Recasts = 2, 4, c.copies, c.recasts
			w := new(tracker).walkers([]*Step{s}, 2)[0]
			begin(w)
			for k := range batches {
				w.slot(min(k, 1))
				w.forward()
				w.backward(k == 0, true)
			}
			require.Equal(t, c.each*1100048384/4, w.t.by[Gradients], "%v, %d micro batches", c, batches)
		}
	}
}

// TestHeldEmbeddings: what calls the layers holds what the first one took in until the last is done.
// It is nothing that a layer saves, so that it goes to no host and does not come back.
func TestHeldEmbeddings(t *testing.T) {
	const tokens, h = 4 * 2048, 2048
	for name, away := range map[string]Away{"here": {}, "away": {All: true}} {
		points := func(holds bool) map[string]units.Bytes {
			s := llama(t, ops.NoRecompute)
			s.Record, s.HoldsEmbeddings, s.Away = true, holds, away
			by := map[string]units.Bytes{}
			for _, p := range Measure(s, nil).Points {
				by[p.Label] = p.Allocated
			}
			return by
		}
		held, gone := points(true), points(false)
		require.Equal(t, units.Bytes(2*tokens*h), held["layer 22 forward"]-gone["layer 22 forward"], name)
		for label := range gone {
			if strings.HasSuffix(label, "backward") {
				require.Equal(t, gone[label], held[label], "%s, %s", name, label)
			}
		}
	}
	s := llama(t, ops.NoRecompute)
	s.HoldsEmbeddings = true
	w := new(tracker).walkers([]*Step{s}, 2)[0]
	begin(w)
	w.step()
	require.InDelta(t, float64(s.Static.Total()), float64(w.t.now), 1)
}

// TestKeptGradientsGoIntoBuckets: DDP adds to the gradients that micro batches without a reduction
// leave, and has them in its buckets when the last one ends.
func TestKeptGradientsGoIntoBuckets(t *testing.T) {
	s := llama(t, ops.FullRecompute)
	s.Mode = Bucketed
	w := new(tracker).walkers([]*Step{s}, 2)[0]
	begin(w)
	w.forward()
	w.backward(true, false)
	require.Equal(t, units.Bytes(2*1100048384), w.t.by[Gradients])
	w.slot(1)
	w.forward()
	w.backward(false, true)
	require.Zero(t, w.t.by[Gradients])
}

// buckets makes a step one of DeepSpeed's over four ranks, which reduce 100 million 16-bit
// gradients at once.
func buckets(s *Step, m Mode) {
	s.Mode = m
	s.Sharding = Sharding{Ranks: 4, ExpertRanks: 4, Reduce: 2, Bucket: 200e6, Buffers: 1, Joined: 2}
}

// TestBucketsByHand: all gradients are there at the end of a backward pass that reduces none of
// them; when the first bucket has taken its own the rank's part comes beside them, which has
// those of every parameter that it has values of. Where they are reduced as they come there are
// never all of them.
func TestBucketsByHand(t *testing.T) {
	reduced := func(m Mode, change func(*Sharding)) units.Bytes {
		s := llama(t, ops.FullRecompute)
		s.Record = true
		buckets(s, m)
		change(&s.Sharding)
		most := units.Bytes(0)
		for _, p := range Measure(s, nil).Points {
			most = max(most, p.By[Gradients]+p.By[Gathered])
		}
		return most
	}
	as := func(*Sharding) {}
	all := units.Bytes(2 * 1100048384)
	require.InDelta(t, float64(all+all/4), float64(reduced(Plain, as)), 2*2048*5632*2, "half of a matrix of a layer is another rank's, one waits for the next bucket")
	require.Less(t, reduced(Sharded, as), all/2)
	require.InDelta(t, 200e6, float64(reduced(Sharded, func(s *Sharding) { s.Buffers = 2 })-reduced(Sharded, as)), 1)
	require.InDelta(t, 400e6, float64(reduced(Sharded, func(s *Sharding) { s.Flush = 4 })-reduced(Sharded, as)), 40e6)
	large := func(s *Sharding) { s.Bucket, s.Flush = 20e6, 2 } // most gradients are larger
	require.Greater(t, reduced(Sharded, large), reduced(Sharded, func(s *Sharding) { large(s); s.Alone = true }))
}

// TestTiedGradients: a table and the head that is tied to it have one gradient, the sum of
// both, which is a tensor of its own: while it is made there are three, then one. A compiler
// that sees the whole model sums the table's in fp32 and has no head's beside it: the logits'
// gradient, and zeros of its size, wait for the product that makes both. Under autocast autograd
// adds in place; compiled there are a table's and a sum in fp32 and a head's in 16 bits.
func TestTiedGradients(t *testing.T) {
	of := func(name, precision string, graph bool, batches int64) (kept, most units.Bytes) {
		s, err := model.Load("llama3.2-1b")
		require.NoError(t, err)
		r, err := recipe.Load(name)
		require.NoError(t, err)
		m := ops.Build(ops.Config{Spec: s, Recipe: r, Precision: r.Precision[precision], Shard: ops.Shard{TP: 1, CP: 1, EP: 1, ExpertTP: 1}, GraphConfig: ops.GraphConfig{OneGraph: graph},
			KernelConfig: ops.KernelConfig{Attention: "sdpa"}, InputConfig: ops.InputConfig{MicroBatch: 1, Sequence: 128}, CheckpointConfig: ops.CheckpointConfig{Recompute: ops.FullRecompute}, ExpertConfig: ops.ExpertConfig{Imbalance: 1}, LossConfig: ops.LossConfig{FusedLoss: r.Structure.FusedLoss}})
		p := Measure(&Step{MicroBatches: batches, Record: true, Units: []*ops.Unit{&m.Embedding, &m.Kinds[0], &m.Head}}, nil)
		for _, q := range p.Points {
			if q.Label == "layer 1 forward" {
				kept = q.By[Gradients]
			}
			if q.Label == "embedding backward" {
				most = q.Allocated
			}
		}
		return kept, most
	}
	const table, layer, logits = 2 * 128256 * 2048, 2 * 60825600, 2 * 128256 * 128 // a norm of 2048 at the end beside them
	step := func(batches int64) (kept, most units.Bytes) { return of("hf-eager", "bf16-pure", false, batches) }
	kept, most := step(1)
	require.Zero(t, kept)
	require.InDelta(t, 3*table+layer, float64(most), 3e6)
	kept, most = step(2)
	require.InDelta(t, table+layer, float64(kept), 1e5)
	require.InDelta(t, 4*table+layer, float64(most), 3e6, "the second sum is added to the first")

	_, most = of("hf-eager", "bf16-autocast", false, 1)
	require.InDelta(t, (2+2)*table+2*layer, float64(most), 3e6, "in fp32, the table's is added to the head's, which is a cast's")

	_, most = of("hf-compile", "bf16-pure", true, 1)
	require.InDelta(t, (2+1)*table+layer+2*logits, float64(most), 3e6)
	_, most = of("hf-compile", "bf16-pure", false, 1)
	require.InDelta(t, (1+2+1)*table+layer, float64(most), 3e6, "the head's is there")
	_, most = of("hf-compile", "bf16-autocast", true, 1)
	require.InDelta(t, (1+2+2)*table+2*layer+logits, float64(most), 3e6)
}

// TestWhatSavesMemory: each of these is there to save memory, and does.
func TestWhatSavesMemory(t *testing.T) {
	peak := func(again ops.Recompute, change func(*Step)) units.Bytes {
		s := llama(t, again)
		if change != nil {
			change(s)
		}
		return Measure(s, nil).Allocated
	}
	none := peak(ops.NoRecompute, nil)
	require.Less(t, peak(ops.FullRecompute, nil), none/2)
	require.LessOrEqual(t, peak(ops.SelectiveRecompute, nil), none)
	two, eight := peak(ops.NoRecompute, func(s *Step) { shard(s, 2) }), peak(ops.NoRecompute, func(s *Step) { shard(s, 8) })
	require.LessOrEqual(t, eight, two)
	require.Less(t, peak(ops.NoRecompute, func(s *Step) { shard(s, 8); s.MicroBatches = 4; s.SyncEvery = true }), peak(ops.NoRecompute, func(s *Step) { shard(s, 8); s.MicroBatches = 4 }),
		"reduced at once, no whole gradients are kept")
	require.Equal(t, peak(ops.NoRecompute, func(s *Step) { s.MicroBatches = 2 }), peak(ops.NoRecompute, func(s *Step) { s.MicroBatches = 9 }), "further micro batches repeat the second")
}

// TestLossParallelByHand: with tensor parallelism the loss of torchtitan holds four fp32
// tensors as large as a rank's logits (log-probabilities, targets, exponentials, their
// sum: distributed/tensor/parallel/loss.py), else three; and the whole sequence that
// the head has read stays for its weight's gradient.
func TestLossParallelByHand(t *testing.T) {
	for tp, copies := range map[int64]int64{1: 3, 8: 4} {
		s, err := model.Load("llama3-8b")
		require.NoError(t, err)
		r, err := recipe.Load("torchtitan")
		require.NoError(t, err)
		m := ops.Build(ops.Config{Spec: s, Recipe: r, Precision: r.Precision["bf16"], Shard: ops.Shard{TP: tp, CP: 1, EP: 1, ExpertTP: 1, SequenceParallel: tp > 1},
			KernelConfig: ops.KernelConfig{Attention: "sdpa"}, InputConfig: ops.InputConfig{MicroBatch: 1, Sequence: 8192}, CheckpointConfig: ops.CheckpointConfig{Recompute: ops.FullRecompute}, ExpertConfig: ops.ExpertConfig{Imbalance: 1}})
		p := Measure(&Step{MicroBatches: 1, Units: []*ops.Unit{&m.Embedding, &m.Kinds[0], &m.Head}}, nil)
		require.Equal(t, "head backward", p.Moment)
		logits := copies * 4 * 8192 * s.Vocab / tp
		if tp > 1 {
			logits += 2 * 8192 * s.Hidden
		}
		require.InEpsilon(t, float64(logits), float64(p.By[LogitsLoss]), 1e-3, "tp %d", tp)
	}
}

// TestReserved: the allocator keeps at least what is allocated, in whole segments, and
// a recorded walk has its peak among its points.
func TestReserved(t *testing.T) {
	s := llama(t, ops.NoRecompute)
	s.Record = true
	p := Measure(s, allocator.New(allocator.Options{}))
	require.GreaterOrEqual(t, p.Reserved, p.Allocated)
	require.Less(t, float64(p.Reserved), 1.3*float64(p.Allocated))
	var highest units.Bytes
	labels := map[string]bool{}
	for _, q := range p.Points {
		highest = max(highest, q.Allocated)
		labels[q.Label] = true
		require.InEpsilon(t, float64(q.Allocated), float64(q.By.Total()), 1e-12)
	}
	require.Equal(t, p.Allocated, highest)
	require.True(t, labels["layer 22 backward"] && labels["embedding forward"])
}

// TestRounding: blocks of the allocator are larger than what is in them, by up to 1 MiB.
func TestRounding(t *testing.T) {
	s := llama(t, ops.NoRecompute)
	of := func(a *allocator.Allocator) (units.Bytes, units.Bytes) {
		p := Measure(s, a)
		require.Equal(t, p.Allocated, p.By.Total())
		return p.Allocated, p.By[Rounding]
	}
	asked, none := of(nil)
	require.Zero(t, none)
	taken, less := of(allocator.New(allocator.Options{}))
	require.Equal(t, asked+less, taken)
	s.Static[Workspaces] = 11 * units.MiB
	taken, more := of(allocator.New(allocator.Options{}))
	require.Equal(t, less+1*units.MiB, more)
	require.Equal(t, asked+11*units.MiB+more, taken)
}
