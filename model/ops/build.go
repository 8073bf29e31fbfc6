package ops

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// Build records the units of the model for one rank.
func Build(c Config) *Model { return new(Cache).Build(c) }

// builder records one unit.
type builder struct {
	Config
	recipe      *recipe.Recipe
	t           *tape.Tape
	params      []Param
	roles       map[model.Role]int
	weight      tape.DType     // dtype in which a unit sees its parameters
	hidden      tape.DType     // dtype of the residual stream
	outputGate  *tape.Tensor   // what attention's output is yet to be multiplied by
	queryLatent *tape.Tensor   // what an indexer is yet to read
	frame       []*tape.Tensor // tensors that the function of attention has names for until it returns
	masked      bool           // attention reads an explicit mask
	read        int            // parameters so far
	handed      bool           // graphs behind that of the norm which runs read what it makes
	normsTurned bool           // norms of heads are part of what turns these
	beforeMLP   *tape.Tensor   // the residual stream there
	whole       bool           // a compiler sees the layer as one
	crosses     bool           // attention is to what an encoder made
	unsummed    bool           // tensor ranks sum what a block makes later
	gathered    bool           // tensor ranks have gathered the tokens that experts get, and what these make of them is not summed yet
	dropouts    struct{ embed, attention, resid float64 }
	matrix      Matrix                               // that is updated
	ranks       int64                                // that hold the parts of it
	looped      struct{ first, weights int }         // where the parameters of experts that are modules begin, and how many each has
	after       func(made *tape.Tensor) *tape.Tensor // of the experts' activation that runs
}

func newBuilder(c Config, tensors []model.Tensor) *builder {
	b := &builder{Config: c, recipe: c.Recipe, t: tape.New(), roles: make(map[model.Role]int, len(tensors))}
	b.weight = c.Precision.Compute.DType
	b.hidden = c.Precision.Compute.DType
	if c.Precision.Autocast {
		b.weight = c.Precision.Weights.DType
		b.hidden = c.Precision.Weights.DType
		if e := c.Precision.Embedding; e.Set {
			b.hidden = e.DType
		}
		b.t.Autocast = c.Precision.Compute.DType
	}
	if c.stream != 0 {
		b.hidden = c.stream
	}
	b.t.TF32 = c.TF32
	b.t.Compiled, b.t.ScalarCat, b.t.ExpertCalls = c.Recipe.Structure.Compiled, c.Recipe.Structure.ScalarCat, c.Recipe.Structure.ExpertCalls
	b.t.JointProducts = c.Recipe.Structure.JointProducts
	b.t.ExpertModules = c.Recipe.Structure.ExpertModules
	b.t.PackedInputs = c.Recipe.Structure.PackedInputs
	b.t.KeepsAdapters = c.Recipe.Structure.KeptAdapters
	// einsum makes batched products of one batch, which PyTorch's compiler turns into plain ones in the pass that pads (torch/_inductor/fx_passes/joint_graph.py,
	// bmm_to_mm, in front of pad_mm.py's patterns), so that none is padded
	b.t.Unpadded = c.Recipe.Structure.Unpadded || c.Spec.Einsum
	b.t.WholeModel, b.t.OneGraph, b.t.Graphs = b.t.Compiled && c.Recipe.Structure.CompiledScope == "model", c.OneGraph, c.graphs != ""
	b.t.TurnedWeights = c.Recipe.Structure.TurnedWeights
	b.t.StackedExperts = c.stacksExperts()
	if c.Recipe.Structure.AddsGradients(&c.Precision) {
		b.t.MainGrad, b.t.HasMain, b.t.MainHook, b.t.MainCast = c.Precision.Gradients.DType, true, c.Recipe.Structure.GradientHook, c.Recipe.Structure.HookCasts
	}
	if q := c.Precision.GEMM; q.Set && q.Size() < c.Precision.Compute.Size() {
		b.t.Quantize, b.t.NarrowGathers, b.t.QuantizeRead, b.t.Copies = q.DType, c.Precision.NarrowGathers, max(c.Precision.QuantizeRead, 1), c.Precision.Copies(c.AnyLayout)
		b.t.Rescales = c.Precision.Rescales
		b.t.ScaleKernels, b.t.QuantizeOne = c.Precision.ScaleKernels, b.t.QuantizeRead
		if one := c.Precision.QuantizeOne; one > 0 && b.t.Copies > 1 {
			b.t.QuantizeOne = one
		}
		if b.t.RaggedRead = b.t.QuantizeRead; b.t.Copies > 1 && c.Precision.RaggedRows > 0 {
			b.t.RaggedRead *= c.Precision.RaggedRows
		}
		switch { // pieces of one tensor have one scale
		case c.Recipe.Structure.FunctionalTP: // DTensor's maximum is that of all ranks
			b.t.ScaleRanks = c.Shard.TP
		case b.t.NarrowGathers == 1 && b.t.QuantizeRead > 1: // the maximum is read first; delayed scaling has one from before
			b.t.ScaleRanks, b.t.OwnScales = c.Shard.TP, true
		}
	}
	b.dropouts.embed, b.dropouts.attention, b.dropouts.resid = c.Dropouts()
	for i, t := range tensors {
		p := Param{Tensor: t, Dims: c.localDims(t), Local: 1}
		for _, d := range p.Dims {
			p.Local *= d
		}
		b.params = append(b.params, p)
		b.roles[t.Role] = i
	}
	if c.loopsExperts() {
		b.unstack()
	}
	if c.Recipe.Structure.FusedQKV {
		b.merge(model.RoleQKV, model.RoleQ, model.RoleK, model.RoleV, model.RoleOGate)
		b.merge(model.RoleDeltaIn, model.RoleDeltaQKVZ, model.RoleDeltaBA)
		b.merge(model.RoleDeltaIn, model.RoleDeltaQKV, model.RoleDeltaZ, model.RoleDeltaB, model.RoleDeltaA)
	}
	if c.Recipe.Structure.FusedGateUp {
		b.merge(model.RoleGateUp, model.RoleGate, model.RoleUp)
	}
	return b
}

