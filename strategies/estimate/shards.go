package estimate

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// prepare is what FSDP1 does on the stream of the reduce-scatter: the cast of the whole
// gradient to the reduce dtype, its division by a part of the number of ranks before,
// that by the rest after, and the sum with the shard of earlier micro batches
// (torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook).
func (h *shards) prepare(u float64, grad, full units.Bytes) units.Seconds {
	p := h.s.p
	var t units.Seconds
	if grad != full {
		t += p.device(&tape.Op{Class: tape.Unrolled, Count: 1, Elements: u, Bytes: grad + full})
	}
	shard := full / units.Bytes(p.groups[shardGroup].Ranks)
	for _, b := range []units.Bytes{2 * full, 2 * shard, 3 * shard} {
		t += p.device(&tape.Op{Class: tape.Vectorized, Count: 1, Elements: float64(b) / 8, Bytes: b})
	}
	return t
}
