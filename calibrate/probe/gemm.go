package probe

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// gemm measures the matrix multiplies of layers with m tokens, n outputs and k
// inputs, as the heuristic of cuBLASLt picks them, which is what PyTorch runs.
//
// Case: m, n, k, layout (fprop, dgrad, wgrad), dtype (bf16, fp16, tf32, fp32, fp8).
var gemm = Probe{
	Key: "gemm", Doc: "matrix multiplies by shape, layout and dtype (cuBLASLt)", Share: 5, Duty: 0.4,
	Applicable: func(w *World) error { return w.needs("libcublasLt", "libnvrtc") },
	Cases:      gemmCases,
	Setup:      gemmSetup,
	Prepare: func(_ *World, b *Bench, c Case) (Trial, error) {
		op, err := gemmOp(b, b.Stream, c)
		if err != nil {
			return Trial{}, err
		}
		return b.Trial(op)
	},
	Verify: verifyGEMM,
}

// Shapes of weights, outputs × inputs: projections of the models that the catalog
// holds, from GPT-2 to Llama 70B, whole and split by tensor parallelism, and a
// vocabulary. The first ones are also those of a quick calibration.
var gemmWeights = [][2]int64{
	{1024, 1024}, {2048, 2048}, {4096, 4096}, {14336, 4096}, {4096, 14336}, {8192, 8192}, {768, 768}, {8192, 2048},
	{512, 2048}, {1024, 4096}, {2048, 8192}, {2304, 768}, {3072, 768}, {768, 3072}, {2816, 1024}, {5632, 2048}, {3072, 3072}, {8192, 3072},
	{3584, 4096}, {11008, 4096}, {4096, 11008}, {2752, 4096}, {5120, 5120}, {13824, 5120}, {28672, 8192}, {32000, 4096}, {128256, 2048},
}

const quickWeights = 8

// maxGEMM bounds the work of a case, in multiply-adds: longer ones tell nothing new
// and reach the power limit within one execution.
const maxGEMM = 1.2e12

func gemmCases(w *World, e Effort) []Case {
	tokens := []int64{256, 1024, 4096, 8192}
	weights := gemmWeights[:quickWeights]
	if e == Full {
		tokens = []int64{128, 256, 512, 1024, 2048, 4096, 8192, 16384}
		weights = gemmWeights
	}
	dev := w.device()
	var out []Case
	add := func(m, n, k int64, layout cuda.Layout, dtype string) {
		g := cuda.GEMM{M: m, N: n, K: k, Layout: layout, DType: dtype}
		a, b, c := g.Sizes()
		if float64(m)*float64(n)*float64(k) <= maxGEMM && sum(a, b, c)*cuda.Width(dtype) < Room(dev)/4 {
			out = append(out, Case{"m": itoa(m), "n": itoa(n), "k": itoa(k), "layout": string(layout), "dtype": dtype})
		}
	}
	main := "bf16"
	if dev.Capability[0] < 8 {
		main = "fp16"
	}
	for _, nk := range weights {
		for _, m := range tokens {
			for _, l := range []cuda.Layout{cuda.FProp, cuda.DGrad, cuda.WGrad} {
				add(m, nk[0], nk[1], l, main)
			}
		}
	}
	for _, dtype := range others(dev) {
		for _, nk := range [][2]int64{{2048, 2048}, {4096, 4096}, {14336, 4096}} {
			for _, m := range []int64{1024, 4096} {
				if e == Full || nk[0] == 4096 {
					add(m, nk[0], nk[1], cuda.FProp, dtype)
				}
			}
		}
	}
	return out
}

// others are the dtypes beside the main one that a GPU multiplies.
func others(d cuda.Device) []string {
	var out []string
	major, minor := d.Capability[0], d.Capability[1]
	if major >= 8 {
		out = append(out, "fp16", "tf32")
	}
	out = append(out, "fp32")
	if major >= 9 || major == 8 && minor == 9 {
		out = append(out, "fp8")
	}
	return out
}

// workspace is what PyTorch gives cuBLAS on Hopper and later.
const workspace = 32 << 20

