package ops

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// in counts the kernels of a module.
func in(s *tape.Section, module string) (n int) {
	for _, o := range s.Ops {
		if o.Module == module && o.Class != tape.NoKernel {
			n += max(int(o.Count), 1)
		}
	}
	return
}

// TestNoRope: 12 layers of SmolLM3 on an H100 ran 75 elementwise kernels less than if all
// turned their queries and keys, 25 for each of the three that do not (2026-11-24).
func TestNoRope(t *testing.T) {
	m := Build(config(t, "smollm3-3b", "hf-eager"))
	require.Len(t, m.Kinds, 2)
	turned, bare := &m.Kinds[0], &m.Kinds[1]
	require.Zero(t, in(&bare.Forward, "rotary"))
	elementwise := func(u *Unit) (n int) {
		for _, s := range []*tape.Section{&u.Forward, &u.Backward} {
			for _, o := range s.Ops {
				switch o.Class {
				case tape.Vectorized, tape.Strided2, tape.Strided4, tape.Unrolled:
					n += max(int(o.Count), 1)
				}
			}
		}
		return
	}
	require.InDelta(t, 25, elementwise(turned)-elementwise(bare), 1)
	bareLayers := 0
	for _, k := range m.Layers {
		bareLayers += int(k)
	}
	require.Equal(t, 9, bareLayers, "of 36")
}

// TestLayerNorm1P: Nemotron's norm adds one to its weight and, under autocast, runs in 16
// bits what others run in fp32, whose input the backward pass then keeps.
func TestLayerNorm1P(t *testing.T) {
	r, err := recipe.Load("hf-eager")
	require.NoError(t, err)
	norms := func(norm model.Norm) (dtypes map[tape.DType]int, ones int, kept float64) {
		c := config(t, "starcoder2-7b", "hf-eager")
		s := *c.Spec
		s.Norm = norm
		c.Spec, c.Precision = &s, r.Precision["bf16-autocast"]
		layer := &Build(c).Kinds[0]
		dtypes = map[tape.DType]int{}
		for _, o := range layer.Forward.Ops {
			if o.Prim == "layer_norm" {
				dtypes[o.DType]++
			}
		}
		return dtypes, number(&layer.Forward, "add_scalar"), saved(layer)
	}
	wide, none, all := norms(model.LayerNorm)
	require.Equal(t, map[tape.DType]int{tape.F32: 2}, wide)
	low, ones, half := norms(model.LayerNorm1P)
	require.Equal(t, map[tape.DType]int{tape.BF16: 2}, low)
	require.Equal(t, 2, ones-none)
	require.Less(t, half, all)
}

// TestLowRouter: MiniMax-M2's router multiplies in 16 bits, DeepSeek-V3's in fp32. What Qwen's
// and OLMoE's routers say is cast to 16 bits, and what experts multiply by it stays so; Mixtral's is
// not (transformers 5.17: a memory snapshot of either on one H200).
func TestLowRouter(t *testing.T) {
	product := func(name string) (d tape.DType) {
		m := Build(config(t, name, "hf-eager"))
		layer := &m.Kinds[len(m.Kinds)-1]
		for _, o := range layer.Forward.Ops {
			if o.Module == "router" && o.Prim == "linear" {
				d = o.DType
			}
		}
		return
	}
	require.Equal(t, tape.BF16, product("minimax-m2"))
	require.Equal(t, tape.F32, product("glm-4.5-air"))

	wide := func(name string) (values float64) { // that experts sum in fp32
		m := Build(config(t, name, "hf-eager"))
		for _, o := range m.Kinds[len(m.Kinds)-1].Forward.Ops {
			if o.Module == "experts" && o.Prim == "sum" && o.DType == tape.F32 {
				values += o.Elements
			}
		}
		return
	}
	for _, name := range []string{"qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "olmoe-1b-7b"} {
		require.Zero(t, wide(name), name)
	}
	require.Positive(t, wide("mixtral-8x7b"))
}

