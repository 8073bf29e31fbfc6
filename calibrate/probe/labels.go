package probe

import (
	"strconv"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// itoa spells a whole number in a case.
func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// num reads a whole number of a case; the probe's own Cases wrote it.
func (c Case) num(key string) int64 {
	n, _ := strconv.ParseInt(c[key], 10, 64)
	return n
}

// sum adds the sizes of buffers in bytes.
func sum(sizes ...int64) int64 {
	var t int64
	for _, s := range sizes {
		t += s
	}
	return t
}

// device is the first GPU's facts, after which cases are chosen.
func (w *World) device() cuda.Device { return w.Benches[0].GPU.Device() }
