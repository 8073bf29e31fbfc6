package strategies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/whole"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// DataParallel is how replicas share parameters, gradients and optimizer states.
type DataParallel string

const (
	DDP   DataParallel = "ddp"   // nothing sharded; gradients all-reduced in buckets
	ZeRO1 DataParallel = "zero1" // optimizer states sharded
	ZeRO2 DataParallel = "zero2" // and gradients
	ZeRO3 DataParallel = "zero3" // and parameters, gathered layer by layer
	FSDP1 DataParallel = "fsdp1" // PyTorch FullyShardedDataParallel
	FSDP2 DataParallel = "fsdp2" // PyTorch fully_shard
)

var dataParallels = []string{"ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"}

// UnmarshalText accepts one of the kinds.
func (d *DataParallel) UnmarshalText(b []byte) error {
	if slices.Contains(dataParallels, string(b)) {
		*d = DataParallel(b)
		return nil
	}
	return fmt.Errorf("%q is not a kind of data parallelism%s", b, diag.DidYouMean(strings.ReplaceAll(string(b), "-", ""), dataParallels))
}

// ShardsParameters reports whether parameters are gathered layer by layer.
func (d DataParallel) ShardsParameters() bool { return d == ZeRO3 || d == FSDP1 || d == FSDP2 }

// FSDP reports whether it is one of PyTorch's.
func (d DataParallel) FSDP() bool { return d == FSDP1 || d == FSDP2 }

// Plan is one way to split a job over its GPUs. Zero values mean the default.
type Plan struct {
	TP               int64       `yaml:"tp" json:"tp"`
	SequenceParallel *bool       `yaml:"sequence_parallel" json:"sequence_parallel,omitempty"`
	CP               int64       `yaml:"cp" json:"cp"`
	CPCommType       CPCommType  `yaml:"cp_comm_type" json:"cp_comm_type,omitempty"`
	EP               int64       `yaml:"ep" json:"ep"`
	ExpertTP         int64       `yaml:"expert_tp" json:"expert_tp,omitempty"`
	PP               int64       `yaml:"pp" json:"pp"`
	VirtualStages    int64       `yaml:"virtual_stages" json:"virtual_stages"`
	Schedule         string      `yaml:"schedule" json:"schedule,omitempty"`
	StageLayers      StageLayers `yaml:"stage_layers" json:"stage_layers,omitempty"`
	// micro batches after which the pipeline is empty again (torchtitan's and AutoModel's local
	// batches); 0: those of a step
	DrainEvery   int64        `yaml:"drain_every" json:"drain_every,omitempty"`
	DP           int64        `yaml:"dp" json:"dp"`
	DataParallel DataParallel `yaml:"data_parallel" json:"data_parallel"`

	ShardDegree int64 `yaml:"shard_degree" json:"shard_degree,omitempty"` // HSDP, copies of ZeRO-1 states: ranks that share one copy
	// of which each has a part of the optimizer's states alone (Megatron-FSDP's
	// outer_dp_sharding_strategy optim)
	ShardOptimizer      *bool       `yaml:"shard_optimizer" json:"shard_optimizer,omitempty"`
	Bucket              units.Bytes `yaml:"bucket" json:"bucket,omitempty"`
	ReshardAfterForward *bool       `yaml:"reshard_after_forward" json:"reshard_after_forward,omitempty"`
	// PyTorch's DDP: gradients are views of the buckets (gradient_as_bucket_view); left out: they are
	BucketView *bool `yaml:"bucket_view" json:"bucket_view,omitempty"`
	// FSDP1: each matrix of adapters is a unit of its own (PEFT's fsdp_auto_wrap_policy, which a Trainer
	// takes); left out: it is
	AdapterUnits *bool `yaml:"adapter_units" json:"adapter_units,omitempty"`
	// PyTorch's FSDP: what is gathered and reduced as a whole; left out: layers
	Units Units `yaml:"units" json:"units,omitempty"`
	// modules of at least so many parameters are units: alone (units: size), or beside layers their
	// matrices
	UnitParams          UnitParams `yaml:"unit_params" json:"unit_params,omitempty"`
	WrapOneRank         *bool      `yaml:"wrap_one_rank" json:"wrap_one_rank,omitempty"` // FSDP2 wraps units where there is one rank, too; left out: it does not
	SyncEveryMicroBatch *bool      `yaml:"sync_every_micro_batch" json:"sync_every_micro_batch,omitempty"`
	Offload             Offload    `yaml:"offload" json:"offload,omitempty"` // to the host's memory; left out: nothing
	// of the optimizer, the rest of which the GPU updates meanwhile (Megatron's
	// optimizer_offload_fraction); 0: all
	OffloadFraction float64 `yaml:"offload_fraction" json:"offload_fraction,omitempty"`
	// tensors go to the host and come back while it updates others (Megatron's
	// overlap_cpu_optimizer_d2h_h2d); left out: they do not
	OffloadOverlap *bool `yaml:"offload_overlap" json:"offload_overlap,omitempty"`

	Order Order `yaml:"order" json:"order,omitempty"`
}

