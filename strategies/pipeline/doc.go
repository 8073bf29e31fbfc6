// Package pipeline turns the name of a pipeline schedule into what each rank
// does: an ordered list of forwards and backwards of its model chunks.
//
// A Plan is legal or it is not made: every schedule states its rule and an
// error names the nearest legal values. Ranks run their lists in order; between
// ranks a forward waits for the stage before it and a backward for the stage
// after it, nothing else. From that alone follows what is asked of a Plan: Run,
// the critical path for given stage times, with no closed formula in it. Tests hold
// it, and the activations that a rank holds at its worst moment, against the closed
// formula of each schedule.
//
// A new schedule is one new file that calls register, and its closed formula in the
// tests.
//
// The package knows no job: strategies checks its Plan with it, and strategies/estimate
// runs the lists with the times of stages and walks memory along them.
package pipeline
