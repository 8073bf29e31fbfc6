// Package search ranks plans: Rank all legal ones of a space by an objective,
// Pareto by several at once, Best the simple ones when a job leaves its plan open, a
// Scout the same on many numbers of GPUs. Explain says why a plan is not the best, Near
// what comes nearest when nothing fits, Remedies what makes a job fit.
//
// It only enumerates, bounds and compares; every figure comes from
// strategies/estimate, and no plan is left out that could be among those returned.
// Next is internal/report, which prints what was found.
package search
