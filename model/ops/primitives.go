package ops

import (
	"math"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// ofOne, ofTwo and ofCount are primitives of the tape that take a tensor, two, and one with a
// number.

func ofOne(f func(*tape.Tape, *tape.Tensor) *tape.Tensor) primitive {
	return func(b *builder, a []value) []value { return one(f(b.t, a[0].t)) }
}

func ofTwo(f func(t *tape.Tape, x, y *tape.Tensor) *tape.Tensor) primitive {
	return func(b *builder, a []value) []value { return one(f(b.t, a[0].t, a[1].t)) }
}

func ofCount(f func(*tape.Tape, *tape.Tensor, int64) *tape.Tensor) primitive {
	return func(b *builder, a []value) []value { return one(f(b.t, a[0].t, int64(a[1].num))) }
}

// ofBuilder is a primitive of the builder, of a tensor.
func ofBuilder(f func(*builder, *tape.Tensor) *tape.Tensor) primitive {
	return func(b *builder, a []value) []value { return one(f(b, a[0].t)) }
}

// unary, scale and inPlace are kernels of that name: of a tensor, of one and a scalar, into one.

func unary(name string) primitive {
	return func(b *builder, a []value) []value { return one(b.t.Unary(name, a[0].t)) }
}

func scale(name string) primitive {
	return func(b *builder, a []value) []value { return one(b.t.Scale(name, a[0].t)) }
}

func inPlace(name string) primitive {
	return func(b *builder, a []value) []value { return one(b.t.InPlace(name, a[0].t, tensorsOf(a[1:])...)) }
}

// given is argument i, which may be left out: no tensor then, and zero.
func given(a []value, i int) value {
	if i < len(a) {
		return a[i]
	}
	return value{}
}

// primitives are the words a program may call, by name. Some run programs themselves, so that
// they are there from init on.
var primitives map[string]primitive

func init() {
	primitives = map[string]primitive{
		"lerp_":         inPlace("lerp_"),
		"mul_":          inPlace("mul_"),
		"add_":          inPlace("add_"),
		"div_":          inPlace("div_"),
		"lerp":          func(b *builder, a []value) []value { return one(b.t.Elementwise("lerp", a[0].t, a[1].t)) },
		"norm":          ofOne((*tape.Tape).Norm),
		"wide":          ofBuilder((*builder).wide),
		"bf16":          func(b *builder, a []value) []value { return one(b.t.To(a[0].t, tape.BF16)) },
		"joined":        ofBuilder((*builder).joined),
		"part":          ofBuilder((*builder).part),
		"upright":       ofTwo((*tape.Tape).Upright),
		"sum_shards":    func(b *builder, a []value) []value { b.t.Collect("all-reduce", "shard", a[0].t); return nil },
		"newton_schulz": ofOne((*tape.Tape).NewtonSchulz),
		"newton_schulz_shards": func(b *builder, a []value) []value {
			return one(b.t.NewtonSchulzShards(a[0].t, b.ranks, b.matrix.Rows*b.ranks > b.matrix.Cols))
		},
		"dtype":      func(b *builder, a []value) []value { return []value{{dt: a[0].t.DType(), kind: dtypeValue}} },
		"to":         func(b *builder, a []value) []value { return one(b.t.To(a[0].t, a[1].dt)) },
		"float":      ofOne((*tape.Tape).Float),
		"add":        ofTwo((*tape.Tape).Add),
		"sub":        ofTwo((*tape.Tape).Sub),
		"clamp":      func(b *builder, a []value) []value { return one(b.t.Clamp(a[0].t, int(a[1].num))) },
		"row_max":    ofOne((*tape.Tape).RowMax),
		"mul":        ofTwo((*tape.Tape).Mul),
		"div":        ofTwo((*tape.Tape).Div),
		"pow":        func(b *builder, a []value) []value { return one(b.t.Pow(a[0].t, a[1].num)) },
		"mean":       ofOne((*tape.Tape).Mean),
		"row_norm":   ofOne((*tape.Tape).RowNorm),
		"sum":        ofOne((*tape.Tape).Sum),
		"var":        ofOne((*tape.Tape).Var),
		"rsqrt":      ofOne((*tape.Tape).Rsqrt),
		"sqrt":       ofOne((*tape.Tape).Sqrt),
		"add_scalar": scale("add_scalar"),
		"mul_scalar": scale("mul_scalar"),
		"silu":       unary("silu"),
		"gelu":       unary("gelu"),
		"gelu_tanh":  unary("gelu_tanh"),
		"relu":       unary("relu"),
		"tanh":       unary("tanh"),
		"sigmoid":    unary("sigmoid"),
		"neg":        unary("neg"),
		"above":      ofOne((*tape.Tape).Above),
		"where":      func(b *builder, a []value) []value { return one(b.t.Where(a[0].t, a[1].t, a[2].t)) },
		"where_else": ofTwo((*tape.Tape).WhereElse),
		"expm1":      ofOne((*tape.Tape).Expm1),
		"minimum":    ofOne((*tape.Tape).Minimum),
		"uniform":    ofOne((*tape.Tape).Uniform),
		"exp":        unary("exp"),
		"erf":        ofOne((*tape.Tape).Erf),
		"softplus":   unary("softplus"),
		"log":        unary("log"),
		"layer_norm": func(b *builder, a []value) []value {
			return one(b.t.LayerNorm(a[0].t, a[1].t, given(a, 2).t))
		},
		"rms_norm": func(b *builder, a []value) []value { return one(b.t.RMSNorm(a[0].t, a[1].t)) },
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
		"softmax":      func(b *builder, a []value) []value { return one(b.t.Softmax("softmax", a[0].t)) },
		"softmax_fp32": func(b *builder, a []value) []value { return one(b.t.FloatSoftmax("softmax", a[0].t)) }, // dtype=torch.float32
		"log_softmax":  func(b *builder, a []value) []value { return one(b.t.Softmax("log_softmax", a[0].t)) },
		"logarithms":   ofOne((*tape.Tape).Logarithms),
		"nll_loss":     ofOne((*tape.Tape).NLLLoss),
		"loss_parallel": func(b *builder, a []value) []value {
			x := a[0].t
			return one(b.t.ParallelLoss(x, func(*tape.Tensor) { b.sumRows(x) }))
		},
		"loss_parallel_compiled": func(b *builder, a []value) []value {
			x := a[0].t
			return one(b.t.CompiledParallelLoss(x, func(*tape.Tensor) { b.sumRows(x) }))
		},
		"matmul":   ofTwo((*tape.Tape).Matmul),
		"matmul_t": ofTwo((*tape.Tape).MatmulT),
		// batch and heads lie side by side: [sequence, batch, head, width]
		"bmm":        ofTwo((*tape.Tape).BatchedMatmul),
		"bmm_t":      ofTwo((*tape.Tape).BatchedMatmulT),
		"contiguous": ofOne((*tape.Tape).Contiguous),
		"add_mask": func(b *builder, a []value) []value { // an additive mask that all heads share, of the scores' dtype, a[1] or the embeddings'
			x := a[0].t
			if b.open() {
				return one(b.t.Hold(x))
			}
			dtype := x.DType()
			switch {
			case len(a) > 1:
				dtype = a[1].dt
			case b.recipe.Structure.Transformers && b.recipe.Structure.WideMask && !b.t.Compiled:
				dtype = b.hidden
			}
			return one(b.t.Add(x, b.t.Outside(dtype, x.Dim(0), 1, x.Dim(-2), x.Dim(-1))))
		},
		"add_biases":  ofTwo((*tape.Tape).SumBiases),
		"add_biases_": ofTwo((*tape.Tape).AddBiases),
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
			return one(b.t.MaskOf(x.DType(), x.Dim(-2), x.Dim(-2)))
		},
		"safe_softmax": ofOne((*tape.Tape).SafeSoftmax),
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
		"fused_softmax": func(b *builder, a []value) []value {
			s := &b.recipe.Structure
			return one(b.t.FusedSoftmax(a[0].t, b.dropouts.attention > 0, s.ExplicitMask && b.Precision.Autocast && !b.Spec.Bidirectional))
		},
		"attention_dropout": func(b *builder, a []value) []value {
			return one(b.t.Dropout(a[0].t, b.dropouts.attention))
		},
		"tp_all_reduce": func(b *builder, a []value) []value { b.sumRows(a[0].t); return nil },
		"linear": func(b *builder, a []value) []value { // with an optional bias
			return one(b.plainLinear(a[0].t, a[1].t, given(a, 2).t))
		},
		"weights": ofCount((*tape.Tape).Weights),
		"topk":    ofCount((*tape.Tape).TopK),
		"dense":   ofTwo((*tape.Tape).Dense),
		"fused_topk": func(b *builder, a []value) []value {
			return one(b.t.FusedTopK(a[0].t, int64(a[1].num), int64(given(a, 2).num)))
		},
		"fused_scores":   ofCount((*tape.Tape).FusedScores),
		"balanced_fused": ofTwo((*tape.Tape).BalancedFused),
		"balanced":       ofTwo((*tape.Tape).Balanced),
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
		"every_other": ofOne((*tape.Tape).EveryOther),
		"pairs":       ofTwo((*tape.Tape).Pairs),
		"cat":         func(b *builder, a []value) []value { return one(b.t.Concat(a[0].t, a[1].t)) },
		"halves": func(b *builder, a []value) []value {
			w := a[0].t.Dim(-1) / 2
			return tensors(b.t.Split(a[0].t, w, w))
		},
		"thirds": func(b *builder, a []value) []value {
			w := a[0].t.Dim(-1) / 3
			return tensors(b.t.Split(a[0].t, w, w, w))
		},
		"activation":   ofBuilder((*builder).activation),
		"sort":         func(b *builder, a []value) []value { b.t.Sort(int64(a[0].num)); return nil },
		"rows":         func(b *builder, a []value) []value { return one(b.t.Rows(a[0].t, int64(a[1].num), 1)) },
		"each_expert":  func(b *builder, a []value) []value { return one(b.eachExpert(a[0].t, a[1].t, a[2].t, int64(a[3].num))) },
		"expert":       ofBuilder((*builder).expert),
		"count_hot":    func(b *builder, a []value) []value { b.t.CountHot(a[0].t); return nil },
		"loop_weights": func(b *builder, a []value) []value { return one(b.loopWeights(a[0].t, a[1].t)) },
		"one_hot":      func(b *builder, a []value) []value { return one(b.t.OneHot(a[0].t, b.Spec.MoE.Experts)) },
		"sums_like":    ofTwo(sumsLike),
		"add_into":     ofTwo((*tape.Tape).AddInto),
		"index_select": ofCount((*tape.Tape).IndexSelect),
		"scatter_add":  func(b *builder, a []value) []value { return one(b.t.ScatterAdd(a[0].t, a[1].t.Dim(0))) },
		"bias_rows":    biasRows,
		"expert_bias": func(b *builder, a []value) []value { // of those that have one
			if a[1].t == nil {
				return one(b.t.Hold(a[0].t))
			}
			return one(b.t.ExpertBias(a[0].t, a[1].t, given(a, 2).t))
		},
		"shift": func(b *builder, a []value) []value { // by a bias, if there is one
			if a[1].t == nil {
				return one(b.t.Hold(a[0].t))
			}
			return one(b.t.Add(a[0].t, a[1].t))
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
		"stacked": ofOne((*tape.Tape).Stacked),
		"put_rows": func(b *builder, a []value) []value {
			return one(b.t.PutRows(a[0].t, int64(a[1].num)*b.dividers(), true))
		},
		"put_back":   func(b *builder, a []value) []value { return one(b.t.PutRows(a[0].t, a[0].t.Dim(0), false)) },
		"by_expert":  ofBuilder((*builder).byExpert),
		"by_rank":    ofBuilder((*builder).byRank),
		"add_rows":   func(b *builder, a []value) []value { return one(b.t.AddRows(a[0].t, a[1].t.Dim(0))) },
		"weigh_rows": func(b *builder, a []value) []value { return one(b.t.WeighRows(a[0].t, a[1].t, int64(a[2].num))) },
		"all_rows":   func(b *builder, a []value) []value { return one(b.t.Rows(a[0].t, a[0].t.Dim(0), 1)) },
		"permute":    ofCount((*tape.Tape).Permute),
		"arrive":     func(b *builder, a []value) []value { return one(b.toExperts(a[0].t, b.busiest(int64(a[1].num)))) },
		"along":      func(b *builder, a []value) []value { return one(b.t.Along(a[0].t, a[1].t.Dim(0))) },
		"unpermute":  ofCount((*tape.Tape).Unpermute),
		"regroup":    ofBuilder((*builder).regroup),
		"drop": func(b *builder, a []value) []value {
			b.t.Drop(a[0].t.Dim(0), b.Spec.MoE.Experts, int64(a[1].num))
			return nil
		},
		"one_hot_gate": func(b *builder, a []value) []value {
			return one(b.t.OneHotGate(a[0].t, int64(a[1].num), int64(a[2].num)))
		},
		"slots": func(b *builder, a []value) []value {
			weights, mask := b.t.Slots(a[0].t, int64(a[1].num), int64(a[2].num))
			return tensors([]*tape.Tensor{weights, mask})
		},
		"matmul_rows": func(b *builder, a []value) []value { // of the transpose of a matrix that may have more dimensions
			m := b.t.Reshape(a[0].t, a[1].t.Dim(0), a[0].t.Size()/a[1].t.Dim(0))
			m = b.give(m, b.t.Transpose(m, 0, 1))
			defer b.t.Release(m)
			return one(b.t.Matmul(m, a[1].t))
		},
		"drop_tokens":   ofBuilder((*builder).dropTokens),
		"gather_tokens": ofBuilder((*builder).gatherTokens),
		"rejoin_rows":   ofBuilder((*builder).rejoinRows),
		"unpermute_to":  func(b *builder, a []value) []value { return one(b.t.UnpermuteTo(a[0].t, a[1].t.Dim(0))) },
		"chunks":        ofBuilder((*builder).chunks),
		"padded":        ofBuilder((*builder).padded),
		"row_mask": func(b *builder, a []value) []value {
			return one(b.t.Empty(tape.Bool, int64(a[0].num), 1))
		},
		"masked_fill": ofTwo((*tape.Tape).MaskedFill),
		"mask_rows":   ofTwo((*tape.Tape).MaskRows),
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
		"sum_groups": ofCount((*tape.Tape).SumGroups),
		"column":     func(b *builder, a []value) []value { return one(b.t.Reshape(a[0].t, a[0].t.Size(), 1)) },
		"spread":     ofBuilder((*builder).spread),
		"collect":    ofBuilder((*builder).collect),
		"like_rows":  func(b *builder, a []value) []value { return one(b.toExperts(a[0].t, a[1].t.Dim(0))) },
		"dispatch":   ofBuilder((*builder).dispatch),
		"combine":    ofBuilder((*builder).combine),
		"fused":      fused,
		"liger_loss": ofOne((*tape.Tape).LigerLoss),
		"liger_norm": func(b *builder, a []value) []value { // in_place but for Gemma 2 and 3 and OLMo 2 (transformers/rms_norm.py)
			return one(b.t.LigerNorm(a[0].t, a[1].t, b.Spec.Place != model.PreNorm))
		},
		"liger_rope": func(b *builder, a []value) []value {
			q, k := b.t.LigerRope(a[0].t, a[1].t)
			return tensors([]*tape.Tensor{q, k})
		},
		"liger_gate": func(b *builder, a []value) []value { // with numbers: of kernels that arithmetic limits
			return one(b.t.LigerGate(a[0].t, a[1].t, given(a, 2).num, given(a, 3).num))
		},
		"frozen_norm": ofTwo((*tape.Tape).FrozenNorm),
		"row_turn":    ofOne((*tape.Tape).RowTurn),
		"joined_loss": func(b *builder, a []value) []value {
			rows, words := a[0].t.Size()/a[0].t.Dim(-1), a[1].t.Dim(0)
			return one(b.t.JoinedLoss(a[0].t, a[1].t, b.lossChunks(rows, words)))
		},
		"vocab_loss":          func(b *builder, a []value) []value { return one(b.t.VocabLoss(a[0].t, false)) },
		"vocab_loss_compiled": func(b *builder, a []value) []value { return one(b.t.CompiledVocabLoss(a[0].t)) },
		"vocab_loss_apart":    func(b *builder, a []value) []value { return one(b.t.VocabLoss(a[0].t, true)) },
		"softmax_loss":        ofOne((*tape.Tape).SoftmaxLoss),
		"argmax":              func(b *builder, a []value) []value { b.t.Argmax(a[0].t); return nil },
		"copied":              ofOne((*tape.Tape).Copied),
		"linear_loss": func(b *builder, a []value) []value {
			return one(b.t.LinearLoss(a[0].t, a[1].t, tape.Pieces{Adds: tape.GEMMAdds(b.recipe.Structure.LossGemmAdds), Wide: b.recipe.Structure.LossWide, Scaled: b.recipe.Structure.LossScaled}))
		},
		"cut_loss": func(b *builder, a []value) []value { // with the share of blocks whose gradients count
			return one(b.t.CutLoss(a[0].t, a[1].t, a[2].num))
		},
		"fused_loss":          func(b *builder, a []value) []value { return b.fusedLoss(a[0].t, tape.LossAlone) },
		"fused_loss_shifted":  func(b *builder, a []value) []value { return b.fusedLoss(a[0].t, tape.Shifted) },
		"fused_loss_in_place": func(b *builder, a []value) []value { return b.fusedLoss(a[0].t, tape.Consumed) },
		"fused_loss_returned": func(b *builder, a []value) []value { return b.fusedLoss(a[0].t, tape.Returned) },
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
		if b.recipe.Structure.WaitingBiases { // how many rows come of them, and how many of the padded ones are left
			for range 2 {
				b.t.Wait()
			}
			rows = b.give(rows, b.t.Copied(rows))
		}
	} else {
		rows = b.t.Rows(bias, n, b.busiestExpert())
	}
	y := b.t.Add(x, rows)
	b.t.Release(rows)
	return one(y)
}

// lossChunks is how many chunks Unsloth's loss takes rows by, each of at most so many GiB of fp32 logits: one, or a
// multiple of four (unsloth_zoo/fused_losses/cross_entropy_loss.py, get_chunk_size; of 770de251, which rounds).
func (b *builder) lossChunks(rows, words int64) int64 {
	of := &b.recipe.Structure
	gib := of.LossGiB
	if gib == 0 {
		gib = b.FreeGiB / 2
	}
	chunks := float64(rows*words*4) / (gib * (1 << 30))
	switch {
	case of.RoundedChunks:
		return max(4*int64(math.RoundToEven(chunks/4)), 1)
	case chunks <= 1:
		return 1
	}
	return 4 * int64(math.Ceil(chunks/4))
}
