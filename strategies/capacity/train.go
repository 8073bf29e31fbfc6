package capacity

import (
	"fmt"
	"math"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/dataparallel"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/goodput"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// Training is a whole training run.
type Training struct {
	Result *estimate.Result // of one step on a healthy machine
	Plan   *goodput.Plan

	Tokens     float64
	Steps      int64
	Checkpoint units.Bytes   // of one checkpoint
	Time       units.Seconds // wall time
	Low, High  units.Seconds // 80 % range of Time, from that of the step
	GPUs       int64         // that run, and spare ones with their whole nodes
	GPUHours   float64       // of all of them

	Price       float64 // US dollars per GPU-hour; 0: not known
	PriceSource string
	Cost        float64      // US dollars; 0: not known
	GPUEnergy   units.Joules // of the running GPUs
	SiteEnergy  units.Joules // with servers, network and cooling
	Assumed     []goodput.Assumption
	Notes       []diag.Note
}

// Train extends a predicted step to a run over the tokens of the job's section run:.
// It fails when that names none, or when failures leave no time for work.
func Train(r *estimate.Result) (*Training, error) {
	j := r.Job
	s := j.Run
	if !s.Tokens.IsSet() {
		return nil, diag.Errorf("run.tokens: is missing; say how much to train on, as in --tokens 2T")
	}
	t := &Training{Result: r, Tokens: float64(s.Tokens.Value), Checkpoint: CheckpointBytes(j), Assumed: s.Assumptions()}
	t.Steps = int64(math.Ceil(t.Tokens / j.Tokens()))
	var err error
	task := goodput.Job{GPUs: j.GPUs, Step: r.StepTime, TokensPerStep: j.Tokens(), Checkpoint: t.Checkpoint}
	if t.Plan, err = goodput.New(task, s); err != nil {
		return nil, err
	}
	if t.Plan.Goodput < LeastGoodput {
		t.Notes = append(t.Notes, t.absurd(task))
	}
	t.Time = r.StepTime * units.Seconds(float64(t.Steps)/t.Plan.Goodput)
	t.Low, t.High = t.Time*r.Low/r.StepTime, t.Time*r.High/r.StepTime
	t.GPUs = j.GPUs + t.Plan.Spares*j.Hardware.Node.GPUs.Value
	t.GPUHours = float64(t.GPUs) * float64(t.Time) / 3600

	switch t.Price = whatif.Price(j); {
	case s.Price.IsSet():
		t.PriceSource = "given"
	case t.Price > 0:
		t.PriceSource = j.Hardware.Price.GPUHour.Source
	default:
		t.Notes = append(t.Notes, diag.Note{Code: "price.unknown", Text: "hardware " + j.Hardware.Name + " has no price, so the run has no cost", Remedy: "give --price in US dollars per GPU-hour, or a machine of a cloud, such as aws-p5"})
	}
	t.Cost = t.Price * t.GPUHours
	if node := j.Hardware.Node.GPUs.Value; j.GPUs%node != 0 && t.Price > 0 && !s.Price.IsSet() {
		whole := j.GPUs + node - j.GPUs%node
		t.Notes = append(t.Notes, diag.Note{Code: "nodes.part", Text: fmt.Sprintf("%d GPUs are no whole nodes of %s, which have %d each: GPU-hours and cost are those of the GPUs alone", j.GPUs, j.Hardware.Name, node),
			Remedy: fmt.Sprintf("whole nodes are %d GPUs, in the same time %.0f %% dearer; --gpus %d trains on all of them", whole, 100*float64(whole-j.GPUs)/float64(t.GPUs), whole)})
	}

	if j.Given.GlobalBatch == 0 {
		t.Notes = append(t.Notes, diag.Note{Code: "batch.open", Text: fmt.Sprintf("the job names no global batch; %d sequences per step follow from its plan", j.Train.GlobalBatch), Remedy: "give --global-batch in sequences"})
	}
	power := r.Power
	if power == 0 {
		power = j.Hardware.GPU.Power.Value
		t.Notes = append(t.Notes, diag.Note{Code: "power.limit", Text: "the power of " + j.Hardware.Name + " was never measured; its limit is taken", Remedy: "run perfplan calibrate on the machine"})
	}
	// Waiting for a node draws little; a restart and repeated work draw like the rest.
	busy := t.Time * units.Seconds(float64(j.GPUs)*(1-t.Plan.Loss("spares")))
	t.GPUEnergy = power.For(busy)
	t.SiteEnergy = t.GPUEnergy * units.Joules(s.ServerOverhead.Value*s.PUE.Value)
	return t, nil
}

// LeastGoodput is below what a run is hardly meant: Llama 3 made progress for more
// than 90 % of the time on 16,384 GPUs (arXiv 2407.21783, section 3.3.4).
const LeastGoodput = 0.5

// absurd warns of a run that hardly makes progress, and names the input to blame.
func (t *Training) absurd(task goodput.Job) diag.Note {
	n := diag.Note{Code: "goodput.low", Text: fmt.Sprintf("only %.1f %% of the time makes progress", 100*t.Plan.Goodput)}
	key, better := goodput.Culprit(task, t.Result.Job.Run)
	if key == "" {
		n.Text += fmt.Sprintf(": with %d GPUs a failure comes every %s and costs %s", task.GPUs, t.Plan.Failures, t.Plan.Downtime)
		n.Remedy = "use fewer GPUs, or restart faster (--detection, --restart, --storage-rate)"
		return n
	}
	for _, a := range t.Assumed {
		if a.Key == key {
			n.Text += fmt.Sprintf(": run.%s = %s does it; with its default it would be %.1f %%", key, a.Value, 100*better)
		}
	}
	n.Remedy = "check its value and unit"
	if key == "mtbf_per_gpu" {
		n.Remedy += "; it is the time of one GPU, not of the whole job"
	}
	return n
}

// CheckpointBytes is the size of a checkpoint from which training goes on: weights,
// master weights and optimizer states of the whole model, once; of adapters alone, where
// these are trained (PEFT and NeMo save no frozen weights).
func CheckpointBytes(j *strategies.Job) units.Bytes {
	weights, optimizer, _ := dataparallel.StatesOf(strategies.DDP, j.Precision.Trained(), false).PerParam(1)
	b := units.Bytes(j.Model.Params().Trained) * (weights + optimizer)
	if j.Recipe.Optimizer[j.Train.Optimizer].Matrix != "" { // one moment of these
		b -= units.Bytes(j.Model.MatrixParams(j.Recipe.Structure.ExpertCalls)) * j.Precision.Moments.Size()
	}
	return b
}
