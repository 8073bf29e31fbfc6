package strategies

import (
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
)

// rotaries are how training files of one's own turn heads.
var rotaries = []string{"halves", "interleaved", "complex"}

// setOwnFile takes over in what training files of one's own differ: how they turn heads, by tables of
// which dtype, and whether query heads share keys. FlashAttention's package takes shared ones
// (flash_attn_interface.py, flash_attn_func).
func (j *Job) setOwnFile() error {
	r, own := &j.Runtime, *j.Recipe
	const turns = "turns queries and keys in one way"
	for _, x := range []struct {
		key   string
		given bool
		ways  string // that of other recipes
	}{{"rotary", r.Rotary != "", turns}, {"cast_rotary", r.CastRotary != nil, turns}, {"enable_gqa", r.EnableGQA != nil, "hands keys to attention in one way"}} {
		switch {
		case !x.given:
		case !own.Structure.OwnFile:
			return diag.Errorf("runtime.%s: recipe %s %s; leave it out, or use %s", x.key, own.Name, x.ways, diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return r.Structure.OwnFile })))
		case x.ways == turns && j.Model.Position != model.Rotary:
			return diag.Errorf("runtime.%s: %s has no rotary positions; leave it out", x.key, j.ModelName)
		}
	}
	if !own.Structure.OwnFile {
		return nil
	}
	if err := j.checkOwnFile(); err != nil {
		return err
	}
	for _, of := range []**recipe.Recipe{&j.Recipe, &j.Layers} {
		if *of == nil {
			continue
		}
		own := **of
		*of = &own
		own.Structure.Rotary = r.Rotary
		if r.CastRotary != nil {
			own.Structure.HeadTables = *r.CastRotary
		}
		if shares := r.EnableGQA; shares != nil || strings.HasPrefix(r.Attention, "flash-attn") {
			on := shares == nil || *shares
			own.Structure.SharesHeads, own.Structure.RepeatHeads = on, !on
		}
	}
	return nil
}

// checkOwnFile refuses what such a file cannot do.
func (j *Job) checkOwnFile() error {
	r, s := &j.Runtime, j.Model
	switch {
	case r.CastRotary != nil && (j.Recipe.Structure.Compiled || j.Layers != nil):
		return diag.Errorf("runtime.cast_rotary: a compiler casts tables in the kernels that read them; leave it out")
	case isOn(r.CastRotary) && r.Rotary != "" && r.Rotary != rotaries[0]:
		return diag.Errorf("runtime.cast_rotary: true, but heads that are turned as %s are so in fp32; leave it out, or set runtime.rotary to %s", r.Rotary, rotaries[0])
	case r.EnableGQA != nil && s.KVHeads == s.Heads:
		return diag.Errorf("runtime.enable_gqa: %s has keys for each query head; leave it out", j.ModelName)
	case isOn(r.EnableGQA) && (r.Attention == "unfused" || r.Attention == "math"):
		return diag.Errorf("runtime.enable_gqa: true, but %s attention repeats keys that heads share; leave it out, or use sdpa", r.Attention)
	case r.Rotary != "":
		return oneOf("runtime.rotary", r.Rotary, rotaries)
	}
	return nil
}
