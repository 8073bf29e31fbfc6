package ops

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// TestCache: a model from a cache is the model, whatever was built before it, and layers are
// built once for those that differ in what layers do not depend on.
func TestCache(t *testing.T) {
	for _, name := range []string{"llama3-8b", "deepseek-v3"} {
		var s Cache
		base := config(t, name, "megatron-core")
		for range 2 {
			for _, recompute := range []Recompute{NoRecompute, SelectiveRecompute, FullRecompute} {
				for _, apart := range []bool{false, true} {
					for _, partly := range []bool{false, true} {
						for _, batch := range []int64{1, 2} {
							c := base
							c.Recompute, c.LossApart, c.Partly, c.MicroBatch = recompute, apart, partly && recompute == FullRecompute, batch
							want, got := Build(c), s.Build(c)
							of := func(m *Model) []Unit { return slices.Concat([]Unit{m.Embedding, m.Head, m.Loss}, m.Kinds, m.Kept) }
							require.Equal(t, want.Layers, got.Layers)
							require.Equal(t, len(of(want)), len(of(got)))
							for i, u := range of(want) {
								require.True(t, alike(&u, &of(got)[i]), "%s of %s, %s, %v, %v", u.Name, name, recompute, apart, partly)
							}
						}
					}
				}
			}
		}
		kinds := len(Build(base).Kinds)
		require.Equal(t, 3*2*kinds, len(s.layers), name)
		require.Equal(t, 3*2*2, len(s.heads), name)
	}
}

// alike compares what two units run.
func alike(a, b *Unit) bool {
	same := func(x, y tape.Op) bool { return reflect.DeepEqual(x, y) }
	return a.Name == b.Name && len(a.Params) == len(b.Params) && slices.Equal(a.Forward.Events, b.Forward.Events) && slices.Equal(a.Backward.Events, b.Backward.Events) &&
		slices.EqualFunc(a.Forward.Ops, b.Forward.Ops, same) && slices.EqualFunc(a.Backward.Ops, b.Backward.Ops, same)
}

// A cache holds so many units, however many are built.
func TestCacheIsBounded(t *testing.T) {
	var s Cache
	c := config(t, "llama3-8b", "megatron-core")
	for n := range int64(2*mostCached + 1) {
		c.MicroBatch = n + 1
		s.Build(c)
		require.LessOrEqual(t, len(s.layers), mostCached)
	}
}
