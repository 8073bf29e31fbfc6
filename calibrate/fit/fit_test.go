package fit

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

func base(t testing.TB) *hardware.Profile {
	p, err := hardware.Load("h200-sxm")
	require.NoError(t, err)
	return p
}

func (r *Result) probe(name string) *Probe {
	for i := range r.Probes {
		if r.Probes[i].Name == name {
			return &r.Probes[i]
		}
	}
	return nil
}

// unseen are shapes that no sample has.
func unseen() map[string][]tape.Op {
	out := map[string][]tape.Op{}
	for _, m := range []int64{512, 2048, 6144} {
		for _, s := range [][2]int64{{11008, 4096}, {6144, 4096}, {3072, 3072}, {4096, 11008}, {13824, 5120}} {
			for _, layout := range []tape.Layout{tape.LayoutForward, tape.LayoutDgrad, tape.LayoutWgrad} {
				out["gemm"] = append(out["gemm"], kernel.GEMM(layout, tape.BF16, m, s[0], s[1]))
			}
		}
		out["fp8"] = append(out["fp8"], kernel.GEMM(tape.LayoutForward, tape.FP8, m, 4096, 8192))
	}
	for _, seq := range []int64{1536, 3072, 6144} {
		for _, backward := range []bool{false, true} {
			out["attention"] = append(out["attention"], kernel.Attention(tape.BF16, tape.AttentionShape{Batch: 1, Heads: 24, KVHeads: 8, Queries: seq, QKDim: 128, VDim: 128, Causal: true, Backward: backward}))
		}
	}
	for _, kind := range kernel.Kinds() {
		for _, b := range []units.Bytes{24 * units.MiB, 300 * units.MiB, 3 * units.GiB} {
			o, _ := kernel.Access(kind, "", b)
			out["memory"] = append(out["memory"], o)
		}
	}
	out["adam"] = append(out["adam"], kernel.Adam(tape.F32, 3e8))
	return out
}

// The profile predicts what was not measured, within the error it states.
func TestFitGivesTheMachineBack(t *testing.T) {
	for _, noise := range []float64{0, 0.02} {
		n := calibration(t, noise)
		r, err := Run(&n.file, base(t), Options{Name: "samples.jsonl"})
		require.NoError(t, err)
		fitted, err := kernel.New(r.Loaded)
		require.NoError(t, err)
		old, err := kernel.New(base(t))
		require.NoError(t, err)
		for what, ops := range unseen() {
			var now, before, inside float64
			for i := range ops {
				want := float64(n.timer.Time(&ops[i]))
				q := fitted.Quote(&ops[i])
				now += math.Abs(math.Log(float64(q.Time)/want)) / float64(len(ops))
				before += math.Abs(math.Log(float64(old.Time(&ops[i]))/want)) / float64(len(ops))
				if want >= float64(q.Low) && want <= float64(q.High) {
					inside += 1 / float64(len(ops))
				}
			}
			t.Logf("noise %.2f, %s: mean error %.3f, of the base %.3f, in range %.2f", noise, what, now, before, inside)
			require.Less(t, now, 0.03+1.5*noise, what) // between the sizes of a curve
			require.Greater(t, before, 0.06, "%s: the base is wrong, or the test proves nothing", what)
			require.GreaterOrEqual(t, inside, 0.6, what)
		}
		fabric, err := collective.FabricOf(r.Loaded.GPU, r.Loaded.Node, r.Loaded.Network, r.Loaded.Software, r.Loaded.Laws.Collectives...)
		require.NoError(t, err)
		for _, b := range []units.Bytes{3 * units.KiB, 3 * units.MiB, 300 * units.MiB} {
			c := fabric.Cost(collective.AllGather, b, fabric.Group(4, 1))
			require.Equal(t, collective.Measured, c.Source)
			require.InEpsilon(t, float64(n.fabric.Time(collective.AllGather, b, fabric.Group(4, 1))), float64(c.Time), 0.1+2*noise)
			require.Equal(t, collective.Scaled, fabric.Cost(collective.AllGather, b, fabric.Group(8, 1)).Source)
		}
		require.InEpsilon(t, 0.9e-6, float64(r.Loaded.Laws.Launch.Gap), 0.05)
		require.Equal(t, "NVIDIA H200", r.Loaded.GPU.Name.Value)
		require.Equal(t, "2.28.9", r.Loaded.Software.NCCL.Value)
		for _, s := range []string{"gemm", "attention", "kernels", "launch", "collectives"} {
			require.True(t, r.Loaded.Own[s], s)
		}
		require.False(t, r.Loaded.Own["power"])
		again, err := Run(&n.file, base(t), Options{Name: "samples.jsonl"})
		require.NoError(t, err)
		require.Equal(t, string(r.YAML), string(again.YAML), "the same samples give the same profile")
	}
}

