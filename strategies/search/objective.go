package search

import (
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Objective is what the best plan is best at.
type Objective string

const (
	Time   Objective = "step"   // time of a step
	Tokens Objective = "tokens" // per second
	Memory Objective = "memory" // of the fullest GPU, least first
	Cost   Objective = "cost"   // of a token
	Energy Objective = "energy" // of a token
	Train  Objective = "train"  // time to a number of tokens
)

// Objectives are all of them.
var Objectives = []string{"step", "tokens", "memory", "cost", "energy", "train"}

// UnmarshalText accepts one of them.
func (o *Objective) UnmarshalText(b []byte) error {
	if slices.Contains(Objectives, string(b)) {
		*o = Objective(b)
		return nil
	}
	return diag.Errorf("%q is not an objective%s", b, diag.DidYouMean(string(b), Objectives))
}

// value is what the objective makes least. The order of cost and time to train is
// that of the GPU seconds of a token, since all plans of a search use the same GPUs.
func (o Objective) value(s *estimate.Score, tokens float64) float64 {
	switch o {
	case Time:
		return float64(s.StepTime)
	case Memory:
		return float64(s.DeviceUsed)
	case Energy:
		return float64(s.Energy) / tokens
	}
	return float64(s.StepTime) / tokens
}

// text is what of a plan the objective looks at, for people.
func (o Objective) text(s *estimate.Score) string {
	switch o {
	case Memory:
		return s.DeviceUsed.String()
	case Energy:
		return s.Energy.String() + " per step and GPU"
	}
	return s.StepTime.String()
}

// second orders plans that are equal by value.
func (o Objective) second(s *estimate.Score) float64 {
	if o == Memory {
		return float64(s.StepTime)
	}
	return float64(s.DeviceUsed)
}

// floor is a value that no plan of a job like this goes below, of which the least memory is
// known.
func (o Objective) floor(e *estimate.Evaluator, j *strategies.Job, memory units.Bytes) (float64, error) {
	least := estimate.Score{DeviceUsed: memory}
	var err error
	if o == Energy {
		least.Energy, err = e.FloorEnergy(j)
	} else {
		least.StepTime, err = e.FloorTime(j)
	}
	return o.value(&least, j.Tokens()), err
}

// largest is the memory that plans must not exceed for the value to stay within a bar, 0
// where that does not follow.
func (o Objective) largest(bar float64, bounded bool) units.Bytes {
	if !bounded || o != Memory {
		return 0
	}
	return units.Bytes(bar)
}

// slowest is the step time that plans of a job must not exceed for the value to
// stay within a bar, 0 where that does not follow.
func (o Objective) slowest(bar float64, bounded bool, j *strategies.Job) units.Seconds {
	switch {
	case !bounded || o == Memory || o == Energy:
		return 0
	case o == Time:
		return units.Seconds(bar)
	case j.Given.GlobalBatch == 0: // the tokens of a step differ from plan to plan
		return 0
	}
	return units.Seconds(bar * (1 + same) * float64(j.Given.GlobalBatch) * float64(j.Train.PerSequence()))
}

// Costs are a result in money, energy and time.
type Costs struct {
	Dollars float64      // of a million tokens; 0 where no price is known
	Joules  units.Joules // of a million tokens
	Days    float64      // to Options.TrainTokens; 0 without
}

// CostsOf puts a prediction in money, energy and time. dollars is the price of an
// hour of one GPU.
func CostsOf(j *strategies.Job, r *estimate.Result, dollars, trainTokens float64) Costs {
	tokens := j.Tokens()
	gpus := float64(j.GPUs)
	step := float64(r.StepTime)
	return Costs{
		Dollars: gpus * step / 3600 * dollars / tokens * 1e6,
		Joules:  units.Joules(float64(r.Energy) * gpus / tokens * 1e6),
		Days:    trainTokens / tokens * step / 86400,
	}
}
