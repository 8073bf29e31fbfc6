// Package dataparallel says in what pieces data parallelism exchanges gradients and
// what of a parameter stays on a rank.
//
// DDP closes buckets in the order gradients become ready (torch/csrc/distributed/
// c10d/reducer.cpp); ZeRO shards what its stage says (arXiv 1910.02054).
//
// strategies/estimate launches the collectives and the copies beside them: replicated
// parameters bucket by bucket (step.go), sharded ones unit by unit (shards.go, as
// torch/distributed/fsdp/_fully_shard does).
package dataparallel
