package allocator

import "math/bits"

// sorted are free blocks by size, then address. Each bin holds those of about one size,
// the first last, so that few are compared and moved.
type sorted struct {
	bins [numBins][]entry
	some [(numBins + 63) / 64]uint64 // a bit for each bin that holds any
}

// entry is a free block with its sort key.
type entry struct {
	size, addr int64
	block      int32
}

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

// above returns how many entries of a bin are not below size and addr: most often all,
// as a step takes the lowest addresses first and gives the highest back first.
func above(bin []entry, size, addr int64) int {
	low, high := 0, len(bin)
	if high == 0 || !bin[high-1].less(size, addr) {
		return high
	}
	for high--; low < high; {
		if mid := int(uint(low+high) / 2); bin[mid].less(size, addr) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

func (s *sorted) insert(e entry) {
	k := binOf(e.size)
	bin := append(s.bins[k], e)
	if i := above(bin[:len(bin)-1], e.size, e.addr); i < len(bin)-1 {
		copy(bin[i+1:], bin[i:])
		bin[i] = e
	}
	s.bins[k] = bin
	s.some[k/64] |= 1 << (k % 64)
}

// replace puts an entry in the place of another one: most blocks that are cut or grow stay
// in their bin, near where they were.
func (s *sorted) replace(k, i int, e entry) {
	if binOf(e.size) != k {
		s.removeAt(k, i)
		s.insert(e)
		return
	}
	bin := s.bins[k]
	for ; i > 0 && bin[i-1].less(e.size, e.addr); i-- {
		bin[i] = bin[i-1]
	}
	for ; i+1 < len(bin) && !bin[i+1].less(e.size, e.addr); i++ {
		bin[i] = bin[i+1]
	}
	bin[i] = e
}

// place returns where the entry of a size and address is, which must be there.
func (s *sorted) place(size, addr int64) (bin, at int) {
	k := binOf(size)
	return k, above(s.bins[k], size, addr) - 1
}

func (s *sorted) removeAt(k, i int) {
	bin := s.bins[k]
	copy(bin[i:], bin[i+1:])
	if s.bins[k] = bin[:len(bin)-1]; len(bin) == 1 {
		s.some[k/64] &^= 1 << (k % 64)
	}
}

// first returns the place of the smallest entry that is not below a size.
func (s *sorted) first(size int64) (bin, at int, ok bool) {
	k := binOf(size)
	return s.valid(k, above(s.bins[k], size, 0)-1)
}

// valid returns a place, or the next one in which there is an entry.
func (s *sorted) valid(bin, at int) (int, int, bool) {
	if at >= 0 {
		return bin, at, true
	}
	word := (bin + 1) / 64
	for rest := s.some[word] >> ((bin + 1) % 64) << ((bin + 1) % 64); ; rest = s.some[word] {
		if rest != 0 {
			bin = 64*word + bits.TrailingZeros64(rest)
			return bin, len(s.bins[bin]) - 1, true
		}
		if word++; word == len(s.some) {
			return 0, 0, false
		}
	}
}

// empty takes all entries out, and appends them to a list.
func (s *sorted) empty(list []entry) []entry {
	for word, rest := range s.some {
		for ; rest != 0; rest &= rest - 1 {
			k := 64*word + bits.TrailingZeros64(rest)
			list = append(list, s.bins[k]...)
			s.bins[k] = s.bins[k][:0]
		}
		s.some[word] = 0
	}
	return list
}
