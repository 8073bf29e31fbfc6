package fit

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// again are the reference's samples as another machine's, kernels of a class longer by a
// factor. The gap behind a kernel is not part of it.
func again(t *testing.T, device string, slow tape.Class, factor float64) *sample.File {
	ref, err := theReference()
	require.NoError(t, err)
	f := &sample.File{Header: *ref.header}
	f.Header.Device = device
	for probe, cases := range ref.cases {
		for _, p := range cases {
			s := sample.Sample{Probe: probe, Case: p.of, Seconds: p.seconds, Low: p.seconds * (1 - p.spread), High: p.seconds * (1 + p.spread), ClockHz: p.clock, PowerW: p.power, Mode: p.mode}
			if p.all {
				s.GPU = -1
			}
			if r, ok := ref.shots[probe+" "+p.name]; ok && r.op.Class == slow {
				s.Seconds = max(p.seconds-ref.gap, p.seconds/2)*factor + ref.gap
			}
			f.Samples = append(f.Samples, s)
		}
	}
	return f
}

// What the probe measures of attention, less the small kernels beside it, is what the
// profiler showed of PyTorch's kernels, the law's points.
func TestReferenceAttentionIsTheLaw(t *testing.T) {
	ref, err := theReference()
	require.NoError(t, err)
	off := map[bool][]float64{}
	for _, s := range ref.shots {
		if s.op.Class == tape.Attention && s.op.Attn.Causal {
			d := math.Abs(math.Log(s.kernel / float64(ref.before.Time(&s.op))))
			require.Less(t, d, 0.15, "%s", s.name)
			off[s.op.Attn.Backward] = append(off[s.op.Attn.Backward], d)
		}
	}
	for backward, d := range off {
		require.Greater(t, len(d), 25)
		require.Less(t, median(d), 0.04, "backward %t", backward)
	}
	require.Len(t, off, 2)
}

// The reference's samples give the laws that they stand for.
func TestReferenceAgainstItself(t *testing.T) {
	r, err := Run(again(t, "NVIDIA H200", tape.NoKernel, 1), base(t), Options{})
	require.NoError(t, err)
	got, want := &r.Loaded.Laws, &base(t).Laws
	for name, k := range want.Kernels {
		g := got.Kernels[name]
		require.InDelta(t, k.Residual, g.Residual, 0.01, name)
		g.Residual, g.Source, g.On, g.Spread = k.Residual, k.Source, k.On, k.Spread
		require.Equal(t, k, g, name)
	}
	require.Equal(t, want.Launch, got.Launch)
	require.Equal(t, want.Overlap, got.Overlap)
	require.Equal(t, want.Power.Class, got.Power.Class)
	require.Equal(t, want.Power.Cap, got.Power.Cap)
	require.Equal(t, want.GEMM.Rate["bf16"], got.GEMM.Rate["bf16"])
	require.Equal(t, want.GEMM.Points, got.GEMM.Points)
	require.InDelta(t, want.GEMM.Residual, got.GEMM.Residual, 0.001)
	require.Equal(t, want.Attention.Points, got.Attention.Points)
	require.Equal(t, want.Attention.Forward, got.Attention.Forward)
	require.Equal(t, want.Attention.Backward, got.Attention.Backward)
	require.InDelta(t, want.Attention.Residual, got.Attention.Residual, 0.001)
	again, err := Run(again(t, "NVIDIA H200", tape.NoKernel, 1), r.Loaded, Options{})
	require.NoError(t, err)
	require.Equal(t, got.GEMM.Source, again.Loaded.Laws.GEMM.Source, "what was done is said once")
}

