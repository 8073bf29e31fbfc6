package pipeline

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// Placement says which stages a rank holds.
type Placement uint8

const (
	Loop Placement = iota // stage s on rank s mod p
	V                     // chunk 0 runs down the ranks, chunk 1 back up, and so on
)

func (p Placement) String() string {
	if p == V {
		return "v"
	}
	return "loop"
}

// Info is one row of the table of schedules.
type Info struct {
	Name      string // as written in job files
	Doc       string // one line for the shell's completion
	Source    string // where the order comes from
	Placement Placement
	// Copies is how many times the parameters are held: 2 for DualPipe, where
	// two copies of the model run in opposite directions, else 1.
	Copies int
	// Splits reports whether the backward is split into BackwardInput and
	// BackwardWeight.
	Splits bool

	// OpenEnds means that the step ends without making ranks wait for each other:
	// each begins the next when its own last action is over.
	OpenEnds bool

	// GathersAhead means that the parameters of a chunk, where ranks share out their update,
	// are gathered as soon as the first micro batch enters the chunk before it.
	GathersAhead bool

	// virtual is the only legal number of virtual stages, 0 for any.
	virtual int
	// rule returns the complaint about p, v and m, all at least 1, or nil.
	rule func(p, v, m int) error
	// order appends the actions of rank l.rank.
	order func(l *list)
	// blocking and torch write what a rank runs under Blocking and Torch.
	// Without blocking the schedule stays Async, without torch it goes through
	// PyTorch's runtime.
	blocking, torch func(p *program)
	// inStep returns, by time step, the place of the action that a rank runs under
	// InStep, or -1. Without it the schedule is Torch.
	inStep func(p *program) []int32
	// period is how many micro batches of a chunk later the order repeats in
	// steady state; nil for schedules without one.
	period func(p, v, m int) int
}

// Alternates reports whether forward and backward passes take turns in its steady state.
func (i *Info) Alternates() bool { return i.period != nil }

var registry = map[string]*Info{}

// register adds a schedule to the table; each schedule's file calls it once.
func register(i Info) {
	i.Copies = cmp.Or(i.Copies, 1)
	registry[i.Name] = &i
}

// Names returns the names of all schedules, sorted.
func Names() []string {
	names := make([]string, 0, len(registry))
	for n := range registry {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Lookup returns the row of the schedule of that name.
func Lookup(name string) (*Info, error) {
	if i, ok := registry[name]; ok {
		return i, nil
	}
	return nil, diag.Errorf("unknown pipeline schedule %q%s", name, diag.DidYouMean(strings.ToLower(name), Names()))
}

// Usual is how many virtual stages a rank has where a plan leaves them open: those of schedules
// that hold a number of them, else one.
func (i *Info) Usual() int64 { return int64(max(i.virtual, 1)) }

// Check returns nil when p ranks, v virtual stages per rank and m micro batches
// are legal for the schedule, else an error that names the nearest legal values.
func (i *Info) Check(p, v, m int) error {
	switch {
	case p < 1:
		return diag.Errorf("%s: %d pipeline ranks; use at least 1", i.Name, p)
	case m < 1:
		return diag.Errorf("%s: %d micro batches per step; use at least 1", i.Name, m)
	case i.virtual == 1 && v != 1:
		return diag.Errorf("%s holds one stage per rank, not %d; use virtual_stages: 1, or a schedule such as interleaved-1f1b", i.Name, v)
	case i.virtual == 2 && v != 2:
		return diag.Errorf("%s holds exactly 2 virtual stages per rank, not %d; use virtual_stages: 2", i.Name, v)
	case v < 1:
		return diag.Errorf("%s: %d virtual stages per rank; use at least 1", i.Name, v)
	}
	// What is kept, and what one rank's list can grow to.
	kept, list := float64(p)*float64(v)*float64(i.compact(p, v, m)), float64(v)*float64(m)
	if max(kept, list) > maxActions {
		return diag.Errorf("%s: %d ranks x %d virtual stages x %d micro batches are more than this program plans; use fewer", i.Name, p, v, m)
	}
	if i.rule == nil {
		return nil
	}
	return i.rule(p, v, m)
}

// maxActions bounds the memory of a Plan, in forwards; node indices are int32.
const maxActions = 1 << 24

// compact returns the smallest number of micro batches whose order, with its
// steady state repeated, is the order of m; m itself when there is none. The
// bound leaves warm-up, cool-down and three periods.
func (i *Info) compact(p, v, m int) int {
	if i.period == nil {
		return m
	}
	q := i.period(p, v, m) * i.Copies
	if q == 0 {
		return m
	}
	least := 5*p*i.Copies + 3*q
	if m <= least {
		return m
	}
	return least + (m-least)%q
}
