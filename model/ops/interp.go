package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// value is what a program variable holds: a tensor (nil for an absent bias), a
// number, a dtype or a word.
type value struct {
	t    *tape.Tensor
	save bool   // marked save(x) in a fused call
	key  string // name of a keyword argument
	num  float64
	word string
	dt   tape.DType
	kind valueKind
}

type valueKind uint8

const (
	tensorValue valueKind = iota
	numberValue
	wordValue
	dtypeValue
)

func tensorOf(t *tape.Tensor) value { return value{t: t} }
func numberOf(n float64) value      { return value{num: n, kind: numberValue} }

// primitive runs one primitive of model/tape. It borrows its arguments and
// returns owned results.
type primitive func(b *builder, a []value) []value

func tensorsOf(a []value) []*tape.Tensor {
	out := make([]*tape.Tensor, len(a))
	for i, v := range a {
		out[i] = v.t
	}
	return out
}

func one(t *tape.Tensor) []value { return []value{{t: t}} }

// primitives are the words a program may call, by name.
var primitives map[string]primitive

func init() {
	unary := func(name string) primitive {
		return func(b *builder, a []value) []value { return one(b.t.Unary(name, a[0].t)) }
	}
	scale := func(name string) primitive {
		return func(b *builder, a []value) []value { return one(b.t.Scale(name, a[0].t)) }
	}
	inPlace := func(name string) primitive {
		return func(b *builder, a []value) []value { return one(b.t.InPlace(name, a[0].t, tensorsOf(a[1:])...)) }
	}
	primitives = map[string]primitive{
		"lerp_":         inPlace("lerp_"),
		"mul_":          inPlace("mul_"),
		"add_":          inPlace("add_"),
		"div_":          inPlace("div_"),
		"lerp":          func(b *builder, a []value) []value { return one(b.t.Elementwise("lerp", a[0].t, a[1].t)) },
		"norm":          func(b *builder, a []value) []value { return one(b.t.Norm(a[0].t)) },
		"wide":          func(b *builder, a []value) []value { return one(b.wide(a[0].t)) },
		"bf16":          func(b *builder, a []value) []value { return one(b.t.To(a[0].t, tape.BF16)) },
		"joined":        func(b *builder, a []value) []value { return one(b.joined(a[0].t)) },
		"part":          func(b *builder, a []value) []value { return one(b.part(a[0].t)) },
		"upright":       func(b *builder, a []value) []value { return one(b.t.Upright(a[0].t, a[1].t)) },
		"sum_shards":    func(b *builder, a []value) []value { b.t.Collect("all-reduce", "shard", a[0].t); return nil },
		"newton_schulz": func(b *builder, a []value) []value { return one(b.t.NewtonSchulz(a[0].t)) },
		"newton_schulz_shards": func(b *builder, a []value) []value {
			return one(b.t.NewtonSchulzShards(a[0].t, b.ranks, b.matrix.Rows*b.ranks > b.matrix.Cols))
		},
		"dtype":      func(b *builder, a []value) []value { return []value{{dt: a[0].t.DType(), kind: dtypeValue}} },
		"to":         func(b *builder, a []value) []value { return one(b.t.To(a[0].t, a[1].dt)) },
		"float":      func(b *builder, a []value) []value { return one(b.t.Float(a[0].t)) },
		"add":        func(b *builder, a []value) []value { return one(b.t.Add(a[0].t, a[1].t)) },
		"sub":        func(b *builder, a []value) []value { return one(b.t.Sub(a[0].t, a[1].t)) },
		"clamp":      func(b *builder, a []value) []value { return one(b.t.Clamp(a[0].t, int(a[1].num))) },
		"row_max":    func(b *builder, a []value) []value { return one(b.t.RowMax(a[0].t)) },
		"mul":        func(b *builder, a []value) []value { return one(b.t.Mul(a[0].t, a[1].t)) },
		"div":        func(b *builder, a []value) []value { return one(b.t.Div(a[0].t, a[1].t)) },
		"pow":        func(b *builder, a []value) []value { return one(b.t.Pow(a[0].t, a[1].num)) },
		"mean":       func(b *builder, a []value) []value { return one(b.t.Mean(a[0].t)) },
		"row_norm":   func(b *builder, a []value) []value { return one(b.t.RowNorm(a[0].t)) },
		"sum":        func(b *builder, a []value) []value { return one(b.t.Sum(a[0].t)) },
		"rsqrt":      func(b *builder, a []value) []value { return one(b.t.Rsqrt(a[0].t)) },
		"add_scalar": scale("add_scalar"),
		"mul_scalar": scale("mul_scalar"),
		"silu":       unary("silu"),
		"gelu":       unary("gelu"),
		"gelu_tanh":  unary("gelu_tanh"),
		"relu":       unary("relu"),
		"tanh":       unary("tanh"),
		"sigmoid":    unary("sigmoid"),
		"neg":        unary("neg"),
		"above":      func(b *builder, a []value) []value { return one(b.t.Above(a[0].t)) },
		"where":      func(b *builder, a []value) []value { return one(b.t.Where(a[0].t, a[1].t, a[2].t)) },
		"expm1":      func(b *builder, a []value) []value { return one(b.t.Expm1(a[0].t)) },
		"minimum":    func(b *builder, a []value) []value { return one(b.t.Minimum(a[0].t)) },
		"uniform":    func(b *builder, a []value) []value { return one(b.t.Uniform(a[0].t)) },
		"exp":        unary("exp"),
		"softplus":   unary("softplus"),
		"layer_norm": func(b *builder, a []value) []value { // without a bias: of RMS
			bias := (*tape.Tensor)(nil)
			if len(a) > 2 {
				bias = a[2].t
			}
			return one(b.t.LayerNorm(a[0].t, a[1].t, bias))
		},
		"layer_norm_low": func(b *builder, a []value) []value { // of what autocast's dtype makes of its arguments, outside of autocast
			t := b.t
			dtype := t.Autocast
			if dtype == tape.F32 {
				return one(t.LayerNorm(a[0].t, a[1].t, a[2].t))
			}
			x, w, bias := t.To(a[0].t, dtype), t.To(a[1].t, dtype), t.To(a[2].t, dtype)
			t.Autocast = tape.F32
			y := t.LayerNorm(x, w, bias)
			t.Autocast = dtype
			t.Release(x, w, bias)
			return one(y)
		},
		"softmax": func(b *builder, a []value) []value { return one(b.t.Softmax("softmax", a[0].t)) },
		"log_softmax": func(b *builder, a []value) []value {
			return one(b.t.Softmax("log_softmax", a[0].t))
		},
		"nll_loss": func(b *builder, a []value) []value { return one(b.t.NLLLoss(a[0].t)) },
		"loss_parallel": func(b *builder, a []value) []value {
			x := a[0].t
			return one(b.t.ParallelLoss(x, func(*tape.Tensor) { b.sumRows(x) }))
		},
		"loss_parallel_compiled": func(b *builder, a []value) []value {
			x := a[0].t
			return one(b.t.CompiledParallelLoss(x, func(*tape.Tensor) { b.sumRows(x) }))
		},
		"matmul":   func(b *builder, a []value) []value { return one(b.t.Matmul(a[0].t, a[1].t)) },
		"matmul_t": func(b *builder, a []value) []value { return one(b.t.MatmulT(a[0].t, a[1].t)) },
		// batch and heads lie side by side: [sequence, batch, head, width]
		"bmm":        func(b *builder, a []value) []value { return one(b.t.BatchedMatmul(a[0].t, a[1].t)) },
		"bmm_t":      func(b *builder, a []value) []value { return one(b.t.BatchedMatmulT(a[0].t, a[1].t)) },
		"contiguous": func(b *builder, a []value) []value { return one(b.t.Contiguous(a[0].t)) },
		"add_mask": func(b *builder, a []value) []value { // an additive mask that all heads share, of the scores' dtype or of a[1]
			x := a[0].t
			dtype := x.DType()
			if len(a) > 1 {
				dtype = a[1].dt
			}
			return one(b.t.Add(x, b.t.Outside(dtype, x.Dim(0), 1, x.Dim(-2), x.Dim(-1))))
		},
		"add_slopes": func(b *builder, a []value) []value { // ALiBi's, of each head and key
			x := a[0].t
			return one(b.t.Add(x, b.t.Outside(tape.F32, 1, x.Dim(1), 1, x.Dim(-1))))
		},
		"add_masks": func(b *builder, a []value) []value { // of every head
			x := a[0].t
			return one(b.t.Add(x, b.t.Outside(b.hidden, x.Dim(0), x.Dim(1), x.Dim(-2), x.Dim(-1))))
		},
		"score_mask": func(b *builder, a []value) []value { // of every query and key, which all heads share
			x := a[0].t
			return one(b.t.Outside(tape.Bool, x.Dim(0), 1, x.Dim(-2), x.Dim(-1)))
		},
		"add_mask_": func(b *builder, a []value) []value { // one mask for all sequences, of dtype a[1], added in place
			x := a[0].t
			return one(b.t.AddTo(x, b.t.Outside(a[1].dt, 1, 1, x.Dim(-2), x.Dim(-1))))
		},
		"causal_mask": func(b *builder, a []value) []value { // two fills and a selection make the mask of one call
			x := a[0].t
			b.t.Tiny("fill_", 2)
			m := b.t.MaskOf(x.DType(), x.Dim(-2), x.Dim(-2))
			return one(m)
		},
		"safe_softmax": func(b *builder, a []value) []value { return one(b.t.SafeSoftmax(a[0].t)) },
		"repeat":       func(b *builder, a []value) []value { return one(b.repeat(a[0].t, a[1].t.Dim(1))) },
		"add_sinks": func(b *builder, a []value) []value { // a column of scores that belongs to no key
			x, t := a[0].t, b.t
			s := t.Reshape(b.p(model.RoleSinks), 1, x.Dim(1), 1, 1)
			s = b.give(s, t.Expand(s, x.Dim(0), x.Dim(1), x.Dim(2), 1))
			y := t.Concat(x, s)
			t.Release(s)
			return one(y)
		},
		"drop_sinks": func(b *builder, a []value) []value {
			return one(b.t.Slice(a[0].t, -1, 0, a[0].t.Dim(-1)-1))
		},
		"attention_dropout": func(b *builder, a []value) []value {
			return one(b.t.Dropout(a[0].t, b.dropouts.attention))
		},
		"tp_all_reduce": func(b *builder, a []value) []value { b.sumRows(a[0].t); return nil },
		"linear": func(b *builder, a []value) []value { // with an optional bias
			return one(b.plainLinear(a[0].t, a[1].t, append(a, value{})[2].t))
		},
		"weights": func(b *builder, a []value) []value { return one(b.t.Weights(a[0].t, int64(a[1].num))) },
		"topk":    func(b *builder, a []value) []value { return one(b.t.TopK(a[0].t, int64(a[1].num))) },
		"dense":   func(b *builder, a []value) []value { return one(b.t.Dense(a[0].t, a[1].t)) },
		"fused_topk": func(b *builder, a []value) []value {
			rounds := int64(0)
			if len(a) > 2 {
				rounds = int64(a[2].num)
			}
			return one(b.t.FusedTopK(a[0].t, int64(a[1].num), rounds))
		},
		"fused_scores":   func(b *builder, a []value) []value { return one(b.t.FusedScores(a[0].t, int64(a[1].num))) },
		"balanced_fused": func(b *builder, a []value) []value { return one(b.t.BalancedFused(a[0].t, a[1].t)) },
		"balanced":       func(b *builder, a []value) []value { return one(b.t.Balanced(a[0].t, a[1].t)) },
		"map":            func(b *builder, a []value) []value { b.t.RoutingMap(a[0].t, int64(a[1].num)); return nil },
		"count_rows":     func(b *builder, a []value) []value { b.t.CountRows(a[0].t); return nil },
		"row_map":        func(b *builder, a []value) []value { b.t.RowMap(a[0].t.Dim(0), b.Spec.MoE.Experts); return nil },
		"tiny":           func(b *builder, a []value) []value { b.t.Tiny("tiny", int(a[0].num)); return nil },
		"preprocess":     func(b *builder, a []value) []value { b.t.Tiny("preprocess", int(a[0].num)); return nil },
		"scan_map":       func(b *builder, a []value) []value { b.scanMap(a[0].t); return nil },
		"wait":           func(b *builder, a []value) []value { b.t.Wait(); return nil },
		"first_half": func(b *builder, a []value) []value {
			return one(b.t.Slice(a[0].t, -1, 0, a[0].t.Dim(-1)/2))
		},
		"second_half": func(b *builder, a []value) []value {
			return one(b.t.Slice(a[0].t, -1, a[0].t.Dim(-1)/2, a[0].t.Dim(-1)))
		},
		"every_other": func(b *builder, a []value) []value { return one(b.t.EveryOther(a[0].t)) },
		"pairs":       func(b *builder, a []value) []value { return one(b.t.Pairs(a[0].t, a[1].t)) },
		"cat":         func(b *builder, a []value) []value { return one(b.t.Concat(a[0].t, a[1].t)) },
		"halves": func(b *builder, a []value) []value {
			w := a[0].t.Dim(-1) / 2
			p := b.t.Split(a[0].t, w, w)
			return []value{tensorOf(p[0]), tensorOf(p[1])}
		},
		"thirds": func(b *builder, a []value) []value {
			w := a[0].t.Dim(-1) / 3
			return tensors(b.t.Split(a[0].t, w, w, w))
		},
		"activation": func(b *builder, a []value) []value { return one(b.activation(a[0].t)) },
		"sort":       func(b *builder, a []value) []value { b.t.Sort(int64(a[0].num)); return nil },
		"rows":       func(b *builder, a []value) []value { return one(b.t.Rows(a[0].t, int64(a[1].num), 1)) },
		"index_select": func(b *builder, a []value) []value {
			return one(b.t.IndexSelect(a[0].t, int64(a[1].num)))
		},
		"scatter_add": func(b *builder, a []value) []value { return one(b.t.ScatterAdd(a[0].t, a[1].t.Dim(0))) },
		"bias_rows":   biasRows,
		"expert_bias": func(b *builder, a []value) []value { // of those that have one
			if a[1].t == nil {
				return one(b.t.Hold(a[0].t))
			}
			return one(b.t.ExpertBias(a[0].t, a[1].t, append(a, value{})[2].t))
		},
		"wait_ranks": func(b *builder, a []value) []value { // for the numbers of rows that ranks exchange, where there are several
			if b.Shard.EP > 1 {
				b.t.Wait()
			}
			return nil
		},
		"compiled_regions": func(b *builder, a []value) []value { // calls of what the compiler made of parts of a module
			if b.t.Compiled {
				b.t.Note("compiled_region", int(a[0].num))
			}
			return nil
		},
		"stacked":    func(b *builder, a []value) []value { return one(b.t.Stacked(a[0].t)) },
		"put_rows":   func(b *builder, a []value) []value { return one(b.t.PutRows(a[0].t, int64(a[1].num), true)) },
		"put_back":   func(b *builder, a []value) []value { return one(b.t.PutRows(a[0].t, a[0].t.Dim(0), false)) },
		"weigh_rows": func(b *builder, a []value) []value { return one(b.t.WeighRows(a[0].t, a[1].t, int64(a[2].num))) },
		"all_rows":   func(b *builder, a []value) []value { return one(b.t.Rows(a[0].t, a[0].t.Dim(0), 1)) },
		"permute":    func(b *builder, a []value) []value { return one(b.t.Permute(a[0].t, int64(a[1].num))) },
		"arrive":     func(b *builder, a []value) []value { return one(b.toExperts(a[0].t, b.busiest(int64(a[1].num)))) },
		"along":      func(b *builder, a []value) []value { return one(b.t.Along(a[0].t, a[1].t.Dim(0))) },
		"unpermute":  func(b *builder, a []value) []value { return one(b.t.Unpermute(a[0].t, int64(a[1].num))) },
		"regroup":    func(b *builder, a []value) []value { return one(b.regroup(a[0].t)) },
		"drop": func(b *builder, a []value) []value {
			b.t.Drop(a[0].t.Dim(0), b.Spec.MoE.Experts, int64(a[1].num))
			return nil
		},
		"one_hot_gate": func(b *builder, a []value) []value {
			return one(b.t.OneHotGate(a[0].t, int64(a[1].num), int64(a[2].num)))
		},
		"slots": func(b *builder, a []value) []value {
			w, m := b.t.Slots(a[0].t, int64(a[1].num), int64(a[2].num))
			return []value{tensorOf(w), tensorOf(m)}
		},
		"matmul_rows": func(b *builder, a []value) []value { // of the transpose of a matrix that may have more dimensions
			m := b.t.Reshape(a[0].t, a[1].t.Dim(0), a[0].t.Size()/a[1].t.Dim(0))
			m = b.give(m, b.t.Transpose(m, 0, 1))
			defer b.t.Release(m)
			return one(b.t.Matmul(m, a[1].t))
		},
		"drop_tokens":   func(b *builder, a []value) []value { return one(b.dropTokens(a[0].t)) },
		"gather_tokens": func(b *builder, a []value) []value { return one(b.gatherTokens(a[0].t)) },
		"rejoin_rows":   func(b *builder, a []value) []value { return one(b.rejoinRows(a[0].t)) },
		"unpermute_to":  func(b *builder, a []value) []value { return one(b.t.UnpermuteTo(a[0].t, a[1].t.Dim(0))) },
		"chunks":        func(b *builder, a []value) []value { return one(b.chunks(a[0].t)) },
		"padded":        func(b *builder, a []value) []value { return one(b.padded(a[0].t)) },
		"row_mask": func(b *builder, a []value) []value {
			return one(b.t.Empty(tape.Bool, int64(a[0].num), 1))
		},
		"masked_fill": func(b *builder, a []value) []value { return one(b.t.MaskedFill(a[0].t, a[1].t)) },
		"mask_rows":   func(b *builder, a []value) []value { return one(b.t.MaskRows(a[0].t, a[1].t)) },
		"grouped": func(b *builder, a []value) []value {
			r, away := model.RoleExpertsGateUp, ExpertsFirst|ExpertsMLP
			if w := a[1].t; w.Param() == b.roles[model.RoleExpertsDown] {
				r, away = model.RoleExpertsDown, ExpertsMLP
			}
			var y *tape.Tensor
			b.leaving(away, func() {
				y = b.halfZero(r, func() *tape.Tensor { return b.t.GroupedLinear(a[0].t, a[1].t, b.Spec.MoE.Transposed) })
			})
			return one(y)
		},
		// the activation between two GEMMs of the experts, which the second one's result lets go of
		"expert_act": func(b *builder, a []value) []value {
			act := func(ins []*tape.Tensor) []*tape.Tensor {
				name := b.gate("expert_glu")
				if !b.Spec.Gated {
					name = "expert_plain"
					if b.recipe.Structure.FusedReLU2 {
						name = "expert_relu2"
					}
				}
				return []*tape.Tensor{b.call(name, tensorOf(ins[0]), tensorOf(ins[1]))[0].t}
			}
			var out []*tape.Tensor
			b.leaving(ExpertsGate|ExpertsMLP, func() { out, b.after = b.discarding(ExpertActivation, act, a[0].t, a[1].t) })
			return one(out[0])
		},
		"after_act": func(b *builder, a []value) []value { return one(b.after(b.t.Hold(a[0].t))) },
		"grouped_mlp": func(b *builder, a []value) []value {
			plain := !b.Spec.Gated
			var y *tape.Tensor
			var biases []*tape.Tensor
			for _, v := range a[4:] {
				if v.t != nil {
					biases = append(biases, v.t)
				}
			}
			b.leaving(ExpertsMLP, func() {
				y = b.t.GroupedMLP(a[0].t, a[1].t, a[2].t, a[3].t, tape.ExpertMLP{Transposed: b.Spec.MoE.Transposed, Plain: plain, Stash: b.SyncFree, Again: plain && b.again(ExpertActivation)}, biases...)
			})
			return one(y)
		},
		"sum_groups": func(b *builder, a []value) []value { return one(b.t.SumGroups(a[0].t, int64(a[1].num))) },
		"column":     func(b *builder, a []value) []value { return one(b.t.Reshape(a[0].t, a[0].t.Size(), 1)) },
		"spread":     func(b *builder, a []value) []value { return one(b.spread(a[0].t)) },
		"collect":    func(b *builder, a []value) []value { return one(b.collect(a[0].t)) },
		"like_rows":  func(b *builder, a []value) []value { return one(b.toExperts(a[0].t, a[1].t.Dim(0))) },
		"dispatch":   func(b *builder, a []value) []value { return one(b.dispatch(a[0].t)) },
		"combine":    func(b *builder, a []value) []value { return one(b.combine(a[0].t)) },
		"fused":      fused,
		"liger_norm": func(b *builder, a []value) []value { // in_place but for Gemma 2 and 3 and OLMo 2 (transformers/rms_norm.py)
			return one(b.t.LigerNorm(a[0].t, a[1].t, b.Spec.Place != model.PreNorm))
		},
		"liger_rope": func(b *builder, a []value) []value {
			q, k := b.t.LigerRope(a[0].t, a[1].t)
			return []value{{t: q}, {t: k}}
		},
		"liger_gate": func(b *builder, a []value) []value { // with numbers: of kernels that arithmetic limits
			work, back := 0.0, 0.0
			if len(a) > 2 {
				work, back = a[2].num, a[3].num
			}
			return one(b.t.LigerGate(a[0].t, a[1].t, work, back))
		},
		"vocab_loss":         func(b *builder, a []value) []value { return one(b.t.VocabLoss(a[0].t, false)) },
		"vocab_loss_apart":   func(b *builder, a []value) []value { return one(b.t.VocabLoss(a[0].t, true)) },
		"softmax_loss":       func(b *builder, a []value) []value { return one(b.t.SoftmaxLoss(a[0].t)) },
		"copied":             func(b *builder, a []value) []value { return one(b.t.Copied(a[0].t)) },
		"linear_loss":        func(b *builder, a []value) []value { return one(b.t.LinearLoss(a[0].t, a[1].t)) },
		"fused_loss":         func(b *builder, a []value) []value { return one(b.t.FusedLoss(a[0].t, false)) },
		"fused_loss_shifted": func(b *builder, a []value) []value { return one(b.t.FusedLoss(a[0].t, true)) },
		"flatten": func(b *builder, a []value) []value {
			x := a[0].t
			return one(b.t.Reshape(x, x.Size()/x.Dim(-1), x.Dim(-1)))
		},
	}
}

