package ops

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// gathers are the sizes of the all-gathers of a section.
func gathers(s *tape.Section) (sizes []units.Bytes) {
	for i := range s.Ops {
		if c := s.Ops[i].Comm; c != nil && c.Kind == "all-gather" {
			sizes = append(sizes, c.Bytes)
		}
	}
	return
}

// TestNarrowGathers: what only GEMMs read is gathered as they read it where the recipe
// says so. Of a layer's two gathers forward and four backward, two of those are of
// gradients, which are gathered twice where scales are of blocks (Transformer Engine 2.8,
// pytorch/distributed.py).
func TestNarrowGathers(t *testing.T) {
	for precision, want := range map[string][2]units.Bytes{ // bytes an element of inputs and of gradients
		"bf16": {2, 2}, "fp8": {1, 1}, "fp8-block": {1, 2}, "mxfp8": {1, 2}, "nvfp4": {0.5, 1},
	} {
		c := config(t, "llama3.2-1b", "megatron-core")
		c.Precision, c.Shard.TP, c.Shard.SequenceParallel = c.Recipe.Precision[precision], 2, true
		m := Build(c)
		elements := units.Bytes(c.MicroBatch * c.Sequence * c.Spec.Hidden)
		layer, sum := m.Kinds[0], units.Bytes(0)
		require.Equal(t, []units.Bytes{want[0] * elements, want[0] * elements}, gathers(&layer.Forward), precision)
		back := gathers(&layer.Backward)
		require.Len(t, back, 4)
		for _, b := range back {
			sum += b
		}
		require.Equal(t, 2*(want[0]+want[1])*elements, sum, precision)
		require.Equal(t, []units.Bytes{2 * elements}, gathers(&m.Head.Forward), "the output layer stays in 16 bits")
	}
}

// TestSharedScales: ranks agree on the scale of what they gather where it follows from the
// tensor itself, input forward and gradient backward of a layer's two gathers each
// (Transformer Engine 2.2 to 2.9, _customize_quantizers_float8_current_scaling of Linear and
// LayerNormLinear). Delayed scaling has it from steps before, blocks have their own.
func TestSharedScales(t *testing.T) {
	var old units.Release
	require.NoError(t, old.UnmarshalText([]byte("25.04")))
	for _, c := range []struct {
		precision string
		release   units.Release
		want      int // in either direction
	}{
		{"fp8", 0, 2}, {"fp8", old, 0}, {"mxfp8", 0, 0}, {"bf16", 0, 0},
	} {
		k := config(t, "llama3.2-1b", "megatron-core")
		k.Recipe = k.Recipe.At(c.release)
		k.Precision, k.Shard.TP, k.Shard.SequenceParallel = k.Recipe.Precision[c.precision], 2, true
		layer := Build(k).Kinds[0]
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			n := 0
			for i := range s.Ops {
				if o := s.Ops[i].Comm; o != nil && o.Kind == "all-reduce" && o.Bytes == 4 {
					n++
				}
			}
			require.Equal(t, c.want, n, "%s of %s", c.precision, c.release)
		}
	}
}

// TestQuantizedExperts: rows are padded and back around quantized experts, but not
// where Hybrid-EP has padded them.
func TestQuantizedExperts(t *testing.T) {
	permutations := func(precision string, nvlink bool) (n int) {
		c := config(t, "qwen3-30b-a3b", "megatron-core")
		c.Precision, c.Shard.EP, c.Shard.Flex = c.Recipe.Precision[precision], 8, nvlink
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Prim == "permute" {
				n++
			}
		}
		return
	}
	require.Equal(t, permutations("bf16", false)+2, permutations("mxfp8", false))
	require.Equal(t, permutations("bf16", true), permutations("mxfp8", true))
}

