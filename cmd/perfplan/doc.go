// Command perfplan predicts one distributed training step on NVIDIA GPUs: time,
// memory, utilisation, and what bounds it.
//
// One file per command; a command parses its flags, calls the packages that know,
// and prints through internal/report. job.go turns arguments and flags into one
// job/v1 document, so that files and flags go through the same decoder; exit.go
// holds the exit codes. Nothing is computed here.
//
// It is the last of the flow.
package main
