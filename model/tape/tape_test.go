package tape

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// Everything below is of 4 rows of 256 elements, unless it says otherwise.
const (
	half  units.Bytes = 4 * 256 * 2   // an activation in 16 bits
	full  units.Bytes = 4 * 256 * 4   // the same in fp32
	mask  units.Bytes = 4 * 256       // one byte of each element
	block units.Bytes = 512           // the least that is allocated: a row of 256 in 16 bits, four values in fp32
	small units.Bytes = 256 * 256 * 2 // a weight in 16 bits
)

// run is one unit under test: y = program(x), then its gradient.
type run struct {
	t        *testing.T
	tape     *Tape
	x        *Tensor
	xBytes   units.Bytes
	left     units.Bytes // beside the output, once the forward pass has let go of its input
	forward  Section
	backward Section
	live     map[int32]units.Bytes // by storage
}

// running runs a program forward. Its input comes from the unit before.
func running(t *testing.T, tape *Tape, dtype DType, program func(t *Tape, x *Tensor) *Tensor, dims ...int64) (*run, *Tensor) {
	x := tape.Input(dtype, true, dims...)
	r := &run{t: t, tape: tape, x: x, xBytes: tape.Bytes(x), live: map[int32]units.Bytes{x.Store(): tape.Bytes(x)}}
	y := program(tape, x)
	tape.Release(x)
	tape.EndAutocast()
	r.forward = tape.Cut(Backward)
	r.apply(r.forward.Events)
	r.left = r.held() - tape.Bytes(y)
	return r, y
}

// back runs the gradient, after which nothing lives but the gradients of input and
// parameters.
func (r *run) back(y *Tensor) {
	g := r.tape.GradOf(y, y.DType())
	r.live[g.Store()] = r.tape.Bytes(g)
	gx := r.tape.Backward(y, g)
	r.tape.Release(y)
	r.backward = r.tape.Cut(Forward)
	r.apply(r.forward.Deferred)
	r.apply(r.backward.Events)
	want := r.tape.Bytes(gx)
	require.Equal(r.t, r.xBytes, want, "the input's gradient is like the input")
	for _, p := range r.backward.Grads {
		require.Equal(r.t, p.Bytes, r.live[p.Store], "the gradient of parameter %d", p.Param)
		want += p.Bytes
	}
	require.Equal(r.t, want, r.held())
}

// apply replays events: a storage is made once and freed once, with what it has.
func (r *run) apply(events []Event) {
	for _, e := range events {
		was, known := r.live[e.Store]
		if e.Bytes > 0 {
			require.False(r.t, known, "storage %d is allocated again", e.Store)
			r.live[e.Store] = e.Bytes
			continue
		}
		require.Equal(r.t, was, -e.Bytes, "storage %d is freed", e.Store)
		delete(r.live, e.Store)
	}
}

func (r *run) held() units.Bytes {
	sum := units.Bytes(0)
	for _, b := range r.live {
		sum += b
	}
	return sum
}

// prims are the names of the ops of one phase.
func prims(s *Section, p Phase) []string {
	var out []string
	for i := range s.Ops {
		if o := &s.Ops[i]; o.Phase == p && o.Class != NoKernel {
			out = append(out, o.Prim)
		}
	}
	return out
}

func weight(t *Tape, grad bool) *Tensor { return t.Param(0, BF16, grad, 256, 256) }

