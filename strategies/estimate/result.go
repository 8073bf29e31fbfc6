package estimate

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// Result is the prediction of one step. Times are of the slowest rank, memory of
// the fullest.
type Result struct {
	Job *strategies.Job

	StepTime          units.Seconds
	Low, High         units.Seconds // 80 % range of StepTime
	Off               Deviations    // what the range comes from
	Forward, Backward units.Seconds
	Optimizer         units.Seconds

	TokensPerSecond float64     // per GPU
	ModelFLOPs      units.FLOPs // of the whole step over all GPUs, causal attention counted half, no recomputation
	MFU, HFU        float64
	Peak            units.FLOPRate // dense peak of the compute precision

	Parts    Parts
	Bubble   float64 // share of the step that the average stage waits for others
	Exposed  map[string]units.Seconds
	Overlap  *float64      // overlap efficiency of data-parallel communication; nil: there is none, or a pipeline's is not known
	HostIdle units.Seconds // the device waits for the host, and while that updates parameters
	Bound    string        // compute, memory, communication, host, bubble

	Memory Memory

	Clock  units.Hertz  // average SM clock
	Power  units.Watts  // average per GPU
	Energy units.Joules // per GPU and step

	Waiting *Waiting // of a job with stragglers
	Stages  []Stage
	Notes   []diag.Note
	Spans   []timeline.Span
	Detail  *Detail // with Options.Detail
}

// Parts split the step time of the slowest rank; they add up to it.
type Parts struct {
	GEMM, Attention, Memory units.Seconds // kernels
	Gaps                    units.Seconds // between kernels
	Contention              units.Seconds // compute slowed by communication beside it
	Exposed                 units.Seconds // communication that nothing hides
	Host                    units.Seconds // the device waits for the host
	Update                  units.Seconds // and while that updates parameters
	Bubble                  units.Seconds // the stage waits for others
}

// Total is the sum of the parts.
func (p Parts) Total() units.Seconds {
	return p.GEMM + p.Attention + p.Memory + p.Gaps + p.Contention + p.Exposed + p.Host + p.Update + p.Bubble
}

// Memory is the fullest rank's.
type Memory struct {
	PeakAllocated units.Bytes
	PeakReserved  units.Bytes
	DeviceUsed    units.Bytes
	Capacity      units.Bytes
	By            memory.Bytes
	Outside       []Outside
	Moment        string
	ByStage       []units.Bytes // peak_allocated of each pipeline rank
	Host          units.Bytes   // of a node's host memory, by what all its ranks leave to it
	Fits          bool
}

// Outside is device memory that is not in the framework's tensors.
type Outside struct {
	Name  string
	Bytes units.Bytes
}

// Stage is one pipeline rank.
type Stage struct {
	Rank              int
	Layers            int64
	Params            int64
	Forward, Backward units.Seconds // of one micro batch
	Busy              units.Seconds
	Bubble            units.Seconds
	Clock             units.Hertz // average SM clock
	PeakAllocated     units.Bytes
}
