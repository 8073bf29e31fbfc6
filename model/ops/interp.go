package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// value is what a program variable holds: a tensor (nil for an absent bias), a
// number, a dtype or a word.
type value struct {
	t    *tape.Tensor
	save bool   // marked save(x) in a fused call
	key  string // name of a keyword argument
	num  float64
	word string
	dt   tape.DType
	kind valueKind
}

type valueKind uint8

const (
	tensorValue valueKind = iota
	numberValue
	wordValue
	dtypeValue
)

func tensorOf(t *tape.Tensor) value { return value{t: t} }
func numberOf(n float64) value      { return value{num: n, kind: numberValue} }

// primitive runs one primitive of model/tape. It borrows its arguments and
// returns owned results.
type primitive func(b *builder, a []value) []value

func tensorsOf(a []value) []*tape.Tensor {
	out := make([]*tape.Tensor, len(a))
	for i, v := range a {
		out[i] = v.t
	}
	return out
}

func one(t *tape.Tensor) []value { return []value{{t: t}} }

// fusedClass is what fusedClasses says of a word: class of the kernel, of its gradient.
func fusedClass(b *builder, word string) (forward, back tape.Class) {
	c, ok := fusedClasses[word]
	if !ok {
		panic(fmt.Sprintf("ops: recipe %s: fused has no class %q", b.recipe.Name, word))
	}
	return c[0], c[1]
}

// fused runs a kernel that does several things at once:
//
//	fused(save(x), y, w, class=reduce, rows=1)
//
// reads its tensors and writes one output like the first; save(x) keeps an input
// for the gradient. Keywords: class (of fusedClasses), saveout, mask (a byte per
// element is kept), rows (fp32 values kept per row), outs (outputs), read, write,
// back_read, back_write (further passes over the first input), kernels and
// back_kernels, width, shrink, grow and heads (of the output), low (the last output comes
// in autocast's dtype), inplace (the gradient overwrites what was saved), back_wait (of the host, before the gradient), fp32 (output dtype), back (class of the gradient), work and
// back_work (elements counted, over those there are), index (of strided), name.
func fused(b *builder, a []value) []value {
	f := tape.Fused{Prim: "fused", Class: tape.FusedPointwise, Outs: 1}
	var ins []*tape.Tensor
	set, back := false, tape.NoKernel
	for _, v := range a {
		switch v.key {
		case "":
			if v.save {
				f.Save = append(f.Save, len(ins))
			}
			if v.t != nil {
				ins = append(ins, v.t)
			}
		case "class":
			f.Class, f.Back = fusedClass(b, v.word)
		case "back":
			_, back = fusedClass(b, v.word)
		case "name":
			f.Prim = v.word
		case "low":
			f.Low = v.num > 0 && !b.handed
		case "fp32":
			f.DType, set = tape.F32, v.num > 0
		default:
			to, known := fusedNumbers[v.key]
			if !known {
				panic(fmt.Sprintf("ops: recipe %s: fused has no keyword %q", b.recipe.Name, v.key))
			}
			to(&f, v.num)
		}
	}
	if f.Class == tape.NormForward && len(b.recipe.Structure.NormWidths.RMS) > 0 {
		b.rowNorm(&f, ins[0].Dim(-1))
	}
	if !set {
		f.DType = ins[0].DType()
	}
	if back != tape.NoKernel {
		f.Back = back
	}
	return tensors(b.t.Fuse(f, ins...))
}

