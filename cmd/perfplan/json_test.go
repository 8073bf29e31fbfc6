package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/report"
)

// field is the text of one key of a JSON object.
func field(t *testing.T, text, key string) string {
	t.Helper()
	var all map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(text), &all))
	require.Contains(t, all, key)
	return string(all[key])
}

// TestContract: the keys that scripts rely on are there, with the right kind of
// value, for jobs of every shape.
func TestContract(t *testing.T) {
	keys := []string{"schema", "versions", "job", "step_time_s", "step_time_low_s", "step_time_high_s", "forward_s", "backward_s", "optimizer_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu",
		"mfu", "hfu", "bubble_fraction", "exposed_comm_s", "overlap_efficiency", "memory", "bound", "notes", "parts_s", "power_w", "energy_j_per_step_per_gpu", "clock_hz", "stages", "remedies"}
	memory := []string{"peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes", "capacity_bytes", "by_class", "by_stage", "outside_bytes", "moment", "fits"}
	for _, args := range [][]string{
		{"estimate", "llama2-7b", "--gpus", "8"},
		{"estimate", "llama2-70b", "--gpus", "8", "--dp", "8"},
		{"estimate", "mixtral-8x7b", "--gpus", "32", "--pp", "4", "--ep", "8"},
	} {
		_, out, errs := in("", append(args, "-o", "json")...)
		var all map[string]any
		require.NoError(t, json.Unmarshal([]byte(out), &all), errs)
		for _, k := range keys {
			require.Contains(t, all, k)
		}
		for _, k := range memory {
			require.Contains(t, all["memory"], k)
		}
		require.IsType(t, []any{}, all["notes"])
		require.IsType(t, []any{}, all["stages"])
		require.IsType(t, []any{}, all["remedies"])
		require.IsType(t, map[string]any{}, all["exposed_comm_s"])
	}
}

// TestSameKeys: what commands say of the same thing they say under the same key.
func TestSameKeys(t *testing.T) {
	job := []string{"gpt2", "--gpus", "2", "--global-batch", "16", "--dp", "2"}
	_, text, errs := in("", append([]string{"estimate", "-o", "json"}, job...)...)
	for _, args := range [][]string{{"sensitivity"}, {"explain", "--depth", "0"}, {"explain", "--stage", "memory"}} {
		_, out, errs2 := in("", slices.Concat(args, []string{"-o", "json"}, job)...)
		for _, key := range []string{"versions", "job", "step_time_s", "step_time_low_s", "step_time_high_s", "memory"} {
			require.JSONEq(t, field(t, text, key), field(t, out, key), "%s of %s: %s%s", key, args, errs, errs2)
		}
	}
	for _, args := range [][]string{{"plan", "--price", "2", "--fix", "tp=1"}, {"sweep", "--price", "2", "micro-batch=1"}} {
		_, out, errs := in("", slices.Concat(args, []string{"-o", "json"}, job)...)
		require.Contains(t, out, `"cost_usd_per_million_tokens": 0.`, errs)
		require.Contains(t, out, `"energy_j_per_million_tokens": `)
	}
	for _, args := range [][]string{{"train", "--tokens", "1B"}, {"diff", "gpt2"}} {
		_, out, errs := in("", slices.Concat(args, []string{"-o", "json"}, job)...)
		require.Regexp(t, `^"[a-z]+/v1"$`, field(t, out, "schema"), errs)
	}
	for _, args := range [][]string{{"sweep", "gpt2", "micro-batch=1", "--gpus", "2"}, {"scale", "gpt2", "gpus=2,4"}, {"train", "gpt2", "--tokens", "1B", "--gpus", "2"},
		{"fit", "--model", "gpt2", "--largest", "micro-batch", "--gpus", "2"}, {"fit", "--model", "gpt2", "--tokens", "1B", "--deadline", "30d"}} { // with its range
		_, out, errs := in("", append(args, "--hardware", "h100-sxm", "-o", "json")...)
		require.Regexp(t, `"step_time_s": [0-9.]+,\s+"step_time_low_s": [0-9.]+,\s+"step_time_high_s": [0-9.]+`, out, "%s: %s", args, errs)
	}
	_, out, _ := in("", "validate", "--group", "h200-single", "-o", "json")
	require.Equal(t, `"validate/v1"`, field(t, out, "schema"))
}

// TestVersions: every document says which program it is from.
func TestVersions(t *testing.T) {
	job := []string{"gpt2", "--gpus", "2", "--global-batch", "16", "--dp", "2"}
	for _, args := range [][]string{
		slices.Concat([]string{"estimate"}, job),
		slices.Concat([]string{"explain", "--depth", "0"}, job),
		slices.Concat([]string{"plan", "--fix", "tp=1"}, job),
		slices.Concat([]string{"sweep", "micro-batch=1"}, job),
		{"scale", "gpt2", "--gpus", "2", "--global-batch", "16", "gpus=2,4"},
		slices.Concat([]string{"sensitivity"}, job),
		slices.Concat([]string{"diff", "gpt2"}, job),
		slices.Concat([]string{"train", "--tokens", "1B"}, job),
		{"fit", "--model", "gpt2", "--gpus", "2", "--hardware", "h100-sxm", "--largest", "micro-batch"},
		{"fit", "--model", "gpt2", "--tokens", "1B", "--deadline", "30d", "--hardware", "h100-sxm"},
		{"validate", "--group", "h200-single"},
		{"compare", "../../examples/profiled.yaml", "../../examples/profiled-trace.json"},
		{"collective", "all-reduce", "--size", "1MiB", "--gpus", "8"},
		{"kernel", "memory", "--kind", "upcast", "--size", "1MiB"},
		{"model", "show", "gpt2"},
		{"hardware", "show", "h100-sxm"},
		{"hardware", "show", "h100-sxm", "--curves"},
		{"hardware", "diff", "h100-sxm", "h200-sxm"},
	} {
		_, out, errs := in("", append(args, "-o", "json")...)
		require.NotEmpty(t, out, "%v: %s", args, errs)
		require.JSONEq(t, `{"perfplan": "`+report.Version()+`"}`, field(t, out, "versions"), args)
	}
}

