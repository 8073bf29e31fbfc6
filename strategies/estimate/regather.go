package estimate

import (
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
)

// regather is what parameters that each backward pass gathers again come from; the zero value:
// none does.
type regather struct {
	kind           strategies.DataParallel
	offload        strategies.Offload
	shards, expert collective.Group
}

// gathersAgain says whether a stage gathers its parameters for each backward pass, which the
// forward pass before it has dropped. They then stay until the next forward pass
// (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync, set_reshard_after_backward).
func (p *pricer) gathersAgain() regather {
	l := &p.job.Plan
	if !l.ReducesOnce() || !l.Reshard() || p.groups[dpGroup].Ranks <= 1 {
		return regather{}
	}
	return regather{l.DataParallel, l.Offload, p.groups[shardGroup], p.groups[expertShardGroup]}
}

func (r *regather) some() bool { return r.kind != "" }

// gatheringPass is a backward pass of a chunk beside which its parameters are gathered.
func (s *simulation) gatheringPass(c *chunk) units.Seconds {
	s.sim.Reset()
	s.step.begin(s.p, c, &s.sim)
	s.step.forwardPass(1)
	t := s.sim.Now
	s.step.backwardPass(1, false)
	return units.Seconds(s.sim.Now - t)
}
