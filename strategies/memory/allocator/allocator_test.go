package allocator

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
)

const (
	KiB = units.KiB
	MiB = units.MiB
)

// One allocation in an empty allocator: c10/cuda/CUDACachingAllocator.cpp,
// round_size, get_allocation_size, should_split.
func TestOneAllocation(t *testing.T) {
	for _, c := range []struct {
		size                               units.Bytes
		allocated, reserved, growsReserved units.Bytes
	}{
		{0, 0, 0, 0},
		{1, 512, 2 * MiB, 2 * MiB},
		{512, 512, 2 * MiB, 2 * MiB},
		{513, 1024, 2 * MiB, 2 * MiB},
		{1 * MiB, 1 * MiB, 2 * MiB, 2 * MiB},
		{1*MiB + 1, 1*MiB + 512, 20 * MiB, 20 * MiB},
		{10*MiB - 512, 10*MiB - 512, 20 * MiB, 20 * MiB},
		{10 * MiB, 10 * MiB, 10 * MiB, 20 * MiB},
		// A rest of up to 1 MiB is not split off and counts as allocated.
		{11 * MiB, 12 * MiB, 12 * MiB, 20 * MiB},
		{11*MiB - 512, 11*MiB - 512, 12 * MiB, 20 * MiB},
		{100*MiB + 1, 100*MiB + 512, 102 * MiB, 120 * MiB},
		{101 * MiB, 102 * MiB, 102 * MiB, 120 * MiB},
	} {
		a := New(Options{})
		_, err := a.Alloc(c.size, 0)
		require.NoError(t, err)
		require.Equal(t, c.allocated, a.Allocated(), c.size)
		require.Equal(t, c.reserved, a.Reserved(), c.size)

		a = New(Options{Expandable: true})
		_, err = a.Alloc(c.size, 0)
		require.NoError(t, err)
		if c.size > 0 {
			require.Equal(t, units.Bytes(rounded(c.size)), a.Allocated(), "expandable segments split to the quantum")
		}
		require.Equal(t, c.growsReserved, a.Reserved(), c.size)
	}
}

// must allocates without error.
func must(t require.TestingT, a *Allocator, size units.Bytes, stream int) Block {
	b, err := a.Alloc(size, stream)
	require.NoError(t, err)
	return b
}

func TestBestFit(t *testing.T) {
	a := New(Options{})
	big := must(t, a, 60*MiB, 0)
	small := must(t, a, 30*MiB, 0)
	a.Free(big)
	a.Free(small)
	must(t, a, 28*MiB, 0)
	require.Equal(t, 28*MiB, a.Allocated(), "from the 30 MiB segment, split")
	must(t, a, 59*MiB, 0)
	require.Equal(t, 88*MiB, a.Allocated(), "all 60 MiB: 1 MiB is not split off")
	must(t, a, 2*MiB, 0)
	require.Equal(t, 90*MiB, a.Reserved(), "the rest of the 30 MiB segment")
	must(t, a, 2*MiB, 0)
	require.Equal(t, 110*MiB, a.Reserved(), "a new 20 MiB segment")
}

func TestStreamsShareNothing(t *testing.T) {
	a := New(Options{})
	a.Free(must(t, a, 64*MiB, 7))
	must(t, a, 64*MiB, 0)
	require.Equal(t, 128*MiB, a.Reserved())
	must(t, a, 64*MiB, 7)
	require.Equal(t, 128*MiB, a.Reserved())
	must(t, a, 4*KiB, 7)
	require.Equal(t, 130*MiB, a.Reserved(), "small requests do not use large segments")
}

func TestNeighboursMerge(t *testing.T) {
	a := New(Options{})
	var b [4]Block
	for i := range b {
		b[i] = must(t, a, 5*MiB, 0)
	}
	require.Equal(t, 20*MiB, a.Reserved(), "four share one segment")
	a.Free(b[1])
	a.Free(b[3])
	a.Free(b[2])
	must(t, a, 15*MiB, 0)
	require.Equal(t, 20*MiB, a.Reserved())
	require.Equal(t, 20*MiB, a.Allocated())
}

