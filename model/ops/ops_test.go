package ops

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// families are one small model of each kind that a recipe may be asked to run.
var families = []string{
	"llama3.2-1b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "gpt2", "pythia-160m", "gptj-6b", "opt-125m", "bloom-560m", "falcon-7b", "mpt-7b", "phi-2", "phi3-mini", "olmo-7b", "olmo2-7b",
	"gemma-2b", "gemma2-2b", "gemma3-1b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "olmoe-1b-7b", "deepseek-v2-lite", "gpt-oss-20b", "nemotron-h-8b", "nemotron-3-nano-30b-a3b",
	"smollm3-3b", "granite-3.3-8b", "seed-oss-36b", "starcoder2-7b", "olmo3-7b", "glm-4.5-air", "minimax-m2",
	"ministral-3-3b", "ernie-4.5-0.3b", "glm-4-9b-0414", "helium-1-2b", "exaone-4.0-1.2b", "command-r7b", "hunyuan-7b", "dots.llm1", "granite-3.1-3b-a800m", "glm-4.7-flash", "ernie-4.5-21b-a3b", "stablelm-3b", "starcoder-15b", "apertus-8b", "phi-3.5-moe",
	"lfm2-350m", "lfm2-8b-a1b", "granite-4.0-h-micro", "granite-4.0-h-tiny",
}

// config is a rank of a job with the recipe's own defaults.
func config(t testing.TB, name, recipeName string) Config {
	t.Helper()
	s, err := model.Load(name)
	require.NoError(t, err)
	r, err := recipe.Load(recipeName)
	require.NoError(t, err)
	s.MTPLayers = 0 // a second head, tested in strategies/estimate
	return Config{Spec: s.AtSequence(1024), Recipe: r, Precision: r.Precision[r.Default], Shard: Shard{TP: 1, CP: 1, EP: 1, ExpertTP: 1},
		KernelConfig: KernelConfig{Attention: r.Attention}, InputConfig: InputConfig{MicroBatch: 2, Sequence: 1024}, CheckpointConfig: CheckpointConfig{Recompute: NoRecompute}, ExpertConfig: ExpertConfig{Imbalance: 1}}
}

// tryBuild builds a model; missing is the program that the recipe lacks for it.
func tryBuild(c Config) (m *Model, missing string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case Missing:
			missing = p.Program
		default:
			panic(p)
		}
	}()
	return Build(c), ""
}

// unitsOf are the distinct units of a model with how often each runs.
func unitsOf(m *Model) (list []*Unit, times []float64) {
	list, times = []*Unit{&m.Embedding, &m.Head}, []float64{1, 1}
	count := make([]float64, len(m.Kinds))
	for _, k := range m.Layers {
		count[k]++
	}
	for i := range m.Kinds {
		list, times = append(list, &m.Kinds[i]), append(times, count[i])
	}
	return
}

// ignored are parameters of a few hundred elements that the ops leave out, though
// they count as parameters: gpt-oss's sinks and biases of router and experts.
func ignored(p Param) bool {
	return p.Name == "self_attn.sinks" || strings.HasPrefix(p.Name, "mlp.experts.") && strings.HasSuffix(p.Name, "_bias") || p.Name == "mlp.router.bias"
}

// TestEveryRecipeRunsEveryFamily: the programs of each recipe run for each kind of
// model, or the recipe says which program it lacks; what they record is sound.
func TestEveryRecipeRunsEveryFamily(t *testing.T) {
	refused := map[string]string{}
	for _, r := range recipe.Names() {
		for _, name := range families {
			t.Run(r+"/"+name, func(t *testing.T) {
				c := config(t, name, r)
				if c.Recipe.Structure.AdaptersOnly {
					spec, err := c.Spec.Adapted(8, nil, 0)
					if err != nil {
						t.Skip(err)
					}
					c.Spec = spec
				}
				if _, missing := tryBuild(c); missing != "" {
					refused[r+"/"+name] = missing
					return
				}
				build := func() {
					m, _ := tryBuild(c)
					list, _ := unitsOf(m)
					for _, u := range list {
						sound(t, r, u)
					}
				}
				for _, again := range []Recompute{NoRecompute, SelectiveRecompute, FullRecompute} {
					c.Recompute = again
					build()
				}
				if len(c.Recipe.RecomputeModules) == 0 {
					return
				}
				c.Recompute = SelectiveRecompute
				for i := range len(ModuleNames) {
					c.Modules = 1 << i
					build()
				}
				c.Modules = 1<<len(ModuleNames) - 1 // all of them, one inside another
				build()
			})
		}
	}
	t.Log(refused)
}

