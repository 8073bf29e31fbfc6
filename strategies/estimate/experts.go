package estimate

import (
	"cmp"
	"math"
	"slices"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// domains is how many NVLink domains, or nodes where these are larger, the ranks of an
// expert-parallel group span.
func domains(j *strategies.Job) int64 {
	n := &j.Hardware.Node
	each := max(max(n.NVLinkDomain.Value, n.GPUs.Value)/max(j.Plan.Strides().EP, 1), 1)
	return max((j.Plan.EP+each-1)/each, 1)
}

// wideNVLink is whether the expert-parallel ranks share an NVLink domain that spans
// nodes, as in an NVL72 rack.
func wideNVLink(j *strategies.Job) bool {
	n := &j.Hardware.Node
	return n.NVLinkDomain.Value > n.GPUs.Value && domains(j) == 1
}

// flexDispatch is whether a kernel of its own sends rows to the experts' ranks (Megatron's
// flex dispatcher), not NCCL's all-to-all: as the job says, else inside a rack, and
// across NVLink domains for the models for which the recipe has it. Such a kernel
// permutes rows, too.
func flexDispatch(j *strategies.Job) bool {
	if d := j.Runtime.TokenDispatcher; d != "" {
		return d != strategies.AllToAllDispatcher
	}
	switch s := &j.Recipe.Structure; {
	case s.UnfusedPermutation, s.FlexDispatcher == recipe.NoModels, j.Train.Capacity > 0: // as NVIDIA's benchmarks that drop tokens (Megatron-Bridge 25.09)
		return false
	case s.FlexDispatcher == recipe.AllModels:
		return true
	}
	return wideNVLink(j) || domains(j) > 1 && j.Recipe.Structure.FlexDispatcher == recipe.LatentModels && j.Model.MLA != nil
}

// deepEP is whether that kernel is DeepEP's: as the job says, else Megatron's own choice
// (moe_flex_dispatcher_backend) where neither a rack nor a graph of the whole step needs Hybrid-EP.
func deepEP(j *strategies.Job) bool {
	switch j.Runtime.TokenDispatcher {
	case strategies.DeepEPDispatcher:
		return true
	case strategies.HybridEPDispatcher:
		return false
	}
	return !wideNVLink(j) && !syncFree(j)
}

// exchangesOverlap is whether experts' exchanges run beside another micro batch, the
// forward pass of one beside the backward pass of the one before: as the job says, else
// where a whole step is replayed, and across NVLink domains under a pipeline; never where
// the framework refuses it.
func exchangesOverlap(j *strategies.Job) bool {
	o, pipe := &j.Recipe.Overlap, j.Plan.PP > 1
	switch on := j.Runtime.EPOverlap; {
	case j.Plan.EP <= 1 || j.Model.MoE == nil || j.RefusesEPOverlap():
		return false
	case on != nil:
		return *on
	case syncFree(j):
		return o.SyncFreeEP
	}
	return o.RemoteEP && pipe && domains(j) > 1
}

// syncFree is whether a whole step is replayed from a CUDA graph although it has
// experts. The kernels that allow it exchange rows inside one NVLink domain, numbers of
// them as they come; experts of a capacity run the kernels of all others, and so do those that
// leave activations to the host module by module (Megatron-Core, transformer_config.py:
// moe_paged_stash, which keeps them, refuses these).
func syncFree(j *strategies.Job) bool {
	n := &j.Hardware.Node
	graphs := j.Runtime.CUDAGraphs == "" || j.Runtime.CUDAGraphs == strategies.FullGraphs
	other := []string{strategies.AllToAllDispatcher, strategies.DeepEPDispatcher}
	joint := j.Runtime.GroupedMLPFusion
	return graphs && ops.Away(j.Train.OffloadModules)&ops.OfExperts == 0 && (joint == nil || *joint) && j.Precision.SyncFree && !j.Recipe.Structure.UnfusedPermutation && j.Model.MoE != nil && j.Model.Gated && j.Train.Capacity == 0 &&
		!slices.Contains(other, j.Runtime.TokenDispatcher) && j.Plan.EP > 1 && j.Plan.ExpertTP <= 1 && j.Plan.EP <= max(n.NVLinkDomain.Value, n.GPUs.Value)
}

// unevenness is the standard deviation of the rows of an expert rank over the mean, by the
// root of the ranks.
type unevenness struct {
	router float64 // over all text
	text   float64 // of one document, whose tokens like the same experts
}

// routers that learn. The busiest rank has as much more as the maximum of normal values.
// Decoders of 8 layers trained on an H100 for 600 to 800 steps of 33 thousand tokens of text
// and code (2026-11-23) give it 1.06 to 1.09 of 4 ranks, 1.11 to 1.16 of 8, 1.22 of 16, 1.35
// to 1.38 of 32 and 1.57 to 1.70 of 64, whether 8 or 64 experts are balanced by an auxiliary
// loss of 0.01 or 64 by biases; 1.25 to 1.29 of 8 with a loss of 0.001, 1.5 to 2.2 with none.
// Of ever more documents of others' text four more such decoders spread ever less, down to a
// rest (H200, 2026-11-26): beyond that by 0.12 over the root of their number with 64 experts,
// 0.15 with a loss of 0.001. Mixtral 8x22B takes 4.5 % longer than with forced balance
// (Megatron-MoE-ModelZoo, best_practice/mixtral), as 1.08 of 8 would. Where
// weights are random, the hidden states of all tokens grow alike from layer to layer, and so
// does what routers choose (awslabs/awsome-distributed-ai, dsv3/benchmarks/RESULTS.md:
// "random-init weights + mock data, router untrained: routing is degenerate"): 24 layers of
// Qwen3's kind with 128 experts, eight a token, gave the busiest of 2, 4, 8, 16, 32 and 64 ranks
// 1.2, 1.5, 2.15, 3.3, 5.4 and 8.6 to 9.3 of Megatron's mock documents of 4,096 tokens, and of random
// ids, 1.15, 1.4, 1.9, 2.6, 4.2 and 6.8 (simulated,
// 2026-11-28; beyond 16 ranks hot experts weigh more than the normal law says).
var routers = map[string]unevenness{strategies.LearnedRouting: {0.0215, 0.12}, strategies.WeakRouting: {0.054, 0.15}, strategies.UnbalancedRouting: {0.21, 0.15},
	strategies.UntrainedRouting: {0.3, 0.15}}

// documentLength is how many tokens a document has where the job does not say: between the means of
// C4 (430), FineWeb (600) and the Pile (1,500).
const documentLength = 1000

// unbalancedStep is the standard deviation, over the step, where nothing balances: the middle
// of 1.5 and 2.2 of 8, which routers has, is 19 % from either.
const unbalancedStep = 0.2

// imbalance is the rows of the busiest expert rank, for which the others wait, over the
// mean; without such ranks what the job says of the busiest expert, 0 where it says nothing. Left open it is that of random routing where the framework's benchmarks draw
// logits (Megatron-Core's moe_router_force_load_balancing).
func imbalance(j *strategies.Job) float64 {
	given, m, ranks, routing := j.Train.Imbalance, j.Model.MoE, j.Plan.EP, j.Train.Routing
	if routing == "" && j.Recipe.Structure.RandomRouting {
		routing = strategies.RandomRouting
	}
	if ranks <= 1 {
		return given
	}
	if given > 0 || m == nil || j.Train.Capacity > 0 || routing == "" || routing == strategies.EvenRouting || routing == strategies.InTurnRouting {
		return max(given, 1)
	}
	tokens := float64(j.Train.MicroBatch*j.Train.SequenceLength*ranks) / float64(max(j.Plan.CP, 1))
	if j.Plan.SP() {
		tokens /= float64(j.Plan.TP)
	}
	here := 1 / float64(ranks) // of the experts
	mean := tokens * float64(m.TopK) * here
	variance := (1 - here) * float64(m.Experts-m.TopK) / float64(max(m.Experts-1, 1)) / mean // over the mean's square; hypergeometric, of each token
	r, documents := routers[routing], math.Max(tokens/float64(cmp.Or(j.Train.DocumentLength, documentLength)), 1)
	variance += (r.router*r.router + r.text*r.text/documents) * float64(ranks)
	return min(1+expectedMaximum(ranks)*math.Sqrt(variance), float64(ranks))
}

// precision is that of the job. Attention multiplies in the layers' 8 bits where a step with
// experts is replayed whole, as in Megatron-Bridge's configurations from v0.5.0 on, unless
// the job says otherwise.
func precision(j *strategies.Job) recipe.Precision {
	p := j.Precision
	if !p.Attention.Set && syncFree(j) && j.Runtime.Attention == "flash" && j.Plan.CP <= 1 {
		if _, ok := j.Hardware.Laws.Attention.Flavour[p.GEMM.String()]; ok {
			p.Attention = p.GEMM
		}
	}
	return p
}

// hiddenExchanges is the share of the exchanges between experts that run beside
// another micro batch: all but those that fill and drain the pipeline, PP of the micro
// batches.
func hiddenExchanges(j *strategies.Job) units.Seconds {
	if !exchangesOverlap(j) {
		return 0
	}
	return units.Seconds(max(0, 1-float64(j.Plan.PP)/float64(j.Train.GradAccumulation)))
}

// hideExchanges leaves of the exchanges of a layer's passes what another micro batch, which
// is in the other pass, cannot hide, and what they slow its kernels by.
func hideExchanges(p *pricer, forward, backward *section) {
	w := exchangeWindows(forward, backward)
	var exchanges, longer units.Seconds
	for _, x := range w.of {
		exchanges += x.exchange
	}
	if exchanges == 0 {
		return
	}
	for _, x := range w.of {
		if x.exchange > 0 {
			longer += beside(x.exchange, x.alone, x.loaded, units.Seconds(p.slow(w.kind)))
		}
	}
	left := 1 - p.hides + p.hides*longer/exchanges
	for _, s := range [...]*section{forward, backward} {
		for i := range s.base {
			if b, l := &s.base[i], &s.launches[i]; b.role == commRole && b.group == epGroup {
				s.comm[epGroup] -= l.Busy * (1 - left)
				l.Busy *= left
				l.Loaded = l.Busy
			}
		}
	}
}

// window is an exchange and the kernels that run beside it.
type window struct {
	exchange      units.Seconds
	alone, loaded units.Seconds // the kernels, by themselves and beside an exchange
}

// windows are the four in which a layer of one micro batch runs forward beside one of another
// that runs backward (Megatron-Core, model_chunk_schedule_plan.py,
// TransformerLayerSchedulePlan.run).
type windows struct {
	of   [numWindows]window
	kind collective.Op // of the exchanges
}

const (
	combineBack  = iota // combined rows' gradients, beside attention and router, and weight gradients of attention before
	dispatch            // rows to the experts, beside the experts' gradients
	dispatchBack        // gradients of those rows, beside weight gradients of the experts, then the experts
	combine             // rows back from the experts, beside the gradients of router and attention
	numWindows
)

func exchangeWindows(forward, backward *section) *windows {
	var w windows
	w.add(forward, dispatch, dispatchBack, combine)
	w.add(backward, combineBack, dispatch, dispatchBack)
	return &w
}

// add places a pass, given the windows of its first exchange, of the kernels between its
// exchanges and of its last one.
func (w *windows) add(s *section, first, between, last int) {
	begin, end := -1, -1 // of the experts' products
	for i := range s.ops {
		if s.ops[i].Class == tape.GroupedGEMM {
			if end = i; begin < 0 {
				begin = i
			}
		}
	}
	started, ended := false, false // the first exchange, the last one
	for i := range s.base {
		b, l, o := &s.base[i], &s.launches[i], &s.ops[i]
		if b.role == commRole && b.group == epGroup {
			w.kind = b.kind
			to := first
			if i > begin {
				to, ended = last, i > end
			}
			started = started || i < begin
			w.of[to].exchange += l.Busy
			continue
		}
		if b.role == commRole || b.role == asyncRole {
			continue
		}
		to := between
		switch weights := o.Layout == tape.LayoutWgrad && (o.Class == tape.GEMM || o.Class == tape.GroupedGEMM); {
		case weights && ended:
			to = combineBack
		case weights:
			to = dispatchBack
		case !started:
			to = combineBack
		case ended:
			to = combine
		}
		w.of[to].alone += l.Busy
		w.of[to].loaded += l.Loaded
	}
}

// expertCost is the CPU time of one expert of a grouped GEMM.
func expertCost(h *recipe.Host, o *tape.Op) units.Seconds {
	c := units.Seconds(0)
	switch {
	case o.Wraps:
		c = h.WrapExpert
	case !o.Calls: // one kernel for all
	case o.DType.Narrow() && h.ScaledExpert > 0:
		c = h.ScaledExpert
	default:
		c = h.Expert
	}
	if o.Layout == tape.LayoutWgrad {
		c += h.ExpertGrad
	}
	return c
}