// The example of Note [Expandable Segments]: a batch that grows by one.
func TestExpandableAvoidsSlivers(t *testing.T) {
	step := func(o Options, a *Allocator, batch units.Bytes) {
		var b []Block
		for range 10 {
			b = append(b, must(t, a, batch*50*MiB, 0))
		}
		for _, x := range b {
			a.Free(x)
		}
	}
	for _, o := range []Options{{}, {Expandable: true}} {
		a := New(o)
		for batch := range 4 {
			step(o, a, units.Bytes(batch+1))
		}
		if o.Expandable {
			require.Equal(t, 2000*MiB, a.Reserved())
		} else {
			require.Equal(t, 10*(50+100+150+200)*MiB, a.Reserved())
		}
		a.EmptyCache()
		require.Zero(t, a.Reserved())
	}
}

func TestLimit(t *testing.T) {
	a := New(Options{Limit: 100 * MiB})
	a.Free(must(t, a, 60*MiB, 0))
	must(t, a, 80*MiB, 0)
	require.Equal(t, 1, a.Retries(), "the cached 60 MiB had to go")
	require.Equal(t, 80*MiB, a.Reserved())
	require.Equal(t, 80*MiB, a.PeakReserved())
	_, err := a.Alloc(40*MiB, 0)
	require.ErrorIs(t, err, ErrOutOfMemory)
	require.Equal(t, 80*MiB, a.Allocated())
	must(t, a, 20*MiB, 0)

	for _, size := range []units.Bytes{1e30, units.Bytes(math.Inf(1)), units.Bytes(math.NaN())} {
		_, err = New(Options{}).Alloc(size, 0)
		require.ErrorIs(t, err, ErrOutOfMemory)
	}
}

// A segment with one live block cannot be given back, an expandable one can but
// for the pages of that block.
func TestLimitExpandable(t *testing.T) {
	for _, o := range []Options{{Limit: 200 * MiB}, {Limit: 200 * MiB, Expandable: true}} {
		a := New(o)
		before := must(t, a, 70*MiB, 0)
		must(t, a, 10*MiB, 0)
		after := must(t, a, 100*MiB, 0)
		a.Free(before)
		a.Free(after)
		_, err := a.Alloc(150*MiB, 1)
		if o.Expandable {
			require.NoError(t, err)
			require.Equal(t, 180*MiB, a.Reserved(), "160 on stream 1, one page of 20 on stream 0")
			must(t, a, 10*MiB, 0)
			require.Equal(t, 180*MiB, a.Reserved(), "the rest of the page of the live block")
			hole := must(t, a, 20*MiB, 0)
			require.Equal(t, 200*MiB, a.Reserved())
			require.Zero(t, a.blocks[hole].addr, "holes are filled from the lowest address")
		} else {
			require.NoError(t, err)
			require.Equal(t, 160*MiB, a.Reserved())
		}
		check(t, a)
	}
}

func TestPeaks(t *testing.T) {
	a := New(Options{})
	a.Free(must(t, a, 64*MiB, 0))
	require.Equal(t, [4]units.Bytes{0, 64 * MiB, 64 * MiB, 64 * MiB}, [4]units.Bytes{a.Allocated(), a.Reserved(), a.PeakAllocated(), a.PeakReserved()})
	a.EmptyCache()
	a.ResetPeaks()
	require.Zero(t, a.PeakAllocated()+a.PeakReserved())
	a.Free(0)
	b := must(t, a, 1, 0)
	a.Free(b)
	require.Panics(t, func() { a.Free(b) })
}

