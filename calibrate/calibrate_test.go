package calibrate

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/cuda"
	"github.com/perfplan/perfplan/calibrate/cuda/fake"
	"github.com/perfplan/perfplan/calibrate/probe"
	"github.com/perfplan/perfplan/calibrate/sample"
)

// options are those of a quick calibration into a new file.
func options(t *testing.T) Options {
	return Options{Effort: probe.Quick, Samples: filepath.Join(t.TempDir(), "samples.jsonl"), Seed: 1}
}

// calibrated runs on a fake and reads the file that was written.
func calibrated(t *testing.T, d *fake.Driver, o Options) (*Outcome, *sample.File) {
	out, err := Run(context.Background(), d, o)
	require.NoError(t, err)
	f, err := sample.ReadFile(o.Samples)
	require.NoError(t, err)
	return out, f
}

// find is the sample of a probe with these labels.
func find(t *testing.T, f *sample.File, probe string, labels ...string) sample.Sample {
	for _, s := range f.Samples {
		if s.Probe == probe && !slices.ContainsFunc(labels, func(l string) bool { return s.Case[before(l)] != after(l) }) {
			return s
		}
	}
	t.Fatalf("no sample of %s with %v", probe, labels)
	return sample.Sample{}
}

func before(l string) string { i := slices.Index([]byte(l), '='); return l[:i] }

func after(l string) string { i := slices.Index([]byte(l), '='); return l[i+1:] }

// One GPU, quick: within a minute, all probes that one GPU can run, at rates near the
// model's.
func TestQuick(t *testing.T) {
	o := options(t)
	out, f := calibrated(t, fake.New(fake.Options{Noise: 0.01}), o)
	require.Zero(t, out.Failed, "%v", out.Notes)
	require.Less(t, out.Elapsed, 60*time.Second)
	require.Equal(t, out.File.Samples, f.Samples)
	require.Equal(t, "NVIDIA H200", f.Header.Device)
	require.Equal(t, "2026-01-02", f.Header.Date)

	g := find(t, f, "gemm", "m=8192", "n=8192", "k=8192", "layout=fprop", "dtype=bf16")
	require.InEpsilon(t, 800e12, 2*8192*8192*8192/g.Seconds, 0.05)
	require.LessOrEqual(t, g.Low, g.Seconds)
	require.GreaterOrEqual(t, g.High, g.Seconds)
	require.GreaterOrEqual(t, g.Repeats, minTurns)
	require.Equal(t, 1980e6, g.ClockHz)
	for _, s := range f.Samples {
		if s.Mode == sample.Burst {
			require.Empty(t, s.Throttled, "%s", s.Key())
		}
	}
	for _, p := range []string{"memory", "gemm", "power"} {
		require.InEpsilon(t, find(t, f, "host", "code=format").Seconds, find(t, f, "host", "after="+p).Seconds, 0.2, "the host is read again")
	}
	c := find(t, f, "memory", "kind=copy", "bytes="+strconv.Itoa(256<<20))
	require.InEpsilon(t, 4.2e12, (256<<20)/c.Seconds, 0.05)
	require.InEpsilon(t, 1e-6, find(t, f, "launch", "kind=gap").Seconds, 0.2)
	require.InEpsilon(t, 2e-6, find(t, f, "launch", "kind=launch").Seconds, 0.05)
	require.InEpsilon(t, 50e9, (64<<20)/find(t, f, "copy", "direction=h2d", "pinned=true", "bytes="+strconv.Itoa(64<<20)).Seconds, 0.05)

	steady := find(t, f, "power", "class=gemm", "mode=sustained")
	require.Equal(t, "power-cap", steady.Throttled)
	require.Less(t, steady.ClockHz, 1900e6)
	require.Greater(t, steady.Seconds, 1.02*find(t, f, "power", "class=gemm", "mode=burst").Seconds)
}

// Several GPUs: collectives of every size of group, and what overlap costs.
func TestGroups(t *testing.T) {
	o := options(t)
	o.Only, o.Verify = []string{"collective", "overlap"}, true
	d := fake.New(fake.Options{GPUs: 4, Noise: 0.01})
	out, f := calibrated(t, d, o)
	require.Empty(t, out.Wrong)
	require.Equal(t, []string{"collective"}, out.Verified)
	require.Zero(t, out.Failed, "%v", out.Notes)
	require.Zero(t, d.Live, "buffers are freed")
	for _, n := range []string{"2", "4"} {
		s := find(t, f, "collective", "op=all-reduce", "gpus="+n, "bytes="+strconv.Itoa(256<<20), "graph=false")
		ranks, _ := strconv.Atoi(n)
		require.InEpsilon(t, 350e9, 2*float64(ranks-1)/float64(ranks)*(256<<20)/s.Seconds, 0.1)
		require.Equal(t, -1, s.GPU)
	}
	alone := find(t, f, "overlap", "what=gemm", "op=none")
	beside := find(t, f, "overlap", "what=gemm", "op=all-gather", "side=compute")
	require.InEpsilon(t, 1.3, beside.Seconds/alone.Seconds, 0.1)
}