// merge replaces parameters that a framework stores as one, as many as there are, with their biases and
// with their adapters, which read the same and have one A.
func (b *builder) merge(into model.Role, parts ...model.Role) {
	for _, role := range []func(model.Role) model.Role{func(r model.Role) model.Role { return r }, model.Role.Bias, model.Role.Down, model.Role.Up} {
		if !b.has(role(parts[0])) {
			continue
		}
		first := b.roles[role(parts[0])]
		whole := b.params[first]
		whole.Role, whole.Name, whole.Used = role(into), string(role(into)), false
		whole.Shape = append([]int64(nil), whole.Shape...)
		whole.Dims = append([]int64(nil), whole.Dims...)
		same := whole.Role == into.Down()
		for _, r := range parts[1:] {
			if i, there := b.roles[role(r)]; there && !same {
				q := b.params[i]
				whole.Shape[0] += q.Shape[0]
				whole.Dims[0] += q.Dims[0]
				whole.Local += q.Local
			}
		}
		merged := b.params[:0:0]
		for i, q := range b.params {
			switch {
			case i == first:
				merged = append(merged, whole)
			case !slices.ContainsFunc(parts, func(r model.Role) bool { return role(r) == q.Role }):
				merged = append(merged, q)
			}
		}
		b.params = merged
		clear(b.roles)
		for i, q := range b.params {
			b.roles[q.Role] = i
		}
	}
}

