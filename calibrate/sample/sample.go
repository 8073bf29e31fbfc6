package sample

// Sample is one measured point of one probe.
//
// Seconds is what one execution takes when executions follow one another on a
// stream, so it holds the dependent-launch gap too (probe launch, kind gap). Times
// are of the device unless the case says otherwise.
type Sample struct {
	Probe     string            `json:"probe"`   // registry key: gemm, attention, memory, adam, launch, host, copy, power, collective, overlap
	Case      map[string]string `json:"case"`    // what was measured; each probe documents its keys
	GPU       int               `json:"gpu"`     // local index; -1 for all
	Seconds   float64           `json:"seconds"` // median of one execution
	Low       float64           `json:"low_s"`   // 95 % confidence interval of the median
	High      float64           `json:"high_s"`
	Repeats   int               `json:"repeats"`
	Outliers  int               `json:"outliers"` // of the repeats; counted, not dropped
	ClockHz   float64           `json:"clock_hz"` // SM clock during the sample; 0 unknown
	PowerW    float64           `json:"power_w"`
	TempC     float64           `json:"temp_c"`
	Throttled string            `json:"throttled,omitempty"` // reasons
	Mode      string            `json:"mode"`                // burst (duty-cycled, not throttled) or sustained
	Error     string            `json:"error,omitempty"`     // the case failed, and why; nothing else but probe, case and gpu is set
}

// Modes of a sample.
const (
	Burst     = "burst"
	Sustained = "sustained"
)

// Header is the first line of a samples file: the machine and the conditions.
type Header struct {
	Format     string            `json:"perfplan"` // samples/v1
	Device     string            `json:"device"`   // as nvidia-smi prints it
	GPUs       int               `json:"gpus"`     // measured
	Driver     string            `json:"driver"`
	CUDA       string            `json:"cuda"`
	NCCL       string            `json:"nccl"`
	CuBLASLt   string            `json:"cublaslt"`
	CuDNN      string            `json:"cudnn"`
	Date       string            `json:"date"` // day of the first sample, ISO 8601
	Conditions map[string]string `json:"conditions,omitempty"`
}

// Format names the samples file.
const Format = "samples/v1"

// File is a samples file: JSON lines, the header first, then one sample each.
// It is only ever appended to, so that an interrupted calibration loses nothing.
type File struct {
	Header  Header
	Samples []Sample
}
