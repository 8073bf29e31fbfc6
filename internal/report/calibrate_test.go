package report

import (
	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/internal/diag"
)

// calibration is an interrupted one with a failure.
func calibration() *Calibration {
	f := &sample.File{
		Header: sample.Header{Format: sample.Format, Device: "NVIDIA H200", GPUs: 2, Driver: "580.159.04", CUDA: "13.0", NCCL: "2.28.9", CuBLASLt: "13.0.0", Date: "2026-01-02", Conditions: map[string]string{"effort": "quick"}},
		Samples: []sample.Sample{
			{Probe: "gemm", Case: map[string]string{"m": "4096", "n": "4096", "k": "4096", "layout": "fprop", "dtype": "bf16"}, Seconds: 177e-6, Low: 176e-6, High: 179e-6, Repeats: 9, Outliers: 1, ClockHz: 1.98e9, PowerW: 512.5, TempC: 41, Mode: sample.Burst},
			{Probe: "gemm", Case: map[string]string{"m": "4096", "n": "4096", "k": "4096", "layout": "fprop", "dtype": "fp8"}, Mode: sample.Burst, Error: "GPU 0: cublasLtMatmulAlgoGetHeuristic failed with code 15 CUBLAS_STATUS_NOT_SUPPORTED"},
			{Probe: "launch", Case: map[string]string{"kind": "gap"}, Seconds: 1.2e-6, Low: 1.1e-6, High: 1.3e-6, Repeats: 5, Mode: sample.Burst},
			{Probe: "collective", Case: map[string]string{"op": "all-reduce", "bytes": "67108864", "gpus": "2", "graph": "false", "dtype": "bf16"}, GPU: -1, Seconds: 0.5e-3, Low: 0.4e-3, High: 0.6e-3, Repeats: 4, ClockHz: 1.9e9, PowerW: 300, Throttled: "power-cap", Mode: sample.Burst},
		},
	}
	return &Calibration{File: f, Samples: "samples.jsonl", Profile: "machine.yaml", New: 4, Failed: 1, Verified: []string{"gemm", "collective"}, Wrong: []string{"copy: a copy on the device brought other bytes"},
		Interrupted: true, Seconds: 12.5, Notes: []diag.Note{{Code: "calibrate.gpu", Text: "GPU 1 is left out: it is gone", Remedy: "measure it again alone: --gpus 1"}}}
}
