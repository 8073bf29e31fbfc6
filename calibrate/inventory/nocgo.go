//go:build !cgo || !linux

package inventory

import "github.com/perfplan/perfplan/calibrate/cuda"

// Detect says why this program cannot ask the driver.
func Detect() (*Machine, error) {
	return nil, &cuda.Missing{Text: "this perfplan cannot ask the NVIDIA driver: it was built without cgo or not for Linux; build it with CGO_ENABLED=1, or give a saved topology with --topo"}
}
