package strategies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// resolve fills the defaults and checks the rules. Each step relies on what those before
// it have settled.
func (f *jobFile) resolve() (*Job, error) {
	j := &Job{Model: f.Model.spec, Hardware: f.Hardware.profile, GPUs: f.GPUs, Runtime: f.Runtime, Train: f.Train, Given: f.Train, GivenPlan: f.Plan, Run: f.Run, Assumed: slices.Compact(slices.Sorted(slices.Values(f.Assumed)))}
	if j.Model == nil {
		return nil, diag.Errorf("model: is missing; give a catalog name, a path or the keys of a config.json")
	}
	j.ModelName = j.Model.Name
	err := first(
		func() error { return j.resolveMachine(f.Network) },
		j.resolveRecipe, j.resolveRelease, j.resolveKernels, j.setLiger, j.resolveLoss, j.setFusions, j.setOwnFile, j.checkFusers, j.checkZeroInit, j.setChecks, j.checkTokenMetrics, j.checkTrainer, j.checkOneConnection, j.setTensorRanks, j.setVocabulary, j.setOverlaps, j.checkExperts,
		j.resolveTrain, j.settleTrain, j.setClipping,
		j.checkRun, j.checkAssumed, j.checkBucket, j.resolvePlan)
	if err != nil {
		return nil, err
	}
	return j, nil
}

// first runs steps in order, up to the first that fails.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkAssumed refuses facts without a name.
func (j *Job) checkAssumed() error {
	for _, fact := range j.Assumed {
		if strings.TrimSpace(fact) == "" {
			return diag.Errorf("assumed: %q names nothing; give the keys that are only assumed, as in [release, network]", fact)
		}
	}
	return nil
}

// note says what a job leaves to this program, and what it takes.
func (j *Job) note(key string, v any, why string) {
	j.Defaulted = append(j.Defaulted, taken(key, v, why))
}

// resolveMachine fills hardware, network and the number of GPUs.
func (j *Job) resolveMachine(network networkRef) error {
	if j.Hardware == nil {
		var err error
		if j.Hardware, err = hardware.Load(DefaultHardware); err != nil {
			return err
		}
		j.note("hardware", DefaultHardware, "default")
	}
	for _, s := range j.Model.Defaulted {
		j.note("model."+s.Key, s.Value, "default of model_type "+j.Model.ModelType)
	}
	if v := network.BandwidthPerGPU; v < 0 || v > hardware.MostRate || v > 0 && v < hardware.NoPath {
		return diag.Errorf("network.bandwidth_per_gpu: %v; give what a GPU's adapter carries one way, as in 50GB/s, at least %v", v, hardware.NoPath)
	} else if v > 0 {
		h := *j.Hardware
		h.Network.NICs = hardware.Of(h.Node.GPUs.Value)
		h.Network.NICBandwidth = hardware.Of(v)
		h.Network.Communicator = hardware.Datum[units.Rate]{} // which was the other network's
		j.Hardware = &h
	}
	if j.GPUs == 0 {
		j.GPUs = j.Hardware.Node.GPUs.Value
		j.note("gpus", j.GPUs, "one node")
	}
	if j.GPUs < 1 || j.GPUs > mostGPUs {
		return diag.Errorf("gpus: %d; give 1 to %d", j.GPUs, mostGPUs)
	}
	return nil
}

// resolveRecipe loads the recipe, and that of the layers where they are compiled one by
// one inside an eager model.
func (j *Job) resolveRecipe() error {
	if j.Runtime.Recipe == "" {
		j.Runtime.Recipe = DefaultRecipe
		j.note("runtime.recipe", DefaultRecipe, "default")
	}
	name := j.Runtime.Recipe
	switch j.Runtime.CompileScope {
	case "", "model", "layer":
	default:
		return diag.Errorf("runtime.compile_scope: %q; use model or layer", j.Runtime.CompileScope)
	}
	var err error
	if j.Recipe, err = recipe.Load(name); err != nil {
		return err
	}
	if scope := j.Runtime.CompileScope; scope != "" && j.Recipe.Structure.CompiledScope == "" {
		return diag.Errorf("runtime.compile_scope: recipe %s is not compiled; use recipe hf-compile or leave it out", name)
	} else if scope == "" {
		j.Runtime.CompileScope = j.Recipe.Structure.CompiledScope
	}
	inner, ok := j.Recipe.Scopes[j.Runtime.CompileScope]
	if own := j.Recipe.Structure.CompiledScope; !ok && j.Runtime.CompileScope != own {
		return diag.Errorf("runtime.compile_scope: %s, but recipe %s compiles by %s; leave it out, or use recipe hf-compile", j.Runtime.CompileScope, name, own)
	} else if !ok {
		return nil
	}
	if j.Layers, err = recipe.Load(inner); err != nil {
		return err
	}
	j.Recipe, err = recipe.Load(j.Recipe.Around)
	return err
}

