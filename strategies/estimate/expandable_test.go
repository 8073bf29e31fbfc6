package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies"
)

// TestExpandableSegments: four layers of Llama 3 8B by torchtitan v0.2.2 on four H200 (PyTorch 2.11, 2026-11-22; calibrate/runs/data/torchtitan-steps.yaml),
// whose run_train.sh has segments grow, reserved 18.1907 GB; blocks of fixed sizes would have taken more.
func TestExpandableSegments(t *testing.T) {
	const measured = 18.1907e9
	job := `{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: 4, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false},
		hardware: h200-sxm, gpus: 4, runtime: {recipe: torchtitan, attention: sdpa, release: "26.02", expandable_segments: %v}, plan: {cp: 4, dp: 1, data_parallel: fsdp2},
		train: {sequence_length: 32768, micro_batch: 1, grad_accumulation: 1, precision: bf16, recompute: selective}}`
	on, off := mustParse(t, fmt.Sprintf(job, true)), mustParse(t, fmt.Sprintf(job, false))
	grown, fixed := mustEstimate(t, on).Memory, mustEstimate(t, off).Memory
	require.InEpsilon(t, measured, float64(grown.PeakReserved), 0.02)
	require.Greater(t, float64(fixed.PeakReserved), 1.05*measured)
}

// TestExpandableSegmentsInTurns: one evaluator tells jobs of one model apart that differ in nothing else.
func TestExpandableSegmentsInTurns(t *testing.T) {
	on := mustParse(t, `{model: llama3.2-1b, hardware: h200-sxm, gpus: 1, plan: {dp: 1}, runtime: {recipe: hf-eager, expandable_segments: true}, train: {sequence_length: 4096, micro_batch: 4}}`)
	off := *on
	off.Runtime.ExpandableSegments = new(false)
	var e Evaluator
	for range 2 {
		for _, j := range []*strategies.Job{on, &off} {
			used, err := e.DeviceUsed(j, 1<<40)
			require.NoError(t, err)
			require.Equal(t, mustEstimate(t, j).Memory.DeviceUsed, used, "%v", *j.Runtime.ExpandableSegments)
		}
	}
}
