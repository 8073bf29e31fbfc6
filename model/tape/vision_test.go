package tape

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// op picks the only op of a name from a section.
func op(t *testing.T, s *Section, prim string) Op {
	var found []Op
	for _, o := range s.Ops {
		if o.Prim == prim {
			found = append(found, o)
		}
	}
	require.Len(t, found, 1, prim)
	return found[0]
}

// dims are the sizes of a tensor.
func dims(x *Tensor) []int64 { return append([]int64{}, x.dims[:x.nd]...) }

// waits counts what the host waits for.
func waits(s *Section) (n int) {
	for _, o := range s.Ops {
		if o.Sync {
			n++
		}
	}
	return
}

// TestPatches: pixels have no gradient, so there is none but of the weights: a convolution
// over all patches and a sum of their rows, where images are laid out plane by plane after a
// copy that brings the gradient to that order.
func TestPatches(t *testing.T) {
	const images, patches, pixels, width = 2, 64, 3 * 4 * 4, 128
	for _, c := range []struct {
		name              string
		bias, planes      bool
		trained           bool
		forward, backward []string
		grads             []units.Bytes
	}{
		{"of one sequence", true, false, true, []string{"patches", "bias"}, []string{"patches_wgrad", "sum"}, []units.Bytes{width * pixels * 2, block}},
		{"without bias", false, false, true, []string{"patches"}, []string{"patches_wgrad"}, []units.Bytes{width * pixels * 2}},
		{"of whole images", true, true, true, []string{"patches", "bias"}, []string{"to", "patches_wgrad", "sum"}, []units.Bytes{width * pixels * 2, block}},
		{"frozen", true, true, false, []string{"patches", "bias"}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			tape := New()
			r := &run{t: t, tape: tape, live: map[int32]units.Bytes{}}
			x := tape.Outside(BF16, images, patches, pixels)
			w := tape.Param(0, BF16, c.trained, width, 3, 4, 4)
			var b *Tensor
			if c.bias {
				b = tape.Param(1, BF16, c.trained, width)
			}
			y := tape.Patches(x, w, b, c.planes)
			require.Equal(t, []int64{images, patches, width}, dims(y))
			require.Equal(t, !c.planes, y.Flat())
			require.True(t, y.dense())
			require.Equal(t, c.trained, y.Grad())
			r.forward = tape.Cut(Backward)
			r.apply(r.forward.Events)
			require.Equal(t, tape.Bytes(y), r.held(), "weights and pixels are others'")
			require.Equal(t, c.forward, prims(&r.forward, Forward))
			o := op(t, &r.forward, "patches")
			require.Equal(t, Convolution, o.Class)
			require.Equal(t, units.FLOPs(2*images*patches*width*pixels), o.FLOPs)
			require.EqualValues(t, 2*(images*patches*pixels+width*pixels+images*patches*width), o.Bytes)
			if !c.trained {
				return
			}
			g := tape.GradOf(y, BF16)
			r.live[g.Store()] = tape.Bytes(g)
			require.Nil(t, tape.Backward(y, g), "of pixels")
			tape.Release(y)
			r.backward = tape.Cut(Forward)
			r.apply(r.backward.Events)
			require.Equal(t, c.backward, prims(&r.backward, Backward))
			require.Equal(t, o.FLOPs, op(t, &r.backward, "patches_wgrad").FLOPs)
			var grads []units.Bytes
			var kept units.Bytes
			for _, p := range r.backward.Grads {
				grads, kept = append(grads, p.Bytes), kept+p.Bytes
			}
			require.Equal(t, c.grads, grads)
			require.Equal(t, kept, r.held())
		})
	}
}

