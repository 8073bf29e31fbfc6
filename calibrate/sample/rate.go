package sample

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Work is what one execution of a case does: floating-point operations of products
// and attention (causal: half), bytes of everything that moves them; 0 unknown.
func (s Sample) Work() (flops, bytes float64) {
	n := func(key string) float64 {
		v, _ := strconv.ParseFloat(s.Case[key], 64)
		return v
	}
	switch s.Probe {
	case "gemm":
		return 2 * n("m") * n("n") * n("k"), 0
	case "attention":
		f := 4 * n("batch") * n("heads") * n("seq") * n("seq") * n("head_dim")
		if s.Case["causal"] == "true" {
			f /= 2
		}
		if s.Case["direction"] == "bwd" {
			f *= 2.5 // five products where the forward pass has two
		}
		return f, 0
	case "memory", "adam", "copy", "collective", "host-memory":
		return 0, n("bytes")
	}
	return 0, 0
}

// Summary is a probe's samples in short.
type Summary struct {
	Probe     string  `json:"probe"`
	Cases     int     `json:"cases"`
	Failed    int     `json:"failed"`
	Repeats   int     `json:"repeats"`  // of all cases
	Outliers  int     `json:"outliers"` // of all repeats
	Spread    float64 `json:"spread"`   // median over the cases of half the interval over the time
	ClockLow  float64 `json:"clock_low_hz"`
	ClockHigh float64 `json:"clock_high_hz"`
	PowerHigh float64 `json:"power_high_w"`
	Throttled int     `json:"throttled"` // cases
}

// Best is the highest rate among like cases.
type Best struct {
	What    string  `json:"what"`
	Rate    float64 `json:"rate"` // FLOP/s, B/s; s where Unit is s
	Unit    string  `json:"unit"`
	At      string  `json:"at"` // the case
	Seconds float64 `json:"seconds"`
}

// Summarize counts by probe, in the order in which they come.
func (f *File) Summarize() []Summary {
	var out []Summary
	spreads := map[string][]float64{}
	for _, s := range f.Samples {
		i := slices.IndexFunc(out, func(x Summary) bool { return x.Probe == s.Probe })
		if i < 0 {
			i = len(out)
			out = append(out, Summary{Probe: s.Probe})
		}
		x := &out[i]
		x.Cases++
		if s.Error != "" {
			x.Failed++
			continue
		}
		x.Repeats += s.Repeats
		x.Outliers += s.Outliers
		if s.Throttled != "" {
			x.Throttled++
		}
		if s.Seconds > 0 {
			spreads[s.Probe] = append(spreads[s.Probe], (s.High-s.Low)/2/s.Seconds)
		}
		if s.ClockHz > 0 {
			if x.ClockLow == 0 || s.ClockHz < x.ClockLow {
				x.ClockLow = s.ClockHz
			}
			x.ClockHigh = max(x.ClockHigh, s.ClockHz)
		}
		x.PowerHigh = max(x.PowerHigh, s.PowerW)
	}
	for i := range out {
		if v := spreads[out[i].Probe]; len(v) > 0 {
			slices.Sort(v)
			out[i].Spread = v[len(v)/2]
		}
	}
	return out
}

// alike are the labels by which cases are grouped for their best rate.
var alike = map[string][]string{
	"gemm": {"dtype", "layout"}, "attention": {"dtype", "head_dim", "direction"}, "memory": {"kind", "dtype"}, "adam": {"dtype"},
	"copy": {"direction", "pinned"}, "collective": {"op", "gpus"}, "launch": {"kind"}, "host": {"code"}, "host-memory": {"threads"},
}

// BestRates finds the highest rate of each group of like cases, and the shortest time of
// what has no rate.
func (f *File) BestRates() []Best {
	var out []Best
	for _, s := range f.Samples {
		labels, ok := alike[s.Probe]
		if !ok || s.Error != "" || s.Seconds <= 0 {
			continue
		}
		words := []string{s.Probe}
		for _, l := range labels {
			v := s.Case[l]
			switch {
			case l == "gpus":
				v += " GPUs"
			case l == "threads":
				v += " threads"
			case l == "pinned" && v == "true":
				v = "pinned"
			case l == "pinned":
				v = "pageable"
			}
			words = append(words, v)
		}
		b := Best{What: strings.Join(words, " "), Unit: "s", Rate: s.Seconds, At: caseText(s.Case, labels), Seconds: s.Seconds}
		if flops, bytes := s.Work(); flops > 0 {
			b.Rate, b.Unit = flops/s.Seconds, "FLOP/s"
		} else if bytes > 0 {
			b.Rate, b.Unit = bytes/s.Seconds, "B/s"
		}
		i := slices.IndexFunc(out, func(x Best) bool { return x.What == b.What })
		switch {
		case i < 0:
			out = append(out, b)
		case b.Unit == "s" && b.Rate < out[i].Rate || b.Unit != "s" && b.Rate > out[i].Rate:
			out[i] = b
		}
	}
	return out
}

// caseText is a case without some of its labels.
func caseText(c map[string]string, without []string) string {
	var words []string
	for _, k := range slices.SortedFunc(maps.Keys(c), cmp.Compare[string]) {
		if !slices.Contains(without, k) {
			words = append(words, k+" "+c[k])
		}
	}
	return strings.Join(words, ", ")
}
