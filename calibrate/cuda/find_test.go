package cuda

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Libraries are looked for in the flag's folders, then where the environment says, by
// the loader, in the usual CUDA folders (the newest first), in Python packages.
func TestCandidates(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("folders of another processor")
	}
	root := t.TempDir()
	for _, f := range []string{
		"flag/libnccl.so.2", "env/libnccl.so.2", "env/libnccl.so", "home/lib64/libnccl.so.2", "usr/local/cuda-12.8/lib64/libnccl.so.2", "usr/local/cuda-13.0/targets/x86_64-linux/lib/libnccl.so.2",
		"usr/lib/x86_64-linux-gnu/libnccl.so.2", "venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", "venv/lib/python3.12/site-packages/torch/lib/libnccl.so.2", "flag/libcuda.so.1",
	} {
		file := filepath.Join(root, f)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	at := func(p string) string { return filepath.Join(root, p) }
	s := &search{folders: []string{at("flag")}, root: root, python: []string{at("venv/lib/python3.12")}, env: func(k string) string {
		return map[string]string{"PERFPLAN_CUDA_LIBRARY_PATH": at("env"), "CUDA_HOME": at("home")}[k]
	}}
	require.Equal(t, []string{
		at("flag/libnccl.so.2"), at("env/libnccl.so.2"), at("env/libnccl.so"), at("home/lib64/libnccl.so.2"), "libnccl.so.2", "libnccl.so", at("usr/local/cuda-13.0/targets/x86_64-linux/lib/libnccl.so.2"),
		at("usr/local/cuda-12.8/lib64/libnccl.so.2"), at("usr/lib/x86_64-linux-gnu/libnccl.so.2"), at("venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"),
		at("venv/lib/python3.12/site-packages/torch/lib/libnccl.so.2"),
	}, s.candidates("libnccl"))
}

func TestPrefixes(t *testing.T) {
	s := &search{root: "/", env: func(k string) string { return map[string]string{"VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c"}[k] }}
	p := s.prefixes()
	require.Equal(t, []string{"/v", "/c"}, p[:2])
	require.Contains(t, p, "/usr/local")
}

// Operands exchanged and transposed: D = op(a)·op(b) has the sizes that cuBLASLt wants,
// for every layout and dtype.
func TestMultiplySizes(t *testing.T) {
	for dtype := range dataTypes {
		for _, layout := range []Layout{FProp, DGrad, WGrad} {
			m, err := GEMM{M: 2, N: 3, K: 5, Layout: layout, DType: dtype}.multiply()
			require.NoError(t, err)
			inner, innerB, rows, cols := m.a[1], m.b[0], m.a[0], m.b[1]
			if m.transA {
				inner, rows = m.a[0], m.a[1]
			}
			if m.transB {
				innerB, cols = m.b[1], m.b[0]
			}
			require.Equal(t, inner, innerB)
			require.Equal(t, m.d, [2]int64{rows, cols})
			_, _, c := GEMM{M: 2, N: 3, K: 5, Layout: layout}.Sizes()
			require.Equal(t, c, rows*cols)
			require.Equal(t, 30/c, inner, "what is summed over is what the result has not")
			if dtype == "fp8" {
				require.True(t, m.transA && !m.transB, "the only form of fp8")
			}
		}
	}
	_, err := GEMM{Layout: "x", DType: "bf16"}.multiply()
	require.ErrorContains(t, err, `GEMM of layout "x": use fprop`)
}

func TestErrors(t *testing.T) {
	require.EqualError(t, &Error{Call: "cuInit", Code: 100, Name: "CUDA_ERROR_NO_DEVICE", Text: "no CUDA-capable device is detected", Device: -1},
		"cuInit failed with code 100 CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")
	require.EqualError(t, &Error{Call: "f", Code: 1, Device: 3}, "GPU 3: f failed with code 1")
}