// resolveRelease takes recipe and machine as they were with the software that runs. PyTorch comes
// with its CUDA libraries.
func (j *Job) resolveRelease() error {
	if j.Runtime.Release == 0 && j.Recipe.Release > 0 {
		j.Runtime.Release = j.Recipe.Release
		j.note("runtime.release", j.Recipe.Release, "the software that the recipe describes")
	}
	if r := cmp.Or(j.Runtime.Libraries, j.Runtime.Release); r > 0 {
		j.Recipe = j.Recipe.OnPyTorch(r)
		if j.Layers != nil {
			j.Layers = j.Layers.OnPyTorch(r)
		}
		j.Hardware = j.Hardware.At(r)
	}
	if r := j.Runtime.Release; r > 0 {
		j.Recipe = j.Recipe.At(r)
	}
	return nil
}

// mostChunks bounds runtime.loss_chunks: torchtitan takes 8.
const mostChunks = 256

// resolveLoss fills and checks what computes the loss; Liger-Kernel's operators bring one.
func (j *Job) resolveLoss() error {
	r, programs := &j.Runtime, j.Recipe.Programs
	if r.FusedCrossEntropy == nil && j.Recipe.Structure.FusedLoss {
		why := "the framework's own"
		if r.CrossEntropyImpl == WrittenLoss {
			why = "the loss is written out"
		}
		r.FusedCrossEntropy = new(r.CrossEntropyImpl != WrittenLoss)
		j.note("runtime.fused_cross_entropy", *r.FusedCrossEntropy, why)
	}
	if r.ReturnsLogits != nil && (programs["fused_cross_entropy_alone"] == nil || !isOn(r.FusedCrossEntropy)) {
		return diag.Errorf("runtime.returns_logits: no loss is in a compiled graph of recipe %s here; leave it out, or use %s with its own loss", j.Recipe.Name, diag.Or(recipe.Having(func(r *recipe.Recipe) bool {
			return r.Programs["fused_cross_entropy_alone"] != nil && r.Structure.CompiledScope != "layer"
		})))
	}
	if r.KeepsLogits != nil && programs["written_cross_entropy"] == nil {
		return diag.Errorf("runtime.keeps_logits: recipe %s has a loop of its own; leave it out, or use %s", j.Recipe.Name, having("written_cross_entropy"))
	}
	if r.FusedLinearCrossEntropy == nil && j.Recipe.Structure.LinearLoss != "" {
		r.FusedLinearCrossEntropy = new(true)
		j.note("runtime.fused_linear_cross_entropy", true, "the framework's own")
	}
	if isOn(r.FusedCrossEntropy) && programs["fused_cross_entropy"] == nil {
		return diag.Errorf("runtime.fused_cross_entropy: recipe %s has no loss in one kernel; leave it out, or use %s", j.Recipe.Name, having("fused_cross_entropy"))
	}
	if r.CrossEntropyImpl != "" {
		if err := j.checkLossImpl(r.CrossEntropyImpl); err != nil {
			return err
		}
	}
	if r.LossParallel != nil && programs["parallel_cross_entropy"] == nil {
		return diag.Errorf("runtime.loss_parallel: recipe %s has no such switch; leave it out, or use %s", j.Recipe.Name, having("parallel_cross_entropy"))
	}
	if err := j.resolveLossChunks(); err != nil {
		return err
	}
	fused := isOn(r.FusedCrossEntropy)
	if up := r.Upcast; up != nil && (j.Recipe.Structure.Compiled && fused || programs["cross_entropy_as_is"] == nil) {
		return diag.Errorf("runtime.upcast: recipe %s has no other loss; leave it out, or use hf-eager, or hf-compile with runtime.fused_cross_entropy: false", j.Recipe.Name)
	} else if up != nil && !*up && (fused || j.LinearLoss() != "") {
		return diag.Errorf("runtime.upcast: a fused loss casts by itself; leave it out, or the fused loss")
	}
	if p := j.LinearLoss(); p != "" && programs[p] == nil {
		return diag.Errorf("runtime.fused_linear_cross_entropy: recipe %s has no loss in pieces; leave it out, or use hf-eager", j.Recipe.Name)
	}
	return nil
}

