package estimate

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/memory"
)

// A small Qwen3-VL, that of run h100-q3vl-0: parameters by hand, of what is around the encoder's
// layers, of a layer, of the projectors of three inner layers and of the last, of the text's.
const (
	eyesText = "hidden_size: 2048, num_hidden_layers: 4, num_attention_heads: 16, num_key_value_heads: 8, head_dim: 128, intermediate_size: 6144, vocab_size: 32000"
	eyes     = "{model_type: qwen3_vl, tie_word_embeddings: false, text_config: {" + eyesText + "}, vision_config: {hidden_size: 1024, depth: 6, num_heads: 16, intermediate_size: 4096, out_hidden_size: 2048, deepstack_visual_indexes: [1, 2, 3], patch_size: 16}}"

	eyeH, eyeF, eyeM, textH = 1024, 4096, 4 * 1024, 2048 // widths of the encoder, of its MLP, of what is merged, of the text

	eyePatches   = eyeH*3*2*16*16 + eyeH + 2304*eyeH
	eyeLayer     = 4*(eyeH*eyeH+eyeH) + 2*eyeH*eyeF + eyeF + eyeH + 2*2*eyeH
	eyeProducts  = eyeM*eyeM + eyeM + eyeM*textH + textH
	eyeInner     = 2*eyeM + eyeProducts
	eyeProjector = 2*eyeH + eyeProducts
	textEmbed    = 32000 * textH
	textLayer    = textH*(16+2*8)*128 + 16*128*textH + 3*textH*6144 + 2*textH + 2*128
	textHead     = textEmbed + textH

	eyeEncoder    = eyePatches + 6*eyeLayer
	eyeProjectors = 3*eyeInner + eyeProjector
	textAll       = textEmbed + 4*textLayer + textHead
)

// frozenParts are what images leave frozen, and how many parameters that is.
var frozenParts = map[string]float64{"[]": 0, "[encoder]": eyeEncoder, "[projector]": eyeProjectors, "[encoder, projector]": eyeEncoder + eyeProjectors}

// visionJob is a step of that model; images are left out where train gives none.
func visionJob(recipe string, gpus int, plan, train string) string {
	return fmt.Sprintf("{model: %s, hardware: h100-sxm, gpus: %d, runtime: {recipe: %s}, plan: {%s}, train: {sequence_length: 4096, micro_batch: 1, %s}}", eyes, gpus, recipe, plan, train)
}

// sees is the prediction of a job and what made it.
func sees(t testing.TB, job string) (*Result, *Evaluator) {
	t.Helper()
	e := new(Evaluator)
	r, err := e.Estimate(mustParse(t, job), Options{Detail: true})
	require.NoError(t, err, job)
	return r, e
}

// unitsNamed are units by name, which must not be left out.
func unitsNamed(t testing.TB, r *Result) map[string]UnitDetail {
	t.Helper()
	out := map[string]UnitDetail{}
	for _, u := range r.Detail.Units {
		out[u.Name] = u
	}
	return out
}

// productFLOPs are those of matrix products, and of attention, in a pass.
func productFLOPs(pass []OpDetail) (products, attention float64) {
	for _, d := range pass {
		switch d.Op.Class {
		case tape.GEMM, tape.GroupedGEMM:
			products += float64(d.Op.FLOPs)
		case tape.Attention:
			attention += float64(d.Op.FLOPs)
		}
	}
	return
}

