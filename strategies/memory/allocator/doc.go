// Package allocator replays allocations and frees through the rules of
// PyTorch's CUDA caching allocator, to tell what a step reserves beyond what it
// allocates.
//
// The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default
// settings: sizes round up to 512 B; requests up to 1 MiB share 2 MiB segments,
// up to 10 MiB 20 MiB segments, larger ones get a segment of their own, rounded
// up to 2 MiB; the smallest cached block that fits is taken, lowest address
// first, and split if what is left over is worth keeping; freed neighbours
// merge; nothing is shared between streams or between small and large requests.
// With expandable segments there is one growing segment per stream and size
// class, mapped in pages of 2 or 20 MiB. When the limit is hit everything cached
// is given back and the request tried once more.
//
// Addresses are made up, in order of creation; CUDA may hand them out otherwise,
// which matters only between free blocks of exactly the same size. The first of
// equal steps may reserve less than the next ones: replay two or three.
//
// The package comes after strategies/memory has listed the tensors of a step
// with their order of birth and death. Next, its reserved bytes go into the
// device memory of the estimate.
package allocator
