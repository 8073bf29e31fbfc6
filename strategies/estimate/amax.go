package estimate

import (
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// Delayed scaling takes the scales of a pass from the largest values of those before. When the forward pass of a
// chunk leaves its autocast, and when its first module has its gradient, the ranks of a group agree on these values,
// and the device waits (Transformer Engine 1.6 to 2.4, pytorch/fp8.py, FP8GlobalStateManager.fp8_autocast_exit and
// reduce_and_update_fp8_tensors, and module/linear.py, reduce_and_update_bwd_fp8_tensors; Megatron-LM core_v0.4 to
// core_v0.12, transformer/transformer_block.py, one autocast around the layers of a chunk).

// amaxRanks are the ranks that do: one where nobody does.
func (p *pricer) amaxRanks(at strategies.Strides) collective.Group {
	l := &p.job.Plan
	switch ranks, how := l.TP*l.CP*l.DP, p.job.AmaxReduction(); {
	case how == strategies.AmaxNone:
		return p.fabric.Group(1, 1)
	case how == strategies.AmaxTensor:
		return p.fabric.Grid(l.TP, at.TP, l.CP, at.CP)
	case at.PP == ranks || l.PP == 1:
		return p.fabric.Group(ranks, 1)
	}
	return p.fabric.Grid(l.TP*l.CP, min(at.TP, at.CP), l.DP, at.DP)
}

// amaxBytes are the largest values of 85 products, three of each. Calls as short as the few thousand bytes
// of a chunk of many layers take the time that one of no bytes does.
const amaxBytes units.Bytes = 1 * units.KiB

// amax is the unit that does so for a chunk. Its kernels join all values before, and make scales of them after.
func (p *pricer) amax() *unit {
	section := func(phase tape.Phase) tape.Section {
		tiny := tape.Op{Prim: "amax", Class: tape.Vectorized, Elements: 1, Count: 1, Phase: phase, Host: tape.HostWork{Calls: 1}}
		reduce := tape.Op{Prim: "all-reduce", Class: tape.Collective, DType: tape.F32, Elements: 1, Count: 1, Phase: phase, Host: tape.HostWork{Calls: 1},
			Comm: &tape.Comm{Kind: "all-reduce", Group: amaxGroup.String(), Bytes: amaxBytes}}
		return tape.Section{Ops: []tape.Op{tiny, reduce, tiny}}
	}
	return p.unit(&ops.Unit{Name: "amax", Forward: section(tape.Forward), Backward: section(tape.Backward)})
}

// agree runs it in a pass of the step's chunk: after the units forward, and taken to be before them backward.
func (s *step) agree(pass string, of func(*unit) *section) {
	for _, u := range s.chunk.runs[len(s.list):] {
		s.label(u.Name, pass)
		s.runAll(of(u))
	}
}

func (u *unit) forwards() *section  { return &u.forward }
func (u *unit) backwards() *section { return &u.backward }
