// Package trace holds a profiled training step against the predicted one.
//
// Read takes the Chrome trace that PyTorch's profiler (Kineto) writes and keeps what
// ran on the device; Summarize cuts it into steps and sums the kernels of one by
// class; Compare sets them beside the kernels that an estimate is made of, and names
// what differs most. classes.yaml is the table from kernel names to the classes of
// model/tape and from classes to families: a class is one template of a kernel, which
// a change of version may exchange for another, a family is what it is for.
//
// Nothing here feeds back into a prediction. internal/report prints a Comparison, and
// comes next.
package trace
