package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
)

// listedJob is a model of GPT-3's shape under ZeRO-3.
func listedJob(gpus, batch int, hidden, layers int64, release string) string {
	return fmt.Sprintf(`{model: {model_type: decoder, hidden_size: %d, num_hidden_layers: %d, num_attention_heads: %d, intermediate_size: %d, gated_mlp: false, vocab_size: 51200},
		hardware: a100-80g-sxm, gpus: %d, network: {bandwidth_per_gpu: 200 Gbit/s}, runtime: {recipe: megatron-deepspeed, attention: unfused, release: "%s"},
		plan: {data_parallel: zero3}, train: {sequence_length: 2048, micro_batch: %d, precision: fp16, recompute: full}}`, hidden, layers, hidden/128, 4*hidden, gpus, release, batch)
}

// TestListedModules: every pass uses a layer's four weights. After recomputation those
// stay that are used again within 1e9 parameters: of GPT-3 the last projection alone,
// since the last one counts twice, 1.2e9, between the uses of the one before it.
func TestListedModules(t *testing.T) {
	const layers = 4
	for hidden, stay := range map[int64]int{4096: 4, 12288: 1, 20480: 1} {
		doc, err := yamlx.Parse("job.yaml", []byte(listedJob(16, 1, hidden, layers, "21.04")))
		require.NoError(t, err)
		job, err := strategies.Decode(doc, doc.Root)
		require.NoError(t, err)
		var e Evaluator
		_, err = e.Estimate(job, Options{})
		require.NoError(t, err)
		l := &e.sim.step.own.listed
		require.Equal(t, 8*layers+2, l.small, "norms and biases")
		uses, kept := map[int64]int{}, 0
		for k, u := range l.uses {
			for _, w := range u.weights {
				n := l.weights[w].size
				uses[n]++
				if u.name == "layer" && k >= l.turn && !u.grads && l.distance(k, w) < reused {
					kept++
				}
			}
		}
		require.Equal(t, 3*layers, uses[3*hidden*hidden], "queries, keys and values")
		require.Equal(t, 6*layers, uses[4*hidden*hidden], "the two of the MLP")
		require.Equal(t, stay*layers, kept, "hidden size %d", hidden)
	}
}

// TestListGather: a list of one tensor per rank costs the host more with every rank, so
// that twice the GPUs with half the micro batch gained nothing: 174.6B parameters ran
// at 88 TFLOP/s on 768 GPUs and at 44 on 1536 (arXiv 2104.04473, table 2).
func TestListGather(t *testing.T) {
	at := func(gpus, batch int, release string) float64 {
		return float64(predicted(t, listedJob(gpus, batch, 12288, 96, release)).StepTime)
	}
	require.InDelta(t, 1, at(1536, 1, "21.04")/at(768, 2, "21.04"), 0.25)
	require.Greater(t, at(768, 2, "21.12"), 1.3*at(768, 2, "22.01")) // then by one call for all
}
