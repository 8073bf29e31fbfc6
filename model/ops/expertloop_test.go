package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// of is a configuration with the software of a release; "": the newest.
func of(t *testing.T, name, recipe, release string) Config {
	c := config(t, name, recipe)
	if c.Attention = "sdpa"; release != "" {
		c.Recipe = c.Recipe.At(released(t, release))
	}
	return c
}

// TestExpertLoop: experts of transformers 4 are modules with two or three weights each, which run one
// after another. The host waits for how many rows each has (torch.where: modeling_mixtral.py of 4.47), since
// 4.53 also for each number on the list of those that have some, and for its length (transformers pull
// 38133), but not in classes like DeepSeek-V3's (modeling_deepseek_v3.py of 4.56). Since 5.0 it waits for
// nothing (pull 42697). gpt-oss's experts had one weight for all, and GraniteMoE's, whose numbers of rows
// went to the host (modeling_granitemoe.py of 4.52, expert_size.tolist()).
func TestExpertLoop(t *testing.T) {
	for _, c := range []struct {
		model, recipe, release string
		waits, weights         int
	}{
		{"mixtral-8x7b", "hf-eager", "", 0, 2},
		{"mixtral-8x7b", "hf-eager", "26.02", 0, 2},
		{"mixtral-8x7b", "hf-eager", "26.01", 1 + 2*8, 3 * 8},
		{"mixtral-8x7b", "hf-eager", "25.07", 1 + 2*8, 3 * 8},
		{"mixtral-8x7b", "hf-eager", "25.06", 8, 3 * 8},
		{"mixtral-8x7b", "hf-eager", "24.01", 8, 3 * 8},
		{"mixtral-8x7b", "deepspeed-hf", "25.12", 1 + 2*8, 3 * 8},
		{"mixtral-8x7b", "deepspeed-hf", "24.12", 8, 3 * 8},
		{"mixtral-8x7b", "hf-compile", "24.12", 0, 2},
		{"qwen3-30b-a3b", "hf-eager", "25.09", 1 + 2*128, 3 * 128},
		{"olmoe-1b-7b", "hf-eager", "25.03", 64, 3 * 64},
		{"glm-4.5-air", "hf-eager", "25.09", 128, 3 * 128},
		{"gpt-oss-20b", "hf-eager", "25.09", 0, 4},
		{"granite-3.1-3b-a800m", "hf-eager", "25.09", 1, 2},
		{"granite-3.1-3b-a800m", "hf-eager", "", 0, 2},
	} {
		made := Build(of(t, c.model, c.recipe, c.release))
		layer := &made.Kinds[len(made.Kinds)-1]
		waits := 0
		for _, o := range layer.Forward.Ops {
			if o.Sync {
				waits++
			}
		}
		weights := 0
		for _, p := range layer.Params {
			switch p.Role {
			case model.RoleExpertsGateUp, model.RoleExpertsDown, model.RoleExpertsGateUp.Bias(), model.RoleExpertsDown.Bias(), model.RoleGate, model.RoleUp, model.RoleDown:
				require.True(t, p.Used, c)
				weights++
			}
		}
		require.Equal(t, [2]int{c.waits, c.weights}, [2]int{waits, weights}, c)
	}
}

// TestStackedExperts: GraniteMoE's experts of transformers 4 take their weights out of stacks of 40: a product each, whose gradients
// are zeros as large as the stack with one part copied into them, 40 of which are added up: three gigabytes a gigabyte of weights each.
func TestStackedExperts(t *testing.T) {
	stacked, grouped := of(t, "granite-3.1-3b-a800m", "hf-eager", "25.06"), of(t, "granite-3.1-3b-a800m", "hf-eager", "")
	layer, one := &Build(stacked).Kinds[0], &Build(grouped).Kinds[0]
	require.InEpsilon(t, flops(&one.Forward), flops(&layer.Forward), 1e-9)
	const first, second = 40 * 1024 * 1536, 40 * 1536 * 512
	products, bytes := 0, map[string]units.Bytes{}
	for _, o := range layer.Backward.Ops {
		switch {
		case o.Module == "experts" && o.Class == tape.GEMM:
			products++
		case o.Module == "experts" && (o.Elements == first || o.Elements == second):
			bytes[o.Prim] += units.Bytes(o.Count) * o.Bytes
		}
	}
	require.Equal(t, 2*2*40, products)
	require.EqualValues(t, 40*2*(first+second), bytes["fill_"])
	require.EqualValues(t, 39*3*2*(first+second), bytes["add_"])
}

