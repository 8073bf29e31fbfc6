package tape

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestAddInto: what is added in place has the memory of what it is added to. The gradient of
// all is that of each sum, and rows of it that of what was added (index_select: derivatives.yaml, index_add).
func TestAddInto(t *testing.T) {
	const rows, width = 16, 192
	same := true
	r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor {
		y := t.Zeros(BF16, rows, width)
		for range 2 {
			part := t.Unary("neg", x)
			z := t.AddInto(y, part)
			t.Release(y, part)
			same = same && y.Store() == z.Store()
			y = z
		}
		return y
	}, rows, width)
	require.True(t, same)
	require.Zero(t, r.left)
	r.back(y)
	require.Equal(t, []string{"fill_", "neg", "index_add_", "neg", "index_add_"}, prims(&r.forward, Forward))
	require.Equal(t, []string{"index_select", "neg_backward", "index_select", "neg_backward", "add_"}, prims(&r.backward, Backward))
}

// TestOneHot: an integer of 64 bits for each token, choice and expert, of which no gradient comes
// (aten/src/ATen/native/Onehot.cpp: zeros, scatter_).
func TestOneHot(t *testing.T) {
	tape := New()
	scores := tape.Empty(F32, 1024, 2)
	m := tape.OneHot(scores, 8)
	tape.CountHot(m)
	require.Equal(t, []int64{1024, 2, 8}, dims(m))
	s := tape.Cut(Backward)
	require.Equal(t, []string{"fill_", "scatter_", "sum"}, prims(&s, Forward))
	require.Equal(t, units.Bytes(1024*2*8*8), op(t, &s, "sum").Bytes)
}

// TestSortedRows: where few rows are added to many, those that are not named are not touched but
// by the zeros before.
func TestSortedRows(t *testing.T) {
	const width = 256
	for _, c := range []struct{ rows, of, moved int64 }{{64, 1024, 3 * 64}, {2048, 1024, 2*2048 + 1024}} {
		r, y := running(t, New(), BF16, func(t *Tape, x *Tensor) *Tensor { return t.Rows(x, c.rows, 1) }, c.of, width)
		r.back(y)
		require.Equal(t, units.Bytes(c.moved*width*2), op(t, &r.backward, "index_put_").Bytes)
	}
}
