package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneConnection: Megatron-LM asserts CUDA_DEVICE_MAX_CONNECTIONS=1 for tensor and context
// ranks before Blackwell, unless experts' exchanges overlap (training/arguments.py,
// validate_args); a job may say otherwise.
func TestOneConnection(t *testing.T) {
	for _, c := range []struct {
		hardware, runtime, plan string
		want                    bool
	}{
		{"h100-sxm", "", "tp: 2", true},
		{"h100-sxm", "", "cp: 2", true},
		{"a100-80g-sxm", "", "tp: 2", true},
		{"b200-sxm", "", "tp: 2", false},
		{"h100-sxm", "", "pp: 2", false},
		{"h100-sxm", "ep_overlap: true", "tp: 2, ep: 2", false},
		{"h100-sxm", "one_connection: false", "tp: 2", false},
		{"b200-sxm", "one_connection: true", "pp: 1", true},
		{"h100-sxm", "recipe: torchtitan", "tp: 2", false},
	} {
		j := mustDecode(t, fmt.Sprintf("{model: mixtral-8x7b, hardware: %s, gpus: 8, runtime: {%s}, plan: {%s}}", c.hardware, c.runtime, c.plan))
		require.Equal(t, c.want, j.OneConnection(), "%v", c)
	}
}