// TestFrozenEncoder: what is frozen runs forward as if it were trained, but no kernel runs
// backward for it, and it has neither gradients nor states of the optimizer (bf16: 2 bytes of a
// gradient, 4 of states). A trained projector behind a frozen encoder runs backward alone.
func TestFrozenEncoder(t *testing.T) {
	const images = "precision: bf16-pure, images: {per_sequence: 2, size: 768, frozen: %s}"
	all, _ := sees(t, visionJob("hf-eager", 1, "dp: 1", fmt.Sprintf(images, "[]")))
	trained := unitsNamed(t, all)
	for frozen, parameters := range frozenParts {
		r, e := sees(t, visionJob("hf-eager", 1, "dp: 1", fmt.Sprintf(images, frozen)))
		const total = textAll + eyeEncoder + eyeProjectors
		require.InEpsilon(t, 2*total, float64(r.Memory.By[memory.Parameters]), 1e-3, frozen)
		require.InEpsilon(t, 4*(total-parameters), float64(r.Memory.By[memory.OptimizerStates]), 1e-3, frozen)
		gradients := 0.
		for _, u := range e.sim.layout.ranks[0].list {
			for _, g := range u.backward.grads {
				gradients += float64(u.Params[g.Param].Local)
			}
		}
		require.InDelta(t, total-parameters, gradients, 0, frozen)
		for name, u := range unitsNamed(t, r) {
			require.Equal(t, trained[name].Count, u.Count, "%s: %s", frozen, name)
			require.Len(t, u.Forward, len(trained[name].Forward), "%s: %s", frozen, name)
			still := strings.Contains(frozen, "encoder") && (name == "vision patches" || name == "vision layer") || frozen == "[encoder, projector]" && strings.HasPrefix(name, "vision")
			require.Equal(t, still, len(u.Backward) == 0, "%s: %s", frozen, name)
		}
		require.InEpsilon(t, float64(all.Forward), float64(r.Forward), 0.02, frozen)
		if parameters > 0 {
			require.Less(t, r.Backward, all.Backward, frozen)
			require.Less(t, r.Optimizer, all.Optimizer, frozen)
			require.Less(t, r.Memory.PeakAllocated, all.Memory.PeakAllocated, frozen)
		}
	}
}

// runJob is the job of a measured run.
func runJob(t testing.TB, id string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "calibrate", "runs", "data", "vision.yaml"))
	require.NoError(t, err)
	var file struct{ Runs []map[string]any }
	require.NoError(t, yaml.Unmarshal(text, &file))
	i := slices.IndexFunc(file.Runs, func(r map[string]any) bool { return r["id"] == id })
	require.GreaterOrEqual(t, i, 0, id)
	maps.DeleteFunc(file.Runs[i], func(k string, _ any) bool {
		return !slices.Contains([]string{"model", "hardware", "gpus", "runtime", "plan", "train"}, k)
	})
	job, err := yaml.Marshal(file.Runs[i])
	require.NoError(t, err)
	return string(job)
}

// TestKernelsOfImages: kernels of attention and of matrix products by hand, in a prediction and
// in a trace of the same step (calibrate/trace/testdata). Attention of an encoder is called once
// for each image of a sequence of patches, or for each window of it, 24 in 448 by 672 pixels of
// which a window is 112 by 112; else once for all. A call backward is three kernels, and one
// more for keys and for values that heads of the text share. The last layer of LLaVA's
// encoder, which nothing reads, only runs forward; every other matrix is multiplied three times.
func TestKernelsOfImages(t *testing.T) {
	const images = 4
	for id, c := range map[string]struct{ attention, products int }{
		"h100-q3vl-0":   {4*(6*images+4) + 2*4, 3 * (6*4 + 4*2 + 4*7 + 1)},
		"h100-q25vl-0":  {4*((6*4*6+2)*images+4) + 2*4, 3 * (8*5 + 2 + 4*7 + 1)},
		"h100-llava-0":  {4*(7+4) + 1, 3*(7*6+2+4*7+1) + 6},
		"h100-gemma3-0": {4 * (6 + 6), 3 * (6*6 + 1 + 6*7 + 1)}, // a mask of all pairs has keys and values of every head
	} {
		r, _ := sees(t, runJob(t, id))
		attention, products := 0, 0
		for _, u := range r.Detail.Units {
			for _, d := range slices.Concat(u.Forward, u.Backward) {
				n := u.Count * int(d.Op.Count)
				switch {
				case strings.HasPrefix(d.Op.Prim, "attention") && d.Op.Prim != "attention_mask":
					attention += n
				case d.Op.Class == tape.GEMM:
					products += n
				}
			}
		}
		require.Equal(t, [2]int{c.attention, c.products}, [2]int{attention, products}, id)

		text, err := os.ReadFile(filepath.Join("..", "..", "calibrate", "trace", "testdata", id+".rank0.json"))
		require.NoError(t, err)
		var trace struct {
			Kernels []struct {
				Class string
				Count float64
			}
		}
		require.NoError(t, json.Unmarshal(text, &trace))
		traced := map[string]float64{}
		for _, k := range trace.Kernels {
			traced[k.Class] += k.Count
		}
		require.InDelta(t, float64(c.attention), traced["attention"], 0, id)
		require.InEpsilon(t, float64(c.products), traced["gemm"], 0.05, "%s: rotary tables are products, too", id)
	}
}