// A host is as fast as its own code says, whatever the driver's calls do; without that
// code they count, and it is not sure.
func TestHostSpeed(t *testing.T) {
	ref, _ := theReference()
	then, _ := ref.launchTimes()
	for name, c := range map[string]struct {
		code, call  float64   // over the reference's times; 0: not measured
		again       []float64 // further readings of code
		host        float64
		spread      float64
		note, quiet string
	}{
		"slow code":  {code: 1.8, call: 1.2, host: 1 / 1.8, spread: hostSpread, quiet: "probe host:"},
		"alike":      {code: 1.05, call: 1.5, host: 1, spread: hostSpread, quiet: "probe host:"},
		"shared":     {code: 1.2, again: []float64{2, 1.6}, call: 1.2, host: 1 / 1.6, spread: 0.320156, note: "readings of the host's speed lie 25 % apart"},
		"quiet":      {code: 1.6, again: []float64{1.6}, call: 1.2, host: 1 / 1.6, spread: hostSpread, quiet: "apart"},
		"code alone": {code: 0.7, host: 1 / 0.7, spread: hostSpread, note: "launch costs are inherited"},
		"calls":      {call: 1.4, host: 1 / 1.4, note: "no sample of probe host: the host's speed goes by the driver's calls"},
		"neither":    {note: "launch costs are inherited"},
	} {
		n := newNoisy(t, 0)
		n.gemms(1024)
		if c.code > 0 {
			n.add("host", c.code*hostReference, "code", "format")
		}
		for i, code := range c.again {
			n.add("host", code*hostReference, "code", "format", "after", []string{"memory", "gemm"}[i])
		}
		if c.call > 0 {
			n.add("launch", c.call*then["launch"], "kind", "launch")
			n.launches()
		}
		r, err := Run(&n.file, base(t), Options{})
		require.NoError(t, err, name)
		l := r.Loaded.Laws.Launch
		if c.host == 0 {
			require.Equal(t, base(t).Laws.Launch, l, name)
		} else {
			require.InEpsilon(t, c.host*base(t).Laws.Launch.Host, l.Host, 1e-5, name)
			require.Equal(t, c.spread, l.HostSpread, name)
		}
		text := ""
		for _, d := range r.Notes {
			text += d.Text + "\n"
		}
		require.Contains(t, text, c.note, name)
		if c.quiet != "" {
			require.NotContains(t, text, c.quiet, name)
		}
	}
}

// A benchmark of the driver's calls moves the speed of a host's Python along with theirs.
func TestPythonFollowsCalls(t *testing.T) {
	b := *base(t)
	launch := *b.Laws.Launch
	launch.Host, launch.Python = 0.5, 0.75
	b.Laws.Launch = &launch
	r, err := Run(again(t, "NVIDIA H200", tape.NoKernel, 1), &b, Options{})
	require.NoError(t, err)
	got := r.Loaded.Laws.Launch
	require.Equal(t, base(t).Laws.Launch.Host, got.Host, "as the samples say")
	require.InEpsilon(t, 1.5*got.Host, got.Python, 1e-12)
	require.Zero(t, base(t).Laws.Launch.Python)
}

// A machine that is slower in one class is so in this class alone.
func TestOneClassSlower(t *testing.T) {
	ref, err := theReference()
	require.NoError(t, err)
	measured := map[tape.Class]bool{}
	for _, s := range ref.shots {
		if s.probe == "memory" || s.probe == "adam" {
			measured[s.op.Class] = true
		}
	}
	require.GreaterOrEqual(t, len(measured), 12)
	for slow := range measured {
		r, err := Run(again(t, "NVIDIA H200", slow, 1.1), base(t), Options{})
		require.NoError(t, err)
		fitted, err := kernel.New(r.Loaded)
		require.NoError(t, err)
		for _, s := range ref.shots {
			was := ref.before.Time(&s.op)
			if was < 2*ref.base.Laws.Launch.Floor || s.probe != "memory" && s.probe != "adam" {
				continue
			}
			want := 1.0
			if s.op.Class == slow {
				want = 1.1
			}
			require.InDelta(t, want, float64(fitted.Time(&s.op)/was), 0.005, "%s slow: %s", slow, s.name)
		}
	}
}