// The same seed measures in the same order and finds the same.
func TestRepeatable(t *testing.T) {
	var files [2]string
	for i := range files {
		o := options(t)
		o.Only = []string{"memory"}
		calibrated(t, fake.New(fake.Options{Noise: 0.02, Seed: 3}), o)
		data, err := os.ReadFile(o.Samples)
		require.NoError(t, err)
		files[i] = string(data)
	}
	require.Equal(t, files[0], files[1])
}

// What fails is noted, and the rest is measured.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		fake fake.Options
		only []string
		note string
		has  string // probe that is measured nevertheless
	}{
		"one dtype":       {fake.Options{FailKernel: "fp8"}, []string{"gemm"}, "CUBLAS_STATUS_NOT_SUPPORTED", "gemm"},
		"one kernel":      {fake.Options{FailKernel: "concat_bf16"}, []string{"memory", "launch"}, "CUDA_ERROR_NOT_FOUND", "memory"},
		"no memory":       {fake.Options{MaxAlloc: 64 << 20}, []string{"launch", "memory"}, "CUDA_ERROR_OUT_OF_MEMORY", "launch"},
		"no library":      {fake.Options{Missing: []string{"libcublasLt"}}, []string{"gemm", "launch"}, "probe gemm is left out: libcublasLt not found", "launch"},
		"one GPU is lost": {fake.Options{GPUs: 2, LostAfter: map[int]int{0: 400}}, []string{"memory"}, "GPU 0 is lost during probe memory", "memory"},
		"no clocks":       {fake.Options{NoNVML: true}, []string{"launch"}, "", "launch"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			o.Only = c.only
			out, f := calibrated(t, fake.New(c.fake), o)
			var notes string
			for _, n := range out.Notes {
				notes += n.Text + "\n"
			}
			require.Contains(t, notes, c.note)
			good := slices.ContainsFunc(f.Samples, func(s sample.Sample) bool { return s.Probe == c.has && s.Error == "" && s.Seconds > 0 })
			require.True(t, good, "nothing of %s was measured: %s", c.has, notes)
		})
	}
}

// A lost GPU's remaining cases are measured on the next one.
func TestLostGPU(t *testing.T) {
	o := options(t)
	o.Only = []string{"memory"}
	_, f := calibrated(t, fake.New(fake.Options{GPUs: 2, LostAfter: map[int]int{0: 700}}), o)
	cases := map[string]int{}
	for _, s := range f.Samples {
		require.Empty(t, s.Error)
		cases[probe.Case(s.Case).Key()]++
	}
	whole := options(t)
	whole.Only = o.Only
	_, all := calibrated(t, fake.New(fake.Options{}), whole)
	require.Len(t, cases, len(all.Samples))
}

// All GPUs lost is an error that names the call, the code and the GPU.
func TestNoGPULeft(t *testing.T) {
	o := options(t)
	o.Only = []string{"launch"}
	_, err := Run(context.Background(), fake.New(fake.Options{LostAfter: map[int]int{0: 20}}), o)
	require.ErrorContains(t, err, "GPU 0: cuLaunchKernel failed with code 999 CUDA_ERROR_UNKNOWN: unknown error")
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		fake fake.Options
		set  func(*Options)
		want string
	}{
		"busy":           {fake.Options{Busy: map[int]int{0: 2}}, func(*Options) {}, "GPU 0 (NVIDIA H200) is busy: 2 other processes hold its memory"},
		"no such probe":  {fake.Options{}, func(o *Options) { o.Only = []string{"gem"} }, `there is no probe "gem"; did you mean "gemm"?`},
		"no such GPU":    {fake.Options{}, func(o *Options) { o.GPUs = []int{1} }, "there is no GPU 1; this machine has 1"},
		"GPU twice":      {fake.Options{}, func(o *Options) { o.GPUs = []int{0, 0} }, "GPU 0 is named twice"},
		"file is there":  {fake.Options{}, func(o *Options) { _ = os.WriteFile(o.Samples, nil, 0o600) }, "is there already; go on with it by --resume"},
		"no such folder": {fake.Options{}, func(o *Options) { o.Samples = filepath.Join(o.Samples, "x") }, "cannot be written"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			c.set(&o)
			_, err := Run(context.Background(), fake.New(c.fake), o)
			require.ErrorContains(t, err, c.want)
		})
	}
	o := options(t)
	o.Only, o.Force = []string{"launch"}, true
	_, err := Run(context.Background(), fake.New(fake.Options{Busy: map[int]int{0: 2}}), o)
	require.NoError(t, err)
}