// Splits reports whether a plan says into what a job is split, or nothing at all, which is
// everything by default. One that only says how it runs, such as its schedule or bucket,
// leaves that to be chosen.
func (p *Plan) Splits() bool {
	how := Plan{SequenceParallel: p.SequenceParallel, CPCommType: p.CPCommType, Schedule: p.Schedule, Bucket: p.Bucket,
		ReshardAfterForward: p.ReshardAfterForward, BucketView: p.BucketView, AdapterUnits: p.AdapterUnits, Units: p.Units, UnitParams: p.UnitParams, WrapOneRank: p.WrapOneRank, SyncEveryMicroBatch: p.SyncEveryMicroBatch, Offload: p.Offload,
		OffloadFraction: p.OffloadFraction, OffloadOverlap: p.OffloadOverlap, Order: p.Order}
	return *p != how || how == Plan{}
}

// SP reports whether sequence parallelism is on.
func (p *Plan) SP() bool { return p.SequenceParallel != nil && *p.SequenceParallel && p.TP > 1 }

// Reshard reports whether gathered parameters are dropped after the forward pass.
func (p *Plan) Reshard() bool { return p.ReshardAfterForward == nil || *p.ReshardAfterForward }

// TorchDDP reports whether PyTorch's DDP reduces gradients: alone, or before an optimizer that shares out
// its states (ZeroRedundancyOptimizer).
func (p *Plan) TorchDDP(r *recipe.Recipe) bool {
	return !r.Structure.MainGradients && !r.Structure.OwnReductions && (p.DataParallel == DDP || p.DataParallel == ZeRO1 && !r.Structure.Partitions)
}

// BucketViews reports whether gradients under PyTorch's DDP are views of the buckets, or
// tensors of their own that are copied into them and back.
func (p *Plan) BucketViews() bool { return p.BucketView == nil || *p.BucketView }

// Shard is the number of ranks that share one copy of what is sharded.
func (p *Plan) Shard() int64 {
	if p.ShardDegree > 0 {
		return p.ShardDegree
	}
	return p.DP * max(p.CP, 1) // context-parallel ranks hold the same parameters
}

// Replicas is the number of such copies.
func (p *Plan) Replicas() int64 { return p.DP * max(p.CP, 1) / p.Shard() }

// Shape is what a legality check needs besides the plan.
type Shape struct {
	Model   *model.Spec
	Recipe  *recipe.Recipe
	GPUs    int64
	Train   *Train
	DTensor bool // tensor parallelism by DTensor: key/value heads must divide
}

