package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
)

// Collective is one operation on one group, at one size or several.
type Collective struct {
	Machine *hardware.Profile
	Op      collective.Op
	Group   collective.Group
	Islands []int64 // ranks of the group on each of its islands
	NCCL    collective.Version
	Calls   []CollectiveCall
}

// CollectiveCall is the cost at one size.
type CollectiveCall struct {
	Bytes units.Bytes
	Cost  collective.Cost
}

func (c *Collective) page() *page {
	p := &page{title: fmt.Sprintf("%s on %d × %s", c.Op, c.Group.Ranks, c.Machine.Name)}
	if len(c.Calls) > 1 {
		p.add(fields{{"Placement", c.placement()}, {"NCCL", c.NCCL.String()}})
		p.section("By size", c.sizeGrid())
		p.remarks(c.notes())
		return p
	}
	x := &c.Calls[0]
	p.title = fmt.Sprintf("%s of %s on %d × %s", c.Op, x.Bytes, c.Group.Ranks, c.Machine.Name)
	low, high := x.between()
	p.add(fields{
		{"Time", fmt.Sprintf("%s, with 80 %% confidence %s to %s", x.Cost.Time, low, high)},
		{"Algorithm", fmt.Sprintf("%s, %s, %s (NCCL %s)", x.Cost.Algorithm, x.Cost.Protocol, plural(x.Cost.CTAs, "channel"), c.NCCL)},
		{"Bandwidth", fmt.Sprintf("%s of the buffer, %s on the bus", x.Cost.AlgBW, x.Cost.BusBW)},
		{"Source", sourceText[x.Cost.Source]},
		{"Placement", c.placement()},
	})
	if len(x.Cost.Alternatives) > 1 {
		p.section("What NCCL chose from, by its own estimate", x.alternativeGrid())
	}
	p.remarks(c.notes())
	return p
}

// notes says what is only assumed of the network that the group crosses, and of NCCL.
func (c *Collective) notes() []diag.Note {
	out := []diag.Note{}
	if text := collective.AssumedNetwork(c.Machine); text != "" && c.Group.Nodes() > 1 {
		out = append(out, diag.Note{Code: "network.assumed", Text: text, Remedy: collective.NetworkRemedy})
	}
	if text := c.NCCL.Assumed(); text != "" {
		out = append(out, diag.Note{Code: "nccl.assumed", Text: text})
	}
	return out
}

// sourceText explains what a cost rests on.
var sourceText = map[collective.Source]string{
	collective.Measured: "measured on this very group",
	collective.Scaled:   "the model of NCCL, corrected by what was measured on other groups of this machine",
	collective.Modelled: "the model of NCCL: its own tables, with shapes fitted to measurements",
}

// between is the 80 % range.
func (x *CollectiveCall) between() (low, high units.Seconds) {
	return hardware.Range(x.Cost.Time, x.Cost.RelErr)
}

// placement says which ranks share an island.
func (c *Collective) placement() string {
	where := "node"
	if c.Machine.Node.NVLinkDomain.Value > c.Machine.Node.GPUs.Value {
		where = "NVLink domain"
	}
	text := plural(len(c.Islands), where)
	if len(c.Islands) == 1 {
		text += " with all ranks"
	} else {
		upTo, most := "", slices.Max(c.Islands)
		if slices.Min(c.Islands) < most {
			upTo = "up to "
		}
		text += fmt.Sprintf(" with %s%s each: %s", upTo, plural(int(most), "rank"), strings.Join(shortened(c.islands()), ", "))
	}
	if c.Group.Stride > 1 {
		text += fmt.Sprintf("; a rank on every %s GPU", ordinal(c.Group.Stride))
	}
	if c.Group.Sharing > 1 {
		text += fmt.Sprintf("; %d groups share the network adapters", c.Group.Sharing)
	}
	return text
}

// islands are the ranks of each island, as "0-7".
func (c *Collective) islands() []string {
	var out []string
	first := int64(0)
	for _, n := range c.Islands {
		text := integer(first)
		if n > 1 {
			text += "-" + integer(first+n-1)
		}
		out = append(out, text)
		first += n
	}
	return out
}

// shortened leaves out the middle of a long list.
func shortened(list []string) []string {
	const most = 6
	if len(list) <= most {
		return list
	}
	return append(append([]string{}, list[:most-2]...), "...", list[len(list)-1])
}

func ordinal(n int64) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return integer(n) + suffix
}