// checkLossImpl checks that the recipe has the implementation of the loss that the job names, and that the loss is fused as that one is.
func (j *Job) checkLossImpl(impl string) error {
	programs, fused, withHead := j.Recipe.Programs, isOn(j.Runtime.FusedCrossEntropy), isOn(j.Runtime.FusedLinearCrossEntropy)
	switch written := impl == WrittenLoss; {
	case written && programs["written_cross_entropy"] == nil:
		return diag.Errorf("runtime.cross_entropy_impl: %s, but recipe %s has its own loss; leave it out, or use %s", impl, j.Recipe.Name, having("written_cross_entropy"))
	case written && (fused || withHead):
		return diag.Errorf("runtime.cross_entropy_impl: %s, but the loss is fused; set runtime.fused_cross_entropy and runtime.fused_linear_cross_entropy to false, or leave it out", impl)
	case written:
	case withHead:
		if j.LinearLoss() == "" {
			return diag.Errorf("runtime.cross_entropy_impl: %q is no loss that is fused with the output layer; use %s, %s or %s", impl, LigerLoss, CutLoss, WholeCut)
		}
	case programs["linear_cross_entropy"] != nil && linearLosses[impl] != "":
		return diag.Errorf("runtime.cross_entropy_impl: %s, but the loss is not fused with the output layer; set runtime.fused_linear_cross_entropy to true, or leave it out", impl)
	case !slices.Contains(losses, impl):
		return diag.Errorf("runtime.cross_entropy_impl: %q is no loss; use %s", impl, diag.Or(losses))
	case programs["native_cross_entropy"] == nil:
		return diag.Errorf("runtime.cross_entropy_impl: recipe %s has one fused loss; leave it out, or use %s", j.Recipe.Name, having("native_cross_entropy"))
	case impl != EngineLoss && impl != NativeLoss:
		return diag.Errorf("runtime.cross_entropy_impl: %q is no fused loss; use %s or %s", impl, EngineLoss, NativeLoss)
	case !fused:
		return diag.Errorf("runtime.cross_entropy_impl: %s, but the loss is not fused; set runtime.fused_cross_entropy to true, or leave it out", impl)
	}
	return nil
}

// having names the recipes that have a program.
func having(program string) string {
	return diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return r.Programs[program] != nil }))
}

// resolveLossChunks fills and checks by how many chunks of tokens the loss runs, and what they keep.
func (j *Job) resolveLossChunks() error {
	r, keeps := &j.Runtime, j.Recipe.LossChunksKeep
	if r.LossChunks == 0 && j.Recipe.Structure.LossChunks > 1 && j.LinearLoss() == "" {
		r.LossChunks = j.Recipe.Structure.LossChunks
		j.note("runtime.loss_chunks", r.LossChunks, "the framework's own")
	}
	switch n := r.LossChunks; {
	case n < 0 || n > mostChunks:
		return diag.Errorf("runtime.loss_chunks: %d; give 1 to %d", n, mostChunks)
	case n <= 1 && r.LossChunksKeep != "":
		return diag.Errorf("runtime.loss_chunks_keep: %s, but there are no chunks; give runtime.loss_chunks, or leave it out", r.LossChunksKeep)
	case n <= 1:
		return nil
	case len(keeps) == 0:
		return diag.Errorf("runtime.loss_chunks: recipe %s has no loss by chunks; leave it out, or use %s", j.Recipe.Name, diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return len(r.LossChunksKeep) > 0 })))
	case j.LinearLoss() != "":
		return diag.Errorf("runtime.loss_chunks: %d, but a loss that is fused with the output layer has pieces of its own; leave it out, or runtime.fused_linear_cross_entropy", n)
	case r.LossChunksKeep == "":
		r.LossChunksKeep = ops.ChunksKeep(keeps[0])
	}
	return oneOf("runtime.loss_chunks_keep", string(r.LossChunksKeep), keeps)
}

// resolveKernels fills and checks what the job says of kernels.
func (j *Job) resolveKernels() error {
	if j.Runtime.LaunchBlocking == nil && j.hangs() {
		j.Runtime.LaunchBlocking = new(true)
		j.note("runtime.launch_blocking", true, "the framework hung without at this size on such a network")
	}
	if err := j.resolveAttention(); err != nil {
		return err
	}
	if err := j.checkSDPAKernel(); err != nil {
		return err
	}
	if j.TF32() && j.Hardware.GPU.Peak.TF32.Value == 0 {
		return diag.Errorf("runtime.tf32: %s has no tensor cores for TF32; leave it out, or use a GPU of the Ampere generation or later", gpuName(j.Hardware))
	}
	if g := j.Runtime.CUDAGraphs; g != "" {
		return oneOf("runtime.cuda_graphs", g, graphKinds)
	}
	return nil
}

// hangs reports whether the framework does, unless the host waits for every kernel.
func (j *Job) hangs() bool {
	b, n, h := j.Recipe.Host.Blocking, j.Hardware.Node.GPUs.Value, &j.Hardware.Network
	return b.Nodes > 0 && j.GPUs >= b.Nodes*n && h.NICBandwidth.Value*units.Rate(h.NICs.Value)/units.Rate(n) <= b.Network && j.Model.Params().Total >= b.Parameters
}

// setClipping takes over whether gradients are clipped by their norm.
func (j *Job) setClipping() error {
	on := j.Train.ClipGradients
	o := j.Recipe.Optimizer[j.Train.Optimizer]
	if on == nil || *on == o.Clip {
		return nil
	}
	own := *j.Recipe
	own.Optimizer = maps.Clone(own.Optimizer)
	o.Clip = *on
	own.Optimizer[j.Train.Optimizer] = o
	j.Recipe = &own
	return nil
}

