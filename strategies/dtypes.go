package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// DTypes overrides single cells of the precision's table.
type DTypes struct {
	Weights   recipe.DType `yaml:"weights"`
	Compute   recipe.DType `yaml:"compute"`
	GEMM      recipe.DType `yaml:"gemm"`
	Head      recipe.DType `yaml:"head"`
	Embedding recipe.DType `yaml:"embedding"`
	Attention recipe.DType `yaml:"attention"`
	Scan      recipe.DType `yaml:"scan"`
	Gradients recipe.DType `yaml:"gradients"`
	Master    recipe.DType `yaml:"master"`
	Moments   recipe.DType `yaml:"moments"`
	Reduce    recipe.DType `yaml:"reduce"`
	Gather    recipe.DType `yaml:"gather"`
	Adapters  recipe.DType `yaml:"adapters"`
}

// cells are the cells of p with what the job says of them, if anything: an array, which a search
// need not allocate.
func (d *DTypes) cells(p *recipe.Precision) [13]dtypeCell {
	return [13]dtypeCell{{"weights", d.Weights, &p.Weights}, {"compute", d.Compute, &p.Compute}, {"gemm", d.GEMM, &p.GEMM}, {"head", d.Head, &p.Head}, {"embedding", d.Embedding, &p.Embedding}, {"attention", d.Attention, &p.Attention}, {"scan", d.Scan, &p.Scan},
		{"gradients", d.Gradients, &p.Gradients}, {"master", d.Master, &p.Master}, {"moments", d.Moments, &p.Moments}, {"reduce", d.Reduce, &p.Reduce}, {"gather", d.Gather, &p.Gather}, {"adapters", d.Adapters, &p.Adapters}}
}

type dtypeCell struct {
	name string
	from recipe.DType
	to   *recipe.DType
}

// Apply returns p with the given cells replaced.
func (d DTypes) Apply(p recipe.Precision) recipe.Precision {
	for _, c := range d.cells(&p) {
		if c.from.Set {
			*c.to = c.from
		}
	}
	return p
}

// check returns an error where a cell has a dtype that tensors of a model never have.
func (d *DTypes) check() error {
	for _, c := range d.cells(new(recipe.Precision)) {
		if c.from.DType > tape.FP4 {
			return diag.Errorf("train.dtypes.%s: %s; use fp32, bf16, fp16, fp8, mxfp8, fp8-block, fp8-rowwise or fp4", c.name, c.from)
		}
	}
	return nil
}
