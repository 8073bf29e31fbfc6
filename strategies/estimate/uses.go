package estimate

import (
	"strings"

	"github.com/perfplan/perfplan/model/tape"
)

// use is a module that runs.
type use struct {
	sec      *section
	stretch  int   // of the model
	from, to int   // launches
	weights  []int // parameters that are gathered for it
	name     string
	matched  bool // the first of weights is a linear layer's
	grads    bool // it makes the gradients of its weights
	first    bool // of its unit in this pass
}

// uses are modules in the order they run.
type uses []use

// add appends those of a section of stretch n: each linear layer with what runs until the next,
// and in the first of a pass what else the stretch has.
func (l uses) add(sec *section, stretch int, u *unit, at map[int]int) uses {
	first := len(l)
	half := false // of the two GEMMs of a linear layer's backward, one has run
	for i := range sec.ops {
		o := &sec.ops[i]
		n := int64(0)
		switch {
		case o.Class != tape.GEMM || !strings.HasPrefix(o.Prim, "linear"):
			continue
		case o.Phase != tape.Backward:
			n = o.N * o.K
		case half:
			half = false
			continue
		default:
			n, half = o.N*o.K, true
			if o.Layout == tape.LayoutWgrad {
				n = o.M * o.N
			}
		}
		w := match(l[first:], u, at, n, o.Phase)
		l = append(l, use{sec: sec, stretch: stretch, from: i, weights: w, matched: len(w) > 0, name: u.Name, grads: o.Phase == tape.Backward})
	}
	if len(l) == first { // no linear layer
		l = append(l, use{sec: sec, stretch: stretch, name: u.Name, grads: sec == &u.backward})
	}
	all := l[first:]
	all[0].from = 0
	for i := range all {
		all[i].to = len(sec.launches)
		if i+1 < len(all) {
			all[i].to = all[i+1].from
		}
	}
	rest(all, u, at)
	return l
}

// match finds the parameter with n elements that no module of the same pass has yet.
func match(before []use, u *unit, at map[int]int, n int64, phase tape.Phase) []int {
	taken := func(w int) bool {
		for _, b := range before {
			if b.grads == (phase == tape.Backward) && len(b.weights) > 0 && b.weights[0] == w {
				return true
			}
		}
		return false
	}
	for k := range u.Params {
		if phase == tape.Backward {
			k = len(u.Params) - 1 - k
		}
		if w, ok := at[k]; ok && u.Params[k].Local == n && !taken(w) {
			return []int{w}
		}
	}
	return nil
}

// rest gives the weights of a unit that no linear layer uses to the first module of
// each pass, which it marks.
func rest(all []use, u *unit, at map[int]int) {
	for i := range all {
		if i > 0 && all[i].grads == all[i-1].grads {
			continue
		}
		all[i].first = true
		for k := range u.Params {
			w, ok := at[k]
			for _, m := range all {
				for _, x := range m.weights {
					ok = ok && (x != w || m.grads != all[i].grads)
				}
			}
			if ok {
				all[i].weights = append(all[i].weights, w)
			}
		}
	}
}
