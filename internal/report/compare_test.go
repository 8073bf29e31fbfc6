package report

import (
	"testing"

	"github.com/perfplan/perfplan/calibrate/trace"
	"github.com/perfplan/perfplan/internal/diag"
)

// compared is a prediction beside the traces of two ranks.
func compared(t *testing.T) *Compare {
	rank := func(n int) *trace.Summary {
		return &trace.Summary{Schema: trace.SummarySchema, Name: "rank0.json.gz", Rank: n, World: 2, Steps: 3, Span: 0.17, Idle: 0.004, NCCL: 0.03, Exposed: 0.006,
			Kernels: []trace.Sum{{Class: "gemm", Count: 440, Time: 0.084, Longest: "nvjet_sm90"}, {Class: "all-reduce", Count: 7, Time: 0.03, Longest: "ncclDevKernel_AllReduce"}}}
	}
	gemm := trace.Line{Name: "gemm", Predicted: trace.Amount{Count: 441, Time: 80 * ms, Bytes: 40e9}, Traced: trace.Amount{Count: 440, Time: 84 * ms}, Longest: "nvjet_sm90"}
	family := func(l trace.Line, name string) trace.Line {
		f := l
		f.Name, f.Classes = name, []trace.Line{l}
		return f
	}
	return &Compare{Estimate: *oneGPU(t), Classes: true, Found: &trace.Comparison{
		Traces: []*trace.Summary{rank(0), rank(1)},
		Terms: []trace.Term{{Key: trace.StepTime, Predicted: 160 * ms, Traced: 170 * ms}, {Key: trace.Compute, Predicted: 150 * ms, Traced: 160 * ms}, {Key: trace.Idle, Predicted: 10 * ms, Traced: 4 * ms},
			{Key: trace.NCCL, Traced: 30 * ms}, {Key: trace.Exposed, Traced: 6 * ms}},
		Families: []trace.Line{family(gemm, "gemm"), family(trace.Line{Name: "fused-pointwise", Predicted: trace.Amount{Count: 1200, Time: 2 * us, Bytes: 1e6}}, "fused"),
			family(trace.Line{Name: "all-reduce", Traced: trace.Amount{Count: 7, Time: 30 * ms}, Longest: "ncclDevKernel_AllReduce"}, "collective"),
			family(trace.Line{Name: "fill", Predicted: trace.Amount{Count: 1, Time: 1 * us}, Traced: trace.Amount{Count: 64, Time: 64 * us}, Longest: "Memset (Device)"}, "copy and fill")},
		Largest: []trace.Difference{{Of: trace.Idle, Predicted: 10 * ms, Traced: 4 * ms, Text: "The device is idle less than predicted: 4 ms traced, 10 ms predicted, a difference of 3.5 % of the step."}},
		Notes:   []diag.Note{{Code: "compare.cut", Text: "a trace holds one step", Remedy: "profile two steps or more"}},
	}}
}
