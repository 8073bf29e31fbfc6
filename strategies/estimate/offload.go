package estimate

import (
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// toDevice is the time in which so many bytes come from page-locked memory of the host.
func (p *pricer) toDevice(b units.Bytes) units.Seconds {
	return p.hostCopy(b, "h2d", p.hardware.Laws.Offload.ToDevice)
}

// toHost is the time in which so many bytes go into page-locked memory of the host.
func (p *pricer) toHost(b units.Bytes) units.Seconds {
	return p.hostCopy(b, "d2h", p.hardware.Laws.Offload.ToHost)
}

// hostCopy is the time of a copy at a share of what the link carries, or at the rate that
// was measured on this machine.
func (p *pricer) hostCopy(b units.Bytes, direction string, share float64) units.Seconds {
	rate := float64(p.hardware.GPU.PCIe.Value) * share
	if measured, ok := p.hardware.Laws.CopyRate(direction, true); ok {
		rate = float64(measured)
	}
	return units.Seconds(float64(b)/rate) * p.own
}

// hostUpdate runs the update of what the host has of the rank's parameters, all of whose ranks
// share the memory of its CPUs, while the device waits, or updates the rest. Copies of what
// lives elsewhere come before and after, or beside it, and share that memory, too.
func (s *step) hostUpdate(u *update) {
	p, how, plan := s.p, &s.job.Recipe.Offload, &s.job.Plan
	away, beside := plan.OffloadsParameters(), plan.OverlapsOffload()
	here, there := *u, *u
	there.local *= plan.OnHost()
	here.local -= there.local
	values, traffic := units.Bytes(there.local), s.traffic(u)
	if !away && !how.Reduced {
		s.readyGradients(u)
		if beside {
			traffic += u.gradient + units.Bytes(how.Back)
		} else {
			s.sim.Wait(s.sim.Copy(hostStream, "gradients to host", float64(p.toHost(values*u.gradient)), s.sim.Issued()))
		}
	}
	seg := timeline.Segment{Host: p.hostUpdate(&there, traffic) + s.updateHost(u)*p.python, Sync: true}
	if here.local > 0 {
		rest := s.updateKernel(&here)
		seg.Busy, seg.Loaded = rest.Busy, rest.Loaded
	}
	seg.Lag = max(seg.Host, seg.Busy)
	s.sim.WaitHost()
	before := s.sim.Now + float64(seg.Busy)
	s.sim.Run(&seg)
	s.hosted += max(s.sim.Now-before, 0)
	if !away && !beside {
		back := p.toDevice(values * units.Bytes(how.Back))
		if slices.Contains(how.Recast, string(plan.DataParallel)) {
			back = units.Seconds(float64(values*units.Bytes(how.Back))/float64(p.hardware.Laws.Offload.Recast)) * p.own
		}
		s.sim.Wait(s.sim.Copy(hostStream, "weights from host", float64(back), s.sim.Now))
	}
	if here.local > 0 {
		s.copyWeights(&here)
	}
}

// hostUpdate is the time in which all ranks of a node update what they have, of which an
// update reads and writes so many bytes of each parameter.
func (p *pricer) hostUpdate(u *update, traffic units.Bytes) units.Seconds {
	law := p.hardware.Laws.Offload
	threads, ranks := p.job.HostThreads()
	values := u.local * float64(ranks)
	work := values * max(u.OnHost.Work, 1) / (float64(threads) * law.Update)
	moved := values * (float64(traffic) + u.OnHost.Traffic) / (law.Memory * float64(p.hardware.Node.HostRate.Value))
	return units.Seconds(work+moved) * p.own
}

// leave takes what the host has from a rank's footprint.
func (p *pricer) leave(f *footprint) {
	plan := &p.job.Plan
	for k := range f.optimizer {
		f.optimizer[k] *= units.Bytes(1 - plan.OnHost())
	}
	if plan.OffloadsParameters() {
		f.weights, f.gradients = [2]units.Bytes{}, [2]units.Bytes{}
	}
}

// addOnHost is how long the host is busy with gradients that it adds to those of earlier
// micro batches: it waits for them, and what it waits for goes to memory that is new and
// not page-locked, for whose pages the kernel takes its time (_fsdp_collectives.py, foreach_reduce: to_accumulate_grad).
func (p *pricer) addOnHost(b units.Bytes) units.Seconds {
	law := p.hardware.Laws.Offload
	_, ranks := p.job.HostThreads()
	added := float64(3*b) * float64(ranks) / (law.Memory * float64(p.hardware.Node.HostRate.Value))
	return units.Seconds(float64(b)/float64(law.Fresh))*p.speed + units.Seconds(added)*p.own
}

// hostNote says how many threads an update is taken to have, where more would be faster.
func (p *pricer) hostNote(r *Result) (diag.Note, bool) {
	j := p.job
	threads, ranks := j.HostThreads()
	most := j.Hardware.Node.Cores.Value / ranks
	if r.Parts.Update <= 0 || j.Runtime.CPUThreads > 0 || threads/ranks >= most {
		return diag.Note{}, false
	}
	return diag.Note{Code: "offload.threads", Text: fmt.Sprintf("the host updates parameters with %d thread for each rank: torchrun sets OMP_NUM_THREADS=%d where ranks share a node", threads/ranks, threads/ranks),
		Remedy: fmt.Sprintf("set OMP_NUM_THREADS to up to %d, and runtime.cpu_threads to what it is", most)}, true
}
