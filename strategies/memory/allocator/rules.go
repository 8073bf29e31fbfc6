package allocator

import "github.com/perfplan/perfplan/internal/units"

// The constants of CUDACachingAllocator.cpp (kMinBlockSize, kSmallSize,
// kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge), in bytes: defaults
// since PyTorch 1.1; from 2026 large_segment_size_mb can change kLargeBuffer.
const (
	quantum      = 512      // sizes are multiples of it
	smallRequest = 1 << 20  // largest request of the small pool
	smallSegment = 2 << 20  // also the page of its expandable segments
	largeRequest = 10 << 20 // from here on a request gets its own segment
	largeSegment = 20 << 20 // also the page of expandable segments
	roundSegment = 2 << 20
)

// roundUp returns the least multiple of unit that is n or more.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// rounded is the size of the block that a request of size needs: what
// torch.cuda.memory_allocated counts for it at least.
func rounded(size units.Bytes) int64 { return max(quantum, roundUp(int64(size), quantum)) }

// segmentFor returns the size of the segment fetched from CUDA for a rounded
// request.
func segmentFor(size int64) int64 {
	switch {
	case size <= smallRequest:
		return smallSegment
	case size < largeRequest:
		return largeSegment
	}
	return roundUp(size, roundSegment)
}

// splits reports whether a block with rest bytes more than asked for is split.
func (a *Allocator) splits(small bool, rest int64) bool {
	if small || a.options.Expandable {
		return rest >= quantum
	}
	return rest > smallRequest
}
