package strategies

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/goodput"
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
	Open      bool  // no plan was given: the caller picks one
	GivenPlan *Plan // Plan before it was completed; nil: none was given
	Train     Train
	Given     Train // Train before the plan completed it: zero where the job leaves the choice open
	Run       goodput.Settings
	Defaulted []string // "train.precision = bf16 (default of recipe megatron-core)"
	Unchosen  []string // the same of what is chosen where no plan is given, but was not, since one is
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

	Run goodput.Settings `yaml:"run"`
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
		if strings.ContainsAny(name, "/.") && !slices.Contains(hardware.Names(), name) {
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

	fillPipeline     = 4       // micro batches for each stage of a pipeline, where none are given
	mostBatch        = 1 << 30 // sequences of a step: far more than anybody runs
	mostAccumulation = 1 << 16 // micro batches of a step, likewise
	mostMTP          = 16      // modules of multi-token prediction, likewise
)

// Decode reads a job from a node. extra collects keys that are not part of a job
// (the id and measurements of a run), nil refuses them.
func Decode(d *yamlx.Document, n *yaml.Node) (*Job, error) {
	f, err := read(d, n)
	if err != nil {
		return nil, err
	}
	j, err := f.resolve()
	if err != nil {
		return nil, positioned(d, place(d, n, err), err).Err()
	}
	return j, nil
}

// Malformed reports whether a job cannot even be read: a key or a name is unknown, a
// value is no such value. A job that can be read may still break a rule.
func Malformed(d *yamlx.Document, n *yaml.Node) bool {
	_, err := read(d, n)
	return err != nil
}

// read decodes the form of a job.
func read(d *yamlx.Document, n *yaml.Node) (*jobFile, error) {
	f := jobFile{Run: goodput.Defaults()}
	if errs := d.DecodeInto(n, &f); len(errs) > 0 {
		return nil, errs.Err()
	}
	if f.Format != "" && f.Format != "job/v1" {
		key, _ := yamlx.Key(n, "perfplan")
		return nil, d.Errorf(key, "perfplan: %q is not a job; expected job/v1", f.Format)
	}
	return &f, refuseZeros(d, n)
}

// place finds the node that an error message names by its leading path, such as
// "plan.tp: …", so that the error points at it.
func place(d *yamlx.Document, n *yaml.Node, err error) *yaml.Node {
	path, _, ok := strings.Cut(err.Error(), ":")
	if !ok {
		return n
	}
	at := n
	for _, k := range strings.Split(path, ".") {
		_, v := yamlx.Key(at, k)
		if v == nil {
			break
		}
		at = v
	}
	return at
}

