package timeline

import (
	"math"

	"github.com/perfplan/perfplan/internal/units"
)

// Segment is a run of kernels with nothing to wait for between them.
type Segment struct {
	Host   units.Seconds // CPU time to issue all of it
	Busy   units.Seconds // device time of kernels and gaps, alone
	Loaded units.Seconds // the same while communication runs beside it
	Lag    units.Seconds // the last kernel ends no earlier than this after the host began
	Comm   units.Seconds // part of Busy that is communication on the critical path
	Sync   bool          // the host waits for its end
}

// Add appends another segment, exactly as if both were one run.
func (s *Segment) Add(o *Segment) {
	if s.Sync { // the host waits in between: what follows starts from the end of s
		more := max(o.Busy, o.Lag)
		s.Host = max(s.Host, s.Lag)
		s.Lag += more
		s.Busy += more
		s.Loaded += max(o.Loaded, o.Lag)
	} else {
		if s.Lag += o.Busy; o.Busy > 0 { // host work alone holds up no kernel
			s.Lag = max(s.Lag, s.Host+o.Lag)
		}
		s.Busy += o.Busy
		s.Loaded += o.Loaded
	}
	s.Host += o.Host
	s.Comm += o.Comm
	s.Sync = o.Sync
}

// MaxStreams is the number of communication streams of a Sim.
const MaxStreams = 3

// Task is a collective in a stream's queue.
type Task struct {
	stream int
	index  int
}

type task struct {
	ready, left float64
	issued      float64 // when the host had: ready, or before it
	slow        float64 // time under compute over time alone
	quiet       bool    // runs on a copy engine: compute beside it takes no longer
	after       Task    // of one that is ready with the end of this, and has no other ready time
	end         float64 // when finished; -1 before
	start       float64
	label       string
}

type stream struct {
	tasks []task
	head  int
}

// Sim is the state of one rank. The zero value is a rank at time 0. Times are
// seconds from the start of the step.
type Sim struct {
	Now  float64 // the compute stream is free from here
	Host float64 // the host has issued everything up to here

	Idle    float64 // compute waited for the host
	Exposed float64 // compute waited for communication on other streams, copies to and from the host included
	Starved float64 // of that, for these
	Inline  float64 // communication on the compute stream itself
	Work    float64 // compute time alone, without slowdown
	Slowed  float64 // added by communication beside it
	Moved   float64 // communication on other streams, alone, copies to and from the host included
	Copied  float64 // of that these
	Late    int     // how often something waited for the host

	Crowd float64 // time of a copy while another goes the other way, over its time alone; 0: 1

	Record   *Recorder
	streams  [MaxStreams]stream
	held     map[int]Task // by communicator: its last task that held the compute stream
	fetching bool         // the compute stream copies from the host
	used     int          // streams with tasks, idle ones below them included
	fresh    int          // tasks that found their stream idle
	queued   int          // tasks that have not ended
}

// Reset returns the Sim to time 0, keeping its memory.
func (s *Sim) Reset() {
	for i := range s.streams {
		s.streams[i].tasks = s.streams[i].tasks[:0]
		s.streams[i].head = 0
	}
	streams, held := s.streams, s.held
	clear(held)
	*s = Sim{streams: streams, held: held, Record: s.Record, Crowd: s.Crowd}
}

// Run executes a segment: the host issues it from its own time on, the device
// runs it as soon as it is free.
func (s *Sim) Run(g *Segment) {
	begin := s.Now
	issued := s.Host
	s.Host += float64(g.Host)
	s.compute(float64(g.Busy), float64(g.Loaded))
	s.Work += float64(g.Busy - g.Comm)
	s.Inline += float64(g.Comm)
	if end := issued + float64(g.Lag); end > s.Now {
		s.Idle += end - s.Now
		s.Late++
		s.pass(end)
	}
	if g.Sync {
		s.Host = max(s.Host, s.Now)
	}
	if s.Record != nil {
		s.Record.compute(begin, s.Now)
	}
}

