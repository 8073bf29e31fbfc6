package hardware_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
)

// TestSharedHosts: what copies between a GPU and its host reach where the memory of a Grace
// sets their pace, two of a tray's GPUs or one copying at once (nvbandwidth: NVIDIA/Megatron-LM
// issue 6491, NVIDIA/nvbandwidth issue 23, vllm-project/vllm pull 6496), in GB/s.
func TestSharedHosts(t *testing.T) {
	for name, want := range map[string][2]float64{
		"gb300-nvl72":   {183, 172},
		"gb200-nvl72":   {183, 176},
		"aws-p6e-gb200": {183, 176},
		"alps-gh200":    {170, 416},
		"jupiter-gh200": {170, 416},
		"gh200-96g":     {295, 344},
	} {
		p, err := hardware.Load(name)
		require.NoError(t, err)
		for i, direction := range []string{"d2h", "h2d"} {
			rate, ok := p.Laws.CopyRate(direction, true)
			require.True(t, ok, name)
			require.InEpsilon(t, want[i], float64(rate)/1e9, 0.01, "%s, %s", name, direction)
		}
	}
}
