package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/diag"
	_ "github.com/perfplan/perfplan/internal/seed"
)

// kernelEvent is one event of a trace.
func kernelEvent(name string, stream int, ts, dur float64) string {
	return fmt.Sprintf(`{"ph":"X","cat":"kernel","name":%q,"pid":0,"tid":7,"ts":%.3f,"dur":%.3f,"args":{"device":0,"stream":%d}}`, name, ts, dur, stream)
}

const (
	gemmName = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN"
	adamName = "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, at::native::FusedAdamMathFunctor<float>"
	ncclName = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
)

func traceOf(events ...string) string {
	return `{"schemaVersion":1,"deviceProperties":[{"id":1,"name":"none"},{"id":0,"name":"NVIDIA H200"}],"distributedInfo":{"backend":"nccl","rank":3,"world_size":4},"traceEvents":[` +
		strings.Join(events, ",") + `],"traceName":"t.json"}`
}

// Two steps: a matrix multiply of 10 µs with a gather of 8 beside it and 4 after its
// end, a gap of 2, an optimizer of 5 in two kernels; 1 idle between steps.
func twoSteps() string {
	var events []string
	for _, at := range []float64{100, 122} {
		events = append(events, kernelEvent(gemmName, 7, at, 10), kernelEvent(ncclName, 20, at+6, 8), kernelEvent(adamName, 7, at+16, 3), kernelEvent(adamName, 7, at+19, 2),
			`{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1,"dur":"none of our business","args":{"stream":"x"}}`, `{"ph":"i","name":"Iteration Start","ts":1}`)
	}
	return traceOf(events...)
}

// zipped is a text as gzip packs it.
func zipped(t *testing.T, text string) string {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return packed.String()
}

func TestReadAndSummarize(t *testing.T) {
	for name, text := range map[string]string{"plain": twoSteps(), "packed": zipped(t, twoSteps())} {
		x, err := Read(name, strings.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, 3, x.Rank)
		require.Equal(t, 4, x.World)
		require.Len(t, x.Spans, 8)
		s, err := Summarize(x)
		require.NoError(t, err)
		require.Equal(t, &Summary{Schema: SummarySchema, Name: name, Rank: 3, World: 4, GPU: "NVIDIA H200", Steps: 1, Span: 22e-6, Idle: 3e-6, NCCL: 8e-6, Exposed: 4e-6, Kernels: []Sum{
			{"gemm", 1, 10e-6, gemmName}, {"all-gather", 1, 8e-6, ncclName}, {"optimizer", 2, 5e-6, short(adamName)},
		}}, s)
	}
}

// Categories as older releases of PyTorch wrote them (EventTypeMap of torch_tb_profiler, plugin/trace.py).
func TestOldCategories(t *testing.T) {
	old := strings.NewReplacer(`"cat":"kernel"`, `"cat":"Kernel"`, `"cat":"gpu_memcpy"`, `"cat":"Memcpy"`, `"cat":"gpu_memset"`, `"cat":"Memset"`)
	text := traceOf(kernelEvent(gemmName, 7, 5, 10), strings.Replace(kernelEvent("Memcpy DtoD (Device -> Device)", 7, 15, 2), `"kernel"`, `"gpu_memcpy"`, 1),
		strings.Replace(kernelEvent("Memset (Device)", 7, 17, 2), `"kernel"`, `"gpu_memset"`, 1), kernelEvent(adamName, 7, 20, 5))
	now, err := Read("t", strings.NewReader(text))
	require.NoError(t, err)
	before, err := Read("t", strings.NewReader(old.Replace(text)))
	require.NoError(t, err)
	require.Len(t, before.Spans, 4)
	require.Equal(t, now.Spans, before.Spans)
}

// A list without an object around it is a trace, too; one step is cut at its first
// kernel.
func TestOneStep(t *testing.T) {
	x, err := Read("t", strings.NewReader("["+kernelEvent(gemmName, 7, 5, 10)+","+kernelEvent(adamName, 7, 15, 5)+"]"))
	require.NoError(t, err)
	require.Equal(t, -1, x.Rank)
	s, err := Summarize(x)
	require.NoError(t, err)
	require.True(t, s.Cut)
	require.Equal(t, Seconds(15e-6), s.Span)
}

