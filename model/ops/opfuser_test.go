package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// kernelBytes is what each kernel of that name moves, forward and backward.
func kernelBytes(u *Unit, prim string) (forward, backward []float64) {
	for i, s := range []*tape.Section{&u.Forward, &u.Backward} {
		for _, o := range s.Ops {
			if o.Prim != prim {
				continue
			}
			if n := float64(o.Bytes); i == 0 {
				forward = append(forward, n)
			} else {
				backward = append(backward, n)
			}
		}
	}
	return forward, backward
}

// TestOpFuser: B's product scales and adds to the projection, the projection's gradient adds to
// that of the adapter's input, dropout keeps bits (Megatron-Bridge, peft/lora_layers.py,
// TEFusedLoRALinear; Transformer Engine 2.8, pytorch/ops/fused), and what delayed scaling or blocks of
// MXFP8 scale is cast where it is made (csrc/extensions/activation.cpp, FULLY_FUSED).
func TestOpFuser(t *testing.T) {
	const rows, h, f = 2 * 1024., 4096., 14336.
	made := func(precision string, fuser bool, tp int64) *Unit {
		c := config(t, "llama3-8b", "megatron-core")
		s, err := c.Spec.Adapted(16, []string{"qkv", "o"}, 0.1)
		require.NoError(t, err)
		c.Spec, c.Precision, c.OpFuser, c.Shard.TP, c.AnyLayout = s, c.Recipe.Precision[precision], fuser, tp, true
		return &Build(c).Kinds[0]
	}
	count := func(u *Unit, prim string) int {
		forward, backward := kernelBytes(u, prim)
		return len(forward) + len(backward)
	}
	for _, c := range []struct {
		precision            string
		fuser                bool
		tp                   int64
		scales, sums, casts  int
		dropout, gateForward float64
	}{
		{"bf16", false, 1, 4, 2 + 4, 0, 5 * rows * h, 3 * rows * f * 2},
		{"bf16", true, 1, 0, 2, 0, (4 + 1./8) * rows * h, 3 * rows * f * 2}, // the sums with the residual's gradient are left
		{"fp8", false, 1, 4, 2 + 4, 8, 5 * rows * h, 3 * rows * f * 2},
		{"fp8", true, 1, 0, 2, 8, (4 + 1./8) * rows * h, 3 * rows * f * 2},     // a maximum is taken before
		{"fp8-delayed", true, 1, 0, 2, 4, (3 + 1./8) * rows * h, 5 * rows * f}, // norms, gate and its gradient cast
		{"nvfp4", true, 1, 0, 2, 8, (4 + 1./8) * rows * h, 3 * rows * f * 2},   // and so it is here
		{"fp8-delayed", true, 2, 4, 2 + 4, 6, 5 * rows * h, 5 * rows * f / 2},  // adapters of tensor ranks are not fused
	} {
		u := made(c.precision, c.fuser, c.tp)
		scales, adds := count(u, "mul_scalar"), count(u, "add")+count(u, "add_")
		dropout, _ := kernelBytes(u, "dropout")
		gate, _ := kernelBytes(u, "glu")
		require.Equal(t, c.scales, scales, "%+v", c)
		require.Equal(t, c.sums, adds, "%+v", c)
		require.Equal(t, c.casts, count(u, "quantize"), "%+v", c)
		require.InDelta(t, c.dropout, dropout[0], 1, "%+v", c)
		require.InDelta(t, c.gateForward, gate[0], 1, "%+v", c)
	}
	apart, _ := kernelBytes(made("bf16", false, 1), "linear")
	joined, back := kernelBytes(made("bf16", true, 1), "linear")
	const qkv = 6144.
	require.InDelta(t, 2*rows*qkv, joined[2]-apart[2], 1, "B's product reads what it adds to")
	_, sums := kernelBytes(made("bf16", true, 1), "linear_dgrad")
	_, plain := kernelBytes(made("bf16", false, 1), "linear_dgrad")
	require.Empty(t, back)
	require.InDelta(t, 2*rows*h, sums[len(sums)-1]-plain[len(plain)-1], 1, "and the projection's gradient what is there")
}

// TestJoinedRotary: one kernel reads the projection and writes queries, keys and values, and one
// their gradients, where parts are copied and joined else (Transformer Engine, common/fused_rope).
func TestJoinedRotary(t *testing.T) {
	c := config(t, "llama3-8b", "megatron-core")
	c.QKVRotary = true
	u := &Build(c).Kinds[0]
	forward, backward := kernelBytes(u, "qkv_rotary")
	const moved = 2 * 2. * 1024 * 2 * 6144
	require.Equal(t, []float64{moved}, forward)
	require.Empty(t, backward)
	_, backward = kernelBytes(u, "qkv_rotary_backward")
	require.Equal(t, []float64{moved}, backward)
	for _, prim := range []string{"rotary", "rotary_backward", "clone", "cat"} {
		forward, backward = kernelBytes(u, prim)
		require.Empty(t, append(forward, backward...), prim)
	}
	c.QKVRotary = false
	copies, joins := kernelBytes(&Build(c).Kinds[0], "clone")
	require.NotEmpty(t, append(copies, joins...))
}