// sound checks what holds for every unit: memory is taken and given back once, every
// parameter gets its gradient, and no op is nonsense.
func sound(t *testing.T, recipeName string, u *Unit) {
	live := map[int32]float64{}
	if u.InputStore >= 0 {
		live[u.InputStore] = float64(u.Input)
	}
	apply := func(events []tape.Event) {
		for _, e := range events {
			if e.Bytes > 0 {
				require.NotContains(t, live, e.Store, "%s: taken twice", u.Name)
				live[e.Store] = float64(e.Bytes)
			} else {
				require.Contains(t, live, e.Store, "%s: given back without being taken", u.Name)
				require.Equal(t, live[e.Store], -float64(e.Bytes))
				delete(live, e.Store)
			}
		}
	}
	apply(u.Forward.Events)
	require.Contains(t, live, u.OutputStore, "%s: the output", u.Name)
	apply(u.Forward.Deferred)
	if u.GradStore >= 0 {
		live[u.GradStore] = 0
		for _, e := range u.Backward.Events {
			if e.Store == u.GradStore && e.Bytes < 0 {
				live[u.GradStore] = -float64(e.Bytes)
			}
		}
	}
	delete(live, u.OutputStore) // goes on to the next unit
	apply(u.Backward.Events)
	for _, g := range u.Backward.Grads {
		delete(live, g.Store)
	}
	delete(live, u.InGradStore)
	require.Empty(t, live, "%s: never given back", u.Name)

	seen := map[int32]bool{}
	for _, g := range u.Backward.Grads {
		require.False(t, seen[g.Param], "%s: two gradients of %s", u.Name, u.Params[g.Param].Name)
		seen[g.Param] = true
	}
	for i, p := range u.Params {
		if ignored(p) {
			continue
		}
		require.True(t, p.Used, "%s: nothing uses %s", u.Name, p.Name)
		require.Equal(t, !p.Frozen, seen[int32(i)], "%s: gradient of %s, which is frozen: %v", u.Name, p.Name, p.Frozen)
		require.Positive(t, p.Local)
	}
	for _, s := range []*tape.Section{&u.Forward, &u.Backward} {
		for _, o := range s.Ops {
			for _, v := range []float64{float64(o.Bytes), float64(o.FLOPs), o.Elements} {
				require.True(t, v >= 0 && !math.IsInf(v, 0), "%s: %s %v", u.Name, o.Prim, o)
			}
			if o.Class == tape.GEMM {
				require.Equal(t, 2*float64(o.M)*float64(o.N)*float64(o.K)*float64(max(o.Batch, 1)), float64(o.FLOPs), "%s: %s", u.Name, o.Prim)
			}
		}
	}
}

// flops sums the matrix products of a section, without attention.
func flops(s *tape.Section) (products float64) {
	for _, o := range s.Ops {
		if o.Class == tape.GEMM || o.Class == tape.GroupedGEMM {
			products += float64(o.FLOPs)
		}
	}
	return
}