// fusedNumbers are the keywords of a fused kernel that are numbers, and switches.
var fusedNumbers = map[string]func(f *tape.Fused, v float64){
	"work":         func(f *tape.Fused, v float64) { f.Work = v },
	"back_work":    func(f *tape.Fused, v float64) { f.BackWork = v },
	"index":        func(f *tape.Fused, v float64) { f.Index = v },
	"read":         func(f *tape.Fused, v float64) { f.Read = v },
	"write":        func(f *tape.Fused, v float64) { f.Write = v },
	"back_read":    func(f *tape.Fused, v float64) { f.BackRead = v },
	"back_write":   func(f *tape.Fused, v float64) { f.BackWrite = v },
	"mask":         func(f *tape.Fused, v float64) { f.Mask = v > 0 },
	"inplace":      func(f *tape.Fused, v float64) { f.InPlace = v > 0 },
	"back_wait":    func(f *tape.Fused, v float64) { f.BackWait = v > 0 },
	"saveout":      func(f *tape.Fused, v float64) { f.SaveOut = v > 0 },
	"rows":         func(f *tape.Fused, v float64) { f.SaveRows = int(v) },
	"outs":         func(f *tape.Fused, v float64) { f.Outs = int(v) },
	"kernels":      func(f *tape.Fused, v float64) { f.Kernels = int(v) },
	"back_kernels": func(f *tape.Fused, v float64) { f.BackKernels = int(v) },
	"width":        func(f *tape.Fused, v float64) { f.Width = int64(v) },
	"heads":        func(f *tape.Fused, v float64) { f.Heads = int64(v) },
	"shrink":       func(f *tape.Fused, v float64) { f.Shrink = int64(v) },
	"grow":         func(f *tape.Fused, v float64) { f.Grow = int64(v) },
}

// fusedClasses are the kernel classes of a fused kernel and of its gradient.
var fusedClasses = map[string][2]tape.Class{
	"pointwise":  {tape.FusedPointwise, tape.FusedPointwise},
	"reduce":     {tape.FusedReduce, tape.FusedReduce},
	"heavy":      {tape.FusedHeavy, tape.FusedHeavy},
	"arithmetic": {tape.Arithmetic, tape.Arithmetic},
	"norm":       {tape.NormForward, tape.NormBackward},
	"softmax":    {tape.SoftmaxForward, tape.SoftmaxBackward},
	"row_block":  {tape.RowBlock, tape.RowBlock},
	"row_held":   {tape.RowHeld, tape.RowHeldBack},
	"strided":    {tape.Strided2, tape.Strided2},
}

// rowNorm gives a norm of rows so wide, which keeps one or, with a mean, two values of each,
// its kernels where some widths have their own. What sums the gradients of its weight takes
// longer after general ones.
func (b *builder) rowNorm(f *tape.Fused, width int64) {
	w := &b.recipe.Structure.NormWidths
	widths, kinds := w.RMS, [2][2]tape.Class{{tape.RMSGeneral, tape.RMSGeneralBack}, {tape.RMSTuned, tape.RMSTunedBack}}
	if f.SaveRows > 1 {
		widths, kinds = w.Layer, [2][2]tape.Class{{tape.LNGeneral, tape.LNGeneralBack}, {tape.LNTuned, tape.LNTunedBack}}
	}
	kind := kinds[0]
	f.Sum, f.SumWork = tape.NormSum, 1
	if b.Precision.CuDNNNorms || slices.Contains(widths, width) {
		kind, f.SumWork = kinds[1], 0
	}
	f.Class, f.Back = kind[0], kind[1]
}

func tensors(ts []*tape.Tensor) []value {
	out := make([]value, len(ts))
	for i, t := range ts {
		out[i] = tensorOf(t)
	}
	return out
}

// Missing is what Build panics with when a model needs a program that the recipe
// does not have: its framework does not run such models.
type Missing struct {
	Recipe, Program string
	Experts         bool // the model has some
}

func (m Missing) Error() string {
	if strings.HasPrefix(m.Program, "dropout_") { // which models of other frameworks train without
		return fmt.Sprintf("runtime.recipe: %s has no dropout of what blocks add; leave it out with --set model.residual_dropout=0, or use another recipe", m.Recipe)
	}
	other := "another recipe"
	if able := m.able(); len(able) > 0 {
		other = diag.Or(able)
	}
	return fmt.Sprintf("runtime.recipe: %s does not run this model, which has %s; use %s", m.Recipe, cmp.Or(has[m.Program], m.Program), other)
}