// TestTokenExchange: a row of 2048 goes once to each of the 5.3 of 8 ranks that hold 8 of 128
// experts, with 128 probabilities, and its gradient returns with theirs; what experts
// make of it returns alone. Across nodes it leaves a domain once for each other one, with the
// probabilities of that domain's experts.
func TestTokenExchange(t *testing.T) {
	missed := func(parts float64) float64 { // that a part holds none of the 8
		p := 1.0
		for i := range 8 {
			p *= 1 - 128/parts/float64(128-i)
		}
		return p
	}
	for _, domains := range []int64{0, 2} {
		c := config(t, "qwen3-30b-a3b", "megatron-core")
		c.Shard.EP, c.Shard.Flex, c.Shard.Domains = 8, true, domains
		var got []float64
		k := &Build(c).Kinds[0]
		for _, s := range []*tape.Section{&k.Forward, &k.Backward} {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Prim == "token-exchange" {
					got = append(got, float64(o.Comm.Bytes)/float64(c.MicroBatch*c.Sequence))
				}
			}
		}
		reached, experts := 8*(1-missed(8)), 128.0
		if domains > 1 {
			reached, experts = 2*(1-missed(2)), 64
		}
		require.InEpsilonSlice(t, []float64{reached * (4096 + 4*experts), reached * 4096, reached * 4096, reached * (4096 + 4*experts)}, got, 1e-4)
	}
}

// TestReach: where 8 of 256 experts lie in the best 4 of 8 groups, a token reaches at most 4 of
// as many parts, half as many as without groups of 32 where it meets most of them; as often
// as in counted draws.
func TestReach(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, m := range []model.MoE{{Experts: 256, TopK: 8, Groups: 8, TopGroups: 4}, {Experts: 160, TopK: 6, Groups: 8, TopGroups: 3}, {Experts: 128, TopK: 8}} {
		for _, parts := range []int64{1, 2, 4, 5, 8, 10, 16, 20, 32} {
			if m.Experts%parts != 0 {
				continue
			}
			reached, draws := 0, 4000
			for range draws {
				groups := max(m.Groups, 1)
				each := m.Experts / groups
				var open []int64 // experts of the groups taken
				for _, g := range rng.Perm(int(groups))[:max(m.TopGroups, 1)] {
					for i := range each {
						open = append(open, int64(g)*each+i)
					}
				}
				parted := map[int64]bool{}
				for _, i := range rng.Perm(len(open))[:m.TopK] {
					parted[open[i]*parts/m.Experts] = true
				}
				reached += len(parted)
			}
			require.InEpsilon(t, float64(reached)/float64(draws), Reach(&m, parts), 0.03, "%v on %d", m, parts)
		}
	}
}

// TestSyncFreeExperts: kernels that take numbers of rows from the device multiply as
// much as those that wait for the host, and leave neither activation nor casts of what
// they make to others; what is kept is copied away and back.
func TestSyncFreeExperts(t *testing.T) {
	count := func(free bool) (prims map[string]int, waits int, flops units.FLOPs) {
		c := config(t, "qwen3-30b-a3b", "megatron-core")
		c.Precision, c.Shard.EP, c.Shard.Flex, c.SyncFree = c.Recipe.Precision["mxfp8"], 8, true, free
		prims = map[string]int{}
		k := &Build(c).Kinds[0]
		for _, s := range []*tape.Section{&k.Forward, &k.Backward} {
			for i := range s.Ops {
				o := &s.Ops[i]
				prims[o.Prim]++
				flops += o.FLOPs
				if o.Sync {
					waits++
				}
			}
		}
		return
	}
	separate, waits, flops := count(false)
	require.Equal(t, 1, waits)
	require.Equal(t, 4, separate["grouped_quantize"], "two inputs, two gradients")
	require.Equal(t, 2, separate["glu"]+separate["glu_backward"])
	fused, none, same := count(true)
	require.Zero(t, none)
	require.Zero(t, fused["glu"]+fused["glu_backward"]+fused["grouped_quantize"])
	require.Equal(t, separate["quantize"]+2, fused["quantize"], "one kernel for the rows of all experts, one for their gradients")
	require.Equal(t, 6, fused["stash"]+fused["unstash"])
	require.Equal(t, 6, fused["grouped_mm"]+fused["grouped_glu"]+fused["grouped_mm_dgrad"]+fused["grouped_glu_dgrad"]+fused["grouped_mm_wgrad"])
	require.Equal(t, flops, same)
}

