package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies/memory"
)

// TestMuonMatrix: what the update of one matrix takes by itself, in loops of four on an H100
// that its power slows a little (torch.optim.Muon of PyTorch 2.11, Emerging-Optimizers 0.4).
func TestMuonMatrix(t *testing.T) {
	of := func(recipe, precision string, rows, cols int64) float64 {
		j := mustParse(t, fmt.Sprintf("{model: llama3-8b, hardware: h100-sxm, gpus: 1, runtime: {recipe: %s}, plan: {dp: 1}, train: {micro_batch: 1, recompute: full, precision: %s, optimizer: muon}}", recipe, precision))
		var e Evaluator
		m, err := e.prepare(j)
		require.NoError(t, err)
		u := m.update(&e.p, updateKey{"muon", ops.Matrix{Rows: rows, Cols: cols}, 1})
		return float64(u.whole.Busy)
	}
	for _, c := range []struct {
		recipe, precision string
		rows, cols        int64
		time              float64
	}{
		{"hf-eager", "bf16-pure", 4096, 4096, 3.367e-3}, {"hf-eager", "bf16-pure", 14336, 4096, 9.472e-3}, {"hf-eager", "bf16-pure", 4096, 14336, 8.846e-3},
		{"hf-eager", "bf16-pure", 8192, 2048, 1.732e-3}, {"hf-eager", "bf16-pure", 2048, 8192, 1.494e-3},
		{"hf-eager", "bf16-autocast", 4096, 4096, 3.556e-3}, {"hf-eager", "bf16-autocast", 14336, 4096, 9.841e-3},
		{"megatron-core", "bf16", 4096, 4096, 3.582e-3}, {"megatron-core", "bf16", 14336, 4096, 10.169e-3}, {"megatron-core", "bf16", 4096, 14336, 9.639e-3},
		{"megatron-core", "bf16", 8192, 2048, 1.971e-3}, {"megatron-core", "bf16", 2048, 8192, 1.781e-3},
	} {
		require.InEpsilon(t, c.time, of(c.recipe, c.precision, c.rows, c.cols), 0.09, "%s %s %d × %d", c.recipe, c.precision, c.rows, c.cols)
	}
}

// TestMuonStates: of matrices one moment is kept instead of two, of the embedding both.
func TestMuonStates(t *testing.T) {
	states := func(recipe, plan, precision, optimizer string) (float64, *Result) {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: h100-sxm, gpus: 2, runtime: {recipe: %s}, plan: {dp: 2, data_parallel: %s}, train: {micro_batch: 1, precision: %s, optimizer: %s}}", recipe, plan, precision, optimizer)))
		return float64(r.Memory.By[memory.OptimizerStates]), r
	}
	const matrices = 16 * (2*2048*2048 + 2*512*2048 + 3*8192*2048)
	for _, c := range []struct {
		recipe, plan, precision string
		less                    float64 // of a matrix's parameter, on a rank
	}{{"hf-eager", "ddp", "bf16-pure", 2}, {"hf-eager", "ddp", "bf16-autocast", 4}, {"hf-eager", "fsdp2", "bf16-mixed", 2}, {"megatron-core", "ddp", "bf16", 4}, {"megatron-core", "zero1", "bf16", 2}} {
		adam, with := states(c.recipe, c.plan, c.precision, "adamw-fused")
		muon, _ := states(c.recipe, c.plan, c.precision, "muon")
		require.Equal(t, int64(matrices), with.Job.Model.MatrixParams(false))
		require.InEpsilon(t, c.less*matrices, adam-muon, 0.01, "%s %s", c.recipe, c.plan)
	}
}

// TestMuonIsDealt: under Megatron's distributed optimizer each rank has some of the matrices, so
// that the update takes a part of the time that it takes where every rank has all; and
// tensor ranks orthogonalize what they share each by itself.
func TestMuonIsDealt(t *testing.T) {
	optimizer := func(gpus int64, plan string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3-8b, hardware: h100-sxm, gpus: %d, plan: {%s}, train: {sequence_length: 2048, micro_batch: 1, grad_accumulation: 1, optimizer: muon}}", gpus, plan))).Optimizer)
	}
	whole := optimizer(8, "dp: 8, data_parallel: ddp")
	dealt := optimizer(8, "dp: 8, data_parallel: zero1")
	require.Less(t, dealt, whole/4)
	require.Greater(t, dealt, whole/10)
	require.Less(t, optimizer(64, "dp: 64, data_parallel: zero1"), dealt)
	require.Greater(t, optimizer(8, "tp: 8, data_parallel: ddp"), 0.9*whole)

	// So does nanochat's beside whole weights on every rank (nanochat/muon.py, DistMuon), which
	// keeps a part of the states, too; gradients are clipped before, by each rank all of its own.
	of := func(gpus int64, name string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: h100-sxm, gpus: %d, runtime: {recipe: nanochat}, plan: {dp: %d}, train: {sequence_length: 2048, micro_batch: 1, grad_accumulation: 1, clip_gradients: true, optimizer: %s}}", gpus, gpus, name)))
	}
	all, part := of(8, "muon"), of(8, "muon-dealt")
	require.Less(t, part.Optimizer, all.Optimizer/4)
	require.InEpsilon(t, float64(all.Memory.By[memory.OptimizerStates])/8, float64(part.Memory.By[memory.OptimizerStates]), 1e-6)
	require.Equal(t, of(1, "muon").StepTime, of(1, "muon-dealt").StepTime, "one rank has all")

	var m matrices
	m.kinds = []matrixKind{{Matrix: ops.Matrix{Rows: 8, Cols: 64}, count: 4}, {Matrix: ops.Matrix{Rows: 16, Cols: 16}, count: 5}, {Matrix: ops.Matrix{Rows: 64, Cols: 64}, expert: true, count: 3}}
	require.Equal(t, []int64{4, 5, 3}, m.deal([2]int64{1, 1}).counts)
	require.Equal(t, []int64{2, 1, 1}, m.deal([2]int64{4, 3}).counts, "the costliest first, each to the rank with the least to do")
	require.Equal(t, []int64{0, 1, 1}, m.deal([2]int64{100, 100}).counts, "no rank has a part of one")
}

// TestMuonOfExperts: where a framework keeps every expert's weights apart they are matrices, where
// it stacks them they are not (torch.optim.Muon takes two dimensions only).
func TestMuonOfExperts(t *testing.T) {
	share := func(recipe string) float64 {
		j := mustParse(t, fmt.Sprintf("{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: 64, runtime: {recipe: %s}, plan: {data_parallel: ddp}, train: {sequence_length: 2048, micro_batch: 1, grad_accumulation: 1, optimizer: muon}}", recipe))
		return float64(j.Model.MatrixParams(j.Recipe.Structure.ExpertCalls)) / float64(j.Model.Params().Total)
	}
	require.Greater(t, share("megatron-core"), 0.95)
	require.Less(t, share("hf-eager"), 0.1)
}
