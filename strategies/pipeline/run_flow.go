package pipeline

// spans are the times at which calls hold a rank's communication stream, in order;
// those before head are over for the compute stream.
type spans struct {
	from, to []float64
	head     int
}

// prepare readies the buffer for events.
func (buf *Buffer) prepare(pl *Plan, t *Times) {
	n := pl.Ranks
	buf.comm, buf.start, buf.slowed = cleared(buf.comm, n), resize(buf.start, n), cleared(buf.slowed, n)
	if t.Beside == nil {
		buf.beside = buf.beside[:0]
		return
	}
	buf.beside = pl.costs(t.Beside, buf.beside)
	for len(buf.held) < n {
		buf.held = append(buf.held, spans{})
	}
	for r := range buf.held {
		buf.held[r] = spans{from: buf.held[r].from[:0], to: buf.held[r].to[:0]}
	}
}

// flow executes events as number at, at+1, ... of the step.
func (buf *Buffer) flow(events []event, from [][4]int32, at int, hop float64) int {
	cost, clock, comm, end := buf.cost, buf.clock, buf.comm, buf.end
	contended, apart, launched := len(buf.beside) > 0, len(buf.hops) > 0, len(buf.launch) > 0
	for i := range events {
		e := &events[i]
		r := e.rank
		var t float64
		switch e.cost {
		default:
			if t = clock[r]; launched {
				t = buf.begins(r, e.cost)
			}
			if d := e.deps[0]; d != 0 {
				t = max(t, end[at-int(d)])
			}
			alone := t + cost[e.cost]
			if contended {
				t = buf.compute(int(r), t, cost[e.cost], buf.beside[e.cost])
			} else {
				t = alone
			}
			if launched {
				l := &buf.launch[e.cost]
				alone = max(alone, buf.host[r]+float64(l.Lag))
				t = l.begin(&buf.host[r], t)
			}
			if d := t - alone; d > resolution {
				buf.slowed[r] += d
			}
			clock[r] = t
		case exchangeEvent:
			q := e.deps[0]
			a, b := max(comm[r], clock[r]), max(comm[q], clock[q])
			if apart {
				hop = buf.hop(r, q)
			}
			t = max(a, b) + hop
			comm[r], comm[q] = t, t
			if contended {
				buf.held[r].add(a, t)
				buf.held[q].add(b, t)
			}
		case startEvent:
			t = max(comm[r], clock[r])
			buf.start[r] = t
		case endEvent:
			t = buf.start[r]
			if apart {
				hop = 0
			}
			for k, d := range e.deps {
				if d == 0 {
					break
				}
				t = max(t, end[at-int(d)])
				if apart { // the call ends with its slowest message
					hop = max(hop, buf.hop(r, from[i][k]))
				}
			}
			t += hop
			comm[r] = t
			if contended {
				buf.held[r].add(buf.start[r], t)
			}
		}
		end[at] = t
		at++
	}
	return at
}

// launched readies the buffer for hosts that launch passes; nil: none does.
func (buf *Buffer) launched(pl *Plan, l *Launches) {
	if buf.launch = buf.launch[:0]; l == nil {
		return
	}
	buf.host, buf.free = cleared(buf.host, pl.Ranks), cleared(buf.free, pl.Ranks)
	buf.launch = pl.launches(l, buf.launch)
}

// begins is when host and compute stream of a rank are ready for a pass, which is run on the
// rank as it would be with all its inputs, too.
func (buf *Buffer) begins(rank, pass int32) float64 {
	f := &buf.free[rank]
	f.clock = buf.launch[pass].begin(&f.host, max(f.clock, f.host)+buf.cost[pass])
	return max(buf.clock[rank], buf.host[rank])
}

// free is a rank that has all its inputs from the start.
type free struct{ host, clock float64 }

// begin moves a host past the launch of a pass whose kernels alone would be over at t and
// returns when they are.
func (l *Launch) begin(host *float64, t float64) float64 {
	t = max(t, *host+float64(l.Lag))
	*host += float64(l.Host)
	if l.Sync {
		*host = max(*host, t-float64(l.Ahead))
	}
	return t
}

// add notes that a call holds the stream.
func (s *spans) add(from, to float64) {
	if s.head == len(s.to) {
		s.from, s.to, s.head = s.from[:0], s.to[:0], 0
	}
	s.from, s.to = append(s.from, from), append(s.to, to)
}

// compute returns when a pass ends that starts at t and takes cost alone and
// beside next to a call, piece by piece.
func (buf *Buffer) compute(rank int, t, cost, beside float64) float64 {
	if cost <= 0 {
		return t
	}
	s := &buf.held[rank]
	left := cost
	for ; s.head < len(s.to); s.head++ {
		from, to := s.from[s.head], s.to[s.head]
		if to <= t {
			continue
		}
		if from > t {
			if t+left <= from {
				break
			}
			left -= from - t
			t = from
		}
		if need := left * beside / cost; t+need <= to {
			t += need
			left = 0
			break
		}
		left -= (to - t) * cost / beside
		t = to
	}
	return t + left
}

// resolution is the shortest time in seconds that counts: rounding leaves less.
const resolution = 1e-13
