// Package whatif asks what would change if a job or its machine were another.
//
//   - Sweep estimates every combination of settings (axis.go) and marks the best.
//   - Sensitivity perturbs one fact of the machine at a time: which is worth buying.
//   - Scale grows a job at a fixed global batch and at a fixed batch per GPU, and says
//     where and why it stops paying.
//   - Diff splits the difference of two results into the terms that moved.
//
// Nothing is predicted here: every figure is one of strategies/estimate, and plans
// that a job leaves open are picked by strategies/search. internal/report prints
// the tables, and comes next.
package whatif
