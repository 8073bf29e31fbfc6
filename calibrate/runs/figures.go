package runs

import (
	"encoding/json"
	"fmt"

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

// zeros complains about figures that are written down as zero or less: nothing can be
// compared with them, and they would pass for not measured. n is what f was read from.
func (f *Figures) zeros(doc *yamlx.Document, n *yaml.Node) (errs diag.List) {
	complain := func(name string, v *yaml.Node) {
		errs = append(errs, doc.Errorf(v, "%s: %q is not a usable measurement; give more than 0, or leave out what was not measured", name, v.Value))
	}
	for _, q := range Quantities {
		if _, v := yamlx.Key(n, q.Name); v != nil && v.Tag != "!!null" && q.of(f) <= 0 {
			complain(q.Name, v)
		}
	}
	_, stages := yamlx.Key(n, PerStage)
	for i, b := range f.PerStage {
		if b <= 0 {
			complain(PerStage, stages.Content[i])
		}
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

// plainFigures are figures as bare numbers in SI base units, with the unit in the
// key: the form of JSON.
type plainFigures struct {
	StepTime      float64   `json:"step_time_s,omitempty"`
	ForwardTime   float64   `json:"forward_s,omitempty"`
	BackwardTime  float64   `json:"backward_s,omitempty"`
	OptimizerTime float64   `json:"optimizer_s,omitempty"`
	PeakAllocated float64   `json:"peak_allocated_bytes,omitempty"`
	PeakReserved  float64   `json:"peak_reserved_bytes,omitempty"`
	DeviceUsed    float64   `json:"device_used_bytes,omitempty"`
	PerStage      []float64 `json:"peak_allocated_per_stage_bytes,omitempty"`
	Energy        float64   `json:"energy_j_per_step_per_gpu,omitempty"`
	Clock         float64   `json:"sm_clock_hz,omitempty"`
	Parameters    int64     `json:"parameters,omitempty"`
}

func (f *Figures) plain() plainFigures {
	p := plainFigures{
		StepTime: float64(f.StepTime), ForwardTime: float64(f.ForwardTime), BackwardTime: float64(f.BackwardTime), OptimizerTime: float64(f.OptimizerTime),
		PeakAllocated: float64(f.PeakAllocated), PeakReserved: float64(f.PeakReserved), DeviceUsed: float64(f.DeviceUsed),
		Energy: float64(f.Energy), Clock: float64(f.Clock), Parameters: f.Parameters,
	}
	for _, b := range f.PerStage {
		p.PerStage = append(p.PerStage, float64(b))
	}
	return p
}

// MarshalJSON writes bare numbers with the unit in the key.
func (f Figures) MarshalJSON() ([]byte, error) { return json.Marshal(f.plain()) }

// MarshalJSON writes the figures and the range side by side.
func (p Prediction) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		plainFigures
		Low  float64 `json:"step_time_low_s,omitempty"`
		High float64 `json:"step_time_high_s,omitempty"`
	}{p.plain(), float64(p.Low), float64(p.High)})
}
