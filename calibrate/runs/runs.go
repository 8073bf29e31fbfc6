package runs

import (
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
)

// Measured are the figures of a real run; absent ones are zero.
type Measured struct {
	StepTime      units.Seconds `yaml:"step_time" json:"step_time_s,omitempty"`
	ForwardTime   units.Seconds `yaml:"forward_time" json:"forward_s,omitempty"`
	BackwardTime  units.Seconds `yaml:"backward_time" json:"backward_s,omitempty"`
	OptimizerTime units.Seconds `yaml:"optimizer_time" json:"optimizer_s,omitempty"`

	PeakAllocated units.Bytes   `yaml:"peak_allocated" json:"peak_allocated_bytes,omitempty"`
	PeakReserved  units.Bytes   `yaml:"peak_reserved" json:"peak_reserved_bytes,omitempty"`
	DeviceUsed    units.Bytes   `yaml:"device_used" json:"device_used_bytes,omitempty"`
	PerStage      []units.Bytes `yaml:"peak_allocated_per_stage" json:"peak_allocated_per_stage_bytes,omitempty"`

	Energy     units.Joules `yaml:"energy_per_step_per_gpu" json:"energy_j,omitempty"`
	Clock      units.Hertz  `yaml:"sm_clock_after" json:"sm_clock_hz,omitempty"`
	Parameters int64        `yaml:"parameters" json:"parameters,omitempty"`
}

// Run is one measured run with the job that it ran.
type Run struct {
	ID, Group, Name, Source, Framework string
	Assumed                            []string
	Measured                           Measured
	Job                                *strategies.Job
	Err                                error // the job is refused for this reason
}

// runFile is one entry of a runs/v1 file: its own keys, the job's in Job.
type runFile struct {
	ID        string                `yaml:"id"`
	Group     string                `yaml:"group"`
	Name      string                `yaml:"name"`
	Source    string                `yaml:"source"`
	Framework string                `yaml:"framework"`
	Assumed   []string              `yaml:"assumed"`
	Measured  Measured              `yaml:"measured"`
	Job       map[string]*yaml.Node `yaml:",rest"`
}

// Decode reads a runs/v1 document.
func Decode(doc *yamlx.Document) ([]Run, error) {
	var f struct {
		Format string       `yaml:"perfplan"`
		Source string       `yaml:"source"`
		Runs   []*yaml.Node `yaml:"runs"`
	}
	_ = f
	list := doc.At("runs")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, &diag.Error{File: doc.Name, Message: "has no list of runs; a runs/v1 file starts with perfplan: runs/v1 and lists them under runs:"}
	}
	var out []Run
	var errs diag.List
	for _, n := range list.Content {
		var r runFile
		if e := doc.DecodeInto(n, &r); len(e) > 0 {
			errs = append(errs, e...)
			continue
		}
		job := yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if _, ok := r.Job[n.Content[i].Value]; ok {
				job.Content = append(job.Content, n.Content[i], n.Content[i+1])
			}
		}
		run := Run{ID: r.ID, Group: r.Group, Name: r.Name, Source: r.Source, Framework: r.Framework, Assumed: r.Assumed, Measured: r.Measured}
		run.Job, run.Err = strategies.Decode(doc, &job)
		out = append(out, run)
	}
	return out, errs.Err()
}
