package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/search"
)

// Estimate is a prediction with what belongs beside it.
type Estimate struct {
	Result   *estimate.Result
	Choice   *search.Choice  // when the job left its plan open
	Remedies []search.Remedy // when the job does not fit
	Tried    int64           // the most GPUs on which remedies were looked for
	Given    *yaml.Node      // the job as the user wrote it, flags applied; may be nil
}

// page is the prediction for people: the answer first, then where the time and the
// memory go, then what was taken for granted.
func (e *Estimate) page() *page {
	r := e.Result
	p := &page{title: e.title()}
	p.add(e.answer())
	p.section("Where the time goes", timeGrid(r), paragraph(phases(r)))
	p.section(memoryTitle(r), memoryGrid(r))
	if len(r.Stages) > 1 {
		p.section("Pipeline stages", stageGrid(r), paragraph(bubbles(r)))
	}
	if r.Waiting != nil {
		p.section("Stragglers", waitingFields(r))
	}
	if e.Choice != nil && len(e.Choice.Others) > 0 {
		p.section("The next best simple plans", choiceGrid(e.Choice), paragraph(rankedAll+"."))
	}
	switch {
	case len(e.Remedies) > 0:
		p.section("What would make it fit", e.remedies()...)
	case !r.Memory.Fits:
		p.section("What would make it fit", paragraph(e.noRemedy()))
	}
	p.section("Job", jobFields(r.Job))
	notes(p, r.Job, e.notes())
	return p
}

// notes are those of the prediction, and that a plan was picked which leaves less of the
// memory than perfplan plan asks for.
func (e *Estimate) notes() []diag.Note {
	m := &e.Result.Memory
	free := 1 - float64(m.DeviceUsed/m.Capacity)
	if e.Choice == nil || !m.Fits || free >= search.DefaultHeadroom {
		return e.Result.Notes
	}
	return append(slices.Clip(e.Result.Notes), diag.Note{Code: "memory.headroom", Text: fmt.Sprintf("the fastest simple plan that fits leaves %s of the memory free, less than predictions are off by; perfplan plan keeps %s, and may name a slower plan", percent(free), percent(search.DefaultHeadroom)),
		Remedy: "take a plan that leaves more, or have perfplan plan take all by --min-headroom 0"})
}

// noRemedy says what was looked for in vain, and who looks further.
func (e *Estimate) noRemedy() string {
	tried := "no one or two changes of the job"
	if e.Tried > e.Result.Job.GPUs {
		tried += fmt.Sprintf(", and no more GPUs up to %s, alone or with one change", thousands(float64(e.Tried)))
	}
	return "Nothing that was tried: " + tried + ". " + triedAll + "."
}

func (e *Estimate) title() string {
	j := e.Result.Job
	return fmt.Sprintf("%s on %d × %s, %s", j.ModelName, j.GPUs, j.Hardware.Name, recipeName(j))
}

// recipeName is what the job calls its recipe, of which layers compiled one by one have another around them.
func recipeName(j *strategies.Job) string {
	if j.Layers == nil {
		return j.Recipe.Name
	}
	return j.Runtime.Recipe + " by layers"
}

// answer is what a reader in a hurry wants.
func (e *Estimate) answer() fields {
	r := e.Result
	f := fields{
		{"Plan", e.planText()},
		{"Step time", r.StepTime.String() + rangeText(r)},
		{"Bound by", boundText(r.Bound)},
		{"Throughput", fmt.Sprintf("%s tokens/s per GPU, %s tokens/s in all", thousands(r.TokensPerSecond), thousands(r.TokensPerSecond*float64(r.Job.GPUs)))},
		{"MFU", mfuText(r)},
	}
	if r.HFU != r.MFU {
		f = append(f, [2]string{"HFU", percent(r.HFU) + " with recomputation"})
	}
	f = append(f, [2]string{"Memory", fitText(&r.Memory)})
	if h := r.Memory.Host; h > 0 {
		f = append(f, [2]string{"Host memory", hostText(h, r.Job.Hardware.Node.HostMemory.Value)})
	}
	if r.Power > 0 {
		f = append(f, [2]string{"Power", fmt.Sprintf("%s per GPU on average at %s; %s per step and GPU", r.Power, r.Clock, r.Energy)})
	}
	return f
}

