package strategies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/whole"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
)

// RecomputeMethod says what recompute_num_layers counts where full recomputation is
// not of every layer by itself.
type RecomputeMethod string

const (
	// RecomputeBlock recomputes the first N layers of each pipeline stage, virtual
	// ones by themselves, and keeps the activations of the rest (Megatron-LM,
	// --recompute-method block: megatron/core/transformer/transformer_block.py,
	// _checkpointed_forward).
	RecomputeBlock RecomputeMethod = "block"
	// RecomputeUniform recomputes all layers, N at a time from the input of the
	// first (--recompute-method uniform, there).
	RecomputeUniform RecomputeMethod = "uniform"
	// RecomputeEvery recomputes every N-th layer of each pipeline stage (torchtitan,
	// selective_ac_option: "2" in torchtitan/distributed/activation_checkpoint.py).
	RecomputeEvery RecomputeMethod = "every"
)

var recomputeMethods = []string{"block", "uniform", "every"}

// UnmarshalText accepts one of the methods.
func (m *RecomputeMethod) UnmarshalText(b []byte) error {
	if !slices.Contains(recomputeMethods, string(b)) {
		return fmt.Errorf("%q is not a method of recomputation; use %s", b, strings.Join(recomputeMethods, ", "))
	}
	*m = RecomputeMethod(b)
	return nil
}

// WholeLayers reports whether recomputation runs on to the end of a layer, where else it stops with
// the last tensor that is needed (torch/utils/checkpoint.py: set_checkpoint_early_stop, without
// use_reentrant). Unless the job says so it is as the framework checkpoints layers, but in graphs, of
// which a compiler drops what nobody reads, and under FSDP, whose own checkpoints a Trainer asks for
// there, which stop (transformers, Trainer.__init__; accelerate, accelerator.py, CheckpointImpl.NO_REENTRANT).
func (j *Job) WholeLayers() bool {
	if given := j.Train.UseReentrant; given != nil {
		return *given
	}
	p := &j.Plan
	byFSDP := (p.DataParallel == FSDP1 || p.DataParallel == FSDP2) && p.DP*p.CP > 1
	return j.Recipe.Structure.Reentrant && !j.Recipe.Structure.Compiled && !byFSDP
}

// Recomputed says which layers of a pipeline stage are recomputed. The zero value
// is all that train.recompute says.
type Recomputed struct {
	Method RecomputeMethod
	Layers int64 // recompute_num_layers
}

// Recomputed is the choice of layers.
func (t *Train) Recomputed() Recomputed {
	if t.RecomputeNumLayers == nil {
		return Recomputed{}
	}
	return Recomputed{t.RecomputeMethod, *t.RecomputeNumLayers}
}

// Partly reports whether some layers keep their activations.
func (r Recomputed) Partly() bool { return r.Method == RecomputeBlock || r.Method == RecomputeEvery }

// Together is how many layers are recomputed as one.
func (r Recomputed) Together() int64 {
	if r.Method == RecomputeUniform {
		return r.Layers
	}
	return 1
}

// Of reports whether the i-th layer of a stage, from 0 on, is recomputed.
func (r Recomputed) Of(i int64) bool {
	switch r.Method {
	case RecomputeBlock:
		return i < r.Layers
	case RecomputeEvery:
		return (i+1)%r.Layers == 0
	}
	return true
}

// RecomputeText is what is recomputed, in short: "full", "block 4".
func (t *Train) RecomputeText() string {
	if r := t.Recomputed(); r != (Recomputed{}) {
		return fmt.Sprintf("%s %d", r.Method, r.Layers)
	}
	if t.RecomputeModules > 0 && t.Recompute == ops.SelectiveRecompute {
		return fmt.Sprintf("%s (%s)", t.Recompute, t.RecomputeModules)
	}
	return string(t.Recompute)
}

// layersOfStage is the number of layers of the fullest stage, a virtual one by itself.
func (p *Plan) layersOfStage(s Shape) int64 {
	return slices.Max(p.SplitLayers(s.Model, s.Recipe, s.Model.Layers, p.modelStages(s.Recipe)))
}

// RecomputesOf are the kinds of recomputation that a recipe has, the least first.
func RecomputesOf(r *recipe.Recipe) []string {
	if len(r.Recomputes) > 0 {
		return r.Recomputes
	}
	return Recomputes
}

// Recomputation is what backward passes compute again: a kind and, of selective recomputation, the
// parts of a layer; 0: the recipe's own.
type Recomputation struct {
	Kind    ops.Recompute
	Modules RecomputeModules
}

