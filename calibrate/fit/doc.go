// Package fit turns the samples of a calibration into a hardware/v1 profile.
//
// Each section of the hardware laws has one file here. The GEMM and attention laws
// (gemm.go, attention.go) keep their form; their constants are the ones that make
// hardware/kernel itself predict the samples best, with the profile that is refined
// as a weak prior, and the measured shapes stay in the profile to correct their
// neighbours. Memory-bound classes (memory.go) and collectives (collective.go)
// keep the measured curve. Launch costs, power and overlap (device.go) are read off.
// No second model predicts anything: what is fitted is what estimate asks.
//
// Every law gets the deviation that estimate makes its range of: the one whose 80 %
// range holds 80 % of the samples when each is predicted without itself. What was
// not measured is inherited, and a note says so.
//
// internal/report prints the result beside how well each probe fits, and the
// command line comes next.
package fit