// biasRows adds to each row the bias of its expert, if there are any.
func biasRows(b *builder, a []value) []value {
	x, bias := a[0].t, a[1].t
	if bias == nil {
		return one(b.t.Hold(x))
	}
	n := x.Dim(0)
	var rows *tape.Tensor
	if len(a) > 2 { // by repeat_interleave, whose gradient adds up atomically
		rows = b.t.IndexSelect(bias, n)
	} else {
		rows = b.t.Rows(bias, n, b.recipe.Structure.BusiestExpert)
	}
	y := b.t.Add(x, rows)
	b.t.Release(rows)
	return one(y)
}

// fusedClass is what fusedClasses says of a word: class of the kernel, of its gradient.
func fusedClass(b *builder, word string) (forward, back tape.Class) {
	c, ok := fusedClasses[word]
	if !ok {
		panic(fmt.Sprintf("ops: recipe %s: fused has no class %q", b.recipe.Name, word))
	}
	return c[0], c[1]
}

// fused runs a kernel that does several things at once:
//
//	fused(save(x), y, w, class=reduce, rows=1)
//
// reads its tensors and writes one output like the first; save(x) keeps an input
// for the gradient. Keywords: class (of fusedClasses), saveout, mask (a byte per
// element is kept), rows (fp32 values kept per row), outs (outputs), read, write,
// back_read, back_write (further passes over the first input), kernels and
// back_kernels, width, shrink, grow and heads (of the output), inplace (the gradient
// overwrites what was saved), back_wait (of the host, before the gradient), fp32 (output dtype), back (class of the gradient), work and
// back_work (elements counted, over those there are), index (of strided), name.
func fused(b *builder, a []value) []value {
	f := tape.Fused{Prim: "fused", Class: tape.FusedPointwise, Outs: 1}
	var ins []*tape.Tensor
	set, back := false, tape.NoKernel
	for _, v := range a {
		switch v.key {
		case "":
			if v.save {
				f.Save = append(f.Save, len(ins))
			}
			if v.t != nil {
				ins = append(ins, v.t)
			}
		case "class":
			f.Class, f.Back = fusedClass(b, v.word)
		case "back":
			_, back = fusedClass(b, v.word)
		case "work":
			f.Work = v.num
		case "back_work":
			f.BackWork = v.num
		case "index":
			f.Index = v.num
		case "name":
			f.Prim = v.word
		case "mask":
			f.Mask = v.num > 0
		case "inplace":
			f.InPlace = v.num > 0
		case "back_wait":
			f.BackWait = v.num > 0
		case "shrink":
			f.Shrink = int64(v.num)
		case "grow":
			f.Grow = int64(v.num)
		case "back_kernels":
			f.BackKernels = int(v.num)
		case "saveout":
			f.SaveOut = v.num > 0
		case "rows":
			f.SaveRows = int(v.num)
		case "outs":
			f.Outs = int(v.num)
		case "read":
			f.Read = v.num
		case "write":
			f.Write = v.num
		case "back_read":
			f.BackRead = v.num
		case "back_write":
			f.BackWrite = v.num
		case "kernels":
			f.Kernels = int(v.num)
		case "width":
			f.Width = int64(v.num)
		case "heads":
			f.Heads = int64(v.num)
		case "fp32":
			f.DType, set = tape.F32, v.num > 0
		default:
			panic(fmt.Sprintf("ops: recipe %s: fused has no keyword %q", b.recipe.Name, v.key))
		}
	}
	if f.Class == tape.NormForward && len(b.recipe.Structure.NormWidths.RMS) > 0 {
		f.Class, f.Back = b.rowNorm(f.SaveRows, ins[0].Dim(-1))
	}
	if !set {
		f.DType = ins[0].DType()
	}
	if back != tape.NoKernel {
		f.Back = back
	}
	return tensors(b.t.Fuse(f, ins...))
}