// check verifies the structure from outside the algorithms.
func check(t require.TestingT, a *Allocator) {
	unusedEntries := map[int32]bool{0: true}
	for b := a.unused; b != 0; b = a.blocks[b].next {
		unusedEntries[b] = true
	}
	var allocated, reserved int64
	var all []int32
	listed := map[int32]bool{}
	for i, p := range a.pools {
		var list []entry
		for k, bin := range p.free.bins {
			require.Equal(t, len(bin.low) > 0, p.free.some[k/64]>>(k%64)&1 == 1)
			for _, r := range slices.Backward(append(slices.Clip(bin.high), bin.low)) {
				require.True(t, len(r) > 0 || len(bin.high) == 0)
				for _, e := range slices.Backward(r) {
					list = append(list, e)
				}
			}
		}
		for j, e := range list {
			require.Equal(t, entry{a.blocks[e.block].size, a.blocks[e.block].addr, e.block}, e)
			require.True(t, j == 0 || list[j-1].size < e.size || list[j-1].size == e.size && list[j-1].addr < e.addr, "sorted")
			require.Equal(t, free, a.blocks[e.block].state)
			require.EqualValues(t, i, a.blocks[e.block].pool)
			listed[e.block] = true
		}
		for j, b := range p.unmapped {
			require.True(t, j == 0 || a.blocks[p.unmapped[j-1]].addr < a.blocks[b].addr)
			require.Equal(t, unmapped, a.blocks[b].state)
			require.Zero(t, a.blocks[b].addr%p.page())
			require.Zero(t, a.blocks[b].size%p.page())
			listed[b] = true
		}
	}
	for b := range int32(len(a.blocks)) {
		if unusedEntries[b] {
			continue
		}
		x := a.blocks[b]
		all = append(all, b)
		require.Positive(t, x.size)
		require.Zero(t, x.size%quantum+x.addr%quantum)
		require.Equal(t, x.state != live, listed[b])
		if x.state == live {
			allocated += x.size
		}
		if x.state != unmapped {
			reserved += x.size
		}
		if x.next != 0 {
			n := a.blocks[x.next]
			require.Equal(t, b, n.prev)
			require.Equal(t, x.addr+x.size, n.addr)
			require.Equal(t, x.pool, n.pool)
			require.True(t, x.state == live || x.state != n.state, "neighbours merge")
		}
	}
	slices.SortFunc(all, func(b, c int32) int { return int(a.blocks[b].addr - a.blocks[c].addr) })
	for i := 1; i < len(all); i++ {
		before := a.blocks[all[i-1]]
		require.LessOrEqual(t, before.addr+before.size, a.blocks[all[i]].addr, "no overlap")
	}
	require.EqualValues(t, allocated, a.allocated)
	require.EqualValues(t, reserved, a.reserved)
	require.LessOrEqual(t, a.allocated, a.reserved)
	require.LessOrEqual(t, a.reserved, a.limit)
	require.LessOrEqual(t, a.reserved, a.peakReserved)
	require.LessOrEqual(t, a.allocated, a.peakAllocated)
}

func drawSize(t *rapid.T) units.Bytes {
	return units.Bytes(rapid.OneOf(
		rapid.IntRange(1, 1<<12),
		rapid.IntRange(1<<12, 1<<20),
		rapid.IntRange(1<<20, 10<<20),
		rapid.IntRange(10<<20, 200<<20),
		rapid.SampledFrom([]int{512, 1 << 20, 1<<20 + 1, 2 << 20, 10 << 20, 10<<20 - 1, 20 << 20}),
	).Draw(t, "size"))
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Expandable: rapid.Bool().Draw(t, "expandable")}
		if rapid.Bool().Draw(t, "limited") {
			o.Limit = units.Bytes(rapid.IntRange(20, 1500).Draw(t, "limit")) * MiB
		}
		a, again := New(o), New(o)
		again.Free(must(t, again, 1, 5)) // used before: Reset leaves no trace
		again.Reset(o)
		var blocks []Block
		var least units.Bytes // of what is live, rounded
		sizes := map[Block]units.Bytes{}
		for range rapid.IntRange(1, 120).Draw(t, "events") {
			peakA, peakR := a.PeakAllocated(), a.PeakReserved()
			switch n := len(blocks); {
			case n > 0 && rapid.IntRange(0, 2).Draw(t, "free") == 0:
				i := rapid.IntRange(0, n-1).Draw(t, "which")
				a.Free(blocks[i])
				again.Free(blocks[i])
				least -= sizes[blocks[i]]
				blocks = slices.Delete(blocks, i, i+1)
			case rapid.IntRange(0, 40).Draw(t, "empty") == 0:
				a.EmptyCache()
				again.EmptyCache()
			default:
				size, stream := drawSize(t), rapid.IntRange(0, 1).Draw(t, "stream")
				b, err := a.Alloc(size, stream)
				c, errAgain := again.Alloc(size, stream)
				require.Equal(t, err, errAgain)
				require.Equal(t, b, c)
				if err == nil {
					require.GreaterOrEqual(t, units.Bytes(a.blocks[b].size), units.Bytes(rounded(size)))
					blocks = append(blocks, b)
					sizes[b] = units.Bytes(rounded(size))
					least += units.Bytes(rounded(size))
				} else {
					require.Positive(t, o.Limit)
				}
			}
			check(t, a)
			require.GreaterOrEqual(t, a.Allocated(), least)
			require.GreaterOrEqual(t, a.PeakAllocated(), peakA)
			require.GreaterOrEqual(t, a.PeakReserved(), peakR)
			require.Equal(t, a.Reserved(), again.Reserved(), "deterministic")
			require.Equal(t, a.Allocated(), again.Allocated())
		}
		for _, b := range blocks {
			a.Free(b)
		}
		require.Zero(t, a.Allocated())
		a.EmptyCache()
		require.Zero(t, a.Reserved(), "nothing leaks")
		check(t, a)
	})
}