// TestLoopedExperts: an expert's rows are gathered, and its three products are those of all rows of
// the grouped kernels; its rows' gradients are added into zeros as large as all tokens, which are
// summed, and those of its weights (index_put_ with accumulate: aten/native/cuda/Indexing.cu). Its part of the
// sum is added atomically (index_add_) and gathered back. A token's row is kept by each of its experts
// twice, before the products and before it is weighed, and four times as wide as an expert is (gate, its
// activation, up and their product).
func TestLoopedExperts(t *testing.T) {
	grouped, looped := of(t, "mixtral-8x7b", "hf-eager", ""), of(t, "mixtral-8x7b", "hf-eager", "24.12")
	one, all := &Build(grouped).Kinds[0], &Build(looped).Kinds[0]
	require.InEpsilon(t, flops(&one.Forward), flops(&all.Forward), 1e-9)
	require.InEpsilon(t, flops(&one.Backward), flops(&all.Backward), 1e-9)
	const experts, others = 8, 5 // attention's four and the router
	require.Equal(t, 3*experts+others, number(&all.Forward, "linear"))
	require.Equal(t, 3*experts+others, number(&all.Backward, "linear_wgrad"))
	require.Equal(t, experts, number(&all.Forward, "index_add_"))
	require.Equal(t, experts, number(&all.Backward, "index_select"))
	require.Equal(t, 2*experts, number(&all.Backward, "index_put_"), "of rows, and of their weights")
	tokens := grouped.MicroBatch * grouped.Sequence
	zeros := func(u *Unit) (n int) {
		for _, o := range u.Backward.Ops {
			if o.Prim == "fill_" && o.Elements == float64(tokens*grouped.Spec.Hidden) {
				n++
			}
		}
		return
	}
	require.Equal(t, experts-1, zeros(all)-zeros(one))

	more := looped
	spec := *looped.Spec
	moe := *spec.MoE
	moe.TopK, spec.MoE = 2*moe.TopK, &moe
	more.Spec = &spec
	kept := float64(tokens*looped.Spec.MoE.TopK) * float64(2*spec.Hidden+4*moe.FFN) * 2
	require.InEpsilon(t, kept, saved(&Build(more).Kinds[0])-saved(all), 0.001)
}

// TestLoopedWeights: DeepSeek-V3's class weighs rows in fp32 and adds them up so (zeros_like of the dtype of
// topk_weights: modeling_deepseek_v3.py of 4.56), Mixtral's in the dtype of the tokens.
func TestLoopedWeights(t *testing.T) {
	for name, want := range map[string]tape.DType{"mixtral-8x7b": tape.BF16, "glm-4.5-air": tape.F32} {
		made := Build(of(t, name, "hf-eager", "25.09"))
		layer := &made.Kinds[len(made.Kinds)-1]
		for _, o := range layer.Forward.Ops {
			if o.Prim == "index_add_" {
				require.Equal(t, want, o.DType, name)
			}
		}
	}
}

// TestPackedExperts: modules can be kept in four bits (bitsandbytes' Linear4bit takes the place of each
// nn.Linear), a tensor of all experts cannot.
func TestPackedExperts(t *testing.T) {
	packed := func(release string) (n int64) {
		c := of(t, "mixtral-8x7b", "hf-eager", release)
		c.Precision = c.Recipe.Precision["nf4-frozen"]
		s := *c.Spec
		s.LoRA = &model.LoRA{Rank: 16, Targets: []model.Role{model.RoleQ}}
		c.Spec = &s
		for _, p := range Build(c).Kinds[0].Params {
			if p.Packs() {
				n += p.Local
			}
		}
		return
	}
	const experts = 8 * 3 * 4096 * 14336
	require.EqualValues(t, experts, packed("24.12")-packed(""))
}

// TestFewTokens: experts that a few tokens cannot all reach are run all the same, by a row.
func TestFewTokens(t *testing.T) {
	c := of(t, "qwen3-30b-a3b", "hf-eager", "25.09")
	c.MicroBatch, c.Sequence = 1, 4
	require.Equal(t, 128, number(&Build(c).Kinds[0].Forward, "index_add_"))
}

// TestBusiestExpert: the gradients of experts' biases add up the busiest expert's rows one after the
// other (PyTorch's indexing_backward_kernel): two sequences of 1024 tokens to 4 of 32 experts each, twice the mean where
// the recipe says so (hf-eager), or what the job says, 8 where all tokens are alike.
func TestBusiestExpert(t *testing.T) {
	for imbalance, want := range map[float64]float64{0: 2, 1: 1, 8: 8} {
		c := config(t, "gpt-oss-20b", "hf-eager")
		c.Imbalance = imbalance
		var rows []float64
		for _, k := range Build(c).Kinds {
			for _, o := range k.Backward.Ops {
				if o.Class == tape.SerialAdd {
					rows = append(rows, o.Elements)
				}
			}
		}
		require.NotEmpty(t, rows)
		for _, r := range rows {
			require.InDelta(t, want*2*1024*4/32, r, 1)
		}
	}
}