// profiler.step() marks steps better than the optimizer does.
func TestStepEnds(t *testing.T) {
	mark := func(name string, ts, dur float64) string {
		return fmt.Sprintf(`{"ph":"X","cat":"gpu_user_annotation","name":%q,"ts":%g,"dur":%g,"args":{}}`, name, ts, dur)
	}
	for _, c := range []struct {
		name   string
		events []string
		want   []float64
	}{
		{"ProfilerStep", []string{mark("ProfilerStep#4", 0, 30), mark("ProfilerStep#5", 30, 30), mark("Optimizer.step#SGD.step", 20, 5)}, []float64{30, 60}},
		{"ProfilerStep of two streams", []string{mark("ProfilerStep#4", 0, 30), mark("ProfilerStep#4", 6, 22), mark("ProfilerStep#5", 30, 30), mark("ProfilerStep#5", 36, 22)}, []float64{30, 60}},
		{"ProfilerStep of micro steps", []string{mark("ProfilerStep#4", 0, 30), mark("ProfilerStep#5", 30, 30), mark("ProfilerStep#6", 60, 30), mark("ProfilerStep#7", 90, 30),
			mark("Optimizer.step#SGD.step", 55, 5), kernelEvent(gemmName, 7, 62, 5), mark("Optimizer.step#SGD.step", 115, 5)}, []float64{60, 120}},
		{"any optimizer", []string{mark("Optimizer.step#SGD.step", 20, 5), mark("Optimizer.step#SGD.step", 50, 5), kernelEvent(gemmName, 7, 30, 5)}, []float64{25, 55}},
		{"two optimizers", []string{mark("Optimizer.step#AdamW.step", 20, 5), mark("Optimizer.step#AdamW.step", 26, 5)}, []float64{31}},
		{"Muon after AdamW", []string{mark("Optimizer.step#AdamW.step", 20, 5), mark("Optimizer.step#Muon.step", 26, 9), kernelEvent(gemmName, 7, 28, 5), kernelEvent(gemmName, 7, 40, 5),
			mark("Optimizer.step#AdamW.step", 50, 5), mark("Optimizer.step#Muon.step", 56, 9), kernelEvent(gemmName, 7, 58, 5)}, []float64{35, 65}},
		{"kernels", []string{kernelEvent(adamName, 7, 20, 5), kernelEvent(adamName, 7, 25, 5), kernelEvent(gemmName, 7, 31, 5), kernelEvent(adamName, 7, 40, 5)}, []float64{30, 45}},
		{"none", nil, nil},
	} {
		x, err := Read("t", strings.NewReader(traceOf(append(c.events, kernelEvent(gemmName, 7, 1, 5))...)))
		require.NoError(t, err)
		require.Equal(t, c.want, stepEnds(x), c.name)
	}
}

// The parts of a step: what is covered, exposed and idle adds up to it.
func TestCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "n")
		var c cover
		covered := map[int]bool{}
		start := 0
		for range n {
			start += rapid.IntRange(0, 5).Draw(t, "gap")
			long := rapid.IntRange(0, 12).Draw(t, "long")
			c.add(float64(start), float64(start+long))
			for i := range long {
				covered[start+i] = true
			}
		}
		require.InDelta(t, len(covered), c.length, 1e-9)
	})
}

func TestReadComplains(t *testing.T) {
	good := kernelEvent(gemmName, 7, 1, 1)
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "t: is empty; give the file that torch.profiler's"},
		{"blank", " \n", "t: is empty; give the file that torch.profiler's"},
		{"yaml", "model: gpt2", "is not a trace but text; give the file that torch.profiler's"},
		{"text", `"x"`, "is not a trace but text"},
		{"a log", "iteration 1/ 10 | elapsed time per iteration (ms): 5.0", "of a log of training perfplan init --measured --from makes runs"},
		{"a log of ranks", "[rank0]: step 1", "is not a trace but text"},
		{"a log with times", "[2024-01-01 10:00:00] iteration 1/10", "is not a trace but text"},
		{"a Trainer's log", "{'loss': 2.1, 'epoch': 0.1}", "is not a trace but text"},
		{"a list of numbers", "[1, 2]", "is not a trace but text"},
		{"bracket and end", "[", "it was cut off, write it again"},
		{"binary", "\x00\xff\xfe", "is not a trace (byte 0): invalid character"},
		{"no events", `{"schema":"compare/v1"}`, "has no traceEvents"},
		{"events are no list", `{"traceEvents":{}}`, "traceEvents is no list"},
		{"cut off", traceOf(good)[:200], "traceEvents["},
		{"cut off says so", traceOf(good)[:200], "it was cut off, write it again"},
		{"no kernel", traceOf(`{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}`), "holds no kernel; profile with ProfilerActivity.CUDA"},
		{"time is text", traceOf(good, `{"ph":"X","cat":"kernel","name":"k","ts":"now","dur":1}`), `traceEvents[1], byte`},
		{"time is missing", traceOf(`{"ph":"X","cat":"kernel","name":"k","ts":1}`), "dur (missing) of a kernel is no number of microseconds"},
		{"negative", traceOf(kernelEvent(gemmName, 7, 1, -1)), "a kernel at ts 1 that takes dur -1"},
		{"far away", traceOf(kernelEvent(gemmName, 7, 1e300, 1)), "a kernel at ts 1e+300"},
		{"two devices", traceOf(good, strings.Replace(good, `"device":0`, `"device":1`, 1)), "kernels of devices 0 and 1; profile each rank in a process of its own"},
		{"broken archive", "\x1f\x8b\x00", "is a broken archive"},
	} {
		_, err := Read("t", strings.NewReader(c.text))
		require.ErrorContains(t, err, c.want, c.name)
		require.True(t, diag.IsInput(err), c.name)
	}
	x, err := Read("t", strings.NewReader(traceOf(good)))
	require.NoError(t, err)
	_, err = Summarize(x)
	require.ErrorContains(t, err, "shows no end of a step; call profiler.step()")
}