// TestProductsAreThoseOfTheModel: what the ops multiply is what the formulas of the
// model count (2·M·N·K), and twice that in the backward pass. Vocabularies that a
// framework pads are left out.
func TestProductsAreThoseOfTheModel(t *testing.T) {
	for _, r := range recipe.Names() {
		for _, name := range families {
			c := config(t, name, r)
			c.Attention = "flash"
			if c.Precision.GEMM.Set || c.Recipe.Structure.VocabMultiple > 1 {
				continue
			}
			m, missing := tryBuild(c)
			if missing != "" {
				continue
			}
			var forward, backward float64
			list, times := unitsOf(m)
			for i, u := range list {
				forward += times[i] * flops(&u.Forward)
				backward += times[i] * flops(&u.Backward)
			}
			f := c.Spec.ForwardFLOPs(c.MicroBatch*c.Sequence, c.Sequence, true)
			want := float64(f.Total() - f.Attention - f.Scan)
			require.InEpsilon(t, want, forward, 1e-3, "%s under %s: forward", name, r)
			require.InEpsilon(t, 2*want, backward, 1e-3, "%s under %s: backward", name, r)
		}
	}
}

// launches counts the kernels of a section without memory fills: cuBLAS adds some
// of its own.
func launches(s *tape.Section) (n int) {
	for _, o := range s.Ops {
		if o.Class != tape.NoKernel && o.Class != tape.Collective && o.Class != tape.Memcpy && o.Prim != "memset" {
			n += max(int(o.Count), 1)
		}
	}
	return
}

// TestLlamaKernels: a Llama layer in eager PyTorch launches 38 kernels forward and 77
// backward: profiler trace of hidden 2048, intermediate 8192, 4096 tokens on H200 with
// grouped key/value heads (beside them 3 and 7 memory fills, 2 copies).
func TestLlamaKernels(t *testing.T) {
	c := config(t, "llama3.2-1b", "hf-eager")
	c.Precision = c.Recipe.Precision["bf16-pure"]
	c.MicroBatch, c.Sequence = 1, 4096
	m := Build(c)
	require.Len(t, m.Kinds, 1)
	layer := &m.Kinds[0]
	require.Equal(t, 38, launches(&layer.Forward))
	require.Equal(t, 77, launches(&layer.Backward))

	prims := map[string]int{}
	for _, o := range layer.Forward.Ops {
		prims[o.Prim] += max(int(o.Count), 1)
	}
	require.Equal(t, 7, prims["linear"], "q, k, v, o, gate, up, down")
	require.Equal(t, 1, prims["attention"])
	require.Equal(t, 2, prims["mean"], "two norms")
	require.Equal(t, 2, prims["cat"], "rotary of q and of k")
}

// TestFusedSoftmax: Megatron's kernel for masked softmax takes multiples of four heads and
// at most 4096 keys (megatron/model/fused_softmax.py, is_kernel_available); otherwise
// PyTorch's kernels run one by one.
func TestFusedSoftmax(t *testing.T) {
	c := config(t, "gpt2-medium", "megatron-lm") // 16 heads
	for _, x := range []struct {
		tp, batch, keys int64
		fused           bool
	}{
		{1, 1, 1024, true},
		{4, 1, 1024, true},
		{8, 1, 1024, false},
		{8, 2, 1024, true},
		{1, 1, 4096, true},
		{1, 1, 8192, false},
	} {
		c.Shard.TP, c.MicroBatch, c.Sequence = x.tp, x.batch, x.keys
		prims := map[string]bool{}
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			prims[o.Prim] = true
		}
		require.Equal(t, x.fused, prims["scale_mask_softmax"], x)
		require.Equal(t, !x.fused, prims["softmax"], x)
	}
}

// TestMaskedSoftmax: Transformer Engine's unfused attention reads a mask of all scores and holds
// rows in registers since 2.0, causal ones, too; before, its kernel reads their causal half.
func TestMaskedSoftmax(t *testing.T) {
	c := config(t, "llama3-8b", "megatron-core")
	c.Attention, c.MicroBatch, c.Sequence = "unfused", 1, 4096
	scores := 32 * 4096 * 4096 * 2.0 // bytes
	softmax := func() (tape.Class, float64) {
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Prim == "scale_mask_softmax" {
				return o.Class, float64(o.Bytes)
			}
		}
		return tape.NoKernel, 0
	}
	kind, bytes := softmax()
	require.Equal(t, tape.RowHeld, kind)
	require.Equal(t, 2*scores, bytes)
	older := *c.Recipe
	older.Structure.CausalSoftmax, c.Recipe = true, &older
	kind, bytes = softmax()
	require.Equal(t, tape.FusedPointwise, kind)
	require.Equal(t, 1.5*scores, bytes)
}

