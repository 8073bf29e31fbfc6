package estimate

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/pipeline"
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
		name := pick("model", model.Names())
		m, err := model.Load(name)
		require.NoError(t, err)
		stages := "" // as the recipe has them
		if rapid.Bool().Draw(t, "scheduled") {
			virtual := small("virtual stages", 1, 1, 2)
			stages = fmt.Sprintf(", schedule: %s, virtual_stages: %d", pick("schedule", pipeline.Names()), virtual)
			if n := pp * virtual; rapid.Bool().Draw(t, "by hand") {
				layers := rapid.OneOf(rapid.Int64Range(1, max(m.Layers/int64(n), 1)), rapid.SampledFrom([]int64{0, math.MaxInt64}))
				list, first := rapid.SliceOfN(layers, n-1, n-1).Draw(t, "layers"), m.Layers
				for _, k := range list {
					first -= k
				}
				numbers, err := json.Marshal(append([]int64{first}, list...))
				require.NoError(t, err)
				stages += ", stage_layers: " + string(numbers)
			}
		}
		text := fmt.Sprintf("{model: %s, hardware: %s, gpus: %d, runtime: {recipe: %s, attention: %s}, plan: {tp: %d, cp: %d, pp: %d, ep: %d, data_parallel: %s%s}, train: {sequence_length: %d, micro_batch: %d, grad_accumulation: %d, precision: %s, recompute: %s}}",
			name, pick("hardware", hardware.Names()), tp*cp*pp*small("dp", 1, 2, 3, 16), of, pick("attention", strategies.Attentions),
			tp, cp, pp, small("ep", 1, 1, 2, 4), pick("data_parallel", kinds), stages,
			small("sequence", 1, 100, 1024), small("micro", 1, 3), small("accumulation", 1, 3), pick("precision", slices.Sorted(maps.Keys(r.Precision))), pick("recompute", strategies.Recomputes))
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

// TestMachinesNobodyBuilds: whatever a profile may say of a machine, its steps take a
// time, and finding it does not take long.
func TestMachinesNobodyBuilds(t *testing.T) {
	facts := []string{
		"sms: 1", "sms: 16", "sms: 32", "sms: 1024", "bandwidth: 1 GB/s", "bandwidth: 100 TB/s", "max_clock: 1 MHz", "max_clock: 1000 GHz", "power: 1 W", "power: 1000000 W",
		"nvlink: 1 B/s", "nvlink: 100 TB/s", "l2: 1 B", "l2: 1 TiB", "peak: {bf16: 0.001 TFLOP/s}", "peak: {bf16: 1000000 TFLOP/s}",
	}
	for _, f := range facts {
		for _, kind := range []string{"zero1", "fsdp2"} {
			text := fmt.Sprintf("{model: llama2-7b, hardware: {inherits: h100-sxm, gpu: {%s}}, gpus: 16, plan: {data_parallel: %s}, train: {grad_accumulation: 2}}", f, kind)
			j := mustParse(t, text)
			done := make(chan units.Seconds, 1)
			go func() {
				r, err := Estimate(j, Options{})
				if err != nil {
					t.Error(text, err)
				}
				done <- r.StepTime
			}()
			select {
			case step := <-done:
				require.Greater(t, float64(step), 0.0, text)
				require.False(t, math.IsInf(float64(step), 0), text)
			case <-time.After(10 * time.Second):
				require.Fail(t, "no end in 10 s", text)
			}
		}
	}
}