// TestSaved: what a unit keeps for its gradient, beside its output. Where no other source
// is named, it is derivatives.yaml of PyTorch (tools/autograd): the tensors that the
// formula of the gradient names.
func TestSaved(t *testing.T) {
	for _, c := range []struct {
		name    string
		want    units.Bytes
		program func(t *Tape, x *Tensor) *Tensor
	}{
		{"add: grad alone", 0, func(t *Tape, x *Tensor) *Tensor { return t.Add(x, x) }},
		{"neg: grad.neg()", 0, func(t *Tape, x *Tensor) *Tensor { return t.Unary("neg", x) }},
		{"_to_copy: options alone", 0, func(t *Tape, x *Tensor) *Tensor { return t.To(x, F32) }},
		{"silu: self", half, func(t *Tape, x *Tensor) *Tensor { return t.Unary("silu", x) }},
		{"gelu: self", half, func(t *Tape, x *Tensor) *Tensor { return t.Unary("gelu", x) }},
		{"relu: result", 0, func(t *Tape, x *Tensor) *Tensor { return t.Unary("relu", x) }},
		{"tanh: result", 0, func(t *Tape, x *Tensor) *Tensor { return t.Unary("tanh", x) }},
		{"sigmoid: result", 0, func(t *Tape, x *Tensor) *Tensor { return t.Unary("sigmoid", x) }},
		{"_softmax: result", 0, func(t *Tape, x *Tensor) *Tensor { return t.Softmax("softmax", x) }},
		{"mul.Tensor: self and other", half, func(t *Tape, x *Tensor) *Tensor { return t.Mul(x, x) }},
		{"mul.Tensor, of a constant: other alone", 0, func(t *Tape, x *Tensor) *Tensor { return t.Mul(x, t.Outside(BF16, 4, 256)) }},
		{"mul.Tensor, by a constant: the same", 0, func(t *Tape, x *Tensor) *Tensor { return t.Mul(t.Outside(BF16, 4, 256), x) }},
		{"native_dropout: a mask of bytes", mask, func(t *Tape, x *Tensor) *Tensor { return t.Dropout(x, 0.1) }},
		{"native_layer_norm: input, mean and rstd in fp32", half + 2*block, func(t *Tape, x *Tensor) *Tensor {
			return t.LayerNorm(x, t.Param(0, BF16, true, 256), t.Param(1, BF16, true, 256))
		}},
		{"mm: self, for the weight's gradient", half, func(t *Tape, x *Tensor) *Tensor { return t.Linear(x, weight(t, true), nil, false) }},
		{"mm, of a frozen weight: mat2 alone", 0, func(t *Tape, x *Tensor) *Tensor { return t.Linear(x, weight(t, false), nil, false) }},
		{"two users save one tensor once", half, func(t *Tape, x *Tensor) *Tensor {
			a, b := t.Unary("silu", x), t.Linear(x, weight(t, true), nil, false)
			y := t.Add(a, b)
			t.Release(a, b)
			return y
		}},
		{"a chain: the input and what the next one reads", 2 * half, func(t *Tape, x *Tensor) *Tensor {
			a := t.Unary("silu", x)
			y := t.Linear(a, weight(t, true), nil, false)
			t.Release(a)
			return y
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, y := running(t, New(), BF16, c.program, 4, 256)
			require.Equal(t, c.want, r.left)
			r.back(y)
		})
	}
}

// TestSavedByAttention: query, key and value, the output and the logarithm of the sum of
// each row in fp32 (derivatives.yaml, _scaled_dot_product_flash_attention).
func TestSavedByAttention(t *testing.T) {
	r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor { return t.Attention(x, x, x, AttentionOptions{Causal: true}) }, 1, 4, 64, 64)
	require.EqualValues(t, 4*64*64*2+4*64*4, r.left)
	r.back(y)
}