// fusedClasses are the kernel classes of a fused kernel and of its gradient.
var fusedClasses = map[string][2]tape.Class{
	"pointwise": {tape.FusedPointwise, tape.FusedPointwise},
	"reduce":    {tape.FusedReduce, tape.FusedReduce},
	"heavy":     {tape.FusedHeavy, tape.FusedHeavy},
	"norm":      {tape.NormForward, tape.NormBackward},
	"softmax":   {tape.SoftmaxForward, tape.SoftmaxBackward},
	"row_block": {tape.RowBlock, tape.RowBlock},
	"row_held":  {tape.RowHeld, tape.RowHeldBack},
	"strided":   {tape.Strided2, tape.Strided2},
}

// rowNorm are the classes of a norm that keeps one or, with a mean, two values of each row,
// where some widths have kernels of their own.
func (b *builder) rowNorm(kept int, width int64) (forward, back tape.Class) {
	tuned := func(widths []int64) bool { return b.Precision.CuDNNNorms || slices.Contains(widths, width) }
	switch w := &b.recipe.Structure.NormWidths; {
	case kept > 1 && tuned(w.Layer):
		return tape.LNTuned, tape.LNTunedBack
	case kept > 1:
		return tape.LNGeneral, tape.LNGeneralBack
	case tuned(w.RMS):
		return tape.RMSTuned, tape.RMSTunedBack
	}
	return tape.RMSGeneral, tape.RMSGeneralBack
}