func (e *Estimate) planText() string {
	s := settings(e.Result.Job)
	if c := e.Choice; c != nil && c.Legal == 1 {
		s += "; the only simple plan"
	} else if c != nil && e.Result.Memory.Fits {
		s += fmt.Sprintf("; the fastest of %s", plural(c.Legal, "simple plan"))
		if e.Result.Waiting != nil {
			s += " without stragglers"
		}
	} else if c != nil {
		s += fmt.Sprintf("; none of %s fits, this one lacks least", plural(c.Legal, "simple plan"))
	}
	return s
}

func rangeText(r *estimate.Result) string {
	if r.Low <= 0 || r.High <= 0 {
		return ""
	}
	return fmt.Sprintf(", with 80 %% confidence %s to %s", r.Low, r.High)
}

var boundNames = map[string]string{
	"compute": "compute (matrix products and attention)", "memory": "memory bandwidth (elementwise kernels and norms)",
	"communication": "exposed communication", "host": "the host, which launches too slowly",
	"host_update": "the host, which updates the parameters", "bubble": "the pipeline bubble",
}

func boundText(b string) string { return cmp.Or(boundNames[b], b) }

// mfuText states the convention of attention FLOPs, without which an MFU says little.
func mfuText(r *estimate.Result) string {
	if r.Job.Model.Bidirectional {
		return fmt.Sprintf("%s: %s of %s TFLOP/s (attention of all pairs)", percent(r.MFU), teraflops(modelRate(r)), teraflops(r.Peak))
	}
	return fmt.Sprintf("%s: %s of %s TFLOP/s (attention causal; %s if full)", percent(r.MFU), teraflops(modelRate(r)), teraflops(r.Peak), percent(fullMFU(r)))
}

// countedAttention is which pairs of tokens the MFU counts.
func countedAttention(r *estimate.Result) string {
	if r.Job.Model.Bidirectional {
		return "full"
	}
	return "causal"
}

// modelRate is model FLOPs per second of one GPU.
func modelRate(r *estimate.Result) units.FLOPRate {
	return r.ModelFLOPs.Per(r.StepTime) / units.FLOPRate(r.Job.GPUs)
}

// fullMFU is the MFU of sources that count attention without its mask.
func fullMFU(r *estimate.Result) float64 {
	if r.ModelFLOPs == 0 {
		return 0
	}
	full := r.Job.StepFLOPs(false)
	return r.MFU * float64(full/r.ModelFLOPs)
}

// tight is the share of the memory that predictions of the memory used were off by on
// average over the measured runs (docs/validation.md, device used): what fits by less
// may not.
const tight = 0.05

func fitText(m *estimate.Memory) string {
	s := fmt.Sprintf("%s of %s GiB per GPU", gibibytes(m.DeviceUsed), gibibytes(m.Capacity))
	if m.Fits {
		free := m.Capacity - m.DeviceUsed
		s += fmt.Sprintf(": fits, %s GiB free", gibibytes(free))
		if float64(free) < tight*float64(m.Capacity) {
			s += ", less than the usual error"
		}
		return s
	}
	return s + fmt.Sprintf(": DOES NOT FIT, %s too much", excess(m))
}

// excess is what a job lacks: in GiB as elsewhere, unless that would round it to nothing.
func excess(m *estimate.Memory) string {
	lacks := m.DeviceUsed - m.Capacity
	if lacks < worthARow {
		return lacks.String()
	}
	return gibibytes(lacks) + " GiB"
}