// localDims returns the dimensions of a parameter that tensor and expert
// parallelism leave on one rank.
func (c *Config) localDims(t model.Tensor) []int64 {
	dims := append([]int64(nil), t.Shape...)
	tp, ep, etp := max(c.Shard.TP, 1), max(c.Shard.EP, 1), max(c.Shard.ExpertTP, 1)
	out, in := 0, len(dims)-1 // weights are stored [out, in]
	if c.Spec.TransposedWeights && len(dims) == 2 && t.Split != model.VocabSplit && !t.Adapter {
		out, in = 1, 0
	}
	switch t.Split {
	case model.ColumnSplit:
		if t.KVHead { // key/value heads are repeated when tp exceeds them
			tp = min(tp, c.Spec.KVHeads)
		}
		dims[out] = ceilDiv(dims[out], tp)
	case model.VocabSplit:
		if !c.Recipe.Structure.VocabParallel && !(c.gathersLogits() && (t.Role == model.RoleHead || t.Role == model.RoleHead.Bias())) {
			tp = 1
		}
		unit := tp * max(c.Recipe.Structure.VocabMultiple, 1)
		dims[0] = ceilDiv(dims[0], unit) * unit / tp
	case model.RowSplit:
		dims[in] = ceilDiv(dims[in], tp)
	case model.ExpertSplit:
		dims[0] = ceilDiv(dims[0], ep)
		switch {
		case t.Role == model.RoleExpertsGateUp.Bias(): // that of the other product is added whole
			dims[1] = ceilDiv(dims[1], etp)
		case len(dims) < 3:
		case (t.Role == model.RoleExpertsDown) != c.Spec.MoE.Transposed:
			dims[2] = ceilDiv(dims[2], etp)
		default:
			dims[1] = ceilDiv(dims[1], etp)
		}
	}
	return dims
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// p returns a parameter by role, or nil when the model has none.
func (b *builder) p(r model.Role) *tape.Tensor {
	i, ok := b.roles[r]
	if !ok {
		return nil
	}
	p := &b.params[i]
	if !p.Used {
		b.read++
		p.Used, p.Order = true, b.read
	}
	b.t.Graph = b.graph(r)
	dtype := b.weight
	switch a, e := b.Precision.Adapters, b.Precision.Embedding; {
	case p.Adapter && a.Set:
		dtype = a.DType
	case e.Set && r.Table():
		dtype = e.DType
	}
	w := b.t.Param(i, dtype, !p.Frozen, p.Dims...)
	if b.OneGraph && p.TiedCopy && !p.Frozen {
		b.t.Tied = int32(i) + 1
	}
	if b.packed(r) {
		w = b.t.Packed(w, b.Precision.Frozen.DType)
	}
	return w
}

// packed reports whether the parameter of a role is stored in few bits, and unpacked for each product.
func (b *builder) packed(r model.Role) bool {
	i, ok := b.roles[r]
	return ok && b.Precision.Frozen.Set && b.params[i].Packs()
}

// hiddenDims are batch, local sequence and width of what layers hand on: of all residual streams.
func (b *builder) hiddenDims() (batch, seq, width int64) {
	seq = ceilDiv(b.Sequence, max(b.Shard.CP, 1))
	if b.Shard.SequenceParallel {
		seq = ceilDiv(seq, max(b.Shard.TP, 1))
	}
	return b.MicroBatch, seq, b.Spec.Handed()
}

// input is what a layer, or what comes after layers, reads.
func (b *builder) input(batch, seq, width int64) *tape.Tensor {
	x := b.t.Input(b.hidden, !b.fixed, batch, seq, width)
	if b.planes {
		b.t.Planes(x)
	}
	return x
}

func buildEmbedding(c Config, tensors []model.Tensor) Unit {
	b := newBuilder(c, tensors)
	t := b.t
	t.Module = "embedding"
	seq := ceilDiv(c.Sequence, max(c.Shard.CP, 1))
	ids := t.Outside(tape.I64, c.MicroBatch, seq)
	table := b.p(model.RoleEmbed)
	x := t.Embedding(ids, table)
	parts := c.Shard.SequenceParallel && c.Spec.Vision != nil // images are put in whole sequences, which are cut after
	if parts {
		b.Shard.SequenceParallel = false
	}
	if c.Recipe.Structure.VocabParallel {
		x = b.give(x, b.reduceOutput(x))
	}
	turns := 0 // kernels of the rotary tables, which come after the check of the positions
	if c.Spec.Position == model.Rotary {
		turns = min(c.Recipe.Structure.TableTiny, c.Recipe.Structure.PrologueTiny)
	}
	t.Tiny("prologue", c.Recipe.Structure.PrologueTiny-turns)
	if c.Recipe.Structure.StepSync {
		t.Wait()
	}
	switch c.Attention {
	case "unfused":
		t.Tiny("mask", c.Recipe.Structure.MaskTiny)
	case "flex":
		t.Tiny("flex_mask", 1)
	}
	// Masks beside images have kernels of their own (recipe.Images).
	if w := c.Spec.Window; w > 0 && (w < c.Sequence || w == c.Sequence && !c.Spec.Vision.Mutual() || c.Attention == "unfused") {
		t.Tiny("mask", c.Recipe.Structure.WindowMaskTiny)
	}
	t.Tiny("prologue", turns)
	if w := b.p(model.RolePosition); w != nil {
		y := t.Embedding(t.Outside(tape.I64, 1, seq), w)
		x = b.give(x, t.Add(x, y))
		t.Release(y)
	}
	if w := b.p(model.RoleType); w != nil {
		y := t.Embedding(t.Outside(tape.I64, c.MicroBatch, seq), w)
		x = b.give(x, t.Add(x, y))
		t.Release(y)
	}
	if b.Spec.EmbedScale {
		x = b.give(x, t.Scale("mul_scalar", x))
	}
	if e := b.Spec.PerLayer; e != nil {
		x = b.give(x, b.perLayer(x, t.Outside(tape.I64, c.MicroBatch, seq)))
	}
	if w := b.p(model.RoleEmbedNorm); w != nil {
		x = b.give(x, b.norm(x, model.RoleEmbedNorm, true))
	}
	x = b.give(x, t.Dropout(x, b.dropouts.embed))
	if b.headMasks() {
		heads, _ := b.heads()
		slopes, m := t.HeadMasks(b.hidden, c.MicroBatch, heads, seq, c.Sequence)
		x = b.give(x, t.Keep(x, slopes, m))
		t.Release(slopes, m)
	} else if b.masksPairs() {
		m := t.PaddingMask(b.hidden, c.MicroBatch, seq, c.Recipe.Structure.AdditiveMask)
		x = b.give(x, t.Keep(x, m))
		t.Release(m)
	} else if b.sharesMask() {
		m := t.AttentionMask(b.hidden, c.MicroBatch, seq, seq)
		x = b.give(x, t.Keep(x, m))
		t.Release(m)
	}
	if n := b.Spec.Streams; n > 1 { // all alike
		x = b.give(x, t.Fuse(tape.Fused{Prim: "streams", Class: tape.Strided2, DType: x.DType(), Grow: n, Back: tape.FusedReduce}, x)[0])
	}
	var images *tape.Tensor
	if v := c.Spec.Vision; v != nil {
		images = t.Input(b.hidden, !(v.FrozenEncoder && v.FrozenProjector), 1, c.MicroBatch*v.Each*v.Tokens(), c.Spec.Hidden)
		x = b.give(x, b.placed(x, t.Hold(images)))
		t.Release(images)
	}
	if parts {
		x = b.give(x, t.Communicate(tape.CommSpec{Group: "tp", Ranks: c.Shard.TP, Dim: 1, Backward: "all-gather", Shrink: true}, x))
		x = b.give(x, t.Contiguous(x))
		x = b.give(x, t.Copied(x))
	}
	return b.finish("embedding", images, x)
}

// give releases old and returns x: for chains that replace their argument.
func (b *builder) give(old, x *tape.Tensor) *tape.Tensor {
	b.t.Release(old)
	return x
}

// finish ends the forward section, runs the backward one and returns the unit.
func (b *builder) finish(name string, in, out *tape.Tensor) Unit {
	t := b.t
	u := Unit{Name: name, InputStore: -1, OutputStore: -1, GradStore: -1, InGradStore: -1}
	t.EndAutocast()
	t.Flush()
	t.Leave()
	u.Forward = t.Cut(tape.Backward)
	u.Forward.Twice = t.Twice()
	if in != nil {
		u.InputStore, u.Input = in.Store(), t.Bytes(in)
	}
	u.OutputStore, u.Output = out.Store(), t.Bytes(out)
	if b.vision != nil && !out.Grad() { // whose parameters are frozen, as those of all before it
		u.Params = b.params
		t.End()
		return u
	}
	g := t.GradOf(out, out.DType())
	u.GradStore = g.Store()
	if gi := t.Backward(out, g); gi != nil {
		u.InGradStore = gi.Store()
	}
	t.Flush()
	u.Backward = t.Cut(tape.Forward)
	u.Forward.Trips = t.Trips()
	u.Params = b.params
	t.End()
	return u
}

// buildLayers builds one layer, or several that are recomputed together.
func buildLayers(c Config, kinds []model.LayerKind, tensors model.Parameters) Unit {
	if c.LayerRecipe != nil {
		c.Recipe = c.LayerRecipe
	}
	build := func(k model.LayerKind) *builder {
		own := c
		own.Spec = c.Spec.Of(k)
		b := newBuilder(own, tensors.Layer(k))
		for i := range b.params {
			b.params[i].Wide = k.Wide
		}
		return b
	}
	b := build(kinds[0])
	narrow := b.t.Quantize
	roles := []map[model.Role]int{b.roles} // by layer
	for _, kind := range kinds[1:] {
		next := build(kind)
		for r := range next.roles {
			next.roles[r] += len(b.params)
		}
		roles = append(roles, next.roles)
		b.params = append(b.params, next.params...)
	}
	pieces := b.t.Compiled && kinds[0].MoE && c.Recipe.Structure.PaddedExperts // no policy sees the products of these
	b.whole = b.t.Compiled && !pieces && kinds[0].Plain() && len(kinds) == 1
	batch, seq, width := b.hiddenDims()
	x := b.input(batch, seq, width)
	run := func(ins []*tape.Tensor) *tape.Tensor {
		y := b.t.Hold(ins[0])
		for i, kind := range kinds {
			b.roles, b.Spec = roles[i], c.Spec.Of(kind)
			if b.t.Quantize = narrow; kind.Wide {
				b.t.Quantize = tape.F32
			}
			if y = b.give(y, b.layer(y, kind)); kind.Deep {
				v := c.Spec.Vision
				y = b.give(y, b.t.AddAt(y, c.MicroBatch*v.Each*v.Tokens()))
			}
		}
		return y
	}
	var y *tape.Tensor
	b.t.Call()
	switch {
	case c.Recompute == FullRecompute && !c.Recipe.ByParts(c.Spec.ModelType):
		y = b.t.Checkpoint(c.Recipe.Structure.EarlyStop && !c.WholeLayers, run, x)
	case c.Recompute == SelectiveRecompute && c.Recipe.Structure.SelectiveOps:
		y = b.t.CheckpointSome(tape.Keeps{Products: !pieces, Biased: !pieces && c.Recipe.Structure.KeptBiased}, run, x)
	default:
		y = run([]*tape.Tensor{x})
	}
	b.t.Release(x)
	name := kinds[0].String()
	if n := len(kinds); n > 1 {
		name = fmt.Sprintf("%d layers from %s", n, name)
	}
	u := b.finish(name, x, y)
	u.Layers = int64(len(kinds))
	return u
}

// again reports whether selective recomputation computes a part of the layer again.
func (b *builder) again(m Modules) bool {
	if b.Recompute != SelectiveRecompute || b.recipe.Structure.SelectiveOps {
		return false
	}
	modules := b.Modules
	switch {
	case modules > 0:
	case b.Spec.Compress != nil: // whose core no framework computes again
		modules = LatentProjection | StreamMixes
	default:
		modules = CoreAttention
	}
	if b.batchFirst() {
		modules &^= CoreAttention
	}
	return modules&m != 0
}

// checkpointed runs a part of the layer, from its input again where that is wanted.
func (b *builder) checkpointed(m Modules, f func(x *tape.Tensor) *tape.Tensor, x *tape.Tensor) *tape.Tensor {
	if !b.again(m) {
		return f(x)
	}
	return b.t.Checkpoint(false, func(ins []*tape.Tensor) *tape.Tensor { return f(ins[0]) }, x)
}

// discarding runs a part of the layer and, where it is to be computed again, lets go of
// its outputs once after is given what was made of them.
func (b *builder) discarding(m Modules, f func(ins []*tape.Tensor) []*tape.Tensor, ins ...*tape.Tensor) (outs []*tape.Tensor, after func(made *tape.Tensor) *tape.Tensor) {
	if !b.again(m) {
		return f(ins), same
	}
	return b.t.Discard(f, ins...)
}

// leaving runs a part of the layer, which leaves to the host what it saves where the job says so.
func (b *builder) leaving(m Away, f func()) {
	if m &= b.Away; m == 0 {
		f()
		return
	}
	b.t.Away(uint8(m), b.Least, f)
}

// same is for what keeps its outputs.
func same(made *tape.Tensor) *tape.Tensor { return made }

func (b *builder) has(r model.Role) bool { _, ok := b.roles[r]; return ok }

// program reports whether the recipe has a program of that name.
func (b *builder) program(name string) bool { _, ok := b.recipe.Programs[name]; return ok }

func (b *builder) dropout(x *tape.Tensor, p float64) *tape.Tensor {
	b.t.Module = "dropout"
	if p > 0 {
		b.t.Call()
	}
	return b.t.Dropout(x, p)
}

func (b *builder) residual(x, y *tape.Tensor) *tape.Tensor {
	b.t.Module = "residual"
	return b.call("residual", tensorOf(x), tensorOf(y))[0].t
}

// variant is the program of a framework that writes a module out in another way
// for some models, or the usual one where it makes no difference: a compiler fuses both.
func (b *builder) variant(name, suffix string) string {
	if suffix != "" && !b.t.Compiled && b.program(name+suffix) {
		return name + suffix
	}
	return name
}

// --- tensor parallelism ---

// columnInput is what column-parallel projections of a block read: with sequence
// parallelism the gathered sequence, else x itself with its gradient summed
// over the ranks.
func (b *builder) columnInput(x *tape.Tensor, roles ...model.Role) *tape.Tensor {
	c := tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Dim: 1, Backward: "all-reduce", AsyncBackward: b.recipe.Overlap.TPWgrad, Copy: b.recipe.Structure.DTensor || b.recipe.Structure.CopiedSums, Join: b.recipe.Structure.FunctionalTP}
	if b.Shard.SequenceParallel && !b.gathered {
		c.Forward, c.Backward, c.Grow = "all-gather", "reduce-scatter", true
		c.Regather = b.sharesInput() && !b.recipe.Structure.FunctionalTP && !b.recipe.Structure.KeepGathered
		c.Operand = !slices.ContainsFunc(roles, func(r model.Role) bool { return b.has(r.Down()) }) // adapters read it in 16 bits
	}
	return b.t.Communicate(c, x)
}

