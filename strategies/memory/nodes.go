package memory

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
)

// nodes is what stays of a layer whose backward pass is over until the forward pass that runs
// beside it is, too, where Megatron-Core before core_v0.16 cuts layers into nodes to exchange
// experts' rows beside another micro batch: every node's inputs, outputs and gradients of its
// inputs, as the layer's _release_state hides that of all nodes (models/gpt/fine_grained_callables.py,
// TransformerLayerNode; pipeline_parallel/utils.py, ScheduleNode). Rows are freed once they are
// read (free_input), their gradients are not: those of attention's input and of the router's, of
// which the tensors stay themselves, of the rows to be sent, of those that came, and of what the
// experts make of them.
func nodes(u *ops.Unit) units.Bytes {
	held, back := 4*u.Input, units.Bytes(0)
	for k := range u.Backward.Ops {
		o := &u.Backward.Ops[k]
		if o.Comm == nil || o.Comm.Group != "ep" {
			continue
		}
		made := units.Bytes(o.Elements) * o.DType.Size()
		if back == 0 { // of what goes back to the ranks of the tokens
			back = made
		}
		held += made
	}
	return held + back
}

// linger keeps what the nodes of a unit's backward pass hold.
func (w *walker) linger(i int) {
	if w.Nodes && i > 0 && i < len(w.Units)-1 {
		w.t.take(w.at(i, nodeID), nodes(w.Units[i]), Activations)
	}
}

// settleNodes lets go of it.
func (w *walker) settleNodes() {
	if !w.Nodes {
		return
	}
	for i := range w.Units {
		w.t.free(w.at(i, nodeID))
	}
}
