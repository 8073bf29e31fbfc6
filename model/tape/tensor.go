package tape

import "github.com/perfplan/perfplan/internal/units"

// DType is an element type.
type DType uint8

const (
	F32 DType = iota
	BF16
	F16
	FP8
	MXFP8    // 8 bits, with a scale for every 32 elements
	FP8Block // 8 bits, with a scale for every 128 elements of a row and every 128×128 of a weight
	FP8Row   // 8 bits, with a scale for every row or column along which a product sums
	FP4
	I64
	I32
	Bool
	F64
	NF4    // 4 bits of a frozen weight, with 8 bits of scale for every 64 and 32 for every 256 of these (bitsandbytes, double quantization)
	Block8 // 8 bits of an optimizer's state, with 32 of scale for every 256 (bitsandbytes)
	TF32   // fp32 operands that a multiply rounds to 10 bits of mantissa; no tensor has it

	NumDTypes
)

var dtypes = [NumDTypes]struct {
	name string
	size units.Bytes
}{
	F32: {"fp32", 4}, BF16: {"bf16", 2}, F16: {"fp16", 2}, F64: {"fp64", 8}, TF32: {"tf32", 4},
	FP8: {"fp8", 1}, MXFP8: {"mxfp8", 1}, FP8Block: {"fp8-block", 1}, FP8Row: {"fp8-rowwise", 1}, FP4: {"fp4", 0.5}, NF4: {"nf4", 0.5 + 1./64 + 4./(64*256)},
	Block8: {"8-bit blocks", 1 + 4./256},
	I64:    {"int64", 8}, I32: {"int32", 4}, Bool: {"bool", 1},
}

func (d DType) String() string    { return dtypes[d].name }
func (d DType) Size() units.Bytes { return dtypes[d].size }

// Unscaled is the bytes per element without the scales of frozen weights, which are tensors of their own.
func (d DType) Unscaled() units.Bytes {
	if d == NF4 {
		return 0.5
	}
	return d.Size()
}

func (d DType) floating() bool     { return d <= FP4 || d == F64 }
func (d DType) lowPrecision() bool { return d >= BF16 && d <= FP4 }

// Narrow is whether elements have less than 16 bits.
func (d DType) Narrow() bool { return d >= FP8 && d <= FP4 }

// DTypeOf returns the dtype of a name.
func DTypeOf(name string) (DType, bool) {
	for i, t := range dtypes {
		if t.name == name {
			return DType(i), true
		}
	}
	return 0, false
}

// maxOuts is the most results any op has.
const maxOuts = 6

// maxDims is the most dimensions any program uses.
const maxDims = 5

// Tensor is a symbolic tensor: everything PyTorch knows of a tensor but its
// elements. Tensors are made by a Tape and are owned by whoever holds them:
// Release gives one up.
type Tensor struct {
	dims, strides [maxDims]int64
	nd            int8
	dtype         DType
	packed        DType     // a weight is stored so, dtype is what products read; F32: it is as it is
	store         int32     // storage; -1: holds no device memory (a scalar on the host)
	node          int32     // producing node; -1: a leaf or no gradient
	outIdx        int8      // which of its outputs
	param         int32     // 1 + parameter index for a parameter
	grad          bool      // requires gradient
	more          []*Tensor // terms of a sum that the next kernel adds up (Tape.Compiled)
	padded        bool      // its rows are laid out at a multiple of 16 bytes
	shard         *gathered // set when x was gathered from a shard that is kept in its place
	cast          bool      // quantized before, and the compiler keeps what it has (Tape.Compiled)
	narrow        bool      // gathered as GEMMs read it (Tape.NarrowGathers)
	turned        bool      // and transposed since, or cast along its columns as cast is along its rows
	spaced        bool      // its neighbours lie two elements apart, and reading it reads what is between them
	whole         bool      // every rank has all of it
	view          bool      // of a tensor that autograd keeps beside it
	summed        bool      // a gradient that its GEMM added to what there was: Tape.MainGrad, or that of another use (Tape.SumsBack)
}

// Trained is whether it requires a gradient.
func (x *Tensor) Trained() bool { return x.grad }

// Dim returns one dimension; negative counts from the end.
func (x *Tensor) Dim(i int) int64 {
	if i < 0 {
		i += int(x.nd)
	}
	return x.dims[i]
}

// Param returns the index of the parameter that x is, -1 for none.
func (x *Tensor) Param() int { return int(x.param) - 1 }

// Grad reports whether a gradient of x is asked for.
func (x *Tensor) Grad() bool { return x.grad }