// setOverlaps takes over which exchanges of replicas the job says run beside compute.
// Parameters are gathered so by frameworks that reduce so (Megatron-LM,
// training/arguments.py: --overlap-param-gather needs --overlap-grad-reduce).
func (j *Job) setOverlaps() error {
	reduce, gather := j.Runtime.OverlapGradReduce, j.Runtime.OverlapParamGather
	if reduce == nil && gather == nil {
		return nil
	}
	own := *j.Recipe
	o := &own.Overlap
	for _, x := range []struct {
		on   *bool
		name string
		does string
	}{{reduce, recipe.GradReduceSwitch, "reduces gradients"}, {gather, recipe.ParamGatherSwitch, "gathers parameters"}} {
		if x.on != nil && !slices.Contains(o.Switches, x.name) {
			return diag.Errorf("runtime.overlap_%s: recipe %s %s in one way; leave it out, or use megatron-core", x.name, own.Name, x.does)
		}
	}
	if reduce != nil {
		o.GradReduce = *reduce
	}
	if gather != nil {
		o.ParamGather = *gather
	}
	if !o.GradReduce && isOn(gather) {
		return diag.Errorf("runtime.overlap_param_gather: true, but gradients are not reduced beside the backward pass, without which the framework refuses it; set runtime.overlap_grad_reduce to true, or leave it out")
	}
	o.ParamGather = o.ParamGather && o.GradReduce
	j.Recipe = &own
	return nil
}

// checkOverlaps refuses exchanges of sharded parameters that wait for compute: none is known.
func (j *Job) checkOverlaps(p *Plan) error {
	if on := j.Runtime.OverlapGradReduce; on != nil && !*on && p.DataParallel.ShardsParameters() {
		return diag.Errorf("runtime.overlap_grad_reduce: false, but with %s gradients are taken to be reduced beside the backward pass; leave it out, or set plan.data_parallel to zero1", p.DataParallel)
	}
	return nil
}

// checkExperts checks how experts' rows are to be moved and exchanged, and what of them is replayed.
func (j *Job) checkExperts() error {
	d, fused, overlap := j.Runtime.TokenDispatcher, j.Runtime.PermuteFusion, j.Runtime.EPOverlap != nil && *j.Runtime.EPOverlap
	able, flex := j.Recipe.Programs["experts_flex"] != nil, d != "" && d != AllToAllDispatcher
	only, other := j.Recipe.Structure.ExpertsOnly, j.Recipe.Structure.ExpertModels
	switch {
	case only != "" && j.Model.MoE == nil:
		return diag.Errorf("runtime.recipe: %s is for models with experts, of which %s has none; use %s", j.Recipe.Name, j.ModelName, only)
	case other != "" && j.Model.MoE != nil:
		return diag.Errorf("runtime.recipe: %s is not how its framework runs models with experts, as %s is; use %s", j.Recipe.Name, j.ModelName, other)
	case j.Model.MoE != nil && !j.Model.Gated && (j.Recipe.Programs["expert_plain"] == nil || j.Recipe.Structure.UnfusedPermutation && j.Recipe.Structure.WeighedBack):
		return diag.Errorf("runtime.recipe: experts without a gate (gated_mlp: false) are known of hf-eager, of megatron-deepspeed and of megatron-core, there from release 25.07 on or with fused permutation, not so of %s; take one of these, or give experts a gate", j.Recipe.Name)
	case overlap && (!able || j.Recipe.Structure.FlexDispatcher == recipe.AllModels):
		return diag.Errorf("runtime.ep_overlap: recipe %s does not exchange rows beside another micro batch; leave it out, or use megatron-core", j.Recipe.Name)
	case fused != nil && j.Model.MoE == nil:
		return diag.Errorf("runtime.permute_fusion: %s has no experts; leave it out", j.ModelName)
	case fused != nil && j.Recipe.Programs["experts_unfused"] == nil:
		return diag.Errorf("runtime.permute_fusion: recipe %s moves rows of experts in one way; leave it out, or use megatron-core", j.Recipe.Name)
	case fused != nil && !*fused && flex:
		return diag.Errorf("runtime.permute_fusion: false, but the %s dispatcher permutes rows itself; leave it out, or take token_dispatcher: %s", d, AllToAllDispatcher)
	case j.Runtime.CUDAGraphs == RouterGraphs && j.Model.MoE == nil:
		return diag.Errorf("runtime.cuda_graphs: %s, but %s has no experts; give one of %s, %s, %s, %s", RouterGraphs, j.ModelName, NoGraphs, MixerGraphs, LayerGraphs, FullGraphs)
	case d == "":
		return nil
	case j.Model.MoE == nil:
		return diag.Errorf("runtime.token_dispatcher: %s has no experts; leave it out", j.ModelName)
	case !slices.Contains(dispatchers, d):
		return oneOf("runtime.token_dispatcher", d, dispatchers)
	case !flex && j.Recipe.Structure.FlexDispatcher == recipe.AllModels:
		return diag.Errorf("runtime.token_dispatcher: %s, but recipe %s exchanges rows by kernels of their own; leave it out, or use %s or %s", d, j.Recipe.Name, DeepEPDispatcher, HybridEPDispatcher)
	case flex && !able:
		return diag.Errorf("runtime.token_dispatcher: recipe %s has no %s dispatcher; leave it out, or use megatron-core", j.Recipe.Name, d)
	case flex && j.Recipe.Structure.UnfusedPermutation && fused == nil:
		return diag.Errorf("runtime.token_dispatcher: release %s of recipe %s has no %s dispatcher; leave it out, or name a later release", j.Runtime.Release, j.Recipe.Name, d)
	}
	return nil
}

