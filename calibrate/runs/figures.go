package runs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// Figures are what can be measured of a step. A figure that is not known is zero.
// Times are of one optimizer step, memory of the fullest rank.
type Figures struct {
	StepTime      units.Seconds `yaml:"step_time"`
	ForwardTime   units.Seconds `yaml:"forward_time"`
	BackwardTime  units.Seconds `yaml:"backward_time"`
	OptimizerTime units.Seconds `yaml:"optimizer_time"`

	PeakAllocated units.Bytes   `yaml:"peak_allocated"`
	PeakReserved  units.Bytes   `yaml:"peak_reserved"`
	DeviceUsed    units.Bytes   `yaml:"device_used"`
	PerStage      []units.Bytes `yaml:"peak_allocated_per_stage"`

	Energy     units.Joules `yaml:"energy_per_step_per_gpu"`
	Clock      units.Hertz  `yaml:"sm_clock_after"`
	Parameters int64        `yaml:"parameters"` // of the whole model
}

// DecodeNode reads figures and complains about those that no step has: nothing can be compared
// with them, and zero would pass for not measured.
func (f *Figures) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	type plain Figures
	errs := doc.DecodeInto(n, (*plain)(f))
	unread := errs
	check := func(name string, v *yaml.Node, is float64, l limit) {
		switch {
		case slices.ContainsFunc(unread, func(e *diag.Error) bool { return e.Line == v.Line && e.Col == v.Column }):
		case is <= 0:
			errs = append(errs, doc.Errorf(v, "%s: %q is not a usable measurement; give more than 0, or leave out what was not measured", name, v.Value))
		case is > l.most:
			errs = append(errs, doc.Errorf(v, "%s: %q is not a usable measurement; give at most %s, or leave out what was not measured", name, v.Value, l.text))
		}
	}
	for _, q := range Quantities {
		if _, v := yamlx.Key(n, q.Name); v != nil && v.Tag != "!!null" {
			check(q.Name, v, q.of(f), q.limit)
		}
	}
	_, stages := yamlx.Key(n, PerStage)
	for i, b := range f.PerStage {
		check(PerStage, stages.Content[i], float64(b), ofMemory)
	}
	return errs
}

// incomparable says why none of the figures could be compared.
func (f *Figures) incomparable() string {
	for _, q := range Quantities {
		if q.of(f) > 0 {
			return "nothing that is measured is also predicted; measure the step_time"
		}
	}
	if len(f.PerStage) > 0 {
		return fmt.Sprintf("%s has %d stages, the plan another number; give one value of each", PerStage, len(f.PerStage))
	}
	return "nothing is measured; give what is known under measured:, as in {step_time: 1.5 s}"
}

// entries adds the figures that are known to an object: bare numbers in SI base units, with the
// unit in the key.
func (f *Figures) entries(o *object) {
	for _, q := range Quantities {
		if q.Name == "energy_per_step_per_gpu" && len(f.PerStage) > 0 { // behind the other memory
			stages := make([]float64, len(f.PerStage))
			for i, b := range f.PerStage {
				stages[i] = float64(b)
			}
			o.add(PerStage+"_bytes", stages)
		}
		if v := q.of(f); v != 0 {
			o.add(q.key, v)
		}
	}
}

// MarshalJSON writes what is known.
func (f Figures) MarshalJSON() ([]byte, error) {
	var o object
	f.entries(&o)
	return o.text()
}

// MarshalJSON writes the figures and the range side by side.
func (p Prediction) MarshalJSON() ([]byte, error) {
	var o object
	p.entries(&o)
	if p.Low != 0 {
		o.add("step_time_low_s", float64(p.Low))
	}
	if p.High != 0 {
		o.add("step_time_high_s", float64(p.High))
	}
	return o.text()
}

// object is one in JSON, its keys in the order in which they are added.
type object struct {
	b      bytes.Buffer
	failed error
}

func (o *object) add(key string, v any) {
	text, err := json.Marshal(v)
	o.failed = cmp.Or(o.failed, err)
	if o.b.Len() > 0 {
		o.b.WriteByte(',')
	}
	o.b.WriteString(`"` + key + `":`)
	o.b.Write(text)
}

func (o *object) text() ([]byte, error) { return []byte("{" + o.b.String() + "}"), o.failed }
