// Package capacity answers what a whole training run takes and which cluster is
// enough for it.
//
// Train turns a predicted step into days, GPU-hours, cost and energy, with the
// goodput of strategies/goodput. Deadline looks for the smallest cluster that
// finishes in time, Largest for the longest sequence, the largest micro batch or
// the largest model that a cluster holds; both pick plans with strategies/search.
//
// Every step time comes from strategies/estimate. internal/report prints the
// answers, and comes next.
package capacity