// TestLastSaved: recomputation of a layer with experts ends where the index is saved by which their
// rows come back to their tokens: they are multiplied by what the router says once more, and not
// gathered nor summed (traces of Mixtral and Qwen3 on H200, PyTorch 2.11).
func TestLastSaved(t *testing.T) {
	again := func(name, prim string) (forward, backward int) {
		c := config(t, name, "hf-eager")
		c.Recompute = FullRecompute
		m := Build(c)
		for _, o := range m.Kinds[len(m.Kinds)-1].Forward.Ops {
			if o.Module == "experts" && o.Prim == prim {
				forward++
			}
		}
		for _, o := range m.Kinds[len(m.Kinds)-1].Backward.Ops {
			if o.Module == "experts" && o.Prim == prim && o.Phase == tape.Recompute {
				backward++
			}
		}
		return
	}
	for _, name := range []string{"mixtral-8x7b", "qwen3-30b-a3b"} {
		for prim, less := range map[string]int{"mul": 0, "grouped_mm": 0, "index": 1, "sum": 1} {
			once, twice := again(name, prim)
			require.Positive(t, once, "%s %s", name, prim)
			require.Equal(t, once-less, twice, "%s %s", name, prim)
		}
	}
}

// TestStridedActivation: an activation of halves of rows takes as long as four more operands in a
// dimension would; that of a tensor of its own is hidden behind its bytes.
func TestStridedActivation(t *testing.T) {
	of := func(name, prim string, back bool) (tape.Class, float64) {
		m := Build(config(t, name, "hf-eager"))
		s := &m.Kinds[len(m.Kinds)-1].Forward
		if back {
			s = &m.Kinds[len(m.Kinds)-1].Backward
		}
		i := slices.IndexFunc(s.Ops, func(o tape.Op) bool { return o.Prim == prim })
		require.GreaterOrEqual(t, i, 0, name)
		return s.Ops[i].Class, s.Ops[i].Index
	}
	for _, c := range []struct {
		name, prim string
		back       bool
		class      tape.Class
		index      float64
	}{
		{"mixtral-8x7b", "silu", false, tape.Strided2, 2*2 + 4}, {"mixtral-8x7b", "silu_backward", true, tape.Strided2, 3*2 + 4},
		{"llama2-7b", "silu", false, tape.Vectorized, 0}, {"llama2-7b", "silu_backward", true, tape.Vectorized, 0},
	} {
		class, index := of(c.name, c.prim, c.back)
		require.Equal(t, c.class, class, "%s %s", c.name, c.prim)
		require.Equal(t, c.index, index, "%s %s", c.name, c.prim)
	}
}

// TestScales: Granite scales what either block adds, and its logits, with a kernel each.
func TestScales(t *testing.T) {
	scales := func(on bool) (layer, head int) {
		c := config(t, "granite-3.3-8b", "hf-eager")
		s := *c.Spec
		s.ResidScale, s.LogitScale = on, on
		c.Spec = &s
		m := Build(c)
		return number(&m.Kinds[0].Forward, "mul_scalar") + number(&m.Kinds[0].Backward, "mul_scalar"),
			number(&m.Head.Forward, "mul_scalar") + number(&m.Head.Backward, "mul_scalar")
	}
	layer, head := scales(true)
	without, bare := scales(false)
	require.Equal(t, []int{4, 2}, []int{layer - without, head - bare}, "forward and backward")
}

// TestQueryScale: Ministral 3 multiplies queries by factors of their positions, which it makes
// again in every layer; nothing is kept for the gradient, which is multiplied likewise.
func TestQueryScale(t *testing.T) {
	c := config(t, "ministral-3-3b", "hf-eager")
	with := &Build(c).Kinds[0]
	s := *c.Spec
	s.QueryScale = false
	c.Spec = &s
	without := &Build(c).Kinds[0]
	require.Equal(t, 8, in(&with.Forward, "rotary")-in(&without.Forward, "rotary"))
	require.Equal(t, 1, in(&with.Backward, "rotary")-in(&without.Backward, "rotary"))
	require.InDelta(t, saved(without), saved(with), 1e4)
}

