// Package parallel runs one function over many values on all processors.
//
// The order of results is the order of the values, whatever finished first, so
// that what is printed does not depend on the machine.
//
// strategies/search, strategies/whatif and calibrate/runs estimate many jobs with it, and
// come next.
package parallel