func tensors(ts []*tape.Tensor) []value {
	out := make([]value, len(ts))
	for i, t := range ts {
		out[i] = tensorOf(t)
	}
	return out
}

// Missing is what Build panics with when a model needs a program that the recipe
// does not have: its framework does not run such models.
type Missing struct {
	Recipe, Program string
	Experts         bool // the model has some
}

func (m Missing) Error() string {
	if strings.HasPrefix(m.Program, "dropout_") { // which models of other frameworks train without
		return fmt.Sprintf("runtime.recipe: %s has no dropout of what blocks add; leave it out with --set model.residual_dropout=0, or use another recipe", m.Recipe)
	}
	other := "another recipe"
	if able := m.able(); len(able) > 0 {
		other = diag.Or(able)
	}
	return fmt.Sprintf("runtime.recipe: %s does not run this model, which has %s; use %s", m.Recipe, cmp.Or(has[m.Program], m.Program), other)
}

// has says what a model has that needs a program which some recipes lack, in the words of models.
var has = map[string]string{
	"experts":        "experts",
	"gemma_rms_norm": "norms as Gemma's, which multiply by one more than their weight",
	"rms_norm_cast":  "norms as Gemma 4's, which multiply by their weight in fp32",
	"xielu":          "the activation xIELU (hidden_act: xielu)",
	"norm_head":      "an output layer whose rows are divided by their norms (Baichuan 2's)",
	"rotary_apart":   "an indexer that picks keys (index_topk)",
}

