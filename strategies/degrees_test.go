package strategies

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRemediesAreLegal: no degree that an error offers breaks a rule of that degree, and
// every other one breaks some.
func TestRemediesAreLegal(t *testing.T) {
	no := false
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
		j, err := decode(fmt.Sprintf("{model: %s, gpus: %d, runtime: {recipe: %s}, train: {sequence_length: %s}}",
			pick("model", "gpt2", "llama3-8b", "qwen2.5-7b", "mixtral-8x7b", "deepseek-v2-lite", "nemotron-h-8b"), rapid.IntRange(1, 64).Draw(t, "gpus"), pick("recipe", "megatron-core", "hf-eager"), pick("sequence", "1000", "1024")))
		require.NoError(t, err)
		degree := func(name string) int64 { return rapid.Int64Range(1, 4).Draw(t, name) }
		p := Plan{TP: degree("tp"), CP: degree("cp"), PP: degree("pp"), EP: degree("ep"), SequenceParallel: &no}
		if p.Complete(j.shape()) != nil {
			return
		}
		for name, d := range map[string]struct {
			legal []int64
			set   func(*Plan, int64)
		}{
			"tp": {p.legalTP(j.shape()), func(q *Plan, n int64) { q.TP, q.DP = n, 0 }},
			"cp": {p.legalCP(j.shape()), func(q *Plan, n int64) { q.CP, q.DP = n, 0 }},
			"pp": {p.legalPP(j.shape()), func(q *Plan, n int64) { q.PP, q.DP = n, 0 }},
			"ep": {legalEP(&p, j), func(q *Plan, n int64) { q.EP = n }},
		} {
			for n := int64(1); n <= 64; n++ {
				q, next := p, *j
				d.set(&q, n)
				switch err := next.SetPlan(q); {
				case !slices.Contains(d.legal, n):
					require.Error(t, err, "%s %d of %v", name, n, d.legal)
				case err != nil:
					require.NotContains(t, []string{"plan", "plan." + name}, Rule(err), "%s %d of %v: %v", name, n, d.legal, err)
				}
			}
		}
	})
}

// legalEP lists the expert-parallel degrees that an error offers; one without experts or
// a recipe that cuts them.
func legalEP(p *Plan, j *Job) []int64 {
	if j.Model.MoE == nil || !j.Recipe.Structure.ExpertParallel {
		return []int64{1}
	}
	return p.legalEP(j.shape())
}