// The file loads by its path as any profile.
func TestFileLoads(t *testing.T) {
	n := calibration(t, 0.01)
	text, notes, err := Profile(&n.file, base(t), Options{})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	p, err := hardware.Load(file)
	require.NoError(t, err)
	require.Equal(t, "h200-sxm", p.Inherits)
	require.Contains(t, p.Laws.Source, "driver 580.1, CUDA 13.0")
	require.Contains(t, p.Laws.GEMM.Source, "perfplan calibrate on NVIDIA H200")
	require.Contains(t, p.Laws.Step.Source+p.Laws.Conditions, "duty 50 %")
	require.NotEmpty(t, notes, "power, copy and overlap were not measured")

	// A fitted profile may be refined in turn, though no file can be inherited.
	again, err := Run(&n.file, p, Options{})
	require.NoError(t, err)
	require.Empty(t, again.Loaded.Inherits)
	require.Equal(t, p.GPU.Bandwidth.Value, again.Loaded.GPU.Bandwidth.Value)
	require.Equal(t, p.Node.GPUs, again.Loaded.Node.GPUs)
}

// More noise gives wider ranges.
func TestNoiseWidensRanges(t *testing.T) {
	var last *Result
	for _, noise := range []float64{0, 0.03, 0.10} {
		n := calibration(t, noise)
		r, err := Run(&n.file, base(t), Options{})
		require.NoError(t, err)
		if last != nil {
			require.Greater(t, r.Loaded.Laws.GEMM.Residual, last.Loaded.Laws.GEMM.Residual)
			require.Greater(t, r.Loaded.Laws.Attention.Residual, last.Loaded.Laws.Attention.Residual)
			for class, k := range r.Loaded.Laws.Kernels {
				if last.own(class) && noise > 0.05 {
					require.Greater(t, k.Residual, last.Loaded.Laws.Kernels[class].Residual, class)
				}
			}
			var now, before float64
			for i := range r.Loaded.Laws.Collectives { // of single curves chance may have it otherwise
				now, before = now+r.Loaded.Laws.Collectives[i].RelErr, before+last.Loaded.Laws.Collectives[i].RelErr
			}
			require.Greater(t, now, before)
		}
		last = r
	}
}

// own reports whether a class was measured.
func (r *Result) own(class string) bool {
	law, ok := r.Loaded.Laws.Kernels[class]
	return ok && law.Source == r.Loaded.Laws.Source
}

// One sample in twenty ten times too long changes little.
func TestOutliers(t *testing.T) {
	clean, dirty := calibration(t, 0.01), calibration(t, 0.01)
	for i := range dirty.file.Samples {
		if i%20 == 7 && dirty.file.Samples[i].Probe == "gemm" {
			dirty.file.Samples[i].Seconds *= 10
		}
	}
	a, err := Run(&clean.file, base(t), Options{})
	require.NoError(t, err)
	b, err := Run(&dirty.file, base(t), Options{})
	require.NoError(t, err)
	require.InEpsilon(t, a.Loaded.Laws.GEMM.Rate["bf16"], b.Loaded.Laws.GEMM.Rate["bf16"], 0.02)
	require.Greater(t, b.probe("gemm").Worst, 1.5)
	require.NotEmpty(t, b.probe("gemm").WorstCase)
}