// TestJointBiases: the joint kernels of gpt-oss' experts add their biases and clamp; a kernel that
// reads the gradient of the second product sums that of its biases.
func TestJointBiases(t *testing.T) {
	count := func(joint bool) (prims map[string]int, params int) {
		c := config(t, "gpt-oss-20b", "megatron-core")
		c.Precision, c.JointMLPs = c.Recipe.Precision["mxfp8"], joint
		prims = map[string]int{}
		k := &Build(c).Kinds[0]
		for _, s := range []*tape.Section{&k.Forward, &k.Backward} {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Module == "experts" {
					prims[o.Prim]++
					if o.Prim == "grouped_bias_backward" {
						require.Equal(t, 2*units.Bytes(o.Elements), o.Bytes, "reads its gradient in 16 bits")
					}
				}
			}
		}
		return prims, len(k.Backward.Grads)
	}
	separate, params := count(false)
	require.Positive(t, separate["clamp"])
	joint, same := count(true)
	require.GreaterOrEqual(t, same, params)
	require.Zero(t, joint["clamp"]+joint["mul"]+joint["add"])
	require.Equal(t, 1, joint["grouped_bias_backward"])
	require.Zero(t, separate["grouped_bias_backward"])
}

// TestJointExperts: kernels of all experts of a rank multiply as much as one for each and leave
// no activation and no casts of what they make; what the second product read is made again by
// the kernel of its gradient where the activation is not kept. A layer in 16 bits has none.
func TestJointExperts(t *testing.T) {
	count := func(joint bool, modules Modules) (prims map[string]int, flops units.FLOPs, saved, bytes units.Bytes) {
		c := config(t, "nemotron-3-nano-30b-a3b", "megatron-core")
		own := *c.Recipe
		own.Structure.FusedReLU2 = true
		c.Recipe, c.Precision, c.Shard.EP, c.Shard.Flex, c.JointMLPs = &own, c.Recipe.Precision["mxfp8"], 8, true, joint
		if modules != 0 {
			c.Recompute, c.Modules = SelectiveRecompute, modules
		}
		prims = map[string]int{}
		m := Build(c)
		k := &m.Kinds[slices.IndexFunc(m.Kinds, func(u Unit) bool { return u.Name == "experts alone" })]
		for _, s := range []*tape.Section{&k.Forward, &k.Backward} {
			for i := range s.Ops {
				o := &s.Ops[i]
				prims[o.Prim]++
				flops += o.FLOPs
				if o.Prim == "grouped_act_dgrad" {
					bytes += o.Bytes
				}
			}
		}
		return prims, flops, k.Saved(), bytes
	}
	apart, flops, kept, _ := count(false, 0)
	require.Equal(t, 4, apart["grouped_quantize"])
	joint, same, held, moved := count(true, 0)
	require.Equal(t, flops, same)
	require.Zero(t, joint["grouped_quantize"]+joint["glu"]+joint["glu_backward"]+joint["stash"])
	require.Equal(t, 6, joint["grouped_mm"]+joint["grouped_act"]+joint["grouped_mm_dgrad"]+joint["grouped_act_dgrad"]+joint["grouped_mm_wgrad"])
	require.Equal(t, 1, joint["scan_map"])
	require.Equal(t, kept, held)
	_, _, less, more := count(true, ExpertActivation)
	c := config(t, "nemotron-3-nano-30b-a3b", "megatron-core")
	after := units.Bytes(c.MicroBatch * c.Sequence * 6 * 1856) // in 8 bits
	require.Equal(t, after, held-less)
	require.Equal(t, after, more-moved)
}

// TestGroupedTraffic: quantized operands are read in 8 bits, results written in 16.
func TestGroupedTraffic(t *testing.T) {
	c := config(t, "qwen3-30b-a3b", "megatron-core")
	c.Precision, c.Shard.EP = c.Recipe.Precision["mxfp8"], 8
	rows, h, f, experts := c.MicroBatch*c.Sequence*8, int64(2048), int64(768), int64(16)
	k := &Build(c).Kinds[0]
	var bytes []units.Bytes
	for _, s := range []*tape.Section{&k.Forward, &k.Backward} {
		for i := range s.Ops {
			if o := &s.Ops[i]; o.Class == tape.GroupedGEMM {
				bytes = append(bytes, o.Bytes)
			}
		}
	}
	require.Equal(t, []units.Bytes{
		units.Bytes(rows*h + experts*2*f*h + 2*rows*2*f), units.Bytes(rows*f + experts*f*h + 2*rows*h), // forward
		units.Bytes(rows*h + experts*f*h + 2*rows*f), units.Bytes(rows*h + rows*f + 2*2*experts*f*h), // of the second; its 16-bit sum is read and written
		units.Bytes(rows*2*f + experts*2*f*h + 2*rows*h), units.Bytes(rows*2*f + rows*h + 2*2*experts*2*f*h),
	}, bytes)
}