// TestOverlapIsKnown: what is not known of a step is null, and no figure.
func TestOverlapIsKnown(t *testing.T) {
	for _, c := range []struct {
		args  []string
		known bool
	}{
		{[]string{"--dp", "8"}, true},
		{[]string{"--dp", "8", "--set", "runtime.overlap_grad_reduce=false", "--set", "runtime.overlap_param_gather=false"}, true}, // 0
		{[]string{"--pp", "2"}, false},
		{[]string{"--tp", "8"}, false}, // no data-parallel ranks
	} {
		_, out, errs := in("", append([]string{"estimate", "llama2-7b", "--gpus", "8", "-o", "json"}, c.args...)...)
		require.NotEmpty(t, out, errs)
		require.Equal(t, c.known, field(t, out, "overlap_efficiency") != "null", c.args)
	}
}

// TestNothingIsNoFigure: what is not known is null, not 0.
func TestNothingIsNoFigure(t *testing.T) {
	_, out, errs := in("", "estimate", "gpt2", "--gpus", "1", "--hardware", "l4", "-o", "json") // whose power was never measured
	require.Equal(t, "null", field(t, out, "power_w"), errs)
	require.Equal(t, "null", field(t, out, "energy_j_per_step_per_gpu"))
	_, out, errs = in("", "sensitivity", "gpt2", "--gpus", "2", "--dp", "2", "--micro-batch", "1", "--hardware", "h100-sxm", "-o", "json")
	require.Regexp(t, `"throughput_gain": null,\s+"fits": null`, out, errs)
	_, out, errs = in("", "plan", "gpt2", "--gpus", "2", "--global-batch", "8", "--hardware", "h100-sxm", "--why-not", "tp=7", "-o", "json")
	require.Regexp(t, `"rejected": \{[^}]*\},\s+"behind": null`, field(t, out, "why_not"), errs)
	_, out, errs = in("", "scale", "gpt2", "gpus=2,3", "--tp", "2", "--hardware", "h100-sxm", "-o", "json")
	require.Contains(t, out, `"from_gpu_s_per_million_tokens": null`, errs)
}

// TestHostIdle: a pipeline's device that waits while the host updates parameters is idle, as one without.
func TestHostIdle(t *testing.T) {
	for _, pp := range []string{"1", "2"} {
		_, out, errs := in("", "estimate", "llama3-8b", "--gpus", "8", "--hardware", "h100-sxm", "--pp", pp, "--offload", "optimizer", "-o", "json")
		var got struct {
			Idle  float64            `json:"host_idle_s"`
			Parts map[string]float64 `json:"parts_s"`
		}
		require.NoError(t, json.Unmarshal([]byte(out), &got), errs)
		require.NotZero(t, got.Parts["host_update"])
		require.InDelta(t, got.Parts["host"]+got.Parts["host_update"], got.Idle, 1e-9)
	}
}

// TestCountedAttention: the MFU of an encoder, whose tokens see all others, does not count a mask.
func TestCountedAttention(t *testing.T) {
	for model, want := range map[string]string{"bert-base": `"full"`, "gpt2": `"causal"`} {
		_, out, errs := in("", "estimate", model, "--gpus", "1", "--hardware", "h100-sxm", "-o", "json")
		require.Equal(t, want, field(t, out, "mfu_attention"), errs)
		require.Equal(t, want == `"full"`, field(t, out, "mfu") == field(t, out, "mfu_full_attention"))
	}
}

// TestChosenTime: a collective takes as long as what NCCL chooses for it.
func TestChosenTime(t *testing.T) {
	for _, args := range [][]string{
		{"all-reduce", "--gpus", "2", "--size", "1KiB"},
		{"all-reduce", "--gpus", "8", "--size", "8MiB", "--hardware", "h200-sxm"},
		{"all-gather", "--gpus", "64", "--size", "1MiB"},
	} {
		_, out, errs := in("", append(append([]string{"collective"}, args...), "-o", "json")...)
		var got struct {
			Time         float64 `json:"time_s"`
			Alternatives []struct {
				Time   float64 `json:"time_s"`
				Chosen bool    `json:"chosen"`
			} `json:"alternatives"`
		}
		require.NoError(t, json.Unmarshal([]byte(out), &got), errs)
		var chosen []float64
		for _, a := range got.Alternatives {
			if a.Chosen {
				chosen = append(chosen, a.Time)
			}
		}
		require.Equal(t, []float64{got.Time}, chosen, "%v", args)
	}
}
