package strategies

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
)

// Whatever the order, the groups tile the ranks: strides times sizes, innermost first,
// end at the number of ranks.
func TestStridesTile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		degree := func(name string) int64 { return int64(1) << rapid.IntRange(0, 3).Draw(t, name) }
		p := Plan{TP: degree("tp"), CP: degree("cp"), DP: degree("dp"), PP: degree("pp"), EP: 1, ExpertTP: 1}
		for p.EP*p.ExpertTP == 1 || p.TP*p.CP*p.DP%(p.EP*p.ExpertTP) != 0 {
			if p.EP, p.ExpertTP = degree("ep"), degree("expert tp"); p.EP*p.ExpertTP == 1 {
				break
			}
		}
		kinds := rapid.Permutation(DefaultOrder.Kinds()).Draw(t, "order")
		require.NoError(t, p.Order.UnmarshalText([]byte(strings.Join(kinds, "-"))))
		s := p.Strides()
		edp := p.TP * p.CP * p.DP / (p.EP * p.ExpertTP)
		dense, expert := int64(1), int64(1)
		for _, k := range kinds {
			switch k {
			case "tp":
				require.Equal(t, []int64{dense, expert}, []int64{s.TP, s.ExpertTP})
				dense, expert = dense*p.TP, expert*p.ExpertTP
			case "cp":
				require.Equal(t, dense, s.CP)
				dense *= p.CP
			case "ep":
				require.Equal(t, expert, s.EP)
				expert *= p.EP
			case "dp":
				require.Equal(t, []int64{dense, expert}, []int64{s.DP, s.ExpertDP})
				dense, expert = dense*p.DP, expert*edp
			case "pp":
				require.Equal(t, dense, s.PP)
				dense, expert = dense*p.PP, expert*p.PP
			}
		}
		require.Equal(t, dense, expert)
	})
}

// The default order is no order at all, and the short way to its strides is right.
func TestDefaultOrder(t *testing.T) {
	var o Order
	require.NoError(t, o.UnmarshalText([]byte(DefaultOrder)))
	require.Empty(t, o)
	p := Plan{TP: 2, CP: 3, DP: 5, PP: 7, EP: 3, ExpertTP: 2}
	q := p
	q.Order = DefaultOrder
	require.Equal(t, q.Strides(), p.Strides())
	require.Error(t, o.UnmarshalText([]byte("tp-cp-dp-pp")))
	require.Error(t, o.UnmarshalText([]byte("tp-tp-ep-dp-pp")))
}
