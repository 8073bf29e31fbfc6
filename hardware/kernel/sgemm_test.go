package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestSGEMM: products of fp32 without TF32 on an H200, in us: rows, outputs, inputs, then forward, gradient of the
// inputs and of the weights, with all kernels of a call (torch.profiler, PyTorch 2.11, 2026-11-28). Adapters of LoRA
// have few columns, which few tiles cover whose K several blocks share.
func TestSGEMM(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	for _, set := range []struct {
		low, high, mean float64 // logarithms
		products        [][6]float64
	}{
		{-0.45, 0.45, 0.11, [][6]float64{
			{832, 10, 3072, 14.4, 7.3, 13.5}, {832, 10, 8192, 26.8, 15.2, 25.6}, {832, 8192, 10, 15.6, 23.3, 16.9}, {832, 32, 3072, 14.6, 10.3, 11.1}, {2048, 16, 4096, 26.3, 18, 24.5},
			{2048, 16, 14336, 66.6, 60.6, 68.2}, {2048, 14336, 16, 61.4, 66.9, 61.8}, {8192, 16, 14336, 232.7, 210.5, 229.8}, {4096, 64, 4096, 57.1, 69.4, 53.7}, {4096, 128, 11008, 237.1, 304.8, 259.6},
			{8192, 256, 768, 74, 77.4, 70.5}, {1024, 8, 11008, 35.1, 21.9, 35.1}, {512, 128, 11008, 53.2, 42.5, 41.9}, {512, 768, 768, 22.2, 21.1, 23.2}, {64, 4096, 4096, 62.8, 54.8, 69.1},
			{256, 4096, 4096, 183.6, 179.8, 183.8}, {1024, 1024, 1024, 58.9, 56.7, 52.3}, {4096, 4096, 4096, 2719.6, 2672, 2649.5}, {16384, 2304, 768, 1165.6, 1175.4, 1141.3}, {832, 8192, 3072, 938.7, 877.9, 825.9},
		}},
		{-0.198, 0.165, 0.06, [][6]float64{ // looked at afterwards, from cold caches, by events
			{256, 768, 768, 16.6, 16, 15.3},
			{128, 4096, 4096, 100.4, 94.1, 102.2},
			{512, 2048, 8192, 351.3, 341.2, 342.4},
			{1000, 14336, 4096, 2853.1, 2318, 2259.6},
			{1024, 2048, 2048, 179.7, 182.9, 167.6},
			{2048, 8192, 2048, 1360.7, 1332.9, 1307.6},
			{4096, 4096, 4096, 2702.6, 2671.3, 2647.8},
			{8192, 3584, 4096, 4741, 4754.7, 4577.1},
			{8192, 50257, 768, 12356.7, 12822.3, 11739},
			{16384, 896, 4864, 2834.4, 3027.5, 3117},
		}},
		{-0.2, 0.06, 0.03, [][6]float64{ // from cold caches, by events, 2026-11-30
			{16384, 768, 768, 394.9, 411.3, 396.7},
			{16384, 2304, 768, 1166.7, 1178.2, 1142.4},
			{16384, 3072, 768, 1554.1, 1559.2, 1496.3},
			{16384, 768, 3072, 1501.2, 1622.8, 1491.6},
			{16384, 1280, 1280, 1064.2, 1108.9, 1061.1},
			{16384, 1536, 1536, 1532.7, 1614.3, 1510.1},
			{16384, 4864, 896, 2831.1, 2953, 3051.7},
			{4096, 1536, 1536, 452.5, 412.2, 408.8},
			{4096, 5120, 1280, 1064, 1160.8, 1133.1},
		}},
	} {
		all, n := 0.0, 0
		for _, c := range set.products {
			rows, out, in := int64(c[0]), int64(c[1]), int64(c[2])
			for layout, s := range [][3]int64{{rows, out, in}, {rows, in, out}, {out, in, rows}} {
				o := tape.Op{Class: tape.GEMM, DType: tape.F32, Layout: tape.Layout(layout), M: s[0], N: s[1], K: s[2], Batch: 1, Bytes: units.Bytes(4 * (s[0]*s[1] + s[1]*s[2] + s[0]*s[2])), Count: 1}
				err := math.Log(float64(h200.Time(&o)) * 1e6 / c[3+layout])
				require.True(t, set.low < err && err < set.high, "%v, %s: %g", c, o.Layout, err)
				all += math.Abs(err)
				n++
			}
		}
		require.Less(t, all/float64(n), set.mean)
	}
}
