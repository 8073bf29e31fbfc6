package strategies

import (
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
)

// checkOneConnection checks what the job says of connections to the device.
func (j *Job) checkOneConnection() error {
	if j.Runtime.OneConnection == nil || j.Recipe.Structure.OneConnection {
		return nil
	}
	return diag.Errorf("runtime.one_connection: recipe %s is predicted with several connections alone; leave it out, or use megatron-core", j.Recipe.Name)
}

// OneConnection reports whether all streams share one connection to the device, on which no
// kernel starts before what was launched earlier on any of them (CUDA_DEVICE_MAX_CONNECTIONS=1):
// "having multiple back-to-back communications will prevent the overlap" (Megatron-LM,
// core/distributed/param_and_grad_buffer.py, partition_buckets). Where the job does not say,
// as Megatron-LM asserts (training/arguments.py) and Megatron-Bridge sets
// (scripts/performance/perf_plugins.py).
func (j *Job) OneConnection() bool {
	p := &j.Plan
	if said := j.Runtime.OneConnection; said != nil {
		return *said
	}
	c := capability(j.Hardware)
	return j.Recipe.Structure.OneConnection && (p.TP > 1 || p.CP > 1) && 0 < c && c < blackwell && !isOn(j.Runtime.EPOverlap)
}

// blackwell is the compute capability from which tensor ranks need no order of launches.
const blackwell = 10

// capability is the first number of a GPU's compute capability, 0 where it is not known.
func capability(h *hardware.Profile) int {
	major, _, _ := strings.Cut(h.GPU.Capability.Value, ".")
	n, _ := strconv.Atoi(major)
	return n
}