// TestPairs: neighbours of a head are turned by the kernels that turn its halves, in the order
// of the class: GLM-4 in 16 bits, ERNIE 4.5 by products in fp32, and both repeat their tables
// in every layer. What reads every other element reads what is between them.
func TestPairs(t *testing.T) {
	turned := func(name string, turn model.Turn) (forward, backward map[string]int, read float64) {
		c := config(t, name, "hf-eager")
		s := *c.Spec
		s.Turn = turn
		c.Spec = &s
		layer := &Build(c).Kinds[0]
		forward, backward = map[string]int{}, map[string]int{}
		for _, o := range layer.Forward.Ops {
			if o.Module == "rotary" && o.Class != tape.NoKernel {
				if forward[o.Prim] += max(int(o.Count), 1); o.Prim == "neg" {
					read += float64(o.Bytes)
				}
			}
		}
		for _, o := range layer.Backward.Ops {
			if o.Module == "rotary" && o.Class != tape.NoKernel {
				backward[o.Prim] += max(int(o.Count), 1)
			}
		}
		return
	}
	halves, halvesBack, read := turned("glm-4-9b-0414", model.TurnHalves)
	pairs, pairsBack, more := turned("glm-4-9b-0414", model.TurnPairs)
	require.Equal(t, 2, pairs["tiny"])
	delete(pairs, "tiny")
	require.Equal(t, halves, pairs)
	require.Equal(t, halvesBack, pairsBack)
	require.InDelta(t, 1.5, more/read, 0.01, "twice of the half that is read, and as much written")

	mixed, _, _ := turned("ernie-4.5-0.3b", model.TurnPairsMixed)
	plain, _, _ := turned("ernie-4.5-0.3b", model.TurnPairs)
	require.Equal(t, 6, mixed["to"]-plain["to"], "of queries and keys, and of both turned, to fp32, and back")
}

// TestCastLayerNorm: Command R's norm is written out in fp32 around two differences from the
// mean, and has no bias; one serves attention and MLP.
func TestCastLayerNorm(t *testing.T) {
	c := config(t, "command-r7b", "hf-eager")
	m := Build(c)
	layer := &m.Kinds[0]
	var norms, prims []string
	for _, o := range layer.Forward.Ops {
		if o.Module == "norm" && o.Class != tape.NoKernel {
			prims = append(prims, o.Prim)
		}
	}
	norms = []string{"to", "mean", "sub", "pow", "mean", "sub", "add_scalar", "rsqrt", "mul", "to", "mul", "to"}
	require.Equal(t, norms, prims)
	require.Equal(t, []int{1, 1}, []int{number(&m.Head.Forward, "mul_scalar"), number(&m.Head.Backward, "mul_scalar")}, "logits")
	kinds := map[bool]int{}
	for _, k := range m.Layers {
		kinds[in(&m.Kinds[k].Forward, "rotary") > 0]++
	}
	require.Equal(t, map[bool]int{true: 24, false: 8}, kinds)

	for _, norm := range []model.QKNorm{model.EachQKNorm, model.HeadQKNorm} { // of Command R+: weights of every head
		s := *c.Spec
		s.QKNorm = norm
		c.Spec = &s
		u := &Build(c).Kinds[0]
		sound(t, "hf-eager", u)
		require.Equal(t, 3*len(norms), in(&u.Forward, "norm"))
	}
}

