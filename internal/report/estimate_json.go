package report

import (
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/search"
)

// plainResult is the contract for scripts: SI base units with the unit in the key, but for
// model_tflops_per_gpu, which scripts know.
// A figure that is not known is null.
type plainResult struct {
	Schema   string       `json:"schema"`
	Versions versions     `json:"versions"`
	Job      plainJob     `json:"job"`
	Model    plainModel   `json:"model"`
	Choice   *plainChoice `json:"choice,omitempty"`

	StepTime  float64  `json:"step_time_s"`
	Low       *float64 `json:"step_time_low_s"`
	High      *float64 `json:"step_time_high_s"`
	Forward   float64  `json:"forward_s"`
	Backward  float64  `json:"backward_s"`
	Optimizer float64  `json:"optimizer_s"`

	TokensPerGPU float64 `json:"tokens_per_s_per_gpu"`
	TFLOPS       float64 `json:"model_tflops_per_gpu"`
	Peak         float64 `json:"peak_flops_per_s"`
	MFU          float64 `json:"mfu"`
	MFUFull      float64 `json:"mfu_full_attention"`
	Convention   string  `json:"mfu_attention"`
	HFU          float64 `json:"hfu"`

	Bound    string             `json:"bound"`
	Bubble   float64            `json:"bubble_fraction"`
	Exposed  map[string]float64 `json:"exposed_comm_s"`
	Overlap  *float64           `json:"overlap_efficiency"` // null: nothing moves, or under a pipeline it is not known
	HostIdle float64            `json:"host_idle_s"`
	Parts    ordered            `json:"parts_s"`

	Memory plainMemory  `json:"memory"`
	Clock  float64      `json:"clock_hz"`
	Power  float64      `json:"power_w"`
	Energy float64      `json:"energy_j_per_step_per_gpu"`
	Stages []plainStage `json:"stages"`

	Waiting *plainWaiting `json:"stragglers,omitempty"`

	Remedies []plainRemedy `json:"remedies"`
	Notes    []diag.Note   `json:"notes"`
}

type versions struct {
	Perfplan string `json:"perfplan"`
}

// plainJob is the job as resolved, in the form of a job/v1 file: fed back, it gives
// the same result.
type plainJob struct {
	Format   string             `json:"perfplan"`
	Model    any                `json:"model"`
	Hardware any                `json:"hardware"`
	GPUs     int64              `json:"gpus"`
	Network  any                `json:"network,omitempty"`
	Runtime  strategies.Runtime `json:"runtime"`
	Plan     strategies.Plan    `json:"plan"`
	Train    plainTrain         `json:"train"`
	Assumed  []string           `json:"assumed,omitempty"`
}

type plainTrain struct {
	strategies.Train
	ReduceDType any `json:"reduce_dtype,omitempty"`
	DTypes      any `json:"dtypes,omitempty"`
}

type plainModel struct {
	Name       string `json:"name"`
	Parameters int64  `json:"parameters"`
	Active     int64  `json:"active_parameters"`
	Trained    int64  `json:"trained_parameters,omitempty"` // left out: all
}

type plainMemory struct {
	PeakAllocated float64   `json:"peak_allocated_bytes"`
	PeakReserved  float64   `json:"peak_reserved_bytes"`
	DeviceUsed    float64   `json:"device_used_bytes"`
	Capacity      float64   `json:"capacity_bytes"`
	Fits          bool      `json:"fits"`
	Moment        string    `json:"moment"`
	ByClass       ordered   `json:"by_class"`
	Outside       ordered   `json:"outside_bytes"`
	ByStage       []float64 `json:"by_stage"`
	Host          float64   `json:"host_bytes_per_node"`
}

type plainStage struct {
	Rank          int     `json:"rank"`
	Layers        int64   `json:"layers"`
	Parameters    int64   `json:"parameters"`
	Forward       float64 `json:"forward_s"`
	Backward      float64 `json:"backward_s"`
	Busy          float64 `json:"busy_s"`
	Bubble        float64 `json:"bubble_s"`
	Clock         float64 `json:"clock_hz"`
	PeakAllocated float64 `json:"peak_allocated_bytes"`
}

type plainWaiting struct {
	Healthy float64        `json:"healthy_step_time_s"`
	Each    float64        `json:"wait_per_healthy_gpu_s"`
	Lost    float64        `json:"throughput_lost"`
	Groups  []plainWaiters `json:"waiting"`
}

type plainWaiters struct {
	GPUs  int64  `json:"gpus"`
	Who   string `json:"who"`
	Where string `json:"where"`
}

type plainChoice struct {
	Legal  int              `json:"legal"`
	Others []plainCandidate `json:"others"`
}

type plainCandidate struct {
	Plan         strategies.Plan `json:"plan"`
	MicroBatch   int64           `json:"micro_batch"`
	Accumulation int64           `json:"grad_accumulation"`
	Recompute    string          `json:"recompute"`
	Method       string          `json:"recompute_method,omitempty"`
	Layers       *int64          `json:"recompute_num_layers,omitempty"`
	GPUs         int64           `json:"gpus"`
	StepTime     float64         `json:"step_time_s"`
	TokensPerGPU float64         `json:"tokens_per_s_per_gpu"`
	MFU          float64         `json:"mfu"`
	DeviceUsed   float64         `json:"device_used_bytes"`
}

