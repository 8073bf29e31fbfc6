package ops

import (
	"slices"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// loopsExperts reports whether experts are modules that run one after another: transformers
// before 5.0, for classes like MixtralSparseMoeBlock. GraniteMoE's and those whose weights lie
// [experts, in, out] (gpt-oss, Llama 4) had one weight for all of them before, too.
func (c *Config) loopsExperts() bool {
	m, of := c.Spec.MoE, &c.Recipe.Structure
	return m != nil && of.ExpertLoop != "" && !of.Compiled && !m.Transposed && !m.ExpertBias && !m.ChosenFirst && !m.Beside &&
		c.Shard.TP <= 1 && c.Shard.EP <= 1 && c.Capacity == 0
}

// stacksExperts reports whether a loop takes the weight of one expert after another out of their stack: GraniteMoE's of transformers before
// 5.0 (modeling_granitemoe.py, GraniteMoeParallelExperts).
func (c *Config) stacksExperts() bool {
	m, of := c.Spec.MoE, &c.Recipe.Structure
	return m != nil && m.ChosenFirst && of.ExpertLoop != "" && !of.Compiled && c.Shard.EP <= 1 && c.Capacity == 0
}

// unstack replaces the weights of all experts by those of modules like the MLP of a dense layer.
func (b *builder) unstack() {
	first, ok := b.roles[model.RoleExpertsGateUp] // the other weight comes after it (model/layout.go)
	if !ok {
		return
	}
	module := func(stack *Param, r model.Role, out int64) Param {
		p := *stack
		p.Role, p.Name, p.Split = r, string(r), model.ColumnSplit
		p.Shape = []int64{out, stack.Shape[2]}
		p.Dims, p.Local = p.Shape, out*p.Shape[1]
		return p
	}
	up, down := &b.params[first], &b.params[first+1]
	var expert []Param
	if b.Spec.Gated {
		expert = append(expert, module(up, model.RoleGate, b.Spec.MoE.FFN))
	}
	expert = append(expert, module(up, model.RoleUp, b.Spec.MoE.FFN), module(down, model.RoleDown, down.Shape[1]))
	b.looped.first, b.looped.weights = first, len(expert)
	b.params = slices.Replace(b.params, first, first+2, slices.Repeat(expert, int(b.Spec.MoE.Experts))...)
	clear(b.roles)
	for i, p := range b.params {
		b.roles[p.Role] = i
	}
}

// eachExpert runs the experts on their rows of x [tokens, width], n in all, by weights of a
// token's k experts, scores [tokens × k, 1], and adds what they make to y, which it returns.
// Each gets as many rows.
func (b *builder) eachExpert(x, scores, y *tape.Tensor, n int64) *tape.Tensor {
	program, at := b.loop("loop_expert"), b.looped.first
	y = b.t.Hold(y)
	for e := range b.Spec.MoE.Experts {
		for range b.looped.weights {
			b.roles[b.params[at].Role] = at
			at++
		}
		rows := max((n+e)/b.Spec.MoE.Experts, 1) // adds up to all
		y = b.give(y, b.call(program, tensorOf(x), tensorOf(scores), tensorOf(y), numberOf(float64(rows)))[0].t)
	}
	return y
}

// expert is the module of the expert whose weights have the roles of an MLP's.
func (b *builder) expert(x *tape.Tensor) *tape.Tensor {
	y := b.mlp(x)
	b.t.Module = "experts"
	return y
}

// loop is a program of the loop: another one where the host asks the device which experts have
// rows, as for classes whose router is a softmax (transformers pulls 32429 and 38133). DeepSeek-V3's
// and its like go over all.
func (b *builder) loop(program string) string {
	if b.recipe.Structure.ExpertLoop == recipe.HitExperts && b.Spec.MoE.Router == model.SoftmaxRouter {
		program += "_hit"
	}
	return program
}

// loopWeights are the scores as experts' rows are weighed: in the dtype of x where the router is
// a softmax (modeling_mixtral.py), in fp32 else (modeling_deepseek_v3.py).
func (b *builder) loopWeights(scores, x *tape.Tensor) *tape.Tensor {
	if b.Spec.MoE.Router == model.SoftmaxRouter {
		return b.t.To(scores, x.DType())
	}
	return b.t.Hold(scores)
}

// sumsLike are zeros of the shape of x [tokens, width] and the dtype of the weights of its rows.
func sumsLike(t *tape.Tape, x, weights *tape.Tensor) *tape.Tensor {
	return t.Zeros(weights.DType(), x.Dim(0), x.Dim(1))
}