// has says what a model has that needs a program which some recipes lack, in the words of models.
var has = map[string]string{
	"experts":        "experts",
	"gemma_rms_norm": "norms as Gemma's, which multiply by one more than their weight",
	"rms_norm_cast":  "norms as Gemma 4's, which multiply by their weight in fp32",
	"separate_head":  "heads with projections of their own (separate_heads)",
	"xielu":          "the activation xIELU (hidden_act: xielu)",
	"norm_head":      "an output layer whose rows are divided by their norms (Baichuan 2's)",
	"rotary_apart":   "an indexer that picks keys (index_topk)",
}

// able are the recipes of such models that have what is missing; what a compiler makes of it goes without saying.
func (m Missing) able() []string {
	return recipe.Having(func(r *recipe.Recipe) bool {
		return !r.Structure.Compiled && !r.Structure.HandLayers && r.Structure.Takes(m.Experts) && r.Programs[m.Program] != nil
	})
}

func (b *builder) missing(program string) Missing {
	return Missing{b.recipe.Name, program, b.Spec.MoE != nil}
}

// gates are the programs of experts' gates, whose inputs some models clamp.
var gates = []string{"gate", "expert_glu", "expert_glu_unfused"}

// call runs the recipe's program of that name, or the primitive. Arguments are
// borrowed; results are owned by the caller.
func (b *builder) call(name string, args ...value) []value {
	if name == "gate" && b.Spec.MoE != nil && !b.Spec.Gated {
		name = "expert_plain"
	}
	if slices.Contains(gates, name) && b.Spec.MoE != nil && b.Spec.MoE.Clamped {
		name = b.variant(name, "_clamped")
	}
	p, ok := b.recipe.Programs[name]
	if !ok {
		panic(b.missing(name))
	}
	frame := make([]value, p.Slots)
	own := make([]bool, p.Slots) // parameters are the caller's until they are assigned again
	copy(frame[:len(p.Params)], args)
	for _, s := range p.Body {
		out := b.values(s.Values, frame)
		if s.Return {
			for i, v := range frame {
				if own[i] {
					b.drop(v)
				}
			}
			return out
		}
		for _, v := range out[min(len(s.Targets), len(out)):] { // that nobody asked for
			b.drop(v)
		}
		for i, slot := range s.Targets {
			if own[slot] {
				b.drop(frame[slot])
			}
			frame[slot], own[slot] = out[i], true
		}
	}
	return nil
}

// values evaluates what a statement assigns or returns: a call may have several results. The
// caller owns them.
func (b *builder) values(list []recipe.Expr, frame []value) []value {
	if len(list) == 1 && list[0].Kind == recipe.Call {
		return b.eval(list[0], frame)
	}
	var out []value
	for _, e := range list {
		v := b.eval(e, frame)[0]
		if e.Kind == recipe.Variable {
			b.t.Hold(v.t)
		}
		out = append(out, v)
	}
	return out
}

// drop gives up an owned value.
func (b *builder) drop(v value) {
	if v.kind == tensorValue {
		b.t.Release(v.t)
	}
}

// eval evaluates an expression. A variable's value is borrowed from the frame, a
// call's is owned by the caller.
func (b *builder) eval(e recipe.Expr, frame []value) []value {
	switch e.Kind {
	case recipe.Variable:
		return frame[e.Slot : e.Slot+1]
	case recipe.Number:
		return []value{numberOf(e.Number)}
	case recipe.Word:
		return []value{{word: e.Word, kind: wordValue}}
	}
	args := make([]value, len(e.Args))
	for i, a := range e.Args {
		switch {
		case a.Kind == recipe.Keyword:
			args[i] = b.eval(a.Args[0], frame)[0]
			args[i].key = a.Word
		case a.Kind == recipe.Call && a.Word == "save": // a mark, not a call
			args[i] = b.eval(a.Args[0], frame)[0]
			args[i].save = true
		default:
			args[i] = b.eval(a, frame)[0]
		}
	}
	var out []value
	if prim, ok := primitives[e.Word]; ok {
		out = prim(b, args)
	} else {
		out = b.call(e.Word, args...)
	}
	for i, a := range e.Args {
		if a.Kind == recipe.Call && a.Word != "save" {
			b.drop(args[i])
		}
	}
	return out
}
