// Package goodput says how much of the wall time of a long training run makes
// progress: what failures, checkpoints, stragglers, data loading and missing spare
// nodes leave of it.
//
// Settings are the keys of the section run: of a job file, Defaults their values
// with sources (defaults.yaml). Cluster and Settings give a Plan: the expected
// goodput at the best checkpoint interval, or at a given one, with every loss on
// its own.
//
// The model is J. T. Daly's for failures without memory, solved exactly: "A higher
// order estimate of the optimum checkpoint interval for restart dumps", Future
// Generation Computer Systems 22 (2006). strategies reads the settings; the days,
// the cost and the energy of a whole run come next, in strategies/capacity.
package goodput
