package allocator

import "slices"

// pool holds the free blocks of one stream and size class.
type pool struct {
	small    bool
	free     sorted
	unmapped []int32 // stretches of expandable segments, by address
}

// page is the unit in which an expandable segment grows.
func (p *pool) page() int64 {
	if p.small {
		return smallSegment
	}
	return largeSegment
}

// poolOf returns the pool that serves a rounded size on a stream.
func (a *Allocator) poolOf(size int64, stream int) int32 {
	at := slices.Index(a.streams, stream)
	if at < 0 {
		at = len(a.streams)
		a.streams = append(a.streams, stream)
		a.pools = append(a.pools, pool{small: true}, pool{})
	}
	if size <= smallRequest {
		return int32(2 * at)
	}
	return int32(2*at + 1)
}

// entry is a free block as its pool lists it.
func (a *Allocator) entry(b int32) entry {
	x := &a.blocks[b]
	return entry{x.size, x.addr, b}
}

// insert puts a free block into its pool.
func (a *Allocator) insert(b int32) { a.pools[a.blocks[b].pool].free.insert(a.entry(b)) }

// remove takes a free block out of its pool.
func (a *Allocator) remove(b int32) {
	x := &a.blocks[b]
	list := &a.pools[x.pool].free
	list.removeAt(list.place(x.size, x.addr))
}

// cached takes the best free block for a rounded size out of its pool, but for what is split
// off it; 0 if none is large enough.
func (a *Allocator) cached(p int32, size int64) int32 {
	list := &a.pools[p].free
	at, ok := list.first(size)
	if !ok {
		return 0
	}
	b := list.block(at)
	for a.options.Expandable { // a block that can grow counts with all it can grow to
		after, ok := list.next(at)
		if !ok || a.growth(list.block(after)) >= a.growth(b) {
			break
		}
		b, at = list.block(after), after
	}
	if p := &a.pools[p]; a.splits(p.small, a.blocks[b].size-size) {
		list.replace(at, a.entry(a.cut(b, size)))
	} else {
		list.removeAt(at)
	}
	return b
}

// growth is the size of a free block with the unmapped stretch behind it.
func (a *Allocator) growth(b int32) int64 {
	x := &a.blocks[b]
	if n := &a.blocks[x.next]; x.next != 0 && n.state == unmapped {
		return x.size + n.size
	}
	return x.size
}

// newBlock returns an entry of blocks holding x.
func (a *Allocator) newBlock(x block) int32 {
	b := a.unused
	if b == 0 {
		a.blocks = append(a.blocks, x)
		return int32(len(a.blocks) - 1)
	}
	a.unused = a.blocks[b].next
	a.blocks[b] = x
	return b
}

// drop makes an entry of blocks available again.
func (a *Allocator) drop(b int32) {
	a.blocks[b] = block{next: a.unused}
	a.unused = b
}

// cut shortens a block to size and returns a new block, of the same state, with
// the rest. Neither is put on or taken off a list.
func (a *Allocator) cut(b int32, size int64) int32 {
	x := a.blocks[b]
	rest := a.newBlock(block{addr: x.addr + size, size: x.size - size, prev: b, next: x.next, pool: x.pool, state: x.state})
	if x.next != 0 {
		a.blocks[x.next].prev = rest
	}
	a.blocks[b].size, a.blocks[b].next = size, rest
	return rest
}

// merge puts a free block, itself on no list, into its pool together with its
// free neighbours.
func (a *Allocator) merge(b int32) {
	x := &a.blocks[b]
	list := &a.pools[x.pool].free
	at := place{at: -1} // of the neighbour whose place it takes
	for _, n := range [...]int32{x.next, x.prev} {
		if y := &a.blocks[n]; n != 0 && y.state == free {
			if at.at >= 0 {
				list.removeAt(at)
			}
			at = list.place(y.size, y.addr)
			a.absorb(b, n)
		}
	}
	if at.at < 0 {
		list.insert(a.entry(b))
	} else {
		list.replace(at, a.entry(b))
	}
}

// absorb joins a neighbour into a block. Lists are left as they are.
func (a *Allocator) absorb(b, neighbour int32) {
	x, y := &a.blocks[b], a.blocks[neighbour]
	x.size += y.size
	if x.next == neighbour {
		if x.next = y.next; y.next != 0 {
			a.blocks[y.next].prev = b
		}
	} else {
		x.addr = y.addr
		if x.prev = y.prev; y.prev != 0 {
			a.blocks[y.prev].next = b
		}
	}
	a.drop(neighbour)
}