// saved is what a layer keeps of one micro batch for its backward pass, with its
// input and without its output.
func saved(u *Unit) float64 {
	b := float64(u.Input - u.Output)
	for _, e := range u.Forward.Events {
		b += float64(e.Bytes)
	}
	return b
}

// TestKorthikanti: activation bytes of a GPT layer per s·b·h (arXiv 2205.05198,
// equations 1 to 6 and table 2).
func TestKorthikanti(t *testing.T) {
	c := config(t, "gpt3-175b", "megatron-lm")
	c.MicroBatch, c.Sequence = 1, 2048
	h, a, s := float64(c.Spec.Hidden), float64(c.Spec.Heads), 2048.0
	scores := 5 * a * s / h
	const t8 = 8
	for _, x := range []struct {
		name      string
		attention string
		tp        int64
		sequence  bool
		again     Recompute
		want      float64
	}{
		{"equation 1: no parallelism", "unfused", 1, false, NoRecompute, 34 + scores},
		{"without the scores, as with FlashAttention", "flash", 1, false, NoRecompute, 34},
		{"equation 2: tensor parallelism", "unfused", t8, false, NoRecompute, 10 + 24.0/t8 + scores/t8},
		{"equation 4: and sequence parallelism", "unfused", t8, true, NoRecompute, (34 + scores) / t8},
		{"equation 6: and selective recomputation", "unfused", t8, true, SelectiveRecompute, 34.0 / t8},
		{"full recomputation", "unfused", 1, false, FullRecompute, 2},
	} {
		c.Attention, c.Shard.TP, c.Shard.SequenceParallel, c.Recompute = x.attention, x.tp, x.sequence, x.again
		got := saved(&Build(c).Kinds[0]) / (s * h)
		require.InEpsilon(t, x.want, got, 0.01, x.name)
	}
}

// TestLlamaSavedBytes: 20h + 4hk + 8f + 4a bytes per token of a Llama layer in bf16,
// hk the width of all key heads: peak memory of 42 measured steps on H200 to 0.06 %.
func TestLlamaSavedBytes(t *testing.T) {
	for _, name := range []string{"llama3.2-1b", "llama3-8b", "llama2-7b"} {
		c := config(t, name, "hf-eager")
		c.Precision = c.Recipe.Precision["bf16-pure"]
		x := c.Spec
		h, hk, f, a := float64(x.Hidden), float64(x.KVHeads*x.HeadDim), float64(x.FFN), float64(x.Heads)
		got := saved(&Build(c).Kinds[0]) / float64(c.MicroBatch*c.Sequence)
		require.InEpsilon(t, 20*h+4*hk+8*f+4*a, got, 1e-3, name)
		c.Recompute = FullRecompute
		require.InEpsilon(t, 2*h, saved(&Build(c).Kinds[0])/float64(c.MicroBatch*c.Sequence), 1e-3, name)
	}
}

// TestParametersAreThoseOfTheModel: what one rank holds of a model that nothing cuts
// is the whole of it, up to padding; two tensor ranks hold half of what can be cut.
func TestParametersAreThoseOfTheModel(t *testing.T) {
	for _, name := range families {
		c := config(t, name, "hf-eager")
		m, missing := tryBuild(c)
		require.Empty(t, missing, name)
		var n float64
		list, times := unitsOf(m)
		for i, u := range list {
			n += times[i] * float64(u.LocalParams())
		}
		require.Equal(t, float64(c.Spec.Params().Total+c.Spec.Params().MTP), n, fmt.Sprint(name))
	}
}

