// Package fit turns the samples of a calibration into a hardware/v1 profile.
//
// Each section of the hardware laws has one file here. What training runs, too, is
// measured as it is: multiplies and attention (gemm.go, attention.go), collectives and
// copies (collective.go, device.go), the host's memory (hostmemory.go); attention's small kernels come off first. Where the base's law was measured on a GPU of the
// same kind, its points and curves stay and are moved by how the samples differ around
// each, since a quick calibration must not lose what a longer one knew. Otherwise the
// laws keep their form, and their constants are the ones that make hardware/kernel
// itself predict the samples best, with the base as a weak prior.
//
// The kernels of the other probes are not PyTorch's, whose times the laws state, and
// mostly faster. So these samples only count against those of the reference machine
// (reference.go), which is the one that PyTorch's kernels were measured on:
//
//	law here = law of the reference · time of the probe here / time of the probe there
//
// by class and size for memory-bound kernels and the optimizer (kernels.go), by
// reading for launches, power and overlap (device.go, power.go, overlap.go), where a
// difference within the uncertainty of both readings is none. This replaces the
// scaling by bandwidth and issue rate that laws of another GPU get otherwise.
//
// Every law gets the deviation that estimate makes its range of: that of the samples,
// each predicted without itself, and that of the law it was moved from. What was not
// measured is inherited, and a note says so.
//
// internal/report prints the result beside how well each probe fits, and the
// command line comes next.
package fit
