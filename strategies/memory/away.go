package memory

// Trip is what of the tensors that units save goes to the host and comes back around the
// passes of one of them. Units are counted in their chunk.
type Trip struct {
	Leaves bool // its own go after its forward pass, and are awaited by its backward pass
	Gone   int  // whose must be gone before its forward pass; -1: nobody's
	Back   int  // whose come back from the beginning of its backward pass on; -1: nobody's
}

// Trips appends to out those of so many units, of which some are layers, in order, the first
// so many of which leave what they save to the host, but never the last. There is room for one of them more at a
// time than for the others (Transformer Engine, pytorch/cpu_offload.py, OffloadSynchronizer).
func Trips(out []Trip, units int, layers []int, away int) []Trip {
	for range units {
		out = append(out, Trip{Gone: -1, Back: -1})
	}
	n := len(layers)
	away = min(away, n-1)
	for k := range away {
		out[layers[k]].Leaves = true
		out[layers[n-away+k]].Gone = layers[k]
		out[layers[n-1-away+k]].Back = layers[k]
	}
	return out
}

// leaving finds what the walk sends to the host.
func (w *walker) leaving() {
	if w.Away == 0 {
		return
	}
	var layers []int
	for i, u := range w.Units {
		if u.Layers > 0 {
			layers = append(layers, i)
		}
	}
	w.trips = Trips(nil, len(w.Units), layers, w.Away)
}

// send frees what must be gone before the forward pass of a unit.
func (w *walker) send(unit int) {
	if w.Away > 0 {
		w.saves(w.trips[unit].Gone, (*tracker).park)
	}
}

// fetch allocates what comes back from the backward pass of a unit on.
func (w *walker) fetch(unit int) {
	if w.Away > 0 {
		w.saves(w.trips[unit].Back, (*tracker).unpark)
	}
}

// saves does something to all that a unit may have saved.
func (w *walker) saves(unit int, do func(*tracker, int)) {
	if unit < 0 {
		return
	}
	for s := range int32(w.width) {
		do(w.t, w.id(unit, s))
	}
}
