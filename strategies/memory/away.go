package memory

// Away says of the layers of a model, so many of which leave what they save to the host,
// which one must be gone before the forward pass of a layer, and which one comes back from
// the beginning of its backward pass: there is room for one more then (Transformer Engine,
// pytorch/cpu_offload.py, OffloadSynchronizer). -1: none.
func Away(layers, away, layer int) (gone, back int) {
	gone, back = layer-(layers-away), layer-(layers-1-away)
	if gone < 0 || gone >= away {
		gone = -1
	}
	if back < 0 || back >= away {
		back = -1
	}
	return
}

// layer is which layer of the model a unit is, and of how many; -1 for the ends.
func (w *walker) layer(unit int) (layer, layers int) {
	layer = -1
	for i, u := range w.Units {
		if u.Layers == 0 {
			continue
		}
		if i == unit {
			layer = layers
		}
		layers++
	}
	return
}

// unit is the unit of a layer.
func (w *walker) unit(layer int) int {
	for i, u := range w.Units {
		if u.Layers > 0 {
			if layer--; layer < 0 {
				return i
			}
		}
	}
	return -1
}

// send frees what the layer saved that must be gone before the forward pass of a unit.
func (w *walker) send(unit int) {
	if w.Away == 0 {
		return
	}
	layer, layers := w.layer(unit)
	if gone, _ := Away(layers, w.Away, layer); layer >= 0 && gone >= 0 {
		from := w.unit(gone)
		for s := range int32(w.width) {
			w.t.park(w.id(from, s))
		}
	}
}

// fetch allocates what comes back from the backward pass of a unit on.
func (w *walker) fetch(unit int) {
	if w.Away == 0 {
		return
	}
	layer, layers := w.layer(unit)
	if _, back := Away(layers, w.Away, layer); layer >= 0 && back >= 0 {
		from := w.unit(back)
		for s := range int32(w.width) {
			w.t.unpark(w.id(from, s))
		}
	}
}