// resolveTrain fills the training settings that do not depend on the plan.
func (j *Job) resolveTrain() error {
	return first(
		j.resolveSequence, j.resolveSource, j.checkBatches, j.resolvePrecision, j.resolveOptimizer,
		j.checkImbalance, j.resolveMTP, j.resolveWideEnds, j.resolveIndexer, j.resolveLoRA, j.resolveImages, j.checkDocuments, j.checkPadding, j.checkLengths,
		j.resolveDeepSpeedMoE, j.checkRouting, j.checkCapacity, j.checkGroupedMLP, j.setExpertGEMM, j.resolveRecompute)
}

// resolveSequence fills and checks the length of sequences.
func (j *Job) resolveSequence() error {
	t := &j.Train
	if t.SequenceLength == 0 {
		t.SequenceLength = defaultSequence
		if m := j.Model.MaxPositions; m > 0 && m < t.SequenceLength {
			t.SequenceLength = m
		}
		j.note("train.sequence_length", t.SequenceLength, "default")
	}
	if t.SequenceLength < 1 || t.SequenceLength > 1<<24 {
		return diag.Errorf("train.sequence_length: %d; give 1 to %d tokens", t.SequenceLength, 1<<24)
	}
	if m := j.Model.MaxPositions; j.Model.Position == model.LearnedPosition && m > 0 && t.SequenceLength > m {
		return diag.Errorf("train.sequence_length: %d exceeds the %d learned positions of the model; give 1 to %d", t.SequenceLength, m, m)
	}
	return nil
}

// checkBatches checks the three numbers that make a batch, each by itself.
func (j *Job) checkBatches() error {
	t := &j.Train
	for _, c := range []struct {
		key     string
		v, most int64
	}{{"micro_batch", t.MicroBatch, mostMicroBatch}, {"grad_accumulation", t.GradAccumulation, mostAccumulation}, {"global_batch", t.GlobalBatch, mostBatch}} {
		if c.v < 0 || c.v > c.most {
			return diag.Errorf("train.%s: %d; give 1 to %d", c.key, c.v, c.most)
		}
	}
	return nil
}

// checkBucket checks the size of a plan's buckets, also of one that leaves the rest open.
func (j *Job) checkBucket() error {
	if j.GivenPlan == nil {
		return nil
	}
	return CheckBucket(j.GivenPlan.Bucket)
}

// CheckBucket checks the size of a bucket; 0 is that of the framework.
func CheckBucket(b units.Bytes) error {
	if !(b >= 0 && b <= mostBucket) {
		return diag.Errorf("plan.bucket: %g bytes; give a size up to 1TiB, as in 25MiB", float64(b))
	}
	return nil
}

// resolvePrecision settles the dtypes of everything, and holds them against the GPU.
func (j *Job) resolvePrecision() error {
	t := &j.Train
	if t.Precision == "" {
		j.defaultPrecision()
	}
	precision, ok := j.Recipe.Precision[t.Precision]
	if !ok {
		return j.noPrecision()
	}
	if precision.Adapters.Set && t.LoRA == nil {
		return diag.Errorf("train.precision: %s is that of adapters beside frozen weights; give train.lora, or use %s", t.Precision, j.Recipe.Default)
	}
	if err := t.DTypes.check(); err != nil {
		return err
	}
	j.Precision = t.DTypes.Apply(precision)
	if err := first(j.checkHead, j.checkEmbedding, j.checkAttention, j.checkScan, j.checkTensorCores, j.checkAmax); err != nil {
		return err
	}
	j.Precision.Reduce = j.reduceDType()
	if t.ReduceDType.Set && j.Recipe.Structure.ReduceSetsAll && t.ReduceDType.DType.Size() == 2 { // llm-foundry's PURE: everything in 16 bits
		j.Precision.Gradients = t.ReduceDType
	}
	return nil
}

// reduceDType is that of reduced gradients without context ranks.
func (j *Job) reduceDType() recipe.DType {
	t := &j.Train
	if t.ReduceDType.Set {
		return t.ReduceDType
	}
	return t.DTypes.Apply(j.Recipe.Precision[t.Precision]).Reduce
}

// defaultPrecision takes the recipe's precision, or fp16 where the GPU multiplies that and
// not the recipe's.
func (j *Job) defaultPrecision() {
	t := &j.Train
	why := "default of recipe " + j.Recipe.Name
	t.Precision = j.Recipe.Default
	if t.LoRA != nil {
		t.Precision = cmp.Or(j.Recipe.AdapterPrecision, t.Precision)
	}
	if half, ok := j.Recipe.Precision[tape.F16.String()]; ok && !j.multiplies(j.Recipe.Precision[t.Precision]) && j.multiplies(half) {
		why = fmt.Sprintf("%s has no tensor cores for the %s of recipe %s", gpuName(j.Hardware), t.Precision, j.Recipe.Name)
		t.Precision = tape.F16.String()
	}
	j.note("train.precision", t.Precision, why)
}