// TestNormTurned: HunYuan normalises queries and keys once they are turned, by as many kernels.
func TestNormTurned(t *testing.T) {
	c := config(t, "hunyuan-7b", "hf-eager")
	order := func(u *Unit) (out []string) {
		for _, o := range u.Forward.Ops {
			if (o.Module == "norm" || o.Module == "rotary") && o.Class != tape.NoKernel && (len(out) == 0 || out[len(out)-1] != o.Module) {
				out = append(out, o.Module)
			}
		}
		return
	}
	after := &Build(c).Kinds[0]
	s := *c.Spec
	s.NormTurned = false
	c.Spec = &s
	before := &Build(c).Kinds[0]
	require.Equal(t, []string{"norm", "rotary", "norm"}, order(after))
	require.Equal(t, []string{"norm", "rotary", "norm"}, order(before))
	require.Equal(t, in(&before.Forward, "norm"), in(&after.Forward, "norm"))
	first := func(u *Unit) (n int) { // kernels of norms before any is turned
		for _, o := range u.Forward.Ops {
			if o.Module == "rotary" {
				return
			}
			if o.Module == "norm" && o.Class != tape.NoKernel {
				n++
			}
		}
		return
	}
	require.Equal(t, 2*8, first(before)-first(after))
}

// TestChosenFirst: Granite's router takes the softmax of the chosen logits alone.
func TestChosenFirst(t *testing.T) {
	m := Build(config(t, "granite-3.1-3b-a800m", "hf-eager"))
	var prims []string
	for _, o := range m.Kinds[0].Forward.Ops {
		if o.Module == "router" && o.Class != tape.NoKernel {
			prims = append(prims, o.Prim)
		}
	}
	require.Equal(t, []string{"linear", "to", "topk", "topk_sort", "softmax", "to"}, prims)
	require.Equal(t, 2, number(&m.Kinds[0].Forward, "mul_scalar"), "of what both blocks add")
}

// TestCorrectedRouter: ERNIE 4.5's router multiplies in fp32, corrects its scores to choose by
// and bounds what it divides by.
func TestCorrectedRouter(t *testing.T) {
	m := Build(config(t, "ernie-4.5-21b-a3b", "hf-eager"))
	var prims []string
	for _, o := range m.Kinds[len(m.Kinds)-1].Forward.Ops {
		if o.Module == "router" && o.Class != tape.NoKernel {
			if prims = append(prims, o.Prim); o.Prim == "linear" {
				require.Equal(t, tape.F32, o.DType)
			}
		}
	}
	require.Equal(t, []string{"to", "to", "linear", "softmax", "tiny", "tiny", "topk", "topk_sort", "sum", "clamp", "div", "to"}, prims)
}

// TestKeysCopied: latent attention of GLM-4.7-Flash takes every other element of what it turns,
// and copies both parts of its keys into a new tensor, for which autograd copies the gradient
// of the whole twice.
func TestKeysCopied(t *testing.T) {
	c := config(t, "glm-4.7-flash", "hf-eager")
	prims := func(sec *tape.Section, module string) map[string]int {
		out := map[string]int{}
		for _, o := range sec.Ops {
			if o.Module == module && o.Class != tape.NoKernel {
				out[o.Prim] += max(int(o.Count), 1)
			}
		}
		return out
	}
	less := func(a, b map[string]int) map[string]int {
		for k, n := range b {
			if a[k] -= n; a[k] == 0 {
				delete(a, k)
			}
		}
		return a
	}
	new := &Build(c).Kinds[0]
	s := *c.Spec
	s.KeysCopied = false
	c.Spec = &s
	joined := &Build(c).Kinds[0]
	require.Equal(t, map[string]int{"cat": -1, "copy_": 2}, less(prims(&new.Forward, "attention"), prims(&joined.Forward, "attention")))
	require.Equal(t, map[string]int{"clone": 2, "copy_": 3, "fill_": 1}, less(prims(&new.Backward, "attention"), prims(&joined.Backward, "attention")))
	s.Turn = model.TurnParts
	halves := &Build(c).Kinds[0]
	require.Equal(t, prims(&halves.Forward, "rotary"), prims(&joined.Forward, "rotary"))
	require.Equal(t, map[string]int{"cat": -2, "copy_": 4, "fill_": 4, "add_": 2}, less(prims(&joined.Backward, "rotary"), prims(&halves.Backward, "rotary")))
}

