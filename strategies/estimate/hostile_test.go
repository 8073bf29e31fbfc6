package estimate

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
)

// TestNothingPanics: every model of the catalog, in every precision of every recipe, on
// any machine and split in any way, is estimated or refused.
func TestNothingPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, of []string) string { return rapid.SampledFrom(of).Draw(t, name) }
		small := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
		of := pick("recipe", recipe.Names())
		r, err := recipe.Load(of)
		require.NoError(t, err)
		tp, cp, pp := small("tp", 1, 1, 2, 8), small("cp", 1, 1, 2), small("pp", 1, 1, 2, 4)
		text := fmt.Sprintf("{model: %s, hardware: %s, gpus: %d, runtime: {recipe: %s, attention: %s}, plan: {tp: %d, cp: %d, pp: %d, ep: %d, data_parallel: %s}, train: {sequence_length: %d, micro_batch: %d, grad_accumulation: %d, precision: %s, recompute: %s}}",
			pick("model", model.Names()), pick("hardware", hardware.Names()), tp*cp*pp*small("dp", 1, 2, 3, 16), of, pick("attention", []string{"sdpa", "flash", "unfused"}),
			tp, cp, pp, small("ep", 1, 1, 2, 4), pick("data_parallel", kinds),
			small("sequence", 1, 100, 1024), small("micro", 1, 3), small("accumulation", 1, 3), pick("precision", slices.Sorted(maps.Keys(r.Precision))), pick("recompute", []string{"none", "selective", "full"}))
		estimates(t, text)
	})
}

// estimates requires that a job is estimated or refused as bad input.
func estimates(t require.TestingT, text string) {
	j, err := parse(text)
	if err == nil {
		_, err = Estimate(j, Options{})
	}
	if err != nil {
		require.True(t, diag.IsInput(err), "%s: %v", text, err)
	}
}

// TestExpertsOneByOne: without a grouped kernel the host reads the rows of every expert
// in between, while gradients of several parameters become ready.
func TestExpertsOneByOne(t *testing.T) {
	for _, m := range []string{"mixtral-8x7b", "gpt-oss-20b"} {
		for _, kind := range kinds[:3] {
			j := mustParse(t, fmt.Sprintf("{model: %s, gpus: 2, plan: {data_parallel: %s}, train: {micro_batch: 1, precision: fp32}}", m, kind))
			r := mustEstimate(t, j)
			require.Greater(t, float64(r.Parts.Exposed), 0.0, "%s, %s", m, kind)
		}
	}
}