// hostText is what is left to a host, of what it has where that is known.
func hostText(used, capacity units.Bytes) string {
	if capacity > 0 {
		return fmt.Sprintf("%s of %s GiB per node", gibibytes(used), gibibytes(capacity))
	}
	return gibibytes(used) + " GiB per node"
}

// part is one share of the step.
type part struct {
	name, key string
	time      units.Seconds
	inner     []part
}

// parts lists where the step time goes; they add up to it. Communication has its
// groups inside.
func parts(r *estimate.Result) []part {
	p := &r.Parts
	times := []units.Seconds{p.GEMM, p.Attention, p.Memory, p.Gaps, p.Contention, p.Exposed, p.Host, p.Update, p.Bubble}
	out := make([]part, len(timeNames))
	for i, n := range timeNames {
		out[i] = part{n[1], n[0], times[i], nil}
		if n[0] == "exposed_comm" {
			out[i].inner = exposed(r)
		}
	}
	return out
}

// timeNames are the parts of the step, in their order: key and what people read.
var timeNames = [][2]string{
	{"gemm", "matrix products"}, {"attention", "attention"}, {"memory_bound", "memory-bound kernels"}, {"gaps", "optimizer, copies, gaps"},
	{"contention", "slowed by overlap"}, {"exposed_comm", "exposed communication"}, {"host", "waiting for the host"},
	{"host_update", "update on the host"}, {"bubble", "pipeline bubble"},
}

// exposed lists the groups that communicate in the open, largest first.
func exposed(r *estimate.Result) []part {
	var out []part
	for g, t := range r.Exposed {
		if t >= negligible {
			out = append(out, part{name: g, key: g, time: t})
		}
	}
	slices.SortFunc(out, func(a, b part) int {
		return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.key, b.key))
	})
	return out
}

// negligible parts are left out of what people read: no kernel is so short.
const negligible = 1e-9

func timeGrid(r *estimate.Result) *grid {
	g := &grid{bars: true, columns: []column{{}, {right: true}, {right: true, drop: 1}}}
	for _, p := range parts(r) {
		if p.time < negligible && p.time > -negligible {
			continue
		}
		share := float64(p.time / r.StepTime)
		g.lines = append(g.lines, line{cells: []string{p.name, p.time.String(), percent(share)}, share: share})
		for _, q := range p.inner {
			g.lines = append(g.lines, line{cells: []string{q.name, q.time.String(), percent(float64(q.time / r.StepTime))}, level: 1})
		}
	}
	g.lines = append(g.lines, line{cells: []string{"step", r.StepTime.String(), "100.0 %"}, sum: true})
	return g
}

// phases is the step in order, and how well communication hides.
func phases(r *estimate.Result) string {
	s := fmt.Sprintf("forward %s, backward %s, optimizer %s", r.Forward, r.Backward, r.Optimizer)
	if r.Overlap != nil {
		s += fmt.Sprintf("; %s of data-parallel communication hidden", percent(*r.Overlap))
	}
	return s
}

func memoryTitle(r *estimate.Result) string {
	of := "one GPU"
	if len(r.Stages) > 1 {
		of = "the fullest GPU"
	}
	return "Memory of " + of + ", in GiB"
}

var memoryNames = map[string]string{
	"optimizer": "optimizer states", "logits_loss": "logits and loss", "weight_copies": "weights cast or quantized", "gathered_and_buckets": "gathered shards, buckets",
	"rounding": "rounding to blocks", "cuda_context": "CUDA context", "nccl": "NCCL", "allocator_slack": "allocator slack",
}

func memoryName(key string) string {
	return cmp.Or(memoryNames[key], strings.ReplaceAll(key, "_", " "))
}

