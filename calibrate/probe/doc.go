// Package probe holds the microbenchmarks of calibration and the way they measure.
//
// A Probe lists its Cases for a machine and prepares each as a Trial, whose Once
// measures it one time; Registry lists the probes. Bench is one GPU with what all
// probes share: streams, a gate that keeps launch cost out of device times, buffers,
// random data. World is the GPUs of all processes, for collectives. Kernels are in
// kernels.cu, compiled on the machine.
//
// calibrate decides which case is measured when, how often and for how long, and
// comes next.
package probe
