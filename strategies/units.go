package strategies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
)

// Units is what PyTorch's FSDP makes units of, each of which is gathered and reduced as a whole.
type Units string

const (
	LayerUnits  Units = "layers"  // each layer; the rest is the root
	ModuleUnits Units = "modules" // attention and MLP of each layer; norms are of the root
	SizeUnits   Units = "size"    // what has many parameters (torch/distributed/fsdp/wrap.py, size_based_auto_wrap_policy)
	ModelUnit   Units = "model"   // all is one, without a policy
)

var unitKinds = []string{string(LayerUnits), string(ModuleUnits), string(SizeUnits), string(ModelUnit)}

// UnmarshalText accepts one of the kinds.
func (u *Units) UnmarshalText(b []byte) error {
	if slices.Contains(unitKinds, string(b)) {
		*u = Units(b)
		return nil
	}
	return fmt.Errorf("%q is not what units are made of; use %s", b, strings.Join(unitKinds, ", "))
}

// UnitParams is a number of parameters, written as in 100M.
type UnitParams int64

// UnmarshalText reads a count.
func (n *UnitParams) UnmarshalText(b []byte) error {
	v, err := units.ParseCount(string(b))
	*n = UnitParams(v)
	return err
}

// defaultUnitParams is size_based_auto_wrap_policy's min_num_params.
const defaultUnitParams UnitParams = 100e6

// UnitPolicy is what becomes a unit.
type UnitPolicy struct {
	Units Units
	Least int64 // parameters of a module that is one by its size; 0: none is
}

// UnitPolicy is the policy of a plan.
func (p *Plan) UnitPolicy() UnitPolicy {
	u := UnitPolicy{p.Units, int64(p.UnitParams)}
	if p.Units == SizeUnits && p.UnitParams == 0 {
		u.Least = int64(defaultUnitParams)
	}
	return u
}

// Nests reports whether units are other than layers and what is around them.
func (u UnitPolicy) Nests() bool { return u.Units != "" && u.Units != LayerUnits || u.Least > 0 }

// text is what a short form of a plan says of a policy; "" of layers alone.
func (u UnitPolicy) text() string {
	switch {
	case u.Units == ModelUnit:
		return " in one unit"
	case u.Units == ModuleUnits:
		return " by modules"
	case u.Least > 0 && u.Units == SizeUnits:
		return fmt.Sprintf(" by units of %gM parameters", float64(u.Least)/1e6)
	case u.Least > 0:
		return fmt.Sprintf(" by layers and matrices of %gM parameters", float64(u.Least)/1e6)
	}
	return ""
}

// checkUnits returns the first rule that the units of a plan break.
func (p *Plan) checkUnits(s Shape) error {
	r := s.Recipe
	key := "plan.units"
	if p.Units == "" {
		key = "plan.unit_params"
	}
	switch {
	case p.Units == "" && p.UnitParams == 0:
	case !p.DataParallel.FSDP() || r.Structure.MainGradients:
		return diag.Errorf("%s: only PyTorch's FSDP has units, not %s under recipe %s; leave it out, or use fsdp1 or fsdp2", key, p.DataParallel, r.Name)
	case !p.UnitPolicy().Nests():
	case p.UnitParams > 0 && (p.Units == ModelUnit || p.Units == ModuleUnits):
		return diag.Errorf("plan.unit_params: units of %s do not go by size; leave it out, or use units: size or layers", p.Units)
	case p.Units == SizeUnits && p.DataParallel != FSDP1:
		return diag.Errorf("plan.units: size is a policy of FSDP1; use fsdp1, or units: model or layers")
	case s.Model.LoRA != nil:
		return diag.Errorf("%s: units other than layers are not known of adapters; leave it out, or train.lora", key)
	case p.PP > 1 || p.EP > 1 || p.OffloadsParameters():
		return diag.Errorf("%s: units other than layers are not known of pipelines, of experts over ranks and of parameters on the host; leave it out, or pp, ep and offload", key)
	}
	return nil
}