// noPrecision is the error of a precision that the recipe does not have.
func (j *Job) noPrecision() error {
	remedy := itHas(j.Train.Precision, slices.Sorted(maps.Keys(j.Recipe.Precision)))
	if j.Train.Precision == tape.TF32.String() {
		remedy = "TF32 is a way to multiply fp32: use fp32, and leave runtime.tf32 on"
	}
	return diag.Errorf("train.precision: recipe %s has no %q; %s", j.Recipe.Name, j.Train.Precision, remedy)
}

// noOptimizer is the error of an optimizer that the recipe does not have.
func (j *Job) noOptimizer() error {
	return diag.Errorf("train.optimizer: recipe %s has no %q; %s", j.Recipe.Name, j.Train.Optimizer, itHas(j.Train.Optimizer, slices.Sorted(maps.Keys(j.Recipe.Optimizer))))
}

// itHas names what a recipe has instead of a word, the nearest first.
func itHas(word string, known []string) string {
	has := "it has " + strings.Join(known, ", ")
	if near := diag.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q? %s", near, has)
	}
	return has
}

// checkScan holds train.dtypes.scan against what scans.
func (j *Job) checkScan() error {
	s := j.Precision.Scan
	switch {
	case !s.Set || s.DType == j.Precision.Compute.DType:
		return nil
	case j.Model.Mamba == nil:
		return diag.Errorf("train.dtypes.scan: %s, but %s has no Mamba mixers; leave it out", s, j.ModelName)
	case j.Recipe.Structure.Mixers != ops.ApartMixer:
		return diag.Errorf("train.dtypes.scan: %s, but mixers of recipe %s scan in what they compute in; leave it out, or use megatron-core", s, j.Recipe.Name)
	case s.DType != tape.F32:
		return diag.Errorf("train.dtypes.scan: %s; states are kept from overflowing in fp32 alone; use fp32, or leave it out", s)
	}
	return nil
}

// checkHead holds train.dtypes.head against what layers multiply.
func (j *Job) checkHead() error {
	if h, layers := j.Precision.Head, j.Precision.Operands(); h.Set && h.DType != j.Precision.Compute.DType && h.DType != layers.DType {
		return diag.Errorf("train.dtypes.head: %s, but layers multiply in %s; the output layer multiplies as they do, or in %s where it is left out", h, layers, j.Precision.Compute)
	}
	return nil
}

// checkTensorCores checks that the GPU multiplies what the precision does.
func (j *Job) checkTensorCores() error {
	if j.multiplies(j.Precision) {
		return nil
	}
	var others []string
	for _, k := range slices.Sorted(maps.Keys(j.Recipe.Precision)) {
		if j.multiplies(j.Recipe.Precision[k]) {
			others = append(others, k)
		}
	}
	d, remedy := j.Precision.Operands(), diag.Or(append(others, "another GPU"))
	if major, _, _ := strings.Cut(j.Hardware.GPU.Capability.Value, "."); len(major) > 1 && slices.Contains(blackwells, d.DType) {
		return diag.Errorf("train.precision: %s multiplies in %s, which %s can, but how fast is not known; use %s", j.Train.Precision, d, gpuName(j.Hardware), remedy)
	}
	return diag.Errorf("train.precision: %s multiplies in %s, which %s has no tensor cores for; use %s", j.Train.Precision, d, gpuName(j.Hardware), remedy)
}

// blackwells are what tensor cores of compute capability 10 and up take, in consumers' cards, too.
var blackwells = []tape.DType{tape.FP4, tape.MXFP8}

// multiplies reports whether the GPU does what a precision multiplies: fp32 on any
// GPU, what is narrower on tensor cores that take it (Volta and Turing: no bf16).
func (j *Job) multiplies(p recipe.Precision) bool {
	d := p.Operands()
	if _, ok := j.Hardware.Laws.GEMM.Scaled[d.String()]; d.DType >= tape.MXFP8 && d.DType <= tape.FP8Row && !ok { // kernels for blocks of 128 are Hopper's, tensor cores that scale blocks of 32 Blackwell's
		return false
	}
	return d.DType == tape.F32 || j.Hardware.GPU.Peak.Of(d.String()) > 0
}

// resolveOptimizer settles the optimizer and how many moments it keeps.
func (j *Job) resolveOptimizer() error {
	t := &j.Train
	t.Optimizer = cmp.Or(t.Optimizer, j.Recipe.DefaultOptimizer)
	optimizer, ok := j.Recipe.Optimizer[t.Optimizer]
	if !ok {
		return j.noOptimizer()
	}
	if optimizer.Moments != nil {
		j.Precision.Without = 2 - *optimizer.Moments
	}
	j.Precision.States = optimizer.States
	return nil
}