// sumRows sums one fp32 value per row of x over the tensor-parallel ranks, as
// the parts of a softmax over a vocabulary that is cut.
func (b *builder) sumRows(x *tape.Tensor) {
	if b.Shard.TP <= 1 && b.recipe.Structure.SingleRank {
		b.t.Called("all-reduce")
	}
	rows := b.t.Empty(tape.F32, x.Size()/x.Dim(-1))
	b.t.Release(rows, b.t.Communicate(tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Forward: "all-reduce"}, rows))
}

// reduceOutput sums the partial results of a row-parallel projection.
func (b *builder) reduceOutput(x *tape.Tensor) *tape.Tensor {
	if b.gathered || b.unsummed { // with that of all experts, or of the block beside it
		return b.t.Hold(x)
	}
	c := tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Dim: 1, Forward: "all-reduce", Copy: b.recipe.Structure.DTensor || b.recipe.Structure.CopiedSums, Join: b.recipe.Structure.FunctionalTP}
	if b.Shard.SequenceParallel {
		c.Forward, c.Backward, c.Shrink = "reduce-scatter", "all-gather", true
		c.Operand, c.Kept = true, true
	}
	return b.t.Communicate(c, x)
}

// linear is a projection without communication, with its adapter.
func (b *builder) linear(x *tape.Tensor, r model.Role) *tape.Tensor {
	return b.adapted(x, b.frozen(x, r), r)
}