// TestAutocast: matrix products cast their operands down and keep the casts, norms cast
// theirs up; a weight is cast once until the context ends (aten/src/ATen/autocast_mode.h,
// the lists lower_precision_fp and fp32; autocast_mode.cpp, cached_cast).
func TestAutocast(t *testing.T) {
	autocast := func() *Tape {
		t := New()
		t.Autocast = BF16
		return t
	}
	w := func(t *Tape) *Tensor { return t.Param(0, F32, true, 256, 256) }
	for _, c := range []struct {
		name  string
		dtype DType
		want  units.Bytes
		casts int // kernels, forward
		run   func(t *Tape, x *Tensor) *Tensor
	}{
		{"linear keeps both casts, not the input", F32, half + small, 2, func(t *Tape, x *Tensor) *Tensor { return t.Linear(x, w(t), nil, false) }},
		{"linear of 16 bits keeps its input", BF16, half + small, 1, func(t *Tape, x *Tensor) *Tensor { return t.Linear(x, w(t), nil, false) }},
		{"a weight used twice is cast once", BF16, 2*half + small, 1, func(t *Tape, x *Tensor) *Tensor {
			a := t.Linear(x, w(t), nil, false)
			y := t.Linear(a, w(t), nil, false)
			t.Release(a)
			return y
		}},
		{"layer_norm runs in fp32", BF16, full + 2*block, 1, func(t *Tape, x *Tensor) *Tensor { return t.LayerNorm(x, t.Param(0, F32, true, 256), nil) }},
		{"silu runs in what it is given", BF16, half, 0, func(t *Tape, x *Tensor) *Tensor { return t.Unary("silu", x) }},
		{"exp runs in fp32 and keeps its result, which is what it returns", BF16, 0, 1, func(t *Tape, x *Tensor) *Tensor { return t.Unary("exp", x) }},
		{"log runs in fp32 and keeps the cast", BF16, full, 1, func(t *Tape, x *Tensor) *Tensor { return t.Unary("log", x) }},
		{"sum runs in fp32 and keeps nothing", BF16, 0, 1, func(t *Tape, x *Tensor) *Tensor { return t.Sum(x) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, y := running(t, autocast(), c.dtype, c.run, 4, 256)
			require.Equal(t, c.want, r.left)
			casts := 0
			for _, p := range prims(&r.forward, Forward) {
				if p == "to" {
					casts++
				}
			}
			require.Equal(t, c.casts, casts)
			require.Empty(t, r.forward.Deferred)
			r.back(y)
		})
	}

	// Nothing saves the cast of a weight when the input takes no gradient: only the cache
	// holds it, to the end of the forward pass.
	tape := autocast()
	x := tape.Outside(BF16, 4, 256)
	tape.Linear(x, w(tape), nil, false)
	tape.EndAutocast()
	s := tape.Cut(Backward)
	require.Len(t, s.Deferred, 1)
	require.Equal(t, -small, s.Deferred[0].Bytes)
	require.Equal(t, WeightCopy, s.Deferred[0].Kind)
}

// TestPromotion: 16 bits and fp32 make fp32, whose gradient is cast back for the operand of
// 16 bits (c10/core/ScalarType.cpp, promoteTypes; engine.cpp, validate_outputs).
func TestPromotion(t *testing.T) {
	r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor { return t.Add(x, t.Outside(F32, 4, 256)) }, 4, 256)
	require.Equal(t, F32, y.DType())
	require.Equal(t, full, r.tape.Bytes(y))
	r.back(y)
	require.Equal(t, []string{"to"}, prims(&r.backward, Backward))
}

// TestCheckpoint: a checkpoint keeps its input alone, and runs what it holds again before
// its gradient: all of it, or up to the last tensor that is saved (torch/utils/checkpoint.py,
// _StopRecomputationError: the second run stops when all that the first would have saved
// is there).
func TestCheckpoint(t *testing.T) {
	ending := func(last string) func(t *Tape, x *Tensor) *Tensor {
		return func(t *Tape, x *Tensor) *Tensor {
			a := t.Unary("silu", x)
			b := t.Linear(a, weight(t, true), nil, false)
			y := t.Unary(last, b)
			t.Release(a, b)
			return y
		}
	}
	checkpointed := func(early bool, f func(t *Tape, x *Tensor) *Tensor) func(t *Tape, x *Tensor) *Tensor {
		return func(t *Tape, x *Tensor) *Tensor {
			return t.Checkpoint(early, func(ins []*Tensor) *Tensor { return f(t, ins[0]) }, x)
		}
	}
	for _, c := range []struct {
		name  string
		early bool
		last  string
		again []string
	}{
		{"all of it", false, "neg", []string{"silu", "linear", "neg"}},
		{"linear saves what silu made, neg nothing", true, "neg", []string{"silu"}},
		{"silu saves what linear made", true, "silu", []string{"silu", "linear"}},
		{"relu saves its own result", true, "relu", []string{"silu", "linear", "relu"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain, py := running(t, New(), BF16, ending(c.last), 4, 256)
			plain.back(py)
			r, y := running(t, New(), BF16, checkpointed(c.early, ending(c.last)), 4, 256)
			require.Equal(t, half, r.left)
			require.Equal(t, prims(&plain.forward, Forward), prims(&r.forward, Forward))
			r.back(y)
			require.Equal(t, c.again, prims(&r.backward, Recompute))
			require.Equal(t, prims(&plain.backward, Backward), prims(&r.backward, Backward), "the gradient is the same")
		})
	}
}