func (x *CollectiveCall) alternativeGrid() *grid {
	g := &grid{columns: []column{{title: "algorithm"}, {title: "protocol"}, {title: "NCCL's estimate", right: true, drop: 1}, {title: "time", right: true}, {title: "against the choice", right: true}, {title: ""}}}
	chosen := x.chosen()
	for i, a := range x.Cost.Alternatives {
		mark := ""
		if i == chosen {
			mark = "chosen"
		}
		g.lines = append(g.lines, line{cells: []string{a.Algorithm, a.Protocol, a.Nominal.String(), a.Time.String(), factor(float64(a.Time / x.Cost.Alternatives[chosen].Time)), mark}, sum: i == chosen})
	}
	return g
}

// chosen is the index of NCCL's choice among the alternatives.
func (x *CollectiveCall) chosen() int {
	return max(slices.IndexFunc(x.Cost.Alternatives, func(a collective.Choice) bool {
		return a.Algorithm == x.Cost.Algorithm && a.Protocol == x.Cost.Protocol
	}), 0)
}

// factor prints a ratio.
func factor(f float64) string { return fmt.Sprintf("%.2f ×", f) }

func (c *Collective) sizeGrid() *grid {
	g := &grid{columns: []column{{title: "size", right: true}, {title: "time", right: true}, {title: "80 % range", right: true, drop: 3}, {title: "algorithm"}, {title: "protocol"}, {title: "channels", right: true, drop: 4},
		{title: "algbw", right: true, drop: 2}, {title: "busbw", right: true}, {title: "source", drop: 1}}}
	for i := range c.Calls {
		x := &c.Calls[i]
		low, high := x.between()
		g.row(x.Bytes.String(), x.Cost.Time.String(), low.String()+" to "+high.String(), x.Cost.Algorithm, x.Cost.Protocol, integer(int64(x.Cost.CTAs)), x.Cost.AlgBW.String(), x.Cost.BusBW.String(), string(x.Cost.Source))
	}
	return g
}

// plain is one object; of several sizes it holds a list of calls.
func (c *Collective) plain() any {
	out := document("collective/v1", ordered{{"hardware", c.Machine.Name}, {"nccl", c.NCCL.String()}, {"op", c.Op.String()}, {"gpus", c.Group.Ranks},
		{"placement", ordered{{"islands", len(c.Islands)}, {"ranks_per_island", slices.Max(c.Islands)}, {"stride", c.Group.Stride}, {"groups_sharing_adapters", c.Group.Sharing}, {"ranks", c.islands()}}}})
	if len(c.Calls) == 1 {
		return append(append(out, c.Calls[0].plain()...), entry{"notes", c.notes()})
	}
	calls := make([]ordered, len(c.Calls))
	for i := range c.Calls {
		calls[i] = c.Calls[i].plain()
	}
	return append(out, entry{"calls", calls}, entry{"notes", c.notes()})
}

func (x *CollectiveCall) plain() ordered {
	low, high := x.between()
	alternatives := []ordered{}
	chosen := x.chosen()
	for i, a := range x.Cost.Alternatives {
		alternatives = append(alternatives, ordered{{"algorithm", a.Algorithm}, {"protocol", a.Protocol}, {"time_s", a.Time}, {"nccl_estimate_s", a.Nominal}, {"chosen", i == chosen}})
	}
	return ordered{{"size_bytes", x.Bytes}, {"time_s", x.Cost.Time}, {"time_low_s", low}, {"time_high_s", high}, {"relative_error", x.Cost.RelErr},
		{"algorithm", x.Cost.Algorithm}, {"protocol", x.Cost.Protocol}, {"channels", x.Cost.CTAs}, {"algbw_bytes_per_s", x.Cost.AlgBW}, {"busbw_bytes_per_s", x.Cost.BusBW},
		{"source", x.Cost.Source}, {"alternatives", alternatives}}
}

func (c *Collective) records() ([]string, [][]string) {
	var rows []ordered
	for i := range c.Calls {
		rows = append(rows, append(ordered{{"hardware", c.Machine.Name}, {"op", c.Op.String()}, {"gpus", c.Group.Ranks}}, c.Calls[i].plain()...))
	}
	return tabled(rows, "hardware", "op", "gpus", "size_bytes", "time_s", "time_low_s", "time_high_s", "algorithm", "protocol", "channels", "algbw_bytes_per_s", "busbw_bytes_per_s", "source")
}
