package ops

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// adaptedConfig is config with adapters.
func adaptedConfig(t testing.TB, name, recipeName string, targets ...string) Config {
	c := config(t, name, recipeName)
	s, err := c.Spec.Adapted(16, targets, 0)
	require.NoError(t, err)
	c.Spec = s.AtSequence(1024)
	return c
}

// TestAdaptersRunEverywhere: each recipe that knows adapters trains them, and nothing else,
// of each kind of model, recomputed or not: every adapter has its gradient, nothing frozen
// has one, and memory is given back (sound).
func TestAdaptersRunEverywhere(t *testing.T) {
	for _, r := range recipe.Names() {
		for _, name := range families {
			c := config(t, name, r)
			if !c.Recipe.Structure.Adapters || c.Spec.Mamba != nil {
				continue
			}
			s, err := c.Spec.Adapted(16, nil, 0.1)
			require.NoError(t, err)
			c.Spec = s.AtSequence(1024)
			for _, again := range []Recompute{NoRecompute, SelectiveRecompute, FullRecompute} {
				c.Recompute = again
				m, missing := tryBuild(c)
				if missing != "" {
					continue
				}
				list, _ := unitsOf(m)
				for _, u := range list {
					sound(t, r, u)
				}
			}
		}
	}
}

// products counts the matrix products of a section by their layout.
func products(s *tape.Section) (n [4]int) {
	for _, o := range s.Ops {
		if o.Class == tape.GEMM {
			n[o.Layout]++
		}
	}
	return
}

// TestAdapterProducts: a frozen projection is multiplied once in each pass, an adapter twice
// forward and four times backward; what recompute and autocast do does not change that.
func TestAdapterProducts(t *testing.T) {
	plain := Build(config(t, "llama3.2-1b", "hf-eager")).Kinds[0]
	require.Equal(t, 7, products(&plain.Forward)[tape.LayoutForward])
	require.Equal(t, 7, products(&plain.Backward)[tape.LayoutWgrad])
	for _, c := range []struct {
		targets  []string
		adapters int
	}{{nil, 7}, {[]string{"q", "v"}, 2}, {[]string{"mlp"}, 3}} {
		u := Build(adaptedConfig(t, "llama3.2-1b", "hf-eager", c.targets...)).Kinds[0]
		require.Equal(t, 7+2*c.adapters, products(&u.Forward)[tape.LayoutForward], "%v", c.targets)
		require.Equal(t, 2*c.adapters, products(&u.Backward)[tape.LayoutWgrad], "%v", c.targets)
		require.Equal(t, 7+2*c.adapters, products(&u.Backward)[tape.LayoutDgrad], "%v", c.targets)
	}
}

// TestAdapterCasts: PEFT casts what an adapter reads to its weights' dtype, whatever autocast
// makes of it then: under autocast the 16-bit inputs of the output and the down projection
// (kernels 74 and 119 of a profiled layer: Llama 3.2 1B in fp32, two sequences of 4096 tokens on
// an H100).
func TestAdapterCasts(t *testing.T) {
	c := adaptedConfig(t, "llama3.2-1b", "hf-eager")
	c.Precision = c.Recipe.Precision["bf16-autocast"]
	wide := map[float64]int{}
	for _, o := range Build(c).Kinds[0].Forward.Ops {
		if o.Prim == "to" && o.DType == tape.F32 {
			wide[o.Elements]++
		}
	}
	require.Equal(t, map[float64]int{2 * 1024 * 2048: 1, 2 * 1024 * 8192: 1}, wide)
}

// TestFrozenKeepsLess: nothing is kept of what frozen projections read: normed inputs of
// queries, keys and values and of the MLP, the gated input of its second projection. What the
// output projection reads attention keeps, and its adapter, which keeps what A makes.
func TestFrozenKeepsLess(t *testing.T) {
	kept := func(u *Unit) (n units.Bytes) {
		for _, e := range u.Forward.Events {
			n += e.Bytes
		}
		return
	}
	whole := Build(config(t, "llama3-8b", "megatron-core")).Kinds[0]
	frozen := Build(adaptedConfig(t, "llama3-8b", "megatron-core", "o")).Kinds[0]
	const values = 2 * 1024 // of 2 sequences in 16 bits, each
	require.Equal(t, units.Bytes(values*2*(4096+4096+14336-16)), kept(&whole)-kept(&frozen))
}

