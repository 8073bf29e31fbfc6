package hardware

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
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
		{"power: {class: {gemm: {full: 700 W, vector: -0.6}}}", "measured.power.class.gemm.vector: -0.6; give the share of others' power"},
		{"power: {class: {gemm: {full: 700 W, zeros: 1.5}}}", "measured.power.class.gemm.zeros: 1.5; give the share of others' power"},
		{"attention: {forward: {rate: [0.3]}}", "measured.attention.widths: []; give the head widths"},
		{"attention: {widths: [128, 64], forward: {rate: [1, 1]}}", "measured.attention.widths: [128 64]; give the head widths"},
		{"attention: {widths: [64, 128], forward: {rate: [0.3]}}", "measured.attention.forward.rate: 1 values for 2 widths"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [-0.2]}}", "measured.attention.backward.rate: [-0.2]; the values must be above 0"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: {forward: {rate: [0.1, 0.2]}}}}", "measured.attention.flavour.flash.forward.rate: 2 values for 1 widths"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: {backward: {setup: 2 us}}}}", `unknown key "setup"`},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {efficient: {backward: {rate: [0.1], block: [0], longest: [0.5]}}}}", "measured.attention.flavour.efficient.backward.block: needs rows above 0, given 0"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {efficient: {backward: {rate: [0.1], kept: [0.2]}}}}", "measured.attention.flavour.efficient.backward.kept: needs block, by which the flavour's sums are known; give it, or leave kept out"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2], window: -1}}", "measured.attention.backward.window: -1; it must not be below 0"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: [0.6, 0.6]}}", "flash: expected a mapping"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: {forward: {dropout: [-1]}}}}", "flavour.flash.forward.dropout: [-1]; the values must be above 0"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: {forward: {dropout: much}}}}", `dropout: expected a number, found "much"`},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: {forward: {dropout: -1}}}}", "flavour.flash.forward.dropout: [-1]; the values must be above 0"},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, flavour: {flash: {forward: {dropout: [1.1, 1.2]}}}}", "flavour.flash.forward.dropout: 2 values for 1 widths; give one for each of [64]"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, added: {memory: 1, exponent: 0}}", "gemm.added: memory 1, exponent 0; the first must be above 0, the second 1 or more"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, scaled: {mxfp8: 0}}", "gemm.scaled.mxfp8: 0; it must be above 0"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, scaled_wgrad: {fp8-block: 0.7}}", "gemm.scaled_wgrad.fp8-block: 0.7, but gemm.scaled has no fp8-block; give it there, too"},
		{"gemm: {tiles: [256], rate: {bf16: 0.8}, memory: 1, exponent: 2}", `measured.gemm.tiles: "256"; write rows x columns, as in 256x128`},
		{"attention: {widths: [64], forward: {rate: [0.3]}, backward: {rate: [0.2]}, releases: [{before: '24.10', forward: [0.2], backward: []}]}", "measured.attention.releases[0].backward: 0 values for 1 widths"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, vector: {tiles: [], edge: 0.2}}", "gemm.vector: tiles [], edge 0.2, small_tile 0; it needs tiles, and the others must not be below 0"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, vector: {tiles: [64x0]}}", `gemm.vector.tiles: "64x0"; write rows x columns, as in 256x128`},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, tf32: {tiles: [128x128], rate: [1, 1], k_overhead: [0, 0, 0], memory: 1, exponent: 2}}", "gemm.tf32: tiles [128x128], rate [1 1], k_overhead [0 0 0], small_tile 0, memory 1, exponent 2; it needs tiles, rates and overheads of three layouts"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, tf32: {tiles: [128x128], rate: [1, 1, 0], k_overhead: [0, 0, 0], memory: 1, exponent: 2}}", "gemm.tf32: rate 0, k_overhead 0; the first must be above 0, the second not below"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, tf32: {tiles: [128x128], rate: [1, 1, 1], k_overhead: [0, 0, 0], memory: 1, exponent: 2, shared: -1}}", "gemm.tf32: shared -1, residual 0; give K elements and a share, 0 or more"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, tf32: {tiles: [128x128], rate: [1, 1, 1], k_overhead: [0, 0, 0], memory: 1, exponent: 2, unaligned: [1, 2, 1]}}", "gemm.tf32.unaligned: [1 2 1]; give a share from 0 to 1 for each of three layouts, or leave it out"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, tf32: {tiles: [128], rate: [1, 1, 1], k_overhead: [0, 0, 0], memory: 1, exponent: 2}}", `gemm.tf32.tiles: "128"; write rows x columns, as in 256x128`},
		{"sgemm: {tiles: [128x128], memory: 0, exponent: 2}", "it needs tiles, a memory above 0, an exponent of 1 or more"},
		{"sgemm: {tiles: [128], memory: 1, exponent: 2}", `sgemm.tiles: "128"; write rows x columns, as in 256x128`},
		{"gemm: {tiles: [128x128], points: '1 2 3'}", "m.yaml:4:36: points: line 1 of the table has 3 values; it needs 6"},
		{"gemm: {tiles: [128x128], points: '1 2 3 4 x 6'}", `m.yaml:4:36: points: line 1 of the table: "x" is no number from 0 on; give one, or - for none`},
		{"gemm: {tiles: [128x128], memory: 1, exponent: 2}", "measured.gemm: tiles [128x128], rate map[], exponent 2; a law of its own needs these"},
		{"gemm: {rate: {bf16: 0.8}, exponent: 2}", "measured.gemm: tiles [], rate map[bf16:0.8], exponent 2; a law of its own needs these"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1}", "exponent 0; a law of its own needs these"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, unaligned: {4: [1, 1, 1], 2: [1, 1, 1], 1: [0.3, 0.3, 0.3]}}", "measured.gemm.unaligned.1: an alignment is 2, 4 or 8 bytes; give it twice the elements"},
		{"gemm: {tiles: [128x128], rate: {bf16: 0.8}, memory: 1, exponent: 2, unaligned_batched: {16: 0.3}}", "measured.gemm.unaligned_batched.16: an alignment is 2, 4 or 8 bytes"},
		{"kernels: {index: {element: 3 ps, limit: isue}}", `measured.kernels.index.limit: "isue" is not known; known: memory, issue, both, either, longer, chain, partials`},
		{"kernels: {col-reduce: {bytes: [1 MB], time: [1 us], parts: {rows: -3, time: 5 ns}}}", "measured.kernels.col-reduce.parts: rows -3, columns 0, per_sm 0; each must be above 0"},
	} {
		doc, err := yamlx.Parse("m.yaml", []byte("perfplan: hardware/v1\ninherits: h100-sxm\nmeasured:\n  "+c.measured+"\n"))
		require.NoError(t, err)
		_, err = FromDocument(doc, doc.Root, "m")
		require.ErrorContains(t, err, c.want, c.measured)
	}
}

