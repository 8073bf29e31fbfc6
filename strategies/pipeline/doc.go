// Package pipeline turns the name of a pipeline schedule into what each rank
// does: an ordered list of forwards and backwards of its model chunks.
//
// A Plan is legal or it is not made: every schedule states its rule and an
// error names the nearest legal values. Ranks run their lists in order; between
// ranks a forward waits for the stage before it and a backward for the stage
// after it, nothing else. From that alone follow the two things asked of a
// Plan: PeakInFlight, the activations a rank holds at its worst moment, and
// Run, the critical path for given stage times, with no closed formula in it.
// The closed formula of each schedule is printed beside the result as a check.
//
// A new schedule is one new file that calls register.
//
// The package comes after strategies (the Plan that chose schedule, ranks and
// virtual stages). Next is strategies/timeline, which replays the same lists
// with kernels, host queues and communication streams.
package pipeline