// resolveMTP leaves the model the modules of multi-token prediction that are trained.
func (j *Job) resolveMTP() error {
	s, n := &j.Recipe.Structure, int64(0)
	switch given := j.Train.MTPLayers; {
	case given != nil && (*given < 0 || *given > mostMTP):
		return diag.Errorf("train.mtp_layers: %d; give 0 to %d", *given, mostMTP)
	case given != nil && *given > 0 && s.MTP == recipe.NoMTP:
		return diag.Errorf("train.mtp_layers: recipe %s trains no multi-token prediction; leave it out, or use megatron-core", j.Recipe.Name)
	case given != nil:
		n = *given
	case s.MTP == recipe.ModelsMTP && j.Model.MTPLayers > 0:
		n = j.Model.MTPLayers
		j.Train.MTPLayers = &n
		j.note("train.mtp_layers", n, "the model's own, which the framework trains")
	case j.Model.MTPLayers > 0:
		j.note("train.mtp_layers", n, fmt.Sprintf("recipe %s leaves the model's %d out", j.Recipe.Name, j.Model.MTPLayers))
	}
	if n != j.Model.MTPLayers {
		own := *j.Model
		own.MTPLayers = n
		j.Model = &own
	}
	return nil
}

// resolveIndexer freezes an indexer that the framework does not train, and lets one be that
// has no loss.
func (j *Job) resolveIndexer() error {
	loss := j.Train.IndexerLoss
	if (j.Model.Compress != nil || j.Model.Streams > 1) && j.Recipe.Structure.Indexer != ops.AbsorbedIndexer {
		has := "attention to sums of tokens"
		if j.Model.Compress == nil {
			has = "residual streams beside one another (hc_mult)"
		}
		return diag.Errorf("runtime.recipe: %s has no %s; use %s", j.Recipe.Name, has, diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return r.Structure.Indexer == ops.AbsorbedIndexer })))
	}
	if j.Model.Indexer == nil {
		if loss != nil {
			return diag.Errorf("train.indexer_loss: %s has no indexer; leave it out", j.Model.Name)
		}
		return nil
	}
	own, x := *j.Model, *j.Model.Indexer
	switch j.Recipe.Structure.Indexer {
	case "":
		return diag.Errorf("runtime.recipe: %s has no attention to the keys that an indexer picks; use %s, or model_type deepseek_v3, whose attention is to all keys", j.Recipe.Name, diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return r.Structure.Indexer != "" })))
	case ops.AbsorbedIndexer:
		if _, ok := j.Hardware.Laws.Attention.Flavour["sparse"]; !ok {
			return diag.Errorf("hardware: %s has no kernels for attention to the keys that an indexer picks, which take Hopper or later; use recipe hf-eager, or another machine", gpuName(j.Hardware))
		}
		x.Idle = loss != nil && !*loss
	case ops.MaskedIndexer:
		if loss != nil && *loss {
			return diag.Errorf("train.indexer_loss: recipe %s does not train the indexer; leave it out, or use megatron-core", j.Recipe.Name)
		}
		x.Frozen = true
	}
	own.Indexer, j.Model = &x, &own
	return nil
}

// checkRouting checks how evenly a router is said to work.
func (j *Job) checkRouting() error {
	t := &j.Train
	if t.Routing == "" {
		return nil
	}
	if err := oneOf("train.routing", t.Routing, routings); err != nil {
		return err
	}
	switch {
	case j.Model.MoE == nil:
		return diag.Errorf("train.routing: %s, but the model has no experts; leave it out", t.Routing)
	case t.Imbalance > 0:
		return diag.Errorf("train.routing: %s, but train.expert_imbalance: %g says how even it is; leave one out", t.Routing, t.Imbalance)
	case t.Routing == InTurnRouting && j.Recipe.Programs["router_in_turn"] == nil:
		return diag.Errorf("train.routing: %s, but recipe %s has no such gate; use even, or recipe %s", t.Routing, j.Recipe.Name, having("router_in_turn"))
	case t.Capacity > 0 && t.Routing != EvenRouting:
		return diag.Errorf("train.routing: %s, but experts of equal capacity are balanced; leave it or train.expert_capacity out", t.Routing)
	}
	return nil
}

// checkCapacity checks the rows that every expert is padded to.
func (j *Job) checkCapacity() error {
	t := &j.Train
	switch {
	case t.Capacity == 0:
	case !(t.Capacity >= 0.1 && t.Capacity <= 1000):
		return diag.Errorf("train.expert_capacity: %g; rows of every expert over the mean, as in 1 or 1.25", t.Capacity)
	case j.Model.MoE == nil:
		return diag.Errorf("train.expert_capacity: %g, but the model has no experts; leave it out", t.Capacity)
	case t.Imbalance > 1:
		return diag.Errorf("train.expert_capacity: experts of equal capacity are balanced; leave train.expert_imbalance: %g out", t.Imbalance)
	case j.Runtime.TokenDispatcher == DeepEPDispatcher, j.Runtime.TokenDispatcher == FlexDispatcher && j.Hardware.Node.NVLinkDomain.Value <= j.Hardware.Node.GPUs.Value:
		return diag.Errorf("train.expert_capacity: DeepEP, which token_dispatcher %s is here, pads no experts to a capacity; leave it out, or use alltoall or hybridep", j.Runtime.TokenDispatcher)
	case j.Recipe.Programs["experts_capacity"] == nil:
		return diag.Errorf("train.expert_capacity: recipe %s pads no experts to a capacity; leave it out, or use megatron-core", j.Recipe.Name)
	}
	return nil
}

