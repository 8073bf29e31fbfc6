package probe

import "github.com/perfplan/perfplan/calibrate/cuda"

// attention measures fused attention as cuDNN runs it.
//
// Case: batch, seq, heads, kv_heads, head_dim, causal, direction (fwd, bwd), dtype.
var attention = Probe{
	Key: "attention", Doc: "fused attention, forward and backward (cuDNN)", Share: 2, Duty: 0.4,
	Applicable: func(w *World) error { return &cuda.Unavailable{Text: "cuDNN graph attention is not available"} },
}
