package allocator

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSorted: many entries of one bin, in runs that fill and empty, are found and ordered as
// those of a sorted slice, also where they are put in another's place.
func TestSorted(t *testing.T) {
	order := func(a, b entry) int { return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.addr, b.addr)) }
	random := rand.New(rand.NewPCG(1, 2))
	var s sorted
	var want []entry
	draw := func() entry {
		return entry{quantum * (1024 + random.Int64N(48)), quantum * random.Int64N(1<<40), 0} // two bins
	}
	for step := range 8000 {
		grows := step/2000%2 == 0
		switch i := random.IntN(len(want) + 1); {
		case i == len(want) || grows && step%3 > 0:
			e := draw()
			at, _ := slices.BinarySearchFunc(want, e, order)
			s.insert(e)
			want = slices.Insert(want, at, e)
		case step%3 == 0: // in the place of another
			old, e := want[i], draw()
			if step%2 == 0 { // near it
				e = old
				e.addr++
			}
			s.replace(s.place(old.size, old.addr), e)
			want = slices.Delete(want, i, i+1)
			at, _ := slices.BinarySearchFunc(want, e, order)
			want = slices.Insert(want, at, e)
		default:
			s.removeAt(s.place(want[i].size, want[i].addr))
			want = slices.Delete(want, i, i+1)
		}
		size := draw().size
		at, _ := slices.BinarySearchFunc(want, entry{size: size}, order)
		p, ok := s.first(size)
		if ok != (at < len(want)) {
			require.Fail(t, "found where there is none, or not found")
		}
		for ; ok && at < min(len(want), 3*mostRun) && step%500 == 0; at++ {
			require.Equal(t, want[at], (*s.bins[p.bin].run(p.run))[p.at])
			p, ok = s.next(p)
		}
		if got := s.bins[p.bin].run(p.run); ok && at < len(want) && (*got)[p.at] != want[at] {
			require.Equal(t, want[at], (*got)[p.at])
		}
	}
	require.Positive(t, len(s.spare), "runs have emptied")
	got := s.empty(nil)
	slices.SortFunc(got, order)
	require.Equal(t, want, got)
}
