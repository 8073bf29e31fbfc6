package allocator

import "slices"

// pool holds the free blocks of one stream and size class.
type pool struct {
	small    bool
	free     []entry // by size, then address
	unmapped []int32 // stretches of expandable segments, by address
}

// entry is a free block with its sort key.
type entry struct {
	size, addr int64
	block      int32
}

// page is the unit in which an expandable segment grows.
func (p *pool) page() int64 {
	if p.small {
		return smallSegment
	}
	return largeSegment
}

// find returns the position of the first free block not below size and addr.
func (p *pool) find(size, addr int64) int {
	low, high := 0, len(p.free)
	for low < high {
		mid := int(uint(low+high) / 2)
		if e := &p.free[mid]; e.size < size || e.size == size && e.addr < addr {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
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

// insert puts a free block into its pool and returns its place.
func (a *Allocator) insert(b int32) int {
	x := &a.blocks[b]
	p := &a.pools[x.pool]
	i := p.find(x.size, x.addr)
	p.free = slices.Insert(p.free, i, entry{x.size, x.addr, b})
	return i
}

// replace puts a free block into its pool in exchange for the entry at i.
func (a *Allocator) replace(pool int32, i int, b int32) {
	x, list := &a.blocks[b], a.pools[pool].free
	j := a.pools[pool].find(x.size, x.addr)
	if j <= i {
		copy(list[j+1:i+1], list[j:i])
	} else {
		j--
		copy(list[i:j], list[i+1:j+1])
	}
	list[j] = entry{x.size, x.addr, b}
}

// place returns where a free block is in its pool.
func (a *Allocator) place(b int32) int {
	x := &a.blocks[b]
	return a.pools[x.pool].find(x.size, x.addr)
}

// cached returns the place of the best free block for a rounded size; false if
// none is large enough.
func (a *Allocator) cached(p int32, size int64) (int, bool) {
	list := a.pools[p].free
	i := a.pools[p].find(size, 0)
	if i == len(list) {
		return 0, false
	}
	if a.options.Expandable {
		// A block that can grow counts with all it can grow to.
		for i+1 < len(list) && a.growth(list[i+1].block) < a.growth(list[i].block) {
			i++
		}
	}
	return i, true
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
	i := -1 // a place in the list to take over
	if n := x.next; n != 0 && a.blocks[n].state == free {
		i = a.place(n)
		a.absorb(b, n)
	}
	if p := x.prev; p != 0 && a.blocks[p].state == free {
		j := a.place(p)
		a.absorb(b, p)
		if i >= 0 {
			list := &a.pools[x.pool].free
			*list = slices.Delete(*list, j, j+1)
			if j < i {
				i--
			}
		} else {
			i = j
		}
	}
	if i < 0 {
		a.insert(b)
	} else {
		a.replace(x.pool, i, b)
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