// TestNormsOverAllHeadsAreCut: what norms all queries or keys of a rank has as many weights as
// these are wide, whatever the kind of norm and where all three come from one projection.
func TestNormsOverAllHeadsAreCut(t *testing.T) {
	for _, norm := range []model.Norm{model.RMSNorm, model.LayerNorm} {
		for _, one := range []bool{false, true} {
			c := config(t, "olmo2-7b", "hf-eager")
			s := *c.Spec
			s.Norm, s.FusedQKV = norm, one
			c.Spec, c.Shard.TP = &s, 4
			m, missing := tryBuild(c)
			require.Empty(t, missing)
			for _, p := range m.Kinds[0].Params {
				if p.Role == model.RoleQNorm || p.Role == model.RoleKNorm {
					require.Equal(t, []int64{1024}, p.Dims, "%s of %s", p.Role, norm)
				}
			}
		}
	}
}

// TestExpertTensorParallelism: ranks that share the matrices of their experts gather the
// rows before them and sum their parts after them, as Megatron-Core's all-to-all
// dispatcher does, and back; each multiplies all rows with its part of the width.
func TestExpertTensorParallelism(t *testing.T) {
	type collective struct {
		kind, group string
		bytes       float64
	}
	read := func(s tape.Section) (comms []collective, grouped []tape.Op, flops float64) {
		for _, o := range s.Ops {
			switch {
			case o.Class == tape.Collective:
				comms = append(comms, collective{o.Comm.Kind, o.Comm.Group, float64(o.Comm.Bytes)})
			case o.Class == tape.GroupedGEMM:
				grouped, flops = append(grouped, o), flops+float64(o.FLOPs)
			}
		}
		return
	}
	kept := func(s tape.Section) (bytes float64) { // from the forward to the backward pass
		for _, e := range s.Events {
			bytes += float64(e.Bytes)
		}
		return
	}
	for _, ep := range []int64{1, 4} {
		for _, etp := range []int64{1, 2, 4} {
			c := config(t, "mixtral-8x7b", "megatron-core")
			c.Imbalance = 1.5
			c.Shard.EP = ep
			uncut := Build(c).Kinds[0]
			_, whole, flops := read(uncut.Forward)
			c.Shard.ExpertTP = etp
			u := Build(c).Kinds[0]

			sent := float64(2 * 1024 * 2 * 4096 * 2) // sequences × tokens × experts each × hidden × bf16
			received := sent
			if ep > 1 { // the busiest rank
				received *= c.Imbalance
			}
			probabilities := received / 4096 // bf16 like the logits, one a row
			var want []collective
			both := func(kind, group string, bytes float64, ranks int64) {
				if ranks > 1 {
					want = append(want, collective{kind, group, bytes})
				}
			}
			both("all-to-all", "ep", received, ep)
			both("all-gather", "expert_tp", received*float64(etp), etp)
			both("all-to-all", "ep", probabilities, ep)
			both("all-gather", "expert_tp", probabilities*float64(etp), etp)
			both("reduce-scatter", "expert_tp", received*float64(etp), etp)
			both("all-to-all", "ep", received, ep)
			forward, grouped, after := read(u.Forward)
			require.Equal(t, want, forward, "ep %d, expert_tp %d", ep, etp)
			for i := range want { // what was gathered is scattered, and the other way round
				if turned, ok := map[string]string{"all-gather": "reduce-scatter", "reduce-scatter": "all-gather"}[want[i].kind]; ok {
					want[i].kind = turned
				}
			}
			slices.Reverse(want)
			back, _, _ := read(u.Backward)
			require.Equal(t, want, back, "ep %d, expert_tp %d: the gradients take the same way back", ep, etp)

			require.Equal(t, kept(uncut.Forward)+(received+probabilities)*float64(etp-1), kept(u.Forward), "ep %d, expert_tp %d: the gathered rows are kept instead of those received", ep, etp)
			require.Equal(t, flops, after, "ep %d, expert_tp %d", ep, etp)
			require.Len(t, grouped, 2)
			for i, o := range grouped {
				require.Equal(t, whole[i].M*etp, o.M, "rows of each expert")
			}
			require.Equal(t, whole[0].N/etp, grouped[0].N, "width of gate and up")
			require.Equal(t, whole[1].K/etp, grouped[1].K, "width that down sums over")
		}
	}
}

