package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExpandable: which frameworks have PyTorch's allocator grow segments where a job says nothing: torchtitan from
// a5e57e4 of 2024-10-22 on (run_llama_train.sh, run_train.sh) and nanochat (scripts/base_train.py).
func TestExpandable(t *testing.T) {
	for _, c := range []struct {
		runtime string
		want    bool
	}{
		{`recipe: hf-eager`, false},
		{`recipe: hf-eager, expandable_segments: true`, true},
		{`recipe: nanogpt`, false},
		{`recipe: nanochat`, true},
		{`recipe: torchtitan, release: "24.10"`, false},
		{`recipe: torchtitan, release: "24.12"`, true},
		{`recipe: torchtitan`, true},
		{`recipe: torchtitan, expandable_segments: false`, false},
	} {
		j, err := decode(fmt.Sprintf(`{model: llama3.2-1b, hardware: h100-sxm, gpus: 1, runtime: {%s}, train: {micro_batch: 1}}`, c.runtime))
		require.NoError(t, err, c.runtime)
		require.Equal(t, c.want, j.Expandable(), c.runtime)
	}
}