// TestImagesTakeTime: without images a model is its language model, to the last digit. Kernels
// of each further image take as long as those of the one before, those of larger ones longer;
// so does a step, where it no longer waits for its host, as that of transformers from three on.
func TestImagesTakeTime(t *testing.T) {
	blind, err := parse(strings.Replace(visionJob("hf-eager", 1, "dp: 1", ""), eyes, "{model_type: qwen3, tie_word_embeddings: false, "+eyesText+"}", 1))
	require.NoError(t, err)
	text, _ := sees(t, visionJob("hf-eager", 1, "dp: 1", ""))
	require.Equal(t, figuresOf(t, mustEstimate(t, blind)), figuresOf(t, mustEstimate(t, text.Job)))

	for _, recipe := range []string{"hf-eager", "megatron-core"} {
		var steps, kernels []float64
		for n := 1; n <= 6; n++ {
			r, _ := sees(t, visionJob(recipe, 1, "dp: 1", fmt.Sprintf("images: {per_sequence: %d, size: 768}", n)))
			steps, kernels = append(steps, float64(r.StepTime)), append(kernels, float64(r.Parts.GEMM+r.Parts.Attention+r.Parts.Memory))
		}
		require.Greater(t, steps[0], float64(mustEstimate(t, mustParse(t, visionJob(recipe, 1, "dp: 1", ""))).StepTime), recipe)
		each := (kernels[5] - kernels[0]) / 5
		require.Greater(t, each, 0.05*kernels[0], recipe)
		for n := 1; n < 6; n++ {
			require.Greater(t, steps[n], steps[n-1], "%s: image %d", recipe, n+1)
			require.InEpsilon(t, each, kernels[n]-kernels[n-1], 0.15, "%s: image %d", recipe, n+1)
			if n > 2 && recipe == "hf-eager" {
				require.InEpsilon(t, each, steps[n]-steps[n-1], 0.2, "%s: image %d", recipe, n+1)
			}
		}
	}
	before := &Result{}
	for _, size := range []string{"256", "256x512", "512", "1024"} {
		r, _ := sees(t, visionJob("hf-eager", 1, "dp: 1", "images: {per_sequence: 2, size: "+size+"}"))
		require.Greater(t, r.ModelFLOPs, before.ModelFLOPs, size)
		require.Greater(t, r.Memory.PeakAllocated, before.Memory.PeakAllocated, size)
		require.Greater(t, r.Parts.GEMM, before.Parts.GEMM, size)
		before = r
	}
}

// TestModelFLOPsOfImages: an encoder's by hand. Matrices take two FLOPs of each element for each
// patch, or token, and attention four of each pair of patches and element of a head; backward
// as much again for weights, and for inputs but pixels. Frozen ones are passed forward alone,
// but a trained projector's norm asks for gradients of its products' inputs.
func TestModelFLOPsOfImages(t *testing.T) {
	const (
		patches, tokens = 3 * 48 * 48., 3 * 24 * 24.
		first           = 2 * patches * eyeH * 3 * 2 * 16 * 16
		layers          = 6 * (2*patches*(4*eyeH*eyeH+2*eyeH*eyeF) + 4*patches*48*48*eyeH)
		projectors      = 4 * 2 * tokens * (eyeM*eyeM + eyeM*textH)
		sequences       = 4 * 3 // of four replicas, three micro batches each
	)
	const plan, train = "dp: 4, data_parallel: ddp", "grad_accumulation: 3"
	text, _ := sees(t, visionJob("hf-eager", 4, plan, train))
	for frozen, want := range map[string]float64{
		"[]":                   2*first + 3*layers + 3*projectors,
		"[encoder]":            first + layers + 3*projectors,
		"[projector]":          2*first + 3*layers + 2*projectors,
		"[encoder, projector]": first + layers + projectors,
	} {
		for _, recompute := range []string{"none", "full"} { // which is no model FLOPs
			r, _ := sees(t, visionJob("hf-eager", 4, plan, train+", recompute: "+recompute+", images: {per_sequence: 3, size: 768, frozen: "+frozen+"}"))
			require.InEpsilon(t, sequences*want, float64(r.ModelFLOPs-text.ModelFLOPs), 1e-9, "%s %s", frozen, recompute)
			require.InEpsilon(t, float64(r.ModelFLOPs)/(float64(r.StepTime)*4*float64(r.Peak)), r.MFU, 1e-9, frozen)
			require.Equal(t, recompute == "full", r.HFU > r.MFU*1.01, "%s %s", frozen, recompute)
		}
	}
}

