package estimate

import (
	"fmt"
	"testing"

	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/stretchr/testify/require"
)

// TestPrimaryWeights: weights that quantized GEMMs read are stored as those read them
// alone where they are gathered so (fp8_param_gather) and in MXFP8, in two copies, of one
// scale on Blackwell in one; with fp4, where 16 bits are gathered and without a distributed
// optimizer, 16-bit ones stay.
func TestPrimaryWeights(t *testing.T) {
	const matrices, rest = 32.0 * (2*4096*4096 + 2*4096*1024 + 3*4096*14336), 2.0 * 128256 * 4096 // of Llama-3 8B, embedding and head
	for _, c := range []struct {
		name, hardware, recipe, kind, train string
		bytes                               float64 // of a weight
	}{
		{"bf16", "h100-sxm", "megatron-core", "zero1", "precision: bf16", 2},
		{"one scale, Hopper", "h100-sxm", "megatron-core", "zero1", "precision: fp8", 2},
		{"one scale, gathered in 16 bits", "h100-sxm", "megatron-core", "zero1", "precision: fp8, dtypes: {gather: bf16}", 4},
		{"one scale, Blackwell", "b200-sxm", "megatron-core", "zero1", "precision: fp8", 1},
		{"blocks", "b200-sxm", "megatron-core", "zero1", "precision: mxfp8", 2},
		{"blocks, no distributed optimizer", "b200-sxm", "megatron-core", "ddp", "precision: mxfp8", 4},
		{"one scale, not asked to gather so", "h100-sxm", "megatron-pretrain", "zero1", "precision: fp8", 4},
		{"blocks, not asked to gather so", "b200-sxm", "megatron-pretrain", "zero1", "precision: mxfp8", 4},
		{"fp4", "b200-sxm", "megatron-core", "zero1", "precision: nvfp4", 3},
	} {
		r, err := Estimate(mustParse(t, fmt.Sprintf(`{model: llama3-8b, hardware: %s, gpus: 8, runtime: {recipe: %s}, plan: {data_parallel: %s}, train: {sequence_length: 8192, micro_batch: 1, %s}}`, c.hardware, c.recipe, c.kind, c.train)), Options{})
		require.NoError(t, err)
		kept := float64(r.Memory.By[memory.Parameters]+r.Memory.By[memory.WeightCopies]) - 2*rest
		require.InDelta(t, c.bytes, kept/matrices, 0.2, c.name)
	}
}

// TestGathersAsRead: Megatron-FSDP gathers MXFP8's weights as either pass reads them, those of
// experts, too, half of what 16 bits are, and a rank quantizes its shards alone; embedding and
// head, norms and a router's weights stay wide.
func TestGathersAsRead(t *testing.T) {
	const text = "{model: mixtral-8x7b, hardware: b200-sxm, gpus: 16, runtime: {recipe: megatron-core, cuda_graphs: none}, plan: {ep: 4, data_parallel: fsdp1}, train: {sequence_length: 4096, micro_batch: 1, precision: mxfp8%s}}"
	moved := func(train string) (gathered map[string]float64, quantized float64) {
		r, err := Estimate(mustParse(t, fmt.Sprintf(text, train)), Options{Detail: true})
		require.NoError(t, err)
		gathered = map[string]float64{}
		for _, c := range r.Detail.Collectives {
			if c.Kind == "all-gather" {
				gathered[c.Group] += float64(c.Bytes) * float64(c.Count)
			}
		}
		for _, k := range r.Detail.Kernels {
			if k.Op.Prim == "quantize_weights" {
				quantized += k.Op.Elements
			}
		}
		return gathered, quantized
	}
	own, shards := moved("")
	wide, all := moved(", dtypes: {gather: bf16}")
	require.InEpsilon(t, wide["expert_shard"]/2, own["expert_shard"], 1e-9)
	require.Less(t, own["shard"], wide["shard"])
	require.Greater(t, own["shard"], wide["shard"]/2)
	require.Less(t, shards, all/2)
	require.Positive(t, shards)
}