// memoryRow is what a job keeps under a key: which of its weights are quantized decides what
// the parameters are, and what their copies.
func memoryRow(j *strategies.Job, key string) string {
	narrow := j.Precision.GEMM
	switch quantized := narrow.Set && narrow.Narrow() && j.Recipe.Structure.MainGradients; { // by others for the moment only
	case !quantized && key == memory.WeightCopies.String():
		return "weights cast for compute"
	case !quantized:
	case key == memory.Parameters.String() && estimate.QuantizedAlone(j):
		return "parameters in " + j.Precision.Weights.String()
	case key == memory.WeightCopies.String() && estimate.QuantizedAlone(j):
		return "weights in " + narrow.String()
	case key == memory.WeightCopies.String():
		return "weights' copies in " + narrow.String()
	}
	return memoryName(key)
}

// worthARow is the least of a class that is shown, as 0.01 GiB.
const worthARow = units.GiB / 200

func memoryGrid(r *estimate.Result) *grid {
	m := &r.Memory
	g := &grid{bars: true, columns: []column{{}, {right: true}, {right: true, drop: 1}}}
	add := func(name string, b units.Bytes, sum bool) {
		share := float64(b / m.Capacity)
		l := line{cells: []string{name, gibibytes(b), percent(share)}, sum: sum}
		if !sum {
			l.share = share
		}
		g.lines = append(g.lines, l)
	}
	for c, b := range m.By {
		if b >= worthARow {
			add(memoryRow(r.Job, memory.Class(c).String()), b, false)
		}
	}
	peak := "peak allocated"
	if m.Moment != "" {
		peak += " (" + m.Moment + ")"
	}
	add(peak, m.PeakAllocated, true)
	for _, o := range m.Outside {
		add(memoryName(o.Name), o.Bytes, false)
	}
	add("used on the device", m.DeviceUsed, true)
	add("capacity", m.Capacity, true)
	return g
}

// mostStages is how many stages are printed before the middle ones are left out.
const mostStages = 16

func stageGrid(r *estimate.Result) *grid {
	g := &grid{columns: []column{{title: "rank", right: true}, {title: "layers", right: true}, {title: "parameters", right: true, drop: 3}, {title: "forward", right: true, drop: 4},
		{title: "backward", right: true, drop: 4}, {title: "busy", right: true}, {title: "bubble", right: true}, {title: "clock", right: true, drop: 2}, {title: "peak GiB", right: true}}}
	for i, s := range r.Stages {
		if n := len(r.Stages); n > mostStages && i >= mostStages/2 && i < n-mostStages/2 {
			if i == mostStages/2 {
				g.row("…", "", "", "", "", "", "", "", "")
			}
			continue
		}
		g.row(integer(int64(s.Rank)), integer(s.Layers), units.Count(float64(s.Params)), s.Forward.String(), s.Backward.String(),
			s.Busy.String(), s.Bubble.String(), s.Clock.String(), gibibytes(s.PeakAllocated))
	}
	return g
}

// bubbles says what the bubbles of the stages are beside that of the step, which is one of
// them without transfers.
func bubbles(r *estimate.Result) string {
	busiest := r.Stages[0]
	for _, s := range r.Stages {
		if s.Busy > busiest.Busy*(1+1e-9) { // as the estimate has it: equal but for the last digit is equal
			busiest = s
		}
	}
	return fmt.Sprintf("busy: in passes of its own; bubble: what is left of the pipeline's time, transfers included, %s of it for the average stage. Where the time goes is said of rank %d, the busiest.", percent(r.Bubble), busiest.Rank)
}