func TestTooFew(t *testing.T) {
	n := newNoisy(t, 0)
	n.kernel("gemm", kernel.GEMM(tape.LayoutForward, tape.BF16, 4096, 4096, 4096), "m", "4096", "n", "4096", "k", "4096", "layout", "fprop", "dtype", "bf16")
	n.file.Samples = append(n.file.Samples, sample.Sample{Probe: "attention", Case: map[string]string{"seq": "4096"}, Error: "CUDNN_STATUS_NOT_SUPPORTED"})
	n.add("gem", 1e-3, "m", "1")
	r, err := Run(&n.file, base(t), Options{})
	require.NoError(t, err)
	texts := map[string]string{}
	for _, note := range r.Notes {
		texts[note.Code] += note.Text + "\n"
	}
	require.Contains(t, texts["fit.too-few"], "probe gemm has 1 usable cases, fewer than the 4 needed: the matrix-multiply law is inherited from h200-sxm")
	require.Contains(t, texts["fit.too-few"], "probe attention has 0 usable cases")
	require.Contains(t, texts["fit.not-measured"], "no sample of probe collective")
	require.Contains(t, texts["fit.failed"], "1 cases of probe attention failed")
	require.Contains(t, texts["fit.unknown-probe"], `probe "gem" is not known and left out; did you mean "gemm"?`)
	require.Equal(t, base(t).Laws.GEMM.Residual, r.Loaded.Laws.GEMM.Residual)

	n = newNoisy(t, 0)
	for _, m := range []int64{1024, 2048, 4096, 8192} {
		n.kernel("gemm", kernel.GEMM(tape.LayoutForward, tape.BF16, m, 4096, 4096), "m", text(m), "n", "4096", "k", "4096", "layout", "fprop", "dtype", "bf16")
	}
	r, err = Run(&n.file, base(t), Options{})
	require.NoError(t, err)
	require.InEpsilon(t, 0.78, r.Loaded.Laws.GEMM.Rate["bf16"], 0.05)
	require.Equal(t, base(t).Laws.GEMM.KOverhead, r.Loaded.Laws.GEMM.KOverhead, "four shapes say nothing of it")
}

func TestBadSamples(t *testing.T) {
	for want, s := range map[string]sample.Sample{
		"samples.jsonl:3:1: seconds: 0; a sample of probe gemm needs the time it took": {Probe: "gemm"},
		"seconds: -1 is negative": {Probe: "gemm", Seconds: -1},
		"seconds: NaN; a sample":  {Probe: "gemm", Seconds: math.NaN()},
		"high_s: +Inf":            {Probe: "gemm", Seconds: 1, High: math.Inf(1)},
		"power_w: -5 is negative": {Probe: "power", Seconds: 1, PowerW: -5},
	} {
		n := newNoisy(t, 0)
		n.add("launch", 1e-6, "kind", "gap")
		n.file.Samples = append(n.file.Samples, s)
		_, _, err := Profile(&n.file, base(t), Options{Name: "samples.jsonl"})
		require.ErrorContains(t, err, want)
		require.True(t, diag.IsInput(err))
	}
	_, _, err := Profile(&sample.File{}, base(t), Options{Name: "empty.jsonl"})
	require.ErrorContains(t, err, "empty.jsonl: holds no sample")
}

// Samples of a slower clock give the law at full clock.
func TestThrottledSamples(t *testing.T) {
	full, slow := newNoisy(t, 0), newNoisy(t, 0)
	full.gemms(1024, 4096, 8192)
	slow.gemms(1024, 4096, 8192)
	limit := float64(base(t).Laws.Power.GEMMClock)
	for i := range slow.file.Samples {
		s := &slow.file.Samples[i]
		s.ClockHz = 1500e6
		gap := float64(slow.machine.Laws.Launch.Gap)
		s.Seconds = (s.Seconds-gap)*limit/s.ClockHz + gap
	}
	a, err := Run(&full.file, base(t), Options{})
	require.NoError(t, err)
	b, err := Run(&slow.file, base(t), Options{})
	require.NoError(t, err)
	require.InEpsilon(t, a.Loaded.Laws.GEMM.Rate["bf16"], b.Loaded.Laws.GEMM.Rate["bf16"], 0.01)
}

