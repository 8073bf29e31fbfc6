package probe

import (
	"errors"
	"fmt"
	"math"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// adam measures the fused AdamW update: parameter, gradient and two moments of one
// dtype, as PyTorch's fused optimizer moves them.
//
// Case: params, dtype (fp32: 28 bytes a parameter, bf16: 14), bytes.
var adam = Probe{
	Key: "adam", Doc: "fused AdamW update (own kernel of PyTorch's shape)", Share: 1, Duty: 0.6,
	Applicable: func(w *World) error { return w.needs("libnvrtc") },
	Cases: func(w *World, e Effort) []Case {
		sizes := []int64{1 << 20, 1 << 23, 1 << 26, 1 << 28, 1 << 29}
		if e == Quick {
			sizes = []int64{1 << 23, 1 << 27}
		}
		var out []Case
		for _, dtype := range []string{"fp32", "bf16"} {
			for _, n := range sizes {
				w1 := cuda.Width(dtype)
				if 4*n*w1 <= Room(w.device()) {
					out = append(out, Case{"params": itoa(n), "dtype": dtype, "bytes": itoa(7 * n * w1)})
				}
			}
		}
		return out
	},
	Setup: func(_ *World, b *Bench, cases []Case) error {
		var most int64
		for _, c := range cases {
			most = max(most, c.num("params")*cuda.Width(c["dtype"]))
		}
		for seed, purpose := range []string{"p", "g", "m", "v"} {
			m, err := b.Shared(purpose, most)
			if err != nil {
				return err
			}
			if err := b.Randomize(m, "bf16", uint64(seed)<<40); err != nil {
				return err
			}
		}
		return nil
	},
	Prepare: func(_ *World, b *Bench, c Case) (Trial, error) {
		op, err := adamOp(b, c["dtype"], c.num("params"), b.shared["p"], b.shared["g"], b.shared["m"], b.shared["v"])
		if err != nil {
			return Trial{}, err
		}
		return b.Trial(op)
	},
	Verify: verifyAdam,
}

// Constants of the update that is measured; kernels.cu has the two averages' and ε.
const adamRate, adamDecay = 1e-4, 0.01

// verifyAdam holds one update of fp32 against AdamW's formula (Loshchilov and Hutter,
// arXiv 1711.05101, algorithm 2, without bias correction).
func verifyAdam(_ *World, b *Bench) error {
	const n = 4096
	start := []float32{1, 0.5, 0.25, 0.0625} // parameter, gradient, first and second moment
	m := 0.9*float64(start[2]) + 0.1*float64(start[1])
	v := 0.999*float64(start[3]) + 0.001*float64(start[1])*float64(start[1])
	want := map[int]float64{0: float64(start[0])*(1-adamRate*adamDecay) - adamRate*m/(math.Sqrt(v)+1e-8), 2: m, 3: v}
	var buffers [4]cuda.Buffer
	for i, x := range start {
		var err error
		if buffers[i], err = b.Alloc(4 * n); err != nil {
			return err
		}
		all := make([]float32, n)
		for k := range all {
			all[k] = x
		}
		if err := b.GPU.Write(buffers[i], fp32Bytes(all)); err != nil {
			return err
		}
	}
	op, err := adamOp(b, "fp32", n, buffers[0], buffers[1], buffers[2], buffers[3])
	if err != nil {
		return err
	}
	if err := errors.Join(op.Enqueue(1), b.Stream.Sync(), op.Close()); err != nil {
		return err
	}
	for i, w := range want {
		raw, err := b.GPU.Read(buffers[i], 4*n)
		if err != nil {
			return err
		}
		for k, got := range fp32Floats(raw) {
			if math.Abs(float64(got)-w) > 1e-6*math.Abs(w) {
				return fmt.Errorf("Adam: element %d of operand %d is %g, not %g", k, i, got, w)
			}
		}
	}
	return nil
}

// adamOp prepares an update of n parameters.
func adamOp(b *Bench, dtype string, n int64, p, g, m, v cuda.Buffer) (cuda.Op, error) {
	return b.GPU.Kernel(b.Stream, kernel("adam_"+dtype, [3]int{ceil(n, 65536), 1, 1}, [3]int{512, 1, 1}, cuda.Work{Bytes: 7 * float64(n*cuda.Width(dtype))},
		p, g, m, v, n/4, float32(adamRate), float32(adamDecay)))
}
