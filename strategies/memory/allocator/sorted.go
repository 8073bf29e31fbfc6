package allocator

import (
	"math/bits"
	"slices"
	"sort"
)

// sorted are free blocks by size, then address. Each bin holds those of about one size, so
// that few are compared.
type sorted struct {
	bins  [numBins]bin
	some  [(numBins + 63) / 64]uint64 // a bit for each bin that holds any
	spare []run                       // empty ones
}

// bin are entries in runs: the lowest, which nearly all that a step takes is of, and those
// above them, the highest first, of which none is empty.
type bin struct {
	low  run
	high []run
}

// run are up to mostRun entries one after the other, the lowest last.
type run []entry

const mostRun = 128 // 3 KB are moved fast

// entry is a free block with its sort key.
type entry struct {
	size, addr int64
	block      int32
}

// place is where an entry is. The runs of a bin count from the lowest on.
type place struct{ bin, run, at int }

const (
	binBits = 5 // binary digits of a size that tell its bin
	numBins = (64 - binBits + 1) << (binBits - 1)
)

// binOf returns the bin of a size, in quanta. Larger sizes have no lower bins.
func binOf(size int64) int {
	n := uint64(size) / quantum
	shift := max(bits.Len64(n)-binBits, 0)
	return shift<<(binBits-1) + int(n>>shift)
}

// less orders by size, then address.
func (e *entry) less(size, addr int64) bool {
	return e.size < size || e.size == size && e.addr < addr
}

// above returns how many entries of a run are not below size and addr: most often all,
// as a step takes the lowest addresses first and gives the highest back first.
func (r run) above(size, addr int64) int {
	low, high := 0, len(r)
	if high == 0 || !r[high-1].less(size, addr) {
		return high
	}
	for high--; low < high; {
		if mid := int(uint(low+high) / 2); r[mid].less(size, addr) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// run returns one of a bin's.
func (b *bin) run(k int) *run {
	if k == 0 {
		return &b.low
	}
	return &b.high[len(b.high)-k]
}

// find returns the run of the lowest entry of a bin that is not below size and addr, and
// where in it that is: at -1 of the highest run where all are below.
func (b *bin) find(size, addr int64) (k, at int) {
	if len(b.high) > 0 && b.low[0].less(size, addr) {
		k = min(1+sort.Search(len(b.high), func(i int) bool { return !(*b.run(i + 1))[0].less(size, addr) }), len(b.high))
	}
	return k, b.run(k).above(size, addr) - 1
}

func (s *sorted) insert(e entry) {
	i := binOf(e.size)
	b := &s.bins[i]
	s.some[i/64] |= 1 << (i % 64)
	k, at := b.find(e.size, e.addr)
	if len(*b.run(k)) == mostRun {
		s.cut(b, k)
		k, at = b.find(e.size, e.addr)
	}
	at++
	r := append(*b.run(k), e)
	if at < len(r)-1 {
		copy(r[at+1:], r[at:])
		r[at] = e
	}
	*b.run(k) = r
}

// cut makes two of a full run of a bin.
func (s *sorted) cut(b *bin, k int) {
	var upper run
	if n := len(s.spare); n > 0 {
		upper, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	r := b.run(k)
	upper = append(upper, (*r)[:mostRun/2]...)
	*r = append((*r)[:0], (*r)[mostRun/2:]...)
	b.high = slices.Insert(b.high, len(b.high)-k, upper)
}

// replace puts an entry in the place of another one: most blocks that are cut or grow stay
// in their run, near where they were.
func (s *sorted) replace(p place, e entry) {
	r, i := *s.bins[p.bin].run(p.run), p.at
	if binOf(e.size) != p.bin || len(s.bins[p.bin].high) > 0 && (!r[len(r)-1].less(e.size, e.addr) || r[0].less(e.size, e.addr)) {
		s.removeAt(p)
		s.insert(e)
		return
	}
	for ; i > 0 && r[i-1].less(e.size, e.addr); i-- {
		r[i] = r[i-1]
	}
	for ; i+1 < len(r) && !r[i+1].less(e.size, e.addr); i++ {
		r[i] = r[i+1]
	}
	r[i] = e
}

// block is that of a place.
func (s *sorted) block(p place) int32 { return (*s.bins[p.bin].run(p.run))[p.at].block }

// place returns where the entry of a size and address is, which must be there.
func (s *sorted) place(size, addr int64) place {
	i := binOf(size)
	k, at := s.bins[i].find(size, addr)
	return place{i, k, at}
}

func (s *sorted) removeAt(p place) {
	b := &s.bins[p.bin]
	r := b.run(p.run)
	copy((*r)[p.at:], (*r)[p.at+1:])
	if *r = (*r)[:len(*r)-1]; len(*r) > 0 {
		return
	}
	n := len(b.high)
	if n == 0 {
		s.some[p.bin/64] &^= 1 << (p.bin % 64)
		return
	}
	s.spare = append(s.spare, *r)
	if p.run == 0 {
		b.low, b.high = b.high[n-1], b.high[:n-1]
	} else {
		b.high = slices.Delete(b.high, n-p.run, n-p.run+1)
	}
}

// first returns the place of the smallest entry that is not below a size.
func (s *sorted) first(size int64) (place, bool) {
	if p := s.place(size, 0); p.at >= 0 {
		return p, true
	} else {
		return s.after(p.bin)
	}
}

// next returns the place of the entry after one.
func (s *sorted) next(p place) (place, bool) {
	if p.at--; p.at >= 0 {
		return p, true
	}
	if b := &s.bins[p.bin]; p.run < len(b.high) {
		return place{p.bin, p.run + 1, len(*b.run(p.run + 1)) - 1}, true
	}
	return s.after(p.bin)
}

// after returns the place of the first entry that is beyond a bin.
func (s *sorted) after(bin int) (place, bool) {
	word := (bin + 1) / 64
	for rest := s.some[word] >> ((bin + 1) % 64) << ((bin + 1) % 64); ; rest = s.some[word] {
		if rest != 0 {
			bin = 64*word + bits.TrailingZeros64(rest)
			return place{bin, 0, len(s.bins[bin].low) - 1}, true
		}
		if word++; word == len(s.some) {
			return place{}, false
		}
	}
}

// empty takes all entries out, and appends them to a list.
func (s *sorted) empty(list []entry) []entry {
	for word, rest := range s.some {
		for ; rest != 0; rest &= rest - 1 {
			b := &s.bins[64*word+bits.TrailingZeros64(rest)]
			for _, r := range b.high {
				list = append(list, r...)
				s.spare = append(s.spare, r[:0])
			}
			list = append(list, b.low...)
			b.low, b.high = b.low[:0], b.high[:0]
		}
		s.some[word] = 0
	}
	return list
}
