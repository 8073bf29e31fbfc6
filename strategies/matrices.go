package strategies

import (
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
)

// checkMatrices returns the first rule that an optimizer of whole matrices breaks: a rank
// must hold them whole, or as the framework is known to cut them.
func (p *Plan) checkMatrices(s Shape) error {
	o := s.Recipe.Optimizer[s.Train.Optimizer]
	if o.Matrix == "" {
		return nil
	}
	name, kinds := s.Train.Optimizer, s.matrixKinds()
	switch {
	case s.Model.LoRA != nil:
		return diag.Errorf("train.optimizer: %s with train.lora, of which no update is known; use another optimizer, or leave lora out", name)
	case s.Recipe.Structure.FlatStates || s.Recipe.Structure.Partitions:
		return diag.Errorf("train.optimizer: recipe %s keeps its states in one tensor, where %s has no matrices; use hf-eager or megatron-core", s.Recipe.Name, name)
	case !slices.Contains(kinds, string(p.DataParallel)) && p.DP*p.CP > 1: // shards lie on context ranks, too
		return diag.Errorf("train.optimizer: %s beside data_parallel %s, of which no update is known; use %s", name, p.DataParallel, diag.Or(kinds))
	case p.Offloads():
		return diag.Errorf("train.optimizer: %s with plan.offload, of which no update is known; leave one of them out", name)
	case p.TP > 1 && !s.Recipe.Structure.MainGradients:
		return diag.Errorf("train.optimizer: %s with tp %d under recipe %s, of which no update is known; use tp 1, or megatron-core", name, p.TP, s.Recipe.Name)
	case p.ShardDegree > 0 && p.ShardDegree < p.DP*p.CP:
		return diag.Errorf("train.optimizer: %s with shard_degree %d, of which no update is known; leave shard_degree out", name, p.ShardDegree)
	}
	return nil
}

// matrixKinds are the kinds of data parallelism under which the update of whole matrices is known.
func (s *Shape) matrixKinds() []string {
	kinds := []string{string(DDP)}
	if s.Recipe.Structure.MainGradients { // whole matrices are dealt out to the ranks
		kinds = append(kinds, string(ZeRO1))
	}
	if s.Recipe.Optimizer[s.Train.Optimizer].Shards != "" {
		kinds = append(kinds, string(FSDP2))
	}
	return kinds
}
