package memory

import (
	"sync"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/memory/allocator"
)

// tracker follows allocations.
type tracker struct {
	now, peak    units.Bytes
	by, at       Bytes
	moment, here moment
	rising       bool // what is there now is the peak, which settle has not noted yet
	bare         bool // nobody asks what the peak is made of

	alloc  *allocator.Allocator
	blocks []slot
	points []Point
	label  string // of the next point, with record
	record bool
}

type slot struct {
	bytes units.Bytes
	more  units.Bytes // that its block has beyond these
	block allocator.Block
	class Class
	live  bool
	away  bool // on the host
}

// settle notes of which classes the peak is, and when. It comes before anything but
// a further allocation.
func (t *tracker) settle() {
	if t.rising {
		t.at, t.moment, t.rising = t.by, t.here, false
	}
}

// forget lets go of the peak of what went before the steps to be measured.
func (t *tracker) forget() { t.peak, t.rising, t.points = 0, false, t.points[:0] }

func (t *tracker) take(id int, b units.Bytes, c Class) { t.takeOn(compute, id, b, c) }

// takeOn allocates on a stream.
func (t *tracker) takeOn(stream, id int, b units.Bytes, c Class) {
	if b <= 0 {
		return
	}
	s := &t.blocks[id]
	s.bytes, s.class, s.live = b, c, true
	if t.alloc != nil {
		s.block, _ = t.alloc.Alloc(b, stream)
	}
	s.more = t.more(s)
	t.now += b + s.more
	if t.bare {
		t.peak = max(t.peak, t.now)
		return
	}
	t.by[c] += b
	t.by[Rounding] += s.more
	if t.now > t.peak {
		t.peak, t.rising = t.now, true
	}
	if t.record {
		n := len(t.points)
		if n == 0 || t.points[n-1].Label != t.label {
			t.points = append(t.points, Point{Label: t.label})
			n++
		}
		if p := &t.points[n-1]; t.now > p.Allocated {
			p.Allocated, p.By = t.now, t.by
		}
	}
}

// more is what the block of a slot has beyond its bytes.
func (t *tracker) more(s *slot) units.Bytes {
	if t.alloc == nil {
		return 0
	}
	if size := t.alloc.Size(s.block); size > s.bytes { // a size that no device has gets no block
		return size - s.bytes
	}
	return 0
}

func (t *tracker) free(id int) {
	if id >= len(t.blocks) || !t.blocks[id].live {
		return
	}
	s := &t.blocks[id]
	s.live = false
	t.now -= s.bytes + s.more
	if !t.bare {
		t.settle()
		t.less(s.class, s.bytes)
		t.less(Rounding, s.more)
	}
	if t.alloc != nil {
		t.alloc.Free(s.block)
	}
}

// less takes from a class what it has: of shards that are no whole bytes the last digit of a
// sum may be off.
func (t *tracker) less(c Class, b units.Bytes) { t.by[c] = max(t.by[c]-b, 0) }

// park frees a block to the host.
func (t *tracker) park(id int) {
	if t.blocks[id].live {
		t.free(id)
		t.blocks[id].away = true
	}
}

// unpark allocates a block that comes back from there, on a stream.
func (t *tracker) unpark(stream, id int) {
	if s := &t.blocks[id]; s.away {
		s.away = false
		t.takeOn(stream, id, s.bytes, s.class)
	}
}

// swap frees a block and allocates one like it on a stream.
func (t *tracker) swap(stream, id int) {
	if s := t.blocks[id]; s.live {
		t.free(id)
		t.takeOn(stream, id, s.bytes, s.class)
	}
}

// move hands a block to another id.
func (t *tracker) move(from, to int) {
	t.blocks[to] = t.blocks[from]
	t.blocks[from] = slot{}
}

// made counts a live block as a gradient from now on.
func (t *tracker) made(id int) {
	if id < len(t.blocks) && t.blocks[id].live {
		t.settle()
		s := &t.blocks[id]
		t.less(s.class, s.bytes)
		t.by[Gradients] += s.bytes
		s.class = Gradients
	}
}

// tables are the blocks of trackers that are done.
var tables sync.Pool

// table gives the tracker n empty blocks.
func (t *tracker) table(n int) {
	if b, _ := tables.Get().(*[]slot); b != nil && cap(*b) >= n {
		t.blocks = (*b)[:n]
		clear(t.blocks)
		return
	}
	t.blocks = make([]slot, n)
}

// release gives the blocks of a tracker that is done to the next.
func (t *tracker) release() {
	blocks := t.blocks
	t.blocks = nil
	tables.Put(&blocks)
}
