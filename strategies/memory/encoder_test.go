package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
)

// encoding is a step of an encoder-decoder model.
func encoding(t testing.TB, name string, again ops.Recompute) *Step {
	t.Helper()
	s, err := model.Load(name)
	require.NoError(t, err)
	return encoded(t, s, again, ops.InputConfig{MicroBatch: 2, Sequence: 128, Source: 512})
}

// TestEncoderOfTextReturnsToTheStart: after a step only what lives between steps is left, and further steps are
// like the first, whoever shares the table of words.
func TestEncoderOfTextReturnsToTheStart(t *testing.T) {
	for _, name := range []string{"t5-small", "flan-t5-small", "bart-base", "mbart-large-50"} {
		for mode, change := range map[string]func(*Step){
			"plain": func(*Step) {}, "accumulating": func(s *Step) { s.MicroBatches = 3 }, "buckets": func(s *Step) { s.Mode = Bucketed }, "copied": func(s *Step) { s.Mode = Copied },
			"sharded": func(s *Step) { shard(s, 4) }, "sharded accumulating": func(s *Step) { shard(s, 4); s.MicroBatches = 3 },
			"flat": func(s *Step) { shard(s, 4); s.Sharding.Copies = false },
		} {
			for _, again := range []ops.Recompute{ops.NoRecompute, ops.FullRecompute} {
				s := encoding(t, name, again)
				change(s)
				w := new(tracker).walkers([]*Step{s}, 2)[0]
				begin(w)
				w.step()
				require.InDelta(t, float64(s.Static.Total()), float64(w.t.now), 1<<16, "%s, %s, %s", name, mode, again)
				first := w.t.peak
				w.step()
				require.InDelta(t, float64(first), float64(w.t.peak), 1<<16, "%s, %s, %s: steps are alike", name, mode, again)
			}
		}
	}
}

// TestSharedGradient: of a table that both stacks share, and the head where it is tied, one gradient is left.
func TestSharedGradient(t *testing.T) {
	for name, tables := range map[string]int64{"t5-small": 1, "flan-t5-small": 2} {
		s := encoding(t, name, ops.NoRecompute)
		w := new(tracker).walkers([]*Step{s}, 2)[0]
		begin(w)
		w.forward()
		w.backward(true, true)
		const table = 32128 * 512
		rest := float64(0)
		for _, u := range s.Units {
			for _, p := range u.Params {
				if p.Local != table {
					rest += 2 * float64(p.Local)
				}
			}
		}
		require.InDelta(t, rest+float64(2*table*tables), float64(w.t.by[Gradients]), 1<<17, name)
	}
}
