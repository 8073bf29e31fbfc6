package strategies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies/goodput"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// Job is what to estimate, resolved: every default is filled in and every rule
// holds. Plan.DP is 0 when the job leaves the plan open.
type Job struct {
	Model     *model.Spec
	ModelName string
	Hardware  *hardware.Profile
	GPUs      int64
	Runtime   Runtime
	Recipe    *recipe.Recipe
	Layers    *recipe.Recipe // of the layers, when another one (compile_scope: layer)
	Precision recipe.Precision
	Plan      Plan
	Open      bool  // no plan was given, or one that only says how it runs: the caller picks the rest
	GivenPlan *Plan // Plan before it was completed; nil: none was given
	Train     Train
	Given     Train // Train before the plan completed it: zero where the job leaves the choice open
	Run       goodput.Settings
	Assumed   []string // facts, by key or in words, that whoever wrote the job does not know
	Defaulted []string // "train.precision = bf16 (default of recipe megatron-core)"
	Unchosen  []string // the same of what is chosen where no plan is given, but was not, since one is

	leavesEncoder bool // the model has an encoder of images, which the job leaves out
}

// jobFile is the form of a job/v1 file and of one run of runs/v1.
type jobFile struct {
	Format   string      `yaml:"perfplan"`
	Model    modelRef    `yaml:"model"`
	Hardware hardwareRef `yaml:"hardware"`
	GPUs     int64       `yaml:"gpus"`
	Network  networkRef  `yaml:"network"`
	Runtime  Runtime     `yaml:"runtime"`
	Plan     *Plan       `yaml:"plan"`
	Train    Train       `yaml:"train"`

	Run     goodput.Settings `yaml:"run"`
	Assumed []string         `yaml:"assumed"`
}

type networkRef struct {
	BandwidthPerGPU units.Rate `yaml:"bandwidth_per_gpu"`
}

// modelRef decodes a catalog name, a path or an inline model.
type modelRef struct{ spec *model.Spec }

func (m *modelRef) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	var errs diag.List
	m.spec, errs = model.Decode(d, n)
	return errs
}

// hardwareRef decodes a catalog name, a path or an inline profile.
type hardwareRef struct{ profile *hardware.Profile }

func (h *hardwareRef) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	var err error
	if n.Kind == yaml.ScalarNode {
		name := n.Value
		if strings.ContainsAny(name, "/.") && !hardware.Known(name) {
			name = d.Path(n)
		}
		h.profile, err = hardware.Load(name)
	} else {
		h.profile, err = hardware.FromDocument(d, n, "inline")
	}
	return positioned(d, n, err)
}

// positioned gives an error without a place the place of n.
func positioned(d *yamlx.Document, n *yaml.Node, err error) diag.List {
	switch e := err.(type) {
	case nil:
		return nil
	case diag.List:
		return e
	case *diag.Error:
		if e.File == "" {
			return diag.List{d.Errorf(n, "%s", e.Message)}
		}
		return diag.List{e}
	}
	return diag.List{d.Errorf(n, "%v", err)}
}

// Defaults of what a job leaves out.
const (
	DefaultHardware = "h100-sxm"
	DefaultRecipe   = "megatron-core"
	defaultSequence = 4096

	fillPipeline     = 4         // micro batches for each stage of a pipeline, where none are given
	mostBatch        = 1 << 30   // sequences of a step: far more than anybody runs
	mostMicroBatch   = 1 << 16   // sequences of a micro batch on one GPU, likewise
	mostAccumulation = 1 << 16   // micro batches of a step, likewise
	mostBucket       = units.TiB // all gradients of any GPU are one bucket long before
	mostMTP          = 16        // modules of multi-token prediction, likewise
)

// Decode reads a job from a node. extra collects keys that are not part of a job
// (the id and measurements of a run), nil refuses them.
func Decode(d *yamlx.Document, n *yaml.Node) (*Job, error) {
	f, err := read(d, n)
	if err != nil {
		return nil, append(positioned(d, n, err), f.misnamed(d, n)...).Err()
	}
	j, err := f.resolve()
	if err != nil {
		return nil, append(positioned(d, yamlx.Place(n, err), err), f.misnamed(d, n)...).Err()
	}
	return j, nil
}

