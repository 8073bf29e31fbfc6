package whatif

import (
	"cmp"
	"math"
	"slices"
)

// Side is one of two results that are compared, as their JSON has it.
type Side struct {
	Name   string
	Step   float64 // s
	Tokens float64 // per second and GPU
	Used   float64 // bytes on the device
	Time   []Term  // s; they add up to Step
	Memory []Term  // bytes; they add up to Used
	Job    []Setting
}

// Setting is a key of a resolved job with its value, in the order of the job.
type Setting struct{ Path, Value string }

// Move is how a term or a setting changed.
type Move struct {
	Key      string
	From, To float64
}

// Change is what the term adds to the whole.
func (m Move) Change() float64 { return m.To - m.From }

// Changed is a setting that differs; "" stands for one that a side lacks.
type Changed struct{ Path, From, To string }

// Difference is how one result became another.
type Difference struct {
	A, B     Side
	Settings []Changed
	Time     []Move // largest change first; the changes add up to that of the step
	Memory   []Move // the same of the device memory
}

// Diff compares two results term by term.
func Diff(a, b Side) *Difference {
	d := &Difference{A: a, B: b, Time: moves(a.Time, b.Time), Memory: moves(a.Memory, b.Memory)}
	find := func(list []Setting, path string) string {
		for _, s := range list {
			if s.Path == path {
				return s.Value
			}
		}
		return ""
	}
	for _, s := range a.Job {
		if to := find(b.Job, s.Path); to != s.Value {
			d.Settings = append(d.Settings, Changed{s.Path, s.Value, to})
		}
	}
	for _, s := range b.Job {
		if find(a.Job, s.Path) == "" && s.Value != "" {
			d.Settings = append(d.Settings, Changed{s.Path, "", s.Value})
		}
	}
	return d
}

// moves pairs the terms of two wholes. Those that both lack are left out.
func moves(a, b []Term) []Move {
	var out []Move
	add := func(key string) {
		m := Move{key, value(a, key), value(b, key)}
		if known := slices.ContainsFunc(out, func(o Move) bool { return o.Key == key }); !known && (m.From != 0 || m.To != 0) {
			out = append(out, m)
		}
	}
	for _, t := range slices.Concat(a, b) {
		add(t.Key)
	}
	slices.SortStableFunc(out, func(x, y Move) int { return cmp.Compare(math.Abs(y.Change()), math.Abs(x.Change())) })
	return out
}
