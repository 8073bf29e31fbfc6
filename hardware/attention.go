package hardware

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// AttentionLaw is the time of a fused attention kernel
//
//	t = setup + FLOPs(pairs + (diagonal + window)·queries) / (rate · peak)
//
// by head width; pairs is what the mask leaves, and a kernel computes whole blocks
// along the diagonal and, of a sliding window, along its far edge. An explicit mask costs
// a factor. One SM computes a block of rows alone, so that few heads take at least as long
// as the block that sees most.
//
// With a table of blocks a pass goes by these: SMs compute blocks of rows one after another,
// each with so many keys more than the mask leaves it,
//
//	t = launch + max(SMs·FLOPs(keys of the busiest SM) / (rate · peak), bytes / (share · bandwidth))
//
// and the busiest has its share of all blocks and part of the longest one, or whole blocks
// where all are as long.
type AttentionLaw struct {
	Widths   []float64                   `yaml:"widths"`
	Heads    []float64                   `yaml:"heads"` // widths that kernels are made for: others run as the next one; none: all
	Forward  AttentionPass               `yaml:"forward"`
	Backward AttentionPass               `yaml:"backward"`
	Flavour  map[string]AttentionFlavour `yaml:"flavour"`  // other implementations: flash, flash1, and kernels that multiply in 8 bits or 32 by dtype
	Dropout  []float64                   `yaml:"dropout"`  // time factors with dropout inside, forward and backward
	Releases []AttentionRelease          `yaml:"releases"` // older libraries, the oldest last
	Sink     units.Seconds               `yaml:"sink"`     // of each query of each head, for the gradients of learned sinks, which are summed one after another
	Points   AttentionPoints             `yaml:"points"`
	Source   string                      `yaml:"source"` // "": that of all laws of its file
	Spread   `yaml:",inline"`
	On       *GPU
}

// AttentionRelease is how fast a library's kernels were before a release: rates, as in
// AttentionPass.
type AttentionRelease struct {
	Before   units.Release `yaml:"before"`
	Forward  []float64     `yaml:"forward"`
	Backward []float64     `yaml:"backward"`
	Source   string        `yaml:"source"`
}

// at is the law of the library of a release, whose kernels no point is of.
func (a *AttentionLaw) at(r units.Release) *AttentionLaw {
	out := *a
	for _, o := range a.Releases {
		if r.Before(o.Before) {
			out.Forward.Rate, out.Backward.Rate, out.Points = o.Forward, o.Backward, nil
		}
	}
	return &out
}

// AttentionFlavour is another implementation: what it leaves out is the law's, of which it
// goes by blocks only where it has its own.
type AttentionFlavour struct {
	Heads    []float64   `yaml:"heads"` // widths that its kernels are made for, as in AttentionLaw; none: all, or the law's where it goes by blocks
	Forward  FlavourPass `yaml:"forward"`
	Backward FlavourPass `yaml:"backward"`
	// Extrapolate is how far its rates may be off as a whole where they are another GPU's over those of its law: a relative standard deviation; 0: they were measured
	Extrapolate float64 `yaml:"extrapolate"`
}

// FlavourPass are the constants of one direction of a flavour, as in AttentionPass. Kept is of a flavour that goes by blocks, whose gradient sums up in fp32 what
// leaves registers: of each head that an SM works on, one value of queries and two of keys.
type FlavourPass struct {
	Rate     []float64 `yaml:"rate"`
	Diagonal []float64 `yaml:"diagonal"`
	Masked   []float64 `yaml:"masked"`
	Block    []float64 `yaml:"block"`
	Longest  []float64 `yaml:"longest"`
	Kept     []float64 `yaml:"kept"` // rates where L2 holds those sums; none: as rate
	Rows     int64     `yaml:"rows"`
	Dropout  Factors   `yaml:"dropout"` // of time, with dropout inside
	Whole    bool      `yaml:"whole"`   // nothing is left out for a sliding window
}

