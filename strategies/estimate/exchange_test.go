package estimate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// alone prices a section of two tensor or context ranks of H200: its launches' time, and
// that of its collective by itself.
func alone(t *testing.T, job string, ops []tape.Op, tiled bool) (all, exchange units.Seconds) {
	t.Helper()
	var e Evaluator
	_, err := e.prepare(mustParse(t, job))
	require.NoError(t, err)
	s := e.p.price(&tape.Section{Ops: ops}, tiled)
	s.clock(&e.p)
	for i := range s.launches {
		all += s.launches[i].Busy
		if s.base[i].work == commWork {
			exchange = s.base[i].busy
		}
	}
	return all, exchange
}

// TestExchangeInPieces: GEMMs of two H200 in two pieces beside what they gather or scatter
// (PyTorch 2.11, torch.ops.symm_mem.fused_all_gather_matmul and
// fused_matmul_reduce_scatter, without multicast, 2026-11-22; us, of 10 in a row).
// Sizes whose kernels run for less than the 250 us that the host takes are left out.
func TestExchangeInPieces(t *testing.T) {
	const job = "{model: llama3-8b, hardware: h200-sxm, gpus: 2, runtime: {recipe: torchtitan, tp_overlap: true}, plan: {tp: 2}}"
	sum := 0.0
	cases := []struct {
		kind    string
		m, n, k int64
		piece   float64 // of the GEMM, alone
		both    float64
	}{
		{"all-gather", 8192, 7168, 4096, 368, 787}, {"all-gather", 8192, 14336, 4096, 714, 1523}, {"all-gather", 8192, 2048, 14336, 353, 801},
		{"all-gather", 8192, 4096, 8192, 423, 898}, {"all-gather", 8192, 14336, 8192, 1483, 3048}, {"all-gather", 8192, 4096, 28672, 1464, 3115},
		{"all-gather", 4096, 14336, 8192, 754, 1530}, {"all-gather", 16384, 4096, 8192, 798, 1796}, {"all-gather", 16384, 2048, 14336, 732, 1643},
		{"reduce-scatter", 8192, 4096, 7168, 355, 811}, {"reduce-scatter", 8192, 8192, 4096, 447, 965}, {"reduce-scatter", 8192, 14336, 2048, 368, 953},
		{"reduce-scatter", 8192, 28672, 2048, 744, 1890}, {"reduce-scatter", 8192, 8192, 14336, 1403, 3159}, {"reduce-scatter", 8192, 28672, 4096, 1465, 3551},
		{"reduce-scatter", 16384, 8192, 4096, 845, 1969}, {"reduce-scatter", 16384, 4096, 7168, 724, 1713},
	}
	for _, c := range cases {
		comm := tape.Op{Class: tape.Collective, DType: tape.BF16, Comm: &tape.Comm{Kind: c.kind, Group: "tp", Bytes: units.Bytes(2 * c.m * c.k)}, Elements: float64(c.m * c.k)}
		ops := []tape.Op{comm, kernel.GEMM(tape.LayoutForward, tape.BF16, c.m, c.n, c.k)}
		if c.kind == "reduce-scatter" {
			comm.Comm.Bytes, comm.Elements = units.Bytes(2*c.m*c.n), float64(c.m*c.n/2)
			ops = []tape.Op{ops[1], comm}
		}
		piece, _ := alone(t, job, []tape.Op{kernel.GEMM(tape.LayoutForward, tape.BF16, c.m/2, c.n, c.k)}, false)
		all, _ := alone(t, job, ops, true)
		off := float64(all/piece)/(c.both/c.piece) - 1
		require.InDelta(t, 0, off, 0.18, "%s %d×%d×%d", c.kind, c.m, c.n, c.k)
		sum += off
	}
	require.InDelta(t, 0, sum/float64(len(cases)), 0.06)
}

// TestPiecesOfOnePeer: four GH200 that no switch joins gather pieces over the six NVLinks to one
// of them at a time, where a collective has all eighteen; what is scattered goes to all.
func TestPiecesOfOnePeer(t *testing.T) {
	const job = "{model: llama3-8b, hardware: %s, gpus: 4, runtime: {recipe: megatron-core, tp_overlap: true}, plan: {tp: 4}}"
	for _, c := range []struct {
		machine, kind string
		links         float64
	}{{"jupiter-gh200", "all-gather", 3}, {"jupiter-gh200", "reduce-scatter", 1}, {"h100-sxm", "all-gather", 1}} {
		ops := []tape.Op{{Class: tape.Collective, DType: tape.BF16, Comm: &tape.Comm{Kind: c.kind, Group: "tp", Bytes: 2 * 8192 * 4096}, Elements: 8192 * 4096}, kernel.GEMM(tape.LayoutForward, tape.BF16, 8192, 1536, 4096)}
		if c.kind == "reduce-scatter" {
			ops[0], ops[1] = ops[1], ops[0]
		}
		busy := func(tiled bool) units.Seconds {
			var e Evaluator
			_, err := e.prepare(mustParse(t, fmt.Sprintf(job, c.machine)))
			require.NoError(t, err)
			s := e.p.price(&tape.Section{Ops: ops}, tiled)
			return s.base[slices.IndexFunc(ops, func(o tape.Op) bool { return o.Comm != nil })].busy
		}
		require.InEpsilon(t, c.links, float64(busy(true)/busy(false)), 1e-9, "%s on %s", c.kind, c.machine)
	}
}

// TestRingBesideAttention: keys and values of 8 and 32 heads on their way between two H200
// while the attention kernel over those there runs (PyTorch 2.11, batch_isend_irecv,
// CUDA_DEVICE_MAX_CONNECTIONS=1, 2026-11-22): of the exchange 0.15 to 0.6 add to the step
// forward, 0.37 on average, and -0.03 to 0.34 backward, 0.2 on average, where the kernel
// lasts longer. One that takes as long as the kernel hides less.
func TestRingBesideAttention(t *testing.T) {
	const job = "{model: llama3-8b, hardware: h200-sxm, gpus: 2, runtime: {recipe: megatron-core}, plan: {cp: 2}}"
	shown := func(kv, tokens int64, backward bool) float64 {
		bytes := units.Bytes(2 * 2 * 2 * tokens * kv * 128)
		if backward {
			bytes *= 2
		}
		ring := tape.Op{Class: tape.Collective, DType: tape.BF16, Comm: &tape.Comm{Kind: "all-gather", Group: "cp", Ring: true, Bytes: bytes}}
		kernel := kernel.Attention(tape.BF16, tape.AttentionShape{Batch: 1, Heads: 32, KVHeads: kv, Queries: tokens, Keys: 2 * tokens, QKDim: 128, VDim: 128, Backward: backward})
		all, exchange := alone(t, job, []tape.Op{ring, kernel}, false)
		by, _ := alone(t, job, []tape.Op{kernel}, false)
		return float64((all - by) / exchange)
	}
	for _, tokens := range []int64{4096, 8192} {
		for _, kv := range []int64{8, 32} {
			for _, backward := range []bool{false, true} {
				require.InDelta(t, 0.3, shown(kv, tokens, backward), 0.2, "%d heads, %d tokens, backward %t", kv, tokens, backward)
			}
		}
	}
	require.Greater(t, shown(32, 1024, false), 0.45)
}
