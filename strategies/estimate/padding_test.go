package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// TestPaddedBatches: what attention of a padded batch runs. PyTorch's reads a mask, of which every layer makes one to add
// to the scores since transformers 4.53 (masking_utils.py), and before which one was made for all (modeling_llama.py); either
// has heads repeated (integrations/sdpa_attention.py, use_gqa_in_sdpa). FlashAttention takes the other tokens alone, which each layer
// finds and gathers (modeling_flash_attention_utils.py, _upad_input).
func TestPaddedBatches(t *testing.T) {
	const batch, seq = 2, 2048
	const job = `{model: llama3.2-1b, hardware: %s, gpus: 1, runtime: {recipe: hf-eager, attention: %s, release: "%s"}, plan: {dp: 1}, train: {sequence_length: 2048, micro_batch: 2, precision: bf16-pure%s}}`
	const pairs = units.Bytes(batch * seq * seq)
	for _, c := range []struct {
		hardware, attention, release, train string
		masked                              bool
		flavour                             string
		kv, queries                         int64
		made, moved, waits                  int         // masks, gathers and scatters of a layer's forward pass, and waits
		held                                units.Bytes // the mask that all layers read
	}{
		{"h100-sxm", "sdpa", "26.06", "", false, "", 8, seq, 0, 0, 0, 0},
		{"h100-sxm", "sdpa", "25.08", "", false, "flash", 8, seq, 0, 0, 0, 0},
		{"h100-sxm", "sdpa", "25.07", "", false, "flash", 32, seq, 0, 0, 0, 0}, // transformers before 4.54 repeats heads, mask or not
		{"h100-sxm", "flash-attn", "25.07", "", false, "flash", 8, seq, 0, 0, 0, 0},
		{"h100-sxm", "sdpa", "26.06", ", padding: 0.25", true, "", 32, seq, 1, 0, 0, pairs},
		{"h100-sxm", "sdpa", "25.09", ", padding: 0.25", true, "efficient", 32, seq, 1, 0, 0, pairs},
		{"h100-sxm", "sdpa", "25.03", ", padding: 0.25", true, "efficient", 32, seq, 0, 0, 0, 2 * pairs},
		{"a100-80g-sxm", "sdpa", "26.06", ", padding: 0.9", true, "efficient", 32, seq, 1, 0, 0, pairs},
		{"l40s", "sdpa", "26.06", ", padding: 0.25", true, "efficient-small", 32, seq, 1, 0, 0, pairs},
		{"h100-sxm", "flash-attn", "26.06", ", padding: 0.25", false, "flash", 8, 1536, 0, 4, 2, 0},
		{"h100-sxm", "flash-attn", "26.06", "", false, "flash", 8, seq, 0, 0, 0, 0},
		{"h100-sxm", "unfused", "26.06", ", padding: 0.25", false, "", 0, 0, 0, 0, 0, 0},
	} {
		m := ops.Build(config(mustParse(t, fmt.Sprintf(job, c.hardware, c.attention, c.release, c.train))))
		made, moved, waits, seen := 0, 0, 0, 0
		for _, o := range m.Kinds[0].Forward.Ops {
			switch {
			case o.Prim == "attention_mask":
				made++
			case (o.Prim == "unpad" || o.Prim == "index_put_") && o.Elements > 1:
				moved++
			case o.Sync:
				waits++
			case o.Class == tape.Attention:
				a := o.Attn
				seen++
				require.Equal(t, []any{c.masked, c.flavour, c.kv, c.queries}, []any{a.Masked, a.Flavour, a.KVHeads, a.Queries}, "%+v", c)
			}
		}
		require.Equal(t, []int{c.made, c.moved, c.waits}, []int{made, moved, waits}, "%+v", c)
		require.Equal(t, c.attention != "unfused", seen == 1, "%+v", c)
		plain := ops.Build(config(mustParse(t, fmt.Sprintf(job, c.hardware, c.attention, c.release, ""))))
		require.Equal(t, c.held, m.Embedding.Saved()-plain.Embedding.Saved(), "%+v", c)
	}
}

// TestPaddingCosts: a mask costs more than what attention without it leaves out; padding left out of attention saves time.
func TestPaddingCosts(t *testing.T) {
	step := func(attention, padding string) units.Seconds {
		r, err := Estimate(mustParse(t, fmt.Sprintf("{model: llama3-8b, hardware: h100-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: %s}, plan: {dp: 1}, train: {sequence_length: 8192, micro_batch: 2, recompute: full, precision: bf16-pure, optimizer: sgd%s}}", attention, padding)), Options{})
		require.NoError(t, err)
		return r.StepTime
	}
	require.Greater(t, step("sdpa", ", padding: 0.1"), 1.15*step("sdpa", ""))
	require.Equal(t, step("sdpa", ", padding: 0.1"), step("sdpa", ", padding: 0.9"), "all tokens are computed")
	require.Less(t, step("flash-attn", ", padding: 0.9"), step("flash-attn", ""))
	require.Greater(t, step("flash-attn", ", padding: 0.001"), step("flash-attn", ""), "what gathers the tokens")
}
