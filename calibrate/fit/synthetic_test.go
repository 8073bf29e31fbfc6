package fit

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// truth is a machine with laws that differ from the catalog's H200, so that a fit
// that learns nothing is wrong by as much.
func truth(t testing.TB) *hardware.Profile {
	p, err := hardware.Load("h200-sxm")
	require.NoError(t, err)
	h := *p
	gemm := *h.Laws.GEMM
	gemm.Points = nil
	gemm.Rate = map[string]float64{"bf16": 0.78, "fp16": 0.78, "fp8": 0.65, "tf32": 0.72, "fp32": 0.72}
	gemm.Setup *= 1.4
	gemm.Memory *= 1.3
	h.Laws.GEMM = &gemm
	attention := *h.Laws.Attention
	attention.Points = nil
	attention.Forward.Rate = []float64{0.40, 0.55, 0.50}
	attention.Backward.Rate = []float64{0.35, 0.50, 0.35}
	attention.Forward.Setup *= 0.7
	h.Laws.Attention = &attention
	kernels := map[string]hardware.KernelLaw{}
	for k, v := range h.Laws.Kernels {
		v.Setup, v.Element, v.Index, v.Byte = v.Setup*1.1, v.Element*1.25, v.Index*1.25, v.Byte*1.15
		times := make([]units.Seconds, len(v.Time))
		for i := range times {
			times[i] = v.Time[i] * 1.2
		}
		v.Time = times
		kernels[k] = v
	}
	h.Laws.Kernels = kernels
	launch := *h.Laws.Launch
	launch.Gap, launch.Floor = 0.9e-6, 1.3e-6
	h.Laws.Launch = &launch
	h.Software.NCCL = hardware.Of("2.28.9")
	return &h
}

// noisy makes the samples that a calibration of the machine would write.
type noisy struct {
	machine *hardware.Profile
	timer   *kernel.Timer
	fabric  *collective.Fabric
	ref     *reference
	noise   float64
	random  *rand.Rand
	file    sample.File
}

func newNoisy(t testing.TB, noise float64) *noisy {
	h := truth(t)
	timer, err := kernel.New(h)
	require.NoError(t, err)
	fabric, err := collective.FabricOf(h.GPU, h.Node, h.Network, h.Software)
	require.NoError(t, err)
	ref, err := theReference()
	require.NoError(t, err)
	n := &noisy{machine: h, ref: ref, timer: timer, fabric: fabric, noise: noise, random: rand.New(rand.NewPCG(1, 2))}
	n.file.Header = sample.Header{Format: sample.Format, Device: h.GPU.Name.Value, GPUs: 8, Driver: "580.1", CUDA: "13.0", NCCL: "2.28.9", Date: "2026-11-21",
		Conditions: map[string]string{"duty": "50 %"}}
	return n
}

func (n *noisy) add(probe string, seconds float64, pairs ...string) {
	s := seconds * math.Exp(n.noise*n.random.NormFloat64())
	half := 0.5 * n.noise
	c := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		c[pairs[i]] = pairs[i+1]
	}
	n.file.Samples = append(n.file.Samples, sample.Sample{Probe: probe, Case: c, Seconds: s, Low: s * (1 - half), High: s * (1 + half), Repeats: 20, ClockHz: 1980e6, PowerW: 500, Mode: sample.Burst})
}

func (n *noisy) kernel(probe string, o tape.Op, pairs ...string) {
	n.add(probe, float64(n.timer.Time(&o)+n.machine.Laws.Launch.Gap), pairs...)
}

func text(v any) string { return fmt.Sprint(v) }

var layerShapes = [][2]int64{{768, 768}, {3072, 768}, {2048, 2048}, {8192, 2048}, {2048, 8192}, {4096, 4096}, {14336, 4096}, {4096, 14336}, {5120, 5120}, {8192, 8192}, {32000, 4096}}

func (n *noisy) gemms(tokens ...int64) {
	for _, m := range tokens {
		for _, s := range layerShapes {
			for name, layout := range kernel.LayoutOf {
				n.kernel("gemm", kernel.GEMM(layout, tape.BF16, m, s[0], s[1]), "m", text(m), "n", text(s[0]), "k", text(s[1]), "layout", name, "dtype", "bf16")
			}
		}
	}
	for _, m := range tokens {
		n.kernel("gemm", kernel.GEMM(tape.LayoutForward, tape.FP8, m, 8192, 8192), "m", text(m), "n", "8192", "k", "8192", "layout", "fprop", "dtype", "fp8")
	}
}

func (n *noisy) attentions() {
	for _, width := range []int64{64, 128} {
		for _, seq := range []int64{512, 1024, 2048, 4096, 8192} {
			for _, heads := range []int64{8, 16, 32} {
				for _, causal := range []bool{true, false} {
					for _, direction := range []string{"fwd", "bwd"} {
						s := tape.AttentionShape{Batch: 2, Heads: heads, KVHeads: 8, Queries: seq, QKDim: width, VDim: width, Causal: causal, Backward: direction == "bwd"}
						o := kernel.Attention(tape.BF16, s)
						seconds := n.timer.Time(&o) + n.machine.Laws.Launch.Gap
						for _, o := range kernel.AroundAttention(tape.BF16, s) {
							seconds += n.timer.Time(&o) + n.machine.Laws.Launch.Gap
						}
						n.add("attention", float64(seconds), "seq", text(seq), "heads", text(heads), "kv_heads", "8", "head_dim", text(width),
							"batch", "2", "causal", strconv.FormatBool(causal), "direction", direction, "dtype", "bf16")
					}
				}
			}
		}
	}
}

// memories are the reference's cases, each longer by as much as the machine's law is.
func (n *noisy) memories() {
	for _, name := range slices.Sorted(maps.Keys(n.ref.shots)) {
		if s := n.ref.shots[name]; s.probe == "memory" || s.probe == "adam" {
			var pairs []string
			for k, v := range s.of {
				pairs = append(pairs, k, v)
			}
			n.add(s.probe, s.kernel*float64(n.timer.Time(&s.op)/n.ref.before.Time(&s.op))+float64(n.machine.Laws.Launch.Gap), pairs...)
		}
	}
}

// launches are the reference's, the gap shorter as the machine's is.
func (n *noisy) launches() {
	seconds, _ := n.ref.launchTimes()
	law := n.ref.base.Laws.Launch
	n.add("launch", seconds["gap"]*float64(n.machine.Laws.Launch.Gap/law.Gap), "kind", "gap")
	n.add("launch", seconds["period"]*float64(n.machine.Laws.Launch.Floor/law.Floor), "kind", "period")
}

func (n *noisy) collectives(gpus ...int64) {
	for _, g := range gpus {
		for _, op := range []collective.Op{collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.AllToAll} {
			for b := units.Bytes(1 << 10); b <= units.GiB; b *= 4 {
				n.add("collective", float64(n.fabric.Time(op, b, collective.Group{Ranks: g})), "op", op.String(), "bytes", text(int64(b)), "gpus", text(g), "graph", "true")
			}
		}
	}
}

// calibration is a whole run.
func calibration(t testing.TB, noise float64) *noisy {
	n := newNoisy(t, noise)
	n.launches()
	n.gemms(256, 1024, 4096, 8192)
	n.attentions()
	n.memories()
	n.collectives(2, 4)
	return n
}
