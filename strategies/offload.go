package strategies

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
)

// Offload is what lives in the host's memory instead of the GPU's. The host updates the
// parameters whose states it has.
type Offload string

const (
	NoOffload         Offload = "none"
	OffloadOptimizer  Offload = "optimizer"  // the optimizer's states and master weights
	OffloadParameters Offload = "parameters" // these, and the shards of parameters and gradients
)

var offloads = []string{string(NoOffload), string(OffloadOptimizer), string(OffloadParameters)}

// UnmarshalText accepts one of them.
func (o *Offload) UnmarshalText(b []byte) error {
	if !slices.Contains(offloads, string(b)) {
		return fmt.Errorf("%q is not what can be left to the host%s", b, diag.DidYouMean(string(b), offloads))
	}
	*o = Offload(b)
	return nil
}

// Offloads reports whether the host has the optimizer's states.
func (p *Plan) Offloads() bool { return p.Offload != "" && p.Offload != NoOffload }

// OffloadsParameters reports whether it has the parameters, too.
func (p *Plan) OffloadsParameters() bool { return p.Offload == OffloadParameters }

// OnHost is the share of the optimizer that the host has.
func (p *Plan) OnHost() float64 {
	switch {
	case !p.Offloads():
		return 0
	case p.OffloadFraction > 0:
		return p.OffloadFraction
	}
	return 1
}

// OverlapsOffload reports whether copies run beside the host's update.
func (p *Plan) OverlapsOffload() bool { return p.OffloadOverlap != nil && *p.OffloadOverlap }

// OffloadText says what the host has.
func (p *Plan) OffloadText() string {
	s := string(p.Offload) + " on the host"
	if f := p.OnHost(); f < 1 {
		s = fmt.Sprintf("%g %% of the %s", 100*f, s)
	}
	if p.OverlapsOffload() {
		s += " overlapped"
	}
	return s
}

// beside lists the kinds of data parallelism that a recipe's framework has, or beside which
// it leaves something to the host.
func beside(r *recipe.Recipe, o Offload) []string {
	switch o {
	case OffloadOptimizer:
		return r.Offload.Optimizer
	case OffloadParameters:
		return r.Offload.Parameters
	}
	return r.DataParallel
}

// Beside lists the kinds of data parallelism that the job's framework has, or beside which it
// leaves something to the host.
func (j *Job) Beside(o Offload) []string { return beside(j.Recipe, o) }

