// Package calibrate measures the GPUs of a machine.
//
// Run takes the probes of calibrate/probe one after the other, on one GPU, on all
// of them, or on those of several processes, and appends what they find to a samples
// file. It keeps to a time budget, measures the cases of a probe in turns and in
// random order, so that a disturbance hits all alike, lets the GPU rest where power
// would slow it, goes on without what fails, and can be interrupted and resumed.
//
// calibrate/fit makes a hardware/v1 profile of the samples. The command line comes
// next.
package calibrate