// TestLooking: kernels of what stands between an encoder of images and the layers it has in
// common with a language model, and what each keeps beside its output.
func TestLooking(t *testing.T) {
	const rows, width = 16, 192 // of one sequence
	const all = units.Bytes(rows * width * 2)
	for _, c := range []struct {
		name              string
		left              units.Bytes
		dims              []int64
		forward, backward []string
		program           func(t *Tape, x *Tensor) *Tensor
	}{
		// torch.cat in front of rows; the gradient of the rows is a view, that of the one a sum.
		{"prepend", 0, []int64{1, rows + 1, width}, []string{"neg", "cat"}, []string{"sum", "neg_backward"}, prepend(true)},
		{"prepend, frozen", 0, []int64{1, rows + 1, width}, []string{"neg", "cat"}, []string{"neg_backward"}, prepend(false)},
		{"merged: a view", 0, []int64{1, rows / 4, 4 * width}, nil, nil, func(t *Tape, x *Tensor) *Tensor { return t.Merged(x, 4) }},
		// split and cat around calls of attention: views one way, one copy the other.
		{"parted", 0, []int64{1, rows, width}, nil, []string{"cat"}, func(t *Tape, x *Tensor) *Tensor { return t.Parted(x) }},
		{"assembled", 0, []int64{1, rows, width}, []string{"cat"}, nil, func(t *Tape, x *Tensor) *Tensor { return t.Assembled(x) }},
		// permute and unbind are views; their gradient is stacked, then laid out as the product's.
		{"unbind", 0, []int64{1, rows, width / 3}, []string{"add", "add"}, []string{"cat", "clone"}, func(t *Tape, x *Tensor) *Tensor {
			parts := t.Unbind(x)
			sum := t.Add(parts[0], parts[1])
			y := t.Add(sum, parts[2])
			t.Release(append(parts, sum)...)
			return y
		}},
		// avg_pool2d reads its input by columns: a copy, which is kept (derivatives.yaml: self).
		{"pool", all, []int64{1, rows / 4, width}, []string{"clone", "avg_pool2d"}, []string{"avg_pool2d_backward"}, func(t *Tape, x *Tensor) *Tensor { return t.Pool(x, 4) }},
		// What goes along is kept, and its gradient made and added to that of the rest.
		{"carry", all, []int64{1, rows, width}, []string{"neg"}, []string{"neg_backward", "add_"}, func(t *Tape, x *Tensor) *Tensor {
			other := t.Unary("neg", x)
			y := t.Carry(x, other)
			t.Release(other)
			return y
		}},
		// masked_scatter: the running count of the mask is scratch, and nothing is kept.
		{"put by a mask", 0, []int64{1, rows, width}, []string{"neg", "copy", "clone", "scan", "scan", "masked_scatter_check", "masked_scatter"},
			[]string{"copy", "masked_fill", "clone", "nonzero", "nonzero", "item", "nonzero", "nonzero", "masked_select", "neg_backward", "fill_", "copy_", "add_"}, put(false)},
		{"put by lists", 0, []int64{1, rows, width}, []string{"neg", "copy", "clone", "nonzero", "nonzero", "nonzero", "nonzero", "item", "index_put_", "clone"},
			[]string{"clone", "copy", "nonzero", "nonzero", "nonzero", "nonzero", "item", "index_put_", "clone", "nonzero", "nonzero", "nonzero", "nonzero", "item", "index", "neg_backward", "fill_", "copy_", "add_"}, put(true)},
	} {
		t.Run(c.name, func(t *testing.T) {
			var made []int64
			r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor {
				y := c.program(t, x)
				made = dims(y)
				return y
			}, 1, rows, width)
			require.Equal(t, c.dims, made)
			require.Equal(t, c.left, r.left)
			r.back(y)
			require.Equal(t, c.forward, prims(&r.forward, Forward))
			require.Equal(t, c.backward, prims(&r.backward, Backward))
		})
	}
}

// prepend puts a row of its own in front of what is made of x.
func prepend(trained bool) func(t *Tape, x *Tensor) *Tensor {
	return func(t *Tape, x *Tensor) *Tensor {
		made := t.Unary("neg", x)
		y := t.Prepend(made, t.Param(0, BF16, trained, x.Dim(-1)))
		t.Release(made)
		return y
	}
}

// put puts four rows that are made of x among x.
func put(lists bool) func(t *Tape, x *Tensor) *Tensor {
	return func(t *Tape, x *Tensor) *Tensor {
		some := t.Slice(x, 1, 0, 4)
		images := t.Unary("neg", some)
		y := t.PutImages(x, images, lists)
		t.Release(some, images)
		return y
	}
}

