package strategies

import "github.com/perfplan/perfplan/internal/diag"

// checkTensorwise returns the first rule that an optimizer breaks whose states are those of whole
// tensors, in a dtype of their own (bitsandbytes, Adafactor).
func (p *Plan) checkTensorwise(s Shape) error {
	switch o := s.Recipe.Optimizer[s.Train.Optimizer]; {
	case !o.States.Set && o.Bytes == 0:
	case p.DataParallel != DDP && p.DP*p.CP > 1:
		return diag.Errorf("train.optimizer: %s beside data_parallel %s, of which no update is known; use ddp, or adamw-fused", s.Train.Optimizer, p.DataParallel)
	case p.Offloads():
		return diag.Errorf("train.optimizer: %s with plan.offload, of which no update is known; leave one of them out", s.Train.Optimizer)
	case p.TP > 1 || p.PP > 1:
		return diag.Errorf("train.optimizer: %s with tp %d and pp %d, of which no update is known; use tp 1 and pp 1, or adamw-fused", s.Train.Optimizer, p.TP, p.PP)
	case s.Train.DTypes.Moments.Set:
		return diag.Errorf("train.dtypes.moments: %s, but %s has states of its own; leave it out, or use adamw-fused", s.Train.DTypes.Moments, s.Train.Optimizer)
	}
	return nil
}