// Factors are one of each head width, or a single one of all, which may be written as a number.
type Factors []float64

// DecodeNode reads a list or a number.
func (f *Factors) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	if n.Kind != yaml.ScalarNode {
		return d.DecodeInto(n, (*[]float64)(f))
	}
	*f = make(Factors, 1)
	return d.DecodeInto(n, &(*f)[0])
}

// check refuses tables that do not go with the widths. The error begins with the key.
func (a *AttentionLaw) check() error {
	ascends := len(a.Widths) > 0 && a.Widths[0] > 0
	for i := 1; i < len(a.Widths); i++ {
		ascends = ascends && a.Widths[i] > a.Widths[i-1]
	}
	if !ascends {
		return fmt.Errorf("widths: %v; give the head widths of the tables, ascending, as in [64, 128, 256]", a.Widths)
	}
	table := func(key string, values []float64, needed, zero bool) error {
		switch {
		case len(values) == 0 && !needed:
		case len(values) != len(a.Widths):
			return fmt.Errorf("%s: %d values for %d widths; give one for each of %v", key, len(values), len(a.Widths), a.Widths)
		case slices.ContainsFunc(values, func(v float64) bool { return !(v > 0 || zero && v == 0) || math.IsInf(v, 0) }):
			return fmt.Errorf("%s: %v; the values must be above 0", key, values)
		}
		return nil
	}
	var errs []error
	for i, p := range []*AttentionPass{&a.Forward, &a.Backward} {
		key := [...]string{"forward", "backward"}[i]
		errs = append(errs, table(key+".rate", p.Rate, true, false), table(key+".diagonal", p.Diagonal, false, true), table(key+".masked", p.Masked, false, false))
		errs = append(errs, table(key+".block", p.Block, false, true), table(key+".longest", p.Longest, len(p.Block) > 0, true))
		if len(p.Block) > 0 && !(p.Rows > 0 && p.Bytes > 0 && p.Bytes <= 1) {
			errs = append(errs, fmt.Errorf("%s.block: needs rows above 0 and bytes from 0 to 1, given %d and %g", key, p.Rows, p.Bytes))
		}
		if w := p.Window; !(w >= 0) || math.IsInf(w, 0) {
			errs = append(errs, fmt.Errorf("%s.window: %g; it must not be below 0", key, w))
		}
		for _, name := range slices.Sorted(maps.Keys(a.Flavour)) {
			f := a.Flavour[name]
			own := [...]FlavourPass{f.Forward, f.Backward}[i]
			dropout := []float64(own.Dropout)
			if len(dropout) == 1 {
				dropout = slices.Repeat(dropout, len(a.Widths))
			}
			key := "flavour." + name + "." + key
			errs = append(errs, table(key+".rate", own.Rate, len(own.Block) > 0, false), table(key+".diagonal", own.Diagonal, false, true), table(key+".masked", own.Masked, false, false),
				table(key+".block", own.Block, false, true), table(key+".longest", own.Longest, len(own.Block) > 0, true), table(key+".kept", own.Kept, false, false), table(key+".dropout", dropout, false, false))
			if len(own.Block) > 0 && own.Rows <= 0 {
				errs = append(errs, fmt.Errorf("%s.block: needs rows above 0, given %d", key, own.Rows))
			}
			if len(own.Kept) > 0 && len(own.Block) == 0 {
				errs = append(errs, fmt.Errorf("%s.kept: needs block, by which the flavour's sums are known; give it, or leave kept out", key))
			}
		}
	}
	for i, o := range a.Releases {
		key := fmt.Sprintf("releases[%d]", i)
		errs = append(errs, table(key+".forward", o.Forward, true, false), table(key+".backward", o.Backward, true, false))
	}
	return cmp.Or(errs...)
}

