package dataparallel

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies"
)

// States are the bytes per parameter that live between steps on one rank, before
// and after division by the shard degree.
type States struct {
	Weights, Master, Moments, Gradients units.Bytes
	// ShardWeights and so on: divided by the shard degree.
	ShardWeights, ShardOptimizer, ShardGradients bool
}

// StatesOf returns what a kind of data parallelism keeps, per parameter.
// persistent says that gradients live in buffers of their own (DDP buckets, Megatron's
// main gradients) instead of coming and going with the backward pass.
func StatesOf(kind strategies.DataParallel, p recipe.Precision, persistent bool) States {
	s := States{Weights: p.Weights.Size(), Master: p.Master.Size(), Moments: p.MomentBytes()}
	if persistent {
		s.Gradients = p.Gradients.Size()
	}
	switch kind {
	case strategies.ZeRO1:
		s.ShardOptimizer = true
	case strategies.ZeRO2:
		s.ShardOptimizer, s.ShardGradients = true, true
	case strategies.ZeRO3, strategies.FSDP1, strategies.FSDP2:
		s.ShardWeights, s.ShardOptimizer, s.ShardGradients = true, true, true
	}
	return s
}

// PerParam returns the bytes per parameter on one of n ranks that share a copy.
func (s States) PerParam(n int64) (weights, optimizer, gradients units.Bytes) {
	d := units.Bytes(n)
	weights, optimizer, gradients = s.Weights, s.Master+s.Moments, s.Gradients
	if s.ShardWeights {
		weights /= d
	}
	if s.ShardOptimizer {
		optimizer /= d
	}
	if s.ShardGradients {
		gradients /= d
	}
	return
}
