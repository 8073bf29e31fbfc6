package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// TestReentrant: a reentrant checkpoint computes whole layers again, down projection and all, where
// another one stops with what that reads. Steps of Llamas by transformers on an H200, which were 2.5 %
// too fast without it (calibrate/runs/data/expandable-segments.yaml).
func TestReentrant(t *testing.T) {
	const text = "{model: llama3.2-1b, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: sdpa}, plan: {}, train: {sequence_length: 4096, micro_batch: 4, precision: bf16-pure, recompute: "
	again := func(recompute string) int { return recomputedProducts(mustParse(t, text+recompute+"}}")) }
	require.Equal(t, 7, again("full, use_reentrant: true"))
	require.Equal(t, 6, again("full, use_reentrant: false"))
	require.Equal(t, 6, again("full"))
	require.Zero(t, again("none, use_reentrant: true"))

	of := func(recompute string) *Result { return mustEstimate(t, mustParse(t, text+recompute+"}}")) }
	stops, whole := of("full"), of("full, use_reentrant: true")
	require.InDelta(t, 1.04, float64(whole.StepTime)/float64(stops.StepTime), 0.02)
	require.InEpsilon(t, float64(stops.Memory.PeakAllocated), float64(whole.Memory.PeakAllocated), 0.001)
}

// TestReentrantByDefault: transformers before 5 leaves checkpoints reentrant (huggingface/transformers
// pulls 28538 and 43203), but for FSDP's own, which stop early (accelerate, CheckpointImpl.NO_REENTRANT)
// from PyTorch 2.1 on. A compiler drops what nobody reads.
func TestReentrantByDefault(t *testing.T) {
	for _, c := range []struct {
		runtime, plan, train string
		products             int
	}{
		{"recipe: hf-eager", "", "", 6},
		{"recipe: hf-eager, release: '26.02'", "", "", 6},
		{"recipe: hf-eager, release: '26.01'", "", "", 7},
		{"recipe: hf-eager, release: '26.01'", "", ", use_reentrant: false", 6},
		{"recipe: hf-eager, release: '26.01'", "dp: 2, data_parallel: ddp", "", 7},
		{"recipe: hf-eager, release: '26.01'", "dp: 2, data_parallel: fsdp2", "", 6},
		{"recipe: hf-eager, release: '26.01'", "dp: 2, data_parallel: fsdp1", "", 6},
		{"recipe: hf-eager, release: '26.01'", "dp: 2, data_parallel: fsdp1", ", use_reentrant: true", 7},
		{"recipe: hf-eager, release: '23.10'", "dp: 2, data_parallel: fsdp1", "", 6},
		{"recipe: hf-eager, release: '23.09'", "dp: 2, data_parallel: fsdp1", "", 7},
		{"recipe: deepspeed-hf", "dp: 2, data_parallel: zero3", "", 7}, // of 2025-12
		{"recipe: deepspeed-hf, release: '26.02'", "dp: 2, data_parallel: zero3", "", 6},
		{"recipe: hf-compile, release: '26.01'", "", "", 6},
	} {
		name := c.runtime + " " + c.plan + c.train
		gpus := 1
		if c.plan != "" {
			gpus = 2
		}
		j := mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: h200-sxm, gpus: %d, runtime: {%s}, plan: {%s}, train: {sequence_length: 1024, micro_batch: 1, precision: bf16, recompute: full%s}}", gpus, c.runtime, c.plan, c.train))
		require.Equal(t, c.products, recomputedProducts(j), name)
	}
}

// TestReentrantGathers: before transformers 4.52 a reentrant checkpoint under FSDP1 gathers each layer's parameters once more, with
// nothing beside it (transformers, trainer.py: "introduces a redundant AllGather operation in backward pass"). Llama 3 70B and Mixtral
// 8x7B on 32 A100 were 9 to 36 % fast without it, and 1 slow to 13 fast with it (calibrate/runs/data/thirty-third.yaml, deepcompile_fsdp_a100).
func TestReentrantGathers(t *testing.T) {
	for _, c := range []struct {
		release, plan string
		more          bool
	}{
		{"25.05", "data_parallel: fsdp1", true},
		{"25.06", "data_parallel: fsdp1", false},
		{"25.05", "data_parallel: fsdp1, reshard_after_forward: false", false},
		{"25.05", "data_parallel: fsdp2", false},
	} {
		of := func(reentrant bool) (*Evaluator, float64) {
			e := new(Evaluator)
			r, err := e.Estimate(mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: {inherits: h100-sxm, gpu: {nvlink: 50 GB/s}}, gpus: 8, runtime: {recipe: hf-eager, release: '%s'}, plan: {%s}, train: {sequence_length: 1024, micro_batch: 1, precision: bf16-pure, recompute: full, use_reentrant: %v}}", c.release, c.plan, reentrant)), Options{})
			require.NoError(t, err)
			return e, float64(r.Exposed["dp"])
		}
		e, twice := of(true)
		_, once := of(false)
		layer := units.Bytes(2 * (2*2048*2048 + 2*2048*512 + 3*2048*8192))
		if !c.more {
			require.InDelta(t, 0, twice-once, 2e-3, c)
			continue
		}
		require.InEpsilon(t, 16*float64(e.p.comm(collective.AllGather, shardGroup, layer)), twice-once, 0.12, c)
	}
}

// recomputedProducts counts the matrix multiplies of a layer that run again.
func recomputedProducts(j *strategies.Job) (n int) {
	layer := ops.Build(config(j)).Kinds[0]
	for i := range layer.Backward.Ops {
		if o := &layer.Backward.Ops[i]; o.Phase == tape.Recompute && o.Class == tape.GEMM {
			n++
		}
	}
	return
}