// TestCheckpointSome: outputs of attention are kept and not computed again, all else is
// (torchtitan, distributed/activation_checkpoint.py, _op_sac_save_list).
func TestCheckpointSome(t *testing.T) {
	r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor {
		return t.CheckpointSome(Keeps{}, func(ins []*Tensor) *Tensor {
			q := t.Unary("silu", ins[0])
			a := t.Attention(q, q, q, AttentionOptions{})
			y := t.Unary("silu", a)
			t.Release(q, a)
			return y
		}, x)
	}, 1, 4, 64, 64)
	require.EqualValues(t, 2*(4*64*64*2)+4*64*4, r.left, "the input, the attention's output and its row sums")
	r.back(y)
	require.Equal(t, []string{"silu", "silu"}, prims(&r.backward, Recompute))
}

// TestKeeps: of products a checkpoint keeps every other one without a bias, all with one or none, and
// none of what is passed (torchtitan, distributed/activation_checkpoint.py, wrapped_policy).
func TestKeeps(t *testing.T) {
	for _, c := range []struct {
		keeps Keeps
		again int
	}{{Keeps{}, 5}, {Keeps{Products: true}, 3}, {Keeps{Products: true, Biased: true}, 2}} {
		r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor {
			return t.CheckpointSome(c.keeps, func(ins []*Tensor) *Tensor {
				y := t.Hold(ins[0])
				next := func(bias bool) *Tensor {
					w := t.Param(0, BF16, true, 256, 256)
					var b *Tensor
					if bias {
						b = t.Param(1, BF16, true, 256)
					}
					z := t.Linear(y, w, b, false)
					t.Release(y, w, b)
					y = z
					return z
				}
				next(false) // kept
				t.Passed(func() *Tensor { return next(false) })
				next(true)
				next(false)
				next(false) // kept
				return y
			}, x)
		}, 4, 256)
		r.back(y)
		n := 0
		for _, p := range prims(&r.backward, Recompute) {
			if p == "linear" {
				n++
			}
		}
		require.Equal(t, c.again, n, "%+v", c.keeps)
	}
}

// TestDiscard: what is discarded lives until its readers have run, is neither kept by what
// saves it nor freed twice, and comes back for their gradients (Megatron-Core,
// tensor_parallel/random.py, CheckpointWithoutOutput.discard_output_and_register_recompute).
func TestDiscard(t *testing.T) {
	r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor {
		outs, after := t.Discard(func(ins []*Tensor) []*Tensor { return []*Tensor{t.Unary("silu", ins[0])} }, x)
		z := t.Linear(outs[0], weight(t, true), nil, false)
		t.Release(outs...)
		return after(z)
	}, 4, 256)
	require.Equal(t, half, r.left, "the input, not the linear layer's")
	g := r.tape.GradOf(y, BF16)
	r.tape.Backward(y, g)
	s := r.tape.Cut(Forward)
	require.Equal(t, []string{"silu"}, prims(&s, Recompute))
	require.Equal(t, []string{"linear_wgrad", "linear_dgrad", "silu_backward"}, prims(&s, Backward))
}