// misnamed complains of every name that does not exist. A job that is refused is looked
// through for them, so that they are not told one after another.
func (f *jobFile) misnamed(d *yamlx.Document, n *yaml.Node) (out diag.List) {
	check := func(given string, err error) {
		if given != "" && err != nil {
			out = append(out, positioned(d, yamlx.Place(n, err), err)...)
		}
	}
	attention, recompute := f.Runtime.Attention, f.Train.Recompute
	check(attention, oneOf("runtime.attention", attention, Attentions))
	check(string(recompute), oneOf("train.recompute", string(recompute), Recomputes))
	if f.Plan != nil {
		if _, err := pipeline.Lookup(f.Plan.Schedule); err != nil {
			check(f.Plan.Schedule, diag.Errorf("plan.schedule: %v", err))
		}
	}
	r, err := recipe.Load(cmp.Or(f.Runtime.Recipe, DefaultRecipe))
	check(f.Runtime.Recipe, err)
	if err != nil {
		return out
	}
	j := &Job{Recipe: r, Train: f.Train}
	if _, ok := r.Precision[f.Train.Precision]; !ok {
		check(f.Train.Precision, j.noPrecision())
	}
	if _, ok := r.Optimizer[f.Train.Optimizer]; !ok {
		check(f.Train.Optimizer, j.noOptimizer())
	}
	return out
}

// Malformed reports whether a job cannot even be read: a key or a name is unknown, a
// value is no such value. A job that can be read may still break a rule.
func Malformed(d *yamlx.Document, n *yaml.Node) bool {
	_, err := read(d, n)
	return err != nil
}

// read decodes the form of a job, of one that is refused as far as it can.
func read(d *yamlx.Document, n *yaml.Node) (*jobFile, error) {
	f := jobFile{Run: goodput.Defaults()}
	if errs := d.DecodeInto(n, &f); len(errs) > 0 {
		return &f, errs.Err()
	}
	if f.Format != "" && f.Format != "job/v1" {
		key, _ := yamlx.Key(n, "perfplan")
		return &f, d.Errorf(key, "perfplan: %q is not a job; expected job/v1", f.Format)
	}
	return &f, refuseZeros(d, n)
}

// taken says what a job leaves to this program.
func taken(key string, v any, why string) string { return fmt.Sprintf("%s = %v (%s)", key, v, why) }

// Defaults are what a job leaves to this program, and nobody chose.
func (j *Job) Defaults() []string { return slices.Concat(j.Defaulted, j.Unchosen) }

// unchosen are the settings that a job with a plan leaves to defaults. One without has
// most of them chosen, so that the two compare badly.
func (j *Job) unchosen() []string {
	const chosen = "default; chosen only where no plan is given"
	var out []string
	t := &j.Given
	if j.GivenPlan.DataParallel == "" && j.GPUs > 1 {
		out = append(out, taken("plan.data_parallel", j.Plan.DataParallel, "default of recipe "+j.Recipe.Name))
	}
	if t.MicroBatch == 0 && t.GlobalBatch > 0 && t.GradAccumulation > 0 {
		out = append(out, taken("train.micro_batch", j.Train.MicroBatch, "global_batch over grad_accumulation and dp"))
	} else if t.MicroBatch == 0 {
		out = append(out, taken("train.micro_batch", j.Train.MicroBatch, chosen))
	}
	if t.GlobalBatch == 0 && t.GradAccumulation == 0 {
		why := "default"
		if j.Plan.PP > 1 {
			why = fmt.Sprintf("default: %d for each pipeline stage", fillPipeline)
		}
		out = append(out, taken("train.grad_accumulation", j.Train.GradAccumulation, why))
	}
	if t.Recompute == "" {
		out = append(out, taken("train.recompute", j.Train.Recompute, chosen))
	}
	if t.UseReentrant == nil && t.Recompute == ops.FullRecompute && j.Recipe.Structure.EarlyStop && j.WholeLayers() {
		out = append(out, taken("train.use_reentrant", true, "default of transformers before 5"))
	}
	return out
}

