package ops

import (
	"math"

	"github.com/perfplan/perfplan/model/tape"
)

// toldPadding is the share of the tokens which are padding that attention is told of: a decoder beside an encoder is told
// of the encoder's alone, since collators mask the source and ignore what pads labels (transformers,
// data/data_collator.py, DataCollatorForSeq2Seq).
func (b *builder) toldPadding() float64 {
	if b.Spec.Encoder != nil && !b.crosses {
		return 0
	}
	return b.Padding
}

// keyPadding is the mask of what queries q see of the keys k of padded sequences, which all layers read (tape.KeyPaddingMask).
func (b *builder) keyPadding(q, k *tape.Tensor) *tape.Tensor {
	return b.t.Outside(tape.Bool, q.Dim(0), 1, q.Dim(2), k.Dim(2))
}

// masksPairs reports whether attention of an eager model is told of padded tokens, or of documents, by a mask of every pair
// of positions. A compiled one has such a mask in any case (Structure.ExplicitMask), and one that is not fused adds it.
func (b *builder) masksPairs() bool {
	return (b.toldPadding() > 0 || b.Document > 0) && b.Attention == "sdpa" && !b.recipe.Structure.Compiled && !b.headMasks()
}

// open reports whether every token sees all others and nothing says so.
func (b *builder) open() bool {
	return b.recipe.Structure.OpenMask && (b.Spec.Bidirectional || b.crosses) && b.toldPadding() == 0 && b.Document == 0
}

// unpads reports whether attention takes the tokens that are no padding alone.
func (b *builder) unpads() bool {
	return b.toldPadding() > 0 && b.Attention != "sdpa" && b.Attention != "flex" && b.Attention != "unfused" && b.Attention != "math" && b.vision == nil
}

// real is how many tokens of a sequence are no padding, on average.
func (b *builder) real() int64 {
	return max(int64(math.Round(float64(b.Sequence)*(1-b.Padding))), 1)
}

// unpadKernels are those that find the tokens which are no padding and the bounds of their sequences, twice
// with a wait (transformers, modeling_flash_attention_utils.py, _get_unpad_data: sum and cast; nonzero with its
// count and its scan; maximum; sums and the zero before them). Every layer runs them.
const unpadKernels = 9

// unpadded is attention of the tokens of q, k and v [batch, heads, sequence, width] that are no padding, put back
// between zeros.
func (b *builder) unpadded(q, k, v *tape.Tensor, o tape.AttentionOptions) *tape.Tensor {
	t := b.t
	t.Tiny("unpad", unpadKernels)
	t.Wait()
	t.Wait()
	n := b.real()
	q, k, v = t.Unpad(q, n), t.Unpad(k, n), t.Unpad(v, n)
	y := b.attend(q, k, v, o)
	t.Release(q, k, v)
	return b.give(y, t.Pad(y, b.Sequence))
}
