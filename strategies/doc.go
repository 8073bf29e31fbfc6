// Package strategies says HOW a job is split: the Plan, the training settings and
// the runtime, read from a job/v1 file together with model and hardware, and the
// rules that make a plan legal.
//
// A broken rule is an error that names the value, the rule and the nearest legal
// values; the rules need no search and no estimate. Its sub-packages turn a legal
// job into a prediction: dataparallel (buckets, and what ranks keep),
// pipeline (order of actions), timeline (streams and overlap), memory, and estimate,
// which is the glue and comes last.
package strategies
