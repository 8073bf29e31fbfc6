//go:build !cgo || !linux

package cuda

// Open says why this program cannot reach a GPU.
func Open(Options) (Driver, error) {
	return nil, &Missing{"this perfplan cannot reach GPUs: it was built without cgo or not for Linux; on a Linux machine with an NVIDIA driver build it with CGO_ENABLED=1 go build ./cmd/perfplan (needs gcc, no CUDA toolkit)"}
}
