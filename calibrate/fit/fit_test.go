package fit

import (
	"math"
	"os"
	"path/filepath"
	"strings"
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
			most := 0.04 // between the sizes of a curve, and between the base's points
			if what == "attention" {
				most = 0.05 // and what runs around its kernels, which no probe times by itself
			}
			require.Less(t, now, most+1.5*noise, what)
			require.Greater(t, before, 0.06, "%s: the base is wrong, or the test proves nothing", what)
			require.GreaterOrEqual(t, inside, 0.6, what)
		}
		fabric, err := collective.FabricOf(r.Loaded.GPU, r.Loaded.Node, r.Loaded.Network, r.Loaded.Software, r.Loaded.Laws.Collectives...)
		require.NoError(t, err)
		for _, b := range []units.Bytes{3 * units.KiB, 3 * units.MiB, 300 * units.MiB} {
			c := fabric.Cost(collective.AllGather, b, fabric.Group(4, 1))
			require.Equal(t, collective.Measured, c.Source)
			require.InEpsilon(t, float64(n.fabric.Time(collective.AllGather, b, fabric.Group(4, 1))), float64(c.Time), 0.1+2*noise)
			if eight := fabric.Group(8, 1); b > 100*units.MiB { // which the catalog measured, as much slower as four are
				require.InEpsilon(t, float64(n.fabric.Time(collective.AllGather, b, eight)), float64(fabric.Time(collective.AllGather, b, eight)), 0.2)
			}
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
	r, err := Run(&n.file, base(t), Options{})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, r.YAML, 0o644))
	p, err := hardware.Load(file)
	require.NoError(t, err)
	require.Equal(t, "h200-sxm", p.Inherits)
	require.Contains(t, p.Laws.Source, "driver 580.1, CUDA 13.0")
	require.Contains(t, p.Laws.GEMM.Source, "; times by what perfplan calibrate measured on this machine")
	require.Contains(t, p.Laws.Kernels["fill"].Source, "law of the NVIDIA H200 times ")
	require.Contains(t, p.Laws.Step.Source+p.Laws.Conditions, "duty 50 %")
	require.NotEmpty(t, r.Notes, "power, copy and overlap were not measured")
	var old units.Release
	require.NoError(t, old.UnmarshalText([]byte("23.06")))
	require.NotSame(t, base(t), base(t).At(old), "the catalog knows an older cuBLAS")
	require.Same(t, p, p.At(old), "the machine has the one that was measured")

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
	for _, noise := range []float64{0, 0.10} {
		n := calibration(t, noise)
		r, err := Run(&n.file, base(t), Options{})
		require.NoError(t, err)
		if last != nil {
			require.Greater(t, r.Loaded.Laws.GEMM.Residual, last.Loaded.Laws.GEMM.Residual)
			require.Greater(t, r.Loaded.Laws.Attention.Residual, last.Loaded.Laws.Attention.Residual)
			var now, before float64 // of single curves chance may have it otherwise
			for class, k := range r.Loaded.Laws.Kernels {
				if last.own(class) {
					now, before = now+k.Residual, before+last.Loaded.Laws.Kernels[class].Residual
				}
			}
			require.Greater(t, now, before)
			now, before = 0, 0
			for i := range r.Loaded.Laws.Collectives {
				now, before = now+r.Loaded.Laws.Collectives[i].RelErr, before+last.Loaded.Laws.Collectives[i].RelErr
			}
			require.Greater(t, now, before)
		}
		last = r
	}
}

// own reports whether a class was measured.
func (r *Result) own(class string) bool {
	return strings.HasPrefix(r.Loaded.Laws.Kernels[class].Source, "law of the NVIDIA H200 times")
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

// Formats with too few shapes share one remark.
func TestThinFormats(t *testing.T) {
	n := calibration(t, 0)
	for _, d := range []tape.DType{tape.F32, tape.F16} {
		n.kernel("gemm", kernel.GEMM(tape.LayoutForward, d, 4096, 4096, 4096), "m", "4096", "n", "4096", "k", "4096", "layout", "fprop", "dtype", d.String())
	}
	r, err := Run(&n.file, base(t), Options{})
	require.NoError(t, err)
	var found []string
	for _, note := range r.Notes {
		if note.Code == "fit.too-few" {
			found = append(found, note.Text)
		}
	}
	require.Equal(t, []string{"probe gemm has fewer than 4 usable cases of fp32, fp16: their rates are inherited from h200-sxm"}, found)
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
		_, err := Run(&n.file, base(t), Options{Name: "samples.jsonl"})
		require.ErrorContains(t, err, want)
		require.True(t, diag.IsInput(err))
	}
	_, err := Run(&sample.File{}, base(t), Options{Name: "empty.jsonl"})
	require.ErrorContains(t, err, "empty.jsonl: holds no sample")
}

// Samples of a slower clock give the law at full clock.
func TestThrottledSamples(t *testing.T) {
	full, slow := newNoisy(t, 0), newNoisy(t, 0)
	full.gemms(1024, 4096, 8192)
	slow.gemms(1024, 4096, 8192)
	law, top := base(t).Laws.Power, float64(base(t).GPU.TopClock())
	for i := range slow.file.Samples {
		s := &slow.file.Samples[i]
		s.ClockHz = 1500e6
		gap := float64(slow.machine.Laws.Launch.Gap)
		s.Seconds = (s.Seconds-gap)*law.Slowdown("gemm", &base(t).GPU, s.ClockHz/top) + gap
	}
	a, err := Run(&full.file, base(t), Options{})
	require.NoError(t, err)
	b, err := Run(&slow.file, base(t), Options{})
	require.NoError(t, err)
	require.InEpsilon(t, a.Loaded.Laws.GEMM.Rate["bf16"], b.Loaded.Laws.GEMM.Rate["bf16"], 0.01)
}

