// Package sample holds what calibration measures: the Sample, one point of one
// probe, and the samples file (samples/v1, JSON lines) that collects them.
//
// It comes first of the packages that measure. calibrate/probe makes samples,
// calibrate/fit turns them into a hardware/v1 profile, and calibrate/cuda comes
// next: what they are measured with.
package sample
