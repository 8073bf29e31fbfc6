package ops

import (
	"math"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// moe is a mixture-of-experts MLP with its router and shared experts.
func (b *builder) moe(x *tape.Tensor) *tape.Tensor {
	switch {
	case b.Spec.MoE.Beside:
		return b.beside(x)
	case !b.gathersTokens():
		return b.tokensMLP(x)
	}
	c := tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Dim: 1, Forward: "all-gather", Backward: "reduce-scatter", Grow: true, Join: b.recipe.Structure.FunctionalTP}
	if b.recipe.Structure.ReduceRows { // all ranks have the same gradients of tokens, of which each keeps its part
		c.Backward = ""
	}
	b.t.Module = "router"
	all := b.t.Communicate(c, x)
	b.gathered = true
	y := b.tokensMLP(all)
	b.gathered = false
	b.t.Release(all)
	b.t.Module = "experts"
	return b.give(y, b.reduceOutput(y))
}

// gathersTokens reports whether each tensor rank routes the tokens of all.
func (b *builder) gathersTokens() bool {
	if b.Shard.TP <= 1 || !b.Shard.SequenceParallel {
		return false
	}
	who := b.recipe.Structure.GatherTokens
	return who == recipe.AllRanks || who == recipe.CuttingRanks && b.Shard.ExpertTP > 1
}

// tokensMLP is the block itself, on the tokens that the rank routes.
func (b *builder) tokensMLP(x *tape.Tensor) *tape.Tensor {
	t, m := b.t, b.Spec.MoE
	t.Call()
	t.Module = "router"
	x, t.Leaf = t.Hold(x), b.recipe.Structure.LeafExperts
	defer func() { t.Release(x); t.Leaf = false }()
	for i := 0; i < 2 && m.Jitter && b.program("jitter"); i++ { // once by the block and once by its router
		x = b.give(x, b.call("jitter", tensorOf(x))[0].t)
	}
	tokens := x.Dim(0) * x.Dim(1)
	flat := t.Reshape(x, tokens, x.Dim(2))
	t.Call()
	suffix := ""
	switch {
	case m.LowRouter:
		suffix = "_low"
	case m.Sampled:
		suffix = "_sampled"
	case m.Corrected:
		suffix = "_corrected"
	case m.ChosenFirst:
		suffix = "_chosen"
	case m.RouterBias: // softmax of the chosen only
		suffix = "_biased"
	}
	router := b.variant("router_"+string(m.Router), suffix)
	if b.recipe.Structure.UnfusedRouter {
		router = b.variant(router, "_unfused")
	}
	scores := t.Passed(func() *tape.Tensor { // torchtitan, activation_checkpoint.py, force_recompute_mm_shapes_by_fqns
		if b.InTurn {
			return b.call("router_in_turn", tensorOf(flat), numberOf(float64(m.TopK)))[0].t
		}
		return b.call(router, tensorOf(flat), tensorOf(b.p(model.RoleRouter)), numberOf(float64(m.TopK)),
			tensorOf(b.p(model.RoleRouter.Bias())))[0].t
	})
	t.Module = "experts"
	if !b.loopsExperts() { // whose list is no module that is called
		t.Call()
	}
	latent := t.Hold(flat)
	if m.Latent > 0 { // as Megatron-Core's ranks do, before their rows are exchanged
		latent = b.give(latent, b.linear(flat, model.RoleLatentDown))
	}
	y := b.routed(latent, scores)
	t.Release(flat, scores, latent)
	if m.Latent > 0 {
		y = b.give(y, b.linear(y, model.RoleLatentUp))
	}
	y = b.give(y, t.Reshape(y, x.Dim(0), x.Dim(1), x.Dim(2)))
	if m.SharedFFN == 0 {
		return y
	}
	s := b.checkpointed(SharedExperts, b.shared, x)
	z := b.besideShared(y, s)
	t.Release(y, s)
	return z
}

// besideShared adds what routed and what shared experts made.
func (b *builder) besideShared(routed, shared *tape.Tensor) *tape.Tensor {
	program := "residual"
	if b.Spec.MoE.WideSum {
		program = b.variant(program, "_wide")
	}
	b.t.Module = "residual"
	return b.call(program, tensorOf(routed), tensorOf(shared))[0].t
}

