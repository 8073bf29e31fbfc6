// Package hardware describes WHERE a job runs: the GPU, the node it sits in, the
// network between nodes, their software, and the curves measured on them.
//
// A Profile is read from a hardware/v1 file: one of the embedded catalog, or the
// user's own, often written by `perfplan calibrate`. Every datum carries its
// source and how it is known (datasheet, measured, fitted, assumed). A profile may
// inherit another and override part of it.
//
// hardware does not know models. It is read by hardware/kernel (one op alone on
// one GPU) and hardware/collective (one collective on one group), which come next.
package hardware
