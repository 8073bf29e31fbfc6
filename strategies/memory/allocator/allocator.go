package allocator

import (
	"errors"
	"math"

	"github.com/perfplan/perfplan/internal/units"
)

// ErrOutOfMemory is returned by Alloc when the limit leaves no room even after
// all cached memory is given back.
var ErrOutOfMemory = errors.New("out of memory")

// Options configure an Allocator. The zero value is PyTorch's default on a
// device without limit.
type Options struct {
	Expandable bool        // expandable_segments:True
	Limit      units.Bytes // memory of the device left for PyTorch; 0: no limit
}

// maxSize keeps sums of addresses inside an int64; no device comes near.
const maxSize units.Bytes = 1 << 44

// Block is a live allocation. The zero Block is that of an empty tensor.
type Block int32

// Allocator is the allocator of one device. It is not safe for concurrent use.
type Allocator struct {
	options Options
	limit   int64
	blocks  []block // blocks[0] stands for none
	unused  int32   // head of the list of unused entries of blocks, by next
	pools   []pool  // two per stream: small, large
	streams []int
	top     int64   // address of the next segment
	scratch []entry // of EmptyCache
	retries int

	allocated, reserved         int64
	peakAllocated, peakReserved int64
}

// block is a stretch of one segment: live, free or, in an expandable segment,
// not mapped.
type block struct {
	addr, size int64
	prev, next int32 // neighbours in the segment
	pool       int32
	state      state
}

type state uint8

const (
	free state = iota
	live
	unmapped
)

// New returns an empty allocator.
func New(options Options) *Allocator {
	a := &Allocator{blocks: make([]block, 1, 256)}
	a.Reset(options)
	return a
}

// Reset makes the allocator like New(options), but keeps its memory, for the next
// replay. Blocks of before must not be freed.
func (a *Allocator) Reset(options Options) {
	a.options, a.limit = options, math.MaxInt64
	if options.Limit > 0 {
		a.limit = int64(options.Limit)
	}
	a.blocks, a.unused, a.top = a.blocks[:1], 0, 0
	for i := range a.pools {
		a.scratch = a.pools[i].free.empty(a.scratch[:0])
		a.pools[i].unmapped = a.pools[i].unmapped[:0]
	}
	a.retries, a.allocated, a.reserved, a.peakAllocated, a.peakReserved = 0, 0, 0, 0, 0
}

// ResetPeaks makes the present the peak, as torch.cuda.reset_peak_memory_stats.
func (a *Allocator) ResetPeaks() { a.peakAllocated, a.peakReserved = a.allocated, a.reserved }

// Allocated returns the bytes of live blocks: torch.cuda.memory_allocated.
func (a *Allocator) Allocated() units.Bytes { return units.Bytes(a.allocated) }

// Reserved returns the bytes of all segments: torch.cuda.memory_reserved.
func (a *Allocator) Reserved() units.Bytes { return units.Bytes(a.reserved) }

// PeakAllocated returns torch.cuda.max_memory_allocated.
func (a *Allocator) PeakAllocated() units.Bytes { return units.Bytes(a.peakAllocated) }

// PeakReserved returns torch.cuda.max_memory_reserved.
func (a *Allocator) PeakReserved() units.Bytes { return units.Bytes(a.peakReserved) }

// Retries returns how often the limit was hit and the cache given back; each
// costs the real program a device synchronization (num_alloc_retries).
func (a *Allocator) Retries() int { return a.retries }

// Alloc returns a block of at least size bytes on a stream. An empty tensor
// takes nothing.
func (a *Allocator) Alloc(size units.Bytes, stream int) (Block, error) {
	if size <= 0 {
		return 0, nil
	}
	if !(size < maxSize) {
		return 0, ErrOutOfMemory
	}
	n := rounded(size)
	p := a.poolOf(n, stream)
	b := a.cached(p, n)
	if b == 0 {
		if b = a.fetched(p, n); b == 0 {
			return 0, ErrOutOfMemory
		}
	}
	a.blocks[b].state = live
	a.allocated += a.blocks[b].size
	a.peakAllocated = max(a.peakAllocated, a.allocated)
	return Block(b), nil
}

// Size returns the bytes of a live block: at least those that were asked for, in multiples
// of 512, and up to 1 MiB more where the rest of a cached one was left on it.
func (a *Allocator) Size(b Block) units.Bytes { return units.Bytes(a.blocks[b].size) }

// Free returns a block to the cache of its stream. A block that other streams
// still use (record_stream) is to be freed when they are done.
func (a *Allocator) Free(b Block) {
	if b == 0 {
		return
	}
	x := &a.blocks[b]
	if x.state != live {
		panic("allocator: Free of a block that is not live")
	}
	a.allocated -= x.size
	x.state = free
	a.merge(int32(b))
}