// resolution is the shortest time that counts, well under any kernel.
const resolution = 1e-13

// compute advances the compute stream by work that takes busy alone and loaded
// under communication.
func (s *Sim) compute(busy, loaded float64) {
	if busy <= resolution {
		return
	}
	if s.queued == 0 { // nothing runs beside it, or will
		s.Now += busy
		return
	}
	left, ratio := busy, max(loaded/busy, 1)
	for left > resolution {
		slow := 1.0
		if s.communicates() {
			slow = ratio
		}
		t := s.advance(left*slow, true)
		left -= t / slow
		s.Slowed += t - t/slow
	}
}

// pass lets time go by until t with the compute stream idle.
func (s *Sim) pass(t float64) {
	for s.Now < t {
		s.advance(t-s.Now, false)
	}
}

// advance lets time go by until the next event of a communication stream, at most
// limit, and returns how much went by.
func (s *Sim) advance(limit float64, computing bool) float64 {
	d, at := limit, s.Now+limit
	var running [MaxStreams]struct {
		*task
		pace float64
	}
	n := 0
	for i := range s.streams[:s.used] {
		switch t := s.head(i); {
		case t == nil:
		case t.ready > s.Now:
			if w := t.ready - s.Now; w < d {
				d, at = w, t.ready
			}
		default:
			if t.start < 0 {
				t.start = s.Now
			}
			r := &running[n]
			n++
			r.task, r.pace = t, s.pace(t, computing)
			if need := t.left * r.pace; need < d {
				d, at = need, s.Now+need
			}
		}
	}
	for _, r := range running[:n] {
		r.left -= d / r.pace
	}
	s.Now = at
	s.retire()
	return d
}

// pace is the time that a task takes now over its time alone.
func (s *Sim) pace(t *task, computing bool) float64 {
	switch {
	case t.quiet && s.copies() > 1:
		return max(s.Crowd, 1)
	case computing:
		return t.slow
	}
	return 1
}

// copies is how many copies to the host or from it run now, those of the compute stream
// included.
func (s *Sim) copies() int {
	n := 0
	if s.fetching {
		n++
	}
	for i := range s.streams[:s.used] {
		if t := s.head(i); t != nil && t.ready <= s.Now && t.quiet {
			n++
		}
	}
	return n
}

// Fetch makes the compute stream copy from the host, which takes duration alone.
func (s *Sim) Fetch(duration, issued float64) {
	s.pass(issued)
	begin := s.Now
	s.fetching = true
	for left := duration; left > resolution; {
		slow := 1.0
		if s.copies() > 1 {
			slow = max(s.Crowd, 1)
		}
		left -= s.advance(left*slow, true) / slow
	}
	s.fetching = false
	s.Copied += duration
	s.Moved += duration
	s.Exposed += s.Now - begin
	s.Starved += s.Now - begin
}

// head is the first unfinished task of a stream.
func (s *Sim) head(i int) *task {
	st := &s.streams[i]
	if st.head == len(st.tasks) {
		return nil
	}
	t := &st.tasks[st.head]
	if t.ready == never && s.End(t.after) >= 0 {
		t.ready = s.End(t.after)
	}
	return t
}

// never is the ready time of a task before the one has ended that it waits for.
var never = math.Inf(1)

// communicates reports whether a task runs now that slows compute.
func (s *Sim) communicates() bool {
	for i := range s.streams[:s.used] {
		if t := s.head(i); t != nil && t.ready <= s.Now && !t.quiet {
			return true
		}
	}
	return false
}

// retire ends the tasks that have nothing left.
func (s *Sim) retire() {
	for i := range s.streams[:s.used] {
		st := &s.streams[i]
		for t := s.head(i); t != nil && t.ready <= s.Now && t.left <= resolution; t = s.head(i) {
			if t.start < 0 {
				t.start = s.Now
			}
			t.end = s.Now
			if s.Record != nil {
				s.Record.comm(i, t.label, t.start, t.end)
			}
			st.head++
			s.queued--
		}
	}
}