// able are the recipes of such models that have what is missing; what a compiler makes of it goes without saying.
func (m Missing) able() []string {
	return recipe.Having(func(r *recipe.Recipe) bool {
		return !r.Structure.Compiled && r.Structure.Takes(m.Experts) && r.Programs[m.Program] != nil
	})
}

func (b *builder) missing(program string) Missing {
	return Missing{b.recipe.Name, program, b.Spec.MoE != nil}
}

// call runs the recipe's program of that name, or the primitive. Arguments are
// borrowed; results are owned by the caller.
func (b *builder) call(name string, args ...value) []value {
	if name == "gate" && b.Spec.MoE != nil && !b.Spec.Gated {
		name = "expert_plain"
	}
	if (name == "gate" || name == "expert_glu") && b.Spec.MoE != nil && b.Spec.MoE.Clamped {
		name = b.variant(name, "_clamped")
	}
	p, ok := b.recipe.Programs[name]
	if !ok {
		panic(b.missing(name))
	}
	frame := make([]value, p.Slots)
	own := make([]bool, p.Slots) // parameters are the caller's until they are assigned again
	for i := range p.Params {
		if i < len(args) {
			frame[i] = args[i]
		}
	}
	for _, s := range p.Body {
		var out []value
		if len(s.Values) == 1 && s.Values[0].Kind == recipe.Call {
			out = b.eval(p, s.Values[0], frame)
		} else {
			for _, e := range s.Values {
				v := b.eval(p, e, frame)[0]
				if e.Kind == recipe.Variable {
					b.t.Hold(v.t)
				}
				out = append(out, v)
			}
		}
		if s.Return {
			for i, v := range frame {
				if own[i] && v.kind == tensorValue {
					b.t.Release(v.t)
				}
			}
			return out
		}
		for _, v := range out[min(len(s.Targets), len(out)):] { // that nobody asked for
			if v.kind == tensorValue {
				b.t.Release(v.t)
			}
		}
		for i, slot := range s.Targets {
			if own[slot] && frame[slot].kind == tensorValue {
				b.t.Release(frame[slot].t)
			}
			frame[slot], own[slot] = out[i], true
		}
	}
	return nil
}

