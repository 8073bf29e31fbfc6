package runs

import (
	"math"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Quantity is a figure that can be compared, named by its key in runs/v1.
type Quantity struct {
	Name string
	key  string // in JSON, where it is a number in its SI base unit
	of   func(*Figures) float64
	limit
}

// limit is what no measurement is above; beyond it a unit is wrong or a digit too many.
type limit struct {
	most float64 // SI base unit
	text string
}

var (
	ofTime   = limit{86400, "1 d"}
	ofMemory = limit{1e15, "1000 TB"}
)

// Quantities are the compared figures, in the order in which they are printed.
var Quantities = []Quantity{
	{"step_time", "step_time_s", func(f *Figures) float64 { return float64(f.StepTime) }, ofTime},
	{"forward_time", "forward_s", func(f *Figures) float64 { return float64(f.ForwardTime) }, ofTime},
	{"backward_time", "backward_s", func(f *Figures) float64 { return float64(f.BackwardTime) }, ofTime},
	{"optimizer_time", "optimizer_s", func(f *Figures) float64 { return float64(f.OptimizerTime) }, ofTime},
	{"peak_allocated", "peak_allocated_bytes", func(f *Figures) float64 { return float64(f.PeakAllocated) }, ofMemory},
	{"peak_reserved", "peak_reserved_bytes", func(f *Figures) float64 { return float64(f.PeakReserved) }, ofMemory},
	{"device_used", "device_used_bytes", func(f *Figures) float64 { return float64(f.DeviceUsed) }, ofMemory},
	{"energy_per_step_per_gpu", "energy_j_per_step_per_gpu", func(f *Figures) float64 { return float64(f.Energy) }, limit{1e12, "1e12 J"}},
	{"sm_clock_after", "sm_clock_hz", func(f *Figures) float64 { return float64(f.Clock) }, limit{1e10, "10 GHz"}},
	{"parameters", "parameters", func(f *Figures) float64 { return float64(f.Parameters) }, limit{1e15, "1e15"}},
}

// PerStage is the one quantity with a value per pipeline stage. Its error is that
// of the stage predicted worst.
const PerStage = "peak_allocated_per_stage"

// QuantityNames lists what an error can be given for.
func QuantityNames() []string {
	var names []string
	for _, q := range Quantities {
		names = append(names, q.Name)
	}
	return append(names, PerStage)
}

// figuresOf picks the figures of a prediction.
func figuresOf(r *estimate.Result) Figures {
	f := Figures{
		StepTime: r.StepTime, ForwardTime: r.Forward, BackwardTime: r.Backward, OptimizerTime: r.Optimizer,
		PeakAllocated: r.Memory.PeakAllocated, PeakReserved: r.Memory.PeakReserved, DeviceUsed: r.Memory.DeviceUsed,
		Energy: r.Energy, Clock: r.Clock, Parameters: r.Job.Model.Params().Total,
	}
	if len(r.Memory.ByStage) > 1 {
		f.PerStage = r.Memory.ByStage
	}
	return f
}

// relative is (predicted − measured) / measured; not ok when either is not known.
// A predicted time of zero is a prediction; a power model may be absent.
func relative(predicted, measured float64) (e float64, ok bool) {
	if measured <= 0 {
		return 0, false
	}
	e = (predicted - measured) / measured
	return e, !math.IsNaN(e) && !math.IsInf(e, 0)
}

// errorsOf compares every figure that was measured.
func errorsOf(predicted, measured *Figures) (errs map[string]float64, stages []float64) {
	errs = map[string]float64{}
	for _, q := range Quantities {
		p := q.of(predicted)
		if (q.Name == "energy_per_step_per_gpu" || q.Name == "sm_clock_after") && p == 0 {
			continue
		}
		if e, ok := relative(p, q.of(measured)); ok {
			errs[q.Name] = e
		}
	}
	stages = stageErrors(predicted.PerStage, measured.PerStage)
	for _, e := range stages {
		if math.Abs(e) >= math.Abs(errs[PerStage]) {
			errs[PerStage] = e
		}
	}
	return errs, stages
}

// stageErrors compares stage by stage; nil when their numbers differ.
func stageErrors(predicted, measured []units.Bytes) []float64 {
	if len(predicted) != len(measured) {
		return nil
	}
	var out []float64
	for i := range measured {
		e, ok := relative(float64(predicted[i]), float64(measured[i]))
		if !ok {
			return nil
		}
		out = append(out, e)
	}
	return out
}