// A fact that no machine has is refused at its key, with value, rule and remedy.
func TestBadFacts(t *testing.T) {
	for _, c := range []struct{ facts, want string }{
		{"perfplan: job/v1", `m.yaml:2:1: perfplan: "job/v1" is not a hardware file; expected hardware/v1`},
		{"gpu: {sms: 0}", "m.yaml:2:12: gpu.sms: 0; a GPU has 1 to 1024 streaming multiprocessors (or inherit them)"},
		{"gpu: {sms: {value: 132, kind: guessed}}", `m.yaml:2:31: kind: "guessed" is not a kind of datum; use datasheet, measured, fitted or assumed`},
		{"gpu: {bandwidth: 0 B/s}", "m.yaml:2:18: gpu.bandwidth: 0 B/s; give the memory bandwidth, as in 3.35 TB/s (or inherit it)"},
		{"gpu: {memory: 0 B}", "m.yaml:2:15: gpu.memory: give the memory, as in 80 GiB (or inherit it)"},
		{"node: {cores: -4}", "m.yaml:2:15: node.cores: -4; give the cores of its CPUs, 1 or more"},
		{"network: {nics: -1}", "m.yaml:2:17: network.nics: -1; give those of a node, 0 or more"},
		{"network: {efficiency: 1.7}", "m.yaml:2:23: network.efficiency: 1.7; give the share of the wire rate that large messages reach, above 0, at most 1"},
		{"network: {efficiency: .nan}", `m.yaml:2:23: efficiency: expected a number, found ".nan"`},
		{"network: {oversubscription: 0.5}", "m.yaml:2:29: network.oversubscription: 0.5; give 1 for full bandwidth between leaf switches, 2 for half of it, at most 1000"},
		{"network: {latency_scale: 0}", "m.yaml:2:26: network.latency_scale: 0; give a factor above 0, at most 1000"},
		{"network: {transport: infinband}", `m.yaml:2:22: network.transport: "infinband", of which no law is known; give infiniband, roce, slingshot, omnipath, efa or ethernet, or leave it out`},
		{"node: {cpu: power9}", `m.yaml:2:13: node.cpu: "power9", of which no law is known; give intel, amd or arm, or leave it out`},
		{"gpu: {draw: -1}", "m.yaml:2:13: gpu.draw: -1; give its power"},
		{"price: {gpu_hour: -3}", "m.yaml:2:19: price.gpu_hour: -3; give US dollars above 0, at most 1,000,000, or leave it out where no price is known"},
		{"price: {gpu_hour: {value: 0, kind: assumed}}", "price.gpu_hour: 0; give US dollars above 0, at most 1,000,000"},
		{"node: {gpus: 4097}", "m.yaml:2:14: node.gpus: 4097; a node has 1 to 4096 GPUs (or inherit it)"},
		{"node: {nvlink_domain: 6}", "m.yaml:2:23: node.nvlink_domain: 6, in nodes of 8 GPUs; give a divisor or a multiple of these"},
		{"node: {nvlink_domain: -1}", "m.yaml:2:23: node.nvlink_domain: -1, in nodes of 8 GPUs; give a divisor or a multiple of these"},
		{"node: {mesh: [[0, 1], [1]]}", "node.mesh: row 1 has 1 numbers; give 2, one for each GPU"},
		{"node: {mesh: [[0, 1], [2, 0]]}", "node.mesh: 2 NVLinks from GPU 1 to GPU 0, 1 back; give the same both ways"},
		{"node: {mesh: [[1]]}", "node.mesh: 1 NVLinks from GPU 0 to GPU 0; give 0 to 64, 0 from a GPU to itself"},
		{"node: {gpus: 6, nvlink_domain: 8}", "m.yaml:2:32: node.nvlink_domain: 8, in nodes of 6 GPUs; give a divisor or a multiple of these"},
		{"gpu: {peak: {bf16: 0 FLOP/s, fp16: 0 FLOP/s}}", "m.yaml:2:13: gpu.peak: give the dense fp16 or bf16 rate, as in 989.4 TFLOP/s (or inherit it)"},
		{"gpu: {architecture: hoper}", `m.yaml:2:21: gpu.architecture: there are no laws for "hoper"; did you mean "hopper"?`},
		{"gpu: {architecture: gfx942}", `m.yaml:2:21: gpu.architecture: there are no laws for "gfx942"; known: ada, ampere`},
		{"measured: {launch: {host: -1}}", "m.yaml:2:27: measured.launch.host: -1; give a speed"},
	} {
		doc, err := yamlx.Parse("m.yaml", []byte("inherits: h100-sxm\n"+c.facts+"\n"))
		require.NoError(t, err)
		_, err = FromDocument(doc, doc.Root, "m")
		require.ErrorContains(t, err, c.want, c.facts)
		require.True(t, diag.IsInput(err), c.facts)
	}
}