// routed runs the experts on tokens [tokens, width] with the scores of those that each is
// routed to.
func (b *builder) routed(x, scores *tape.Tensor) *tape.Tensor {
	m := b.Spec.MoE
	rows := float64(x.Dim(0) * m.TopK / b.dividers())
	if b.loopsExperts() {
		return b.call(b.loop("experts_loop"), tensorOf(x), tensorOf(scores), numberOf(rows))[0].t
	}
	if b.Capacity > 0 {
		rows = float64(m.Experts) * max(math.Ceil(rows*b.Capacity/float64(m.Experts)), float64(b.recipe.Structure.LeastRows))
	}
	return b.call(b.experts(), tensorOf(x), tensorOf(scores), tensorOf(b.p(model.RoleExpertsGateUp)), tensorOf(b.p(model.RoleExpertsDown)),
		numberOf(rows), numberOf(float64(m.TopK)), tensorOf(b.p(model.RoleExpertsGateUp.Bias())), tensorOf(b.p(model.RoleExpertsDown.Bias())))[0].t
}

// dividers are the ranks that divide the rows of the tokens that all of them have: those
// that do not cut experts instead.
func (b *builder) dividers() int64 {
	if !b.gathered || b.Shard.ExpertTP > 1 {
		return 1
	}
	return b.Shard.TP
}

// beside runs the part that all tokens go to on the normed input x, and beside it the
// experts, which the router picks from the residual stream (Gemma 4).
func (b *builder) beside(x *tape.Tensor) *tape.Tensor {
	t, m := b.t, b.Spec.MoE
	s := b.checkpointed(SharedExperts, b.shared, x)
	s = b.give(s, b.norm(s, model.RoleNorm5, true))
	flat := t.Reshape(b.beforeMLP, x.Dim(0)*x.Dim(1), x.Dim(2))
	t.Call()
	t.Module = "router"
	t.Call()
	scores := b.call("router_scaled", tensorOf(flat), tensorOf(b.p(model.RoleRouter)), numberOf(float64(m.TopK)),
		tensorOf(b.p(model.RoleRouterScale)), tensorOf(b.p(model.RoleExpertScale)), numberOf(float64(flat.Dim(0)*m.TopK)))[0].t
	h := b.norm(flat, model.RoleNorm6, true)
	t.Module = "experts"
	t.Call()
	y := b.routed(h, scores)
	t.Release(flat, scores, h)
	y = b.give(y, t.Reshape(y, x.Dim(0), x.Dim(1), x.Dim(2)))
	y = b.give(y, b.norm(y, model.RoleNorm7, true))
	z := b.residual(s, y)
	t.Release(s, y)
	return z
}

// shared is the part of the experts that all tokens go to.
func (b *builder) shared(x *tape.Tensor) *tape.Tensor {
	t := b.t
	t.Module = "shared expert"
	h := b.block(x)
	a := b.gated(h, model.RoleSharedGate, model.RoleSharedUp, model.RoleSharedGateUp)
	t.Release(h)
	s := b.row(a, model.RoleSharedDown)
	t.Release(a)
	if b.Spec.MoE.SharedGate {
		g := b.linear(x, model.RoleSharedRouter)
		g = b.give(g, t.Unary("sigmoid", g))
		s = b.give(s, t.Mul(s, g))
		t.Release(g)
	}
	return s
}

// experts is the program of the experts: its own one where they all have the same number
// of rows, where each takes its weight out of a stack, where older software has no kernel that permutes rows or pads them, where the host waits
// for no number of rows, or where a kernel exchanges the rows, if the recipe has it.
func (b *builder) experts() string {
	name := "experts"
	if b.t.StackedExperts && b.program("experts_stacked") {
		return "experts_stacked"
	}
	if b.recipe.Structure.PaddedExperts {
		return name + "_padded"
	}
	if b.Capacity > 0 {
		name += "_capacity"
	}
	if b.recipe.Structure.UnfusedPermutation {
		name = b.variant(name, "_unfused")
		if b.recipe.Structure.WeighedBack {
			name = b.variant(name, "_back")
		}
		return name
	}
	s := b.Shard
	flex := s.EP > 1 && s.ExpertTP <= 1 && s.Flex
	switch {
	case b.Capacity > 0 && flex && !s.DeepEP:
		return b.variant("experts_flex", "_capacity")
	case b.Capacity > 0:
		return name
	case b.SyncFree:
		return "experts_sync_free"
	case flex && b.recipe.Programs["experts_flex"] != nil:
		name = "experts_flex"
	}
	if b.JointMLPs && b.t.Quantize == tape.MXFP8 {
		return b.variant(name, "_joint")
	}
	return name
}

