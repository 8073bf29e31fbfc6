package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/perfplan/perfplan/calibrate/cuda"
	"github.com/perfplan/perfplan/calibrate/probe"
	"github.com/perfplan/perfplan/calibrate/sample"
)

// run is one calibration under way.
type run struct {
	ctx    context.Context
	d      cuda.Driver
	w      *probe.World
	o      Options
	out    *Outcome
	writer *sample.Writer
	seen   map[string]bool // cases of the file that is resumed
	start  time.Time
	total  time.Duration
	doing  string // the case under way, for messages
}

// Turns of a probe: the fewest, but for a budget that is used up, and the most.
const minTurns, maxTurns = 3, 15

// watchTurn is the turn in which clocks and power are read too: by then all is warm.
const watchTurn = 1

// errWrong is the error of cases that were not measured for the wrong results of
// their probe.
var errWrong = errors.New("not measured, because the check of results failed")

// errInterrupted ends a calibration whose user had enough.
var errInterrupted = errors.New("interrupted")

// all runs the probes, each for its share of what is left of the budget.
func (r *run) all(probes []probe.Probe) error {
	probes = probe.Sequence(probes)
	var shares, past float64 // of those that can run: of all, of those that have
	share := func(p probe.Probe) float64 {
		if p.Applicable != nil && p.Applicable(r.w) != nil {
			return 0
		}
		return p.Share
	}
	for _, p := range probes {
		shares += share(p)
	}
	for _, p := range probes {
		own := share(p)
		s := &session{run: r, p: p, done: past / max(shares, 1e-9), part: own / max(shares, 1e-9)}
		if own > 0 {
			left := r.total - r.d.Now().Sub(r.start)
			s.allotted = time.Duration(float64(left) * own / (shares - past))
		}
		past += own
		err := s.probe()
		if errors.Is(err, errInterrupted) {
			r.out.Interrupted = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	r.progress("", 1)
	return nil
}

// session is one probe under way.
type session struct {
	*run
	p          probe.Probe
	b          *probe.Bench
	entries    []*entry
	allotted   time.Duration
	begin      time.Time
	done, part float64 // of the whole calibration: before the probe, the probe
}

// entry is a case being measured.
type entry struct {
	c        probe.Case
	trial    probe.Trial
	readings []probe.Reading
	err      error
}

// probe runs the session. Its failure is noted; an error ends the calibration.
func (s *session) probe() error {
	p := s.p
	s.progress(p.Key, s.done)
	var unable error
	if p.Applicable != nil {
		unable = p.Applicable(s.w)
	}
	if p.Group && s.w.Peers != nil {
		fine, err := s.w.AllFine(unable)
		if err != nil {
			return s.gone(err)
		}
		if !fine && unable == nil {
			unable = errors.New("another process cannot run it")
		}
	}
	if unable != nil {
		s.out.note("calibrate.left-out", "", "probe %s is left out: %v", p.Key, unable)
		return nil
	}
	if !p.Group && !s.w.Leads() { // the leader's alone; the others wait for it
		return nil
	}
	var cases []probe.Case
	for _, c := range p.Cases(s.w, s.o.Effort) {
		if !s.seen[p.Key+" "+c.Key()] {
			cases = append(cases, c)
		}
	}
	if p.Group && s.w.Peers != nil { // all processes must measure the same; the leader knows what is there
		agreed, err := s.agreeOn(cases)
		if err != nil {
			return s.gone(err)
		}
		cases = agreed
	}
	if len(cases) == 0 {
		return nil
	}
	for len(s.w.Benches) > 0 {
		b := s.w.Benches[0]
		left, err := s.measure(b, cases)
		if err != nil && (errors.Is(err, errInterrupted) || s.w.Peers != nil) {
			return err
		}
		if err == nil {
			return nil
		}
		// The GPU is lost. Others may do what it did not.
		s.out.note("calibrate.gpu-lost", "check dmesg for Xid messages and run again with --resume", "GPU %d is lost during probe %s: %v", b.GPU.Device().Index, p.Key, err)
		b.Close()
		if s.w.Lose(b); len(s.w.Benches) == 0 {
			return fmt.Errorf("no GPU is left: %w", err)
		}
		if cases = left; p.Group {
			return nil // its cases were those of a group that is no more
		}
	}
	return nil
}

// gone is what a process makes of a connection that failed: without the first one,
// which was interrupted or has failed and says so itself, it has nothing left to do.
func (r *run) gone(err error) error {
	if r.w.Leads() {
		return err
	}
	r.out.note("calibrate.peers", "", "%v", err)
	return errInterrupted
}

// agreeOn gives every process the leader's cases.
func (r *run) agreeOn(cases []probe.Case) ([]probe.Case, error) {
	var out []probe.Case
	all := map[string]bool{}
	for _, c := range cases {
		all[c.Key()] = true
	}
	// Without the file the others have all cases; the leader has a part of them.
	var own []byte
	for _, c := range cases {
		own = append(append(own, c.Key()...), '\n')
	}
	shared, err := r.w.Peers.Share(own)
	if err != nil {
		return nil, err
	}
	for _, line := range splitLines(shared[0]) {
		for _, c := range cases {
			if c.Key() == line {
				out = append(out, c)
			}
		}
		if !all[line] {
			return nil, fmt.Errorf("this process cannot measure a case of the leader's: %s; start all with the same flags", line)
		}
	}
	return out, nil
}

func splitLines(b []byte) []string {
	var out []string
	for len(b) > 0 {
		i := slices.Index(b, '\n')
		out = append(out, string(b[:i]))
		b = b[i+1:]
	}
	return out
}

// measure runs the cases on a GPU and writes their samples. An error means that the
// GPU is lost, or an interruption; the cases without a sample come with it.
func (s *session) measure(b *probe.Bench, cases []probe.Case) (left []probe.Case, err error) {
	s.b, s.begin, s.entries = b, s.d.Now(), nil
	for _, c := range cases {
		s.entries = append(s.entries, &entry{c: c})
	}
	defer func() {
		for _, e := range s.entries {
			if e.trial.Close != nil {
				if err := e.trial.Close(); err != nil && e.err == nil {
					e.err = err
				}
			}
		}
		left = s.write(s.p, b, s.entries, err)
		s.tidy(s.p)
	}()
	ready, err := s.ready(cases)
	if err != nil || !ready {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	return nil, s.turns()
}

// together is an error that any of a group's processes has: one's own, or that of
// another.
func (s *session) together(own error) error {
	if !s.p.Group || s.w.Peers == nil {
		return own
	}
	fine, err := s.w.AllFine(own)
	if err == nil && !fine && own == nil {
		own = errors.New("another process failed")
	}
	return errors.Join(own, err)
}

// ready checks the probe's results, where that is asked for, and sets it up. When one
// of them fails, all cases get its error.
func (s *session) ready(cases []probe.Case) (bool, error) {
	fail := func(err error) (bool, error) {
		for _, e := range s.entries {
			e.err = err
		}
		return false, s.healthy(s.b)
	}
	if s.o.Verify && s.p.Verify != nil {
		if err := s.together(s.p.Verify(s.w, s.b)); err != nil {
			s.out.Wrong = append(s.out.Wrong, fmt.Sprintf("%s: %v", s.p.Key, err))
			return fail(fmt.Errorf("%w: %w", errWrong, err))
		}
		s.out.Verified = append(s.out.Verified, s.p.Key)
		s.tidy(s.p)
	}
	if s.p.Setup != nil {
		if err := s.together(s.p.Setup(s.w, s.b, cases)); err != nil {
			return fail(fmt.Errorf("set-up: %w", err))
		}
	}
	return true, nil
}

// try does a step of a case. Its error is the case's, and one of another process too;
// what is returned ends the session.
func (s *session) try(e *entry, done float64, step func() error) error {
	if stop, err := s.stopped(s.p); err != nil || stop {
		return cmp.Or(err, errInterrupted)
	}
	s.doing = e.c.Key()
	s.progress(s.p.Key, s.done+s.part*done)
	if e.err = s.together(step()); e.err != nil {
		return s.healthy(s.b)
	}
	return nil
}

// prepareShare is the part of a session's time that preparation is taken to last, for
// the progress alone.
const prepareShare = 0.1

func (s *session) prepare() error {
	for i, e := range s.entries {
		err := s.try(e, prepareShare*float64(i)/float64(len(s.entries)), func() (err error) {
			e.trial, err = s.p.Prepare(s.w, s.b, e.c)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// turns measures all cases again and again, each time in another order, until the
// time is used up.
func (s *session) turns() error {
	turns := maxTurns
	if s.p.Once {
		turns = 1
	}
	order := rand.New(rand.NewPCG(s.o.Seed, uint64(len(s.p.Key))<<8|uint64(s.p.Key[0])))
	for turn := range turns {
		late := false // the budget of the whole is used up: what has no reading goes without
		for i, k := range order.Perm(len(s.entries)) {
			e := s.entries[k]
			if e.err != nil {
				continue
			}
			var err error
			if late, err = s.agree(s.p, s.late(turn)); err != nil {
				return err
			} else if late {
				break
			}
			within := s.fraction(s.begin, s.allotted, turn, turns, float64(i)/float64(len(s.entries)))
			err = s.try(e, prepareShare+(1-prepareShare)*within, func() error {
				reading, err := e.trial.Once(turn == min(watchTurn, turns-1))
				if err == nil {
					e.readings = append(e.readings, reading)
					s.rest(reading)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		s.doing = ""
		used := s.d.Now().Sub(s.begin)
		enough := late || used >= s.allotted && (turn+1 >= minTurns || used >= 2*s.allotted)
		if enough, err := s.agree(s.p, enough); err != nil || enough {
			return err
		}
	}
	return nil
}

// rest lets a GPU pause after work, so that it works for no more than the probe's duty.
func (s *session) rest(after probe.Reading) {
	if s.p.Duty < 1 && after.Busy > 0 {
		s.d.Sleep(time.Duration(after.Busy * (1/s.p.Duty - 1) * float64(time.Second)))
	}
}

// late says whether a turn must end where it is: the whole has taken a quarter more
// than its budget, in the first turn half more.
func (r *run) late(turn int) bool {
	most := r.total + r.total/4
	if turn == 0 {
		most += r.total / 4
	}
	return r.d.Now().Sub(r.start) > most
}

// agree is the leader's decision where processes work together.
func (r *run) agree(p probe.Probe, own bool) (bool, error) {
	if !p.Group {
		return own, nil
	}
	return r.w.Agree(own)
}

// stopped says whether the user had enough.
func (r *run) stopped(p probe.Probe) (bool, error) { return r.agree(p, r.ctx.Err() != nil) }

// fraction is how much of a probe is done, by time or turns.
func (r *run) fraction(begin time.Time, allotted time.Duration, turn, turns int, within float64) float64 {
	byTurns := (float64(turn) + within) / float64(turns)
	least := (float64(turn) + within) / float64(min(minTurns, turns))
	byTime := float64(r.d.Now().Sub(begin)) / float64(max(allotted, 1))
	return min(max(byTurns, min(byTime, least)), 1)
}

// healthy returns an error when a GPU no longer works at all.
func (r *run) healthy(b *probe.Bench) error {
	if r.w.Peers != nil {
		return nil // a lost GPU of a group shows in all that follows
	}
	return b.Check()
}

// write makes samples of what was measured and returns the cases without one. Cases
// that failed get a sample that says so, but not when the GPU is lost.
func (r *run) write(p probe.Probe, b *probe.Bench, entries []*entry, lost error) (left []probe.Case) {
	for _, e := range entries {
		gpu := b.GPU.Device().Index
		if p.Group || e.trial.All {
			gpu = -1
		}
		var s sample.Sample
		switch {
		case len(e.readings) > 0:
			s = probe.Sample(p, e.c, gpu, e.readings)
			if s.Seconds <= 0 && e.c["class"] != "idle" {
				s = sample.Sample{Probe: p.Key, Case: e.c, GPU: gpu, Mode: s.Mode, Error: "shorter than the clock tells"}
			}
		case e.err != nil && lost == nil:
			s = sample.Sample{Probe: p.Key, Case: e.c, GPU: gpu, Mode: sample.Burst, Error: e.err.Error()}
		default:
			left = append(left, e.c)
			continue
		}
		if s.Error != "" {
			if r.out.Failed++; r.out.Failed <= maxFailures && !errors.Is(e.err, errWrong) {
				r.out.note("calibrate.failed", "", "probe %s, %s: %s", p.Key, e.c.Key(), s.Error)
			}
		}
		r.out.New++
		r.out.File.Samples = append(r.out.File.Samples, s)
		if r.writer != nil {
			if err := r.writer.Add(s); err != nil {
				r.out.note("calibrate.samples", "free room on the disk", "a sample could not be written: %v", err)
			}
		}
	}
	if len(left) > 0 && lost == nil {
		r.out.note("calibrate.budget", "go on with --resume, or give more time with --budget", "probe %s: %d cases did not fit into the budget", p.Key, len(left))
	}
	return left
}

// maxFailures is how many failed cases are named; all are in the samples file.
const maxFailures = 8

// tidy frees what a probe allocated.
func (r *run) tidy(p probe.Probe) {
	if err := r.w.LeaveGroups(); err != nil {
		r.out.note("calibrate.close", "", "probe %s: %v", p.Key, err)
	}
	for _, b := range r.w.Benches {
		if err := b.Reset(); err != nil {
			r.out.note("calibrate.close", "", "probe %s: %v", p.Key, err)
		}
	}
}

// progress tells how far the calibration is. What is left follows from the budget
// at first and from the speed so far later.
func (r *run) progress(key string, done float64) {
	if r.o.Watch == nil {
		return
	}
	elapsed := r.d.Now().Sub(r.start)
	left := r.total - elapsed
	if done > 0.05 {
		left = time.Duration(float64(elapsed) * (1 - done) / done)
	}
	r.o.Watch(Progress{Probe: key, Case: r.doing, Done: done, Elapsed: elapsed, Left: max(left, 0)})
}
