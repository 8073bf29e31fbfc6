package launch

import "strings"

// The key that says whether all streams share one connection to a device, and the variable that does.
const (
	connectionKey      = "runtime.one_connection"
	connectionVariable = "CUDA_DEVICE_MAX_CONNECTIONS"
)

// connects takes how many connections the environment asks for, where that is known.
func (j *Job) connects(env map[string]string) {
	if n := wholeNumber(env[connectionVariable]); n > 0 {
		j.set(connectionKey, n == 1, connectionVariable)
	}
}

// disconnect leaves out what no estimate heeds, and several connections where several are taken anyway
// (strategies/connections.go). One beside tensor or context ranks stays: from Blackwell on it is not taken.
func (j *Job) disconnect() {
	r, sharded := j.runs(), strings.HasPrefix(j.textOf("plan.data_parallel"), "fsdp")
	ordered := j.several("plan.tp") || j.several("plan.cp")
	if r == nil || !r.Structure.OneConnection || sharded || j.value(connectionKey) == false && !ordered {
		j.drop(connectionKey)
	}
}

// several reports whether a degree may be above 1.
func (j *Job) several(key string) bool {
	return j.mentions(key) && j.value(key) != int64(1)
}