// frozen is the projection itself, which is frozen where it has an adapter. From a weight in
// few bits it comes back in the dtype of its input (bitsandbytes, nn/modules.py, Linear4bit).
func (b *builder) frozen(x *tape.Tensor, r model.Role) *tape.Tensor {
	b.t.SumsBack = b.fuses() && b.has(r.Down())
	defer func() { b.t.SumsBack = false }()
	y := b.projection(x, r)
	if b.packed(r) {
		y = b.give(y, b.t.To(y, x.DType()))
	}
	return y
}

func (b *builder) projection(x *tape.Tensor, r model.Role) *tape.Tensor {
	b.t.Call()
	bias, of := b.p(r.Bias()), &b.recipe.Structure
	if bias != nil && (of.PlainLayers || of.ApartBias && (r == model.RoleQKV || r == model.RoleGateUp)) {
		y := b.halfZero(r, func() *tape.Tensor { return b.t.Linear(x, b.p(r), nil, b.Spec.TransposedWeights) })
		return b.give(y, b.t.AddBias(y, bias))
	}
	if bias != nil && b.Spec.Einsum && !b.t.Compiled { // a compiler adds them where it casts or activates what they are added to
		y := b.halfZero(r, func() *tape.Tensor { return b.t.Linear(x, b.p(r), nil, b.Spec.TransposedWeights) })
		return b.give(y, b.t.Add(y, bias))
	}
	return b.halfZero(r, func() *tape.Tensor { return b.t.Linear(x, b.p(r), bias, b.Spec.TransposedWeights) })
}