// TestPutImages: a frozen encoder's tokens have no gradient to be picked, a frozen table's
// text none to be masked; the host waits for the number of places by lists in each pass, by a
// mask only where tokens' gradient is picked.
func TestPutImages(t *testing.T) {
	const rows, width, n = 64, 256, 16
	for _, c := range []struct {
		lists, text, images bool
		forward, backward   int // waits
		grad                []string
	}{
		{false, true, true, 0, 1, []string{"masked_fill", "masked_select"}},
		{false, true, false, 0, 0, []string{"masked_fill"}},
		{false, false, true, 0, 1, []string{"masked_select"}},
		{true, true, true, 1, 2, []string{"index_put_", "index"}},
		{true, true, false, 1, 1, []string{"index_put_"}},
		{true, false, true, 1, 1, []string{"index"}},
	} {
		tape := New()
		images := tape.Input(BF16, c.images, 1, n, width)
		x := tape.Add(tape.Outside(BF16, 1, rows, width), tape.Param(0, BF16, c.text, width))
		y := tape.PutImages(x, images, c.lists)
		forward := tape.Cut(Backward)
		require.Equal(t, c.forward, waits(&forward), c)
		g := tape.Backward(y, tape.GradOf(y, BF16))
		require.Equal(t, c.images, g != nil, c)
		if c.images {
			require.Equal(t, []int64{1, n, width}, dims(g))
		}
		backward := tape.Cut(Forward)
		require.Equal(t, c.backward, waits(&backward), c)
		var grad []string
		for _, p := range prims(&backward, Backward) {
			switch p {
			case "masked_fill", "masked_select", "index_put_", "index":
				grad = append(grad, p)
			}
		}
		require.Equal(t, c.grad, grad, c)
	}
}

// TestPutImagesBytes: the mask is as wide as what it is for, a byte each, and its running
// count eight; lists are of what images have, and 16 bytes a row.
func TestPutImagesBytes(t *testing.T) {
	const rows, width, n = 64, 256, 16
	const all, some = rows * width, n * width
	for lists, want := range map[bool]map[string]units.Bytes{
		false: {"scan": 9 * all, "masked_scatter": 9*all + 2*2*all + 2*some},
		true:  {"index_put_": 2*2*some + 16*n},
	} {
		tape := New()
		y := tape.PutImages(tape.Outside(BF16, 1, rows, width), tape.Outside(BF16, 1, n, width), lists)
		s := tape.Cut(Backward)
		require.EqualValues(t, 2*all, tape.Bytes(y))
		for prim, bytes := range want {
			var most units.Bytes // beside setup
			for _, o := range s.Ops {
				if o.Prim == prim {
					most = max(most, o.Bytes)
				}
			}
			require.Equal(t, bytes, most, prim)
		}
		require.False(t, y.Grad())
	}
}

// TestAddAt: rows are picked, summed and put back into a copy, and nothing is kept; back, what
// was put has its gradient picked, and the rows that were picked scattered into zeros, for
// each of which the host waits (transformers, _deepstack_process).
func TestAddAt(t *testing.T) {
	const rows, width, n = 64, 256, 16
	r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor { return t.AddAt(x, n) }, 1, rows, width)
	require.Zero(t, r.left)
	require.Equal(t, 2, waits(&r.forward))
	add := op(t, &r.forward, "add")
	require.Equal(t, []float64{n * width, 3 * 2 * n * width}, []float64{add.Elements, float64(add.Bytes)}, "of images' rows alone")
	r.back(y)
	require.Equal(t, 3, waits(&r.backward))
	back := op(t, &r.backward, "add_")
	require.Equal(t, float64(rows*width), back.Elements, "of all rows")
	scattered := 0
	for _, o := range r.backward.Ops {
		if o.Class == ScatterAdd {
			scattered++
			require.Equal(t, float64(n*width), o.Elements)
		}
	}
	require.Equal(t, 1, scattered)
}

// TestDetached: no gradient comes back through it, and its storage is the one it views.
func TestDetached(t *testing.T) {
	r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor {
		d := t.Detached(x)
		idle := t.Linear(d, t.Param(0, BF16, false, 256, 256), nil, false)
		if idle.Grad() || d.Grad() || d.Store() != x.Store() {
			panic("a gradient is asked for")
		}
		t.Release(idle, d)
		return t.Unary("neg", x)
	}, 4, 256)
	require.Zero(t, r.left, "nothing is kept for it")
	r.back(y)
	require.Equal(t, []string{"neg_backward"}, prims(&r.backward, Backward))
}