type plainRemedy struct {
	Set      []string `json:"set"`
	Slowdown float64  `json:"slowdown"` // tokens/s per GPU before over after, minus one
	plainCandidate
}

func (e *Estimate) plain() any { return e.result() }

func (e *Estimate) result() plainResult {
	r := e.Result
	count := r.Job.Model.Params()
	trained := count.Trained
	if trained == count.Total {
		trained = 0
	}
	out := plainResult{
		Schema: resultSchema, Versions: versions{e.Version}, Job: e.job(),
		Model:    plainModel{r.Job.ModelName, count.Total, count.Active, trained},
		StepTime: float64(r.StepTime), Low: known(float64(r.Low)), High: known(float64(r.High)),
		Forward: float64(r.Forward), Backward: float64(r.Backward), Optimizer: float64(r.Optimizer),
		TokensPerGPU: r.TokensPerSecond, TFLOPS: float64(modelRate(r)) / 1e12, Peak: float64(r.Peak),
		MFU: r.MFU, MFUFull: fullMFU(r), Convention: "causal", HFU: r.HFU,
		Bound: r.Bound, Bubble: r.Bubble, Exposed: map[string]float64{}, Overlap: r.Overlap, HostIdle: float64(r.HostIdle),
		Parts: partsOf(r), Memory: memoryOf(&r.Memory),
		Clock: float64(r.Clock), Power: float64(r.Power), Energy: float64(r.Energy),
		Stages: []plainStage{}, Remedies: []plainRemedy{}, Notes: e.notes(),
	}
	for g, t := range r.Exposed {
		out.Exposed[g] = float64(t)
	}
	for _, s := range r.Stages {
		out.Stages = append(out.Stages, plainStage{s.Rank, s.Layers, s.Params, float64(s.Forward), float64(s.Backward), float64(s.Busy), float64(s.Bubble), float64(s.Clock), float64(s.PeakAllocated)})
	}
	if w := r.Waiting; w != nil {
		out.Waiting = &plainWaiting{float64(w.Healthy), float64(w.Each), w.Lost, []plainWaiters{}}
		for _, g := range w.Groups {
			out.Waiting.Groups = append(out.Waiting.Groups, plainWaiters(g))
		}
	}
	if c := e.Choice; c != nil {
		out.Choice = &plainChoice{c.Legal, []plainCandidate{}}
		for i := range c.Others {
			out.Choice.Others = append(out.Choice.Others, plainOf(&c.Others[i]))
		}
	}
	for i := range e.Remedies {
		m := &e.Remedies[i]
		out.Remedies = append(out.Remedies, plainRemedy{m.Set, m.Slowdown, plainOf(&m.Candidate)})
	}
	if out.Notes == nil {
		out.Notes = []diag.Note{}
	}
	return out
}

// known is nil for a figure that is not known.
func known(v float64) *float64 {
	if v == 0 {
		return nil
	}
	return &v
}

func plainOf(c *search.Candidate) plainCandidate {
	j, r := c.Job, c.Result
	return plainCandidate{j.Plan, j.Train.MicroBatch, j.Train.GradAccumulation, string(j.Train.Recompute), string(j.Train.RecomputeMethod), j.Train.RecomputeNumLayers, j.GPUs,
		float64(r.StepTime), r.TokensPerSecond, r.MFU, float64(r.Memory.DeviceUsed)}
}

func partsOf(r *estimate.Result) ordered {
	var out ordered
	for _, p := range parts(r) {
		out = append(out, entry{p.key, float64(p.time)})
	}
	return out
}

func memoryOf(m *estimate.Memory) plainMemory {
	out := plainMemory{PeakAllocated: float64(m.PeakAllocated), PeakReserved: float64(m.PeakReserved), DeviceUsed: float64(m.DeviceUsed),
		Capacity: float64(m.Capacity), Fits: m.Fits, Moment: m.Moment, ByClass: ordered{}, Outside: ordered{}, ByStage: []float64{}, Host: float64(m.Host)}
	for c, b := range m.By {
		out.ByClass = append(out.ByClass, entry{memory.Class(c).String(), float64(b)})
	}
	for _, o := range m.Outside {
		out.Outside = append(out.Outside, entry{o.Name, float64(o.Bytes)})
	}
	for _, b := range m.ByStage {
		out.ByStage = append(out.ByStage, float64(b))
	}
	return out
}

// job is the resolved job. Model, hardware and single dtypes stay as the user wrote
// them: their resolved form is not a file.
func (e *Estimate) job() plainJob {
	j := e.Result.Job
	out := plainJob{Format: "job/v1", Model: j.ModelName, Hardware: j.Hardware.Name, GPUs: j.GPUs, Runtime: j.Runtime, Plan: j.Plan, Assumed: j.Assumed}
	out.Train.Train = j.Train
	for _, k := range []struct {
		to   *any
		path []string
	}{{&out.Model, []string{"model"}}, {&out.Hardware, []string{"hardware"}}, {&out.Network, []string{"network"}},
		{&out.Train.ReduceDType, []string{"train", "reduce_dtype"}}, {&out.Train.DTypes, []string{"train", "dtypes"}}} {
		if v := given(e.Given, k.path); v != nil {
			*k.to = v
		}
	}
	return out
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