// Complete fills what a plan leaves open: degrees of one, dp from the rest, the
// schedule of the recipe.
func (p *Plan) Complete(s Shape) error {
	if p.ExpertTP == 0 && p.cutsExperts(s) {
		p.ExpertTP = p.TP
	}
	if schedule, err := pipeline.Lookup(p.Schedule); p.VirtualStages == 0 && p.PP > 1 && err == nil {
		p.VirtualStages = schedule.Usual()
	}
	for _, d := range []*int64{&p.TP, &p.CP, &p.EP, &p.ExpertTP, &p.PP, &p.VirtualStages} {
		if *d == 0 {
			*d = 1
		}
	}
	for _, d := range []struct {
		name string
		v    int64
	}{{"tp", p.TP}, {"cp", p.CP}, {"ep", p.EP}, {"expert_tp", p.ExpertTP}, {"pp", p.PP}, {"virtual_stages", p.VirtualStages}, {"dp", p.DP}, {"shard_degree", p.ShardDegree}} {
		if d.v < 0 {
			return diag.Errorf("plan.%s: %d is negative; give 1 or more", d.name, d.v)
		}
		if d.v > s.GPUs && d.name != "virtual_stages" {
			return diag.Errorf("plan.%s: %d exceeds the %d GPUs of the job; give 1 to %d%s", d.name, d.v, s.GPUs, s.GPUs, p.orGPUs(s))
		}
	}
	inner := p.TP * p.CP * p.PP
	if s.GPUs%inner != 0 {
		first := "tp" // that does not go with those before it
		if s.GPUs%(p.TP*p.CP) == 0 {
			first = "pp"
		} else if s.GPUs%p.TP == 0 {
			first = "cp"
		}
		return diag.Errorf("plan.%s: tp %d × cp %d × pp %d = %d does not divide the %d GPUs; %s", first, p.TP, p.CP, p.PP, inner, s.GPUs, p.changes(s))
	}
	rest := s.GPUs / inner
	if p.DP == 0 {
		p.DP = rest
	}
	if p.DP != rest {
		return diag.Errorf("plan.dp: %d × tp %d × cp %d × pp %d = %d is not the %d GPUs of the job; leave dp out or use %d%s", p.DP, p.TP, p.CP, p.PP, p.DP*inner, s.GPUs, rest, p.orGPUs(s))
	}
	if p.DataParallel == "" {
		p.DataParallel = s.usual(p.Offload)
	}
	if p.CP > 1 {
		p.CPCommType = s.contextsBy(p)
	}
	if p.Schedule == "" && p.PP > 1 {
		p.Schedule = "1f1b"
		if p.VirtualStages > 1 {
			p.Schedule = "interleaved-1f1b"
		}
	}
	if p.SequenceParallel == nil {
		on := p.TP > 1 && s.Recipe.Structure.SharedTPInput && !s.deepSpeedMoE()
		p.SequenceParallel = &on
	}
	if p.ReshardAfterForward == nil && p.PP > 1 && p.DataParallel.ShardsParameters() && s.Recipe.Structure.GatheredStages {
		p.ReshardAfterForward = new(bool)
	}
	return nil
}

// usual is the kind of data parallelism that users of the recipe run, with something left to
// the host.
func (s *Shape) usual(o Offload) DataParallel {
	if kinds := beside(s.Recipe, o); len(kinds) > 0 {
		return DataParallel(kinds[0])
	}
	return DDP
}

func list(v []int64) string { return strings.Join(texts(v), ", ") }

// rule checks one thing of a completed plan.
type rule func(*Plan, Shape) error

// keeps returns the first error of some rules.
func (p *Plan) keeps(s Shape, rules ...rule) error {
	for _, r := range rules {
		if err := r(p, s); err != nil {
			return err
		}
	}
	return nil
}

// Check returns the first rule that a completed plan breaks, as an error with the
// nearest legal values.
func (p *Plan) Check(s Shape) error {
	return p.keeps(s, (*Plan).checkCuts, (*Plan).checkPipeline, (*Plan).checkRecompute, (*Plan).checkOrder, (*Plan).checkDataParallel,
		(*Plan).checkMatrices, (*Plan).checkTensorwise, (*Plan).checkRowScales, (*Plan).checkOffloadLayers, (*Plan).checkOffloadModules, (*Plan).checkOffload)
}

// checkCuts returns the first rule that cutting layers breaks.
func (p *Plan) checkCuts(s Shape) error {
	return p.keeps(s, (*Plan).checkTP, (*Plan).checkMixers, (*Plan).checkContexts, (*Plan).checkSequence, (*Plan).checkExperts)
}