// The power law is read off work that runs on and on.
func TestPower(t *testing.T) {
	n := newNoisy(t, 0)
	put := func(class, mode string, seconds, clock, power float64) {
		n.file.Samples = append(n.file.Samples, sample.Sample{Probe: "power", Case: map[string]string{"class": class, "mode": mode}, Seconds: seconds, ClockHz: clock, PowerW: power, Mode: mode})
	}
	put("idle", "sustained", 0, 1980e6, 118)
	put("gemm", "burst", 1218e-6, 1980e6, 0)
	put("gemm", "sustained", 1426e-6, 1470e6, 691)
	put("attention", "sustained", 1e-3, 1755e6, 660)
	put("memory", "sustained", 1e-3, 1980e6, 610)
	r, err := Run(&n.file, base(t), Options{})
	require.NoError(t, err)
	w := r.Loaded.Laws.Power
	require.InDelta(t, 118, float64(w.Idle), 1e-9)
	require.InDelta(t, 691, float64(w.Cap), 1e-9)
	require.InEpsilon(t, 1470e6*1426/1218, float64(w.GEMMClock), 1e-5, "as the Hopper law was read off")
	gemm := w.Class["gemm"]
	require.InDelta(t, 691, float64(gemm.Static)+float64(gemm.Full-gemm.Static)*math.Pow(1470.0/1980, w.Exponent), 0.01, "the law gives the sample back")
	require.InDelta(t, 610, float64(w.Class["memory"].Full), 1e-9)
	require.Equal(t, base(t).Laws.Power.Class["issue"], w.Class["issue"])
}

// Groups that were not measured keep the curves of the base, with their source.
func TestKeepsCurves(t *testing.T) {
	n := newNoisy(t, 0)
	n.collectives(2)
	r, err := Run(&n.file, base(t), Options{})
	require.NoError(t, err)
	four := map[string]string{}
	for _, c := range r.Loaded.Laws.Collectives {
		if c.Ranks == 4 {
			four[c.Op] = c.Source
		}
	}
	require.Equal(t, base(t).Laws.Source, four["all-reduce"])
	fabric, err := collective.FabricOf(r.Loaded.GPU, r.Loaded.Node, r.Loaded.Network, r.Loaded.Software, r.Loaded.Laws.Collectives...)
	require.NoError(t, err)
	require.InEpsilon(t, float64(n.fabric.Time(collective.AllReduce, units.MiB, collective.Group{Ranks: 2})), float64(fabric.Time(collective.AllReduce, units.MiB, collective.Group{Ranks: 2})), 1e-4)
}

func TestOverlap(t *testing.T) {
	n := newNoisy(t, 0)
	n.collectives(4)
	slower := n.timer.Beside(&besideGEMM)
	beside := []string{"bytes", "67108864", "gpus", "4"}
	put := func(seconds float64, what, op, side string) {
		n.add("overlap", seconds, append([]string{"what", what, "op", op, "side", side}, beside...)...)
	}
	put(1e-3, "gemm", "none", "compute")
	put(slower*1e-3, "gemm", "all-reduce", "compute")
	put(2e-3, "copy", "none", "compute")
	put(2.6e-3, "copy", "all-reduce", "compute")
	put(3e-3, "none", "all-reduce", "comm")
	put(3.6e-3, "gemm", "all-reduce", "comm")
	r, err := Run(&n.file, base(t), Options{})
	require.NoError(t, err)
	law := r.Loaded.Laws.Overlap
	fitted, err := kernel.New(r.Loaded)
	require.NoError(t, err)
	require.InEpsilon(t, slower, fitted.Beside(&besideGEMM), 0.02)
	require.InEpsilon(t, 1.3, law.Memory, 1e-5)
	require.InEpsilon(t, 1.2, law.Collectives["all-reduce"], 1e-5)
	require.Equal(t, base(t).Laws.Overlap.Attention, law.Attention)
}

// The straight line of a straight curve is itself.
func TestLine(t *testing.T) {
	var bytes []units.Bytes
	var times []units.Seconds
	for b := units.KiB; b <= units.GiB; b *= 4 {
		bytes = append(bytes, b)
		times = append(times, 20e-6+units.Seconds(b)/300e9)
	}
	l := line(bytes, times)
	require.InEpsilon(t, 20e-6, float64(l.Alpha), 1e-6)
	require.InEpsilon(t, 300e9, float64(l.Beta), 1e-6)
	require.InDelta(t, 1, l.RSquared, 1e-9)
	require.InDelta(t, 0, l.Max, 1e-9)
}
