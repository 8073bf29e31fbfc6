package report

import (
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
)

// WriteMachines prints the catalog of machines.
func WriteMachines(w io.Writer, list []*hardware.Profile, f Format, s Style) error {
	g := &grid{columns: []column{{title: "hardware"}, {title: "memory", right: true}, {title: "bandwidth", right: true, drop: 1}, {title: "16-bit TFLOP/s", right: true}, {title: "per node", right: true, drop: 3},
		{title: "network", right: true, drop: 2}, {title: "what", flex: 60, drop: 4}}}
	rows := []ordered{}
	for _, h := range list {
		peak := max(h.GPU.Peak.BF16.Value, h.GPU.Peak.FP16.Value)
		net := h.Network.NICBandwidth.Value * units.Rate(h.Network.NICs.Value)
		network := "-"
		if net > 0 {
			network = fmt.Sprintf("%d × %s", h.Network.NICs.Value, h.Network.NICBandwidth.Value.Bits())
		}
		g.row(h.Name, h.GPU.Memory.Value.String(), h.GPU.Bandwidth.Value.String(), teraflops(peak), integer(h.Node.GPUs.Value), network, h.Title)
		rows = append(rows, ordered{{"name", h.Name}, {"title", h.Title}, {"gpu", h.GPU.Name.Value}, {"memory_bytes", h.GPU.Memory.Value}, {"bandwidth_bytes_per_s", h.GPU.Bandwidth.Value},
			{"peak_16bit_flops_per_s", peak}, {"gpus_per_node", h.Node.GPUs.Value}, {"network_bytes_per_s_per_node", net}})
	}
	return writeList(w, f, s, g, rows, "name", "title", "gpu", "memory_bytes", "bandwidth_bytes_per_s", "peak_16bit_flops_per_s", "gpus_per_node", "network_bytes_per_s_per_node")
}

// WriteMachine prints one machine: every datum with its source, and which laws
// were measured on it.
func WriteMachine(w io.Writer, h *hardware.Profile, f Format, s Style) error {
	data := dataOf(h)
	return write(w, f, s, func() *page { return machinePage(h, data) }, func() any { return plainMachine(h, data) },
		func() ([]string, [][]string) {
			var rows [][]string
			for _, d := range data {
				rows = append(rows, []string{d.path, fmt.Sprint(d.value), d.text, d.kind, d.source})
			}
			return []string{"datum", "value", "text", "kind", "source"}, rows
		})
}

// datum is one fact of a machine.
type datum struct {
	path, text, source, kind string
	value                    any // in SI base units where it has a unit
}

// dataOf collects the facts that are set, by the YAML path of each.
func dataOf(h *hardware.Profile) []datum {
	var out []datum
	for _, section := range []struct {
		name string
		of   any
	}{{"gpu", h.GPU}, {"node", h.Node}, {"network", h.Network}, {"software", h.Software}, {"price", h.Price}} {
		out = collect(section.name, reflect.ValueOf(section.of), out)
	}
	return out
}

// collect walks a struct of data. hardware.Datum is generic, so its fields are
// found by name.
func collect(path string, v reflect.Value, out []datum) []datum {
	for i := range v.NumField() {
		key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		f := v.Field(i)
		if key == "" || f.Kind() != reflect.Struct {
			continue
		}
		name := path + "." + key
		set, isDatum := f.Interface().(interface{ IsSet() bool })
		switch {
		case !isDatum:
			out = collect(name, f, out)
		case set.IsSet():
			value := f.FieldByName("Value")
			out = append(out, datum{name, fmt.Sprint(value.Interface()), f.FieldByName("Source").String(), f.FieldByName("Kind").String(), plainValue(value)})
		}
	}
	return out
}

// plainValue is a quantity as a number in its SI base unit.
func plainValue(v reflect.Value) any {
	if _, quantity := v.Interface().(encoding.TextMarshaler); quantity && v.Kind() == reflect.Float64 {
		return json.Number(number(v.Float()))
	}
	return v.Interface()
}

func dataGrid(data []datum) *grid {
	g := &grid{columns: []column{{title: "datum"}, {title: "value", right: true}, {title: "kind"}, {title: "source", flex: 100, drop: 1}}}
	for _, d := range data {
		g.row(d.path, d.text, d.kind, d.source)
	}
	return g
}

func machinePage(h *hardware.Profile, data []datum) *page {
	p := &page{title: h.Name + ": " + h.Title}
	if h.Inherits != "" {
		p.add(fields{{"Inherits", h.Inherits}})
	}
	p.section("Facts", dataGrid(data), sourceList(data))
	p.section("Laws", lawFields(h))
	return p
}

// sourceList prints each source once, where the table may have no room for it.
func sourceList(data []datum) piece {
	var order []string
	paths := map[string][]string{}
	for _, d := range data {
		if d.source == "" {
			continue
		}
		if paths[d.source] == nil {
			order = append(order, d.source)
		}
		paths[d.source] = append(paths[d.source], d.path)
	}
	var out bullets
	for _, s := range order {
		out = append(out, [2]string{s, strings.Join(paths[s], ", ")})
	}
	return sources{out}
}

// sources are bullets for text alone: Markdown and CSV tables hold all columns.
type sources struct{ bullets }

func (sources) markdown(*strings.Builder) {}

func (s sources) text(p *printer) {
	if len(s.bullets) == 0 {
		return
	}
	p.WriteString("\n" + p.bold("Sources") + "\n")
	s.bullets.text(p)
}

// lawNames are the sections of the measured laws.
var lawNames = []string{"gemm", "attention", "kernels", "launch", "overlap", "power", "memory", "collectives"}

func lawFields(h *hardware.Profile) fields {
	var own, from []string
	for _, n := range lawNames {
		if h.Own[n] {
			own = append(own, n)
		} else {
			from = append(from, n)
		}
	}
	f := fields{}
	if len(own) > 0 {
		f = append(f, [2]string{"Measured here", strings.Join(own, ", ")})
	}
	if len(from) > 0 {
		text := strings.Join(from, ", ") + " (architecture " + h.GPU.Architecture.Value
		if g := h.Laws.GEMM; g != nil && g.On != nil && slices.Contains(from, "gemm") {
			text += ", measured on " + g.On.Name.Value
		}
		f = append(f, [2]string{"Scaled", text + ")"})
	}
	if l := h.Laws.Launch; l != nil && (l.Host != 1 || l.HostSpread > 0) {
		text := fmt.Sprintf("%.3g times the speed of the host of the recipes' costs", l.Host)
		if l.HostSpread > 0 {
			text += fmt.Sprintf(", measured to %.0f %%", 100*l.HostSpread)
		}
		f = append(f, [2]string{"Host", text})
	}
	if h.Laws.Source != "" {
		f = append(f, [2]string{"Source", h.Laws.Source})
	}
	if h.Laws.Conditions != "" {
		f = append(f, [2]string{"Conditions", h.Laws.Conditions})
	}
	return f
}

func plainMachine(h *hardware.Profile, data []datum) any {
	facts := ordered{}
	for _, d := range data {
		facts = append(facts, entry{d.path, ordered{{"value", d.value}, {"text", d.text}, {"kind", d.kind}, {"source", d.source}}})
	}
	own := []string{}
	for _, n := range lawNames {
		if h.Own[n] {
			own = append(own, n)
		}
	}
	return document("hardware-report/v1", ordered{{"name", h.Name}, {"title", h.Title}, {"inherits", h.Inherits}, {"facts", facts},
		{"laws", ordered{{"own", own}, {"source", h.Laws.Source}, {"conditions", h.Laws.Conditions}}}})
}
