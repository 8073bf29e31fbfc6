package hardware

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
)

func TestLoadAll(t *testing.T) {
	for _, n := range Names() {
		if _, err := Load(n); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
}

// Every law that is embedded passes the check of a user's.
func TestLawsPassTheirCheck(t *testing.T) {
	for _, n := range Names() {
		p, err := Load(n)
		require.NoError(t, err)
		require.NoError(t, p.Laws.check(), n)
	}
}

// A law that cannot be evaluated is refused by its key, value, rule and remedy.
func TestBadLaws(t *testing.T) {
	for _, c := range []struct{ measured, want string }{
		{"launch: {host: -1}", "measured.launch.host: -1; give a speed of 0.01 to 100 over that of the recipes' host costs"},
		{"launch: {host_spread: 1.5}", "measured.launch.host_spread: 1.5; give the relative standard deviation"},
		{"launch: {host: 0.36, python: 1000}", "measured.launch.python: 1000; give a speed"},
		{"power: {class: {gemm: {full: 700 W, zeros: 1.5}}}", "measured.power.class.gemm.zeros: 1.5; give the share of others' power"},
		{"attention: {forward: {rate: [0.3]}}", "measured.attention.widths: []; give the head widths"},
		{"attention: {widths: [128, 64], forward: {rate: [1, 1]}}", "measured.attention.widths: [128 64]; give the head widths"},
		{"attention: {widths: [64, 128], forward: {rate: [0.3]}}", "measured.attention.forward.rate: 1 values for 2 widths"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [-0.2]}}", "measured.attention.backward.rate: [-0.2]; the values must be above 0"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: {forward: {rate: [0.1, 0.2]}}}}", "measured.attention.flavour.flash.forward.rate: 2 values for 1 widths"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: {backward: {masked: [2]}}}}", `unknown key "masked"`},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2], window: -1}}", "measured.attention.backward.window: -1; it must not be below 0"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: [0.6, 0.6]}}", "flash: expected a mapping"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: {forward: {dropout: -1}}}}", "measured.attention.flavour.flash.forward.dropout: -1; it must be above 0"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, added: {memory: 1, exponent: 0}}", "gemm.added: memory 1, exponent 0; the first must be above 0, the second 1 or more"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, scaled: {mxfp8: 0}}", "gemm.scaled.mxfp8: 0; it must be above 0"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, scaled_wgrad: {fp8-block: 0.7}}", "gemm.scaled_wgrad.fp8-block: 0.7, but gemm.scaled has no fp8-block; give it there, too"},
		{"kernels: {col-reduce: {bytes: [1 MB], time: [1 us], parts: {rows: -3, time: 5 ns}}}", "measured.kernels.col-reduce.parts: rows -3, columns 0, per_sm 0; each must be above 0"},
	} {
		doc, err := yamlx.Parse("m.yaml", []byte("perfplan: hardware/v1\ninherits: h100-sxm\nmeasured:\n  "+c.measured+"\n"))
		require.NoError(t, err)
		_, err = FromDocument(doc, doc.Root, "m")
		require.ErrorContains(t, err, c.want, c.measured)
	}
}

func TestByDevice(t *testing.T) {
	p, ok := ByDevice("NVIDIA H200")
	if !ok || p.Name != "h200-sxm" {
		t.Errorf("NVIDIA H200 is h200-sxm, not %v", p)
	}
	for _, name := range []string{"", "NVIDIA H300"} {
		if _, ok := ByDevice(name); ok {
			t.Errorf("there is no %q", name)
		}
	}
}
