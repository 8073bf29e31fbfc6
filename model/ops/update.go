package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// Matrix is a weight that an optimizer of whole matrices, such as Muon, updates by itself.
type Matrix struct {
	Rows, Cols int64  // on this rank
	Group      string // of ranks that have the other parts of it; "": it is whole
	ByRows     bool   // which are further rows
}

// MatrixOf is one of the matrices that a weight of a layer is of.
func MatrixOf(p *Param) Matrix {
	n := len(p.Dims)
	m := Matrix{Rows: p.Dims[n-2], Cols: p.Dims[n-1]}
	shape := p.Shape[len(p.Shape)-2:]
	if m.ByRows = m.Rows < shape[0]; m.ByRows || m.Cols < shape[1] {
		if m.Group = "tp"; p.Split == model.ExpertSplit {
			m.Group = "expert_tp"
		}
	}
	return m
}

// Update is what a rank launches to update a matrix by a program(p, g, m) of the recipe: of
// weight, gradient and moment, of the given dtypes. ranks share the matrices of one group.
func Update(r *recipe.Recipe, program string, m Matrix, weight, gradient, moment tape.DType, ranks int64) tape.Section {
	b := &builder{recipe: r, t: tape.New(), matrix: m, ranks: ranks}
	b.t.Module = "optimizer"
	b.t.Cut(tape.Optimize)
	args := make([]value, 3)
	for i, d := range []tape.DType{weight, gradient, moment} {
		args[i] = tensorOf(b.t.Outside(d, m.Rows, m.Cols))
	}
	for _, v := range b.call(program, args...) {
		b.t.Release(v.t)
	}
	b.t.Flush()
	sec := b.t.Cut(tape.Optimize)
	b.t.End()
	return sec
}

// wide is a view of a matrix, or of this rank's part of its rows, that has no more rows than columns.
func (b *builder) wide(x *tape.Tensor) *tape.Tensor {
	rows := x.Dim(0)
	if b.matrix.Group == Shards {
		rows *= b.ranks
	}
	if rows > x.Dim(1) {
		return b.t.Transpose(x, 0, 1)
	}
	return b.t.Hold(x)
}

// Shards is the group of a Matrix of which each rank updates a part of the rows.
const Shards = "shard"

// joined is a matrix of which the ranks of a group hold parts, whole on each of them.
func (b *builder) joined(x *tape.Tensor) *tape.Tensor {
	m := &b.matrix
	if b.ranks <= 1 || m.Group == "" {
		return b.t.Hold(x)
	}
	rows, cols := m.Rows*b.ranks, m.Cols
	if !m.ByRows {
		rows, cols = m.Rows, m.Cols*b.ranks
	}
	return b.t.Gathered(x, m.Group, rows, cols)
}

// part is this rank's part of what was joined.
func (b *builder) part(x *tape.Tensor) *tape.Tensor {
	switch m := &b.matrix; {
	case b.ranks <= 1 || m.Group == "":
		return b.t.Hold(x)
	case m.ByRows:
		return b.t.Slice(x, 0, 0, m.Rows)
	default:
		return b.t.Slice(x, 1, 0, m.Cols)
	}
}