// checkSequence checks that sequence parallelism cuts a sequence evenly.
func (p *Plan) checkSequence(s Shape) error {
	if seq := s.Train.SequenceLength; p.SP() && seq/p.CP%p.TP != 0 {
		return diag.Errorf("plan.tp: %d does not divide the %d tokens of a sequence over cp %d, which sequence parallelism cuts; use %stp 1, or plan.sequence_parallel: false", p.TP, seq, p.CP, p.evenSequences(s))
	}
	return nil
}

// checkTP returns the first rule that cutting matrices over tensor ranks breaks.
func (p *Plan) checkTP(s Shape) error {
	m := s.Model
	if n := max(p.TP, p.ExpertTP); n > 1 && s.Recipe.Structure.WholeMatrices {
		remedy := "use 1, and more of dp"
		if m.MoE != nil {
			remedy = "use tp 1 and expert_tp 1, and ep or more of dp"
		}
		return diag.Errorf("plan.tp: %d, but recipe %s cuts no matrices over ranks; %s", n, s.Recipe.Name, remedy)
	}
	if m.Heads%p.TP != 0 {
		return diag.Errorf("plan.tp: %d does not divide num_attention_heads %d (use %s)", p.TP, m.Heads, list(p.legalTP(s)))
	}
	if p.TP > 1 && m.Compress != nil {
		return diag.Errorf("plan.tp: %d, but attention to sums of tokens is cut over none (megatron/core/transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py); use tp 1", p.TP)
	}
	if g := m.Global; g != nil && !s.sharesKV(p.TP, g.KVHeads) {
		return diag.Errorf("plan.tp: %d does not divide num_global_key_value_heads %d (use %s)", p.TP, g.KVHeads, list(p.legalTP(s)))
	}
	if m.MLA == nil && m.KVHeads%p.TP != 0 && p.TP%m.KVHeads != 0 {
		return diag.Errorf("plan.tp: %d neither divides num_key_value_heads %d nor is a multiple of it (use %s)", p.TP, m.KVHeads, list(p.legalTP(s)))
	}
	if s.DTensor && m.MLA == nil && m.KVHeads%p.TP != 0 {
		return diag.Errorf("plan.tp: %d does not divide num_key_value_heads %d, which recipe %s needs (use %s)", p.TP, m.KVHeads, s.Recipe.Name, list(p.legalTP(s)))
	}
	if m.FFN%p.TP != 0 {
		return diag.Errorf("plan.tp: %d does not divide intermediate_size %d (use %s)", p.TP, m.FFN, list(p.legalTP(s)))
	}
	return nil
}

// checkExperts returns the first rule that sharing out and cutting experts breaks.
func (p *Plan) checkExperts(s Shape) error {
	if s.Model.MoE == nil && p.EP > 1 {
		return diag.Errorf("plan.ep: %d, but the model has no experts; leave ep out", p.EP)
	}
	if s.deepSpeedMoE() {
		if err := p.checkDeepSpeedMoE(s); err != nil {
			return err
		}
	}
	if p.ExpertTP > 1 {
		if err := p.checkExpertTP(s); err != nil {
			return err
		}
	}
	if err := p.checkCutting(s); err != nil || s.Model.MoE == nil {
		return err
	}
	return p.checkEP(s)
}

// checkEP returns the first rule that sharing out experts breaks.
func (p *Plan) checkEP(s Shape) error {
	m, t := s.Model, s.Train
	if p.EP > 1 && !s.Recipe.Structure.ExpertParallel {
		return diag.Errorf("plan.ep: recipe %s has no expert parallelism; use 1 or a recipe that has it", s.Recipe.Name)
	}
	if m.MoE.Experts%p.EP != 0 {
		return diag.Errorf("plan.ep: %d does not divide the %d experts (use %s)", p.EP, m.MoE.Experts, list(p.legalEP(s)))
	}
	if ranks := p.TP * p.CP * p.DP; ranks%(p.EP*p.ExpertTP) != 0 {
		return diag.Errorf("plan.ep: ep %d × expert_tp %d does not divide tp·cp·dp = %d (use ep %s%s)", p.EP, p.ExpertTP, ranks, list(p.legalEP(s)), p.anyDP().orGPUs(s))
	}
	if p.EP > 1 && t.Imbalance > float64(p.EP) {
		return diag.Errorf("train.expert_imbalance: %g, but one of %d expert ranks has at most %d times the mean, all tokens; give 1 to %d", t.Imbalance, p.EP, p.EP, p.EP)
	}
	return nil
}