// TestRecomputedEncoder: full recomputation runs layers of the encoder twice forward, as those
// of the text, but neither what is around them nor layers that are frozen, nothing of which is
// kept; selective recomputation is of the text's alone. PyTorch's stops when all that was saved
// is there, before the last product of a layer (torch/utils/checkpoint.py, early_stop).
func TestRecomputedEncoder(t *testing.T) {
	const eyeStops, textStops = 2 + 8./12, 2 + (3*2048*2048+2*2048*6144.)/(3*2048*2048+3*2048*6144)
	for _, c := range []struct {
		recipe, recompute, frozen string
		layer, text               float64 // products backward over those forward
	}{
		{"hf-eager", "none", "[]", 2, 2},
		{"hf-eager", "full", "[]", eyeStops, textStops},
		{"hf-eager", "full", "[projector]", eyeStops, textStops},
		{"hf-eager", "full", "[encoder]", 0, textStops},
		{"hf-eager", "full", "[encoder, projector]", 0, textStops},
		{"megatron-core", "none", "[]", 2, 2},
		{"megatron-core", "selective", "[]", 2, 2},
		{"megatron-core", "full", "[]", 3, 3},
	} {
		r, _ := sees(t, visionJob(c.recipe, 1, "dp: 1", fmt.Sprintf("recompute: %s, images: {per_sequence: 2, size: 768, frozen: %s}", c.recompute, c.frozen)))
		u := unitsNamed(t, r)
		for name, want := range map[string]float64{"vision layer": c.layer, "layer": c.text} {
			forward, attends := productFLOPs(u[name].Forward)
			backward, attended := productFLOPs(u[name].Backward)
			require.Positive(t, attends, name)
			require.InDelta(t, want, backward/forward, 1e-9, "%v: %s", c, name)
			if name == "vision layer" { // 2.5 for gradients
				require.InDelta(t, map[bool]float64{false: 2.5 * min(want, 1), true: 3.5}[want > 2], attended/attends, 1e-9, "%v", c)
			}
		}
		if c.frozen == "[]" {
			for _, name := range []string{"vision projector", "vision inner projector"} {
				forward, _ := productFLOPs(u[name].Forward)
				backward, _ := productFLOPs(u[name].Backward)
				require.InDelta(t, 2, backward/forward, 1e-9, "%v: %s", c, name)
			}
		}
	}
	peak := func(recompute string) float64 {
		r, _ := sees(t, visionJob("hf-eager", 1, "dp: 1", "recompute: "+recompute+", images: {per_sequence: 7, size: 768}"))
		return float64(r.Memory.PeakAllocated)
	}
	require.Less(t, peak("full"), 0.65*peak("none"))
}

// TestEncoderUnderFSDP2: layers of the encoder are units of sharding as those of the text are.
// All else, of both, is in the root, which is gathered with it and reduced with it. Each unit is
// gathered for either pass that it has, in 16 bits, and what is trained of it is reduced in 32.
func TestEncoderUnderFSDP2(t *testing.T) {
	const root = textEmbed + textHead + eyePatches + eyeProjectors
	type calls map[int64]int64 // by bytes
	for frozen, want := range map[string]struct{ gathers, reductions calls }{
		"[]":                   {calls{2 * root: 2, 2 * textLayer: 2 * 4, 2 * eyeLayer: 2 * 6}, calls{4 * root: 1, 4 * textLayer: 4, 4 * eyeLayer: 6}},
		"[projector]":          {calls{2 * root: 2, 2 * textLayer: 2 * 4, 2 * eyeLayer: 2 * 6}, calls{4 * (root - eyeProjectors): 1, 4 * textLayer: 4, 4 * eyeLayer: 6}},
		"[encoder, projector]": {calls{2 * root: 2, 2 * textLayer: 2 * 4, 2 * eyeLayer: 6}, calls{4 * (textEmbed + textHead): 1, 4 * textLayer: 4}},
		"[encoder]":            {calls{2 * root: 2, 2 * textLayer: 2 * 4, 2 * eyeLayer: 6}, calls{4 * (root - eyePatches): 1, 4 * textLayer: 4}}, // though inner projectors between them run backward
	} {
		r, _ := sees(t, visionJob("hf-eager", 4, "dp: 4, data_parallel: fsdp2", "images: {per_sequence: 2, size: 768, frozen: "+frozen+"}"))
		got := map[string]calls{"all-gather": {}, "reduce-scatter": {}}
		for _, c := range r.Detail.Collectives {
			require.Equal(t, "shard", c.Group)
			got[c.Kind][int64(c.Bytes)] += c.Count
		}
		require.Equal(t, want.gathers, got["all-gather"], frozen)
		require.Equal(t, want.reductions, got["reduce-scatter"], frozen)
		require.InEpsilon(t, 4*(textAll+eyeEncoder+eyeProjectors)/4, float64(r.Memory.By[memory.Parameters]), 1e-3, "shards of fp32")
	}
}

