package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// deltaUnit are the ops of a model's layers that are gated delta nets, forward and backward.
func deltaUnit(t *testing.T, job string) (forward, backward []tape.Op) {
	m := ops.Build(config(mustParse(t, job)))
	for i := range m.Kinds {
		if u := &m.Kinds[i]; u.Name == "delta layer" || u.Name == "delta moe layer" {
			return u.Forward.Ops, u.Backward.Ops
		}
	}
	t.Fatal("no gated delta net")
	return nil, nil
}

func countClass(list []tape.Op, c tape.Class) (n int) {
	for i := range list {
		if list[i].Class == c {
			n += int(list[i].Count)
		}
	}
	return n
}

// TestDeltaKernels: a net of transformers launches what a trace of Qwen3.5's has (H100,
// PyTorch 2.11, transformers 5.17, 2026-11-25): a convolution and five kernels of the rule
// forward, one of which hands states on; one and eight backward, two of which do; queries
// and keys are normalised by a kernel each.
func TestDeltaKernels(t *testing.T) {
	const job = `{model: {model_type: qwen3_5_text, num_hidden_layers: 4, vocab_size: 32000, linear_num_value_heads: %d}, hardware: h100-sxm, gpus: 1, runtime: {recipe: hf-eager}, train: {sequence_length: 4096, micro_batch: 2, precision: bf16-pure}}`
	for _, heads := range []int{16, 32} {
		forward, backward := deltaUnit(t, fmt.Sprintf(job, heads))
		require.Equal(t, 5, countClass(forward, tape.Scan))
		require.Equal(t, 1, countClass(forward, tape.Chain))
		require.Equal(t, 2, countClass(forward, tape.FusedReduce))
		require.Equal(t, 6, countClass(backward, tape.Scan))
		require.Equal(t, 2, countClass(backward, tape.Chain))
		require.Equal(t, 2, countClass(backward, tape.FusedReduce))
	}
}

// TestDeltaCut: Megatron-Core's tensor and context ranks share the heads, and context ranks
// exchange what one projection makes and what the net makes; packed documents are sequences
// of their own, whose states have fewer chunks to go through.
func TestDeltaCut(t *testing.T) {
	const job = `{model: qwen3.5-27b, hardware: h100-sxm, gpus: 4, runtime: {recipe: megatron-core}, plan: {%s, data_parallel: zero1}, train: {sequence_length: 8192, micro_batch: 1, precision: bf16%s}}`
	sums := func(plan, train string) (bytes, chain float64, exchanges int) {
		forward, backward := deltaUnit(t, fmt.Sprintf(job, plan, train))
		for _, list := range [][]tape.Op{forward, backward} {
			for i := range list {
				switch o := &list[i]; {
				case o.Class == tape.Scan || o.Class == tape.Chain:
					bytes += float64(o.Bytes)
					if o.Class == tape.Chain {
						chain += o.Elements
					}
				case o.Comm != nil && o.Comm.Group == "cp" && o.Module == "delta":
					exchanges++
				}
			}
		}
		return bytes, chain, exchanges
	}
	whole, chain, none := sums("tp: 1", "")
	require.Zero(t, none)
	half, same, _ := sums("tp: 2", "")
	require.InEpsilon(t, 0.5, half/whole, 0.01)
	require.Equal(t, chain, same, "a sequence has as many chunks")
	half, _, exchanges := sums("tp: 1, cp: 2", "")
	require.InEpsilon(t, 0.5, half/whole, 0.01)
	require.Equal(t, 14, exchanges, "queries, keys, values, gates, two of each head, and outputs, forward and backward")
	_, short, _ := sums("tp: 1", ", document_length: 1024")
	require.InEpsilon(t, 1./8, short/chain, 1e-9)
}

// TestOutputGate: attention with a gate multiplies its output by it, one kernel each way in
// Megatron-Core, and its queries' projection is as wide again.
func TestOutputGate(t *testing.T) {
	const job = `{model: {model_type: qwen3_5_text, num_hidden_layers: 4, vocab_size: 32000, attention_output_gate: %v}, hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-core}, train: {sequence_length: 4096, micro_batch: 1, precision: bf16}}`
	projected := map[bool]int64{}
	for _, gated := range []bool{true, false} {
		m := ops.Build(config(mustParse(t, fmt.Sprintf(job, gated))))
		gates := 0
		for i := range m.Kinds {
			if m.Kinds[i].Name != "layer" {
				continue
			}
			for _, o := range m.Kinds[i].Forward.Ops {
				if o.Prim == "output_gate" {
					gates++
				}
				if o.Class == tape.GEMM && o.Module == "attention" {
					projected[gated] = max(projected[gated], o.N)
				}
			}
		}
		require.Equal(t, gated, gates == 1)
	}
	require.Equal(t, int64(16*256), projected[true]-projected[false])
}