// eval evaluates an expression. A variable's value is borrowed from the frame, a
// call's is owned by the caller.
func (b *builder) eval(p *recipe.Program, e recipe.Expr, frame []value) []value {
	switch e.Kind {
	case recipe.Variable:
		return frame[e.Slot : e.Slot+1]
	case recipe.Number:
		return []value{numberOf(e.Number)}
	case recipe.Word:
		return []value{{word: e.Word, kind: wordValue}}
	}
	args := make([]value, len(e.Args))
	for i, a := range e.Args {
		switch {
		case a.Kind == recipe.Keyword:
			args[i] = b.eval(p, a.Args[0], frame)[0]
			args[i].key = a.Word
		case a.Kind == recipe.Call && a.Word == "save": // a mark, not a call
			args[i] = b.eval(p, a.Args[0], frame)[0]
			args[i].save = true
		default:
			args[i] = b.eval(p, a, frame)[0]
		}
	}
	var out []value
	if prim, ok := primitives[e.Word]; ok {
		out = prim(b, args)
	} else {
		out = b.call(e.Word, args...)
	}
	for i, a := range e.Args {
		if a.Kind == recipe.Call && a.Word != "save" && args[i].kind == tensorValue {
			b.t.Release(args[i].t)
		}
	}
	return out
}