// TestSums: the second gradient of a tensor is added to the first: in place where nothing
// else holds that, into a new tensor where something does
// (torch/csrc/autograd/input_buffer.cpp, accumulate).
func TestSums(t *testing.T) {
	for _, c := range []struct {
		name    string
		want    []string
		program func(t *Tape, x *Tensor) *Tensor
	}{
		{"of its own, in place", []string{"tanh_backward", "silu_backward", "add_"}, func(t *Tape, x *Tensor) *Tensor {
			a, b := t.Unary("silu", x), t.Unary("tanh", x)
			y := t.Add(a, b)
			t.Release(a, b)
			return y
		}},
		{"handed on by both sides of a sum, not", []string{"add"}, func(t *Tape, x *Tensor) *Tensor { return t.Add(x, x) }},
		{"a residual hands on what its branch has done with, in place", []string{"silu_backward", "add_"}, func(t *Tape, x *Tensor) *Tensor {
			a := t.Unary("silu", x)
			y := t.Add(x, a)
			t.Release(a)
			return y
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, y := running(t, New(), BF16, c.program, 4, 256)
			r.back(y)
			require.Equal(t, c.want, prims(&r.backward, Backward))
		})
	}
}

// TestParameterGradients: a broadcast parameter's gradient is summed to its shape
// (engine.cpp, validate_outputs: at::sum_to), one that a GEMM adds to Megatron's main
// gradients needs no kernel more, and a hook adds any other (Megatron-Core,
// tensor_parallel/layers.py, gradient_accumulation_fusion;
// distributed_data_parallel.py, _make_backward_post_hook: main_grad.add_(grad)).
func TestParameterGradients(t *testing.T) {
	bias := func(t *Tape, x *Tensor) *Tensor { return t.Add(x, t.Param(0, BF16, true, 256)) }
	apart := func(t *Tape, x *Tensor) *Tensor { return t.AddBias(x, t.Param(0, BF16, true, 256)) }
	linear := func(t *Tape, x *Tensor) *Tensor { return t.Linear(x, weight(t, true), nil, false) }
	for _, c := range []struct {
		name    string
		main    bool
		hook    bool
		program func(t *Tape, x *Tensor) *Tensor
		bytes   units.Bytes // of the gradient
		want    []string
	}{
		{"bias", false, false, bias, block, []string{"sum"}},
		{"weight", false, false, linear, small, []string{"linear_wgrad", "linear_dgrad"}},
		{"bias, main gradients", true, false, bias, block, []string{"sum", "accumulate"}},
		{"weight, main gradients", true, false, linear, small, []string{"linear_wgrad", "linear_dgrad"}},
		{"weight, main gradients by a hook", true, true, linear, small, []string{"linear_wgrad", "linear_dgrad", "accumulate"}},
		{"bias apart", false, false, apart, block, []string{"sum"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tape := New()
			tape.HasMain, tape.MainHook, tape.MainGrad = c.main, c.hook, F32
			r, y := running(t, tape, BF16, c.program, 4, 256)
			r.back(y)
			require.Equal(t, c.want, prims(&r.backward, Backward))
			require.Len(t, r.backward.Grads, 1)
			require.Equal(t, c.bytes, r.backward.Grads[0].Bytes)
			if last := r.backward.Ops[len(r.backward.Ops)-1]; last.Prim == "accumulate" { // reads and writes fp32, reads 16 bits
				require.Equal(t, c.bytes/2*(4+4+2), last.Bytes)
			}
		})
	}
}

// TestMainCast: a hook that adds a copy in fp32 reads and writes it once more than one that
// adds the 16 bits: 18 bytes of each value, not 10 (traces of DeepSpeed's BF16_Optimizer).
func TestMainCast(t *testing.T) {
	for cast, want := range map[bool]units.Bytes{false: 10, true: 18} {
		tape := New()
		tape.HasMain, tape.MainHook, tape.MainCast, tape.MainGrad = true, true, cast, F32
		r, y := running(t, tape, BF16, func(t *Tape, x *Tensor) *Tensor { return t.AddBias(x, t.Param(0, BF16, true, 256)) }, 4, 256)
		r.back(y)
		var moved units.Bytes
		for _, o := range r.backward.Ops {
			if o.Prim == "accumulate" || o.Prim == "to" {
				moved += o.Bytes
			}
		}
		require.Equal(t, want*256, moved)
	}
}