// resolve fills the defaults and checks the rules.
func (f *jobFile) resolve() (*Job, error) {
	j := &Job{Model: f.Model.spec, Hardware: f.Hardware.profile, GPUs: f.GPUs, Runtime: f.Runtime, Train: f.Train, Run: f.Run}
	if j.Model == nil {
		return nil, diag.Errorf("model: is missing; give a catalog name, a path or the keys of a config.json")
	}
	note := func(key string, v any, why string) { j.Defaulted = append(j.Defaulted, taken(key, v, why)) }
	var err error
	if j.Hardware == nil {
		if j.Hardware, err = hardware.Load(DefaultHardware); err != nil {
			return nil, err
		}
		note("hardware", DefaultHardware, "default")
	}
	j.ModelName = j.Model.Name
	if f.Network.BandwidthPerGPU > 0 {
		h := *j.Hardware
		h.Network.NICs = hardware.Of(h.Node.GPUs.Value)
		h.Network.NICBandwidth = hardware.Of(f.Network.BandwidthPerGPU)
		j.Hardware = &h
	}
	if j.GPUs == 0 {
		j.GPUs = j.Hardware.Node.GPUs.Value
		note("gpus", j.GPUs, "one node")
	}
	if j.GPUs < 1 || j.GPUs > 1<<20 {
		return nil, diag.Errorf("gpus: %d; give 1 to %d", j.GPUs, 1<<20)
	}
	if j.Runtime.Recipe == "" {
		j.Runtime.Recipe = DefaultRecipe
		note("runtime.recipe", DefaultRecipe, "default")
	}
	name := j.Runtime.Recipe
	switch j.Runtime.CompileScope {
	case "", "model", "layer":
	default:
		return nil, diag.Errorf("runtime.compile_scope: %q; use model or layer", j.Runtime.CompileScope)
	}
	if j.Recipe, err = recipe.Load(name); err != nil {
		return nil, err
	}
	if scope := j.Runtime.CompileScope; scope != "" && j.Recipe.Structure.CompiledScope == "" {
		return nil, diag.Errorf("runtime.compile_scope: recipe %s is not compiled; use recipe hf-compile or leave it out", name)
	} else if scope == "" {
		j.Runtime.CompileScope = j.Recipe.Structure.CompiledScope
	}
	if inner, ok := j.Recipe.Scopes[j.Runtime.CompileScope]; ok { // layers compiled one by one inside an eager model
		if j.Layers, err = recipe.Load(inner); err != nil {
			return nil, err
		}
		for j.Recipe.Structure.Compiled {
			if j.Recipe, err = recipe.Load(j.Recipe.Extends); err != nil {
				return nil, err
			}
		}
	}
	if j.Runtime.Release == 0 && j.Recipe.Release > 0 {
		j.Runtime.Release = j.Recipe.Release
		note("runtime.release", j.Recipe.Release, "the software that the recipe describes")
	}
	if r := j.Runtime.Release; r > 0 {
		j.Recipe = j.Recipe.At(r)
	}
	if r := cmp.Or(j.Runtime.Libraries, j.Runtime.Release); r > 0 {
		j.Hardware = j.Hardware.At(r)
	}
	if j.Runtime.LaunchBlocking == nil && j.hangs() {
		on := true
		j.Runtime.LaunchBlocking = &on
		note("runtime.launch_blocking", on, "the framework hung without at this size on such a network")
	}
	if j.Runtime.Attention == "" {
		j.Runtime.Attention = j.Recipe.Attention
		if !j.fuses() {
			note("runtime.attention", "unfused", fmt.Sprintf("%s does not run the %s attention of recipe %s", gpuName(j.Hardware), j.Runtime.Attention, j.Recipe.Name))
			j.Runtime.Attention = "unfused"
		}
	}
	if j.Runtime.FusedCrossEntropy == nil && j.Recipe.Structure.FusedLoss {
		on := true
		j.Runtime.FusedCrossEntropy = &on
		note("runtime.fused_cross_entropy", on, "the framework's own")
	}
	if j.LinearLoss() && j.Recipe.Programs["linear_cross_entropy"] == nil {
		return nil, diag.Errorf("runtime.fused_linear_cross_entropy: recipe %s has no loss in pieces; leave it out, or use hf-eager", j.Recipe.Name)
	}
	if err := oneOf("runtime.attention", j.Runtime.Attention, Attentions); err != nil {
		return nil, err
	}
	if !j.fuses() {
		others := []string{"unfused", "a GPU of the Ampere generation or later"}
		if j.Recipe.Attention == "sdpa" { // whose memory-efficient kernel runs on all of them
			others = append([]string{"sdpa"}, others...)
		}
		return nil, diag.Errorf("runtime.attention: %s, whose kernels %s does not run; use %s", j.Runtime.Attention, gpuName(j.Hardware), diag.Or(others))
	}
	if j.TF32() && j.Hardware.GPU.Peak.TF32.Value == 0 {
		return nil, diag.Errorf("runtime.tf32: %s has no tensor cores for TF32; leave it out, or use a GPU of the Ampere generation or later", gpuName(j.Hardware))
	}
	if g := j.Runtime.CUDAGraphs; g != "" {
		if err := oneOf("runtime.cuda_graphs", g, graphKinds); err != nil {
			return nil, err
		}
	}
	if err := j.setFusions(); err != nil {
		return nil, err
	}
	if err := j.checkExperts(); err != nil {
		return nil, err
	}
	j.Given, j.GivenPlan = f.Train, f.Plan
	if err := j.resolveTrain(note); err != nil {
		return nil, err
	}
	if j.Train.Precision == tape.F32.String() && j.Runtime.TF32 == nil && j.TF32() {
		note("runtime.tf32", true, "training scripts turn TF32 on; PyTorch's own default is false")
	}
	j.Given.Optimizer, j.Given.Precision, j.Given.SequenceLength, j.Given.Routing, j.Given.Imbalance, j.Given.Capacity, j.Given.LoRA, j.Given.DocumentLength = j.Train.Optimizer, j.Train.Precision, j.Train.SequenceLength, j.Train.Routing, j.Train.Imbalance, j.Train.Capacity, j.Train.LoRA, j.Train.DocumentLength
	j.Model = j.Model.AtSequence(j.Train.SequenceLength)
	if err := j.Run.Check(); err != nil {
		return nil, err
	}
	if v := j.Runtime.Jitter; !(v >= 0 && v <= 1) {
		return nil, diag.Errorf("runtime.jitter: %g; give the standard deviation between ranks as a share, as in 0.01", v)
	}
	if v := j.Runtime.HostSpeed; v != 0 && !(v >= 0.05 && v <= 20) {
		return nil, diag.Errorf("runtime.host_speed: %g is outside 0.05 to 20; give the speed of the CPUs over that of the machine's own, as in 0.7", v)
	}
	if err := j.Runtime.Stragglers.check(j.GPUs); err != nil {
		return nil, err
	}
	if err := j.Runtime.OwnRuns.check(j); err != nil {
		return nil, err
	}
	if f.Plan == nil {
		j.Open = true
		if f.Train.GlobalBatch == 0 && f.Train.GradAccumulation == 0 {
			note("train.grad_accumulation", 1, fmt.Sprintf("default; with a pipeline %d for each stage", fillPipeline))
		}
		return j, nil
	}
	if err := j.SetPlan(*f.Plan); err != nil {
		return j, err
	}
	j.Unchosen = j.unchosen()
	return j, nil
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
	if t.MicroBatch == 0 {
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
	return out
}

// fuses reports whether the GPU runs the job's attention. FlashAttention 2
// (csrc/flash_attn/flash_api.cpp) and Transformer Engine's fused attention
// (pytorch/attention/dot_product_attention/utils.py, get_attention_backend) need compute
// capability 8.0, FlashAttention 1 runs on Turing too (its README).
func (j *Job) fuses() bool {
	a := j.Runtime.Attention
	if a != "flash" && a != "flash-attn" {
		return true
	}
	gpu := j.Hardware.GPU.Architecture.Value
	return gpu != "volta" && (gpu != "turing" || j.Recipe.Flavour(a) == "flash1")
}

// hangs reports whether the framework does, unless the host waits for every kernel.
func (j *Job) hangs() bool {
	b, n, h := j.Recipe.Host.Blocking, j.Hardware.Node.GPUs.Value, &j.Hardware.Network
	return b.Nodes > 0 && j.GPUs >= b.Nodes*n && h.NICBandwidth.Value*units.Rate(h.NICs.Value)/units.Rate(n) <= b.Network && j.Model.Params().Total >= b.Parameters
}

// SetPlan completes a plan, checks it and gives it to the job.
func (j *Job) SetPlan(p Plan) error {
	s := j.shape()
	if err := p.Complete(s); err != nil {
		return err
	}
	if j.LinearLoss() && (p.TP > 1 || p.PP > 1 && j.Recipe.Structure.TorchPipeline) {
		return diag.Errorf("runtime.fused_linear_cross_entropy: Liger's output layer is neither cut over tensor ranks (tp %d) nor outside a pipeline's loss (pp %d); leave it out, or set both to 1", p.TP, p.PP)
	}
	if a := j.Precision.Attention; p.CP > 1 && j.Precision.AttentionCopies() > 1 {
		return diag.Errorf("train.dtypes.attention: what context ranks (cp %d) exchange of %s is not known, of fp8 it is; leave it out, or set plan.cp to 1", p.CP, a)
	}
	if err := j.setAdapters(&p); err != nil {
		return err
	}
	if n := j.Train.DocumentLength; n > 0 && p.CP > 1 {
		return diag.Errorf("train.document_length: %d, but how context ranks (cp %d) cut documents is not known; leave it out, or set plan.cp to 1", n, p.CP)
	}
	t := j.Given
	if t.Recompute == "" {
		t.Recompute = ops.NoRecompute
	}
	if methods := j.Recipe.RecomputeMethods; t.RecomputeNumLayers != nil && t.RecomputeMethod == "" && len(methods) > 0 {
		t.RecomputeMethod = RecomputeMethod(methods[0])
	}
	if err := t.complete(&p); err != nil {
		return err
	}
	s.Train = &t
	if err := p.Check(s); err != nil {
		return err
	}
	j.Plan, j.Train, j.Open = p, t, false
	return nil
}

// setAdapters checks that a plan splits adapters in a way that is known, and gives them their
// dtype: the recipe's, or that of the weights where these are sharded.
func (j *Job) setAdapters(p *Plan) error {
	if j.Model.LoRA == nil {
		return nil
	}
	given, weights := j.Train.DTypes.Adapters, j.Precision.Weights
	sharded := p.DataParallel.ShardsParameters()
	switch {
	case p.TP > 1 && !j.Recipe.Structure.SharedTPInput:
		return diag.Errorf("plan.tp: %d, but how recipe %s cuts adapters over tensor ranks is not known; set it to 1, or use megatron-core", p.TP, j.Recipe.Name)
	case sharded && j.Precision.Frozen.Set:
		return diag.Errorf("train.precision: %s, but how %s shards weights of %s is not known; use ddp", j.Train.Precision, p.DataParallel, j.Precision.Frozen)
	case sharded && given.Set && given.DType != weights.DType:
		return diag.Errorf("train.dtypes.adapters: %s, but %s shards parameters of one dtype, here %s; leave it out, or use ddp", given, p.DataParallel, weights)
	}
	own := j.Recipe.Precision[j.Train.Precision].Adapters
	switch {
	case given.Set:
		own = given
	case own.Set && sharded:
		own = weights
	}
	j.Precision.Adapters = own
	return nil
}

// TF32 reports whether fp32 operands are multiplied in TF32: as the job says, else
// where the GPU has it. PyTorch leaves it off (torch.backends.cuda.matmul.allow_tf32,
// since 1.12), but training scripts turn it on.
func (j *Job) TF32() bool {
	if t := j.Runtime.TF32; t != nil {
		return *t
	}
	return j.Hardware.GPU.Peak.TF32.Value > 0
}

// LinearLoss reports whether loss and output layer run in pieces, without logits.
func (j *Job) LinearLoss() bool {
	on := j.Runtime.FusedLinearCrossEntropy
	return on != nil && *on
}

// setFusions takes over which kernels of the recipe's own the job says it runs or does not.
func (j *Job) setFusions() error {
	permute, router, rope, relu := j.Runtime.PermuteFusion, j.Runtime.RouterFusion, j.Runtime.RopeFusion, j.Runtime.SquaredReLUFusion
	own, moe := *j.Recipe, j.Model.MoE
	switch {
	case permute == nil && router == nil && rope == nil && relu == nil:
		return nil
	case relu != nil && own.Programs["expert_relu2"] == nil:
		return diag.Errorf("runtime.squared_relu_fusion: recipe %s weighs experts' rows in one way; leave it out, or use megatron-core", own.Name)
	case relu != nil && (moe == nil || j.Model.Gated || j.Model.Activation != model.ReLU2):
		return diag.Errorf("runtime.squared_relu_fusion: %s has no experts that square a ReLU; leave it out", j.ModelName)
	case router != nil && moe == nil:
		return diag.Errorf("runtime.router_fusion: %s has no experts; leave it out", j.ModelName)
	case router != nil && own.Programs["router_"+string(moe.Router)+"_unfused"] == nil:
		return diag.Errorf("runtime.router_fusion: recipe %s chooses experts in one way; leave it out, or use megatron-core", own.Name)
	case rope != nil && own.Programs["rotary_apart"] == nil:
		return diag.Errorf("runtime.rope_fusion: recipe %s turns queries and keys in one way; leave it out, or use megatron-core", own.Name)
	case rope != nil && j.Model.Position != model.Rotary:
		return diag.Errorf("runtime.rope_fusion: %s has no rotary positions; leave it out", j.ModelName)
	}
	if permute != nil {
		own.Structure.UnfusedPermutation = !*permute
	}
	if router != nil {
		own.Structure.UnfusedRouter = !*router
	}
	if relu != nil {
		own.Structure.FusedReLU2 = *relu
	}
	if rope != nil && !*rope {
		own.Structure.UnfusedRotary, own.Structure.FusedRotary = true, false
	}
	j.Recipe = &own
	return nil
}

// checkExperts checks how experts' rows are to be moved and exchanged, and what of them is replayed.
func (j *Job) checkExperts() error {
	d, fused, overlap := j.Runtime.TokenDispatcher, j.Runtime.PermuteFusion, j.Runtime.EPOverlap != nil && *j.Runtime.EPOverlap
	able, flex := j.Recipe.Programs["experts_flex"] != nil, d != "" && d != AllToAllDispatcher
	switch {
	case j.Model.MoE != nil && !j.Model.Gated && (j.Recipe.Programs["expert_plain"] == nil || j.Recipe.Structure.UnfusedPermutation):
		return diag.Errorf("runtime.recipe: experts without a gate (gated_mlp: false) are known of megatron-core with fused permutation and of hf-eager, not of %s; take one of these, or give experts a gate", j.Recipe.Name)
	case overlap && !able:
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
	case flex && !able:
		return diag.Errorf("runtime.token_dispatcher: recipe %s has no %s dispatcher; leave it out, or use megatron-core", j.Recipe.Name, d)
	case flex && j.Recipe.Structure.UnfusedPermutation && fused == nil:
		return diag.Errorf("runtime.token_dispatcher: release %s of recipe %s has no %s dispatcher; leave it out, or name a later release", j.Runtime.Release, j.Recipe.Name, d)
	}
	return nil
}

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
	return Shape{Model: j.Model, Recipe: j.Recipe, GPUs: j.GPUs, Train: &j.Train, DTensor: j.Recipe.Structure.DTensor, NodeGPUs: j.Hardware.Node.GPUs.Value}
}