// halfZero runs a projection with the weight of that role.
func (b *builder) halfZero(r model.Role, projection func() *tape.Tensor) *tape.Tensor {
	b.t.HalfZero = b.zeros(r)
	defer func() { b.t.HalfZero = tape.NoZeros }()
	return projection()
}

// zeros is what the MLP's activation makes zero by half of a projection.
func (b *builder) zeros(r model.Role) tape.Zeros {
	if a := b.Spec.Activation; a != model.ReLU && a != model.ReLU2 {
		return tape.NoZeros
	}
	switch r {
	case model.RoleDown, model.RoleSharedDown, model.RoleExpertsDown:
		return tape.InputZeros
	case model.RoleGate, model.RoleUp, model.RoleGateUp, model.RoleSharedGate, model.RoleSharedUp, model.RoleSharedGateUp, model.RoleExpertsGateUp:
		return tape.GradientZeros
	}
	return tape.NoZeros
}

// plainLinear is a small projection that is never quantized: a router.
func (b *builder) plainLinear(x, w, bias *tape.Tensor) *tape.Tensor {
	q := b.t.Quantize
	b.t.Quantize = tape.F32
	y := b.t.Linear(x, w, bias, false)
	b.t.Quantize = q
	return y
}

// sharesInput reports whether tensor ranks gather once what several projections read.
func (b *builder) sharesInput() bool {
	s := &b.recipe.Structure
	return s.SharedTPInput && !s.OwnTPInputs && (b.Shard.SequenceParallel || !s.OwnTPGradients)
}

