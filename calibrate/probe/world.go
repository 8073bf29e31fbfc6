package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// Peers are the processes of a calibration over several; Rank 0 decides and writes.
type Peers interface {
	Rank() int
	// Share gives every process what each of them brought, by rank. All call it
	// together.
	Share(own []byte) ([][]byte, error)
}

// World is the GPUs of a calibration: those of this process, each with its rank, and
// the processes beside it.
type World struct {
	Driver  cuda.Driver
	Benches []*Bench
	Peers   Peers // nil when there is one process
	first   int   // rank of Benches[0]
	ranks   int
	hosts   []string // by rank
	comms   map[int]cuda.Comm
}

// NewWorld counts the GPUs of all processes; host names this machine.
func NewWorld(d cuda.Driver, benches []*Bench, peers Peers, host string) (*World, error) {
	w := &World{Driver: d, Benches: benches, Peers: peers, comms: map[int]cuda.Comm{}}
	all := [][]byte{append(binary.LittleEndian.AppendUint32(nil, uint32(len(benches))), host...)}
	own := 0
	if peers != nil {
		var err error
		if all, err = peers.Share(all[0]); err != nil {
			return nil, err
		}
		own = peers.Rank()
	}
	for i, p := range all {
		if len(p) < 4 {
			return nil, fmt.Errorf("process %d sent no count of its GPUs", i)
		}
		if i == own {
			w.first = w.ranks
		}
		for range binary.LittleEndian.Uint32(p) {
			w.hosts = append(w.hosts, string(p[4:]))
			w.ranks++
		}
	}
	return w, nil
}

// nodes counts the machines of the first n ranks.
func (w *World) nodes(n int) int {
	seen := map[string]bool{}
	for _, h := range w.hosts[:n] {
		seen[h] = true
	}
	return len(seen)
}

// Ranks counts the GPUs of all processes.
func (w *World) Ranks() int { return w.ranks }

// Leads says that this process decides and writes.
func (w *World) Leads() bool { return w.Peers == nil || w.Peers.Rank() == 0 }

// Agree gives every process the leader's decision.
func (w *World) Agree(own bool) (bool, error) {
	if w.Peers == nil {
		return own, nil
	}
	b := byte(0)
	if own {
		b = 1
	}
	all, err := w.Peers.Share([]byte{b})
	if err != nil {
		return false, err
	}
	return all[0][0] == 1, nil
}

// AllFine says whether no process has failed.
func (w *World) AllFine(own error) (bool, error) {
	if w.Peers == nil {
		return own == nil, nil
	}
	b := byte(0)
	if own != nil {
		b = 1
	}
	all, err := w.Peers.Share([]byte{b})
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(all, func(b []byte) bool { return b[0] != 0 }), nil
}

// needs says which library is missing.
func (w *World) needs(names ...string) error {
	for _, l := range w.Driver.Libraries() {
		if slices.Contains(names, l.Name) && l.Err != nil {
			return &cuda.Unavailable{Text: l.Err.Error()}
		}
	}
	return nil
}

// groups are the sizes of group that are measured: powers of two, and all.
func (w *World) groups() []int {
	var out []int
	for n := 2; n < w.ranks; n *= 2 {
		out = append(out, n)
	}
	if w.ranks >= 2 {
		out = append(out, w.ranks)
	}
	return out
}

// locals counts this process's GPUs in the group of the first n ranks.
func (w *World) locals(n int) int { return min(max(n-w.first, 0), len(w.Benches)) }

// comm joins the group of the first n ranks, once; nil in a process that has no part
// in it. All processes call it together.
func (w *World) comm(n int) (cuda.Comm, error) {
	if c, ok := w.comms[n]; ok {
		return c, nil
	}
	var id []byte
	var err error
	if w.Leads() {
		id, err = w.Driver.CommID()
	}
	if w.Peers != nil {
		if fine, e := w.AllFine(err); e != nil || !fine {
			return nil, errors.Join(err, e, errors.New("a process could not prepare the group"))
		}
		all, e := w.Peers.Share(id)
		if e != nil {
			return nil, e
		}
		id = all[0]
	}
	if err != nil {
		return nil, err
	}
	var c cuda.Comm
	if w.locals(n) > 0 {
		var members []cuda.Member
		for i, b := range w.Benches[:w.locals(n)] {
			members = append(members, cuda.Member{Rank: w.first + i, Stream: b.Stream})
		}
		if c, err = w.Driver.Join(id, n, members); err != nil {
			return nil, fmt.Errorf("a group of %d GPUs: %w", n, err)
		}
	}
	w.comms[n] = c
	return c, nil
}

// LeaveGroups ends the groups, whose memory other probes may want.
func (w *World) LeaveGroups() error {
	var errs []error
	for n, c := range w.comms {
		if c != nil {
			errs = append(errs, c.Close())
		}
		delete(w.comms, n)
	}
	return errors.Join(errs...)
}

// timed runs queue on streams that all start together and returns the time that each
// took between its marks. In one process a gate holds them; the GPUs of several
// processes start together after meet, a collective of theirs that is not timed.
func (w *World) timed(streams []cuda.Stream, meet, queue func() error) ([]float64, error) {
	gate := w.Benches[0].gate
	held := gate != nil && w.Peers == nil // one process cannot hold the GPUs of another
	var from, to []cuda.Mark
	run := func() (err error) {
		if held {
			for _, s := range streams {
				if err := gate.Hold(s); err != nil {
					return err
				}
			}
		}
		if w.Peers != nil && meet != nil {
			if err := meet(); err != nil {
				return err
			}
		}
		if from, err = markAll(streams); err != nil {
			return err
		}
		if err := queue(); err != nil {
			return err
		}
		to, err = markAll(streams)
		return err
	}
	err := run()
	if held {
		still, e := gate.Release()
		if err = errors.Join(err, e); err == nil && !still {
			err = errors.New("the gate gave up before all work was queued; the machine is overloaded or a launch waits for a GPU")
		}
	}
	for _, s := range streams {
		if e := s.Sync(); err == nil {
			err = e
		}
	}
	out := make([]float64, len(streams))
	for i := range streams {
		if err == nil {
			out[i], err = to[i].Since(from[i])
		}
	}
	for _, m := range append(from, to...) {
		m.Close()
	}
	return out, err
}

// streamsOf are the streams of so many GPUs.
func streamsOf(benches []*Bench) []cuda.Stream {
	var out []cuda.Stream
	for _, b := range benches {
		out = append(out, b.Stream)
	}
	return out
}

// markAll puts a mark on each stream; those before one that fails are returned, too.
func markAll(streams []cuda.Stream) (out []cuda.Mark, err error) {
	for _, s := range streams {
		m, err := s.Mark()
		if err != nil {
			return out, err
		}
		out = append(out, m)
	}
	return out, nil
}

// enqueue runs an op n times and waits for it on all its streams.
func enqueue(op cuda.Op, n int, streams []cuda.Stream) error {
	if err := op.Enqueue(n); err != nil {
		return err
	}
	return syncAll(streams)
}

func syncAll(streams []cuda.Stream) error {
	for _, s := range streams {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// Lose takes a GPU out of the world of one process.
func (w *World) Lose(b *Bench) {
	if i := slices.Index(w.Benches, b); i >= 0 {
		w.Benches = slices.Delete(w.Benches, i, i+1)
		w.hosts = w.hosts[1:]
		w.ranks--
	}
}
