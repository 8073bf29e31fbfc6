package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnitsRefuse: what units a plan may have.
func TestUnitsRefuse(t *testing.T) {
	const text = "{model: llama3-8b, gpus: 8, runtime: {recipe: %s}, plan: {%s}, train: {%s}}"
	for _, c := range []struct{ recipe, plan, train, want string }{
		{"hf-eager", "data_parallel: fsdp1, units: model", "", ""},
		{"hf-eager", "data_parallel: fsdp2, units: modules", "", ""},
		{"hf-eager", "data_parallel: fsdp1, units: size, unit_params: 50M", "", ""},
		{"hf-eager", "data_parallel: fsdp1, units: layers", "precision: bf16-frozen, lora: {rank: 8}", ""},
		{"hf-eager", "data_parallel: fsdp1, unit_params: 1e6", "", ""},
		{"hf-eager", "data_parallel: fsdp1, units: all", "", `"all" is not what units are made of; use layers, modules, size, model`},
		{"hf-eager", "data_parallel: fsdp1, unit_params: 0", "", "is not a usable count"},
		{"hf-eager", "data_parallel: ddp, units: layers", "", "plan.units: only PyTorch's FSDP has units, not ddp under recipe hf-eager"},
		{"megatron-core", "data_parallel: fsdp1, unit_params: 1M", "", "plan.unit_params: only PyTorch's FSDP has units, not fsdp1 under recipe megatron-core"},
		{"hf-eager", "data_parallel: fsdp1, units: model, unit_params: 1M", "", "plan.unit_params: units of model do not go by size"},
		{"hf-eager", "data_parallel: fsdp2, units: size", "", "plan.units: size is a policy of FSDP1"},
		{"hf-eager", "data_parallel: fsdp1, units: model", "precision: bf16-frozen, lora: {rank: 8}", "plan.units: units other than layers are not known of adapters"},
		{"torchtitan", "data_parallel: fsdp2, units: model, pp: 2", "", "plan.units: units other than layers are not known of pipelines"},
		{"hf-eager", "data_parallel: fsdp2, units: model, offload: parameters", "", "plan.units: units other than layers are not known of pipelines"},
	} {
		refuses(t, fmt.Sprintf(text, c.recipe, c.plan, c.train), c.want)
	}
	require.Equal(t, UnitPolicy{SizeUnits, 100e6}, (&Plan{Units: SizeUnits}).UnitPolicy(), "size_based_auto_wrap_policy's own")
	for units, want := range map[string]string{"units: layers": "dp 8, fsdp1", "units: model": "dp 8, fsdp1 in one unit", "units: modules": "dp 8, fsdp1 by modules", "units: size": "dp 8, fsdp1 by units of 100M parameters", "unit_params: 2.5M": "dp 8, fsdp1 by layers and matrices of 2.5M parameters"} {
		p := mustDecode(t, "{model: gpt2, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp1, "+units+"}}").Plan
		require.Equal(t, want, p.String())
	}
}
