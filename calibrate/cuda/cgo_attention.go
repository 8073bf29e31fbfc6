//go:build cgo && linux

package cuda

// Attention is not there yet.
func (g *gpu) Attention(Stream, Attention) (Op, error) {
	return nil, &Unavailable{"cuDNN graph attention is not available"}
}
