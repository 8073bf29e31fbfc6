package launch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
)

// uncut notes adapters on tensor ranks where no estimate has both (strategies/lora.go, checkAdapters).
func (j *Job) uncut() {
	r := j.runs()
	if tp := j.count("plan.tp"); tp > 1 && j.mentions("train.lora.rank") && r != nil && !r.Structure.SharedTPInput {
		j.note("%s %d beside adapters: how recipe %s cuts them over tensor ranks is not known, and estimate refuses the two; set plan.tp to 1, or leave train.lora out", j.setting("plan.tp").From, tp, r.Name)
	}
}

// oneWay leaves out whether gradients are reduced beside the backward pass where the recipe has one
// way alone (strategies/resolve.go, setOverlaps).
func (j *Job) oneWay() {
	const key = "runtime.overlap_grad_reduce"
	r := j.runs()
	if s := j.setting(key); s.Value != nil && r != nil && !slices.Contains(r.Overlap.Switches, recipe.GradReduceSwitch) {
		j.note("%s %v: recipe %s is known with one way to reduce gradients, which is taken", s.From, s.Value, r.Name)
		j.drop(key)
	}
}

// unliger leaves out what of Liger-Kernel no estimate has on tensor ranks, whichever file has them.
func (j *Job) unliger() {
	tp := j.count("plan.tp")
	if tp <= 1 {
		return
	}
	for _, part := range [][2]string{{"runtime.liger_kernels", "kernel of each operator is"}, {"runtime.fused_linear_cross_entropy", "output layer is"}} {
		at := slices.IndexFunc(j.Settings, func(s Setting) bool { return s.Key == part[0] && s.Value == true })
		if at >= 0 {
			whose, from := "Liger-Kernel's", j.Settings[at].From
			j.Settings = slices.Delete(j.Settings, at, at+1)
			if impl := j.at("runtime.cross_entropy_impl"); part[0] == "runtime.fused_linear_cross_entropy" && impl >= 0 {
				whose = "Cut Cross-Entropy's"
				j.Settings = slices.Delete(j.Settings, impl, impl+1)
			}
			j.note("%s: %s %s not known on tensor ranks (tp %d); the model's is taken", from, whose, part[1], tp)
		}
	}
}

// hubRecipes are those that run classes of transformers.
var hubRecipes = []any{"hf-eager", "hf-compile", deepspeedRecipe, hubRecipe}

// unflash takes PyTorch's attention for heads that are wider than FlashAttention takes (strategies,
// resolve.go), as transformers' own classes of such models do in these layers.
func (j *Job) unflash() {
	const key = "runtime.attention"
	name := j.textOf("model")
	m := specOf(name)
	if m == nil || !strings.HasPrefix(j.textOf(key), "flash") || m.Compress != nil || m.WidestHead() <= ops.FlashHead || !slices.Contains(hubRecipes, j.value("runtime.recipe")) {
		return
	}
	asked := &j.Settings[j.at(key)]
	j.note("%s: heads of %s have up to %d elements, and FlashAttention takes %d; sdpa is taken in all layers", asked.From, name, m.WidestHead(), ops.FlashHead)
	asked.Value = "sdpa"
}

// unmuon leaves out Muon where no estimate has its update under a recipe of Hugging Face's, whichever
// file says what is beside it (strategies/matrices.go, checkMatrices).
func (j *Job) unmuon() {
	o, kind := j.setting("train.optimizer"), j.setting("plan.data_parallel")
	why := ""
	switch hub := slices.Contains(hubRecipes, j.value("runtime.recipe")); {
	case o.Value != "muon" || !hub:
		return
	case j.mentions("train.lora.rank"):
		why = "adapters"
	case kind.Value == "fsdp1":
		why = kind.From + ", FSDP of version 1"
	case j.count("plan.tp") > 1:
		why = j.setting("plan.tp").From
	case j.mentions("plan.shard_degree"):
		why = j.setting("plan.shard_degree").From
	case j.mentions("plan.offload"):
		why = j.setting("plan.offload").From
	default:
		return
	}
	j.note("%s muon beside %s: which matrices a rank updates is not known; AdamW is taken", o.From, why)
	j.drop("train.optimizer")
}

// stay leaves on the GPU what no estimate leaves to the host beside what else a job says,
// whichever file has it (strategies/offload.go, checkOffload).
func (j *Job) stay() {
	to := j.setting("plan.offload")
	whole := to.Value == "parameters"
	kind := j.setting("plan.data_parallel")
	why := ""
	switch {
	case to.Value == nil:
		return
	case j.mentions("train.lora.rank"):
		why = "beside adapters: what of frozen weights is left to the host is not known"
	case whole && j.count("plan.pp") > 1:
		why = "beside a pipeline: what its stages do with parameters of the host is not known"
	case whole && j.count("plan.ep") > 1:
		why = "beside expert ranks: what they do with parameters of the host is not known"
	case !j.offloads(to.Value):
		why = fmt.Sprintf("with recipe %v: what that leaves to the host is not known", j.value("runtime.recipe"))
	case whole && kind.Value == "ddp":
		why = "beside " + kind.From + ": replicas under DDP keep all"
	default:
		return
	}
	j.note("%s %s; all is taken to stay on the GPU", to.From, why)
	j.drop("plan.offload")
}

// offloads reports whether a job's recipe can leave something to the host.
func (j *Job) offloads(what any) bool {
	r := j.runs()
	if r == nil {
		return true
	}
	kinds := map[any][]string{"optimizer": r.Offload.Optimizer, "parameters": r.Offload.Parameters}
	return len(kinds[what]) > 0
}
