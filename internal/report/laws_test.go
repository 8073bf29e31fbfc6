package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/diag"
	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/search"
)

// drawn is a random legal job; the draw is skipped when a rule refuses it.
func drawn(t *rapid.T) *strategies.Job {
	pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	degree := func(name string) int { return rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, name) }
	recipe := pick("recipe", "hf-eager", "megatron-core", "torchtitan")
	text := fmt.Sprintf(`{model: %s, hardware: %s, gpus: %d, runtime: {recipe: %s}, plan: {tp: %d, pp: %d, data_parallel: %s}, train: {sequence_length: 2048, micro_batch: %d, grad_accumulation: %d, recompute: %s}}`,
		pick("model", "tinyllama-1.1b", "llama2-7b", "gpt2-xl", "mixtral-8x7b"), pick("hardware", "h100-sxm", "h200-sxm", "a100-80g-sxm"), rapid.SampledFrom([]int{1, 2, 8, 32}).Draw(t, "gpus"), recipe,
		degree("tp"), degree("pp"), pick("kind", "ddp", "zero1", "fsdp2"), degree("micro"), 4*degree("accumulation"), pick("recompute", "none", "selective", "full"))
	doc, err := yamlx.Parse("job.yaml", []byte(text))
	require.NoError(t, err)
	j, err := strategies.Decode(doc, doc.Root)
	if err != nil {
		t.Skip(err)
	}
	return j
}

// TestLaws: what a page prints adds up, whatever the job.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawn(t)
		r, err := estimate.Estimate(j, estimate.Options{Detail: true, Record: true})
		if diag.IsInput(err) {
			t.Skip(err) // a recipe that does not run such models
		}
		require.NoError(t, err)
		e := &Estimate{Result: r}

		var step units.Seconds
		for _, p := range parts(r) {
			step += p.time
			var inner units.Seconds
			for _, q := range p.inner {
				inner += q.time
			}
			if len(p.inner) > 0 {
				near(t, float64(p.time), float64(inner), float64(r.StepTime), "the groups of "+p.name)
			}
		}
		near(t, float64(r.StepTime), float64(step), float64(r.StepTime), "the parts of the step")

		m := memoryOf(&r.Memory)
		by, peak, used := sum(m.value("by_class").(ordered)), float64(r.Memory.PeakAllocated), float64(r.Memory.DeviceUsed)
		near(t, peak, by, peak, "memory by class")
		near(t, used, by+sum(m.value("outside_bytes").(ordered)), used, "memory by class and outside")
		require.Equal(t, r.Memory.DeviceUsed <= r.Memory.Capacity, m.value("fits"))

		tree := (&Explain{Estimate: *e}).tree()
		addsUp(t, tree, float64(r.StepTime))
		others(t, tree)

		for _, width := range []int{60, 80, 120} {
			var b bytes.Buffer
			require.NoError(t, Write(&b, e, Text, Style{Width: width}))
			require.LessOrEqual(t, longest(b.String()), width)
		}
		var first, second bytes.Buffer
		require.NoError(t, Write(&first, e, JSON, Style{}))
		again, err := estimate.Estimate(j, estimate.Options{Detail: true, Record: true})
		require.NoError(t, err)
		require.NoError(t, Write(&second, &Estimate{Result: again}, JSON, Style{}))
		require.True(t, json.Valid(first.Bytes()))
		require.Equal(t, first.String(), second.String(), "one job, two results")
	})
}

// others checks that the units of a tree do not take longer than all kernels do.
func others(t require.TestingT, tree *treeNode) {
	for _, n := range tree.inner {
		if n.name == "other kernels" {
			require.GreaterOrEqual(t, float64(n.time), -1e-6*float64(tree.time), n.name)
		}
	}
}

// TestCopies: ranks of DualPipe hold two parts of the model, each of which half of the micro
// batches run through (github.com/deepseek-ai/DualPipe); of DualPipeV all of them do.
func TestCopies(t *testing.T) {
	for schedule, times := range map[string]int64{"dualpipe": 8, "dualpipe-v": 16} {
		j, _ := job(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 8, plan: {pp: 4, schedule: "+schedule+", virtual_stages: 2}, train: {micro_batch: 1, grad_accumulation: 16}}")
		r, err := estimate.Estimate(j, estimate.Options{Detail: true})
		require.NoError(t, err)
		tree := (&Explain{Estimate: Estimate{Result: r}}).tree()
		others(t, tree)
		for i := range r.Detail.Units {
			u := &r.Detail.Units[i]
			require.True(t, slices.ContainsFunc(tree.inner, func(n *treeNode) bool { return n.calls == int64(u.Count)*times }), "%s: %s", schedule, u.Name)
		}
	}
}

// addsUp checks that the parts of every node of the tree are its whole.
func addsUp(t *rapid.T, n *treeNode, step float64) {
	var inner units.Seconds
	for _, c := range n.inner {
		inner += c.time
		addsUp(t, c, step)
	}
	if len(n.inner) > 0 {
		near(t, float64(n.time), float64(inner), step, "the parts of "+n.name)
	}
}

func sum(o ordered) (total float64) {
	for _, e := range o {
		total += float64(e.value.(units.Bytes))
	}
	return total
}

func near(t *rapid.T, want, got, scale float64, what string) {
	require.LessOrEqual(t, math.Abs(want-got), 1e-6*scale, "%s: %v, not %v", what, got, want)
}