func TestLoadSummary(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	s, err := LoadSummary("testdata/h200x1-t0-00.rank0.json")
	require.NoError(t, err)
	require.InDelta(t, 0.035376, float64(s.Span), 1e-6)
	s, err = LoadSummary(write("trace.json", twoSteps()))
	require.NoError(t, err)
	require.Equal(t, Seconds(22e-6), s.Span)
	plain, err := os.ReadFile("testdata/h200x1-t0-00.rank0.json")
	require.NoError(t, err)
	packed, err := LoadSummary(write("s.json.gz", zipped(t, string(plain))))
	require.NoError(t, err)
	require.InDelta(t, 0.035376, float64(packed.Span), 1e-6)
	for _, c := range []struct{ text, want string }{
		{string(plain[:len(plain)/2]), "s.json: ends in the middle"},
		{zipped(t, string(plain))[:100], "s.json: ends in the middle"},
		{"\x1f\x8b, but no archive", "is a broken archive"},
		{`{"schema":"trace/v1","stepp_time_s":1}`, `unknown field "stepp_time_s"`},
		{`{"schema":"trace/v1"}`, "step_time_s: 0; a step takes time"},
		{`{"schema":"trace/v1","step_time_s":1}`, "steps: 0; give 1 or more"},
		{`{"schema":"trace/v1","step_time_s":1,"steps":1,"idle_s":2}`, "idle_s: 2; give 0 to 1"},
		{`{"schema":"trace/v1","step_time_s":1,"steps":1,"exposed_nccl_s":-1}`, "exposed_nccl_s: -1; give 0 to 1"},
		{`{"schema":"trace/v1","step_time_s":1,"steps":1,"nccl_s":-1}`, "nccl_s: -1; give 0 to 1e+16"},
		{`{"schema":"trace/v1","step_time_s":1,"steps":1,"kernels":[{"class":"gemm","count":-1}]}`, `kernels of class "gemm": count -1`},
	} {
		_, err := LoadSummary(write("s.json", c.text))
		require.ErrorContains(t, err, c.want)
	}
	_, err = LoadSummary(filepath.Join(dir, "missing"))
	require.ErrorContains(t, err, "no such file")
	_, err = LoadSummary(dir)
	require.ErrorContains(t, err, "is a folder")
}

// No input makes the reader panic, and what it accepts adds up.
func FuzzRead(f *testing.F) {
	f.Add([]byte(twoSteps()))
	f.Add([]byte("[" + kernelEvent(adamName, 7, 1, 1) + "]"))
	f.Add([]byte(`{"traceEvents":[{"ph":"X","cat":"kernel","ts":1e999,"dur":1}]}`))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		x, err := Read("fuzz", bytes.NewReader(text))
		if err != nil {
			require.True(t, diag.IsInput(err), "%v", err)
			return
		}
		s, err := Summarize(x)
		if err != nil {
			require.True(t, diag.IsInput(err), "%v", err)
			return
		}
		require.Positive(t, float64(s.Span))
		require.GreaterOrEqual(t, float64(s.Idle), 0.0)
		require.LessOrEqual(t, float64(s.Idle+s.Exposed), float64(s.Span)*(1+1e-6)+1e-9)
	})
}
