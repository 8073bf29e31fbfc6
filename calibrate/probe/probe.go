package probe

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/calibrate/cuda"
	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/internal/diag"
)

// Effort says how many cases a calibration takes.
type Effort int

const (
	Quick Effort = iota // under a minute in all
	Full
)

// Probe is one microbenchmark.
type Probe struct {
	Key, Doc string
	// Share of the measuring time, relative to the other probes.
	Share float64
	// Duty is the part of the time for which the GPU may work, so that its average
	// power stays below the limit and its clock at the highest.
	Duty float64
	// Once is set where a case is measured one time, over a while.
	Once bool
	// Again is set where what is measured changes from minute to minute: it is read once
	// more after each other probe.
	Again bool
	// Group probes use all GPUs together.
	Group bool
	// Applicable says why the probe cannot run; nil when it can.
	Applicable func(w *World) error
	// Cases in a fixed order.
	Cases func(w *World, e Effort) []Case
	// Setup allocates what the cases share; Bench.Reset frees it.
	Setup func(w *World, b *Bench, cases []Case) error
	// Prepare makes a case ready. b is the GPU to use; nil in a group probe.
	Prepare func(w *World, b *Bench, c Case) (Trial, error)
	// Verify checks the probe's results once; nil when there is nothing to check.
	Verify func(w *World, b *Bench) error
}

// Case is one thing to measure: its labels go into the sample.
type Case map[string]string

// Key spells a case, the same for equal cases.
func (c Case) Key() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c)) {
		b.WriteString(k + "=" + c[k] + " ")
	}
	return strings.TrimSpace(b.String())
}

// Trial is a prepared case.
type Trial struct {
	// Once measures one time. When watch is set it also reads clocks and power.
	Once  func(watch bool) (Reading, error)
	Close func() error
	// All says that the trial is of all GPUs.
	All bool
}

// Reading is what a Once found.
type Reading struct {
	Seconds   []float64 // times of one execution
	Busy      float64   // s that the device worked
	Telemetry cuda.Telemetry
}

// Registry lists the probes in the order in which they run.
func Registry() []Probe {
	return []Probe{launch, host, hostMemory, copies, memory, adam, gemm, attention, power, collective, overlap}
}

// Keys lists the probes' names.
func Keys() []string {
	var out []string
	for _, p := range Registry() {
		out = append(out, p.Key)
	}
	return out
}

// Select returns the probes of the given names, all for none, in the order in which
// they run.
func Select(names []string) ([]Probe, error) {
	for _, n := range names {
		if !slices.Contains(Keys(), n) {
			return nil, diag.Errorf("there is no probe %q%s", n, diag.DidYouMean(n, Keys()))
		}
	}
	return slices.DeleteFunc(Registry(), func(p Probe) bool { return len(names) > 0 && !slices.Contains(names, p.Key) }), nil
}

// Sequence is the order in which probes run, with those that are read again. Each such
// reading is a case of its own, by what it comes after, and takes a part of the time of the first.
func Sequence(probes []Probe) []Probe {
	var out []Probe
	for i, p := range probes {
		out = append(out, p)
		for _, a := range probes[:i] {
			if a.Again && !p.Again {
				out = append(out, a.again(p))
			}
		}
	}
	return out
}

// again is the reading of a probe after another one.
func (p Probe) again(after Probe) Probe {
	cases := p.Cases
	p.Share, p.Verify = p.Share*againShare, nil
	p.Cases = func(w *World, e Effort) []Case {
		all := cases(w, e)
		for _, c := range all {
			c["after"] = after.Key
		}
		return all
	}
	return p
}

// againShare leaves a reading of the host 3 to 15 turns of 30 ms in a quick calibration of two H200.
const againShare = 0.25

// Sample makes the sample of a case from its readings.
func Sample(p Probe, c Case, gpu int, readings []Reading) sample.Sample {
	s := sample.Sample{Probe: p.Key, Case: c, GPU: gpu, Mode: sample.Burst}
	if c["mode"] == sample.Sustained {
		s.Mode = sample.Sustained
	}
	var all []float64
	for _, r := range readings {
		all = append(all, r.Seconds...)
		if t := r.Telemetry; t != (cuda.Telemetry{}) {
			s.ClockHz, s.PowerW, s.TempC, s.Throttled = t.ClockHz, t.PowerW, t.TempC, t.Throttled
		}
	}
	slices.SortFunc(all, cmp.Compare[float64])
	s.Repeats = len(all)
	s.Seconds, s.Low, s.High = Median(all)
	s.Outliers = Outliers(all)
	return s
}
