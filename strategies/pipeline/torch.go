package pipeline

import "slices"

// What torch.distributed.pipelining sends and waits for (torch 2.11,
// distributed/pipelining/schedules.py).

// Listed reports whether PyTorch runs the schedule from lists of actions, by
// _PipelineScheduleRuntime, and not in a loop of its own.
func (i *Info) Listed() bool { return i.torch == nil }

// torchGPipe is ScheduleGPipe: a pass waits for the receive posted just before it;
// sends are waited for after the last forward and after the last backward, but
// hold up the receives behind them.
func torchGPipe(p *program) {
	sent := int32(-1)
	for i, a := range p.actions {
		if a.Kind != Forward {
			p.wait(sent)
		}
		p.exchange(p.in(i))
		p.pass(i)
		sent = max(sent, p.post(p.out(i)))
	}
}

// torchOneFOneB is Schedule1F1B: the sends of the warm-up, which is one forward
// longer than Megatron's, and of the cool-down run beside the next pass; from the
// last forward of the warm-up on, a send is posted in one call with the receive
// that the next pass waits for.
func torchOneFOneB(p *program) {
	f, b := p.split()
	warm := min(p.pl.Ranks-p.rank, len(f))
	left := len(f) - warm
	sent := int32(-1)
	for k, i := range f[:warm] {
		p.exchange(p.in(i))
		p.pass(i)
		p.wait(sent)
		if k < warm-1 {
			sent = p.post(p.out(i))
		}
	}
	for k := range left + 1 {
		p.exchange(p.out(f[warm-1+k]), p.in(b[k]))
		p.pass(b[k])
		if k < left {
			p.exchange(p.out(b[k]), p.in(f[warm+k]))
			p.pass(f[warm+k])
		}
	}
	sent = p.post(p.out(b[left]))
	for _, i := range b[left+1:] {
		p.exchange(p.in(i))
		p.pass(i)
		p.wait(sent)
		sent = p.post(p.out(i))
	}
}

// torchRuntime writes what _PipelineScheduleRuntime runs. A send follows the pass
// that produced it, alone, and a pass waits only for the receive of its own input.
//
// Where a receive stands is up to the sender (_add_send_recv): the lists are read
// in rounds, one entry per rank in the order of ranks; an entry whose input nobody
// has announced is tried again in the next round; when a pass with an output is
// read, its receive is appended to what the other rank has so far. So a receive
// stands behind what its rank was ready to do by then, often long before the other
// side can serve it.
func torchRuntime(ps []program) []program {
	posted := make([]int32, 2*ps[0].pl.Stages()*ps[0].m) // by message: 1 + the call that receives it
	entries, at := make([][]int32, len(ps)), make([]int, len(ps))
	for r := range ps {
		entries[r] = ps[r].torchEntries()
	}
	for moved := true; moved; {
		moved = false
		for r := range ps {
			if at[r] < len(entries[r]) && ps[r].torchEntry(int(entries[r][at[r]]), ps, posted) {
				at[r]++
				moved = true
			}
		}
	}
	return ps
}

// torchEntry reads one entry and reports whether it could go on.
func (p *program) torchEntry(i int, ps []program, posted []int32) bool {
	if i < 0 {
		return true
	}
	next := i + 1
	if p.actions[i].Overlap {
		next++
	}
	for k := i; k < next; k++ {
		if m := p.in(k); m != none && posted[m] == 0 {
			return false
		}
	}
	for k := i; k < next; k++ {
		if m := p.in(k); m != none {
			p.wait(posted[m] - 1)
		}
	}
	p.pass(i)
	for k := i; k < next; k++ {
		if m := p.out(k); m != none {
			p.post(m)
			posted[m] = 1 + ps[p.receiver(m)].post(m)
		}
	}
	return true
}

// torchEntries returns the entries that torchRuntime reads: the places of the
// actions, a pair as one, and -1 for each of those that compute no pass. Before an
// action, stages that are not among the next three to be used are resharded, and
// those of the three that are not there are unsharded (_add_unshard_reshard, FSDP
// or not); after the last backward of a stage its gradients are scaled
// (_add_reduce_grad).
func (p *program) torchEntries() []int32 {
	const ahead = 3
	n, v := len(p.actions), p.pl.Chunks
	var (
		soon  = make([][ahead]int32, n) // the next chunks used from here on; -1: fewer are left
		order []int32                   // the same, all of them
		done  = make([]bool, v)         // the last backward has been seen
		last  = make([]bool, n)         // this is it
	)
	for i := n - 1; i >= 0; i-- {
		a := p.actions[i]
		at := slices.Index(order, a.Chunk)
		if at < 0 {
			at = len(order)
			order = append(order, 0)
		}
		copy(order[1:at+1], order[:at])
		order[0] = a.Chunk
		soon[i] = [ahead]int32{-1, -1, -1}
		copy(soon[i][:], order)
		if a.Kind == Backward || a.Kind == BackwardWeight {
			last[i] = !done[a.Chunk]
			done[a.Chunk] = true
		}
	}
	entries := make([]int32, 0, n+4*v)
	active := make([]bool, v)
	for i := 0; i < n; i++ {
		for c, on := range active {
			if on != slices.Contains(soon[i][:], int32(c)) {
				active[c] = !on
				entries = append(entries, -1)
			}
		}
		entries = append(entries, int32(i))
		pair := p.actions[i].Overlap
		if last[i] || pair && last[i+1] {
			entries = append(entries, -1)
		}
		if pair {
			i++
		}
	}
	return entries
}

// torchInStep writes what PipelineScheduleMulti of torch 2.8 runs: in each time step a rank
// runs its pass, and then sends and receives in one call what it and its neighbours have
// made in this step, for which it waits (_step_microbatches).
func torchInStep(ps []program) []program {
	steps, last := make([][]int32, len(ps)), 0
	for r := range ps {
		steps[r] = ps[r].pl.inStep(&ps[r])
		last = max(last, len(steps[r]))
	}
	moved := make([][]message, len(ps)) // by rank: what the step sends and receives
	for t := range last {
		for r := range ps {
			p := &ps[r]
			if t >= len(steps[r]) || steps[r][t] < 0 {
				continue
			}
			a := int(steps[r][t])
			p.pass(a)
			if m := p.out(a); m != none {
				to := p.receiver(m)
				moved[r], moved[to] = append(moved[r], m), append(moved[to], m)
			}
		}
		for r := range ps {
			ps[r].exchange(moved[r]...)
			moved[r] = moved[r][:0]
		}
	}
	return ps
}