// gemmSetup allocates operands, random, for the largest case of each dtype, and
// room for the result.
func gemmSetup(_ *World, b *Bench, cases []Case) error {
	need := map[string]int64{"c": 2 << 10, "workspace": workspace, "scale": 16}
	for _, c := range cases {
		g := gemmOf(c)
		if g.DType == "" {
			continue
		}
		x, y, z := g.Sizes()
		w := cuda.Width(g.DType)
		need["a "+g.DType] = max(need["a "+g.DType], x*w)
		need["b "+g.DType] = max(need["b "+g.DType], y*w)
		need["c"] = max(need["c"], z*max(w, 2))
	}
	for seed, purpose := range slices.Sorted(maps.Keys(need)) {
		m, err := b.Shared(purpose, (need[purpose]+255)/256*256)
		if err != nil {
			return fmt.Errorf("%s: %w", purpose, err)
		}
		if purpose[0] == 'a' || purpose[0] == 'b' {
			if err := b.Randomize(m, purpose[2:], uint64(seed)<<40); err != nil {
				return fmt.Errorf("random data of %s: %w", purpose[2:], err)
			}
		}
	}
	return b.GPU.Write(b.shared["scale"], binary.LittleEndian.AppendUint32(nil, math.Float32bits(1)))
}

// gemmOf reads a case.
func gemmOf(c Case) cuda.GEMM {
	return cuda.GEMM{M: c.num("m"), N: c.num("n"), K: c.num("k"), Layout: cuda.Layout(c["layout"]), DType: c["dtype"]}
}

// gemmOp prepares a case on the shared buffers.
func gemmOp(b *Bench, s cuda.Stream, c Case) (cuda.Op, error) {
	g := gemmOf(c)
	g.A, g.B, g.C = b.shared["a "+g.DType], b.shared["b "+g.DType], b.shared["c"]
	g.Scale, g.Workspace = b.shared["scale"], b.shared["workspace"]
	return b.GPU.GEMM(s, g)
}

// verifyGEMM holds small products of each layout against sums done here. Operands
// are small whole numbers, so that bf16 and any order of summation are exact.
func verifyGEMM(_ *World, b *Bench) error {
	const m, n, k = 48, 64, 80
	for _, layout := range []cuda.Layout{cuda.FProp, cuda.DGrad, cuda.WGrad} {
		g := cuda.GEMM{M: m, N: n, K: k, Layout: layout, DType: "bf16"}
		na, nb, nc := g.Sizes()
		buffers := make([]cuda.Buffer, 4)
		for i, bytes := range []int64{2 * na, 2 * nb, 2 * nc, workspace} {
			var err error
			if buffers[i], err = b.Alloc(bytes); err != nil {
				return err
			}
		}
		x, y := ramp(na, 7), ramp(nb, 5)
		for i, v := range [][]float32{x, y} {
			if err := b.GPU.Write(buffers[i], bf16Bytes(v)); err != nil {
				return err
			}
		}
		g.A, g.B, g.C, g.Workspace = buffers[0], buffers[1], buffers[2], buffers[3]
		op, err := b.GPU.GEMM(b.Stream, g)
		if err != nil {
			return err
		}
		if err := op.Enqueue(1); err != nil {
			return err
		}
		if err := b.Stream.Sync(); err != nil {
			return err
		}
		raw, err := b.GPU.Read(g.C, 2*nc)
		if err != nil {
			return err
		}
		op.Close()
		got := bf16Floats(raw)
		for i, want := range reference(layout, m, n, k, x, y) {
			if got[i] != toBF16(want) {
				return fmt.Errorf("GEMM %s of %d×%d×%d: element %d is %g, not %g", layout, m, n, k, i, got[i], want)
			}
		}
	}
	return nil
}

// reference is the layout's formula.
func reference(layout cuda.Layout, m, n, k int, x, y []float32) []float32 {
	dot := func(rows, cols, inner int, a, b func(r, i int) float32) []float32 {
		out := make([]float32, rows*cols)
		for r := range rows {
			for c := range cols {
				for i := range inner {
					out[r*cols+c] += a(r, i) * b(c, i)
				}
			}
		}
		return out
	}
	switch layout {
	case cuda.DGrad:
		return dot(m, k, n, func(r, i int) float32 { return x[r*n+i] }, func(c, i int) float32 { return y[i*k+c] })
	case cuda.WGrad:
		return dot(n, k, m, func(r, i int) float32 { return x[i*n+r] }, func(c, i int) float32 { return y[i*k+c] })
	}
	return dot(m, n, k, func(r, i int) float32 { return x[r*k+i] }, func(c, i int) float32 { return y[c*k+i] })
}

// ramp is small whole numbers around 0 that repeat after an odd period.
func ramp(n, period int64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(int64(i)*3%period - period/2)
	}
	return out
}

func toBF16(v float32) float32 {
	u := math.Float32bits(v)
	return math.Float32frombits((u + 0x7FFF + u>>16&1) &^ 0xFFFF)
}

func bf16Bytes(v []float32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(toBF16(x))>>16))
	}
	return out
}

func bf16Floats(b []byte) []float32 {
	out := make([]float32, len(b)/2)
	for i := range out {
		out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
	}
	return out
}