// TestXIELU: Apertus's activation runs as 12 kernels on what the MLP's first product made,
// and its two parameters get gradients.
func TestXIELU(t *testing.T) {
	c := config(t, "apertus-8b", "hf-eager")
	u := &Build(c).Kinds[0]
	sound(t, "hf-eager", u)
	wide, prims := float64(2*1024*21504), map[string]int{}
	for _, o := range u.Forward.Ops {
		if o.Module == "mlp" && o.Elements == wide && o.Class != tape.NoKernel && o.Class != tape.GEMM {
			prims[o.Prim]++
		}
	}
	require.Equal(t, map[string]int{"gt": 1, "mul": 3, "mul_scalar": 2, "add": 2, "minimum": 1, "expm1": 1, "sub": 1, "where": 1}, prims)
	sums := 0
	for _, o := range u.Backward.Ops {
		if o.Module == "mlp" && o.Prim == "sum" && o.Elements == wide {
			sums++
		}
	}
	require.Equal(t, 2, sums, "of the gradients of both")
}

// TestSampledRouter: Phi-3.5-MoE multiplies what router and experts read by noise, twice, which
// is kept for the gradient, and draws its experts by many small kernels.
func TestSampledRouter(t *testing.T) {
	c := config(t, "phi-3.5-moe", "hf-eager")
	noisy := &Build(c).Kinds[0]
	sound(t, "hf-eager", noisy)
	s, m := *c.Spec, *c.Spec.MoE
	m.Jitter = false
	s.MoE = &m
	c.Spec = &s
	plain := &Build(c).Kinds[0]
	require.Equal(t, 4, in(&noisy.Forward, "router")-in(&plain.Forward, "router"), "uniform_ and mul")
	require.Equal(t, 2, in(&noisy.Backward, "router")-in(&plain.Backward, "router"))
	require.InDelta(t, 2*2*1024*4096*2, saved(noisy)-saved(plain), 1e6)
}

// TestNormsWithoutParameters: OLMo's norms have nothing to learn and run all the same, in fp32: two
// in a layer and one before the head, each cast there and back (a trace of an H200, 2026-11-27).
func TestNormsWithoutParameters(t *testing.T) {
	m := built(t, config(t, "olmo-7b", "hf-eager"))
	count := func(s *tape.Section, module string, class tape.Class) (n int) {
		for i := range s.Ops {
			if o := &s.Ops[i]; o.Module == module && o.Class == class {
				n++
			}
		}
		return n
	}
	layer := at(m, 0)
	require.Equal(t, []int{2, 2, 0}, []int{count(&layer.Forward, "norm", tape.LayerRows), count(&layer.Backward, "norm", tape.NormBackward), count(&layer.Backward, "norm", tape.NormWeight)})
	require.Equal(t, 2, count(&layer.Forward, "norm", tape.Unrolled), "to fp32")
	require.Equal(t, 1, count(&m.Head.Forward, "norm", tape.LayerRows))
	for _, o := range layer.Forward.Ops {
		if o.Class == tape.LayerRows {
			require.Equal(t, tape.F32, o.DType)
		}
	}
	for place, norms := range map[model.NormPlacement]int{model.PreNorm: 2, model.PostNorm: 2, model.Sandwich: 4} {
		c := config(t, "olmo-7b", "hf-eager")
		c.Spec.Place = place
		require.Equal(t, norms, count(&at(built(t, c), 0).Forward, "norm", tape.LayerRows), place)
	}
}