// column is a column-parallel projection. Under DTensor each has a collective of
// its own; otherwise columnInput has been applied to the whole block.
func (b *builder) column(x *tape.Tensor, r model.Role) *tape.Tensor {
	if b.sharesInput() {
		return b.linear(x, r)
	}
	in := b.columnInput(x, r)
	y := b.linear(in, r)
	b.t.Release(in)
	return y
}

// row is a row-parallel projection with its reduction.
func (b *builder) row(x *tape.Tensor, r model.Role) *tape.Tensor {
	reduced := b.Shard.SequenceParallel && b.Shard.TP > 1 && !b.gathered // which is kept
	y := b.unread(reduced, func() *tape.Tensor { return b.frozen(x, r) })
	return b.adapted(x, b.give(y, b.reduceOutput(y)), r)
}

// unread runs f. If so, no gradient of the layer reads its output, as a compiler sees that
// has the layer whole.
func (b *builder) unread(so bool, f func() *tape.Tensor) *tape.Tensor {
	if b.whole && so {
		return b.t.Unread(f)
	}
	return f()
}

// block returns the input of a block's column-parallel projections, of those roles.
func (b *builder) block(x *tape.Tensor, roles ...model.Role) *tape.Tensor {
	if b.sharesInput() {
		return b.columnInput(x, roles...)
	}
	return b.t.Hold(x)
}