// checkPipeline returns the first rule that a pipeline breaks.
func (p *Plan) checkPipeline(s Shape) error {
	return p.keeps(s, (*Plan).checkStages, (*Plan).checkLayers, (*Plan).checkChunks, (*Plan).checkSchedule)
}

// checkStages checks that the recipe has a pipeline, and no more stages than layers to give them.
func (p *Plan) checkStages(s Shape) error {
	m := s.Model
	if p.PP == 1 && p.VirtualStages > 1 {
		return diag.Errorf("plan.virtual_stages: %d needs pipeline parallelism; set pp above 1 or leave it out", p.VirtualStages)
	}
	if p.PP > 1 && s.Recipe.Structure.WholeModels {
		return diag.Errorf("plan.pp: recipe %s has no pipeline parallelism; use 1 or a recipe that has it", s.Recipe.Name)
	}
	stages := p.PP * p.VirtualStages
	if stages > m.Layers+2 || p.PP > m.Layers {
		return diag.Errorf("plan.pp: %d stages (pp %d × virtual_stages %d) are more than the %d layers with embedding and head; %s", stages, p.PP, p.VirtualStages, m.Layers, p.fewerStages(s))
	}
	return nil
}

// checkChunks checks that the recipe's way to split layers gives every stage its share.
func (p *Plan) checkChunks(s Shape) error {
	m, stages := s.Model, p.PP*p.VirtualStages
	if s.Recipe.Structure.CostStages && p.PP > 1 && p.StageLayers == "" {
		if _, head := splitByCost(m, m.Layers, stages); head < stages-2 {
			return diag.Errorf("plan.pp: recipe %s splits by cost, which leaves the last %d of %d stages without work; use a smaller pp", s.Recipe.Name, stages-2-head, stages)
		}
	}
	if p.VirtualStages > 1 && s.Recipe.Structure.EvenChunks && p.StageLayers == "" && m.Layers%stages != 0 && (m.Layers+2)%stages != 0 {
		return diag.Errorf("plan.virtual_stages: pp %d × virtual_stages %d does not divide the %d layers, with or without embedding and head as one layer each, which recipe %s needs (use %s)",
			p.PP, p.VirtualStages, m.Layers, s.Recipe.Name, list(whole.Divisors(m.Layers/p.PP, 64)))
	}
	return p.checkPicks(s)
}

// checkSchedule returns the first rule that the order of a pipeline's work breaks, or the
// kind of data parallelism beside it.
func (p *Plan) checkSchedule(s Shape) error {
	var schedule *pipeline.Info
	if p.Schedule != "" {
		var err error
		if schedule, err = pipeline.Lookup(p.PipelineSchedule(s.Recipe)); err != nil {
			return diag.Errorf("plan.schedule: %v", err)
		}
	}
	if err := p.checkDrain(s); err != nil || p.PP == 1 {
		return err
	}
	if err := schedule.Check(int(p.PP), int(p.VirtualStages), int(p.Fill(s.Train))); err != nil {
		return diag.Errorf("plan.schedule: %v", err)
	}
	if p.ReducesOnce() && p.SyncEveryMicroBatch != nil && *p.SyncEveryMicroBatch {
		return diag.Errorf("plan.sync_every_micro_batch: true, but PyTorch's pipelines reduce sharded gradients once, at the end of a step; leave it out, or set plan.pp to 1")
	}
	switch p.DataParallel {
	case FSDP1:
		return diag.Errorf("plan.data_parallel: fsdp1 does not compose with pipeline parallelism; use %s", piped(s.Recipe))
	case ZeRO2, ZeRO3:
		return diag.Errorf("plan.data_parallel: %s does not compose with pipeline parallelism, which needs whole gradients over all micro batches; use %s", p.DataParallel, piped(s.Recipe))
	}
	return nil
}