// resolveRecompute fills and checks what is recomputed.
func (j *Job) resolveRecompute() error {
	j.Train.Recompute = cmp.Or(j.Train.Recompute, ops.NoRecompute)
	if err := oneOf("train.recompute", string(j.Train.Recompute), Recomputes); err != nil {
		return err
	}
	return first(func() error { return checkKind(j.Train.Recompute, j.Recipe) }, j.checkModules, j.checkReentrant)
}

// checkReentrant refuses a word on how layers are recomputed where there is one way.
func (j *Job) checkReentrant() error {
	if given := j.Train.UseReentrant; given != nil && !j.Recipe.Structure.EarlyStop {
		return diag.Errorf("train.use_reentrant: %t, but recipe %s has no other way than its own; leave it out", *given, j.Recipe.Name)
	}
	return nil
}

// settleTrain takes what no plan changes of the training settings for given, and gives the
// model its sequences.
func (j *Job) settleTrain() error {
	t := &j.Train
	wide := j.Model.Position == model.RelativeBias && !j.Recipe.Structure.WrittenBiases // products in fp32 beside those of 16 bits
	if (t.Precision == tape.F32.String() || wide) && j.Runtime.TF32 == nil && j.Hardware.GPU.Peak.TF32.Value > 0 {
		j.note("runtime.tf32", j.TF32(), whyTF32(j.Recipe.Structure.PlainFP32))
	}
	g := &j.Given
	g.Optimizer, g.Precision, g.SequenceLength, g.Routing, g.Imbalance, g.Capacity = t.Optimizer, t.Precision, t.SequenceLength, t.Routing, t.Imbalance, t.Capacity
	g.LoRA, g.DocumentLength, g.Padding, g.Images, g.SourceLength = t.LoRA, t.DocumentLength, t.Padding, t.Images, t.SourceLength
	j.Model = j.Model.AtSequence(t.SequenceLength)
	return nil
}

// whyTF32 says why fp32 is multiplied as PyTorch does by default, or not.
func whyTF32(plain bool) string {
	if plain {
		return "the framework leaves PyTorch's default"
	}
	return "training scripts turn TF32 on; PyTorch's own default is false"
}

// checkRun checks what is said of the run: its settings, hosts and slow ranks, and the
// user's own measured runs.
func (j *Job) checkRun() error {
	if err := j.Run.Check(); err != nil {
		return err
	}
	if v := j.Runtime.Jitter; !(v >= 0 && v <= 1) {
		return diag.Errorf("runtime.jitter: %g is outside 0 to 1; give the standard deviation between ranks as a share, as in 0.01", v)
	}
	if v := j.Runtime.HostSpeed; v != 0 && !(v >= 0.05 && v <= 20) {
		return diag.Errorf("runtime.host_speed: %g is outside 0.05 to 20; give the speed of the CPUs over that of the machine's own, as in 0.7", v)
	}
	if v := j.Runtime.CPUThreads; v < 0 || v > 1024 {
		return diag.Errorf("runtime.cpu_threads: %d is outside 1 to 1024; give the threads of a rank (OMP_NUM_THREADS), or leave it out", v)
	}
	if err := j.Runtime.Slow().check(j.GPUs); err != nil {
		return err
	}
	return j.Runtime.OwnRuns.check(j)
}

// resolvePlan takes over the plan that was given, if that says into what the job is split.
func (j *Job) resolvePlan() error {
	p := j.GivenPlan
	if p != nil && p.Splits() {
		return j.TakeGiven()
	}
	j.Open = true
	if p != nil && p.Schedule != "" {
		if _, err := pipeline.Lookup(p.PipelineSchedule(j.Recipe)); err != nil {
			return diag.Errorf("plan.schedule: %v", err)
		}
	}
	if j.Given.GlobalBatch == 0 && j.Given.GradAccumulation == 0 {
		j.note("train.grad_accumulation", 1, fmt.Sprintf("default; with a pipeline %d for each stage", fillPipeline))
	}
	return nil
}

// TakeGiven gives a job its own plan, with defaults for what that leaves open.
func (j *Job) TakeGiven() error {
	if err := j.SetPlan(*j.GivenPlan); err != nil {
		return err
	}
	j.Unchosen = j.unchosen()
	if p := &j.Plan; p.PP > 1 && p.StageLayers == "" && j.Model.Indexer.Shared() {
		stages := p.SplitLayers(j.Model, j.Recipe, j.Model.Layers, p.modelStages(j.Recipe))
		j.note("plan.stage_layers", "["+list(stages)+"]", "each stage begins with a layer that picks its keys, which Megatron has by --pipeline-model-parallel-layout")
	}
	return nil
}

func oneOf(key, v string, known []string) error {
	if slices.Contains(known, v) {
		return nil
	}
	return diag.Errorf("%s: %q is not known%s", key, v, diag.DidYouMean(v, known))
}
