package runs

import (
	"encoding/json"
	"math"
	"slices"
)

// Group summarises the runs of one group.
type Group struct {
	Name        string
	N           int // runs, compared or not
	Unsupported int
	Failed      int
	Stats       map[string]Stats // by quantity; only those that were compared
	InRange     *Ranges          // nil when no range was predicted
}

// Stats describe errors of one quantity, which are fractions of the measured
// value.
type Stats struct {
	N          int     `json:"n"`
	MeanAbs    float64 `json:"mean_abs"`
	MedianAbs  float64 `json:"median_abs"`
	P90Abs     float64 `json:"p90_abs"`
	MaxAbs     float64 `json:"max_abs"`
	MeanSigned float64 `json:"mean_signed"`
}

// Ranges say how N predicted ranges held.
type Ranges struct {
	N      int     `json:"n"`
	Share  float64 `json:"share"`  // of measured steps within
	Slower float64 `json:"slower"` // that took longer than the range says; the others took less
	Unsaid float64 `json:"unsaid"` // outside and off by more than FarOff: wrong by that much without a word of it
}

// FarOff is an error of the step time at which people stop believing the next one.
const FarOff = 0.2

// All is the name of the last group, which holds all runs.
const All = "all"

// summarize groups the rows by name and puts all of them last.
func summarize(rows []Row) []Group {
	byName := map[string][]*Row{}
	var names []string
	all := make([]*Row, len(rows))
	for i := range rows {
		r := &rows[i]
		if byName[r.Group] == nil {
			names = append(names, r.Group)
		}
		byName[r.Group] = append(byName[r.Group], r)
		all[i] = r
	}
	slices.Sort(names)
	var out []Group
	for _, n := range names {
		out = append(out, groupOf(n, byName[n]))
	}
	return append(out, groupOf(All, all))
}

// byAssumed groups the rows by how many facts were assumed.
func byAssumed(rows []Row) []Group {
	names := [...]string{"all facts stated", "one assumed", "more assumed"}
	var by [len(names)][]*Row
	for i := range rows {
		n := min(rows[i].Assumed, len(by)-1)
		by[n] = append(by[n], &rows[i])
	}
	var out []Group
	for i, list := range by {
		if len(list) > 0 {
			out = append(out, groupOf(names[i], list))
		}
	}
	if len(out) == 1 {
		return nil
	}
	return out
}

// Overall weighs groups alike, however many runs each has: by quantity, statistics of
// the groups' mean errors. groups ends with All, which is left out.
func Overall(groups []Group) map[string]Stats {
	out := map[string]Stats{}
	for _, q := range QuantityNames() {
		var means []float64
		var signed float64
		for i := range groups[:len(groups)-1] {
			if s, ok := groups[i].Stats[q]; ok {
				means = append(means, s.MeanAbs)
				signed += s.MeanSigned
			}
		}
		if len(means) > 0 {
			s := StatsOf(means)
			s.MeanSigned = signed / float64(len(means))
			out[q] = s
		}
	}
	return out
}

func groupOf(name string, rows []*Row) Group {
	g := Group{Name: name, N: len(rows), Stats: map[string]Stats{}}
	errs := map[string][]float64{}
	var ranged, in, slower, unsaid float64
	for _, r := range rows {
		switch r.Status {
		case Unsupported:
			g.Unsupported++
		case Failed:
			g.Failed++
		}
		for q, e := range r.Errors {
			errs[q] = append(errs[q], e)
		}
		if r.InRange != nil {
			ranged++
			if !*r.InRange && math.Abs(r.Errors["step_time"]) > FarOff {
				unsaid++
			}
			switch {
			case *r.InRange:
				in++
			case r.Measured.StepTime > r.Predicted.High:
				slower++
			}
		}
	}
	for q, list := range errs {
		g.Stats[q] = StatsOf(list)
	}
	if ranged > 0 {
		g.InRange = &Ranges{N: int(ranged), Share: in / ranged, Slower: slower / ranged, Unsaid: unsaid / ranged}
	}
	return g
}

// StatsOf describes a list of errors, which is not empty.
func StatsOf(errs []float64) Stats {
	abs := make([]float64, len(errs))
	var sum, signed float64
	for i, e := range errs {
		abs[i] = math.Abs(e)
		sum += abs[i]
		signed += e
	}
	slices.Sort(abs)
	n := float64(len(errs))
	return Stats{N: len(errs), MeanAbs: sum / n, MedianAbs: quantile(abs, 0.5), P90Abs: quantile(abs, 0.9), MaxAbs: abs[len(abs)-1], MeanSigned: signed / n}
}

// quantile interpolates between the two nearest of sorted values.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	f := at - float64(i)
	return sorted[i]*(1-f) + sorted[i+1]*f
}

// always is how many quantities JSON has for every group, compared or not: times
// and memory.
const always = 7

// nothing are the Stats of a quantity that was not compared.
var nothing = json.RawMessage(`{"n":0,"mean_abs":null,"median_abs":null,"p90_abs":null,"max_abs":null,"mean_signed":null}`)

// MarshalJSON writes the quantities beside the counts, in their order.
func (g Group) MarshalJSON() ([]byte, error) {
	var o object
	o.add("group", g.Name)
	o.add("n", g.N)
	o.add("unsupported", g.Unsupported)
	o.add("errors", g.Failed)
	for i, q := range QuantityNames() {
		if s, ok := g.Stats[q]; ok {
			o.add(q, s)
		} else if i < always {
			o.add(q, nothing)
		}
	}
	if g.InRange != nil {
		o.add("in_range", g.InRange)
	}
	return o.text()
}