// spread sends every token's row once to each rank that holds any of its k experts,
// and collect brings back one row from each, which the receiving kernel sums. With what
// is spread go, and their gradients come back, the probabilities of all experts of the
// NVLink domain in fp32 (prob_buffer, deepseek-ai/DeepEP docs/Hybrid-EP_Implementation.md 4.2).
func (b *builder) spread(x *tape.Tensor) *tape.Tensor {
	probabilities := tape.F32.Size() * units.Bytes(b.Spec.MoE.Experts/max(b.Shard.Domains, 1))
	return b.exchange(x, b.reach(b.Shard.EP)*b.load(), probabilities)
}

// load is how many rows the busiest of the experts' ranks gets, of the mean.
func (b *builder) load() float64 {
	if b.Shard.EP <= 1 {
		return 1
	}
	return max(b.Imbalance, 1)
}

// busiestExpert is how many rows the busiest expert of a rank that has all gets, of the mean: as the
// job says, else as the recipe has it.
func (b *builder) busiestExpert() float64 {
	if b.Shard.EP <= 1 && b.Imbalance > 0 {
		return b.Imbalance
	}
	return b.recipe.Structure.BusiestExpert
}

// busiest is how many rows the experts of the busiest rank multiply, of n on average.
func (b *builder) busiest(n int64) int64 { return int64(math.Round(float64(n) * b.load())) }

// scanMap gathers which tokens go to which experts, a byte for each pair, from all ranks, and
// numbers their rows by one kernel (Hybrid-EP, csrc/hybrid_ep, allgather_routing_map and
// scan). DeepEP's ranks tell each other how many rows they send to each expert
// (notify_dispatch).
func (b *builder) scanMap(x *tape.Tensor) {
	switch experts := b.Spec.MoE.Experts; {
	case b.Shard.EP <= 1:
	case b.Shard.DeepEP:
		b.t.Notify("deepep-exchange", experts)
	default:
		tokens := x.Size() / x.Dim(-1)
		b.t.ScanMap(b.Shard.EP, tokens, experts)
		if b.byMap() {
			b.t.NumberRows(b.Shard.EP*tokens, experts/b.Shard.EP)
		}
	}
}

// byMap is whether rows that came are permuted by Hybrid-EP's kernels that read a map of
// them.
func (b *builder) byMap() bool {
	return b.recipe.Structure.RowMaps && b.Shard.Flex && !b.Shard.DeepEP && b.Shard.EP > 1
}

// toExperts permutes rows that came from other ranks to the places of their experts, n in
// all, or back.
func (b *builder) toExperts(x *tape.Tensor, n int64) *tape.Tensor {
	if b.byMap() {
		return b.t.PermuteByMap(x, n, b.Spec.MoE.Experts/b.Shard.EP)
	}
	return b.t.Permute(x, n)
}

func (b *builder) collect(x *tape.Tensor) *tape.Tensor {
	return b.exchange(x, 1/(b.reach(b.Shard.EP)*b.load()), 0)
}

// exchange moves rows, and so much beside each, between the experts' ranks. Those that
// leave an NVLink domain do so once for all ranks of the domain that they go to.
func (b *builder) exchange(x *tape.Tensor, factor float64, beside units.Bytes) *tape.Tensor {
	row := units.Bytes(x.Dim(-1)) * x.DType().Size()
	kind := "token-exchange"
	if b.Shard.DeepEP {
		kind = "deepep-exchange"
	}
	c := tape.CommSpec{Group: "ep", Ranks: b.Shard.EP, Forward: kind, Backward: kind, Rows: factor, Sent: float64((row + beside) / row)}
	if n := b.Shard.Domains; n > 1 {
		c.Sent *= b.reach(n) / b.reach(b.Shard.EP)
	}
	return b.t.Communicate(c, x)
}