// TestRouterKernels: kernels of Megatron-Core's router, with the product of the router,
// and of its gradient (core_v0.14 on an H200, profiler traces): within a tenth forward, an
// eighth backward.
func TestRouterKernels(t *testing.T) {
	for _, x := range []struct {
		model             string
		forward, backward int
	}{
		{"qwen3-30b-a3b", 33, 20},
		{"mixtral-8x7b", 32, 20},
		{"gpt-oss-20b", 14, 12},
		{"deepseek-v3", 57, 33},
	} {
		c := config(t, x.model, "megatron-pretrain")
		m := Build(c)
		layer := &m.Kinds[len(m.Kinds)-1]
		count := func(s tape.Section) (n int) {
			for _, o := range s.Ops {
				if o.Module == "router" && o.Class != tape.NoKernel {
					n += max(int(o.Count), 1)
				}
			}
			return
		}
		require.InEpsilon(t, x.forward, count(layer.Forward), 0.1, x.model)
		require.InEpsilon(t, x.backward, count(layer.Backward), 0.125, x.model)
	}
}

// TestHalfZeros: half of what a ReLU makes and of the gradient of what it reads are zeros,
// in the products of an MLP that multiply them, dense or of experts.
func TestHalfZeros(t *testing.T) {
	zeros := func(name string, activation model.Activation) (made []string) {
		c := config(t, name, "megatron-core")
		s := *c.Spec
		s.Activation = activation
		c.Spec = &s
		u := Build(c).Kinds[0]
		for _, o := range append(append([]tape.Op(nil), u.Forward.Ops...), u.Backward.Ops...) {
			if o.Zeros {
				made = append(made, o.Prim)
			}
		}
		return
	}
	require.Empty(t, zeros("gpt2", model.GELU))
	require.Equal(t, []string{"linear", "linear_wgrad", "linear_wgrad", "linear_dgrad"}, zeros("gpt2", model.ReLU))
	require.Equal(t, []string{"linear", "linear_wgrad", "linear_wgrad", "linear_dgrad"}, zeros("gpt2", model.ReLU2))
	require.Equal(t, []string{"grouped_mm", "grouped_mm_wgrad", "grouped_mm_dgrad", "grouped_mm_wgrad"}, zeros("qwen3-30b-a3b", model.ReLU2))
}

// TestPartialRotary: Transformer Engine's rotary kernel takes whole heads of which it turns
// a part, torchtitan's and others the part, which is cut off and joined again.
func TestPartialRotary(t *testing.T) {
	kernels := func(recipe string, width int64) (n int) {
		c := config(t, "llama2-7b", recipe)
		s := *c.Spec
		s.RotaryDim = width
		c.Spec = &s
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Module == "rotary" && o.Class != tape.NoKernel {
				n++
			}
		}
		return
	}
	require.Equal(t, 2, kernels("megatron-core", 128))
	require.Equal(t, 2, kernels("megatron-core", 64))
	require.Greater(t, kernels("megatron-deepspeed", 64), kernels("megatron-deepspeed", 128))
}

// TestLegacyMegatron: Llama's layers in the transformer of Megatron-LM of 2023 and in that of
// Megatron-DeepSpeed's, whose kernels a trace of two H100 counted: queries and keys are turned
// by five kernels each (and, in Megatron-LM, joined by one with what does not turn, be it
// nothing), SwiGLU is two, biases of projections that run in GEMMs of the framework are added
// by one each; Megatron-Core has one kernel for each of these, or none.
func TestLegacyMegatron(t *testing.T) {
	count := func(recipe, module string, biased bool, release units.Release) (n int) {
		c := config(t, "llama2-7b", recipe)
		c.Recipe = c.Recipe.At(release)
		s := *c.Spec
		s.QKVBias, s.MLPBias = biased, biased
		c.Spec = &s
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Class != tape.NoKernel && o.Class != tape.GEMM && strings.HasPrefix(o.Module, module) {
				n++
			}
		}
		return
	}
	var now, before units.Release
	require.NoError(t, now.UnmarshalText([]byte("23.11")))
	require.NoError(t, before.UnmarshalText([]byte("22.07")))
	require.Equal(t, 2*6, count("megatron-lm", "rotary", false, now))
	require.Equal(t, 2*5, count("megatron-deepspeed", "rotary", false, now))
	require.Equal(t, 2, count("megatron-core", "rotary", false, now))
	require.Equal(t, 2, count("megatron-lm", "mlp", false, now))
	require.Equal(t, 3, count("megatron-deepspeed", "mlp", true, now))
	require.Equal(t, 2, count("megatron-deepspeed", "mlp", true, before), "by the GEMM")
	require.Equal(t, 1, count("megatron-core", "mlp", false, now))
}

