package report

import (
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/search"
)

// plainTrain has what the user wrote instead of single dtypes, which have no form in a file.
type plainTrain struct {
	strategies.Train
	ReduceDType any `json:"reduce_dtype,omitempty"`
	DTypes      any `json:"dtypes,omitempty"`
}

// plain is the contract for scripts: SI base units with the unit in the key, but for
// model_tflops_per_gpu, which scripts know. A figure that is not known is null.
func (e *Estimate) plain() any { return e.result() }

func (e *Estimate) result() ordered {
	r := e.Result
	exposed := map[string]float64{}
	for g, t := range r.Exposed {
		exposed[g] = float64(t)
	}
	stages := listed(r.Stages, func(s *estimate.Stage) ordered {
		return ordered{{"rank", s.Rank}, {"layers", s.Layers}, {"parameters", s.Params}, {"forward_s", s.Forward}, {"backward_s", s.Backward},
			{"busy_s", s.Busy}, {"bubble_s", s.Bubble}, {"clock_hz", s.Clock}, {"peak_allocated_bytes", s.PeakAllocated}}
	})
	remedies := listed(e.Remedies, func(m *search.Remedy) ordered { // slowdown: tokens/s per GPU before over after, minus one
		return append(ordered{{"set", m.Set}, {"slowdown", m.Slowdown}}, plainCandidate(&m.Candidate)...)
	})
	return slices.Concat(e.head(resultSchema), ordered{{"model", plainModel(r.Job)}, {"choice", unlessNone(plainChoice(e.Choice))}}, stepOf(r), ordered{
		{"forward_s", r.Forward}, {"backward_s", r.Backward}, {"optimizer_s", r.Optimizer},
		{"tokens_per_s_per_gpu", r.TokensPerSecond}, {"model_tflops_per_gpu", modelRate(r) / 1e12}, {"peak_flops_per_s", r.Peak},
		{"mfu", r.MFU}, {"mfu_full_attention", fullMFU(r)}, {"mfu_attention", countedAttention(r)}, {"hfu", r.HFU},
		{"bound", r.Bound}, {"bubble_fraction", r.Bubble}, {"exposed_comm_s", exposed},
		{"overlap_efficiency", r.Overlap}, // null: nothing moves, or under a pipeline it is not known
		{"host_idle_s", r.HostIdle}, {"parts_s", partsOf(r)}, {"memory", memoryOf(&r.Memory)},
		{"clock_hz", r.Clock}, {"power_w", known(r.Power)}, {"energy_j_per_step_per_gpu", known(r.Energy)}, {"stages", stages}, {"stragglers", unlessNone(plainWaiting(r.Waiting))},
		{"remedies", remedies}, {"notes", append([]diag.Note{}, e.notes()...)},
	})
}

// head begins what is said of a prediction: what it is, which program says it, of which job.
func (e *Estimate) head(schema string) ordered {
	return document(schema, ordered{{"job", e.job()}})
}

// stepOf is the time of a step with its range.
func stepOf(r *estimate.Result) ordered {
	return ordered{{"step_time_s", r.StepTime}, {"step_time_low_s", known(r.Low)}, {"step_time_high_s", known(r.High)}}
}

// plainModel counts parameters; trained ones are left out where they are all.
func plainModel(j *strategies.Job) ordered {
	count := j.Model.Params()
	trained := count.Trained
	if trained == count.Total {
		trained = 0
	}
	return ordered{{"name", j.ModelName}, {"parameters", count.Total}, {"active_parameters", count.Active}, {"trained_parameters", unlessNone(trained)}}
}

func plainWaiting(w *estimate.Waiting) ordered {
	if w == nil {
		return nil
	}
	groups := listed(w.Groups, func(g *estimate.Waiters) ordered {
		return ordered{{"gpus", g.GPUs}, {"who", g.Who}, {"where", g.Where}}
	})
	return ordered{{"healthy_step_time_s", w.Healthy}, {"wait_per_healthy_gpu_s", w.Each}, {"throughput_lost", w.Lost}, {"waiting", groups}}
}

func plainChoice(c *search.Choice) ordered {
	if c == nil {
		return nil
	}
	return ordered{{"legal", c.Legal}, {"others", listed(c.Others, plainCandidate)}}
}

// known is nil for a figure that is not known.
func known[T ~float64](v T) *float64 {
	if v == 0 {
		return nil
	}
	return new(float64(v))
}

func plainCandidate(c *search.Candidate) ordered {
	j, r := c.Job, c.Result
	t := &j.Train
	return ordered{{"plan", j.Plan}, {"micro_batch", t.MicroBatch}, {"grad_accumulation", t.GradAccumulation}, {"recompute", t.Recompute}, {"recompute_modules", unlessNone(t.RecomputeModules)}, {"recompute_method", unlessNone(t.RecomputeMethod)},
		{"recompute_num_layers", unlessNone(t.RecomputeNumLayers)}, {"gpus", j.GPUs}, {"step_time_s", r.StepTime}, {"tokens_per_s_per_gpu", r.TokensPerSecond}, {"mfu", r.MFU}, {"device_used_bytes", r.Memory.DeviceUsed}}
}

func partsOf(r *estimate.Result) ordered {
	var out ordered
	for _, p := range parts(r) {
		out = append(out, entry{p.key, p.time})
	}
	return out
}

func memoryOf(m *estimate.Memory) ordered {
	outside, stages := ordered{}, []float64{}
	for _, o := range m.Outside {
		outside = append(outside, entry{o.Name, o.Bytes})
	}
	for _, b := range m.ByStage {
		stages = append(stages, float64(b))
	}
	return ordered{{"peak_allocated_bytes", m.PeakAllocated}, {"peak_reserved_bytes", m.PeakReserved}, {"device_used_bytes", m.DeviceUsed}, {"capacity_bytes", m.Capacity}, {"fits", m.Fits}, {"moment", m.Moment},
		{"by_class", byClass(m.By[:])}, {"outside_bytes", outside}, {"by_stage", stages}, {"host_bytes_per_node", m.Host}}
}

func byClass(by []units.Bytes) ordered {
	out := ordered{}
	for c, b := range by {
		out = append(out, entry{className(c), b})
	}
	return out
}

// job is the job as resolved, in the form of a job/v1 file: fed back, it gives the same result.
// Model, hardware and single dtypes stay as the user wrote them: their resolved form is not a file.
func (e *Estimate) job() ordered {
	j := e.Result.Job
	written := func(resolved any, path ...string) any {
		if v := given(e.Given, path); v != nil {
			return v
		}
		return resolved
	}
	return ordered{{"perfplan", "job/v1"}, {"model", written(j.ModelName, "model")}, {"hardware", written(j.Hardware.Name, "hardware")}, {"gpus", j.GPUs}, {"network", written(omitted{}, "network")},
		{"runtime", j.Runtime}, {"plan", j.Plan}, {"train", plainTrain{j.Train, written(nil, "train", "reduce_dtype"), written(nil, "train", "dtypes")}}, {"assumed", unlessNone(j.Assumed)}}
}

// given is the value at a path of what the user wrote, nil when there is none.
func given(n *yaml.Node, path []string) any {
	for _, k := range path {
		if n == nil {
			return nil
		}
		_, n = yamlx.Key(n, k)
	}
	var v any
	if n == nil || n.Decode(&v) != nil {
		return nil
	}
	return v
}