// reach is on how many of equal parts of the experts those of a token lie.
func (b *builder) reach(parts int64) float64 {
	if b.InTurn {
		return ReachInTurn(b.Spec.MoE, parts)
	}
	return Reach(b.Spec.MoE, parts)
}

// ReachInTurn is on how many of equal parts of the experts those of a token lie, on average,
// where every token goes to the k experts after those of the token before.
func ReachInTurn(m *model.MoE, parts int64) float64 {
	part, tokens, reached := m.Experts/parts, int64(0), int64(0)
	for first := int64(0); first != 0 || tokens == 0; first = (first + m.TopK) % m.Experts {
		tokens++
		entered := int64(1)
		for i := int64(1); i < m.TopK; i++ {
			if (first+i)%m.Experts%part == 0 {
				entered++
			}
		}
		reached += min(entered, parts) // which it may come back to
	}
	return float64(reached) / float64(tokens)
}

// Reach is on how many of equal parts of the experts, in their order, those of a token
// lie, on average over random choices without repetition: of groups first, where the
// model chooses groups, then of experts of these.
func Reach(m *model.MoE, parts int64) float64 {
	groups, chosen := max(m.Groups, 1), max(m.TopGroups, 1)
	part, group := m.Experts/parts, m.Experts/groups // experts of each
	differ := parts                                  // parts that lie in groups in ways of their own
	if parts%groups == 0 || groups%parts == 0 {
		differ = 1
	}
	held := 0.0 // probability that a part holds any of the experts
	for i := range differ {
		// its experts in the first and last group that it touches, and how many groups lie between
		first, last := i*part/group, ((i+1)*part-1)/group
		ends, whole := [2]int64{part}, int64(0)
		touched := int64(1)
		if last > first {
			ends, whole, touched = [2]int64{(first+1)*group - i*part, (i+1)*part - last*group}, last-first-1, 2
		}
		for taken := range int64(1) << touched { // which of the two are among the chosen ones
			l, r := taken&1, taken>>1
			for w := range whole + 1 {
				p := choose(whole, w) * choose(groups-whole-touched, chosen-w-l-r) / choose(groups, chosen)
				held += p * (1 - missed(group*chosen, ends[0]*l+ends[1]*r+group*w, m.TopK))
			}
		}
	}
	return float64(parts) * held / float64(differ)
}

// missed is the probability that none of k choices out of n, without repetition, is one
// of some.
func missed(n, some, k int64) float64 {
	p := 1.0
	for i := range k {
		p *= max(1-float64(some)/float64(n-i), 0)
	}
	return p
}

// choose is the number of ways to choose k of n.
func choose(n, k int64) float64 {
	if k < 0 || k > n {
		return 0
	}
	ways := 1.0
	for i := range k {
		ways *= float64(n-i) / float64(i+1)
	}
	return ways
}

// chunks reorders what the ranks sent, or the one there is, by the experts of this one, when
// it has several (megatron/core/transformer/moe/token_dispatcher.py, num_local_experts).
func (b *builder) chunks(x *tape.Tensor) *tape.Tensor {
	if b.Spec.MoE.Experts <= b.Shard.EP {
		return b.t.Hold(x)
	}
	if b.recipe.Structure.UnfusedPermutation { // the chunks of each expert that each rank sent
		return b.t.SortChunks(x, b.Spec.MoE.Experts*max(b.Shard.ExpertTP, 1))
	}
	b.t.ChunkMap(x.Dim(0))
	return b.t.Permute(x, x.Dim(0))
}

// regroup copies what the ranks sent, as many rows for every expert, to the order of this
// one's experts, when there are several of both.
func (b *builder) regroup(x *tape.Tensor) *tape.Tensor {
	t, ranks := b.t, b.Shard.EP*b.Shard.ExpertTP
	if ranks <= 1 || b.Spec.MoE.Experts <= b.Shard.EP {
		return t.Hold(x)
	}
	here, rows, h := b.Spec.MoE.Experts/b.Shard.EP, x.Dim(0), x.Dim(1)
	y := t.Reshape(x, ranks, here, rows/(ranks*here), h)
	y = b.give(y, t.Transpose(y, 0, 1))
	y = b.give(y, t.Contiguous(y))
	return b.give(y, t.Reshape(y, rows, h))
}