// TestTF32: fp32 runs in TF32 where the GPU has it, and is said to; without it on the
// vector units, which then are what MFU is a share of.
func TestTF32(t *testing.T) {
	job := func(more string) string {
		return "{model: tinyllama-1.1b, gpus: 1, plan: {}, train: {precision: fp32}, " + more + "}"
	}
	silent := mustParse(t, job("hardware: h100-sxm"))
	require.Contains(t, strings.Join(silent.Defaulted, "\n"), "runtime.tf32 = true (training scripts")
	vector, tensor := mustEstimate(t, mustParse(t, job("hardware: h100-sxm, runtime: {tf32: false}"))), mustEstimate(t, silent)
	require.Greater(t, float64(vector.Parts.GEMM), 5*float64(tensor.Parts.GEMM))
	cycles := func(r *Result) float64 { return float64(r.Parts.Attention) * float64(r.Clock) }
	require.InEpsilon(t, cycles(vector), cycles(tensor), 0.02, "the same kernel, at the clock that power leaves")
	require.InDelta(t, 66.9e12, float64(vector.Peak), 1e9) // NVIDIA H100 white paper
	require.InDelta(t, 494.7e12, float64(tensor.Peak), 1e9)
	old := mustParse(t, job("hardware: v100-32g-sxm"))
	require.NotContains(t, strings.Join(old.Defaulted, "\n"), "tf32")
	require.InDelta(t, 15.7e12, float64(mustEstimate(t, old).Peak), 1e9) // NVIDIA V100 datasheet
	// torchtitan trains without allow_tf32 and set_float32_matmul_precision (b5bcd76, git log -S)
	for _, recipe := range []string{"torchtitan", "torchtitan-eager"} {
		plain := mustParse(t, job("hardware: h100-sxm, runtime: {recipe: "+recipe+"}"))
		require.Contains(t, strings.Join(plain.Defaulted, "\n"), "runtime.tf32 = false (the framework leaves PyTorch's default)")
		require.InDelta(t, 66.9e12, float64(mustEstimate(t, plain).Peak), 1e9)
		require.True(t, mustParse(t, job("hardware: h100-sxm, runtime: {tf32: true, recipe: "+recipe+"}")).TF32())
	}
	mixed := mustParse(t, "{model: tinyllama-1.1b, gpus: 1, plan: {}, hardware: h100-sxm}")
	require.NotContains(t, strings.Join(mixed.Defaulted, "\n"), "tf32")
	_, err := parse(job("hardware: v100-32g-sxm, runtime: {tf32: true}"))
	require.ErrorContains(t, err, "runtime.tf32: Tesla V100-SXM2-32GB has no tensor cores for TF32")
	_, err = parse("{model: tinyllama-1.1b, plan: {}, train: {precision: tf32}}")
	require.ErrorContains(t, err, "use fp32, and leave runtime.tf32 on")
	_, err = parse("{model: tinyllama-1.1b, plan: {}, train: {dtypes: {gemm: tf32}}}")
	require.ErrorContains(t, err, "runtime.tf32 says how")
}

// TestNoTensorCores: what a GPU's tensor cores do not take is refused, and is no default
// where the recipe has fp16.
func TestNoTensorCores(t *testing.T) {
	job := func(more string) string { return "{model: tinyllama-1.1b, gpus: 1, plan: {}, " + more + "}" }
	for recipe, from := range map[string]string{"megatron-core": "bf16", "hf-eager": "bf16-mixed"} {
		old := mustParse(t, job("hardware: t4, runtime: {recipe: "+recipe+"}"))
		require.Equal(t, "fp16", old.Train.Precision)
		require.Contains(t, old.Defaulted, "train.precision = fp16 (Tesla T4 has no tensor cores for the "+from+" of recipe "+recipe+")")
		require.InDelta(t, 65e12, float64(mustEstimate(t, old).Peak), 1e9) // NVIDIA T4 datasheet
	}
	for more, want := range map[string]string{
		"hardware: t4, train: {precision: bf16}":                                                        "bf16 multiplies in bf16, which Tesla T4 has no tensor cores for; use fp16, fp32 or another GPU",
		"hardware: v100-32g-sxm, runtime: {recipe: torchtitan}":                                         "which Tesla V100-SXM2-32GB has no tensor cores for; use fp32 or another GPU",
		"hardware: v100-32g-sxm, runtime: {recipe: nanotron}":                                           "which Tesla V100-SXM2-32GB has no tensor cores for; use another GPU",
		"hardware: rtx-pro-6000-blackwell, runtime: {recipe: megatron-core}, train: {precision: nvfp4}": "nvfp4 multiplies in fp4, which NVIDIA RTX PRO 6000 Blackwell Server Edition can, but how fast is not known; use bf16, ",
		"hardware: rtx-5090, runtime: {recipe: megatron-core}, train: {precision: mxfp8}":               "mxfp8 multiplies in mxfp8, which NVIDIA GeForce RTX 5090 can, but how fast is not known; use ",
		"hardware: rtx-5090, runtime: {recipe: megatron-core}, train: {precision: fp8-block}":           "which NVIDIA GeForce RTX 5090 has no tensor cores for",
		"hardware: rtx-4090, runtime: {recipe: megatron-core}, train: {precision: nvfp4}":               "which NVIDIA GeForce RTX 4090 has no tensor cores for",
		"hardware: a100-80g-sxm, train: {precision: fp8}":                                               "fp8 multiplies in fp8, which NVIDIA A100-SXM4-80GB has no tensor cores for; use bf16, fp16, fp32 or another GPU",
		"hardware: t4, train: {precision: fp16, dtypes: {compute: bf16}}":                               "fp16 multiplies in bf16, which Tesla T4",
		"hardware: a100-80g-sxm, train: {precision: bf16, dtypes: {gemm: fp8}}":                         "bf16 multiplies in fp8",
	} {
		_, err := parse(job(more))
		require.ErrorContains(t, err, want)
	}
}