// TestFrozenStage: a stage of a pipeline all of whose parameters are frozen has no backward
// pass to gather for. Here it is the embedding, beside adapters.
func TestFrozenStage(t *testing.T) {
	r := mustEstimate(t, mustParse(t, "{model: llama3.2-1b, hardware: h100-sxm, gpus: 4, runtime: {recipe: hf-eager}, plan: {pp: 2, stage_layers: '[0, 16]', data_parallel: fsdp2}, train: {sequence_length: 4096, micro_batch: 1, lora: {rank: 8}}}"))
	require.Positive(t, float64(r.StepTime))
}

// TestEncoderSplits: tensor ranks of Megatron cut matrices of the encoder's layers and of its
// projectors, but not what projects patches; each rank has what the others have of norms and of
// biases after a row. No product and no attention is done twice.
func TestEncoderSplits(t *testing.T) {
	const (
		layerWhole = 2*eyeH + 4*eyeH // biases of the output and of the MLP's, norms
		projWhole  = textH
	)
	var products, attention float64
	for _, tp := range []int64{1, 2, 4, 8} {
		r, _ := sees(t, visionJob("megatron-core", int(tp), fmt.Sprintf("tp: %d", tp), "images: {per_sequence: 2, size: 768}"))
		u := unitsNamed(t, r)
		for name, want := range map[string]int64{
			"vision patches":         eyePatches,
			"vision layer":           (eyeLayer-layerWhole)/tp + layerWhole,
			"vision inner projector": (eyeProducts-projWhole)/tp + projWhole + 2*eyeM,
			"vision projector":       (eyeProducts-projWhole)/tp + projWhole + 2*eyeH,
		} {
			require.Equal(t, want, u[name].Params, "tp %d: %s", tp, name)
		}
		var p, a float64
		for _, name := range []string{"vision layer", "vision inner projector", "vision projector"} {
			x, y := productFLOPs(slices.Concat(u[name].Forward, u[name].Backward))
			p, a = p+float64(tp)*x, a+float64(tp)*y
		}
		if tp == 1 {
			products, attention = p, a
		}
		require.InEpsilon(t, products, p, 1e-9, "tp %d", tp)
		require.InEpsilon(t, attention, a, 1e-9, "tp %d", tp)
	}
}