// TestYAMLIsJSON: both carry the same keys and values.
func TestYAMLIsJSON(t *testing.T) {
	for _, e := range []*Estimate{oneGPU(t), pipeline(t)} {
		var j, y bytes.Buffer
		require.NoError(t, Write(&j, e, JSON, Style{}))
		require.NoError(t, Write(&y, e, YAML, Style{}))
		doc, err := yamlx.Parse("out.yaml", y.Bytes())
		require.NoError(t, err)
		var fromYAML, fromJSON any
		require.NoError(t, doc.Root.Decode(&fromYAML))
		text, err := json.Marshal(fromYAML)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(j.Bytes(), &fromJSON))
		require.NoError(t, json.Unmarshal(text, &fromYAML))
		require.Equal(t, fromJSON, fromYAML)
	}
}

// Plans of every kind share the columns of one CSV table.
func TestRecordsAlign(t *testing.T) {
	plain := pipeline(t)
	some := *plain.Result
	job := *some.Job
	layers := int64(4)
	job.Train.Recompute, job.Train.RecomputeMethod, job.Train.RecomputeNumLayers = "full", strategies.RecomputeBlock, &layers
	some.Job = &job
	want, _ := plain.records()
	got, rows := (&Estimate{Result: &some}).records()
	require.Equal(t, want, got)
	require.Len(t, rows[0], len(got))
	require.Equal(t, "block", rows[0][slices.Index(got, "recompute_method")])
	require.Equal(t, "4", rows[0][slices.Index(got, "recompute_num_layers")])
}

// TestRecordsTellPlansApart: no two plans have the same cells in every column.
func TestRecordsTellPlansApart(t *testing.T) {
	e := pipeline(t)
	plan := &e.Result.Job.Plan
	kept := *plan
	_, before := e.records()
	fields := reflect.ValueOf(plan).Elem()
	for i := range fields.NumField() {
		switch f := fields.Field(i); f.Kind() {
		case reflect.Int64:
			f.SetInt(f.Int() + 1)
		case reflect.Float64:
			f.SetFloat(f.Float() + 1)
		case reflect.String:
			f.SetString(f.String() + "1")
		case reflect.Pointer:
			other := f.IsNil() || !f.Elem().Bool()
			f.Set(reflect.ValueOf(&other))
		default:
			t.Fatalf("a plan's %s is a %s: say here how to change it", fields.Type().Field(i).Name, f.Kind())
		}
		_, after := e.records()
		require.NotEqual(t, before, after, "%s has no column", fields.Type().Field(i).Name)
		*plan = kept
	}
}

// TestRateOfSeveral: an op of several kernels moves all their bytes in its time.
func TestRateOfSeveral(t *testing.T) {
	one := estimate.OpDetail{Op: &tape.Op{Class: tape.Vectorized, Bytes: 80 * units.MB, Count: 1}, Time: 20 * units.Microsecond, Why: kernel.Explain{Bound: kernel.Memory}}
	many := one
	many.Op, many.Time = &tape.Op{Class: tape.Vectorized, Bytes: 80 * units.MB, Count: 16}, 16*one.Time
	require.Equal(t, "4.000 TB/s", rate(&one))
	require.Equal(t, rate(&one), rate(&many))
}

// TestHeadroom: a picked plan that leaves less of the memory than a search keeps free says so;
// one that was given, leaves enough or does not fit does not.
func TestHeadroom(t *testing.T) {
	e := oneGPU(t)
	m := &e.Result.Memory
	has := func() bool {
		return slices.ContainsFunc(e.notes(), func(n diag.Note) bool { return n.Code == "memory.headroom" })
	}
	m.Fits, m.DeviceUsed = true, 0.98*m.Capacity
	require.False(t, has(), "a plan that was given")
	e.Choice = &search.Choice{}
	require.True(t, has())
	m.DeviceUsed = 0.96 * m.Capacity
	require.False(t, has())
	m.Fits, m.DeviceUsed = false, 1.1*m.Capacity
	require.False(t, has())
}

// TestCutUnits: layers that DDP's buckets cut in two ways are one line, and recipes of layers compiled one by one what the job calls them.
func TestCutUnits(t *testing.T) {
	const model = "{model_type: decoder, hidden_size: 2048, num_hidden_layers: 12, num_attention_heads: 16, intermediate_size: 5632, gated_mlp: true, hidden_act: silu, norm: rmsnorm, position: rope, bias: false, vocab_size: 32000, tie_word_embeddings: false}"
	for runtime, title := range map[string]string{"recipe: nanogpt": "nanogpt", "recipe: nanogpt, compile_scope: layer": "nanogpt by layers"} {
		j, _ := job(t, "{model: "+model+", hardware: h200-sxm, gpus: 2, runtime: {"+runtime+"}, plan: {dp: 2, data_parallel: ddp}, train: {sequence_length: 2048, micro_batch: 8, grad_accumulation: 1, precision: bf16-pure}}")
		r, err := estimate.Estimate(j, estimate.Options{Detail: true})
		require.NoError(t, err)
		e := Estimate{Result: r}
		require.True(t, strings.HasSuffix(e.title(), ", "+title), e.title())
		var layers []string
		for _, n := range (&Explain{Estimate: e}).tree().inner {
			if strings.HasPrefix(n.name, "layer") {
				layers = append(layers, n.name)
				require.EqualValues(t, 12, n.calls)
			}
		}
		require.Equal(t, []string{"layer × 12"}, layers, runtime)
		if title == "nanogpt" {
			require.Greater(t, len(r.Detail.Units), 3, "two kinds of layers beside embedding and head")
		}
	}
}