// TestQuantizeTraffic: current scaling reads a tensor for its maximum before it reads it
// for the cast.
func TestQuantizeTraffic(t *testing.T) {
	c := config(t, "llama3.2-1b", "megatron-core")
	c.Precision = c.Recipe.Precision["fp8"]
	cast := func(c Config) units.Bytes {
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Prim == "quantize" {
				return o.Bytes / units.Bytes(o.Elements)
			}
		}
		return 0
	}
	require.Equal(t, units.Bytes(2*2+2), cast(c))
	c.Precision = c.Recipe.At(12*24 + 6).Precision["fp8"]
	require.Equal(t, units.Bytes(2+2), cast(c), "delayed scaling")
	c.Precision = c.Recipe.Precision["fp8-delayed"]
	require.Equal(t, units.Bytes(2+2), cast(c), "delayed scaling, of any release")
}

// TestFrozenCasts: where no weight gradient reads the other copy, a cast with blocks of its own reads once,
// and NVFP4's once more before (Transformer Engine, module/linear.py, set_usage; csrc/quantizer.cpp, nvte_compute_amax).
func TestFrozenCasts(t *testing.T) {
	for precision, want := range map[string][2]float64{
		"nvfp4":     {3.2*2 + 2*0.5, 2*2 + 0.5},
		"mxfp8":     {1.7*2 + 2, 2 + 1},
		"fp8-block": {1.4*2 + 2, 2 + 1},
		"fp8":       {2*2 + 2, 2*2 + 1},
	} {
		for i, trained := range []bool{true, false} {
			c := config(t, "llama3-8b", "megatron-core")
			if c.Precision = c.Recipe.Precision[precision]; !trained {
				s, err := c.Spec.Adapted(16, []string{"qkv"}, 0)
				require.NoError(t, err)
				c.Spec = s
			}
			for _, o := range Build(c).Kinds[0].Forward.Ops {
				if o.Prim == "quantize" {
					require.InDelta(t, want[i], float64(o.Bytes)/o.Elements, 1e-3, "%s %v", precision, trained)
					break
				}
			}
		}
	}
}

// TestAttentionBesideNVFP4: attention may multiply in fp8 where layers do in fp4, by scales known
// before (dot_product_attention.py, NVTE_DPA_FP8_RECIPE=DelayedScaling).
func TestAttentionBesideNVFP4(t *testing.T) {
	c := config(t, "llama3-8b", "megatron-core")
	c.Precision = c.Recipe.Precision["nvfp4"]
	c.Precision.Attention = c.Recipe.Precision["fp8"].GEMM
	u := Build(c).Kinds[0]
	var casts, attention []string
	for _, s := range []*tape.Section{&u.Forward, &u.Backward} {
		for _, o := range s.Ops {
			switch {
			case o.Prim == "quantize" && o.DType == tape.FP8:
				require.InDelta(t, 2+1, float64(o.Bytes)/o.Elements, 1e-3)
				casts = append(casts, o.Prim)
			case o.Attn != nil:
				attention = append(attention, o.Attn.Flavour)
			}
		}
	}
	require.Len(t, casts, 4, "queries, keys, values and the gradient")
	require.Equal(t, []string{"fp8", "fp8"}, attention)
}

// TestExpertBias: the bias behind the experts' second GEMM is added expert by expert,
// two kernels each forward and five backward, where a model has one; the first is its GEMM's.
func TestExpertBias(t *testing.T) {
	perExpert := func(model string, s func(Unit) tape.Section) (n int32) {
		c := config(t, model, "megatron-core")
		c.Shard.EP = 4
		m := Build(c)
		for _, o := range s(m.Kinds[0]).Ops {
			if o.Module == "experts" && o.Class != tape.GroupedGEMM && o.Class != tape.Collective && int64(o.Count) == c.Spec.MoE.Experts/4 {
				n++
			}
		}
		return
	}
	forward := func(u Unit) tape.Section { return u.Forward }
	backward := func(u Unit) tape.Section { return u.Backward }
	require.EqualValues(t, 2, perExpert("gpt-oss-20b", forward))
	require.EqualValues(t, 5, perExpert("gpt-oss-20b", backward))
	require.Zero(t, perExpert("qwen3-30b-a3b", forward))
	require.Zero(t, perExpert("qwen3-30b-a3b", backward))
}