// waitingFields is what stragglers cost, and who waits for them.
func waitingFields(r *estimate.Result) fields {
	w := r.Waiting
	var f fields
	for _, s := range r.Job.Runtime.Slow() {
		text := ""
		if s.Slowdown > 0 {
			text = fmt.Sprintf("kernels take %g times as long", s.Slowdown)
		}
		if s.Link > 0 {
			text = strings.TrimPrefix(text+fmt.Sprintf(", its collectives take %g times as long", s.Link), ", ")
		}
		f = append(f, [2]string{fmt.Sprintf("Rank %d", s.Rank), text})
	}
	f = append(f, [2]string{"Lost", fmt.Sprintf("%s of the throughput: the step takes %s instead of %s", percent(w.Lost), r.StepTime, w.Healthy)})
	for i, g := range w.Groups {
		label := ""
		if i == 0 {
			label = "Waiting"
		}
		f = append(f, [2]string{label, fmt.Sprintf("%s (%s): %s more per step, %s", plural(int(g.GPUs), "GPU"), g.Who, w.Each, g.Where)})
	}
	return f
}

// settings says what a candidate chose beside its plan.
func settings(j *strategies.Job) string {
	s := planOf(j)
	if every := j.Plan.SyncEveryMicroBatch; every != nil && *every {
		s += ", " + reducedEvery
	}
	return s
}

// planOf is a plan without its extras, with what is computed at once and twice.
func planOf(j *strategies.Job) string {
	s := fmt.Sprintf("%s, micro batch %d", j.Plan.String(), j.Train.MicroBatch)
	if j.Train.Recompute != "none" {
		s += ", " + j.Train.RecomputeText() + " recomputation"
	}
	return s
}

// mostOthers is how many runners-up are shown.
const mostOthers = 5

// choiceGrid lists the runners-up; their batch in place of the step time, which says
// nothing, when it is not that of all.
func choiceGrid(c *search.Choice) *grid {
	others := c.Others[:min(mostOthers, len(c.Others))]
	batch := slices.ContainsFunc(others, func(o search.Candidate) bool { return o.Job.Train.GlobalBatch != c.Job.Train.GlobalBatch })
	g := &grid{columns: []column{{title: "plan", flex: 52}, {title: "batch", right: true, drop: 1}, {title: "step", right: true, drop: 1}, {title: "tokens/s/GPU", right: true}, {title: "used GiB", right: true, drop: 2}}}
	for _, o := range others {
		sequences, step := "-", o.Result.StepTime.String()
		if batch {
			sequences, step = integer(o.Job.Train.GlobalBatch), "-"
		}
		g.row(settings(o.Job), sequences, step, thousands(o.Result.TokensPerSecond), gibibytes(o.Result.Memory.DeviceUsed))
	}
	return g.withoutEmpty()
}

// remedies lists what would make a job fit, with the batches where these are not the job's.
func (e *Estimate) remedies() []piece {
	before := e.Result
	g := &grid{columns: []column{{title: "add"}, {title: "batch", right: true, drop: 1}, {title: "tokens/s/GPU", right: true}, {title: "change", right: true}, {title: "used GiB", right: true}}}
	batches := slices.ContainsFunc(e.Remedies, func(r search.Remedy) bool { return r.Candidate.Job.Train.GlobalBatch != before.Job.Train.GlobalBatch })
	for _, r := range e.Remedies {
		after, batch := r.Candidate.Result, "-"
		if batches {
			batch = thousands(float64(r.Candidate.Job.Train.GlobalBatch))
		}
		change := after.TokensPerSecond/before.TokensPerSecond - 1
		g.row("--set "+strings.Join(r.Set, " --set "), batch, thousands(after.TokensPerSecond), signed(change), gibibytes(after.Memory.DeviceUsed))
	}
	out := []piece{g.withoutEmpty()}
	if e.Choice != nil {
		out = append(out, paragraph(triedAll+"."))
	}
	if batches {
		out = append(out, paragraph(fmt.Sprintf("The job names no global batch, and with these it has another than its %s; %s to hold it.", plural(int(before.Job.Train.GlobalBatch), "sequence"), giveBatch)))
	}
	return out
}