// TestScoresOfTheirOwn: MPT adds its slopes in fp32 and masks a copy, GPT-J multiplies queries and
// keys in fp32 and adds a mask in 16 bits: kernels of both passes of a layer's attention in traces of
// an H200 (2026-11-27).
func TestScoresOfTheirOwn(t *testing.T) {
	for name, want := range map[string]map[tape.Class]int{
		"mpt-7b":  {tape.StridedCast: 1, tape.Strided4: 2, tape.Memcpy: 2, tape.SoftmaxForward: 1},
		"gptj-6b": {tape.StridedCast: 1, tape.Strided4: 0, tape.Memcpy: 0, tape.SoftmaxForward: 1},
	} {
		c := config(t, name, "hf-eager")
		c.Attention = "unfused"
		layer, got, wide := at(built(t, c), 0), map[tape.Class]int{}, 0
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Module == "attention" {
					if _, ok := want[o.Class]; ok {
						got[o.Class]++
					}
					if o.Prim == "matmul" && o.DType != tape.BF16 {
						wide++
					}
				}
			}
		}
		for class, n := range want {
			require.Equal(t, n, got[class], "%s, %v", name, class)
		}
		require.Equal(t, map[string]int{"mpt-7b": 0, "gptj-6b": 1}[name], wide, name)
	}
}

