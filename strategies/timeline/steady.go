package timeline

import "math"

// Mark is the state of a Sim between two stretches of work. Where equal stretches
// follow each other, two marks tell whether all further ones go like the last.
type Mark struct {
	now, host                                   float64
	idle, exposed, inline, work, slowed, launch float64
	copied, starved                             float64
	late, fresh                                 int
	queues                                      [MaxStreams]queued
}

// queued is what a stream has left.
type queued struct {
	tasks   int
	left    float64
	slow    float64 // of all; negative: they differ
	waiting bool    // some are not ready yet
	first   [few]task
}

// few is how many tasks of a stream a Mark tells apart.
const few = 4

// same is the difference of two times that is rounding.
const same = 1e-12

// Mark notes the state of now into m.
func (s *Sim) Mark(m *Mark) {
	m.now, m.host = s.Now, s.Host
	m.idle, m.exposed, m.inline, m.work, m.slowed, m.launch = s.Idle, s.Exposed, s.Inline, s.Work, s.Slowed, s.Moved
	m.copied, m.starved = s.Copied, s.Starved
	m.late, m.fresh = s.Late, s.fresh
	for i := range s.streams {
		st, q := &s.streams[i], &m.queues[i]
		q.tasks, q.left, q.slow, q.waiting = len(st.tasks)-st.head, 0, 1, false
		for k := range q.tasks {
			t := &st.tasks[st.head+k]
			q.left += t.left
			if k == 0 {
				q.slow = t.slow
			} else if q.slow != t.slow {
				q.slow = -1
			}
			if t.ready > s.Now+same {
				q.waiting = true
			}
			if k < few {
				q.first[k] = task{left: t.left, slow: t.slow, quiet: t.quiet, ready: max(t.ready-s.Now, 0), issued: max(t.issued-s.Now, 0)}
			}
		}
	}
}

// Repeats reports whether the stretch between a and the later b will repeat: the
// state at its end is that at its start, moved in time. The host counts only where
// it was ever waited for; where it never was it may run further and further ahead.
// A stream that was busy all the while may fall further and further behind.
func (b *Mark) Repeats(a *Mark) bool {
	ahead := b.late == a.late && b.now-b.host >= a.now-a.host-same
	if !ahead && math.Abs((b.now-b.host)-(a.now-a.host)) > same {
		return false
	}
	for i := range b.queues {
		if x, y := &a.queues[i], &b.queues[i]; !x.equal(y) && !(ahead && b.behind(a, i)) {
			return false
		}
	}
	return true
}

func (q *queued) equal(o *queued) bool {
	if q.tasks != o.tasks || q.tasks > few {
		return false
	}
	for k := range q.tasks {
		x, y := &q.first[k], &o.first[k]
		if x.slow != y.slow || x.quiet != y.quiet || math.Abs(x.left-y.left) > same || math.Abs(x.ready-y.ready) > same || math.Abs(x.issued-y.issued) > same {
			return false
		}
	}
	return true
}

// behind reports whether stream i never ran dry between a and b, and has at b no
// less to do than at a.
func (b *Mark) behind(a *Mark, i int) bool {
	x, y := &a.queues[i], &b.queues[i]
	return x.tasks > 0 && y.tasks > 0 && a.fresh == b.fresh && !x.waiting && !y.waiting && x.slow > 0 && x.slow == y.slow && y.left >= x.left-same
}

// Skip lets the stretch from a to now, which repeats, pass n more times. What a
// stream falls behind is queued as one further task; it returns that of each
// stream, with an index below 0 where there is none.
func (s *Sim) Skip(a *Mark, n int) (tasks [MaxStreams]Task) {
	k := float64(n)
	dt := k * (s.Now - a.now)
	var b Mark
	s.Mark(&b)
	s.Now += dt
	s.Host += k * (s.Host - a.host)
	s.Idle += k * (s.Idle - a.idle)
	s.Exposed += k * (s.Exposed - a.exposed)
	s.Inline += k * (s.Inline - a.inline)
	s.Work += k * (s.Work - a.work)
	s.Slowed += k * (s.Slowed - a.slowed)
	s.Moved += k * (s.Moved - a.launch)
	s.Copied += k * (s.Copied - a.copied)
	s.Starved += k * (s.Starved - a.starved)
	for i := range s.streams {
		st := &s.streams[i]
		tasks[i] = Task{i, -1}
		for j := st.head; j < len(st.tasks); j++ {
			t := &st.tasks[j]
			if t.ready > b.now {
				t.ready += dt
			}
			if t.issued > b.now {
				t.issued += dt
			}
		}
		if more := b.queues[i].left - a.queues[i].left; b.queues[i].tasks > 0 && more > same {
			s.queued++
			st.tasks = append(st.tasks, task{ready: s.Now, left: k * more, slow: b.queues[i].slow, quiet: st.tasks[st.head].quiet, end: -1, start: -1})
			tasks[i] = Task{i, len(st.tasks) - 1}
		}
	}
	return tasks
}

// Some reports whether there is a task.
func (t Task) Some() bool { return t.index >= 0 }