// TestFusedAdapter: a projection that a framework stores as one has one adapter: A of one
// rank, B with the outputs of all parts.
func TestFusedAdapter(t *testing.T) {
	u := Build(adaptedConfig(t, "llama3-8b", "megatron-core")).Kinds[0]
	dims := map[model.Role][]int64{}
	for _, p := range u.Params {
		dims[p.Role] = p.Dims
	}
	require.Equal(t, []int64{16, 4096}, dims[model.RoleQKV.Down()])
	require.Equal(t, []int64{4096 + 2*1024, 16}, dims[model.RoleQKV.Up()])
	require.Equal(t, []int64{16, 4096}, dims[model.RoleGateUp.Down()])
	require.Equal(t, []int64{2 * 14336, 16}, dims[model.RoleGateUp.Up()])
	require.NotContains(t, dims, model.RoleQ.Down())
}

// TestAdapterRanks: tensor ranks put together A's outputs before B, of a projection that
// sums over them its outputs after it (NeMo, ParallelLinearAdapter): two all-gathers of rank
// 16 for the two column-parallel ones, an all-reduce of it and an all-gather of the hidden
// size for each row-parallel one.
func TestAdapterRanks(t *testing.T) {
	c := adaptedConfig(t, "llama3-8b", "megatron-core")
	c.Shard.TP, c.Shard.SequenceParallel = 2, true
	own := config(t, "llama3-8b", "megatron-core")
	own.Shard = c.Shard
	count := func(m *Model) map[units.Bytes]int {
		n := map[units.Bytes]int{}
		for _, o := range m.Kinds[0].Forward.Ops {
			if o.Comm != nil {
				n[o.Comm.Bytes]++
			}
		}
		return n
	}
	small, large := units.Bytes(2*1024*16*2), units.Bytes(2*1024*4096*2)
	with, without := count(Build(c)), count(Build(own))
	require.Equal(t, map[units.Bytes]int{large: 4}, without)
	require.Equal(t, map[units.Bytes]int{small: 4, large: 6}, with)
	adds := map[float64]int{}
	for _, o := range Build(c).Kinds[0].Forward.Ops {
		if o.Prim == "add" && (o.Module == "attention" || o.Module == "mlp") {
			adds[o.Elements]++
		}
	}
	const rows = 2 * 1024 // of which the output of o and down is a half
	require.Equal(t, map[float64]int{rows * (4096 + 2*1024) / 2: 1, rows * 2 * 14336 / 2: 1, rows / 2 * 4096: 2}, adds, "adapters' outputs are added where the projections' are")
	for _, p := range Build(c).Kinds[0].Params {
		if p.Role == model.RoleQKV.Down() {
			require.Equal(t, []int64{8, 4096}, p.Dims)
		}
	}
}

// TestFrozenQuantized: GEMMs in 8 bits read one copy of what a frozen weight multiplies, and
// on Hopper the weight itself is turned for its second product, as only one copy is kept.
func TestFrozenQuantized(t *testing.T) {
	c := adaptedConfig(t, "llama3-8b", "megatron-core", "o")
	c.Precision = c.Recipe.Precision["fp8"]
	u := Build(c).Kinds[0]
	count := func(prim string) (n int) {
		for _, o := range slices.Concat(u.Forward.Ops, u.Backward.Ops) {
			if o.Prim == prim {
				n++
			}
		}
		return
	}
	require.Equal(t, 4, count("transpose"), "qkv, o, gate_up, down")
	for _, o := range u.Forward.Ops {
		if o.Prim == "quantize" {
			require.InEpsilon(t, (2*2+1)*o.Elements, float64(o.Bytes), 1e-9, "read twice, written once")
		}
	}
	c.AnyLayout = true
	u = Build(c).Kinds[0]
	require.Zero(t, count("transpose"), "GEMMs that read it along both axes")
}

// TestAdapterGathers: what adapters read, too, tensor ranks gather in 16 bits, what 8-bit
// products alone read in 8.
func TestAdapterGathers(t *testing.T) {
	const rows, width = 2 * 1024, 4096
	for _, x := range []struct {
		target         string
		attention, mlp units.Bytes
	}{{"qkv", 2, 1}, {"mlp", 1, 2}, {"o", 1, 1}} {
		c := adaptedConfig(t, "llama3-8b", "megatron-core", x.target)
		c.Precision = c.Recipe.Precision["fp8"]
		c.Shard.TP, c.Shard.SequenceParallel = 2, true
		gathered := map[string]units.Bytes{} // by module: the first
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Comm != nil && o.Comm.Kind == "all-gather" && gathered[o.Module] == 0 {
				gathered[o.Module] = o.Comm.Bytes
			}
		}
		require.Equal(t, map[string]units.Bytes{"attention": rows * width * x.attention, "mlp": rows * width * x.mlp}, gathered, x.target)
	}
}