// The power law follows what exceeds the uncertainty of the readings.
func TestPower(t *testing.T) {
	ref, err := theReference()
	require.NoError(t, err)
	law := base(t).Laws.Power
	fit := func(watts, memory float64) *hardware.PowerLaw {
		n := newNoisy(t, 0)
		for _, p := range ref.cases["power"] {
			f := watts
			if p.of["class"] == "memory" {
				f = memory
			}
			n.file.Samples = append(n.file.Samples, sample.Sample{Probe: "power", Case: p.of, Seconds: p.seconds, ClockHz: p.clock, PowerW: p.power * f, Mode: p.mode})
		}
		r, err := Run(&n.file, base(t), Options{})
		require.NoError(t, err)
		return r.Loaded.Laws.Power
	}
	require.Equal(t, law.Class, fit(1, 1.06).Class, "two boards read 6 % apart")
	require.Equal(t, law.Class, fit(1, 1).Class)
	hot := fit(1, 1.2)
	require.InEpsilon(t, 1.2*float64(law.Class["memory"].Full), float64(hot.Class["memory"].Full), 1e-5)
	require.InEpsilon(t, 1.2*float64(law.Class["memory"].Static), float64(hot.Class["memory"].Static), 1e-5)
	require.Equal(t, law.Class["issue"], hot.Class["issue"])
	half := fit(0.5, 0.5)
	require.InEpsilon(t, 0.5*float64(law.Cap), float64(half.Cap), 1e-5)
	require.InEpsilon(t, 0.5*float64(law.Idle), float64(half.Idle), 1e-5)
	require.Equal(t, law.Class["attention"], half.Class["attention"], "not measured")
}

// A base that knows no power gets the reference's, in its own watts.
func TestPowerOfUnknown(t *testing.T) {
	ref, err := theReference()
	require.NoError(t, err)
	n := newNoisy(t, 0)
	for _, p := range ref.cases["power"] {
		n.file.Samples = append(n.file.Samples, sample.Sample{Probe: "power", Case: p.of, Seconds: p.seconds, ClockHz: p.clock, PowerW: p.power / 2, Mode: p.mode})
	}
	l40s, err := hardware.Load("l40s")
	require.NoError(t, err)
	require.Empty(t, l40s.Laws.Power.Class)
	r, err := Run(&n.file, l40s, Options{})
	require.NoError(t, err)
	require.InEpsilon(t, float64(ref.base.Laws.Power.Cap)/2, float64(r.Loaded.Laws.Power.Cap), 1e-5)
	require.Equal(t, ref.base.Laws.Power.Exponent, r.Loaded.Laws.Power.Exponent)
}

// A part's own watts hold its draw over that of the chip whose law it had, and its clock of products is at the
// same share of its highest.
func TestPowerOfPart(t *testing.T) {
	ref, err := theReference()
	require.NoError(t, err)
	n := newNoisy(t, 0)
	for _, p := range ref.cases["power"] {
		if p.of["class"] == "idle" {
			n.file.Samples = append(n.file.Samples, sample.Sample{Probe: "power", Case: p.of, Seconds: p.seconds, ClockHz: p.clock, PowerW: p.power, Mode: p.mode})
		}
	}
	pcie, err := hardware.Load("h100-pcie")
	require.NoError(t, err)
	r, err := Run(&n.file, pcie, Options{})
	require.NoError(t, err)
	was, law, gpu := pcie.Laws.Power, r.Loaded.Laws.Power, &r.Loaded.GPU
	require.Equal(t, gpu.Name.Value, law.On.Name.Value)
	require.InEpsilon(t, was.GEMMShare(&pcie.GPU), law.GEMMShare(gpu), 1e-5)
	scale := pcie.GPU.Draw.Value * 114 * 1755 / (132 * 1980)
	require.InEpsilon(t, scale*float64(was.Class["attention"].Full), float64(law.Class["attention"].Full)*gpu.Draw.Value, 1e-5)
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

// Work that slows more than on the reference does so in the law; the same slowdown
// changes nothing.
func TestOverlap(t *testing.T) {
	ref, err := theReference()
	require.NoError(t, err)
	fit := func(gemm, memory float64) *Result {
		n := newNoisy(t, 0)
		for _, p := range ref.cases["overlap"] {
			f := 1.0
			if p.of["op"] != "none" && p.of["side"] == "compute" {
				f = map[string]float64{"gemm": gemm, "copy": memory}[p.of["what"]]
			}
			n.file.Samples = append(n.file.Samples, sample.Sample{Probe: "overlap", Case: p.of, GPU: -1, Seconds: p.seconds * f, Mode: p.mode})
		}
		r, err := Run(&n.file, base(t), Options{})
		require.NoError(t, err)
		return r
	}
	law := base(t).Laws.Overlap
	require.Equal(t, law, fit(1, 1).Loaded.Laws.Overlap)
	slower := fit(1.15, 1.1).Loaded
	require.InEpsilon(t, 1.1*law.Memory, slower.Laws.Overlap.Memory, 1e-5)
	fitted, err := kernel.New(slower)
	require.NoError(t, err)
	old, err := kernel.New(base(t))
	require.NoError(t, err)
	require.InEpsilon(t, 1.15*old.Beside(&besideGEMM), fitted.Beside(&besideGEMM), 0.03)
	require.Equal(t, law.Attention, slower.Laws.Overlap.Attention)
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
