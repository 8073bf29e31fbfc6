package tape

import (
	"iter"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
)

// Trip is what the nodes of one module save and leave to the host until their gradients.
type Trip struct {
	Module   uint8
	Bytes    units.Bytes // copied either way
	Stores   []int32     // storages of the forward section that nothing else holds
	From, To int32       // ops of the backward section that are the module's gradient
}

// trip is a Trip with the nodes it is of.
type trip struct {
	Trip
	nodes [2]int
	least int64
}

// Away runs f, a module whose nodes leave to the host what they save of so many elements and
// more.
func (t *Tape) Away(module uint8, least int64, f func()) {
	from := len(t.nodes)
	f()
	if t.phase != Forward || !t.record || len(t.nodes) == from {
		return
	}
	next := trip{Trip: Trip{Module: module}, nodes: [2]int{from, len(t.nodes)}, least: least}
	for x := range t.leaving(&next) {
		next.Bytes += t.carried(x)
	}
	if next.Bytes > 0 {
		t.trips = append(t.trips, next)
	}
}

// leaving are the tensors that the nodes of a trip save and send, each as often as it is saved:
// neither parameters nor small ones.
func (t *Tape) leaving(p *trip) iter.Seq[*Tensor] {
	return func(yield func(*Tensor) bool) {
		for i := p.nodes[0]; i < p.nodes[1]; i++ {
			for _, x := range t.nodes[i].saved {
				if x.store >= 0 && t.stores[x.store].owned && t.stores[x.store].kind != WeightCopy && x.Size() >= p.least && !yield(x) {
					return
				}
			}
		}
	}
}

// carried is what the copy of a tensor moves: of a view with gaps that is half of its storage or
// more, all of that (Megatron-Core, fine_grained_activation_offload.py, ChunkOffloadHandler.offload).
func (t *Tape) carried(x *Tensor) units.Bytes {
	if b := x.bytes(); x.dense() || 2*b < t.stores[x.store].bytes {
		return b
	}
	return t.stores[x.store].bytes
}

// Leave ends a forward section: it finds the storages that nobody holds but nodes that sent them.
// One that several sent goes with the last, which needs it first.
func (t *Tape) Leave() {
	if len(t.trips) == 0 {
		return
	}
	sent := map[int32]int{}
	for k := range t.trips {
		for x := range t.leaving(&t.trips[k]) {
			sent[x.store]++
		}
	}
	for k := len(t.trips) - 1; k >= 0; k-- {
		p := &t.trips[k]
		for x := range t.leaving(p) {
			if n := sent[x.store]; n > 0 && int(t.stores[x.store].refs) == n {
				p.Stores = append(p.Stores, x.store)
				delete(sent, x.store)
			}
		}
		slices.Sort(p.Stores)
	}
}

// ran notes that the gradient of a node ended, whose ops begin there.
func (t *Tape) ran(node, began int) {
	for k := range t.trips {
		if p := &t.trips[k]; p.nodes[0] <= node && node < p.nodes[1] {
			if p.To == 0 {
				p.From = int32(began)
			}
			p.To = int32(len(t.sec.Ops))
		}
	}
}

// Trips are those of the forward section, once its gradient has run.
func (t *Tape) Trips() []Trip {
	var out []Trip
	for i := range t.trips {
		out = append(out, t.trips[i].Trip)
	}
	return out
}
