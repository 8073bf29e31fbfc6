package fit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/internal/diag"
)

// point is one case of a probe: the median of its samples over repetitions and
// GPUs.
type point struct {
	probe   string
	of      map[string]string
	name    string // the case in one line
	mode    string
	all     bool    // on all GPUs at once
	seconds float64 // of one execution, with the gap behind it
	spread  float64 // half width of the 95 % interval of the median, of the time
	clock   float64 // Hz; 0 unknown
	power   float64
	slow    bool // some sample was throttled
}

// check refuses samples that no clock shows, by their line below the header.
func check(f *sample.File, name string) error {
	var list diag.List
	for i := range f.Samples {
		s := &f.Samples[i]
		fail := func(format string, args ...any) {
			list = append(list, &diag.Error{File: name, Line: i + 2, Col: 1, Message: fmt.Sprintf(format, args...)})
		}
		if s.Error != "" {
			continue
		}
		if s.Probe == "" {
			fail("probe is missing; a sample names the probe that made it")
		}
		for _, v := range []struct {
			key   string
			value float64
		}{{"seconds", s.Seconds}, {"low_s", s.Low}, {"high_s", s.High}, {"clock_hz", s.ClockHz}, {"power_w", s.PowerW}} {
			switch {
			case math.IsNaN(v.value) || math.IsInf(v.value, 0):
				fail("%s: %v; a sample of probe %s needs a finite number", v.key, v.value, s.Probe)
			case v.value < 0:
				fail("%s: %v is negative; remove the sample of probe %s or measure it again", v.key, v.value, s.Probe)
			case v.key == "seconds" && v.value == 0 && s.Probe != "power" && s.Probe != "launch": // at rest nothing runs; a difference may vanish
				fail("seconds: 0; a sample of probe %s needs the time it took, or an error", s.Probe)
			}
		}
	}
	return list.Err()
}

// caseName is a case in one line, its keys in order.
func caseName(c map[string]string) string {
	keys := slices.Sorted(maps.Keys(c))
	for i, k := range keys {
		keys[i] = k + "=" + c[k]
	}
	return strings.Join(keys, " ")
}

// group gathers the samples of each case, by probe, in the order of their names.
func (x *fitter) group(samples []sample.Sample) map[string][]point {
	type key struct {
		probe, name, mode string
		all               bool
	}
	sets := map[key][]*sample.Sample{}
	var order []key
	for i := range samples {
		s := &samples[i]
		k := key{s.Probe, caseName(s.Case), s.Mode, s.GPU < 0}
		if s.Error != "" {
			x.probe(s.Probe).Failed++
			continue
		}
		if sets[k] == nil {
			order = append(order, k)
		}
		sets[k] = append(sets[k], s)
	}
	slices.SortFunc(order, func(a, b key) int {
		return strings.Compare(a.probe+"\x00"+a.name+"\x00"+a.mode+strconv.FormatBool(a.all), b.probe+"\x00"+b.name+"\x00"+b.mode+strconv.FormatBool(b.all))
	})
	out := map[string][]point{}
	for _, k := range order {
		set := sets[k]
		p := point{probe: k.probe, of: set[0].Case, name: k.name, mode: k.mode, all: k.all}
		take := func(of func(*sample.Sample) float64) float64 {
			var v []float64
			for _, s := range set {
				if a := of(s); a > 0 {
					v = append(v, a)
				}
			}
			return median(v)
		}
		p.seconds = take(func(s *sample.Sample) float64 { return s.Seconds })
		p.clock = take(func(s *sample.Sample) float64 { return s.ClockHz })
		p.power = take(func(s *sample.Sample) float64 { return s.PowerW })
		p.spread = take(func(s *sample.Sample) float64 { return (s.High - s.Low) / 2 / s.Seconds })
		for _, s := range set {
			p.slow = p.slow || s.Throttled != ""
		}
		out[k.probe] = append(out[k.probe], p)
	}
	return out
}

// number reads a whole or decimal number of a case.
func (p *point) number(key string) (float64, bool) {
	v, err := strconv.ParseFloat(p.of[key], 64)
	return v, err == nil && v > 0 && v < 1e15
}

// whole reads several whole numbers of a case.
func (p *point) whole(keys ...string) ([]int64, bool) {
	out := make([]int64, len(keys))
	for i, k := range keys {
		v, ok := p.number(k)
		if !ok || v != math.Trunc(v) || v > 1<<40 {
			return nil, false
		}
		out[i] = int64(v)
	}
	return out, true
}

func (p *point) flag(key string) bool {
	v, _ := strconv.ParseBool(p.of[key])
	return v
}

// alone returns the cases of a probe measured one GPU at a time in bursts, which laws
// at full clock are fitted to.
func (x *fitter) alone(probe string) []point {
	var out []point
	for _, p := range x.cases[probe] {
		if p.mode != sample.Sustained && !p.all {
			out = append(out, p)
		}
	}
	return out
}

// drop remarks cases of a probe that cannot be used.
func (x *fitter) drop(probe string, p *point, why string) {
	r := x.probe(probe)
	if r.Dropped++; r.Dropped == 1 {
		x.note("fit.dropped", "", "probe %s: %s: left out (%s), as others may be", probe, p.name, why)
	}
}