// ReducesOnce reports whether sharded gradients can only be reduced at the end of a step: PyTorch's
// schedules turn the reduction off for all micro batches (torch/distributed/pipelining/stage.py,
// backward_maybe_with_nosync).
func (p *Plan) ReducesOnce() bool { return p.PP > 1 && p.DataParallel.ShardsParameters() }

// piped says which kinds of data parallelism a framework has beside a pipeline.
func piped(r *recipe.Recipe) string {
	var out []string
	for _, k := range r.Sharing() {
		if k := DataParallel(k); k == DDP || k == ZeRO1 || k == FSDP2 {
			out = append(out, string(k))
		}
	}
	return diag.Or(append(out, "pp 1"))
}

// Fill is how many micro batches go through a pipeline before it is empty again.
func (p *Plan) Fill(t *Train) int64 { return cmp.Or(p.DrainEvery, t.GradAccumulation) }

// checkDrain checks after how many micro batches a pipeline is empty.
func (p *Plan) checkDrain(s Shape) error {
	switch n := s.Train.GradAccumulation; {
	case p.DrainEvery == 0:
	case p.PP == 1:
		return diag.Errorf("plan.drain_every: %d, but there is no pipeline; leave it out, or set pp", p.DrainEvery)
	case !s.Recipe.Structure.TorchPipeline:
		return diag.Errorf("plan.drain_every: %d, but pipelines of recipe %s take in all micro batches of a step; leave it out", p.DrainEvery, s.Recipe.Name)
	case p.DrainEvery < 0 || n%p.DrainEvery > 0:
		return diag.Errorf("plan.drain_every: %d does not divide the %d micro batches of a step (use %s)", p.DrainEvery, n, list(whole.Divisors(n, 4096)))
	}
	return nil
}

// adaptersApart reports whether adapters may be units of their own: under PyTorch's FSDP1, not Megatron's.
func (p *Plan) adaptersApart(m *model.Spec, r *recipe.Recipe) bool {
	return p.DataParallel == FSDP1 && m.LoRA != nil && !r.Structure.MainGradients && r.Host.Primitives["adapter_units"] > 0
}

// checkDataParallel returns the first rule that sharing out states breaks.
func (p *Plan) checkDataParallel(s Shape) error {
	if p.BucketView != nil && !p.TorchDDP(s.Recipe) {
		return diag.Errorf("plan.bucket_view: only PyTorch's DDP has it, not %s under recipe %s; leave it out", p.DataParallel, s.Recipe.Name)
	}
	if p.AdapterUnits != nil && !p.adaptersApart(s.Model, s.Recipe) {
		return diag.Errorf("plan.adapter_units: only PyTorch's FSDP1 has units, and adapters need train.lora; leave it out, or use fsdp1 under hf-eager with train.lora")
	}
	if err := p.checkUnits(s); err != nil {
		return err
	}
	if p.WrapOneRank != nil && (p.DataParallel != FSDP2 || p.PP > 1) {
		return diag.Errorf("plan.wrap_one_rank: FSDP2 alone wraps one rank, which FSDP1 leaves whole, and it is not known of pipelines; leave it out, or use fsdp2 and no pp")
	}
	return p.checkCopies(s)
}

// torchInterleaved is interleaved-1f1b as PyTorch runs it.
const torchInterleaved = "interleaved-1f1b-torch"

// PipelineSchedule is the schedule as the recipe's framework runs it: PyTorch's
// interleaving differs from Megatron's in what it allows.
func (p *Plan) PipelineSchedule(r *recipe.Recipe) string {
	if p.Schedule == "interleaved-1f1b" && r.Structure.TorchPipeline {
		return torchInterleaved
	}
	return p.Schedule
}

