// Package fake models GPUs behind the interfaces of calibrate/cuda, so that all of
// calibration is tested on machines without one.
//
// Time is virtual: nothing here sleeps. Streams run in a small discrete-event
// simulation on rooflines with noise, launch gaps, slowdown of what runs side by
// side, a power limit that pulls the clock down, and failures set by Options. Small
// matrix multiplies, copies and sums are really computed, so that checks of results
// have something to check.
//
// Only tests use it. calibrate/probe, which they test with it, comes next.
package fake