// TestClassesOfTheHub: what the classes of Baichuan and of Qwen's first models run that no class of
// transformers does (modeling_baichuan.py, modeling_qwen.py): one mask of every head for all layers of
// Baichuan 13B, where attention of 7B sees that it is causal; rows of Baichuan 2's output layer over their
// norms; a mask for attention, and queries and keys turned in fp32, in Qwen.
func TestClassesOfTheHub(t *testing.T) {
	const (
		baichuan7  = `{"model_type": "baichuan", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 64000, "max_position_embeddings": 4096}`
		baichuan13 = `{"model_type": "baichuan", "hidden_size": 5120, "num_hidden_layers": 2, "num_attention_heads": 40, "intermediate_size": 13696, "vocab_size": 64000}`
		baichuan2  = `{"model_type": "baichuan", "hidden_size": 5120, "num_hidden_layers": 2, "num_attention_heads": 40, "intermediate_size": 13696, "vocab_size": 125696}`
		qwen       = `{"model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "intermediate_size": 22016}`
	)
	of := func(text, recipeName string) Config {
		file := filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return config(t, file, recipeName)
	}
	prims := func(s *tape.Section, module string) (list []string) {
		for _, o := range s.Ops {
			if o.Module == module && o.Class != tape.NoKernel && o.Prim != "prologue" {
				list = append(list, o.Prim)
			}
		}
		return
	}
	fused := func(c Config) *tape.Op {
		u := at(built(t, c), 0)
		for i, o := range u.Forward.Ops {
			if o.Prim == "attention" {
				return &u.Forward.Ops[i]
			}
		}
		return nil
	}
	t.Run("sound", func(t *testing.T) {
		for _, text := range []string{baichuan7, baichuan13, baichuan2, qwen} {
			for _, attention := range []string{"sdpa", "unfused"} {
				for _, precision := range []string{"bf16-mixed", "bf16-autocast"} {
					for _, again := range []Recompute{NoRecompute, FullRecompute} {
						c := of(text, "hf-eager")
						c.Attention, c.Recompute, c.Precision = attention, again, c.Recipe.Precision[precision]
						m := built(t, c)
						list, times := unitsOf(m)
						n := 0.
						for i, u := range list {
							sound(t, "hf-eager", u)
							n += times[i] * float64(u.LocalParams())
						}
						require.Equal(t, float64(c.Spec.Params().Total), n)
					}
				}
			}
		}
	})
	t.Run("masks", func(t *testing.T) {
		for _, x := range []struct {
			text, recipe string
			masked       bool
			heads        float64 // in each mask
		}{
			{baichuan7, "hf-eager", false, 0},
			{baichuan7, "deepspeed-hf", false, 0},
			{baichuan13, "hf-eager", true, 40},
			{baichuan2, "deepspeed-hf", true, 40},
			{baichuan13, "hf-compile", true, 40},
			{qwen, "hf-eager", true, 1},
			{qwen, "megatron-core", false, 0},
		} {
			c := of(x.text, x.recipe)
			o, mask := fused(c), float64(c.Sequence*c.Sequence)*2
			require.Equal(t, x.masked, o.Attn.Masked, "%s %s", x.recipe, x.text)
			plain := 4 * float64(c.MicroBatch*c.Sequence*c.Spec.Heads*c.Spec.HeadDim) * 2
			stats := float64(c.MicroBatch*c.Sequence*c.Spec.Heads) * 4
			require.InDelta(t, plain+stats+x.heads*float64(c.MicroBatch)*mask, float64(o.Bytes), 1, "%s %s", x.recipe, x.text)
			if x.heads > 1 { // those of the batch, and the slopes that stay
				held, bare := saved(&built(t, c).Embedding), c
				s := *c.Spec
				s.HeadMasks = false
				bare.Spec = &s
				shared := 0.
				if x.recipe == "hf-compile" {
					shared = float64(c.MicroBatch) * mask
				}
				require.InDelta(t, x.heads*float64(c.MicroBatch+1)*mask, held-saved(&built(t, bare).Embedding)+shared, 1, x.recipe)
			}
		}
		c := of(baichuan13, "hf-eager")
		held := saved(at(built(t, c), 0))
		c.Precision = c.Recipe.Precision["bf16-autocast"] // which casts the mask for every layer, and that of its gradient is the copy
		require.Greater(t, saved(at(built(t, c), 0))-held, 40*float64(c.MicroBatch*c.Sequence*c.Sequence)*2)
	})
	t.Run("unfused", func(t *testing.T) {
		c := of(baichuan13, "hf-eager")
		c.Attention = "unfused"
		require.Subset(t, prims(&at(built(t, c), 0).Forward, "attention"), []string{"add", "minimum", "softmax"})
		c = of(baichuan7, "hf-eager")
		c.Attention = "unfused"
		require.NotContains(t, prims(&at(built(t, c), 0).Forward, "attention"), "minimum")
	})
	t.Run("rotary", func(t *testing.T) {
		one := []string{"to", "mul", "neg", "cat", "mul", "add", "copy", "to"}
		u := at(built(t, of(qwen, "hf-eager")), 0)
		require.Equal(t, slices.Concat(one, one), prims(&u.Forward, "rotary"))
		wide := 0
		for _, o := range u.Forward.Ops {
			if o.Module == "rotary" && o.Class != tape.NoKernel && o.DType == tape.F32 {
				wide++
			}
		}
		require.Equal(t, 14, wide, "all but what casts back")
		require.Equal(t, []string{"mul", "neg", "cat", "mul", "add", "mul", "neg", "cat", "mul", "add"}, prims(&at(built(t, of(baichuan7, "hf-eager")), 0).Forward, "rotary"))
	})
	t.Run("head", func(t *testing.T) {
		c := of(baichuan2, "hf-eager")
		normed := &built(t, c).Head
		c.Spec.NormHead = false
		plain := &built(t, c).Head
		require.Equal(t, []string{"norm", "clamp", "div", "linear"}, prims(&normed.Forward, Head))
		require.Equal(t, []string{"linear"}, prims(&plain.Forward, Head))
		require.InEpsilon(t, 125696*(5120+1+1)*2, saved(normed)-saved(plain), 1e-3, "the weight over its norms, and these")
		require.Greater(t, len(prims(&normed.Backward, Head)), 8+len(prims(&plain.Backward, Head)))
		_, missing := tryBuild(of(baichuan2, "megatron-core"))
		require.Equal(t, "norm_head", missing)
		require.ErrorContains(t, Missing{"megatron-core", missing, false}, "an output layer whose rows are divided by their norms (Baichuan 2's); use automodel, deepspeed-hf, hf-eager or pytorch")
	})
}