// jobFields is the job as resolved.
func jobFields(j *strategies.Job) fields {
	count := j.Model.Params()
	params := units.Count(float64(count.Total)) + " parameters"
	if count.Sparse() {
		params += ", " + units.Count(float64(count.Active)) + " active per token"
	}
	if count.Trained != count.Total {
		params += ", " + units.Count(float64(count.Trained)) + " trained"
	}
	t := &j.Train
	f := fields{
		{"Model", j.ModelName + ", " + params},
		{"Hardware", hardwareText(j)},
		{"Runtime", runtimeText(j)},
		{"Batch", batchText(j)},
		{"Numbers", fmt.Sprintf("%s (%s), %s", t.Precision, precisionText(j), t.Optimizer)},
		{"Recompute", recomputeText(t)},
	}
	if ends := j.Model.WideEnds; ends != [2]int64{} {
		f = append(f, [2]string{"In 16 bits", fmt.Sprintf("products of the first %d and the last %d layers", ends[0], ends[1])})
	}
	if t.OffloadActivations {
		f = append(f, [2]string{"On the host", "activations of all layers"})
	}
	if n := t.OffloadLayers; n > 0 {
		f = append(f, [2]string{"On the host", fmt.Sprintf("activations of the first %s", plural(int(n), "layer"))})
	}
	if m := t.OffloadModules; m > 0 {
		f = append(f, [2]string{"On the host", "activations of " + m.String()})
	}
	if l := t.LoRA; l != nil {
		f = append(f, [2]string{"Adapters", loraText(l)})
	}
	if i := t.Images; i != nil {
		f = append(f, [2]string{"Images", imagesText(j.Model.Vision, i)})
	}
	return f
}

// runtimeText is the framework with the switches that a job sets beside its own.
func runtimeText(j *strategies.Job) string {
	r := &j.Runtime
	s := fmt.Sprintf("%s, %s attention", r.Recipe, r.Attention)
	if r.SDPAKernel != "" {
		s += ", sdpa_kernel " + r.SDPAKernel
	}
	for _, x := range []struct {
		name string
		on   *bool
	}{{"upcast", r.Upcast}, {"fused_linear_cross_entropy", r.FusedLinearCrossEntropy}, {"loss_parallel", r.LossParallel}, {"shared_tp_input", r.SharedTPInput}, {"vocab_parallel", r.VocabParallel}, {"tp_overlap", r.TPOverlap}, {"overlap_grad_reduce", r.OverlapGradReduce}, {"overlap_param_gather", r.OverlapParamGather}, {"ep_overlap", r.EPOverlap}, {"permute_fusion", r.PermuteFusion}, {"router_fusion", r.RouterFusion}, {"gate_fusion", r.GateFusion}, {"gradient_fusion", r.GradientFusion}, {"rope_fusion", r.RopeFusion}, {"norm_fusion", r.NormFusion}, {"cast_rotary", r.CastRotary}, {"enable_gqa", r.EnableGQA}, {"zero_init", r.ZeroInit}, {"qkv_rope_fusion", r.QKVRopeFusion}, {"op_fuser", r.OpFuser}, {"nan_checks", r.NaNChecks}, {"launch_blocking", r.LaunchBlocking}, {"trainer", r.Trainer}, {"one_connection", r.OneConnection}, {"expandable_segments", r.ExpandableSegments}} {
		switch {
		case x.on == nil:
		case *x.on:
			s += ", " + x.name
		default:
			s += ", no " + x.name
		}
	}
	if fused := r.FusedCrossEntropy; fused != nil && *fused && !j.Recipe.Structure.FusedLoss {
		s += ", fused_cross_entropy"
	}
	for _, x := range []struct {
		set  bool
		text string
	}{
		{r.CrossEntropyImpl != "", "cross_entropy_impl " + r.CrossEntropyImpl},
		{r.LossChunks > 0 && r.LossChunks != max(j.Recipe.Structure.LossChunks, 1), fmt.Sprintf("loss_chunks %d", r.LossChunks)},
		{r.LossChunksKeep != "" && r.LossChunksKeep != "gradients", fmt.Sprintf("which keep %s", r.LossChunksKeep)},
		{r.VocabMultiple > 0, fmt.Sprintf("vocab_multiple %d", r.VocabMultiple)},
		{r.TokenDispatcher != "", r.TokenDispatcher + " dispatcher"},
		{r.ExpertGEMM != "", r.ExpertGEMM + " for experts"},
		{r.AmaxReduction != "", "amax reduction of " + r.AmaxReduction},
		{r.Rotary != "", r.Rotary + " rotary"},
		{r.CUDAGraphs != "", "CUDA graphs: " + r.CUDAGraphs},
		{r.HostSpeed > 0, fmt.Sprintf("host at %.3g of the machine's", r.HostSpeed)},
		{r.CPUThreads > 0, fmt.Sprintf("%d CPU threads of each rank", r.CPUThreads)},
		{r.Release > 0, "release " + r.Release.String()},
		{r.Libraries > 0, "libraries of " + r.Libraries.String()},
	} {
		if x.set {
			s += ", " + x.text
		}
	}
	return s
}

