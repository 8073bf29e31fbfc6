package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/tape"
)

// checkRowScales returns the first rule that products with scales by row break: what tensor ranks exchange of maxima along an axis
// that they cut (torchtitan issue 1207), and how experts' rows are cast, is not known, and torchao gathers no weights in 8 bits beside
// them (float8/config.py, Float8LinearConfig.__post_init__).
func (p *Plan) checkRowScales(s Shape) error {
	of := s.Recipe.Precision[s.Train.Precision]
	gather := s.Train.DTypes.Gather
	switch {
	case of.GEMM.DType != tape.FP8Row:
	case p.TP > 1:
		return diag.Errorf("train.precision: %s with tp %d, whose exchange of scales is not known; use tp 1, or fp8", s.Train.Precision, p.TP)
	case s.Model.MoE != nil:
		return diag.Errorf("train.precision: %s with experts, whose casts are not known; use fp8 or bf16", s.Train.Precision)
	case gather.Set && gather.Size() < of.Compute.Size():
		return diag.Errorf("train.dtypes.gather: %s, but torchao gathers in 16 bits beside scales by row; leave it out, or use precision fp8", gather)
	}
	return nil
}
