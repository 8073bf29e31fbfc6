package runs

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Part is how long what predictions name so took in measured steps.
type Part struct {
	Name      string  `json:"part"`
	Share     float64 `json:"share"`     // of the predicted step time, all groups alike
	Ratio     float64 `json:"ratio"`     // measured over predicted
	Deviation float64 `json:"deviation"` // one standard deviation of Ratio
	Untold    bool    `json:"untold"`    // a ratio below 0 would fit best: the runs say nothing of it, and Ratio is 1 for that of the others
}

// stepParts are the parts that measured steps are taken to be sums of. Kernels and what runs beside
// them cannot be told apart by whole steps.
var stepParts = [...]struct {
	name string
	of   func(p *estimate.Parts) units.Seconds
}{
	{"kernels", func(p *estimate.Parts) units.Seconds { return p.GEMM + p.Attention + p.Memory + p.Gaps + p.Contention }},
	{"exposed communication", func(p *estimate.Parts) units.Seconds { return p.Exposed }},
	{"waiting for the host", func(p *estimate.Parts) units.Seconds { return p.Host + p.Update }},
	{"bubble", func(p *estimate.Parts) units.Seconds { return p.Bubble }},
}

const (
	leastShare   = 0.005 // of the steps: a part below has the ratio 1, since they say nothing of it
	runsForPart  = 5     // that its ratio needs
	folds        = 10    // that are left out in turn
	farOff       = 0.08  // of the predicted step, about the mean error of all: those beyond weigh as much less
	reweightings = 8     // until they settle
	singular     = 1e6   // condition of the normal equations beyond which parts are not told apart
)

// Parts finds which parts of predictions measured steps take longer or shorter than predicted: the ratios
// of a least squares fit of measured over predicted steps to the shares of their parts, all groups weighed
// alike, steps far off less (P. Huber, Robust Estimation of a Location Parameter, 1964). Deviations are
// those of ratios when a tenth of the groups, or of the runs where there are few groups, is left out in
// turn (the jackknife). It is an error when there are too few runs, or all have the same parts.
func Parts(rows []Row) ([]Part, error) {
	var steps []partStep
	groups := map[string]int{} // by name: in the order they come
	count := map[int]float64{}
	for i := range rows {
		r := &rows[i]
		if r.Status != OK || r.Measured.StepTime <= 0 {
			continue
		}
		g, known := groups[r.Group]
		if !known {
			g = len(groups)
			groups[r.Group] = g
		}
		count[g]++
		s := partStep{group: g, ratio: float64(r.Measured.StepTime / r.Predicted.StepTime)}
		for k := range stepParts {
			s.shares[k] = float64(stepParts[k].of(&r.Predicted.Parts) / r.Predicted.StepTime)
		}
		steps = append(steps, s)
	}
	var out []Part
	var columns []int
	for k := range stepParts {
		p := Part{Name: stepParts[k].name}
		for i := range steps {
			s := &steps[i]
			s.weight = 1 / count[s.group]
			if s.fold = i % folds; len(groups) >= folds {
				s.fold = s.group % folds
			}
			p.Share += s.shares[k] * s.weight / float64(len(groups))
		}
		if p.Share >= leastShare {
			out, columns = append(out, p), append(columns, k)
		}
	}
	if need := runsForPart * max(len(columns), 1); len(steps) < need {
		return nil, diag.Errorf("--parts: %d runs have a step time, too few to tell %d parts from each other; give %d or more", len(steps), len(columns), need)
	}
	ratios, err := partRatios(steps, columns, none)
	for ; err == nil && slices.Min(ratios) < 0; ratios, err = partRatios(steps, columns, none) {
		k := slices.Index(ratios, slices.Min(ratios))
		i := slices.IndexFunc(out, func(p Part) bool { return p.Name == stepParts[columns[k]].name })
		out[i].Untold, columns = true, slices.Delete(columns, k, k+1)
	}
	if err != nil {
		return nil, diag.Errorf("--parts: the runs spend alike shares of their steps on all parts, so that nothing tells these from each other; add runs of other plans or batches")
	}
	deviations := make([]float64, len(columns))
	for f := range folds {
		without, err := partRatios(steps, columns, f)
		for k := range without {
			if d := without[k] - ratios[k]; err == nil {
				deviations[k] += d * d * (folds - 1) / folds
			}
		}
	}
	k := 0 // of columns
	for i := range out {
		if out[i].Ratio = 1; !out[i].Untold {
			out[i].Ratio, out[i].Deviation = ratios[k], math.Sqrt(deviations[k])
			k++
		}
	}
	return out, nil
}

// partStep is one measured step.
type partStep struct {
	group, fold int
	shares      [len(stepParts)]float64 // of stepParts in the predicted step
	ratio       float64                 // measured over predicted
	weight      float64
}

const none = -1 // fold

// partRatios are the ratios of the parts of some columns, those of others being 1, without the steps of a fold.
func partRatios(steps []partStep, columns []int, without int) ([]float64, error) {
	ratios := make([]float64, len(columns))
	for round := range reweightings {
		normal, right := mat.NewSymDense(len(columns), nil), mat.NewVecDense(len(columns), nil)
		for i := range steps {
			s := &steps[i]
			if s.fold == without {
				continue
			}
			target := s.ratio // of these parts
			for k, share := range s.shares {
				if !slices.Contains(columns, k) {
					target -= share
				}
			}
			off := target
			for a, k := range columns {
				off -= ratios[a] * s.shares[k]
			}
			w := s.weight
			if round > 0 {
				w *= min(1, farOff/math.Abs(off))
			}
			for a, k := range columns {
				right.SetVec(a, right.AtVec(a)+w*s.shares[k]*target)
				for b := a; b < len(columns); b++ {
					normal.SetSym(a, b, normal.At(a, b)+w*s.shares[k]*s.shares[columns[b]])
				}
			}
		}
		var c mat.Cholesky
		if !c.Factorize(normal) || c.Cond() > singular {
			return nil, mat.ErrSingular
		}
		var x mat.VecDense
		if err := c.SolveVecTo(&x, right); err != nil {
			return nil, err
		}
		copy(ratios, x.RawVector().Data)
	}
	return ratios, nil
}