// recomputeText is what is computed again in the backward pass.
func recomputeText(t *strategies.Train) string {
	switch r := t.Recomputed(); r.Method {
	case strategies.RecomputeBlock:
		return fmt.Sprintf("full, of the first %s of each pipeline stage (block)", plural(int(r.Layers), "layer"))
	case strategies.RecomputeEvery:
		return fmt.Sprintf("full, of one layer in %d of each pipeline stage (every)", r.Layers)
	case strategies.RecomputeUniform:
		return fmt.Sprintf("full, %s at a time (uniform)", plural(int(r.Layers), "layer"))
	}
	return t.RecomputeText()
}

func hardwareText(j *strategies.Job) string {
	h := j.Hardware
	s := fmt.Sprintf("%d × %s", j.GPUs, h.GPU.Name.Value)
	if n := h.Node.GPUs.Value; n > 0 && j.GPUs > n {
		if domain := h.Node.NVLinkDomain.Value; domain > n {
			s += fmt.Sprintf(" in NVLink domains of %d,", domain)
		}
		s += fmt.Sprintf(" in nodes of %d", n)
		if bw := h.Network.NICBandwidth.Value; bw > 0 {
			s += fmt.Sprintf(" with %d NICs of %s", h.Network.NICs.Value, bw.Bits())
		}
	}
	return s
}

// loraText describes adapters.
func loraText(l *strategies.LoRA) string {
	s := fmt.Sprintf("rank %d beside %s", l.Rank, strings.Join(l.Targets, ", "))
	if l.Dropout > 0 {
		s += fmt.Sprintf(", dropout %g", l.Dropout)
	}
	return s
}

// imagesText describes the images of a sequence.
func imagesText(v *model.Vision, i *strategies.Images) string {
	s := fmt.Sprintf("%d a sequence of %d × %d pixels: %s patches, %s tokens each", i.PerSequence, i.Size.Height, i.Size.Width, thousands(float64(v.Patches())), thousands(float64(v.Tokens())))
	if len(i.Frozen) > 0 {
		s += "; not trained: " + strings.Join(i.Frozen, ", ")
	}
	return s
}

// precisionText names the dtypes that decide memory.
func precisionText(j *strategies.Job) string {
	p := &j.Precision
	s := "weights " + p.Weights.String()
	if estimate.QuantizedAlone(j) {
		s = fmt.Sprintf("weights %s and %s", p.GEMM, p.Weights)
	}
	if p.Compute.String() != p.Weights.String() {
		s += ", compute " + p.Compute.String()
	}
	if p.GEMM.Set && p.GEMM.String() != p.Compute.String() {
		s += ", matrix products " + p.GEMM.String()
	}
	if p.Embedding.Set {
		s += ", embeddings " + p.Embedding.String()
	}
	if p.Frozen.Set {
		s += ", matrices of layers " + p.Frozen.String()
	}
	if p.Adapters.Set {
		s += ", adapters " + p.Adapters.String()
		trained := p.Trained()
		p = &trained
	}
	s += ", gradients " + p.Gradients.String()
	if p.Master.Set {
		s += ", master " + p.Master.String()
	}
	if p.MomentBytes() == 0 {
		return s + ", no moments"
	}
	return s + ", moments " + p.Moments.String()
}