// rejoinRows copies what a rank's experts made one by one to the order of the ranks that sent it, or
// once where that is theirs.
func (b *builder) rejoinRows(x *tape.Tensor) *tape.Tensor {
	y := b.regroup(x)
	if y.Store() != x.Store() {
		return y
	}
	return b.give(y, b.t.Copied(y))
}

// dropTokens leaves a tensor rank its part of the rows that all of them have, whose gradients it gathers.
func (b *builder) dropTokens(x *tape.Tensor) *tape.Tensor {
	if !b.recipe.Structure.DroppedTokens {
		return b.t.Hold(x)
	}
	return b.t.Communicate(tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Backward: "all-gather", Shrink: true, Join: true}, x)
}

// gatherTokens is the way back.
func (b *builder) gatherTokens(x *tape.Tensor) *tape.Tensor {
	if !b.recipe.Structure.DroppedTokens {
		return b.t.Hold(x)
	}
	return b.t.Communicate(tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Forward: "all-gather", Grow: true, Join: true}, x)
}

// padded copies token rows so that each expert's are as many as quantized operands
// must have, or back: numbers that come as they come hardly ever are.
func (b *builder) padded(x *tape.Tensor) *tape.Tensor {
	if b.t.Quantize == tape.F32 {
		return b.t.Hold(x)
	}
	return b.t.Permute(x, x.Dim(0))
}

// dispatch sends token rows to the ranks that hold their experts. The ranks that share
// an expert's matrices, cut along its intermediate width, all need every row that any
// of them receives: they gather them (the all-to-all dispatcher of Megatron-Core), unless
// they have gathered the tokens.
func (b *builder) dispatch(x *tape.Tensor) *tape.Tensor {
	x = b.t.Hold(x)
	if b.gathered && b.recipe.Structure.ReduceRows {
		x = b.give(x, b.t.Communicate(tape.CommSpec{Group: "expert_tp", Ranks: b.Shard.ExpertTP, Backward: "all-reduce"}, x))
	}
	y := b.give(x, b.allToAll(x, b.load()))
	if b.gathered {
		return y
	}
	return b.give(y, b.t.Communicate(tape.CommSpec{Group: "expert_tp", Ranks: b.Shard.ExpertTP, Forward: "all-gather", Backward: "reduce-scatter", Grow: true}, y))
}

// combine is the way back: each rank's partial results are summed over the ranks that
// share the experts, and every row returns to the rank it came from. Ranks that have
// gathered the tokens sum what becomes of those.
func (b *builder) combine(x *tape.Tensor) *tape.Tensor {
	if b.gathered {
		return b.allToAll(x, 1/b.load())
	}
	y := b.t.Communicate(tape.CommSpec{Group: "expert_tp", Ranks: b.Shard.ExpertTP, Forward: "reduce-scatter", Backward: "all-gather", Shrink: true}, x)
	return b.give(y, b.allToAll(y, 1/b.load()))
}

// allToAll exchanges token rows between the expert-parallel ranks. The busiest rank
// receives more than its share: factor times the rows it sends.
func (b *builder) allToAll(x *tape.Tensor, factor float64) *tape.Tensor {
	who := b.recipe.Structure.KeptExchanges
	kept := who == recipe.AllModels || who == recipe.UnnormedModels && !b.has(model.RoleQNorm)
	return b.t.Communicate(tape.CommSpec{Group: "ep", Ranks: b.Shard.EP, Forward: "all-to-all", Backward: "all-to-all", Rows: factor, Kept: kept}, x)
}

// byExpert brings the rows of one expert together, where several ranks sent some.
func (b *builder) byExpert(x *tape.Tensor) *tape.Tensor {
	if b.Shard.EP > 1 {
		return b.t.Rows(x, x.Dim(0), 1)
	}
	return b.t.Hold(x)
}

// byRank brings them back.
func (b *builder) byRank(x *tape.Tensor) *tape.Tensor {
	if b.Shard.EP > 1 {
		return b.t.Scatter(x)
	}
	return b.t.Hold(x)
}