// TestDomain: NVLink that ends at the node does so in a node of another size; one that spans
// nodes or parts of a node stays as it is, where that can be.
func TestDomain(t *testing.T) {
	read := func(base, node string) (*Profile, error) {
		doc, err := yamlx.Parse("m.yaml", []byte("inherits: "+base+"\nnode: "+node+"\n"))
		require.NoError(t, err)
		return FromDocument(doc, doc.Root, "m")
	}
	for _, c := range []struct {
		base, node string
		want       int64
	}{
		{"h100-sxm", "{gpus: 6}", 6},
		{"h100-sxm", "{gpus: 4}", 4},
		{"aws-p5", "{gpus: 4}", 4},
		{"h100-sxm", "{gpus: 4, nvlink_domain: 8}", 8},
		{"h100-sxm", "{gpus: 8, nvlink_domain: 2}", 2},
		{"h100-sxm", "{cpu: amd}", 8},
		{"gb200-nvl72", "{gpus: 8}", 72},
		{"h100-pcie", "{gpus: 4}", 2},
		{"l4", "{gpus: 5}", 1},
	} {
		p, err := read(c.base, c.node)
		require.NoError(t, err)
		require.Equal(t, c.want, p.Node.NVLinkDomain.Value, "%s with %s", c.base, c.node)
	}
	_, err := read("gb200-nvl72", "{gpus: 5}")
	require.ErrorContains(t, err, "m.yaml:2:14: node.gpus: 5, in NVLink domains of 72 GPUs; give a divisor or a multiple of these, or give node.nvlink_domain, too")
	_, err = read("h100-pcie", "{gpus: 5}")
	require.ErrorContains(t, err, "node.gpus: 5, in NVLink domains of 2 GPUs")
}