// Codes of notes that the page shows elsewhere.
const (
	defaultCode  = "job.default"     // under what was taken by default
	overflowCode = "memory.overflow" // beside the memory
)

// What a job without a global batch is told where its batch depends on something else.
const (
	openBatchCode = "batch.open"
	giveBatch     = "give --global-batch in sequences"
)

// What a job is told whose plan was chosen among simple ones, and where none of them fits.
const (
	rankedAll = "perfplan plan ranks every legal plan, which may find faster ones"
	triedAll  = "perfplan plan tries every legal plan and says what comes nearest"
)

// simpleNotes say of a plan that it was chosen.
func simpleNotes(chosen bool) []diag.Note {
	if !chosen {
		return nil
	}
	return []diag.Note{{Code: "plan.simple", Text: "the plan was chosen among simple ones", Remedy: rankedAll}}
}

const noPriceCode = "price.unknown"

func notes(p *page, j *strategies.Job, list []diag.Note) {
	defaults(p, j)
	p.remarks(slices.DeleteFunc(slices.Clone(list), func(n diag.Note) bool { return n.Code == defaultCode || n.Code == overflowCode }))
}

// batchText is what one step trains on.
func batchText(j *strategies.Job) string {
	t := &j.Train
	packed := ""
	if n := t.DocumentLength; n > 0 {
		packed = fmt.Sprintf(", packed of documents of %s", thousands(float64(n)))
	} else if t.Padding > 0 {
		packed = fmt.Sprintf(", %.3g %% of them padding", 100*t.Padding)
	}
	if v := t.LengthSpread; v > 0 {
		packed += fmt.Sprintf(", lengths ±%.3g %%", 100*v)
	}
	if n := t.SourceLength; n > 0 {
		packed += fmt.Sprintf(", each of a source of %s", thousands(float64(n)))
	}
	return fmt.Sprintf("%s of %s tokens%s: micro batch %d, accumulation %d, dp %d", plural(int(t.GlobalBatch), "sequence"), thousands(float64(t.SequenceLength)), packed, t.MicroBatch, t.GradAccumulation, j.Plan.DP)
}

// defaults shows what a job leaves to this program, but for some keys.
func defaults(p *page, j *strategies.Job, but ...string) { taken(p, defaultsOf(j, but...)) }

// defaultsOf lists what a job leaves to this program, but for some keys.
func defaultsOf(j *strategies.Job, but ...string) []string {
	return slices.DeleteFunc(j.Defaults(), func(d string) bool {
		key, _, _ := strings.Cut(d, " ")
		return slices.Contains(but, key)
	})
}

// taken shows what was taken by default.
func taken(p *page, defaults []string) {
	var list bullets
	for _, d := range defaults {
		list = append(list, [2]string{d, ""})
	}
	if len(list) > 0 {
		p.section("Taken by default", list)
	}
}

// defaultNotes are the same for scripts, as an estimate has them.
func defaultNotes(defaults []string) []diag.Note {
	out := []diag.Note{}
	for _, d := range defaults {
		out = append(out, diag.Note{Code: defaultCode, Text: d})
	}
	return out
}

// Misfit says in one line what a job lacks.
func Misfit(m *estimate.Memory) string {
	return fmt.Sprintf("the job does not fit: it needs %s GiB per GPU, %s are there", gibibytes(m.DeviceUsed), gibibytes(m.Capacity))
}