// TestOldAttention: GPUs before Ampere run no FlashAttention 2 and no fused attention of
// Transformer Engine: it is no default there, and refused where it is asked for.
func TestOldAttention(t *testing.T) {
	job := func(machine, runtime string) string {
		return fmt.Sprintf("{model: gpt2, gpus: 1, plan: {}, hardware: %s, runtime: {%s}, train: {precision: fp16}}", machine, runtime)
	}
	for _, c := range []struct{ machine, runtime, want, told string }{
		{"v100-32g-sxm", "recipe: megatron-core", "unfused", "runtime.attention = unfused (Tesla V100-SXM2-32GB does not run the flash attention of recipe megatron-core)"},
		{"t4", "recipe: megatron-core", "unfused", "runtime.attention = unfused (Tesla T4 does not run the flash attention of recipe megatron-core)"},
		{"t4", `recipe: megatron-core, release: "23.06"`, "flash", ""}, // FlashAttention 1
		{"v100-32g-sxm", "recipe: megatron-lm", "unfused", ""},
		{"v100-32g-sxm", "recipe: hf-eager", "sdpa", ""}, // PyTorch's memory-efficient kernel
		{"a100-80g-sxm", "recipe: megatron-core", "flash", ""},
	} {
		j := mustParse(t, job(c.machine, c.runtime))
		require.Equal(t, c.want, j.Runtime.Attention, "%s, %s", c.machine, c.runtime)
		at := slices.IndexFunc(j.Defaulted, func(d string) bool { return strings.HasPrefix(d, "runtime.attention") })
		require.Equal(t, c.told != "", at >= 0, "%s, %s", c.machine, c.runtime)
		if at >= 0 {
			require.Equal(t, c.told, j.Defaulted[at])
		}
		mustEstimate(t, j)
	}
	for _, c := range []struct{ machine, runtime, want string }{
		{"v100-32g-sxm", "attention: flash-attn", "runtime.attention: flash-attn, whose kernels Tesla V100-SXM2-32GB does not run; use unfused or a GPU of the Ampere generation or later"},
		{"v100-32g-sxm", `recipe: megatron-core, release: "23.06", attention: flash`, "runtime.attention: flash, whose kernels"},
		{"a100-80g-sxm", "attention: flash-attn-3", "runtime.attention: flash-attn-3, whose kernels NVIDIA A100-SXM4-80GB does not run; use flash-attn, unfused or a Hopper GPU"},
		{"t4", "recipe: hf-eager, attention: flash", "runtime.attention: flash, whose kernels Tesla T4 does not run; use sdpa, unfused or a GPU of the Ampere generation or later"},
	} {
		_, err := parse(job(c.machine, c.runtime))
		require.ErrorContains(t, err, c.want)
	}
}

// TestWideRange: the note names what makes a range wide, and a remedy that helps.
func TestWideRange(t *testing.T) {
	for job, want := range map[string]string{
		"{model: llama2-7b, hardware: h200-sxm, gpus: 8, runtime: {recipe: nanotron}, plan: {tp: 2}}":                                              "recipe nanotron, whose published steps are as far from predictions",
		"{model: mixtral-8x7b, hardware: h200-sxm, gpus: 8, plan: {ep: 8}}":                                                                        "experts, whose load and messages vary",
		"{model: qwen3-235b-a22b, hardware: aws-p6-b300, gpus: 64, plan: {tp: 8, pp: 2, dp: 4, ep: 32}, runtime: {recipe: megatron-core}}":         "experts' exchanges over efa, which take longer in training than alone",
		"{model: llama2-7b, hardware: b200-sxm, gpus: 8, plan: {}}":                                                                                "what the model leaves out",
		"{model: llama2-7b, hardware: b200-sxm, gpus: 8, plan: {tp: 2}}":                                                                           "the host",
		"{model: mixtral-8x7b, hardware: h200-sxm, gpus: 64, plan: {ep: 8}}":                                                                       "the network between nodes",
		"{model: gpt2, hardware: h100-sxm, gpus: 1, runtime: {recipe: hf-eager}, plan: {}}":                                                        "the host",
		"{model: llama2-7b, hardware: aws-p5, gpus: 512, runtime: {recipe: torchtitan}, plan: {}, train: {sequence_length: 1024, micro_batch: 1}}": "the network between nodes",
	} {
		r := mustEstimate(t, mustParse(t, job))
		at := slices.IndexFunc(r.Notes, func(n diag.Note) bool { return n.Code == "range.wide" })
		require.GreaterOrEqual(t, at, 0, job)
		require.Regexp(t, `^the step time is uncertain by [0-9]+ % \(one standard deviation\), most of all because of `+want+"$", r.Notes[at].Text)
		require.Equal(t, want == "what the model leaves out" || strings.HasPrefix(want, "the "), strings.Contains(r.Notes[at].Remedy, "calibrate"), job)
	}
}

