package allocator

import (
	"cmp"
	"slices"
)

// fetched is a free block for a rounded size in memory from the device, on no list, without
// what is split off it; 0 if the limit leaves no room even when the cache is given back.
func (a *Allocator) fetched(p int32, size int64) int32 {
	b := a.fetch(p, size)
	if b == 0 {
		a.retries++
		a.EmptyCache()
		b = a.fetch(p, size)
	}
	if b != 0 && a.splits(a.pools[p].small, a.blocks[b].size-size) {
		a.insert(a.cut(b, size))
	}
	return b
}

// fetch takes memory from the device for a rounded size and returns a free block that
// holds it, on no list; 0 if the limit does not allow it.
func (a *Allocator) fetch(p int32, size int64) int32 {
	if a.options.Expandable {
		return a.grow(p, size)
	}
	n := segmentFor(size)
	if !a.reserve(n) {
		return 0
	}
	b := a.newBlock(block{addr: a.top, size: n, pool: p})
	a.top += n
	return b
}

// reserve counts n more bytes as reserved unless the limit forbids it.
func (a *Allocator) reserve(n int64) bool {
	if n > a.limit-a.reserved {
		return false
	}
	a.reserved += n
	a.peakReserved = max(a.peakReserved, a.reserved)
	return true
}

// grow maps pages of an expandable segment until it has a free block of the
// size, and takes that out of its pool; 0 if the limit does not allow it.
func (a *Allocator) grow(p int32, size int64) int32 {
	b := a.space(p, size)
	if a.blocks[b].state == unmapped && !a.mapPages(b, min(size, a.blocks[b].size)) {
		return 0
	}
	for a.blocks[b].size < size {
		next := a.blocks[b].next
		if !a.mapPages(next, min(size-a.blocks[b].size, a.blocks[next].size)) {
			return 0
		}
		b = next // which absorbed b
	}
	a.remove(b)
	return b
}

// space returns the block at the lowest address from which free and unmapped
// blocks in a row hold the size, in a new segment if there is none.
func (a *Allocator) space(p int32, size int64) int32 {
	for _, b := range a.pools[p].unmapped {
		if prev := a.blocks[b].prev; prev != 0 && a.blocks[prev].state == free {
			b = prev
		}
		room := int64(0)
		for n := b; n != 0 && a.blocks[n].state != live && room < size; n = a.blocks[n].next {
			room += a.blocks[n].size
		}
		if room >= size {
			return b
		}
	}
	// A segment has addresses for 9/8 of the device.
	n := int64(1) << 44
	if a.options.Limit > 0 {
		n = a.limit + a.limit/8
	}
	n = roundUp(max(n, size), largeSegment)
	b := a.newBlock(block{addr: a.top, size: n, pool: p, state: unmapped})
	a.top += n
	a.hide(b)
	return b
}

// hide puts an unmapped block into its pool.
func (a *Allocator) hide(b int32) {
	p := &a.pools[a.blocks[b].pool]
	p.unmapped = slices.Insert(p.unmapped, a.hidden(b), b)
}

// show takes an unmapped block out of its pool.
func (a *Allocator) show(b int32) {
	p, i := &a.pools[a.blocks[b].pool], a.hidden(b)
	p.unmapped = slices.Delete(p.unmapped, i, i+1)
}

// hidden returns where an unmapped block is in its pool, or belongs.
func (a *Allocator) hidden(b int32) int {
	x := &a.blocks[b]
	i, _ := slices.BinarySearchFunc(a.pools[x.pool].unmapped, x.addr, func(c int32, addr int64) int {
		return cmp.Compare(a.blocks[c].addr, addr)
	})
	return i
}

// mapPages maps at least the first size bytes of an unmapped block, as far as the
// limit allows it, and turns them into a free block.
func (a *Allocator) mapPages(b int32, size int64) bool {
	size = roundUp(size, a.pools[a.blocks[b].pool].page())
	if !a.reserve(size) {
		return false
	}
	a.show(b)
	if size < a.blocks[b].size {
		a.hide(a.cut(b, size))
	}
	a.blocks[b].state = free
	a.merge(b)
	return true
}

// EmptyCache gives back to the device all segments that hold no live block, or
// all such pages of expandable segments: torch.cuda.empty_cache.
func (a *Allocator) EmptyCache() {
	for i := range a.pools {
		p := &a.pools[i]
		a.scratch = p.free.empty(a.scratch[:0])
		for _, e := range a.scratch {
			switch x := &a.blocks[e.block]; {
			case a.options.Expandable:
				a.unmap(e.block)
			case x.prev == 0 && x.next == 0:
				a.reserved -= x.size
				a.drop(e.block)
			default:
				p.free.insert(e)
			}
		}
	}
}

// unmap gives back the whole pages of a free block that is on no list.
func (a *Allocator) unmap(b int32) {
	x := a.blocks[b]
	page := a.pools[x.pool].page()
	from, to := roundUp(x.addr, page), (x.addr+x.size)/page*page
	if from >= to {
		a.insert(b)
		return
	}
	if from > x.addr {
		pages := a.cut(b, from-x.addr)
		a.insert(b)
		b = pages
	}
	if to < x.addr+x.size {
		a.insert(a.cut(b, to-from))
	}
	a.reserved -= to - from
	a.blocks[b].state = unmapped
	for _, n := range []int32{a.blocks[b].prev, a.blocks[b].next} {
		if n != 0 && a.blocks[n].state == unmapped {
			a.show(n)
			a.absorb(b, n)
		}
	}
	if a.blocks[b].prev == 0 && a.blocks[b].next == 0 {
		a.drop(b) // the segment is empty
		return
	}
	a.hide(b)
}