// SetPlan completes a plan, checks it and gives it to the job.
func (j *Job) SetPlan(p Plan) error {
	s := j.shape()
	if err := p.Complete(s); err != nil {
		return err
	}
	if j.LinearLoss() != "" && (p.TP > 1 || p.PP > 1 && j.Recipe.Structure.TorchPipeline) {
		return diag.Errorf("runtime.fused_linear_cross_entropy: an output layer that is fused with the loss is neither cut over tensor ranks (tp %d) nor outside a pipeline's loss (pp %d); leave it out, or set both to 1", p.TP, p.PP)
	}
	if j.Liger() && p.TP > 1 {
		return diag.Errorf("runtime.liger_kernels: how these run on tensor ranks (tp %d) is not known; leave it out, or set plan.tp to 1", p.TP)
	}
	if a := j.Precision.Attention; p.CP > 1 && j.Precision.AttentionCopies() > 1 {
		return diag.Errorf("train.dtypes.attention: what context ranks (cp %d) exchange of %s is not known, of fp8 it is; leave it out, or set plan.cp to 1", p.CP, a)
	}
	if err := first(func() error { return j.checkAdapters(&p) }, func() error { return j.checkImages(&p) }, func() error { return j.checkEncodes(&p) }, func() error { return j.checkLayers(&p) }, func() error { return j.checkHeads(&p) }, func() error { return j.checkPaddedContexts(&p) }, func() error { return j.checkFlexContexts(&p) }); err != nil {
		return err
	}
	if n := j.Train.DocumentLength; n > 0 && p.CP > 1 && j.Recipe.Structure.Ring != ops.DocumentRing {
		return diag.Errorf("train.document_length: %d, but how recipe %s cuts documents over context ranks (cp %d) is not known; leave it out, set plan.cp to 1, or use megatron-core", n, j.Recipe.Name, p.CP)
	}
	t := j.Given
	if err := j.settle(&t, &p); err != nil {
		return err
	}
	s.Train = &t
	if err := p.Check(s); err != nil {
		return err
	}
	if err := first(func() error { return j.checkOverlaps(&p) }, func() error { return j.checkTrainerStages(&p) }, func() error { return j.checkHost(&p) }, j.checkOffloadRuntime); err != nil {
		return err
	}
	j.take(p, t)
	return nil
}

// Take gives a job a complete plan with which it breaks no rule, as SetPlan has found.
func (j *Job) Take(p Plan) {
	t := j.Given
	if err := j.settle(&t, &p); err != nil {
		panic(err) // SetPlan has asked the same
	}
	j.take(p, t)
}

// SameButBucket reports whether two jobs differ at most in the size of their buckets of gradients.
func (j *Job) SameButBucket(o *Job) bool {
	p := o.Plan
	p.Bucket = j.Plan.Bucket
	return j.Plan == p && j.Train == o.Train && j.Given == o.Given && j.Runtime == o.Runtime && j.Precision == o.Precision &&
		j.Model == o.Model && j.Hardware == o.Hardware && j.GPUs == o.GPUs && j.Recipe == o.Recipe && j.Layers == o.Layers
}

// take gives a job what it lacks, and the dtypes that follow from that.
func (j *Job) take(p Plan, t Train) {
	j.Plan, j.Train, j.Open = p, t, false
	j.Precision.Reduce, j.Precision.Gradients, j.Precision.Adapters = j.reduced(&p), j.gradients(&p), j.adapted(&p)
}

// settle fills what training settings leave open that follows from a plan.
func (j *Job) settle(t *Train, p *Plan) error {
	if t.Recompute == "" {
		t.Recompute = ops.NoRecompute
	}
	if methods := j.Recipe.RecomputeMethods; t.RecomputeNumLayers != nil && t.RecomputeMethod == "" && len(methods) > 0 {
		t.RecomputeMethod = RecomputeMethod(methods[0])
	}
	return t.complete(p)
}

