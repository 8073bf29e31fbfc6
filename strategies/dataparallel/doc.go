// Package dataparallel says what data parallelism adds to a pass over the units of
// a rank: which collective, how many bytes, when it may start, what waits for it,
// which copy kernels run beside it, and what stays in memory.
//
// DDP closes buckets in the order gradients become ready (torch/csrc/distributed/
// c10d/reducer.cpp); FSDP2 gathers one unit ahead and reduces one unit behind
// (torch/distributed/fsdp/_fully_shard); ZeRO shards what its stage says (arXiv
// 1910.02054). Each is a small set of rules on a timeline.Sim.
//
// strategies/estimate picks the kind and drives it over the micro batches.
package dataparallel