// TestUnknownNCCL: a machine whose NCCL is older or newer than what is known of it says what stands
// for its constants, where it sends anything.
func TestUnknownNCCL(t *testing.T) {
	for _, c := range []struct {
		nccl string
		gpus int
		want string
	}{
		{"2.10.3", 8, "the constants of NCCL 2.18.1, the first that are known, stand for those of 2.10.3"},
		{"9.9", 8, "the last that are known, stand for those of 9.9.0"},
		{"2.28.9", 8, ""},
		{"9.9", 1, ""},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf("{model: gpt2, hardware: {inherits: h100-sxm, software: {nccl: %s}}, gpus: %d, plan: {}}", c.nccl, c.gpus)))
		at := slices.IndexFunc(r.Notes, func(n diag.Note) bool { return n.Code == "nccl.assumed" })
		require.Equal(t, c.want != "", at >= 0, c.nccl)
		if at >= 0 {
			require.Contains(t, r.Notes[at].Text, c.want)
		}
	}
}

// TestNetworkRange: a step that waits for the network between nodes may take as long as with
// one that is slower by a standard deviation; in one that hides all of it the range says
// what would no longer be hidden, and one inside a node has no such part.
func TestNetworkRange(t *testing.T) {
	const job = "{model: llama2-13b, hardware: {inherits: h100-sxm, network: {oversubscription: {value: %g, source: test, kind: assumed}}}, gpus: %d, runtime: {recipe: torchtitan}, plan: {}, train: {sequence_length: 1024, micro_batch: %d}}"
	rel := func(r *Result) float64 { return float64(r.High / r.StepTime) }
	estimate := func(oversubscribed float64, gpus, batch int) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf(job, oversubscribed, gpus, batch)))
	}
	inside := estimate(1, 8, 4)
	require.Equal(t, inside.High, estimate(1.5, 8, 4).High)
	require.InDelta(t, rel(inside), rel(estimate(1, 256, 16)), 0.03, "there is room for a network that gives two thirds")

	bound, slower := estimate(1, 256, 1), estimate(1.5, 256, 1)
	require.Greater(t, float64(slower.StepTime), 1.1*float64(bound.StepTime))
	require.Greater(t, float64(bound.High), float64(slower.StepTime))
	require.Greater(t, rel(bound), rel(inside)+0.1)

	// transfers between stages, also where only some of them cross nodes
	const pipeline = "{model: llama2-7b, hardware: a100-80g-sxm, gpus: %d, runtime: {recipe: nanotron}, plan: {pp: %[1]d, order: tp-cp-ep-pp-dp}, train: {sequence_length: 4096, micro_batch: 4, grad_accumulation: 4}}"
	for _, pp := range []int{8, 16} {
		j := mustParse(t, fmt.Sprintf(pipeline, pp))
		require.Equal(t, pp > 8, across(t, j, 4) > 1.001*across(t, j, 0), "%d stages", pp)
	}
}

// across is the step time with messages across nodes slower by a factor; 0: as said.
func across(t *testing.T, j *strategies.Job, factor units.Seconds) float64 {
	m, err := newMachine(j.Hardware)
	require.NoError(t, err)
	e := Evaluator{p: pricer{machine: m, across: factor}}
	s, err := e.Score(j, Limits{Time: math.SmallestNonzeroFloat64})
	require.NoError(t, err)
	return float64(s.StepTime)
}