// TF32 reports whether fp32 operands are multiplied in TF32: as the job says, else
// where the GPU has it and the recipe's framework turns it on. PyTorch leaves it off
// (torch.backends.cuda.matmul.allow_tf32, since 1.12), but most training scripts turn it on.
func (j *Job) TF32() bool {
	if t := j.Runtime.TF32; t != nil {
		return *t
	}
	return j.Hardware.GPU.Peak.TF32.Value > 0 && !j.Recipe.Structure.PlainFP32
}

// Expandable reports whether PyTorch's allocator has expandable segments: as the job says, else as
// the recipe's framework sets them (PYTORCH_ALLOC_CONF). PyTorch leaves them off.
func (j *Job) Expandable() bool {
	if e := j.Runtime.ExpandableSegments; e != nil {
		return *e
	}
	return j.Recipe.Expandable
}

// LinearLoss is the recipe's program for loss and output layer together, without all logits;
// "" where they are apart.
func (j *Job) LinearLoss() string {
	if !isOn(j.Runtime.FusedLinearCrossEntropy) {
		return ""
	}
	if own := j.Recipe.Structure.LinearLoss; own != "" && j.Runtime.CrossEntropyImpl == "" {
		return own
	}
	return linearLosses[j.Runtime.CrossEntropyImpl]
}

// HeldHead reports whether the unit of the head stays gathered for its backward pass: a loss by
// chunks makes the gradients of the head in the forward pass and shards it again after that, whatever
// the head was told (torchtitan, components/loss.py: set_reshard_after_forward(True), reshard).
func (j *Job) HeldHead() bool { return j.Recipe.Structure.HeldHead && j.Runtime.LossChunks <= 1 }

// NativeLoss reports whether the loss is fused by Megatron-Core's own compiled pieces.
func (j *Job) NativeLoss() bool {
	return isOn(j.Runtime.FusedCrossEntropy) && j.Runtime.CrossEntropyImpl == NativeLoss
}

// AsTheyAre reports whether logits, and scores of unfused attention, meet their softmax in the
// dtype that they were made in, but for autocast.
func (j *Job) AsTheyAre() bool {
	if up := j.Runtime.Upcast; up != nil {
		return !*up
	}
	return j.Recipe.Structure.AsTheyAre
}

// LossAlone reports whether a compiled graph returns its loss without the logits.
func (j *Job) LossAlone() bool {
	if r := j.Runtime.ReturnsLogits; r != nil {
		return !*r
	}
	return j.Recipe.Structure.LossAlone
}

// AdapterUnits reports whether FSDP1, PyTorch's, has each matrix of adapters as a unit of its own.
func (j *Job) AdapterUnits() bool {
	return j.Plan.adaptersApart(j.Model, j.Recipe) && (j.Plan.AdapterUnits == nil || *j.Plan.AdapterUnits)
}

// UnitCopies reports whether the shards of such units are of another dtype than what they are gathered in.
func (j *Job) UnitCopies() bool {
	shards := j.Train.DTypes.Adapters
	if !shards.Set {
		shards = j.Recipe.Precision[j.Train.Precision].Adapters
	}
	return j.AdapterUnits() && shards.Set && shards.DType != j.Precision.Gather.DType
}

// WholeLoss reports whether each tensor rank gathers all logits before the loss.
func (j *Job) WholeLoss() bool { return isOff(j.Runtime.LossParallel) || j.Recipe.Structure.WholeLoss }

// Unmixed reports whether the framework computes in the weights' dtype though the
// precision is a narrower one: it leaves mixed precision to FSDP, and tensor or pipeline
// ranks have nothing that FSDP shards.
func (j *Job) Unmixed() bool {
	p := &j.Plan
	return j.Recipe.Structure.ShardedMixed && j.Precision.Weights != j.Precision.Compute && p.TP*p.PP > 1 && !(p.DataParallel.ShardsParameters() && p.DP*p.CP > 1)
}

