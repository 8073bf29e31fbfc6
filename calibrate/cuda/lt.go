package cuda

import "fmt"

// multiply is a layer's matrix multiply the way cuBLASLt sees it: column-major, so
// with the operands exchanged: D = op(a)·op(b), D with rows × cols. A row-major
// [r,c] matrix is a column-major one of c rows.
type multiply struct {
	dataIn, dataOut, compute int // cudaDataType, cublasComputeType_t
	transA, transB           bool
	a, b, d                  [2]int64 // rows and columns as stored
	fastAccumulate           bool
}

// Numbers of cudaDataType and cublasComputeType_t.
const (
	real32F, real16F, real16BF, realE4M3 = 0, 2, 14, 28
	compute32F, computeTF32              = 68, 77
)

var dataTypes = map[string]multiply{
	"bf16": {dataIn: real16BF, dataOut: real16BF, compute: compute32F},
	"fp16": {dataIn: real16F, dataOut: real16F, compute: compute32F},
	"fp32": {dataIn: real32F, dataOut: real32F, compute: compute32F},
	"tf32": {dataIn: real32F, dataOut: real32F, compute: computeTF32},
	"fp8":  {dataIn: realE4M3, dataOut: real16BF, compute: compute32F},
}

// multiply translates the layer's view into cuBLASLt's. fp8 exists for transposed a
// and plain b only, so frameworks transpose the operands of the backward layouts
// beforehand, and so it is here; the forward pass accumulates fast, as
// Transformer Engine's default does.
func (g GEMM) multiply() (multiply, error) {
	t, ok := dataTypes[g.DType]
	if !ok {
		return t, fmt.Errorf("GEMM of dtype %q: use bf16, fp16, fp32, tf32 or fp8", g.DType)
	}
	var m, n, k int64
	switch g.Layout {
	case FProp: // Yᵀ[N,M] = W·Xᵀ
		m, n, k, t.transA = g.N, g.M, g.K, true
	case DGrad: // dXᵀ[K,M] = Wᵀ·dYᵀ
		m, n, k = g.K, g.M, g.N
	case WGrad: // dWᵀ[K,N] = Xᵀ·dY
		m, n, k, t.transB = g.K, g.N, g.M, true
	default:
		return t, fmt.Errorf("GEMM of layout %q: use fprop, dgrad or wgrad", g.Layout)
	}
	if g.DType == "fp8" {
		t.transA, t.transB = true, false
		t.fastAccumulate = g.Layout == FProp
	}
	t.a, t.b, t.d = [2]int64{m, k}, [2]int64{k, n}, [2]int64{m, n}
	if t.transA {
		t.a = [2]int64{k, m}
	}
	if t.transB {
		t.b = [2]int64{n, k}
	}
	return t, nil
}
