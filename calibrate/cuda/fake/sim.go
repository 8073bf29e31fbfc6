package fake

import (
	"errors"
	"math"
	"slices"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// item is an entry of a stream's queue: work, or a mark.
type item struct {
	mark    *mark
	work    float64 // s at the highest clock, alone
	clocked bool    // slows with the clock
	watts   float64
	gap     float64 // before it
	ready   float64 // when the host queued it
	group   *meeting
	done    func() // the effect on memory
	started bool
	left    float64
}

// meeting is one collective: it runs when all local members have come to it.
type meeting struct{ members, arrived int }

type stream struct {
	g         *gpu
	queue     []*item
	time      float64 // device time up to which the stream has run
	held      bool
	behind    bool // the last thing in it was work, so that the next work has a gap before it
	capturing *[]*item
}

func (g *gpu) Stream() (cuda.Stream, error) {
	s := &stream{g: g}
	g.d.streams = append(g.d.streams, s)
	return s, g.lost()
}

func (s *stream) GPU() cuda.GPU { return s.g }

func (s *stream) Close() error {
	d := s.g.d
	d.streams = slices.DeleteFunc(d.streams, func(o *stream) bool { return o == s })
	return nil
}

func (s *stream) put(i *item) {
	if s.capturing != nil {
		*s.capturing = append(*s.capturing, i)
		return
	}
	i.ready = s.g.d.now
	s.queue = append(s.queue, i)
}

func (s *stream) Sync() error {
	if s.held {
		return errors.New("fake: a held stream never finishes")
	}
	s.g.d.run()
	s.g.d.now = max(s.g.d.now, s.time)
	return s.g.lost()
}

type mark struct {
	g    *gpu
	time float64
	set  bool
}

func (s *stream) Mark() (cuda.Mark, error) {
	m := &mark{g: s.g}
	s.put(&item{mark: m})
	return m, s.g.lost()
}

func (m *mark) Since(earlier cuda.Mark) (float64, error) {
	m.g.d.run()
	o := earlier.(*mark)
	if !m.set || !o.set || m.g != o.g {
		return 0, errors.New("fake: a mark has not passed or is of another GPU")
	}
	m.g.d.now = max(m.g.d.now, m.time)
	return m.time - o.time, m.g.lost()
}

func (m *mark) Close() error { return nil }

// gate holds streams.
type gate struct {
	d    *Driver
	held []*stream
}

func (g *gpu) Gate() (cuda.Gate, error) {
	if err := g.d.needs("libnvrtc"); err != nil {
		return nil, err
	}
	return &gate{d: g.d}, nil
}

func (t *gate) Hold(s cuda.Stream) error {
	st := s.(*stream)
	t.d.run()
	st.held = true
	t.held = append(t.held, st)
	return st.g.lost()
}

func (t *gate) Release() (bool, error) {
	for _, s := range t.held {
		s.held = false
		s.time = max(s.time, t.d.now)
	}
	t.held = nil
	t.d.run()
	return true, nil
}

func (t *gate) Close() error { return nil }

// run simulates until no stream can go on.
func (d *Driver) run() {
	for {
		var running []*item
		var on []*stream
		for _, s := range d.streams {
			s.g.busy = 0
		}
		for _, s := range d.streams {
			if len(s.queue) == 0 {
				continue
			}
			if i := s.head(); i != nil {
				running, on = append(running, i), append(on, s)
				s.g.busy++
			}
		}
		if len(running) == 0 {
			return
		}
		// The first to finish, at the rates of now, decides how far all go.
		end, rates := math.Inf(1), make([]float64, len(running))
		for k, i := range running {
			rates[k] = 1
			if on[k].g.busy > 1 {
				rates[k] = 1 / contend
			}
			if i.clocked {
				rates[k] *= on[k].g.clock() / maxClock
			}
			end = min(end, on[k].time+i.left/rates[k])
		}
		for k, i := range running {
			s := on[k]
			if s.time > end {
				continue // starts later
			}
			s.g.spend(s.time, end, i.watts)
			i.left -= (end - s.time) * rates[k]
			s.time = end
			if i.left <= 1e-12 { // below it a double holds no difference of times
				if i.done != nil {
					i.done()
				}
				s.queue = s.queue[1:]
			}
		}
	}
}

// head is the work at the front of a stream that can run now; marks before it are
// passed.
func (s *stream) head() *item {
	for len(s.queue) > 0 && !s.held {
		i := s.queue[0]
		if !i.started {
			s.time = max(s.time, i.ready)
		}
		if i.mark != nil {
			i.mark.time, i.mark.set = s.time, true
			s.queue, s.behind = s.queue[1:], false
			continue
		}
		if !i.started {
			i.started = true
			if i.group != nil {
				i.group.arrived++
			}
			i.left = i.work * s.g.d.noise()
			if s.behind {
				i.left += i.gap
			}
			s.behind = true
		}
		if i.group != nil && i.group.arrived < i.group.members {
			return nil
		}
		return i
	}
	return nil
}

// op is prepared work of one stream.
type op struct {
	s     *stream
	kind  string // of watts
	work  float64
	clock bool
	wait  bool // the host waits for it: pageable copies
	done  func()
}

func (o *op) Enqueue(n int) error {
	g := o.s.g
	g.calls++
	for range n {
		if o.s.capturing == nil {
			g.d.now += hostCost
		}
		o.s.put(&item{work: max(o.work, floor), clocked: o.clock, watts: watts[o.kind], gap: gap, done: o.done})
		if o.wait {
			if err := o.s.Sync(); err != nil {
				return err
			}
		}
	}
	return g.lost()
}

func (o *op) Close() error { return nil }

// graph is recorded items of several streams.
type graph struct {
	d       *Driver
	streams []*stream
	items   [][]*item
}

func capture(d *Driver, streams []*stream, o cuda.Op, n int) (cuda.Op, error) {
	g := &graph{d: d, streams: streams, items: make([][]*item, len(streams))}
	for k, s := range streams {
		s.capturing = &g.items[k]
	}
	err := o.Enqueue(n)
	for _, s := range streams {
		s.capturing = nil
	}
	return g, err
}

func (g *gpu) Capture(s cuda.Stream, o cuda.Op, n int) (cuda.Op, error) {
	return capture(g.d, []*stream{s.(*stream)}, o, n)
}

func (r *graph) Enqueue(n int) error {
	for range n {
		meetings := map[*meeting]*meeting{}
		for k, s := range r.streams {
			r.d.now += 2 * hostCost
			s.g.calls++
			for _, i := range r.items[k] {
				c := *i
				c.gap /= 2
				if i.group != nil {
					if meetings[i.group] == nil {
						meetings[i.group] = &meeting{members: i.group.members}
					}
					c.group = meetings[i.group]
				}
				s.put(&c)
			}
		}
	}
	return r.streams[0].g.lost()
}

func (r *graph) Close() error { return nil }