// Offloading lists what a job's framework can leave to the host.
func (j *Job) Offloading() []Offload {
	var out []Offload
	for _, o := range []Offload{OffloadOptimizer, OffloadParameters} {
		if len(beside(j.Recipe, o)) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// checkOffload returns the first rule that leaving something to the host breaks.
func (p *Plan) checkOffload(s Shape) error {
	if !p.Offloads() {
		if p.OffloadFraction != 0 || p.OffloadOverlap != nil {
			return diag.Errorf("plan.offload_fraction, plan.offload_overlap: say how the host has the optimizer; give plan.offload: optimizer, or leave them out")
		}
		return nil
	}
	kinds := beside(s.Recipe, p.Offload)
	switch {
	case !(p.OffloadFraction >= 0 && p.OffloadFraction <= 1):
		return diag.Errorf("plan.offload_fraction: %g is outside 0 to 1; give the share of the optimizer, as in 0.5, or leave it out", p.OffloadFraction)
	case (p.OffloadFraction > 0 && p.OffloadFraction < 1 || p.OffloadOverlap != nil) && !s.Recipe.Offload.Parted:
		return diag.Errorf("plan.offload_fraction, plan.offload_overlap: recipe %s has neither; leave them out, or use megatron-core", s.Recipe.Name)
	case len(kinds) == 0:
		return diag.Errorf("plan.offload: %s, which recipe %s does not do; %s", p.Offload, s.Recipe.Name, otherOffload(s))
	case !slices.Contains(kinds, string(p.DataParallel)):
		return diag.Errorf("plan.offload: %s beside data_parallel %s, which recipe %s does not do; use %s", p.Offload, p.DataParallel, s.Recipe.Name, diag.Or(kinds))
	case p.DataParallel == ZeRO3 && s.Recipe.Structure.ListGather:
		return diag.Errorf("plan.offload: %s beside %s, but what DeepSpeed of this release does with gradients then is not known; use %s, or a later runtime.release", p.Offload, p.DataParallel, ZeRO1)
	case p.OffloadsParameters() && p.PP > 1:
		return diag.Errorf("plan.offload: %s with pp %d, but what pipeline stages do with parameters of the host is not known; use pp 1, or leave it out", p.Offload, p.PP)
	case p.OffloadsParameters() && p.EP > 1:
		return diag.Errorf("plan.offload: %s with ep %d, but what ranks of experts do with parameters of the host is not known; use ep 1, or leave it out", p.Offload, p.EP)
	case s.Model.LoRA != nil:
		return diag.Errorf("plan.offload: %s with train.lora, but what of frozen weights is left to the host is not known; leave one of them out", p.Offload)
	}
	return nil
}

// checkOffloadLayers returns the first rule that leaving activations to the host breaks.
func (p *Plan) checkOffloadLayers(s Shape) error {
	n := s.Train.OffloadLayers
	if s.Train.OffloadActivations {
		return p.checkOffloadActivations(s)
	}
	if n == 0 {
		return nil
	}
	switch {
	case !s.Recipe.Offload.Layers:
		return diag.Errorf("train.offload_layers: recipe %s does not leave activations to the host; leave it out, or use megatron-core", s.Recipe.Name)
	case n < 0 || n >= s.Model.Layers:
		return diag.Errorf("train.offload_layers: %d of %d layers; give 1 to %d", n, s.Model.Layers, s.Model.Layers-1)
	case p.PP > 1:
		return diag.Errorf("train.offload_layers: %d with pp %d, which Megatron-Core does not do; use pp 1, or leave it out", n, p.PP)
	case s.Train.Recompute != ops.NoRecompute:
		return diag.Errorf("train.offload_layers: %d with recompute %s, which Megatron-Core does not do; use recompute none, or leave it out", n, s.Train.Recompute)
	}
	return nil
}

// checkOffloadActivations returns the first rule that leaving all activations there breaks.
func (p *Plan) checkOffloadActivations(s Shape) error {
	switch {
	case !s.Recipe.Offload.Activations:
		return diag.Errorf("train.offload_activations: recipe %s does not leave activations to the host tensor by tensor; leave it out, or use hf-eager", s.Recipe.Name)
	case s.Train.OffloadLayers > 0:
		return diag.Errorf("train.offload_activations, train.offload_layers: two ways to leave activations to the host; leave one of them out")
	case p.PP > 1:
		return diag.Errorf("train.offload_activations: with pp %d, but what pipeline stages leave to the host is not known; use pp 1, or leave it out", p.PP)
	}
	return nil
}

// AwayActivations reports whether the host has activations between their passes.
func (t *Train) AwayActivations() bool {
	return t.OffloadLayers > 0 || t.OffloadActivations || t.OffloadModules != 0
}

// checkHost checks that the machine is known well enough to leave something to its hosts,
// and that they have the memory.
func (j *Job) checkHost(p *Plan) error {
	n := &j.Hardware.Node
	if j.Hardware.GPU.Unified.Value && (p.Offloads() || j.Train.AwayActivations()) {
		return diag.Errorf("plan.offload, train.offload_layers, train.offload_activations, train.offload_modules: the memory of %s is its host's, so that leaving anything to the host frees none of it; leave them out", j.Hardware.Name)
	}
	if j.Train.AwayActivations() && j.Hardware.GPU.PCIe.Value <= 0 {
		return diag.Errorf("train.offload_layers, train.offload_activations, train.offload_modules: of %s nobody says how fast its GPUs reach the host; give gpu.pcie, or leave them out", j.Hardware.Name)
	}
	if on := j.Train.ClipGradients; on != nil && *on && p.OffloadsParameters() && !j.Recipe.Offload.Reduced {
		return diag.Errorf("train.clip_gradients: with plan.offload: %s, but what clipping them takes the host is not known; leave one of them out", p.Offload)
	}
	if j.Train.OffloadActivations && j.Layers != nil {
		return diag.Errorf("train.offload_activations: with layers that are compiled, but what these leave to the host is not known; use recipe hf-eager, or leave it out")
	}
	if !p.Offloads() {
		return nil
	}
	if n.HostRate.Value <= 0 || n.Cores.Value <= 0 || j.Hardware.GPU.PCIe.Value <= 0 {
		return diag.Errorf("plan.offload: %s, but of %s nobody says how fast its hosts are; give node.host_bandwidth, node.cores and gpu.pcie, or leave it out", p.Offload, j.Hardware.Name)
	}
	if need := j.hostMemory(p); n.HostMemory.Value > 0 && need > n.HostMemory.Value {
		return diag.Errorf("plan.offload: %s takes %s of the hosts' memory, which have %s each; use more GPUs, or leave it out", p.Offload, need, n.HostMemory.Value)
	}
	return nil
}

// HostMemory is what the ranks of a node leave to its host.
func (j *Job) HostMemory() units.Bytes { return j.hostMemory(&j.Plan) }

func (j *Job) hostMemory(p *Plan) units.Bytes {
	if !p.Offloads() {
		return 0
	}
	q := &j.Precision
	each := q.Master.Size() + q.MomentBytes() + q.Gradients.Size()
	if p.OffloadsParameters() {
		each += q.Weights.Size()
	}
	each *= units.Bytes(p.OnHost())
	share := p.TP * p.PP * p.Shard() // experts are cut over ranks of the same copy
	return units.Bytes(float64(j.Model.Params().Total) * float64(each) / float64(share) * float64(min(j.GPUs, j.Hardware.Node.GPUs.Value)))
}

// otherOffload says what else there is.
func otherOffload(s Shape) string {
	switch o := &s.Recipe.Offload; {
	case len(o.Optimizer) > 0:
		return "use optimizer, or leave it out"
	case len(o.Parameters) > 0:
		return "use parameters, or leave it out"
	}
	return "leave it out, or use recipe hf-eager, torchtitan, deepspeed-hf or megatron-core"
}

// HostThreads is how many threads of its CPUs a node has at work for the updates of its
// ranks, and how many of these there are.
func (j *Job) HostThreads() (threads, ranks int64) {
	n := &j.Hardware.Node
	ranks = max(min(j.GPUs, n.GPUs.Value), 1)
	each := j.Runtime.CPUThreads
	if each == 0 && ranks > 1 {
		each = j.Recipe.Offload.Threads
	}
	each = cmp.Or(each, max(n.Cores.Value/n.GPUs.Value, 1))
	return min(each*ranks, max(n.Cores.Value, 1)), ranks
}