// Parts of a layer that a choice is between, beside the recipe's own: those whose outputs alone are
// let go of, and what is behind attention as a whole, whose experts hold their activation and the shared ones.
const (
	cheapParts = ops.ExpertActivation | ops.LayerNorms | ops.LatentProjection | ops.StreamMixes
	wholeParts = cheapParts&^ops.ExpertActivation | ops.DenseMLP | ops.Experts
)

// Recomputations are what a job can choose from, the least first: its recipe's kinds, the selective
// one also with parts that its framework lets a job name and its model has, and not of an attention
// core that keeps nothing.
func (j *Job) Recomputations() []Recomputation {
	var out []Recomputation
	for _, name := range RecomputesOf(j.Recipe) {
		kind := ops.Recompute(name)
		if kind != ops.SelectiveRecompute {
			out = append(out, Recomputation{Kind: kind})
			continue
		}
		if !(j.coreOnly(0) && j.keepsNoScores()) {
			out = append(out, Recomputation{Kind: kind})
		}
		var last RecomputeModules
		for _, parts := range []ops.Modules{cheapParts, wholeParts} {
			if m := j.modules(parts); m != 0 && m != last {
				out = append(out, Recomputation{kind, m})
				last = m
			}
		}
	}
	return out
}

// modules are those of some parts that a job's framework lets it name, that its model has and
// that have an effect.
func (j *Job) modules(parts ops.Modules) (out RecomputeModules) {
	for i, name := range ops.ModuleNames {
		part := ops.Modules(1 << i)
		if parts&part == 0 || !slices.Contains(j.Recipe.RecomputeModules, name) || lacking(j.Model, part) != "" || part == ops.LayerNorms && normless(j.Model) {
			continue
		}
		out |= RecomputeModules(part)
	}
	return out
}

// checkKind refuses a kind of recomputation that a recipe does not have.
func checkKind(kind ops.Recompute, r *recipe.Recipe) error {
	known := RecomputesOf(r)
	if slices.Contains(known, string(kind)) {
		return nil
	}
	if since := r.RecomputesSince(string(kind)); since > 0 {
		return diag.Errorf("train.recompute: recipe %s has %s recomputation from %s on; use %s, or a later runtime.release", r.Name, kind, since, diag.Or(known))
	}
	return diag.Errorf("train.recompute: recipe %s has no %s recomputation; use %s", r.Name, kind, diag.Or(known))
}

// checkRecompute returns the first rule that a choice of layers breaks.
func (p *Plan) checkRecompute(s Shape) error {
	t := s.Train
	if err := checkKind(t.Recompute, s.Recipe); err != nil {
		return err
	}
	if t.RecomputeNumLayers == nil {
		if t.RecomputeMethod != "" {
			return diag.Errorf("train.recompute_method: %s needs recompute_num_layers; give it, or leave the method out to recompute every layer by itself", t.RecomputeMethod)
		}
		return nil
	}
	n, known := *t.RecomputeNumLayers, s.Recipe.RecomputeMethods
	if t.Recompute != ops.FullRecompute {
		return diag.Errorf("train.recompute_num_layers: %d needs recompute: full; with %s leave it out", n, t.Recompute)
	}
	if !slices.Contains(known, string(t.RecomputeMethod)) {
		if len(known) == 0 {
			return diag.Errorf("train.recompute_num_layers: recipe %s recomputes all layers or none; leave it out", s.Recipe.Name)
		}
		return diag.Errorf("train.recompute_method: recipe %s has no %q; use %s", s.Recipe.Name, t.RecomputeMethod, diag.Or(known))
	}
	least := int64(1)
	if t.RecomputeMethod == RecomputeBlock {
		least = 0
	}
	most := p.layersOfStage(s)
	if n < least || n > most && t.RecomputeMethod != RecomputeBlock { // which then are all layers, in Megatron-LM too
		return diag.Errorf("train.recompute_num_layers: %d; a pipeline stage has up to %d layers: give %d to %d", n, most, least, most)
	}
	if t.RecomputeMethod == RecomputeUniform && n > 1 {
		stages := p.modelStages(s.Recipe)
		if slices.ContainsFunc(p.SplitLayers(s.Model, s.Recipe, s.Model.Layers, stages), func(k int64) bool { return k%n != 0 }) {
			return diag.Errorf("train.recompute_num_layers: %d at a time does not divide the layers of each of %d stages of %d (use %s)", n, stages, s.Model.Layers, list(whole.Divisors(most, most)))
		}
		if p.DataParallel.ShardsParameters() {
			return diag.Errorf("train.recompute_num_layers: %d layers at a time need the parameters of all of them, which %s gathers layer by layer; use 1, or zero1 or ddp", n, p.DataParallel)
		}
	}
	return nil
}
