package tape

import "github.com/perfplan/perfplan/internal/units"

// Branch gives each of n readers a view of x. One kernel adds up their gradients.
func (t *Tape) Branch(x *Tensor, n int) []*Tensor {
	t.begin()
	outs := make([]*Tensor, n)
	for i := range outs {
		outs[i] = t.view(x)
	}
	t.attach([]*Tensor{x}, outs, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var one *Tensor
		var bytes units.Bytes
		count := 0
		for _, y := range g {
			if y != nil {
				one, count, bytes = y, count+1, bytes+y.bytes()
			}
		}
		if count == 1 {
			return []*Tensor{t.Hold(one)}
		}
		sum := t.like(one)
		t.emit(Op{Prim: "branch_sum", Class: FusedPointwise, DType: sum.dtype, Elements: float64(sum.Size()), N: sum.Dim(-1), Bytes: bytes + sum.bytes()})
		return []*Tensor{sum}
	})
	return outs
}

// SumTokens sums x [batch, tokens, c] over every ratio tokens with weights that are a softmax of
// scores of its shape and of a bias for each place: [batch, tokens/ratio, width]. Where c is
// two widths a sum is over the tokens of the one before, too, by their first width. All of it
// is written out kernel by kernel in eager mode (Megatron-Core dev @d48bd6be0a,
// experimental_attention_variant/csa.py, Compressor._forward_sbhd; the same operations traced
// on an H200: 11 kernels forward and 37 backward of sums that overlap, 5 and 10 of others).
func (t *Tape) SumTokens(x, scores, bias *Tensor, ratio, width int64) *Tensor {
	t.begin()
	b, c := x.Dim(0), x.Dim(2)
	n := x.Dim(1) / ratio
	rows := n * ratio
	size := float64(b * rows * c)
	each := func(prim string, class Class, bytes float64) { // for an element
		t.emit(Op{Prim: prim, Class: class, DType: x.dtype, Elements: size, N: width, Bytes: units.Bytes(bytes * size)})
	}
	low, wide := float64(x.dtype.Size()), float64(F32.Size())
	biased := t.empty(F32, b, rows, c)
	each("pool_bias", UnrolledMix, low+wide)
	values := t.Hold(x)
	if c > width { // each of both is filled and copied in two parts
		lapped := t.empty(F32, b, rows, c)
		t.Release(values)
		values = t.empty(x.dtype, b, rows, c)
		for _, bytes := range []float64{low, wide} {
			each("fill", Vectorized, bytes)
			each("pool_copy", Strided2, bytes)
			each("pool_copy", Strided2, bytes)
		}
		t.Release(biased)
		biased = lapped
	}
	p := t.empty(F32, b, rows, c)
	each("pool_softmax", MidReduce, 2*wide)
	t.Release(biased)
	w := t.empty(x.dtype, b, rows, c)
	each("cast", Vectorized, wide+low)
	product := t.empty(x.dtype, b, rows, c)
	each("mul", Vectorized, 3*low)
	y := t.empty(x.dtype, b, n, width)
	each("pool_sum", MidReduce, low)
	t.Release(product)
	t.attach([]*Tensor{x, scores, bias}, []*Tensor{y}, []*Tensor{values, p, w}, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		gx, gs := t.emptyLike(x), t.emptyLike(scores)
		gw, gp := t.empty(x.dtype, b, rows, c), t.empty(F32, b, rows, c)
		each("mul", Strided2, 2*low) // by a gradient that is the same for all of a sum
		each("mul", Strided2, 2*low)
		each("cast", Vectorized, low+wide)
		each("mul", Vectorized, 3*wide)
		each("pool_softmax_backward", MidReduce, 3*wide)
		if c > width { // what was written into is copied, zeroed in part and added up
			for _, bytes := range []float64{low, wide} {
				for range 3 {
					each("copy", Vectorized, 2*bytes)
				}
				for range 5 {
					each("pool_copy", Strided2, bytes)
				}
				for range 4 {
					each("fill", Vectorized, bytes*3/4)
				}
				each("add", Vectorized, 3*bytes)
			}
		}
		each("cast", Vectorized, low+wide)
		var r []*Tensor
		give := func(of *Tensor, y *Tensor) {
			if of.grad {
				r = append(r, y)
			} else {
				t.Release(y)
			}
		}
		give(x, gx)
		give(scores, gs)
		if bias.grad {
			gb := t.like(bias)
			each("pool_bias_sum", MidReduce, wide)
			r = append(r, gb)
		}
		t.Release(gw, gp)
		return r
	})
	t.Release(values, p, w)
	return y
}