// TestPlanes: what lies width by width is copied for a norm, in either pass, and turned by a
// sum with rows; what a norm puts out lies row by row.
func TestPlanes(t *testing.T) {
	for planes, want := range map[bool][2][]string{
		false: {{"layer_norm"}, {"layer_norm_backward", "layer_norm_weight_backward"}},
		true:  {{"clone", "layer_norm"}, {"clone", "layer_norm_backward", "layer_norm_weight_backward"}},
	} {
		r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor {
			if planes {
				t.Planes(x)
			}
			y := t.LayerNorm(x, t.Param(0, BF16, true, 256), t.Param(1, BF16, true, 256))
			if x.Flat() == planes || !y.Flat() {
				panic("layout")
			}
			return y
		}, 2, 4, 256)
		require.Equal(t, 2*half+2*block, r.left, "the input as it was, mean and rstd")
		r.back(y)
		require.Equal(t, want, [2][]string{prims(&r.forward, Forward), prims(&r.backward, Backward)})
	}
}

// TestPooled: a mean of k rows reads all and writes a k-th, width by width.
func TestPooled(t *testing.T) {
	tape := New()
	y := tape.Pool(tape.Outside(BF16, 2, 64, 32), 16)
	require.Equal(t, []int64{2, 4, 32}, dims(y))
	require.False(t, y.Flat())
	s := tape.Cut(Backward)
	o := op(t, &s, "avg_pool2d")
	require.EqualValues(t, 2*(2*64*32+2*4*32), o.Bytes)
	require.EqualValues(t, 2*64*32, o.Elements)
}

// TestBoolMask: a byte for each pair of positions, read and written.
func TestBoolMask(t *testing.T) {
	tape := New()
	m := tape.BoolMask(3, 128)
	require.Equal(t, Bool, m.DType())
	require.EqualValues(t, 3*128*128, tape.Bytes(m))
	s := tape.Cut(Backward)
	require.EqualValues(t, 2*3*128*128, op(t, &s, "mask").Bytes)
}

// TestCalls: parts of a sequence that are called one by one are as many kernels, each of a
// part's positions, that share elements and bytes; together they do the FLOPs that one kernel
// over parts that are kept apart does.
func TestCalls(t *testing.T) {
	attend := func(o AttentionOptions) (s [2]Section) {
		tape := New()
		x := tape.Input(BF16, true, 1, 4, 256, 64)
		y := tape.Attention(x, x, x, o)
		s[0] = tape.Cut(Backward)
		tape.Backward(y, tape.GradOf(y, BF16))
		s[1] = tape.Cut(Forward)
		return
	}
	calls, apart, whole := attend(AttentionOptions{Calls: 8}), attend(AttentionOptions{Apart: 8}), attend(AttentionOptions{})
	for i, prim := range []string{"attention", "attention_backward"} {
		a, b, c := op(t, &calls[i], prim), op(t, &apart[i], prim), op(t, &whole[i], prim)
		require.EqualValues(t, 8, a.Count, prim)
		require.LessOrEqual(t, b.Count, int32(1), prim)
		require.Equal(t, []int64{1, 32, 32}, []int64{a.Attn.Batch, a.Attn.Queries, a.Attn.Keys}, prim)
		require.Equal(t, []int64{8, 32, 32}, []int64{b.Attn.Batch, b.Attn.Queries, b.Attn.Keys}, prim)
		require.Equal(t, b.FLOPs, a.FLOPs, prim)
		require.Equal(t, c.FLOPs, 8*a.FLOPs, "%s: pairs of a part alone", prim)
		require.InDelta(t, float64(b.Bytes), 8*float64(a.Bytes), 1, prim)
		require.Equal(t, b.Elements, 8*a.Elements, prim)
	}
	for _, prim := range []string{"attention_dot", "attention_convert"} {
		require.EqualValues(t, 8, op(t, &calls[1], prim).Count, prim)
	}
}

// TestSegmented: equal ids are summed in segments of ten, so few of them cost what their rows
// do; where all differ a row costs as it did.
func TestSegmented(t *testing.T) {
	require.Equal(t, 1000., segmented(1000, 1_000_000), "rows that differ")
	require.InDelta(t, 0.07*36864+0.93*(3686+2304), segmented(36864, 2304), 1)
	for _, rows := range []int64{1, 10, 4096} {
		require.LessOrEqual(t, segmented(rows, 64), float64(rows)+1e-9)
		require.LessOrEqual(t, segmented(rows, 64), segmented(rows, 128))
		require.Less(t, segmented(rows, 64), segmented(2*rows, 64))
	}
}