// Another GPU's laws are the reference's by the measured ratio, whatever its datasheet
// says of bandwidth; classes that scale differently make all less sure.
func TestOtherGPU(t *testing.T) {
	h100, err := hardware.Load("h100-sxm")
	require.NoError(t, err)
	device := h100.GPU.Name.Value
	r, err := Run(again(t, device, tape.NoKernel, 1), h100, Options{})
	require.NoError(t, err)
	ref := base(t).Laws.Kernels
	require.Equal(t, ref["row-reduce"].Time, r.Loaded.Laws.Kernels["row-reduce"].Time)
	require.Equal(t, device, r.Loaded.Laws.Kernels["row-reduce"].On.Name.Value)
	require.Equal(t, "NVIDIA H200", r.Loaded.Laws.Kernels["norm-forward"].On.Name.Value, "no probe has it")
	was, now := h100.Laws.Attention, r.Loaded.Laws.Attention // which has more widths
	for name, f := range was.Flavour {
		for _, w := range now.Widths {
			require.InEpsilon(t, was.At(f.Forward.Rate, w)/was.At(was.Forward.Rate, w), now.At(now.Flavour[name].Forward.Rate, w)/now.At(now.Forward.Rate, w), 1e-4, "%s at %v", name, w)
			require.InDelta(t, was.At(f.Forward.Block, w), now.At(now.Flavour[name].Forward.Block, w), 1e-9, "%s at %v", name, w)
			require.InDelta(t, was.At(f.Backward.Dropout, w), now.At(now.Flavour[name].Backward.Dropout, w), 1e-9, "%s at %v", name, w)
			require.InEpsilon(t, was.At(f.Backward.Rate, w)/was.At(was.Backward.Rate, w), now.At(now.Flavour[name].Backward.Rate, w)/now.At(now.Backward.Rate, w), 1e-4, "%s at %v", name, w)
		}
	}
	odd := again(t, device, tape.NoKernel, 1)
	x, err := theReference()
	require.NoError(t, err)
	for i := range odd.Samples {
		s := &odd.Samples[i]
		if c := x.shots[s.Probe+" "+caseName(s.Case)].op.Class; c == tape.Memcpy || c == tape.Fill || c == tape.RowReduce {
			s.Seconds *= 1.3
		}
	}
	unsure, err := Run(odd, h100, Options{})
	require.NoError(t, err)
	require.Greater(t, unsure.Loaded.Laws.Kernels["col-reduce"].Residual, r.Loaded.Laws.Kernels["col-reduce"].Residual+0.02)
	require.Equal(t, r.Loaded.Laws.Kernels["concat"].Residual, unsure.Loaded.Laws.Kernels["concat"].Residual, "limited by issue")
}

// All laws of kernels in the catalog are of the reference: the ratio to another
// machine's would need samples of that one.
func TestLawsAreOfTheReference(t *testing.T) {
	for _, name := range hardware.Names() {
		p, err := hardware.Load(name)
		require.NoError(t, err)
		for class, k := range p.Laws.Kernels {
			require.NotNil(t, k.On, "%s %s", name, class)
			require.Equal(t, base(t).GPU.Name.Value, k.On.Name.Value, "%s: %s", name, class)
		}
	}
}

// A quick grid moves a denser curve, and loses none of its sizes.
func TestCurveOver(t *testing.T) {
	long := curve{bytes: []units.Bytes{10, 100, 1000, 10000}, values: []float64{1, 2, 10, 100}}
	quick := curve{bytes: []units.Bytes{1, 100, 10000}, values: []float64{0.5, 2.2, 130}}
	got := quick.over(long)
	require.Equal(t, []units.Bytes{1, 10, 100, 1000, 10000}, got.bytes)
	require.InDeltaSlice(t, []float64{0.5, 1.1, 2.2, 10 * math.Sqrt(1.1*1.3), 130}, got.values, 1e-9)
	apart := curve{bytes: []units.Bytes{1}, values: []float64{0.5}}
	require.Equal(t, []float64{0.5, 1, 2, 10, 100}, apart.over(long).values, "nothing to compare")
}

func TestTold(t *testing.T) {
	for _, c := range []struct{ now, then, uncertainty, want float64 }{
		{1.05, 1, 0.05, 1}, {1.08, 1, 0.05, 1.08}, {0.9, 1, 0.05, 0.9}, {0, 1, 0.05, 1}, {1, 0, 0.05, 1}, {1, 1, 0, 1},
	} {
		require.Equal(t, c.want, told(c.now, c.then, c.uncertainty), "%v", c)
	}
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Zero(t, median(nil))
}

func TestJoin(t *testing.T) {
	one, two := again(t, "NVIDIA H200", tape.NoKernel, 1), again(t, "NVIDIA H200", tape.NoKernel, 1)
	one.Header.GPUs, two.Header.GPUs = 1, 8
	all, err := Join([]string{"a", "b"}, []*sample.File{one, two})
	require.NoError(t, err)
	require.Len(t, all.Samples, 2*len(one.Samples))
	require.Equal(t, 8, all.Header.GPUs)
	two.Header.Device = "NVIDIA L4"
	_, err = Join([]string{"a.jsonl", "b.jsonl"}, []*sample.File{one, two})
	require.ErrorContains(t, err, "b.jsonl:1:1: samples of NVIDIA L4, those of a.jsonl are of NVIDIA H200")
	two.Samples[0].Seconds, two.Header.Device = -1, one.Header.Device
	_, err = Join([]string{"a.jsonl", "b.jsonl"}, []*sample.File{one, two})
	require.ErrorContains(t, err, "b.jsonl:2:1: seconds: -1")
}
