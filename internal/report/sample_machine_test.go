package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/hardware/curves"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// oneCollective is a call across nodes with its alternatives.
func oneCollective(t *testing.T) *Collective {
	return &Collective{Machine: machines(t)[0], Op: collective.AllReduce, Group: collective.Group{Ranks: 64, PerNode: 8, Stride: 2, Sharing: 2}, Islands: slices.Repeat([]int64{8}, 8), NCCL: collective.Version{2, 28, 9}, Calls: []CollectiveCall{{units.GiB, collective.Cost{
		Time: 6.4 * ms, Algorithm: "NVLSTree", Protocol: "Simple", CTAs: 16, AlgBW: 167.8e9, BusBW: 330.3e9, Source: collective.Modelled, RelErr: 0.06,
		Alternatives: []collective.Choice{{Algorithm: "NVLSTree", Protocol: "Simple", Nominal: 5.9 * ms, Time: 6.4 * ms}, {Algorithm: "Ring", Protocol: "LL128", Nominal: 7.5 * ms, Time: 8.1 * ms}}}}}}
}

// collectives are calls of several sizes in one node.
func collectives(t *testing.T) *Collective {
	c := &Collective{Machine: machines(t)[0], Op: collective.SendRecv, Group: collective.Group{Ranks: 2, PerNode: 2, Stride: 1, Sharing: 1}, Islands: []int64{2}, NCCL: collective.Version{2, 28, 9}}
	for _, b := range []units.Bytes{units.KiB, units.GiB} {
		c.Calls = append(c.Calls, CollectiveCall{b, collective.Cost{Time: 20*us + b.At(300e9), Algorithm: "P2P", Protocol: "LL", CTAs: 1, AlgBW: 300e9, BusBW: 300e9, Source: collective.Measured, RelErr: 0.03}})
	}
	return c
}

// prices are of a matrix multiply, an attention, and copies of two sizes.
func prices(t *testing.T) []Kernel {
	h := machines(t)[0]
	quote := func(o tape.Op, time units.Seconds, bound kernel.Bound) kernel.Quote {
		return kernel.Quote{Explain: kernel.Explain{Time: time, Bound: bound, Formula: "a law", Source: "one GPU, measured", RelErr: 0.04}, Low: time * 0.9, High: time * 1.1, Clock: 1980e6, On: "NVIDIA H200",
			Rate: o.FLOPs.Per(time), Format: "bf16", Peak: 989.4e12, Bandwidth: o.Bytes.Per(time), Memory: 3.35e12}
	}
	gemm := kernel.GEMM(tape.LayoutWgrad, tape.BF16, 4096, 14336, 4096)
	attention := kernel.Attention(tape.BF16, tape.AttentionShape{Batch: 2, Heads: 32, KVHeads: 8, Queries: 4096, QKDim: 128, VDim: 128, Causal: true, Backward: true})
	list := []Kernel{{Machine: h, Kind: "gemm", Op: gemm, Quote: quote(gemm, 600*us, kernel.Compute)}, {Machine: h, Kind: "attention", Op: attention, Quote: quote(attention, 1.3*ms, kernel.Compute)}}
	for _, b := range []units.Bytes{64 * units.KiB, units.GiB} {
		o := tape.Op{Class: tape.Memcpy, DType: tape.BF16, Elements: float64(b / 4), Bytes: b, Count: 1}
		q := quote(o, 2*us+b.At(3e12), kernel.Memory)
		q.Rate, q.On = 0, ""
		list = append(list, Kernel{Machine: h, Kind: "memcpy", What: "device-to-device copy by the driver", Op: o, Quote: q})
	}
	return list
}

// fitted is a fit with a probe that was not measured, one that failed in part, and a
// note.
func fitted(t *testing.T) *Fit {
	h := *machines(t)[0]
	h.Laws.Source = "perfplan calibrate on a GPU"
	h.Laws.Collectives = []hardware.CollectiveCurve{{Op: "all-reduce", Ranks: 4, RelErr: 0.02, Line: &hardware.AlphaBeta{Alpha: 20 * us, Beta: 240e9, RSquared: 0.9987, Mean: 0.04, Max: 0.2}}}
	return &Fit{Samples: "samples.jsonl", Written: "mine.yaml", Base: machines(t)[0], Profile: &h,
		Probes: []FitProbe{{Name: "gemm", Points: 600, Mean: 0.021, P95: 0.09, Worst: 0.31, WorstCase: "forward 256×512×2048", Base: 0.06, Deviation: 0.025},
			{Name: "attention", Points: 40, Failed: 2, Dropped: 1, Mean: 0.03, P95: 0.06, Worst: 0.1, WorstCase: "fwd batch 1, seq 512, heads 8 of 64", Base: 0.05, Deviation: 0.03}, {Name: "launch", Points: 5}, {Name: "overlap"}},
		Notes: []diag.Note{{Code: "fit.not-measured", Text: "no sample of probe overlap: the slowdown of overlapped work is inherited from a machine", Remedy: "run perfplan calibrate --only overlap"}}}
}

// differences are a fact that is larger, a law that is smaller, and a name, one of them
// beyond the limit.
func differences(t *testing.T) *Diff {
	a, b := *machines(t)[0], *machines(t)[0]
	a.Name, b.Name = "here", "there"
	return &Diff{A: &a, B: &b, Limit: 3, Data: []hardware.Difference{{Path: "gpu.memory", A: "79.65 GiB", B: "140.40 GiB", Rel: 0.763, Has: true}, {Path: "measured.gemm.setup", A: "2.000 us", B: "1.000 us", Rel: -0.5, Has: true},
		{Path: "gpu.name", A: "A", B: "B"}, {Path: "measured.collectives.all-reduce 4/1.1.0 MiB", B: "40.00 us"}}}
}

// someCurves are one line chart of two series and a roofline.
func someCurves(t *testing.T) *Curves {
	c := &Curves{Machine: machines(t)[0]}
	f := curves.Figure{Key: "memory", Title: "memory-bound kernels, by bytes moved", X: curves.Bytes, Y: curves.Rate, Series: []curves.Series{{Name: "copy"}, {Name: "concat"}}}
	for b := 1024.0; b <= 1<<30; b *= 2 {
		for i := range f.Series {
			s := &f.Series[i]
			s.X, s.Y = append(s.X, b), append(s.Y, b/(1e-6+b/3e12*float64(1+i)))
		}
	}
	roof := curves.Figure{Key: "roofline", Title: "roofline", X: curves.Intensity, Y: curves.FLOPRate, Points: true,
		Series: []curves.Series{{Name: "roof", X: []float64{1, 256, 4096}, Y: []float64{3e12, 768e12, 989e12}}, {Name: "matrix multiply", X: []float64{100, 1000}, Y: []float64{200e12, 800e12}}}}
	c.Figures = []curves.Figure{f, roof}
	return c
}

// The picture is well-formed, the same each time, and says what it shows.
func TestWriteSVG(t *testing.T) {
	var b, again bytes.Buffer
	require.NoError(t, WriteSVG(&b, someCurves(t)))
	require.NoError(t, WriteSVG(&again, someCurves(t)))
	require.Equal(t, b.String(), again.String())
	require.Contains(t, b.String(), "roofline")
	require.Contains(t, b.String(), "matrix multiply")
	d := xml.NewDecoder(&b)
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}