// TestWindowAsLongAsTheSequence: transformers leaves a mask out where the sequence is shorter than
// the window (masking_utils.py, _ignore_causal_mask_sdpa); one as long takes it, and 24 kernels
// to make it.
func TestWindowAsLongAsTheSequence(t *testing.T) {
	const window = 4096
	run := func(sequence int64) (masked bool, tiny int64) {
		c := config(t, "mistral-7b", "hf-eager")
		require.Equal(t, int64(window), c.Spec.Window)
		c.Sequence = sequence
		m := built(t, c)
		for _, o := range at(m, 0).Forward.Ops {
			masked = masked || o.Attn != nil && o.Attn.Masked
		}
		for _, o := range m.Embedding.Forward.Ops {
			if o.Prim == "mask" {
				tiny += int64(o.Count)
			}
		}
		return masked, tiny
	}
	for _, x := range []struct {
		sequence int64
		masked   bool
		tiny     int64
	}{{window - 1, false, 0}, {window, true, 24}, {window + 1, true, 24}} {
		masked, tiny := run(x.sequence)
		require.Equal(t, x.masked, masked, x.sequence)
		require.Equal(t, x.tiny, tiny, x.sequence)
	}
}

// TestHeadTables: under autocast transformers turns heads in fp32 by tables that the model makes
// once, in 16 bits by those that each layer made of its values until 4.43 of 2024-07.
func TestHeadTables(t *testing.T) {
	for _, p := range []struct {
		release string
		dtype   tape.DType
	}{{"24.07", tape.BF16}, {"24.08", tape.F32}} {
		c := config(t, "llama2-7b", "hf-eager")
		var release units.Release
		require.NoError(t, release.UnmarshalText([]byte(p.release)))
		c.Recipe = c.Recipe.At(release)
		c.Precision = c.Recipe.Precision["bf16-autocast"]
		seen := 0
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Module == "rotary" && o.Prim == "add" {
				require.Equal(t, p.dtype, o.DType, p.release)
				seen++
			}
		}
		require.Equal(t, 2, seen)
	}
}

// TestChunks: rows that ranks sent are sorted by expert in one kernel with fused permutation, and
// cut into a chunk for each expert and rank, and joined, without (Megatron-LM, moe_utils.py,
// sort_chunks_by_idxs): there and back, with their probabilities on the way there.
func TestChunks(t *testing.T) {
	for _, x := range []struct {
		unfused, back bool
		ep, expertTP  int64
		want          []int32 // chunks of each cut, forward
	}{
		{false, false, 2, 1, nil}, {true, false, 2, 1, []int32{8, 8, 8}}, {true, true, 2, 1, []int32{8, 8}}, {true, true, 1, 4, []int32{32, 32}}, {true, true, 8, 1, nil},
	} {
		c := config(t, "mixtral-8x7b", "megatron-core")
		r := *c.Recipe
		r.Structure.UnfusedPermutation, r.Structure.WeighedBack = x.unfused, x.back
		c.Recipe, c.Shard.EP, c.Shard.ExpertTP = &r, x.ep, x.expertTP
		layer := Build(c).Kinds[0]
		var cuts []int32
		for _, o := range layer.Forward.Ops {
			if o.Prim == "chunk" {
				cuts = append(cuts, o.Count)
			}
		}
		require.Equal(t, x.want, cuts, "%+v", x)
		require.Equal(t, len(x.want), number(&layer.Backward, "chunk_backward"), "%+v", x)
		require.Equal(t, !x.unfused, number(&layer.Forward, "chunk_map") > 0, "%+v", x)
	}
}
