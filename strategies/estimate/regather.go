package estimate

import (
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/pipeline"
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

// gatheringPass is how long the device takes for a backward pass of a chunk beside which its
// parameters are gathered, and how much more it waits for the host.
func (s *simulation) gatheringPass(c *chunk) (device, idle units.Seconds) {
	s.sim.Reset()
	s.step.begin(s.p, c, &s.sim)
	s.step.forwardPass(1)
	t, before := s.sim.Now, s.sim.Idle
	s.step.backwardPass(1, false)
	idle = units.Seconds(s.sim.Idle - before)
	return units.Seconds(s.sim.Now-t) - idle, idle
}

// gathering is how much longer a backward pass takes for its gathers than alone.
func (s *simulation) gathering(c *chunk, b *passTime, plan *pipeline.Plan) units.Seconds {
	pass, idle := s.gatheringPass(c)
	if !runsAhead(plan) { // else launches are counted apart
		pass += idle
	}
	return max(pass-b.alone(s.p, plan), 0)
}
