package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrainer: a Trainer's host waits for the loss of each micro batch and takes 1.9 ms to the next one, for which the device
// waits, and between steps 0.4 us for each token, which other processes may spare it; twice that at half the speed.
func TestTrainer(t *testing.T) {
	idle := func(accumulation int, runtime string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: sdpa%s}, plan: {}, train: {sequence_length: 2048, micro_batch: 4, grad_accumulation: %d, precision: bf16-pure, recompute: none}}", runtime, accumulation))).HostIdle)
	}
	const pass, token = 1.9e-3, 400e-9
	four := idle(4, ", trainer: true, data_workers: 4") - idle(4, "")
	require.InEpsilon(t, 3*pass, four-(idle(1, ", trainer: true, data_workers: 4")-idle(1, "")), 0.15)
	require.InEpsilon(t, 4*pass, four, 0.25, "and its first kernels")
	require.InEpsilon(t, 4*2048*token, idle(1, ", trainer: true")-idle(1, ", trainer: true, data_workers: 1"), 0.01)
	require.InEpsilon(t, 2*4*2048*token, idle(1, ", trainer: true, host_speed: 0.5")-idle(1, ", trainer: true, data_workers: 1, host_speed: 0.5"), 0.01)
}