// TestLent: what another tape keeps takes no memory here; the gradient of it is added to that
// of others, which is not this tape's either, and is let go; none where none is wanted.
func TestLent(t *testing.T) {
	for _, grad := range []bool{true, false} {
		r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor {
			lent := t.Lent(BF16, grad, 4, 256)
			y := t.Mul(x, lent)
			t.Release(lent)
			return y
		}, 4, 256)
		want := units.Bytes(0) // what the gradients read: the lent tensor is not ours, x is
		if grad {
			want = half
		}
		require.Equal(t, want, r.left)
		require.Len(t, r.forward.Ops, 1)
		r.back(y)
		adds := 0
		for _, o := range r.backward.Ops {
			if o.Prim == "add_" {
				adds++
				require.Equal(t, 4*256., o.Elements)
				require.Equal(t, 3*half, o.Bytes, "both are read, the sum is written")
			}
		}
		require.Equal(t, grad, adds == 1, "%d additions", adds)
	}
}

// TestSumScratch holds the memory of sums that several blocks share against memory snapshots of
// Llama and GPT-2 on an H100 (PyTorch 2.11).
func TestSumScratch(t *testing.T) {
	for in, want := range map[[2]int64]units.Bytes{
		{8192, 3072}: 138412032, {1024, 1536}: 12582912, {1024, 4608}: 37748736, {1024, 6144}: 50331648,
		{512, 4096}:     0, // few rows
		{8192, 1 << 20}: 0, // columns enough for every block
	} {
		require.Equal(t, want, sumScratch(in[0], in[1]), "%v", in)
	}
	for n := range int64(5000) { // any size
		require.GreaterOrEqual(t, sumScratch(1+7*n, 1+n), units.Bytes(0))
	}
}

// TestAttentionScratch: the backward kernels hold dQ in fp32 and a value of each row, and what they
// make of keys and values that heads share (a memory snapshot of an H100: 33,685,760 bytes of two
// sequences of 512 and 101,449,984 of eight of 1024 without sharing, in whole blocks and 256 bytes
// more; hopper/flash_api.cpp for FlashAttention 3).
func TestAttentionScratch(t *testing.T) {
	for _, c := range []struct {
		batch, heads, kv, tokens int64
		o                        AttentionOptions
		want                     units.Bytes
	}{
		{2, 32, 16, 512, AttentionOptions{}, 33685760 - 256},
		{8, 24, 24, 1024, AttentionOptions{}, 101449984 - 256},
		{2, 32, 8, 512, AttentionOptions{Accumulates: true}, 4*2*512*128*(32+2*8) + 4*2*32*512},
		{2, 32, 8, 512, AttentionOptions{Direct: true}, 4 * 2 * 32 * 512},
	} {
		tape := New()
		r, y := running(t, tape, BF16, func(t *Tape, x *Tensor) *Tensor {
			p := t.Split(x, c.heads*128, c.kv*128, c.kv*128)
			for i, n := range []int64{c.heads, c.kv, c.kv} {
				z := t.Reshape(p[i], c.batch, c.tokens, n, 128)
				t.Release(p[i])
				p[i] = t.Transpose(z, 1, 2)
				t.Release(z)
			}
			z := t.Attention(p[0], p[1], p[2], c.o)
			t.Release(p...)
			return z
		}, c.batch, c.tokens, (c.heads+2*c.kv)*128)
		r.back(y)
		i := slices.IndexFunc(r.backward.Events, func(e Event) bool { return e.Kind == Workspace && e.Bytes > 0 })
		require.GreaterOrEqual(t, i, 0)
		require.Equal(t, c.want, r.backward.Events[i].Bytes)
	}
}