// TestCapacity: every expert has as many rows as its capacity, the host waits for no
// numbers of them, and chunks are copied with strides, not by a permutation.
func TestCapacity(t *testing.T) {
	build := func(capacity float64) (rows int64, waits, permutations, strided int) {
		c := config(t, "qwen3-30b-a3b", "megatron-core")
		c.Shard.EP, c.Capacity = 8, capacity
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			switch {
			case o.Class == tape.GroupedGEMM:
				rows = o.M * o.Batch
			case o.Sync:
				waits++
			case o.Prim == "permute":
				permutations++
			case o.Module == "experts" && o.Class == tape.Strided2:
				strided++
			}
		}
		return
	}
	rows, waits, permutations, strided := build(0)
	require.Equal(t, []int{1, 3, 0}, []int{waits, permutations, strided})
	for capacity, factor := range map[float64]float64{1: 1, 1.25: 1.25} {
		n, w, p, s := build(capacity)
		require.InDelta(t, factor*float64(rows), float64(n), 128, "a row more for an expert at most")
		require.Equal(t, []int{0, 2, 2}, []int{w, p, s})
	}
}

// TestAnyLayout: where GEMMs read 8-bit operands of one scale along both axes, casts write
// one copy instead of two, those of blocks as before. The output projection's is cast to one
// for the forward pass and again for the backward pass.
func TestAnyLayout(t *testing.T) {
	written := func(precision string, any bool) (bytes, elements float64) {
		c := config(t, "llama3.2-1b", "megatron-core")
		c.Precision, c.AnyLayout = c.Recipe.Precision[precision], any
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Prim == "quantize" {
				bytes, elements = bytes+float64(o.Bytes), elements+o.Elements
			}
		}
		return
	}
	two, n := written("fp8", false)
	n -= 2 * 1024 * 2048
	one, _ := written("fp8", true)
	require.Positive(t, n)
	require.InDelta(t, n, two-one, 1)
	blocks, _ := written("mxfp8", false)
	same, _ := written("mxfp8", true)
	require.Equal(t, blocks, same)
}

// TestQuantizedHead: the output layer multiplies in 16 bits unless the precision names what
// layers multiply in; then it casts what it multiplies, too.
func TestQuantizedHead(t *testing.T) {
	for _, narrow := range []bool{false, true} {
		c := config(t, "llama3.2-1b", "megatron-core")
		c.Precision = c.Recipe.Precision["mxfp8"]
		want, casts := tape.BF16, 0
		if narrow {
			c.Precision.Head = c.Precision.GEMM
			want, casts = c.Precision.GEMM.DType, 2 // the input, and its gradient
		}
		m := Build(c)
		var products []tape.DType
		quantized := 0
		for _, s := range []*tape.Section{&m.Head.Forward, &m.Head.Backward} {
			for i := range s.Ops {
				switch o := &s.Ops[i]; {
				case o.Class == tape.GEMM:
					products = append(products, o.DType)
				case o.Prim == "quantize":
					quantized++
				}
			}
		}
		require.Equal(t, []tape.DType{want, want, want}, products)
		require.Equal(t, casts, quantized)
	}
}

// TestLossWaits: Transformer Engine's loss looks at its gradient on the host before it makes
// that of the logits (a trace of two H200, 2026-11-27); compiled losses do not.
func TestLossWaits(t *testing.T) {
	for name, waits := range map[string]int{"megatron-core": 1, "megatron-script": 1, "megatron-pretrain": 0, "torchtitan": 0} {
		c := config(t, "llama3-8b", name)
		c.FusedLoss = c.Recipe.Structure.FusedLoss
		ops, kernel := built(t, c).Head.Backward.Ops, -1
		var got []int
		for i := range ops {
			switch {
			case ops[i].Sync:
				got = append(got, i)
			case ops[i].Prim == "cross_entropy_backward":
				kernel = i
			}
		}
		require.Len(t, got, waits, name)
		if waits > 0 {
			require.Less(t, got[0], kernel, name)
		}
	}
}
