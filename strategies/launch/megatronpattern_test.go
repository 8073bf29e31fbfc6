package launch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
)

// TestSparseLayers: which layers have experts, by the lists that Megatron-LM evaluates
// (megatron/training/arguments.py, moe_freq_type).
func TestSparseLayers(t *testing.T) {
	const open = "which layers have experts; give model.mlp_only_layers, those without"
	for freq, want := range map[string]string{
		"([1]*4)":           "",
		"([0]+[1]*3)":       "first_k_dense_replace: 1 # --moe-layer-freq\n",
		"'[0]*2 + [1]*2'":   "first_k_dense_replace: 2 # --moe-layer-freq\n",
		"([0,1]*2)":         "mlp_only_layers: [0, 2] # --moe-layer-freq\n",
		"[1,1,0,1]":         "mlp_only_layers: [2] # --moe-layer-freq\n",
		"([1]+[0])*2*1":     "mlp_only_layers: [1, 3] # --moe-layer-freq\n",
		"2":                 "moe_layer_freq: 2 # --moe-layer-freq\n",
		"([1]*3)":           open, // of other layers than there are
		"([1]*9":            open,
		"[0]*4":             open,
		"[1]*99999999999":   open,
		"([1]*4)*9000*9000": open,
		"[1]*4+":            open,
	} {
		text := pretrain(t, "--num-experts 8 --moe-layer-freq \""+freq+"\"")
		if want == "" {
			require.NotContains(t, text, "moe-layer-freq", freq)
			continue
		}
		require.Contains(t, text, want, freq)
		if want == open {
			continue
		}
		d, err := yamlx.Parse("x", []byte(text))
		require.NoError(t, err)
		job, err := strategies.Decode(d, d.Root)
		require.NoError(t, err, text)
		if strings.Contains(want, "[0, 2]") {
			require.Equal(t, []bool{true, false, true, false}, job.Model.MoE.Dense, freq)
		}
	}
}
