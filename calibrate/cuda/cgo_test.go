//go:build cgo && linux

package cuda

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// standIn builds the stand-in library of testdata under the names of the real ones
// and opens it.
func standIn(t *testing.T) Driver {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler for the stand-in libraries")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "libcuda.so.1")
	text, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", file, filepath.Join("testdata", "standin.c"), filepath.Join("testdata", "standin_dnn.c"), "-lm").CombinedOutput()
	require.NoError(t, err, "%s", text)
	for _, name := range []string{"libnvrtc.so.13", "libcublasLt.so.13", "libnccl.so.2", "libcudnn.so.9"} {
		require.NoError(t, os.Symlink(file, filepath.Join(dir, name)))
	}
	d, err := Open(Options{Folders: []string{dir}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	for _, l := range d.Libraries() {
		require.NoError(t, l.Err)
		require.Equal(t, dir, filepath.Dir(l.Path), l.Name)
	}
	return d
}

// The whole layer on the stand-in: what goes to C arrives there, and results come
// back. That the real libraries agree with shim.h only a GPU can show.
func TestStandIn(t *testing.T) {
	d := standIn(t)
	require.Equal(t, Versions{CUDA: "13.0", CuBLASLt: "13.0.0", NVRTC: "13.0", NCCL: "2.28.9", CuDNN: "9.14.0"}, d.Versions())
	require.Len(t, d.Devices(), 2)
	dev := d.Devices()[1]
	require.Equal(t, Device{Index: 1, Name: "Stand-in", Bus: "0000:02:00.0", Memory: 8 << 30, SMs: 4, MaxClock: 1e9, Capability: [2]int{9, 0}, Free: 8 << 30}, dev)
	require.Equal(t, []int{75, 90, 100}, supported())

	var gpus []GPU
	var streams []Stream
	for i := range 2 {
		g, err := d.Open(i)
		require.NoError(t, err)
		s, err := g.Stream()
		require.NoError(t, err)
		gpus, streams = append(gpus, g), append(streams, s)
	}
	g, s := gpus[0], streams[0]

	t.Run("kernel", func(t *testing.T) {
		b, err := g.Alloc(64)
		require.NoError(t, err)
		op, err := g.Kernel(s, Kernel{Source: "x", Name: "add_one", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: []any{b, int64(2), float32(1.5), []byte{1, 2, 3}}})
		require.NoError(t, err)
		require.NoError(t, op.Enqueue(3))
		require.Equal(t, []float32{4.5, 4.5, 0, 0}, read32(t, g, b, 4))
		require.NoError(t, op.Close())
		_, err = g.Kernel(s, Kernel{Source: "x", Name: "missing"})
		require.ErrorContains(t, err, "kernel missing: GPU 0: cuModuleGetFunction failed with code 500")
		_, err = g.Kernel(s, Kernel{Source: "an error", Name: "f"})
		require.ErrorContains(t, err, "nvrtcCompileProgram failed with code 6: NVRTC_ERROR_COMPILATION\nline 1: wrong")
		_, err = g.Kernel(s, Kernel{Source: "x", Name: "f", Args: []any{1}})
		require.ErrorContains(t, err, "an argument of type int; use Buffer, int32")
		require.NoError(t, b.Close())
	})

	t.Run("copies, marks, graphs, gate", func(t *testing.T) {
		b, err := g.Alloc(16)
		require.NoError(t, err)
		for _, pinned := range []bool{true, false} {
			h, err := g.AllocHost(16, pinned)
			require.NoError(t, err)
			for _, dir := range [][2]Buffer{{b, h}, {h, b}, {b, b}} {
				op, err := g.Copy(s, dir[0], dir[1], 16)
				require.NoError(t, err)
				require.NoError(t, op.Enqueue(2))
			}
			require.NoError(t, h.Close())
		}
		fill, err := g.Fill(s, b, 16)
		require.NoError(t, err)
		_, err = g.Fill(s, b, 17)
		require.ErrorContains(t, err, "a fill of 17 bytes in a buffer of 16")
		gate, err := g.Gate()
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, gate.Hold(s))
			from, err := s.Mark()
			require.NoError(t, err)
			require.NoError(t, fill.Enqueue(5))
			to, err := s.Mark()
			require.NoError(t, err)
			held, err := gate.Release()
			require.NoError(t, err)
			require.True(t, held)
			require.NoError(t, s.Sync())
			passed, err := to.Since(from)
			require.NoError(t, err)
			require.InDelta(t, 0.5e-3, passed, 1e-9)
			require.NoError(t, from.Close())
			require.NoError(t, to.Close())
		}
		require.NoError(t, gate.Close())
		graph, err := g.Capture(s, fill, 3)
		require.NoError(t, err)
		require.NoError(t, graph.Enqueue(2))
		require.NoError(t, graph.Close())
	})

	// Column-major cuBLASLt with the operands exchanged must be the row-major formula.
	t.Run("GEMM", func(t *testing.T) {
		const m, n, k = 3, 5, 4
		for _, layout := range []Layout{FProp, DGrad, WGrad} {
			spec := GEMM{M: m, N: n, K: k, Layout: layout, DType: "bf16"}
			na, nb, nc := spec.Sizes()
			x, y := make([]float32, na), make([]float32, nb)
			for i := range x {
				x[i] = float32(i%7) - 3
			}
			for i := range y {
				y[i] = float32(i%5) - 1
			}
			spec.A, spec.B, spec.C = put16(t, g, x), put16(t, g, y), put16(t, g, make([]float32, nc))
			op, err := g.GEMM(s, spec)
			require.NoError(t, err)
			require.NoError(t, op.Enqueue(1))
			require.NoError(t, op.Close())
			got := read16(t, g, spec.C, int(nc))
			for i := range got {
				var want float32
				switch layout {
				case FProp:
					for l := range k {
						want += x[i/n*k+l] * y[i%n*k+l]
					}
				case DGrad:
					for l := range n {
						want += x[i/k*n+l] * y[l*k+i%k]
					}
				case WGrad:
					for l := range m {
						want += x[l*n+i/k] * y[l*k+i%k]
					}
				}
				require.Equal(t, want, got[i], "%s element %d", layout, i)
			}
		}
		b, err := g.Alloc(1 << 16)
		require.NoError(t, err)
		for _, dtype := range []string{"fp16", "tf32", "fp32", "fp8"} {
			for _, layout := range []Layout{FProp, DGrad, WGrad} {
				op, err := g.GEMM(s, GEMM{M: 16, N: 32, K: 64, Layout: layout, DType: dtype, A: b, B: b, C: b, Scale: b, Workspace: b})
				require.NoError(t, err, "%s %s", dtype, layout)
				require.NoError(t, op.Close())
			}
		}
		_, err = g.GEMM(s, GEMM{M: 1 << 10, N: 1 << 10, K: 1 << 10, Layout: FProp, DType: "bf16", A: b, B: b, C: b})
		require.ErrorContains(t, err, "the buffers are too small")
		_, err = g.GEMM(s, GEMM{M: 1, N: 1, K: 1, Layout: FProp, DType: "fp64", A: b, B: b, C: b})
		require.ErrorContains(t, err, `GEMM of dtype "fp64"`)
	})

	// The graphs, computed as their descriptors say, must be the formula and its gradients.
	t.Run("attention", func(t *testing.T) {
		for _, kv := range []int64{2, 1} {
			for _, causal := range []bool{false, true} {
				a := Attention{Batch: 2, Sequence: 128, Heads: 2, KVHeads: kv, Width: 8, Causal: causal, DType: "bf16"}
				queries, keys, stats := a.Sizes()
				some := func(n int64, period int) []float32 {
					v := make([]float32, n)
					for i := range v {
						v[i] = float32(i*3%period-period/2) / 32
					}
					return v
				}
				q, k, v, do := some(queries, 101), some(keys, 103), some(keys, 107), some(queries, 109)
				a.Q, a.K, a.V, a.DO = put16(t, g, q), put16(t, g, k), put16(t, g, v), put16(t, g, do)
				a.O, a.DQ, a.DK, a.DV = put16(t, g, make([]float32, queries)), put16(t, g, make([]float32, queries)), put16(t, g, make([]float32, keys)), put16(t, g, make([]float32, keys))
				a.Stats = put16(t, g, make([]float32, 2*stats))
				for _, a.Backward = range []bool{false, true} {
					op, err := g.Attention(s, a)
					require.NoError(t, err)
					require.NoError(t, op.Enqueue(2))
					require.NoError(t, op.Close())
				}
				o, dq, dk, dv := a.Reference(q, k, v, do)
				for i, want := range [][]float32{o, dq, dk, dv} {
					got := read16(t, g, []Buffer{a.O, a.DQ, a.DK, a.DV}[i], len(want))
					for e := range want {
						require.InDelta(t, want[e], got[e], 0.02*math.Abs(float64(want[e]))+0.01, "causal %t, kv heads %d, tensor %d, element %d", causal, kv, i, e)
					}
				}
			}
		}
		b, err := g.Alloc(1 << 20)
		require.NoError(t, err)
		fits := Attention{Batch: 1, Sequence: 256, Heads: 4, KVHeads: 2, Width: 64, DType: "fp16", Q: b, K: b, V: b, O: b, Stats: b}
		op, err := g.Attention(s, fits)
		require.NoError(t, err)
		require.NoError(t, op.Close())
		for text, change := range map[string]func(a *Attention){
			"use bf16 or fp16": func(a *Attention) { a.DType = "fp32" },
			"the heads must be a multiple of the key/value heads":                                                func(a *Attention) { a.KVHeads = 3 },
			"attention forward of batch 1, sequence 200, heads 4/2 of 64, fp16: the sequence must be a multiple": func(a *Attention) { a.Sequence = 200 },
			"the width must be a multiple of 8":                                                                  func(a *Attention) { a.Width = 60 },
			"the buffers are too small":                                                                          func(a *Attention) { a.Batch = 100 },
			"attention backward of":                                                                              func(a *Attention) { a.Backward = true },
		} {
			a := fits
			change(&a)
			_, err := g.Attention(s, a)
			require.ErrorContains(t, err, text)
		}
		t.Setenv("PERFPLAN_STANDIN_FAIL", "cudnnBackendFinalize")
		_, err = g.Attention(s, fits)
		require.EqualError(t, err, "attention forward of batch 1, sequence 256, heads 4/2 of 64, fp16: GPU 0: cudnnBackendFinalize of the plan failed with code 3000 CUDNN_STATUS_NOT_SUPPORTED: no engine for it")
	})

	t.Run("collectives", func(t *testing.T) {
		id, err := d.CommID()
		require.NoError(t, err)
		c, err := d.Join(id, 2, []Member{{0, streams[0]}, {1, streams[1]}})
		require.NoError(t, err)
		in := []Buffer{put16(t, gpus[0], []float32{1, 2, 3, 4}), put16(t, gpus[1], []float32{10, 20, 30, 40})}
		for op, want := range map[string][2][]float32{
			"all-reduce":     {{11, 22, 33, 44}, {11, 22, 33, 44}},
			"all-gather":     {{1, 2, 10, 20}, {1, 2, 10, 20}},
			"reduce-scatter": {{11, 22, 0, 0}, {33, 44, 0, 0}},
			"all-to-all":     {{1, 2, 10, 20}, {3, 4, 30, 40}},
			"broadcast":      {{1, 2, 3, 4}, {1, 2, 3, 4}},
			"send-recv":      {{0, 0, 0, 0}, {1, 2, 3, 4}},
		} {
			out := []Buffer{put16(t, gpus[0], make([]float32, 4)), put16(t, gpus[1], make([]float32, 4))}
			k, err := c.Collective(Collective{Op: op, Bytes: 8, In: in, Out: out})
			require.NoError(t, err)
			require.NoError(t, k.Enqueue(2), op)
			for i := range 2 {
				require.Equal(t, want[i], read16(t, gpus[i], out[i], 4), "%s, rank %d", op, i)
			}
			graph, err := c.Capture(k, 2)
			require.NoError(t, err)
			require.NoError(t, graph.Enqueue(1))
			require.NoError(t, graph.Close())
		}
		_, err = c.Collective(Collective{Op: "reduce"})
		require.ErrorContains(t, err, `there is no collective "reduce"`)
		require.NoError(t, c.Close())
		_, err = d.Join(id[:5], 2, []Member{{0, streams[0]}})
		require.ErrorContains(t, err, "has 128 bytes, not 5")
	})

	t.Run("errors", func(t *testing.T) {
		fail := func(function string) { t.Setenv("PERFPLAN_STANDIN_FAIL", function) }
		_, err := g.Alloc(2 << 30)
		var e *Error
		require.True(t, errors.As(err, &e))
		require.Equal(t, &Error{Call: "cuMemAlloc_v2", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory", Device: 0}, e)
		fail("cuStreamSynchronize")
		require.EqualError(t, streams[1].Sync(), "GPU 1: cuStreamSynchronize failed with code 700 CUDA_ERROR_UNKNOWN: unknown error")
		fail("cublasLtMatmulAlgoGetHeuristic")
		b, _ := g.Alloc(1 << 10)
		_, err = g.GEMM(s, GEMM{M: 8, N: 8, K: 8, Layout: FProp, DType: "bf16", A: b, B: b, C: b})
		require.EqualError(t, err, "GEMM 8×8×8 fprop bf16: GPU 0: cublasLtMatmulAlgoGetHeuristic failed with code 15 CUBLAS_STATUS_NOT_SUPPORTED: not possible")
		fail("ncclCommInitRank")
		id, err := d.CommID()
		require.NoError(t, err)
		_, err = d.Join(id, 2, []Member{{0, streams[0]}, {1, streams[1]}})
		require.EqualError(t, err, "GPU 0: ncclCommInitRank failed with code 2 unhandled system error: no such link")
		fail("")
		_, err = d.Open(2)
		require.ErrorContains(t, err, "there is no GPU 2; this machine has 2")
		var none *Unavailable
		_, err = g.Telemetry()
		require.True(t, errors.As(err, &none), "there is no NVML here: %v", err)
	})
}

func put16(t *testing.T, g GPU, v []float32) Buffer {
	b, err := g.Alloc(int64(2 * len(v)))
	require.NoError(t, err)
	var raw []byte
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(x)>>16))
	}
	require.NoError(t, g.Write(b, raw))
	return b
}

func read16(t *testing.T, g GPU, b Buffer, n int) []float32 {
	raw, err := g.Read(b, int64(2*n))
	require.NoError(t, err)
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
	}
	return out
}

func read32(t *testing.T, g GPU, b Buffer, n int) []float32 {
	raw, err := g.Read(b, int64(4*n))
	require.NoError(t, err)
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}