// TestUnpacked: a weight of 4 bits is unpacked for each product, three times where the layer
// is recomputed, into a copy that lives no longer.
func TestUnpacked(t *testing.T) {
	c := adaptedConfig(t, "llama3.2-1b", "hf-eager")
	c.Precision, c.Recompute = c.Recipe.Precision["nf4-frozen"], FullRecompute
	u := Build(c).Kinds[0]
	n, bytes := 0, units.Bytes(0)
	for _, o := range slices.Concat(u.Forward.Ops, u.Backward.Ops) {
		if o.Class == tape.Unpack {
			n, bytes = n+1, bytes+o.Bytes
		}
	}
	const matrices = 2048*(2*2048+2*512) + 3*2048*8192
	require.Equal(t, 3*7, n)
	require.InEpsilon(t, 3*matrices*(2+0.5+1./64+1./4096), float64(bytes), 1e-9)
	live, most := map[int32]units.Bytes{}, units.Bytes(0)
	for _, e := range slices.Concat(u.Forward.Events, u.Backward.Events) {
		if e.Kind == tape.WeightCopy {
			live[e.Store] += e.Bytes
			sum := units.Bytes(0)
			for _, b := range live {
				sum += b
			}
			most = max(most, sum)
		}
	}
	require.Less(t, float64(most), 1.2*2*2048*8192, "one at a time, beside 16-bit copies of adapters")
}

// TestPackedInputs: until bitsandbytes 0.43.2 a product of a weight in 4 bits kept what it read (pull 1270): of a layer
// with adapters on queries and values, without dropout, the normed input of the MLP and what its last product reads.
// What adapters read is kept anyway, and so is what attention makes.
func TestPackedInputs(t *testing.T) {
	c := adaptedConfig(t, "llama3.2-1b", "hf-eager", "q", "v")
	c.Precision = c.Recipe.Precision["nf4-pure"]
	kept := func(release string) units.Bytes {
		var at units.Release
		require.NoError(t, at.UnmarshalText([]byte(release)))
		c.Recipe = c.Recipe.At(at)
		u := Build(c).Kinds[0]
		return left(&u.Forward)
	}
	after := kept("24.08")
	require.Equal(t, units.Bytes(2*2048*(2048+8192)), kept("24.07")-after)
}

// TestNarrowExchange: context ranks exchange what attention reads in 8 bits as it reads it,
// and its gradients, too, where scales are known before (Transformer Engine,
// context_parallel.py).
func TestNarrowExchange(t *testing.T) {
	bytes := func(precision string, heads bool, s func(u *Unit) *tape.Section) (n units.Bytes) {
		c := config(t, "llama3-8b", "megatron-core")
		c.Precision = c.Recipe.Precision["fp8"]
		switch precision {
		case "bf16":
			c.Precision.Attention = recipe.DType{}
		case "delayed":
			c.Precision.QuantizeRead = 1
			fallthrough
		default:
			c.Precision.Attention = c.Precision.GEMM
		}
		c.Shard.CP, c.Shard.CPHeads = 2, heads
		u := Build(c).Kinds[0]
		for _, o := range s(&u).Ops {
			if o.Comm != nil && o.Comm.Group == "cp" {
				n += o.Comm.Bytes
			}
		}
		return
	}
	forward := func(u *Unit) *tape.Section { return &u.Forward }
	backward := func(u *Unit) *tape.Section { return &u.Backward }
	const q, kv = 2 * 512 * 4096 * 2, 2 * 512 * 1024 * 2 // of a rank in 16 bits
	for _, c := range []struct {
		precision         string
		heads             bool
		forward, backward units.Bytes
	}{
		{"bf16", true, 2*q + 2*kv, 2*q + 2*kv},
		{"current", true, q + (q+2*kv)/2, q/2 + q + 2*kv},
		{"delayed", true, q + kv, q + kv},
		{"bf16", false, 2 * 2 * kv, 2 * 2 * (2 * kv)},
		{"current", false, 2 * kv, 2 * (kv + 2*kv)},
		{"delayed", false, 2 * kv, 2 * (kv + kv)},
	} {
		require.Equal(t, c.forward, bytes(c.precision, c.heads, forward), "%s %v", c.precision, c.heads)
		require.Equal(t, c.backward, bytes(c.precision, c.heads, backward), "%s %v", c.precision, c.heads)
	}
}

// TestDocuments: attention of packed documents computes the pairs within each.
func TestDocuments(t *testing.T) {
	c := config(t, "llama3-8b", "megatron-core")
	pairs := func() (n float64) {
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Attn != nil {
				n += float64(o.Attn.Batch) * o.Attn.Pairs()
			}
		}
		return
	}
	require.Equal(t, 2*1024*1025/2., pairs())
	c.Document = 256
	require.Equal(t, 8*256*257/2., pairs())
}