func oneOf(key, v string, known []string) error {
	for _, k := range known {
		if v == k {
			return nil
		}
	}
	return diag.Errorf("%s: %q is not known%s", key, v, diag.DidYouMean(v, known))
}

// multiplies reports whether the GPU does what a precision multiplies: fp32 on any
// GPU, what is narrower on tensor cores that take it (Volta and Turing: no bf16).
func (j *Job) multiplies(p recipe.Precision) bool {
	d := p.Operands()
	if _, ok := j.Hardware.Laws.GEMM.Scaled[d.String()]; d.DType == tape.FP8Block && !ok { // cuBLAS has the kernels on Hopper alone
		return false
	}
	return d.DType == tape.F32 || j.Hardware.GPU.Peak.Of(d.String()) > 0
}

// GPU is the name of the machine's kind of GPU.
func (j *Job) GPU() string { return gpuName(j.Hardware) }

// checkAttention holds train.dtypes.attention against what can multiply it.
func (j *Job) checkAttention() error {
	a, layers := j.Precision.Attention, j.Precision.Operands()
	if j.Precision.AttentionCopies() == 0 {
		return nil
	}
	where := "train.dtypes.attention: " + a.String()
	switch {
	case a.DType != layers.DType || a.Size() != tape.FP8.Size():
		return diag.Errorf("%s, but layers multiply in %s; attention multiplies in 8 bits as they do, or in %s where it is left out", where, layers, j.Precision.Compute)
	case !j.Recipe.Structure.NarrowAttn || j.Runtime.Attention != "flash":
		return diag.Errorf("%s, which %s attention of recipe %s does not read; leave it out, or use megatron-core with flash", where, j.Runtime.Attention, j.Recipe.Name)
	}
	if _, ok := j.Hardware.Laws.Attention.Flavour[a.String()]; !ok {
		return diag.Errorf("%s, whose kernels have no law on %s; leave it out", where, gpuName(j.Hardware))
	}
	return nil
}

