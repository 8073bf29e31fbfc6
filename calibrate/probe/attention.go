package probe

import "github.com/perfplan/perfplan/calibrate/cuda"

// attention stands for fused attention as cuDNN runs it, so that --list and --only
// know it and a calibration says that it was left out.
var attention = Probe{
	Key: "attention", Doc: "fused attention, forward and backward (not yet: inherited)",
	Applicable: func(*World) error {
		return &cuda.Unavailable{Text: "cuDNN's attention graphs are not built yet; a fitted machine inherits the catalog's attention"}
	},
}