// Equal steps settle, though not at once: the first leaves other free blocks
// behind than it found.
func TestSteadyReplay(t *testing.T) {
	events := training(24)
	for _, o := range []Options{{}, {Expandable: true}} {
		a := New(o)
		blocks := make([]Block, len(events))
		var peaks []units.Bytes
		for range 5 {
			replay(a, events, blocks)
			peaks = append(peaks, a.PeakReserved())
			require.Zero(t, a.Allocated())
		}
		require.Equal(t, peaks[3], peaks[4])
		check(t, a)
	}
}

// event allocates size, or frees what event -free allocated.
type event struct {
	size units.Bytes
	of   int
}

// training is a step of a transformer with so many layers: each of the tensors a
// layer saves comes with some that die young.
func training(layers int) []event {
	var events []event
	alloc := func(s units.Bytes) int { events = append(events, event{size: s}); return len(events) - 1 }
	drop := func(i int) { events = append(events, event{of: i}) }
	young := func(s units.Bytes) {
		x := alloc(s + 4*KiB)
		y := alloc(s / 2)
		z := alloc(16 * KiB)
		drop(x)
		drop(z)
		drop(y)
	}
	var saved [][]int
	for range layers {
		var keep []int
		for _, s := range []units.Bytes{64 * MiB, 32 * KiB, 64 * MiB, 192 * MiB, 64 * MiB, 1 * MiB, 64 * MiB, 32 * KiB, 176 * MiB, 176 * MiB, 64 * MiB} {
			young(s)
			keep = append(keep, alloc(s))
		}
		saved = append(saved, keep)
	}
	logits := alloc(1000 * MiB)
	for l := layers - 1; l >= 0; l-- {
		grad := alloc(64 * MiB)
		for i := len(saved[l]) - 1; i >= 0; i-- {
			young(100*MiB + units.Bytes(i)*MiB)
			drop(saved[l][i])
			young(64 * MiB)
		}
		drop(grad)
	}
	drop(logits)
	return events
}

func replay(a *Allocator, events []event, blocks []Block) {
	for i, e := range events {
		if e.size > 0 {
			blocks[i], _ = a.Alloc(e.size, 0)
		} else {
			a.Free(blocks[e.of])
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	events := training(90) // about 20,000
	for _, o := range []Options{{}, {Expandable: true}} {
		name := "segments"
		if o.Expandable {
			name = "expandable"
		}
		b.Run(name, func(b *testing.B) {
			a := New(o)
			blocks := make([]Block, len(events))
			b.ReportAllocs()
			for b.Loop() {
				a.Reset(o)
				replay(a, events, blocks)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
			b.ReportMetric(float64(len(events)), "events")
		})
	}
}
