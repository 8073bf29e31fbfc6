// Package curves draws up what a machine does by size, as estimate prices it: rates
// of matrix multiplies, bandwidth of memory-bound kernels, bus bandwidth of
// collectives, and the roofline with kernels on it.
//
// A Figure is plain numbers. It comes after hardware/kernel and hardware/collective,
// which price every point; internal/report, which prints figures or writes them as
// pictures, comes next.
package curves