// TestEncoderInAPipeline: the encoder is before the embedding, on the first stage, wherever that
// is; no plan is below its floors.
func TestEncoderInAPipeline(t *testing.T) {
	for _, plan := range []string{"pp: 2", "pp: 4", "pp: 2, virtual_stages: 2", "pp: 2, stage_layers: '[9, 3]'", "pp: 2, schedule: gpipe", "pp: 2, schedule: zb-h1"} {
		for frozen, parameters := range frozenParts {
			deeper := func(job string) string {
				return strings.Replace(job, "num_hidden_layers: 4", "num_hidden_layers: 12", 1)
			}
			job := deeper(visionJob("megatron-core", 4, plan, "images: {per_sequence: 2, size: 768, frozen: "+frozen+"}"))
			r, e := sees(t, job)
			for rank, held := range e.sim.layout.ranks {
				var names []string
				for _, u := range held.list {
					if strings.HasPrefix(u.Name, "vision") {
						names = append(names, strings.TrimPrefix(u.Name, "vision "))
					}
				}
				if rank > 0 {
					require.Empty(t, names, "%s: rank %d", plan, rank)
					continue
				}
				require.Equal(t, []string{"patches", "layer", "layer", "inner projector", "layer", "inner projector", "layer", "inner projector", "layer", "layer", "projector"}, names, plan)
			}
			text, _ := sees(t, deeper(visionJob("megatron-core", 4, plan, "")))
			require.InDelta(t, float64(text.Stages[0].Params+eyeEncoder+eyeProjectors), float64(r.Stages[0].Params), 0, plan)
			require.Greater(t, r.Stages[0].Forward, text.Stages[0].Forward, plan)
			trained := eyeEncoder + eyeProjectors - parameters
			still, _ := sees(t, deeper(visionJob("megatron-core", 4, plan, "images: {per_sequence: 2, size: 768, frozen: [encoder, projector]}")))
			require.Equal(t, trained > 0, r.Stages[0].Backward > 1.01*still.Stages[0].Backward, "%s %s", plan, frozen)

			floor, err := e.FloorTime(r.Job)
			require.NoError(t, err)
			require.LessOrEqual(t, float64(floor), float64(r.StepTime), "%s %s", plan, frozen)
			least, err := e.FloorPeak(r.Job)
			require.NoError(t, err)
			require.LessOrEqual(t, float64(least), float64(r.Memory.DeviceUsed), "%s %s", plan, frozen)
		}
	}
}

// TestImagesAddUp: whatever the encoder, its software and the kind of data parallelism, parts
// are the whole, and no plan is below its floors.
func TestImagesAddUp(t *testing.T) {
	ran := 0
	var e Evaluator // of all, which have much of their encoders in common
	models := []string{"qwen3-vl-2b", "qwen2.5-vl-3b", "qwen2-vl-7b", "gemma3-4b", "llava-1.5-7b", "qwen3-vl-30b-a3b"}
	if testing.Short() {
		models = models[:1] // an Evaluator starts nothing that could race
	}
	for _, model := range models {
		size := ", size: 448"
		if strings.HasPrefix(model, "gemma3") || strings.HasPrefix(model, "llava") {
			size = ""
		}
		for _, recipe := range []string{"hf-eager", "automodel", "deepspeed-hf", "megatron-core", "megatron-pretrain"} {
			for _, kind := range kinds {
				for frozen := range frozenParts {
					job := fmt.Sprintf("{model: %s, hardware: h200-sxm, gpus: 8, runtime: {recipe: %s}, plan: {dp: 8, data_parallel: %s}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 3, images: {per_sequence: 2%s, frozen: %s}}}", model, recipe, kind, size, frozen)
					j, err := parse(job)
					if err != nil {
						continue // the software has no such kind, or does not run the encoder
					}
					ran++
					r, err := e.Estimate(j, Options{})
					require.NoError(t, err, job)
					require.InEpsilon(t, float64(r.StepTime), float64(r.Parts.Total()), 1e-9, job)
					require.InEpsilon(t, float64(r.Memory.PeakAllocated), float64(r.Memory.By.Total()), 1e-9, job)
					require.GreaterOrEqual(t, r.HFU, r.MFU*(1-1e-9), job)
					least, err := e.FloorPeak(j)
					require.NoError(t, err)
					require.LessOrEqual(t, float64(least), float64(r.Memory.DeviceUsed), job)
					floor, err := e.FloorTime(j)
					require.NoError(t, err)
					require.LessOrEqual(t, float64(floor), float64(r.StepTime), job)
				}
			}
		}
	}
	require.Greater(t, ran, 50*len(models))
}

// BenchmarkImages is one estimate of an 8B job with images, whose encoder has layers of its own.
func BenchmarkImages(b *testing.B) {
	for name, text := range map[string]string{
		"fsdp2":   "{model: qwen3-vl-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2}, train: {sequence_length: 8192, images: {per_sequence: 4, size: 1024x768}}}",
		"windows": "{model: qwen2.5-vl-7b, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2}, train: {sequence_length: 8192, images: {per_sequence: 4, size: 896}}}",
		"tp2+pp2": "{model: qwen3-vl-8b, gpus: 8, plan: {tp: 2, pp: 2}, train: {global_batch: 32, images: {per_sequence: 2, size: 768}}}",
	} {
		j := mustParse(b, text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Estimate(j, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
