package calibrate

import (
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
	for k, p := range probes {
		var shares float64
		for _, q := range probes[k:] {
			if q.Applicable == nil || q.Applicable(r.w) == nil {
				shares += q.Share
			}
		}
		left := r.total - r.d.Now().Sub(r.start)
		err := r.one(p, float64(k)/float64(len(probes)), 1/float64(len(probes)), time.Duration(float64(left)*p.Share/max(shares, p.Share)))
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

// one runs a probe. Its failure is noted; an error ends the calibration.
func (r *run) one(p probe.Probe, done, part float64, allotted time.Duration) error {
	r.progress(p.Key, done)
	var unable error
	if p.Applicable != nil {
		unable = p.Applicable(r.w)
	}
	if p.Group && r.w.Peers != nil {
		fine, err := r.w.AllFine(unable)
		if err != nil {
			return r.gone(err)
		}
		if !fine && unable == nil {
			unable = errors.New("another process cannot run it")
		}
	}
	if unable != nil {
		r.out.note("calibrate.left-out", "", "probe %s is left out: %v", p.Key, unable)
		return nil
	}
	if !p.Group && !r.w.Leads() { // the leader's alone; the others wait for it
		return nil
	}
	var cases []probe.Case
	for _, c := range p.Cases(r.w, r.o.Effort) {
		if !r.seen[p.Key+" "+c.Key()] {
			cases = append(cases, c)
		}
	}
	if p.Group && r.w.Peers != nil { // all processes must measure the same; the leader knows what is there
		agreed, err := r.agreeOn(cases)
		if err != nil {
			return r.gone(err)
		}
		cases = agreed
	}
	if len(cases) == 0 {
		return nil
	}
	for len(r.w.Benches) > 0 {
		b := r.w.Benches[0]
		left, err := r.measure(p, b, cases, done, part, allotted)
		if err != nil && (errors.Is(err, errInterrupted) || r.w.Peers != nil) {
			return err
		}
		if err == nil {
			return nil
		}
		// The GPU is lost. Others may do what it did not.
		r.out.note("calibrate.gpu-lost", "check dmesg for Xid messages and run again with --resume", "GPU %d is lost during probe %s: %v", b.GPU.Device().Index, p.Key, err)
		b.Close()
		if r.w.Lose(b); len(r.w.Benches) == 0 {
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

// entry is a case being measured.
type entry struct {
	c        probe.Case
	trial    probe.Trial
	readings []probe.Reading
	err      error
}

// measure runs the cases of a probe in turns on a GPU and writes their samples. An
// error means that the GPU is lost, or an interruption; the cases without a sample
// come with it.
func (r *run) measure(p probe.Probe, b *probe.Bench, cases []probe.Case, done, part float64, allotted time.Duration) (left []probe.Case, err error) {
	entries := make([]*entry, len(cases))
	for i, c := range cases {
		entries[i] = &entry{c: c}
	}
	begin := r.d.Now()
	defer func() {
		for _, e := range entries {
			if e.trial.Close != nil {
				if err := e.trial.Close(); err != nil && e.err == nil {
					e.err = err
				}
			}
		}
		left = r.write(p, b, entries, err)
		r.tidy(p)
	}()
	// together says whether a group's processes can all go on; one's own error otherwise.
	together := func(own error) error {
		if !p.Group || r.w.Peers == nil {
			return own
		}
		fine, err := r.w.AllFine(own)
		if err == nil && !fine && own == nil {
			own = errors.New("another process failed")
		}
		return errors.Join(own, err)
	}
	if r.o.Verify && p.Verify != nil {
		if err := together(p.Verify(r.w, b)); err != nil {
			r.out.Wrong = append(r.out.Wrong, fmt.Sprintf("%s: %v", p.Key, err))
			for _, e := range entries {
				e.err = fmt.Errorf("%w: %w", errWrong, err)
			}
			return nil, r.healthy(b)
		}
		r.out.Verified = append(r.out.Verified, p.Key)
		r.tidy(p)
	}
	if p.Setup != nil {
		if err := together(p.Setup(r.w, b, cases)); err != nil {
			for _, e := range entries {
				e.err = fmt.Errorf("set-up: %w", err)
			}
			return nil, r.healthy(b)
		}
	}
	fine := func(own error) (bool, error) { // an error of a case is the case's
		if together(own) == nil {
			return true, nil
		}
		return false, r.healthy(b)
	}
	for i, e := range entries {
		if stop, err := r.stopped(p); err != nil || stop {
			return nil, cmpErr(err, errInterrupted)
		}
		r.doing = e.c.Key()
		r.progress(p.Key, done+part*0.1*float64(i)/float64(len(entries)))
		e.trial, e.err = p.Prepare(r.w, b, e.c)
		ok, err := fine(e.err)
		if err != nil {
			return nil, err
		}
		if !ok && e.err == nil {
			e.err = errors.New("another process failed")
		}
	}
	turns := maxTurns
	if p.Once {
		turns = 1
	}
	late := false // the budget of the whole is used up: what has no reading goes without
	order := rand.New(rand.NewPCG(r.o.Seed, uint64(len(p.Key))<<8|uint64(p.Key[0])))
	for turn := range turns {
		for i, k := range order.Perm(len(entries)) {
			e := entries[k]
			if e.err != nil {
				continue
			}
			if stop, err := r.stopped(p); err != nil || stop {
				return nil, cmpErr(err, errInterrupted)
			}
			if late, err = r.agree(p, r.late(turn)); err != nil {
				return nil, err
			} else if late {
				break
			}
			r.doing = e.c.Key()
			r.progress(p.Key, done+part*(0.1+0.9*r.fraction(begin, allotted, turn, turns, float64(i)/float64(len(entries)))))
			reading, err := e.trial.Once(turn == min(watchTurn, turns-1))
			e.err = err
			ok, err := fine(e.err)
			if err != nil {
				return nil, err
			}
			if !ok {
				if e.err == nil {
					e.err = errors.New("another process failed")
				}
				continue
			}
			e.readings = append(e.readings, reading)
			if p.Duty < 1 && reading.Busy > 0 {
				r.d.Sleep(time.Duration(reading.Busy * (1/p.Duty - 1) * float64(time.Second)))
			}
		}
		r.doing = ""
		used := r.d.Now().Sub(begin)
		enough := used >= allotted && (turn+1 >= minTurns || used >= 2*allotted)
		if enough, err = r.agree(p, enough || late); err != nil {
			return nil, err
		}
		if enough {
			break
		}
	}
	return nil, nil
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

// cmpErr is the first error, or the other.
func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
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