// --- MLP ---

func (b *builder) mlp(x *tape.Tensor) *tape.Tensor {
	b.t.Call()
	b.t.Module = "mlp"
	if b.Spec.Gated && b.Spec.Activation == model.SiLU && b.byHand(model.RoleGate, model.RoleUp, model.RoleDown) {
		return b.t.AdaptedGate(x, !b.recipe.Structure.KeptAdapters, b.adaptedOf(model.RoleGate), b.adaptedOf(model.RoleUp), b.adaptedOf(model.RoleDown))
	}
	h := b.block(x, model.RoleGate, model.RoleUp, model.RoleGateUp)
	a := b.gated(h, model.RoleGate, model.RoleUp, model.RoleGateUp)
	b.t.Release(h)
	a = b.give(a, b.dropout(a, b.Spec.ActDropout))
	if b.Spec.Rewidened {
		a = b.give(a, b.t.To(a, b.weight))
	}
	b.t.Module = "mlp"
	last := !b.has(model.RoleNorm4) // its output is only added
	y := b.unread(last, func() *tape.Tensor { return b.row(a, model.RoleDown) })
	b.t.Release(a)
	return b.times(y)
}

// gated is the first half of an MLP: the projections and the activation.
func (b *builder) gated(h *tape.Tensor, gate, up, both model.Role) *tape.Tensor {
	t := b.t
	if !b.Spec.Gated {
		u := b.column(h, up)
		return b.give(u, b.activation(u))
	}
	var g, u *tape.Tensor
	if b.has(both) {
		gu := b.column(h, both)
		if b.program("glu") {
			gu = b.give(gu, b.castsBack(gu, both))
			y := b.call(b.gate("glu"), tensorOf(gu))[0].t
			b.castAsMade(y, model.RoleDown)
			return b.give(gu, y)
		}
		half := gu.Dim(-1) / 2
		parts := t.Split(gu, half, half)
		t.Release(gu)
		if g, u = parts[0], parts[1]; b.program("glu_split") {
			y := b.call("glu_split", tensorOf(g), tensorOf(u))[0].t
			t.Release(g, u)
			return y
		}
	} else {
		g = b.column(h, gate)
		joined := b.program("glu2") && b.graph(gate) == b.graph(up)
		if !joined {
			g = b.times(g)
			g = b.give(g, b.activation(g))
		}
		b.t.Module = "mlp"
		u = b.column(h, up)
		if joined {
			y := b.call(b.variant("glu2", "_"+string(b.Spec.Activation)), tensorOf(g), tensorOf(u))[0].t
			t.Release(g, u)
			return y
		}
		y := t.Mul(g, u)
		t.Release(g, u)
		return y
	}
	g = b.give(g, b.activation(g))
	y := t.Mul(g, u)
	t.Release(g, u)
	return y
}

// gate is the program that applies a gate, or the same kernel by kernel.
func (b *builder) gate(program string) string {
	if !b.recipe.Structure.UnfusedGate {
		return program
	}
	program = b.variant(program, "_unfused")
	if b.recipe.Structure.OlderGLU && (b.Spec.MoE == nil || !b.Spec.MoE.Clamped) {
		program = b.variant(program, "_older")
	}
	return program
}

func (b *builder) activation(x *tape.Tensor) *tape.Tensor {
	b.t.Call()
	if b.Spec.Activation == model.XIELU {
		return b.call("xielu", tensorOf(x), tensorOf(b.p(model.RoleActPositive)), tensorOf(b.p(model.RoleActNegative)))[0].t
	}
	name := string(b.Spec.Activation)
	switch {
	case b.Spec.Activation == model.ReLU2 && b.recipe.Structure.OlderReLU2:
		name = b.variant(name, "_older")
	case b.recipe.Structure.PlainLayers && strings.HasPrefix(name, "gelu"):
		name = b.variant("gelu", "_plain")
	}
	return b.call(name, tensorOf(x))[0].t
}