// DType returns the element type.
func (x *Tensor) DType() DType { return x.dtype }

// Store returns the storage that holds x, as Events name it; -1 for none.
func (x *Tensor) Store() int32 { return x.store }

// Size returns the number of elements.
func (x *Tensor) Size() int64 {
	n := int64(1)
	for _, d := range x.dims[:x.nd] {
		n *= d
	}
	return n
}

// bytes is the memory the elements take, each stored one counted once: a
// dimension of stride 0 (expanded) does not multiply.
func (x *Tensor) bytes() units.Bytes {
	n := int64(1)
	for i := range x.nd {
		if x.strides[i] != 0 {
			n *= x.dims[i]
		}
	}
	return units.Bytes(n) * x.dtype.Size()
}

// reads is the memory a kernel reads to use x, with the terms of a pending sum.
func (x *Tensor) reads() units.Bytes {
	b := x.bytes()
	if x.spaced {
		b *= 2
	}
	for _, m := range x.more {
		b += m.bytes()
	}
	return b
}

// setContiguous gives x the strides of a fresh row-major tensor.
func (x *Tensor) setContiguous() {
	s := int64(1)
	for i := int(x.nd) - 1; i >= 0; i-- {
		x.strides[i] = s
		s *= x.dims[i]
	}
}

// contiguous reports whether x is row-major without gaps.
func (x *Tensor) contiguous() bool {
	s := int64(1)
	for i := int(x.nd) - 1; i >= 0; i-- {
		if x.dims[i] == 1 {
			continue
		}
		if x.strides[i] != s {
			return false
		}
		s *= x.dims[i]
	}
	return true
}

// matrix reports whether x is a matrix once its leading dimensions are one, as it lies or
// transposed, which a product reads.
func (x *Tensor) matrix() bool {
	rows := x.Size() / x.Dim(-1)
	s, ok := viewStrides(x, []int64{rows, x.Dim(-1)})
	return ok && (s[0] == x.Dim(-1) && s[1] == 1 || s[0] == 1 && s[1] == rows)
}

// dense reports whether x fills its elements' memory without gaps or overlaps
// in some order of its dimensions.
func (x *Tensor) dense() bool {
	order := x.order()
	s := int64(1)
	for i := int(x.nd) - 1; i >= 0; i-- {
		d := order[i]
		if x.dims[d] == 1 {
			continue
		}
		if x.strides[d] != s {
			return false
		}
		s *= x.dims[d]
	}
	return true
}

// order lists the dimensions from largest to smallest stride, keeping the
// given order among equals.
func (x *Tensor) order() [maxDims]int8 {
	var o [maxDims]int8
	for i := range x.nd {
		o[i] = i
	}
	for i := int8(1); i < x.nd; i++ { // insertion sort, at most five entries
		for j := i; j > 0 && x.strides[o[j-1]] < x.strides[o[j]]; j-- {
			o[j-1], o[j] = o[j], o[j-1]
		}
	}
	return o
}

// sameLayout reports whether x and y walk memory in the same order, so that an
// elementwise kernel may treat both as flat arrays.
func (x *Tensor) sameLayout(y *Tensor) bool {
	if x.nd != y.nd {
		return x.contiguous() && y.contiguous() && x.Size() == y.Size()
	}
	for i := range x.nd {
		if x.dims[i] != y.dims[i] || x.dims[i] != 1 && x.strides[i] != y.strides[i] {
			return false
		}
	}
	return true
}

// turnedAgainst reports whether the neighbours of a row of y lie a row apart in x, which has
// neighbours along another dimension.
func (x *Tensor) turnedAgainst(y *Tensor) bool {
	if x.nd != y.nd || x.nd < 2 || x.spaced {
		return false
	}
	inner := y.order()[y.nd-1]
	return x.dims[inner] == y.dims[inner] && x.dims[inner] > 1 && x.strides[inner] > 1 && y.strides[inner] == 1
}

// rereads are so many that every SM of a GPU has come by all of what is read again, each by
// a part of it at a time, more often than not. Falcon's keys, copied for 36 heads, cost what is
// read once (f4-fa of docs/kernels.md), an indexer's, for 1024 queries and more, do not.
const rereads = 256

// again is how much of x lies within the innermost dimension along which it is expanded, and
// is read again and again; 0: nothing.
func (x *Tensor) again() units.Bytes {
	n := int64(1)
	for i := int(x.nd) - 1; i >= 0; i-- {
		if x.strides[i] == 0 && x.dims[i] >= rereads {
			return units.Bytes(n) * x.dtype.Size()
		}
		n *= x.dims[i]
	}
	return 0
}
