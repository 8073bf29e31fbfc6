package pipeline

// list is the pen a schedule writes one rank's actions with. Micro batches of a
// chunk are taken in order, so a schedule only says kind and chunk.
type list struct {
	p, v, m int // ranks, chunks per rank, micro batches per chunk
	rank    int
	actions []Action
	next    [][kinds]int32 // by chunk: the next micro batch
	first   []int32        // by chunk: added to micro batch numbers
}

// reset makes the list ready for a rank.
func (l *list) reset(rank int) {
	l.rank = rank
	for c := range l.next {
		l.next[c] = [kinds]int32{}
		l.first[c] = 0
	}
}

// add appends the next micro batch of a chunk. Micro batches past the last are
// counted but not written: schedules drawn for a full pipeline stay legal when
// it is never full.
func (l *list) add(k Kind, chunk int) {
	n := &l.next[chunk]
	mb := n[k]
	n[k]++
	if k == Backward { // stands for both halves
		mb = n[BackwardInput]
		n[BackwardInput]++
		n[BackwardWeight]++
	}
	if int(mb) < l.m {
		l.actions = append(l.actions, Action{Kind: k, Chunk: int32(chunk), MicroBatch: mb + l.first[chunk]})
	}
}

func (l *list) forward(chunk int)  { l.add(Forward, chunk) }
func (l *list) backward(chunk int) { l.add(Backward, chunk) }
func (l *list) input(chunk int)    { l.add(BackwardInput, chunk) }
func (l *list) weight(chunk int)   { l.add(BackwardWeight, chunk) }

// pair appends a forward and a backward that overlap.
func (l *list) pair(forward, backward int) {
	l.forward(forward)
	l.actions[len(l.actions)-1].Overlap = true
	l.backward(backward)
}

// oneForwardOneBackward writes the common shape of 1F1B schedules: warm
// forwards, then a forward and a backward in turn, then the backwards left.
// fChunk and bChunk give the chunk of the k-th forward and backward. With split
// set the backward is BackwardInput, and its weight half follows lag backwards
// later.
func (l *list) oneForwardOneBackward(warm int, fChunk, bChunk func(k int) int, split bool, lag int) {
	total := l.m * l.v
	warm = min(warm, total)
	for k := range warm {
		l.forward(fChunk(k))
	}
	for k := range total {
		if warm+k < total {
			l.forward(fChunk(warm + k))
		}
		if !split {
			l.backward(bChunk(k))
			continue
		}
		l.input(bChunk(k))
		if k >= lag {
			l.weight(bChunk(k - lag))
		}
	}
	if split {
		for k := max(total-lag, 0); k < total; k++ {
			l.weight(bChunk(k))
		}
	}
}

// chunk0 is the chunk of every action of a schedule with one stage per rank.
func chunk0(int) int { return 0 }

// grouped returns the chunk order of interleaved schedules: group micro batches
// through one chunk, then the same through the next; backwards start at the
// last chunk.
func (l *list) grouped(group int) (fChunk, bChunk func(k int) int) {
	v := l.v
	fChunk = func(k int) int { return k / group % v }
	return fChunk, func(k int) int { return v - 1 - fChunk(k) }
}