// layerOf are the kernels of a file's last kind of layer, in the order in which they run, forward.
func layerOf(t *testing.T, text string) (prims []string) {
	t.Helper()
	doc, err := yamlx.Parse("model.yaml", []byte("{"+text+", hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 4, head_dim: 64, intermediate_size: 512, vocab_size: 1024, max_position_embeddings: 1024}"))
	require.NoError(t, err)
	s, errs := model.Decode(doc, doc.Root)
	require.NoError(t, errs.Err())
	c := config(t, "llama3-8b", "hf-eager")
	c.Spec, c.Sequence = s, 512
	m := Build(c)
	for _, o := range m.Kinds[len(m.Kinds)-1].Forward.Ops {
		prims = append(prims, o.Prim)
	}
	return prims
}

// TestKindred: classes that inherit their layers from those of others run the kernels of these
// (transformers 5.17, modular_*.py of each).
func TestKindred(t *testing.T) {
	const experts = ", moe_intermediate_size: 128, num_experts: 8, num_experts_per_tok: 2"
	for text, like := range map[string]string{
		"model_type: cwm, layer_types: [full_attention, full_attention, full_attention, full_attention]": "model_type: llama",
		"model_type: mellum, norm_topk_prob: true" + experts:                                             "model_type: qwen3_moe, norm_topk_prob: true" + experts,
		"model_type: hyperclovax, use_post_norm: false":                                                  "model_type: granite",
		"model_type: exaone_moe, sliding_window: null" + experts:                                         "model_type: glm4_moe, use_qk_norm: true, partial_rotary_factor: 1.0" + experts,
		"model_type: eurobert": "model_type: llama, is_causal: false",
		"model_type: gemma4_unified_text, global_head_dim: 64, layer_types: [full_attention, full_attention, full_attention, full_attention]": "model_type: gemma4_text, global_head_dim: 64, hidden_size_per_layer_input: 0, layer_types: [full_attention, full_attention, full_attention, full_attention]",
	} {
		require.Equal(t, layerOf(t, like), layerOf(t, text), text)
	}
	const hy = "model_type: hy_v3, num_shared_experts: 1" + experts
	require.Equal(t, layerOf(t, "model_type: glm4_moe, use_qk_norm: true, partial_rotary_factor: 1.0"+experts), layerOf(t, hy+", enable_moe_fp32_combine: false"))
	require.Equal(t, len(layerOf(t, hy+", enable_moe_fp32_combine: false"))+3, len(layerOf(t, hy)), "two casts to fp32 and one back around the sum")
	// AFMoE's attention multiplies its output by the sigmoid of one product more (modular_afmoe.py).
	counts := func(text string) map[string]int {
		n := map[string]int{}
		for _, p := range layerOf(t, text) {
			n[p]++
		}
		return n
	}
	afmoe, plain := counts("model_type: afmoe, sliding_window: null, num_shared_experts: 1, num_dense_layers: 1"+experts), counts("model_type: exaone_moe, sliding_window: null"+experts)
	for prim, more := range map[string]int{"linear": 1, "sigmoid": 1, "mul": 1 + 2*2, "rsqrt": 2} { // and two norms more, of what blocks add
		require.Equal(t, plain[prim]+more, afmoe[prim], prim)
	}
	norms := func(text, prim string) (n int) {
		for _, p := range layerOf(t, text) {
			if p == prim {
				n++
			}
		}
		return n
	}
	require.Equal(t, norms("model_type: granite", "rsqrt")+2, norms("model_type: hyperclovax", "rsqrt"), "one more of each block's output")
	require.Equal(t, norms("model_type: gemma2", "rsqrt")-2, norms("model_type: vaultgemma", "rsqrt"), "none of any block's output")
	const flex = "model_type: flex_olmo, num_experts: 8, num_experts_per_tok: 2"
	require.Equal(t, norms("model_type: olmo2", "rsqrt"), norms(flex, "rsqrt"))
	require.Equal(t, norms("model_type: olmoe, num_experts: 8, num_experts_per_tok: 2", "grouped_mm"), norms(flex, "grouped_mm"))
}
