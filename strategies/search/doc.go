// Package search picks plans: Best the fastest simple one that fits when a job
// leaves its plan open, Remedies the cheapest changes that make a job fit.
//
// It only enumerates and compares; every figure comes from strategies/estimate.
// Next is internal/report, which prints what was found.
package search