// TestFittedFirst: the engine sums a gradient to the shape of its input before it lets go of what
// the node was given and had saved (autograd/engine.cpp, call_function).
func TestFittedFirst(t *testing.T) {
	r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor { return t.Mul(x, t.Param(0, BF16, true, 256)) }, 4, 256)
	r.back(y)
	sum := slices.IndexFunc(r.backward.Ops, func(o Op) bool { return o.Class == ColReduce })
	for _, e := range r.backward.Events {
		if e.Bytes < 0 {
			require.Greater(t, int(e.Op), sum)
		}
	}
}

// TestGroupedCalls: experts by calls of a library, one for each on some streams in turn, are so
// in every dtype (Transformer Engine, nvte_multi_tensor_gemm); a grouped kernel is there of
// bf16 alone, without which their numbers of rows are read first.
func TestGroupedCalls(t *testing.T) {
	for _, c := range []struct {
		dtype   DType
		tf32    bool
		calls   bool
		operand DType
		class   Class
		waits   int
	}{
		{BF16, false, false, BF16, GroupedGEMM, 0},
		{BF16, false, true, BF16, GroupedGEMM, 0},
		{F16, false, true, F16, GroupedGEMM, 0},
		{F32, false, true, F32, GroupedGEMM, 0},
		{F32, true, true, TF32, GroupedGEMM, 0},
		{F16, false, false, F16, GEMM, 1},
		{F32, true, false, TF32, GEMM, 1},
	} {
		p := New()
		p.ExpertCalls, p.TF32 = c.calls, c.tf32
		r, _ := running(t, p, c.dtype, func(t *Tape, x *Tensor) *Tensor {
			return t.GroupedLinear(x, t.Param(0, c.dtype, true, 4, 512, 256), false)
		}, 64, 256)
		waits, products := 0, 0
		for _, o := range r.forward.Ops {
			if o.Sync {
				waits++
			}
			if o.Class == GEMM || o.Class == GroupedGEMM {
				products++
				require.Equal(t, c.class, o.Class)
				require.Equal(t, c.operand, o.DType)
				require.Equal(t, c.calls, o.Calls)
			}
		}
		require.Equal(t, c.waits, waits, "%s, calls %v", c.dtype, c.calls)
		require.Equal(t, map[Class]int{GroupedGEMM: 1, GEMM: 4}[c.class], products)
	}
}

// TestEfficientAttention: around the gradient's kernel of memory-efficient attention rows of output times gradient are summed in fp32 alone,
// and the sums of the queries' gradient cleared where blocks of keys share them: of 32 sequences of 512 tokens and 12 heads of 64, not of 64
// of 128 (traces of an H200, PyTorch 2.11).
func TestEfficientAttention(t *testing.T) {
	for _, c := range []struct {
		dtype         DType
		batch, tokens int64
		want          string
	}{
		{F32, 32, 512, "memset attention_product attention_sum attention_zero attention_backward"},
		{BF16, 32, 512, "memset attention_zero attention_backward"},
		{F32, 64, 128, "memset attention_product attention_sum attention_backward"},
		{BF16, 64, 128, "memset attention_backward"},
		{BF16, 8, 128, "memset attention_zero attention_backward"},
	} {
		tape := New()
		r, y := running(t, tape, c.dtype, func(t *Tape, x *Tensor) *Tensor { return t.Attention(x, x, x, AttentionOptions{Efficient: true}) }, c.batch, 12, c.tokens, 64)
		r.back(y)
		var prims []string
		for _, o := range r.backward.Ops {
			if p := o.Prim; strings.HasPrefix(p, "attention") || p == "memset" {
				prims = append(prims, p)
			}
		}
		require.Equal(t, c.want, strings.Join(prims, " "), "%s, %d x %d", c.dtype, c.batch, c.tokens)
	}
}