// gpuName is what messages call the GPU of a machine.
func gpuName(h *hardware.Profile) string { return cmp.Or(h.GPU.Name.Value, "the GPU") }

// resolveMTP leaves the model the modules of multi-token prediction that are trained.
func (j *Job) resolveMTP(note func(string, any, string)) error {
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
		note("train.mtp_layers", n, "the model's own, which the framework trains")
	}
	if n != j.Model.MTPLayers {
		own := *j.Model
		own.MTPLayers = n
		j.Model = &own
	}
	return nil
}

// resolveTrain fills the training settings that do not depend on the plan.
func (j *Job) resolveTrain(note func(string, any, string)) error {
	t := &j.Train
	if t.SequenceLength == 0 {
		t.SequenceLength = defaultSequence
		if m := j.Model.MaxPositions; m > 0 && m < t.SequenceLength {
			t.SequenceLength = m
		}
		note("train.sequence_length", t.SequenceLength, "default")
	}
	if t.SequenceLength < 1 || t.SequenceLength > 1<<24 {
		return diag.Errorf("train.sequence_length: %d; give 1 to %d tokens", t.SequenceLength, 1<<24)
	}
	if m := j.Model.MaxPositions; j.Model.Position == model.LearnedPosition && m > 0 && t.SequenceLength > m {
		return diag.Errorf("train.sequence_length: %d exceeds the %d learned positions of the model; give 1 to %d", t.SequenceLength, m, m)
	}
	for _, c := range []struct {
		key     string
		v, most int64
	}{{"micro_batch", t.MicroBatch, mostBatch}, {"grad_accumulation", t.GradAccumulation, mostAccumulation}, {"global_batch", t.GlobalBatch, mostBatch}} {
		if c.v < 0 || c.v > c.most {
			return diag.Errorf("train.%s: %d; give 1 to %d", c.key, c.v, c.most)
		}
	}
	if t.Precision == "" {
		why := "default of recipe " + j.Recipe.Name
		t.Precision = j.Recipe.Default
		if t.LoRA != nil {
			t.Precision = cmp.Or(j.Recipe.AdapterPrecision, t.Precision)
		}
		if half, ok := j.Recipe.Precision[tape.F16.String()]; ok && !j.multiplies(j.Recipe.Precision[t.Precision]) && j.multiplies(half) {
			why = fmt.Sprintf("%s has no tensor cores for the %s of recipe %s", gpuName(j.Hardware), t.Precision, j.Recipe.Name)
			t.Precision = tape.F16.String()
		}
		note("train.precision", t.Precision, why)
	}
	precision, ok := j.Recipe.Precision[t.Precision]
	if !ok {
		known := make([]string, 0, len(j.Recipe.Precision))
		for k := range j.Recipe.Precision {
			known = append(known, k)
		}
		sort.Strings(known)
		remedy := "it has " + strings.Join(known, ", ")
		if t.Precision == tape.TF32.String() {
			remedy = "TF32 is a way to multiply fp32: use fp32, and leave runtime.tf32 on"
		}
		return diag.Errorf("train.precision: recipe %s has no %q; %s", j.Recipe.Name, t.Precision, remedy)
	}
	if precision.Adapters.Set && t.LoRA == nil {
		return diag.Errorf("train.precision: %s is that of adapters beside frozen weights; give train.lora, or use %s", t.Precision, j.Recipe.Default)
	}
	j.Precision = t.DTypes.Apply(precision)
	if h, layers := j.Precision.Head, j.Precision.Operands(); h.Set && h.DType != j.Precision.Compute.DType && h.DType != layers.DType {
		return diag.Errorf("train.dtypes.head: %s, but layers multiply in %s; the output layer multiplies as they do, or in %s where it is left out", h, layers, j.Precision.Compute)
	}
	if err := j.checkAttention(); err != nil {
		return err
	}
	if !j.multiplies(j.Precision) {
		var others []string
		for _, k := range slices.Sorted(maps.Keys(j.Recipe.Precision)) {
			if j.multiplies(j.Recipe.Precision[k]) {
				others = append(others, k)
			}
		}
		return diag.Errorf("train.precision: %s multiplies in %s, which %s has no tensor cores for; use %s", t.Precision, j.Precision.Operands(), gpuName(j.Hardware), diag.Or(append(others, "another GPU")))
	}
	if t.ReduceDType.Set {
		j.Precision.Reduce = t.ReduceDType
		if j.Recipe.Structure.ReduceSetsAll && t.ReduceDType.DType.Size() == 2 { // llm-foundry's PURE: everything in 16 bits
			j.Precision.Gradients = t.ReduceDType
		}
	}
	if t.Optimizer == "" {
		t.Optimizer = j.Recipe.DefaultOptimizer
	}
	optimizer, ok := j.Recipe.Optimizer[t.Optimizer]
	if !ok {
		known := make([]string, 0, len(j.Recipe.Optimizer))
		for k := range j.Recipe.Optimizer {
			known = append(known, k)
		}
		sort.Strings(known)
		return diag.Errorf("train.optimizer: recipe %s has no %q; it has %s", j.Recipe.Name, t.Optimizer, strings.Join(known, ", "))
	}
	if optimizer.Moments != nil {
		j.Precision.Without = 2 - *optimizer.Moments
	}
	if t.Recompute == "" {
		t.Recompute = ops.NoRecompute
	}
	switch m := j.Model.MoE; {
	case t.Imbalance == 0:
	case m == nil:
		return diag.Errorf("train.expert_imbalance: %g, but the model has no experts; leave it out", t.Imbalance)
	case !(t.Imbalance >= 1 && t.Imbalance*float64(m.TopK) <= float64(m.Experts)):
		most := math.Floor(1e3*float64(m.Experts)/float64(m.TopK)) / 1e3
		return diag.Errorf("train.expert_imbalance: %g; give tokens of the busiest expert rank over the mean, 1 to %g where each goes to %d of %d experts", t.Imbalance, most, m.TopK, m.Experts)
	}
	if err := j.resolveMTP(note); err != nil {
		return err
	}
	if err := j.resolveLoRA(note); err != nil {
		return err
	}
	if err := j.checkDocuments(); err != nil {
		return err
	}
	if t.Routing != "" {
		if err := oneOf("train.routing", t.Routing, routings); err != nil {
			return err
		}
	}
	switch {
	case t.Routing == "":
	case j.Model.MoE == nil:
		return diag.Errorf("train.routing: %s, but the model has no experts; leave it out", t.Routing)
	case t.Imbalance > 0:
		return diag.Errorf("train.routing: %s, but train.expert_imbalance: %g says how even it is; leave one out", t.Routing, t.Imbalance)
	case t.Capacity > 0 && t.Routing != EvenRouting:
		return diag.Errorf("train.routing: %s, but experts of equal capacity are balanced; leave it or train.expert_capacity out", t.Routing)
	}
	switch {
	case t.Capacity == 0:
	case !(t.Capacity >= 0.1 && t.Capacity <= 1000):
		return diag.Errorf("train.expert_capacity: %g; rows of every expert over the mean, as in 1 or 1.25", t.Capacity)
	case j.Model.MoE == nil:
		return diag.Errorf("train.expert_capacity: %g, but the model has no experts; leave it out", t.Capacity)
	case t.Imbalance > 1:
		return diag.Errorf("train.expert_capacity: experts of equal capacity are balanced; leave train.expert_imbalance: %g out", t.Imbalance)
	case j.Recipe.Programs["experts_capacity"] == nil:
		return diag.Errorf("train.expert_capacity: recipe %s pads no experts to a capacity; leave it out, or use megatron-core", j.Recipe.Name)
	}
	if err := oneOf("train.recompute", string(t.Recompute), Recomputes); err != nil {
		return err
	}
	return j.checkModules()
}

// complete fills micro batch, accumulation and global batch from each other.
func (t *Train) complete(p *Plan) error {
	if t.GlobalBatch > 0 {
		if t.MicroBatch == 0 {
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
// gradients reduce at every backward pass).
func (j *Job) SyncsEveryMicroBatch() bool {
	if every := j.Plan.SyncEveryMicroBatch; every != nil {
		return *every
	}
	kind := j.Plan.DataParallel
	o := &j.Recipe.Overlap
	return o.SyncEvery || o.SyncSharded && kind.ShardsParameters() || kind == ZeRO2 || kind == ZeRO3
}

// Tokens is the number of tokens of one step over all GPUs.
func (j *Job) Tokens() float64 {
	return float64(j.Train.GlobalBatch) * float64(j.Train.SequenceLength)
}