// Split returns the number of layers of each of n stages: equal parts, or, when they
// do not divide, with embedding and head counting as one layer each and what is
// left over in the middle (Megatron's account_for_embedding_in_pipeline_split,
// DeepSpeed's partition by type:transformer|embedding). Where that leaves a rest too
// and full is set, each stage takes as many as the fullest needs until none are left
// (DeepSpeed's partition by type:transformer, which runtime/utils.py,
// partition_balanced, fills from the first stage on).
func Split(layers, n int64, full bool) []int64 {
	out := make([]int64, n)
	if layers%n == 0 {
		for i := range out {
			out[i] = layers / n
		}
		return out
	}
	each, more := (layers+2)/n, (layers+2)%n
	if full && more > 0 && layers > n {
		most := (layers + n - 1) / n
		for i := range out {
			out[i] = min(most, layers-(n-1-int64(i))) // later ones need a layer each
			layers -= out[i]
		}
		return out
	}
	from := (n - more) / 2
	for i := range out {
		out[i] = each
		if int64(i) >= from && int64(i) < from+more {
			out[i]++
		}
	}
	out[0]--
	out[n-1]--
	return out
}

// splitWeighed is Split with embedding and head counting as a layer each also where the
// layers divide, and what is left over in the first stages (torchtitan,
// distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part).
func splitWeighed(layers, n int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = (layers + 2) / n
		if int64(i) < (layers+2)%n {
			out[i]++
		}
	}
	out[0]--
	out[n-1]--
	return out
}

// LossApart reports whether the last stage of a pipeline computes the loss alone, of
// logits that it receives.
func (p *Plan) LossApart(m *model.Spec, r *recipe.Recipe) bool {
	if !r.Structure.CostStages || p.PP <= 1 || p.StageLayers != "" {
		return false
	}
	_, head := splitByCost(m, m.Layers, p.PP*p.VirtualStages)
	return head < p.PP*p.VirtualStages-1
}

// splitByCost is SplitByCost with the number of parameters as cost.
func splitByCost(m *model.Spec, layers, n int64) (each []int64, head int64) {
	layer := 4*m.Heads*m.HeadDim*m.Hidden + 3*m.FFN*m.Hidden
	return SplitByCost(layers, n, float64(layer), float64(m.Vocab*m.Hidden))
}

// SplitByCost returns the number of layers of each of n stages and the stage of the head,
// where a stage takes layers, and then the head, until the cost of all so far is more
// than its end's share of the whole (nanotron, models/base.py, build_model). A costly
// head may thus be alone, and before the loss, which costs nothing.
func SplitByCost(layers, n int64, layer, head float64) (each []int64, at int64) {
	each = make([]int64, n)
	total, sum := layer*float64(layers)+head, 0.0
	for range layers {
		each[at]++
		if sum += layer; sum > total*float64(at+1)/float64(n) {
			at++
		}
	}
	return each, at
}

// String is the short form of a plan: what differs from one GPU.
func (p *Plan) String() string {
	var parts []string
	add := func(name string, v int64) {
		if v > 1 {
			parts = append(parts, fmt.Sprintf("%s %d", name, v))
		}
	}
	add("tp", p.TP)
	if p.SP() {
		parts[len(parts)-1] += "+sp"
	}
	add("cp", p.CP)
	if p.ByHeads() {
		parts[len(parts)-1] += " " + string(p.CPCommType)
	}
	add("ep", p.EP)
	add("expert_tp", p.ExpertTP)
	add("pp", p.PP)
	if p.PP > 1 {
		s := p.Schedule
		if p.VirtualStages > 1 {
			s += fmt.Sprintf(" ×%d", p.VirtualStages)
		}
		if p.StageLayers != "" {
			s += ", layers " + strings.ReplaceAll(string(p.StageLayers), ",", "-")
		}
		if p.DrainEvery > 0 {
			s += fmt.Sprintf(", empty after every %d", p.DrainEvery)
		}
		parts[len(parts)-1] += " (" + s + ")"
	}
	add("dp", p.DP)
	if p.DP*max(p.CP, 1) > 1 || p.Wraps(1) {
		d := string(p.DataParallel)
		if p.ShardDegree > 0 {
			d += fmt.Sprintf(" shard %d", p.ShardDegree)
		}
		if p.StatesOverCopies() {
			d += ", optimizer over all"
		}
		d += p.UnitPolicy().text()
		parts = append(parts, d)
	}
	if p.Offloads() {
		parts = append(parts, p.OffloadText())
	}
	if p.Order != "" {
		parts = append(parts, "order "+string(p.Order))
	}
	if len(parts) == 0 {
		return "one GPU"
	}
	return strings.Join(parts, ", ")
}
