package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// TestSDPAFlavours: PyTorch's FlashAttention takes heads whose values are as wide as their keys
// (sdp_utils_cpp.h, check_head_dim_size_flash) in 16 bits (sdp_utils.cpp, check_dtypes_low_precision); its
// memory-efficient kernel takes the rest.
func TestSDPAFlavours(t *testing.T) {
	for _, c := range []struct{ model, attention, sdpa, precision, want string }{
		{"llama3.2-1b", "sdpa", "flash", "bf16-mixed", "flash"},
		{"llama3.2-1b", "sdpa", "", "bf16-mixed", ""},
		{"llama3.2-1b", "sdpa", "flash", "fp32", ""},
		{"llama3.2-1b", "flash-attn", "", "bf16-mixed", "flash"},
		{"deepseek-v2-lite", "sdpa", "flash", "bf16-mixed", "efficient"},
		{"deepseek-v2-lite", "sdpa", "", "bf16-mixed", ""},
	} {
		x := config(t, c.model, "hf-eager")
		x.Attention, x.SDPA, x.MaskedSDPA, x.Efficient, x.Precision = c.attention, c.sdpa, "efficient", "efficient", x.Recipe.Precision[c.precision]
		calls := 0
		for _, o := range at(built(t, x), 1).Forward.Ops {
			if o.Class == tape.Attention {
				require.Equal(t, c.want, o.Attn.Flavour, "%+v", c)
				calls++
			}
		}
		require.Positive(t, calls, "%+v", c)
	}
}
