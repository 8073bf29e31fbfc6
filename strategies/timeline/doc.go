// Package timeline simulates one rank's step: a host that issues work, a compute
// stream that runs it, and communication streams beside it.
//
// A run of kernels is compressed without loss into a Segment: the end of its last
// kernel is the later of "the device was busy until now and all kernels follow" and
// "the host issued the slowest-to-reach kernel and the rest follow", a max-plus
// pair. Communication runs in order on its streams; while it runs, compute is
// slower and it is slower itself, integrated piece by piece.
//
// strategies/estimate drives a Sim through the units of a model and puts stages and
// schedules together.
package timeline
