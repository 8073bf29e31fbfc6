package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNotesInOrder: what is not taken over is said in one order, however often a file is read.
func TestNotesInOrder(t *testing.T) {
	const file = "accelerate launch --num_processes 8 train.py --model_name_or_path gpt2 --per_device_train_batch_size 1 --finetuning_type galore --adapter foo"
	first := initial(t, file)
	require.Contains(t, first, "--finetuning_type galore: which is taken for what the other arguments say")
	for range 64 {
		require.Equal(t, first, initial(t, file))
	}
}