// SharesTable reports whether the head's rank reads the table of the embedding, too: for its
// logits, or for multi-token prediction.
func (j *Job) SharesTable() bool { return j.Model.Tied || j.Model.MTPLayers > 0 }

func (j *Job) shape() Shape {
	return Shape{Model: j.Model, Recipe: j.Recipe, GPUs: j.GPUs, Train: &j.Train, DTensor: j.Recipe.Structure.DTensor || j.Recipe.Structure.CopiedSums}
}

// GPU is the name of the machine's kind of GPU.
func (j *Job) GPU() string { return gpuName(j.Hardware) }

// gpuName is what messages call the GPU of a machine.
func gpuName(h *hardware.Profile) string { return cmp.Or(h.GPU.Name.Value, "the GPU") }

// complete fills micro batch, accumulation and global batch from each other.
func (t *Train) complete(p *Plan) error {
	if t.GlobalBatch > 0 {
		if passes := t.GradAccumulation * p.DP; t.MicroBatch == 0 && passes > 0 && t.GlobalBatch%passes == 0 {
			t.MicroBatch = t.GlobalBatch / passes
		} else if t.MicroBatch == 0 {
			t.MicroBatch = 1
		}
		per := t.MicroBatch * p.DP
		if t.GlobalBatch%per != 0 {
			return diag.Errorf("train.global_batch: %d sequences do not divide into micro batches of %d on %d replicas; use a multiple of %d, as in %d",
				t.GlobalBatch, t.MicroBatch, p.DP, per, max(t.GlobalBatch/per, 1)*per)
		}
		acc := t.GlobalBatch / per
		if acc > mostAccumulation {
			return diag.Errorf("train.global_batch: %d sequences are %d micro batches of %d on each of %d replicas; use at most %d of them, or larger ones", t.GlobalBatch, acc, t.MicroBatch, p.DP, mostAccumulation)
		}
		if t.GradAccumulation > 0 && t.GradAccumulation != acc {
			return diag.Errorf("train.grad_accumulation: %d × micro_batch %d × dp %d is %d, not the global_batch %d; leave one of them out",
				t.GradAccumulation, t.MicroBatch, p.DP, t.GradAccumulation*per, t.GlobalBatch)
		}
		t.GradAccumulation = acc
		return nil
	}
	if t.MicroBatch == 0 {
		t.MicroBatch = 1
	}
	if t.GradAccumulation == 0 {
		t.GradAccumulation = 1
		if p.PP > 1 {
			t.GradAccumulation = fillPipeline * p.PP
		}
	}
	t.GlobalBatch = t.MicroBatch * t.GradAccumulation * p.DP
	return nil
}

// SyncsEveryMicroBatch reports whether gradients are reduced after every micro batch
// instead of the last: as the plan says, else as the framework does. ZeRO-2 and
// ZeRO-3 hold no whole gradient that later micro batches could add to
// (deepspeed/runtime/engine.py, allreduce_gradients: stages that partition
// gradients reduce at every backward pass). PyTorch's pipelines reduce after the last
// one (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync).
func (j *Job) SyncsEveryMicroBatch() bool {
	if every := j.Plan.SyncEveryMicroBatch; every != nil {
		return *every
	}
	if j.Plan.ReducesOnce() {
		return false
	}
	kind := j.Plan.DataParallel
	o := &j.Recipe.Overlap
	return o.SyncEvery && j.Plan.PP <= 1 || o.SyncSharded && kind.ShardsParameters() || kind == ZeRO2 || kind == ZeRO3
}

// Tokens is the number of tokens of one step over all GPUs: of an encoder-decoder model those that
// either stack reads.
func (j *Job) Tokens() float64 {
	return float64(j.Train.GlobalBatch) * float64(j.Train.PerSequence())
}

// StepFLOPs are the model FLOPs of one step over all GPUs.
func (j *Job) StepFLOPs(causal bool) units.FLOPs {
	return j.Model.StepFLOPs(j.Train.GlobalBatch*j.Train.SequenceLength, j.Train.Attended(), causal)
}
