package estimate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// executed is the FLOPs of matrix products and attention that all ranks execute in
// one step, built from what each pipeline rank holds.
func executed(t require.TestingT, j *strategies.Job) (products, attention float64) {
	count := map[*ops.Unit]float64{}
	add := func(u *ops.Unit, n float64) {
		for _, sec := range []*tape.Section{&u.Forward, &u.Backward} {
			for _, o := range sec.Ops {
				switch {
				case o.Class == tape.Attention:
					attention += n * float64(o.FLOPs)
				case o.Class == tape.GEMM || o.Class == tape.GroupedGEMM:
					products += n * float64(o.FLOPs)
				}
			}
		}
		count[u] += n
	}
	var e Evaluator
	m, err := e.prepare(j)
	require.NoError(t, err)
	plan := e.p.schedule()
	passes := float64(j.Train.GradAccumulation)
	if plan != nil {
		passes /= float64(plan.Copies)
	}
	ranks := float64(j.GPUs / j.Plan.PP) // that hold the same stage
	for _, held := range m.layout(j, plan).ranks {
		for _, u := range held.list {
			add(u.Unit, ranks*passes)
		}
	}
	return products, attention
}

// TestSplitsKeepFLOPs: the FLOPs of a step do not depend on how it is split. Only
// Megatron's recipes cut all matrices; others repeat the head on every tensor rank. Left
// out are vocabularies and heads that a split pads or repeats.
func TestSplitsKeepFLOPs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
		d := draft{model: rapid.SampledFrom([]string{"llama2-7b", "gpt2-xl", "gpt3-175b", "mixtral-8x7b", "qwen3-30b-a3b"}).Draw(t, "model"), hardware: "h100-sxm", recipe: "megatron-core", kind: "ddp",
			recompute: rapid.SampledFrom([]string{"none", "full"}).Draw(t, "recompute"), tp: 1, cp: 1, ep: 1, pp: 1, v: 1, seq: 1024, micro: 1, gpus: 1, acc: 64}
		one, err := parse(d.String())
		require.NoError(t, err)
		products, attention := executed(t, one)

		d.tp, d.cp, d.pp, d.ep, d.micro = small("tp", 1, 2, 4), small("cp", 1, 2, 4), small("pp", 1, 2, 4), small("ep", 1, 2, 4), small("micro", 1, 2)
		d.etp = small("expert_tp", 1, 2, 4)
		dp := small("dp", 1, 2, 4)
		d.gpus, d.acc = d.tp*d.cp*d.pp*dp, 64/(dp*d.micro)
		if d.pp > 1 {
			d.schedule = rapid.SampledFrom(pipeline.Names()).Draw(t, "schedule")
			d.v = small("v", 1, 2)
		}
		j, err := parse(d.String())
		if err != nil {
			t.Skip(err)
		}
		j.Train.Imbalance = 1 // the busiest rank of random routing multiplies more
		p, a := executed(t, j)
		require.InEpsilon(t, products, p, 0.02, "%s: matrix products", d) // the padded vocabulary
		require.InEpsilon(t, attention, a, 1e-9, "%s: attention", d)
	})
}
