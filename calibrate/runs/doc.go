// Package runs holds measured training steps against predicted ones.
//
// A runs/v1 file is a list of jobs, each with what a real run of it measured. Load
// reads one, LoadAll several in which no run may stand twice; Embedded returns those the
// program carries (data/, with their provenance). Validate sends every job through
// strategies/estimate and reports the error of each figure by run and, over runs, by
// group; a run that cannot be predicted or compared is named with the reason and its
// place.
//
// Nothing here feeds back: constants are fitted elsewhere, from other files.
// internal/report prints what Validate finds, and comes next.
package runs