// TestHostRange: a step that waits for the host may take as long as with hosts at the end
// of their range, and so may one that nearly does; less where their speed was given or
// measured. One that is far from waiting does not.
func TestHostRange(t *testing.T) {
	const job = "{model: gpt2, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager%s}, plan: {}, train: {micro_batch: %d}}"
	bound := mustEstimate(t, mustParse(t, fmt.Sprintf(job, "", 1)))
	require.Greater(t, float64(bound.Parts.Host), 0.3*float64(bound.StepTime))
	slow := mustEstimate(t, mustParse(t, fmt.Sprintf(job, ", host_speed: 0.76923", 1)))
	require.Greater(t, float64(slow.StepTime), 1.2*float64(bound.StepTime))
	require.Greater(t, float64(bound.High), float64(slow.StepTime))
	given := mustEstimate(t, mustParse(t, fmt.Sprintf(job, ", host_speed: 1", 1)))
	require.Equal(t, bound.StepTime, given.StepTime)
	require.Less(t, float64(given.High), 1.2*float64(given.StepTime))
	timed := mustParse(t, fmt.Sprintf(job, "", 1))
	machine, launch := *timed.Hardware, *timed.Hardware.Laws.Launch
	launch.HostSpread = 0.2
	machine.Laws.Launch, timed.Hardware = &launch, &machine
	measured := mustEstimate(t, timed)
	require.Equal(t, bound.StepTime, measured.StepTime)
	require.Less(t, float64(measured.High), float64(bound.High))
	require.Greater(t, float64(measured.High), float64(given.High))
	remedy := func(r *Result) string {
		return r.Notes[slices.IndexFunc(r.Notes, func(n diag.Note) bool { return n.Code == "range.wide" })].Remedy
	}
	require.Contains(t, remedy(bound), "calibrate")
	require.NotContains(t, remedy(measured), "calibrate")

	busy := mustEstimate(t, mustParse(t, fmt.Sprintf(job, "", 64)))
	require.Less(t, float64(busy.Parts.Host), 0.002*float64(busy.StepTime))
	require.Less(t, float64(busy.High), 1.1*float64(busy.StepTime))

	near := mustEstimate(t, mustParse(t, fmt.Sprintf(job, "", 7)))
	require.Less(t, float64(near.Parts.Host), 0.05*float64(near.StepTime))
	atEnd := mustEstimate(t, mustParse(t, fmt.Sprintf(job, ", host_speed: 0.56", 7)))
	require.Greater(t, float64(atEnd.StepTime), 1.05*float64(near.StepTime))
	known := mustEstimate(t, mustParse(t, fmt.Sprintf(job, ", host_speed: 1", 7)))
	require.Greater(t, float64(near.High), 1.02*float64(known.High))
}

// TestNoNegativeParts: what overlap slows is a difference of sums, which nothing slowed
// leaves at 0.
func TestNoNegativeParts(t *testing.T) {
	for _, job := range []string{
		"{model: falcon-7b, hardware: h200-sxm, gpus: 8, runtime: {recipe: hf-eager}, plan: {pp: 2}, train: {sequence_length: 7, micro_batch: 3}}",
		"{model: gpt2-xl, hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-lm}, plan: {}, train: {grad_accumulation: 4}}",
	} {
		r := mustEstimate(t, mustParse(t, job))
		require.Zero(t, math.Float64bits(float64(r.Parts.Contention)), job)
		require.InEpsilon(t, float64(r.StepTime), float64(r.Parts.Total()), 1e-12)
	}
}

// TestAssumedNetwork: a job that spans nodes says what was taken of a network that the
// hardware does not give.
func TestAssumedNetwork(t *testing.T) {
	const bare = "{gpu: {name: X, architecture: hopper, memory: 80 GiB, bandwidth: 3 TB/s, sms: 132, clock: 1.7 GHz, peak: {bf16: 900 TFLOP/s}, nvlink: 450 GB/s}, node: {gpus: 8, switched: true}"
	for more, want := range map[string]string{
		"gpus: 16, hardware: " + bare + "}":                                                                            "100.0 MB/s into each node is assumed",
		"gpus: 8, hardware: " + bare + "}":                                                                             "",
		"gpus: 16, hardware: " + bare + ", network: {nic_bandwidth: 25 GB/s}}":                                         "one of 25.00 GB/s in each node is assumed",
		"gpus: 16, hardware: " + bare + ", network: {nic_bandwidth: 25 GB/s, nics: 4}}":                                "",
		"gpus: 16, hardware: " + bare + "}, network: {bandwidth_per_gpu: 400 Gbit/s}":                                  "",
		"gpus: 16, hardware: h100-nvl":                                                                                 "4 adapters of 50.00 GB/s in each node (NVIDIA Enterprise",
		"gpus: 16, hardware: h100-sxm":                                                                                 "",
		"gpus: 16, hardware: {inherits: h100-nvl, network: {nic_bandwidth: 100 Gbit/s, nics: 2, transport: ethernet}}": "",
	} {
		var got string
		for _, n := range mustEstimate(t, mustParse(t, "{model: tinyllama-1.1b, plan: {}, "+more+"}")).Notes {
			if n.Code == "network.assumed" {
				got = n.Text
			}
		}
		require.Contains(t, got, want, more)
		require.Equal(t, want == "", got == "", "%s: %s", more, got)
	}
}