// Launch queues a collective that takes duration alone and slow times that under
// compute; it starts when ready and its stream is free. A ready time before now
// counts as now.
func (s *Sim) Launch(stream int, label string, duration, ready, slow float64) Task {
	s.used = max(s.used, stream+1)
	st := &s.streams[stream]
	if st.head == len(st.tasks) {
		s.fresh++
	}
	s.Moved += duration
	s.queued++
	st.tasks = append(st.tasks, task{ready: max(ready, s.Now), issued: max(min(ready, s.Host), s.Now), left: duration, slow: max(slow, 1), end: -1, start: -1, label: label})
	return Task{stream, len(st.tasks) - 1}
}

// Copy queues a copy to the host or from it, by a copy engine: compute neither slows it nor
// is slowed by it.
func (s *Sim) Copy(stream int, label string, duration, ready float64) Task {
	t := s.Launch(stream, label, duration, ready, 1)
	s.streams[stream].tasks[t.index].quiet = true
	s.Copied += duration
	return t
}

// CopyAfter is Copy of what another task leaves, wherever that is queued.
func (s *Sim) CopyAfter(left Task, stream int, label string, duration float64) Task {
	t := s.Copy(stream, label, duration, never)
	s.streams[stream].tasks[t.index].after = left
	return t
}

// Wait makes the compute stream wait for a task and returns how long it waited, which is
// the host's doing until it has issued what runs next on the stream.
func (s *Sim) Wait(t Task) float64 {
	begin, idle := s.Now, s.Idle
	s.retire()
	for s.streams[t.stream].tasks[t.index].end < 0 {
		next := s.head(t.stream)
		late, copying := max(next.issued-s.Now, 0), next.quiet && next.ready != never
		d := s.advance(math.Inf(1), false)
		late = min(late, d)
		if s.Idle += late; copying {
			s.Starved += d - late
		}
	}
	w := s.Now - begin
	s.Exposed += w - (s.Idle - idle)
	return w
}

// Hold makes the compute stream wait until a task can start behind the last of its
// communicator: where all streams share one connection to the device, no kernel starts before
// what was launched earlier on any of them.
func (s *Sim) Hold(t Task, communicator int) {
	if s.held == nil {
		s.held = map[int]Task{}
	}
	before, ok := s.held[communicator]
	s.held[communicator] = t
	if ok {
		s.Wait(before)
	}
}

// End returns when a finished task ended, or -1.
func (s *Sim) End(t Task) float64 { return s.streams[t.stream].tasks[t.index].end }

// Issued is when the host has issued what comes next: its own time, or now.
func (s *Sim) Issued() float64 {
	if s.Host > s.Now {
		s.Late++
		return s.Host
	}
	return s.Now
}

// WaitHost makes the host wait for the device (a stream synchronisation).
func (s *Sim) WaitHost() { s.Host = max(s.Host, s.Now) }

// Recorder keeps the spans of a Sim for traces and charts.
type Recorder struct {
	Label string // of the segment now running
	Spans []Span
}

// Span is something that ran from Start to End seconds after the step began.
type Span struct {
	Stream     string // "compute" or the name of a communication stream
	Label      string
	Start, End float64
}

// StreamNames are the names of communication streams, by index.
var StreamNames = [MaxStreams]string{"dp", "dp replicas", "host"}

func (r *Recorder) compute(start, end float64) {
	if end > start {
		r.Spans = append(r.Spans, Span{"compute", r.Label, start, end})
	}
}

func (r *Recorder) comm(stream int, label string, start, end float64) {
	r.Spans = append(r.Spans, Span{StreamNames[stream], label, start, end})
}