// A budget is kept, the rest is named, and resuming measures it.
func TestBudget(t *testing.T) {
	o := options(t)
	o.Effort, o.Only, o.Budget = probe.Full, []string{"gemm"}, 2*time.Second
	out, f := calibrated(t, fake.New(fake.Options{}), o)
	require.Less(t, out.Elapsed, 4*time.Second)
	require.NotEmpty(t, f.Samples)
	require.Equal(t, "calibrate.budget", out.Notes[0].Code)
	o.Resume, o.Budget = true, 0
	out, f = calibrated(t, fake.New(fake.Options{}), o)
	require.Empty(t, out.Notes)
	require.Greater(t, len(f.Samples), 500)
}

// A full calibration of one GPU and of four stays within the time that is promised.
func TestFull(t *testing.T) {
	for gpus, most := range map[int]time.Duration{1: 4 * time.Minute, 4: 8 * time.Minute} {
		o := options(t)
		o.Effort = probe.Full
		out, _ := calibrated(t, fake.New(fake.Options{GPUs: gpus, Noise: 0.01}), o)
		require.Less(t, out.Elapsed, most, "%d GPUs", gpus)
		require.Zero(t, out.Failed, "%v", out.Notes)
		t.Logf("%d GPUs: %d samples in %v", gpus, out.New, out.Elapsed)
	}
}

// An interruption keeps what was measured; resuming measures the rest, once.
func TestInterruptAndResume(t *testing.T) {
	o := options(t)
	o.Only = []string{"launch", "memory"}
	ctx, stop := context.WithCancel(context.Background())
	d := fake.New(fake.Options{Noise: 0.01, OnSleep: func(n int) {
		if n == 30 {
			stop()
		}
	}})
	out, err := Run(ctx, d, o)
	require.NoError(t, err)
	require.True(t, out.Interrupted)
	first, err := sample.ReadFile(o.Samples)
	require.NoError(t, err)
	require.NotEmpty(t, first.Samples)

	// As if the machine had failed while it wrote.
	data, err := os.ReadFile(o.Samples)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(o.Samples, append(data, `{"probe": "mem`...), 0o600))

	o.Resume = true
	out, f := calibrated(t, fake.New(fake.Options{Noise: 0.01}), o)
	require.False(t, out.Interrupted)
	require.Equal(t, len(f.Samples), len(first.Samples)+out.New)
	seen := map[string]bool{}
	for _, s := range f.Samples {
		require.False(t, seen[s.Key()], "%s is there twice", s.Key())
		seen[s.Key()] = true
	}
	again, _ := calibrated(t, fake.New(fake.Options{}), o)
	require.Zero(t, again.New)
}

// A wrong result is not measured.
func TestWrongResult(t *testing.T) {
	o := options(t)
	o.Only, o.Verify = []string{"gemm", "launch"}, true
	d := wrong{fake.New(fake.Options{})}
	out, err := Run(context.Background(), d, o)
	require.NoError(t, err)
	require.Len(t, out.Wrong, 1)
	require.Contains(t, out.Wrong[0], "gemm: GEMM fprop of 48×64×80: element 0 is")
	for _, s := range out.File.Samples {
		require.Equal(t, s.Probe == "gemm", s.Error != "", "%s: %s", s.Key(), s.Error)
	}
}

// wrong is a driver whose reads bring other bytes.
type wrong struct{ *fake.Driver }

func (w wrong) Open(i int) (cuda.GPU, error) {
	g, err := w.Driver.Open(i)
	return wrongGPU{g}, err
}

type wrongGPU struct{ cuda.GPU }

func (g wrongGPU) Read(b cuda.Buffer, n int64) ([]byte, error) {
	data, err := g.GPU.Read(b, n)
	if len(data) > 0 {
		data[1] ^= 0x40
	}
	return data, err
}