// Pass returns the constants of one direction of a flavour, "" for the law's own.
func (a *AttentionLaw) Pass(flavour string, backward bool) AttentionPass {
	f := a.Flavour[flavour]
	p, own := a.Forward, f.Forward
	if backward {
		p, own = a.Backward, f.Backward
	}
	if own.Rate != nil {
		p.Rate, p.Block, p.Longest, p.Kept = own.Rate, own.Block, own.Longest, own.Kept
	}
	if own.Diagonal != nil {
		p.Diagonal = own.Diagonal
	}
	if own.Masked != nil {
		p.Masked = own.Masked
	}
	if own.Rows > 0 {
		p.Rows = own.Rows
	}
	p.Whole = own.Whole
	if p.heads = f.Heads; p.heads == nil && len(p.Block) > 0 {
		p.heads = a.Heads
	}
	return p
}

// Dropped is the time factor of dropout inside one direction of a flavour, of heads of a width.
func (a *AttentionLaw) Dropped(flavour string, backward bool, width float64) float64 {
	i, own := 0, a.Flavour[flavour].Forward
	if backward {
		i, own = 1, a.Flavour[flavour].Backward
	}
	switch {
	case own.Dropout != nil:
		return a.At(own.Dropout, width)
	case len(a.Dropout) > i:
		return a.Dropout[i]
	}
	return 1
}

// At is a table by head width at a width: straight between the law's widths, flat
// beyond them and where it has one value; 1 without a table.
func (a *AttentionLaw) At(table []float64, width float64) float64 {
	w := a.Widths
	if len(table) == 0 {
		return 1
	}
	if width <= w[0] || len(table) == 1 {
		return table[0]
	}
	for i := 1; i < len(w); i++ {
		if width <= w[i] {
			f := (width - w[i-1]) / (w[i] - w[i-1])
			return table[i-1]*(1-f) + table[i]*f
		}
	}
	return table[len(table)-1]
}

// AttentionPass are the constants of one direction, by head width.
type AttentionPass struct {
	Rate     []float64     `yaml:"rate"`     // of the dense 16-bit peak
	Diagonal []float64     `yaml:"diagonal"` // keys beyond the causal half that each query computes
	Masked   []float64     `yaml:"masked"`   // time factor of an explicit mask
	Setup    units.Seconds `yaml:"setup"`
	Rows     int64         `yaml:"rows"`   // of a block: queries forward, keys backward; 0: as many blocks as there are SMs
	Window   float64       `yaml:"window"` // keys beyond a sliding window that each query computes, of all widths and flavours
	Whole    bool          `yaml:"whole"`  // nothing is left out for a sliding window

	Launch  units.Seconds `yaml:"launch"`
	Block   []float64     `yaml:"block"`   // keys beyond those it sees that a block of rows takes as long as
	Longest []float64     `yaml:"longest"` // share of the longest block, where they differ
	Bytes   float64       `yaml:"bytes"`   // of the memory's bandwidth

	Kept []float64 `yaml:"-"` // a flavour's

	heads []float64 // widths that the kernels of Pass's flavour are made for; none: all
}

// Padded is the width that a kernel computes heads of a width as.
func (p *AttentionPass) Padded(width float64) float64 {
	for _, w := range p.heads {
		if width <= w {
			return w
		}
	}
	return width
}

// AttentionPoint is one measured problem, causal or with an explicit mask.
type AttentionPoint struct {
	Batch, Sequence, Heads, KVHeads, Width float64
	Masked                                 bool
	Time                                   [2]units.Seconds // forward, backward
}

// AttentionPoints is a table in text form: batch, sequence, heads, key/value heads,
// width, masked (0 or 1), and two times in microseconds.
type AttentionPoints []AttentionPoint

// UnmarshalText reads the table.
func (p *AttentionPoints) UnmarshalText(text []byte) error {
	rows, err := table(string(text), 8)
	for _, r := range rows {
		*p = append(*p, AttentionPoint{r[0], r[1], r[2], r[3], r[4], r[5] != 0,
			[2]units.Seconds{units.Seconds(r[6] * 1e-6), units.Seconds(r[7] * 1e-6)}})
	}
	return err
}
