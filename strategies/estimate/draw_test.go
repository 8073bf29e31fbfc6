package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
)

// parse reads a job in flow form.
func parse(text string) (*strategies.Job, error) {
	doc, err := yamlx.Parse("job.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	return strategies.Decode(doc, doc.Root)
}

func mustParse(t testing.TB, text string) *strategies.Job {
	t.Helper()
	j, err := parse(text)
	require.NoError(t, err, text)
	return j
}

func mustEstimate(t testing.TB, j *strategies.Job) *Result {
	t.Helper()
	r, err := Estimate(j, Options{})
	require.NoError(t, err)
	return r
}

// draft is a job as the laws vary it.
type draft struct {
	model, hardware, recipe, kind, recompute, schedule, more string
	runtime, plan, train                                     string // further keys, each behind a comma
	gpus, tp, cp, ep, etp, pp, v, dp, seq, micro, acc        int
}

func (d draft) String() string {
	plan := fmt.Sprintf("tp: %d, cp: %d, ep: %d, pp: %d, data_parallel: %s", d.tp, d.cp, d.ep, d.pp, d.kind)
	if d.etp > 1 {
		plan += fmt.Sprintf(", expert_tp: %d", d.etp)
	}
	if d.v > 1 {
		plan += fmt.Sprintf(", virtual_stages: %d", d.v)
	}
	if d.schedule != "" {
		plan += ", schedule: " + d.schedule
	}
	if d.dp > 0 {
		plan += fmt.Sprintf(", dp: %d", d.dp)
	}
	return fmt.Sprintf("{model: %s, hardware: %s, gpus: %d, runtime: {recipe: %s%s}, plan: {%s%s}, train: {sequence_length: %d, micro_batch: %d, grad_accumulation: %d, recompute: %s%s}%s}",
		d.model, d.hardware, d.gpus, d.recipe, d.runtime, plan, d.plan, d.seq, d.micro, d.acc, d.recompute, d.train, d.more)
}

var (
	dense   = []string{"tinyllama-1.1b", "llama2-7b", "gpt2-xl", "qwen2.5-7b", "gemma2-9b", "pythia-1.4b"}
	experts = []string{"mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite"}
	recipes = []string{"hf-eager", "hf-compile", "megatron-core", "megatron-lm", "megatron-deepspeed", "torchtitan", "llm-foundry", "nanotron", "deepspeed-hf", "automodel"}
	kinds   = []string{"ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"}
)

// drawn is a random job; the draw is skipped when a rule refuses it or when the
// recipe does not run such models.
func drawn(t *rapid.T) (draft, *strategies.Job, *Result) {
	pick := func(name string, of []string) string { return rapid.SampledFrom(of).Draw(t, name) }
	small := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
	d := draft{
		model: pick("model", append(append([]string{}, dense...), experts...)), hardware: pick("hardware", hardware.Names()), recipe: pick("recipe", recipes),
		kind: pick("data_parallel", kinds), recompute: pick("recompute", []string{"none", "selective", "full"}),
		tp: small("tp", 1, 1, 2, 4), cp: small("cp", 1, 1, 1, 2), ep: small("ep", 1, 1, 2, 4), etp: small("expert_tp", 1, 1, 1, 2), pp: small("pp", 1, 1, 2, 4), v: 1,
		seq: small("seq", 512, 1024), micro: small("micro", 1, 2, 3), acc: small("acc", 1, 2, 5, 8),
	}
	if d.pp > 1 {
		d.schedule = pick("schedule", []string{"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe", "interleaved-zero-bubble"})
		d.v = small("v", 1, 1, 2)
	}
	d.gpus = d.tp * d.cp * d.pp * small("dp", 1, 2, 4, 8)
	j, err := parse(d.String())
	if err != nil {
		require.True(t, diag.IsInput(err), "%s: %v", d, err)
		t.Skip(err)
	}
	r, err := Estimate(j, Options{Detail: true})
	if err != nil {
		require.True(t, diag.IsInput(err), "%s: %v", d, err)
		t.Skip(err)
	}
	return d, j, r
}