func TestByDevice(t *testing.T) {
	for device, want := range map[string]string{
		"NVIDIA H200": "h200-sxm", "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada", "NVIDIA RTX A5000": "rtx-a5000", "NVIDIA A30": "a30",
		"NVIDIA GeForce RTX 3080": "rtx-3080", "NVIDIA GeForce RTX 5080": "rtx-5080", "Quadro RTX 8000": "quadro-rtx-8000", "NVIDIA GeForce RTX 2080 Ti": "rtx-2080-ti",
		"NVIDIA GB10": "gb10", "NVIDIA RTX PRO 5000 Blackwell": "rtx-pro-5000-blackwell", "NVIDIA RTX PRO 4500 Blackwell": "rtx-pro-4500-blackwell",
	} {
		p, ok := ByDevice(device)
		if !ok || p.Name != want {
			t.Errorf("%s is %s, not %v", device, want, p)
		}
	}
	for _, name := range []string{"", "NVIDIA H300"} {
		if _, ok := ByDevice(name); ok {
			t.Errorf("there is no %q", name)
		}
	}
}

// TestWorkspaces: cuBLAS has a workspace of 32 MiB on compute capability 9.0 and of 8.125 on those before it, by
// each thread that multiplies: the one of the forward pass and autograd's (aten/src/ATen/cuda/CublasHandlePool.cpp,
// parseChosenWorkspaceSize).
func TestWorkspaces(t *testing.T) {
	for name, each := range map[string]units.Bytes{"h100-sxm": 32 * units.MiB, "a100-40g-sxm": 8320 * units.KiB, "l40s": 8320 * units.KiB, "v100-32g-sxm": 8320 * units.KiB, "t4": 8320 * units.KiB} {
		p, err := Load(name)
		require.NoError(t, err, name)
		require.Equal(t, 2*each, p.Laws.Memory.Workspace, name)
		require.Equal(t, 806*units.MB, p.Laws.Memory.Context, name)
		require.Positive(t, p.Laws.Memory.Communicator, name)
	}
}

// A factor of time may be a number for all head widths, as calibrations before 2026-11-30 wrote it, or one of each.
func TestFactors(t *testing.T) {
	read := func(dropout string) *AttentionLaw {
		path := filepath.Join(t.TempDir(), "mine.yaml")
		text := "perfplan: hardware/v1\ninherits: h200-sxm\nmeasured: {source: x, attention: {widths: [64, 128], forward: {rate: [0.3, 0.4]}, backward: {rate: [0.2, 0.3]}, flavour: {flash: {forward: {rate: [0.2, 0.3], dropout: " + dropout + "}}}}}\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		p, err := Load(path)
		require.NoError(t, err)
		return p.Laws.Attention
	}
	for _, c := range []struct {
		dropout            string
		narrow, half, wide float64
	}{{"1.2", 1.2, 1.2, 1.2}, {"[1.2]", 1.2, 1.2, 1.2}, {"[1.2, 1.4]", 1.2, 1.3, 1.4}} {
		law := read(c.dropout)
		for width, want := range map[float64]float64{32: c.narrow, 96: c.half, 256: c.wide} {
			require.InDelta(t, want, law.Dropped("flash", false, width), 1e-12, "%s at %v", c.dropout, width)
		}
	}
}
