package pipeline

// What Megatron-LM sends when it does not overlap pipeline communication, by
// schedule: megatron/core/pipeline_parallel/schedules.py. Every call is waited
// for before anything else runs (p2p_communication.py waits for the requests and
// synchronizes the device).

// blockingOneByOne receives, computes and sends, one after the other.
func blockingOneByOne(p *program) {
	for i := range p.actions {
		p.exchange(p.in(i))
		p.pass(i)
		p.exchange(p.out(i))
	}
}

// blockingOneFOneB is forward_backward_pipelining_without_interleaving: warm-up
// and cool-down receive, compute and send; in between, each rank sends one way and
// receives from the same neighbour in one call (send_forward_recv_backward,
// send_backward_recv_forward).
func blockingOneFOneB(p *program) {
	f, b := p.split()
	warm := min(p.pl.Ranks-1-p.rank, len(f))
	left := len(f) - warm
	for _, i := range f[:warm] {
		p.exchange(p.in(i))
		p.pass(i)
		p.exchange(p.out(i))
	}
	p.exchange(p.inOf(f, warm))
	for k := range left {
		p.pass(f[warm+k])
		p.exchange(p.out(f[warm+k]), p.in(b[k]))
		p.pass(b[k])
		p.exchange(p.out(b[k]), p.inOf(f, warm+k+1))
	}
	for _, i := range b[left:] {
		p.exchange(p.in(i))
		p.pass(i)
		p.exchange(p.out(i))
	}
}

// blockingInterleaved is forward_backward_pipelining_with_interleaving without
// overlap. A rank receives the input of its next pass in the call that sends the
// output of its last: send_forward_recv_forward in the warm-up, of which the last
// also receives the first gradient; one call for both directions after each
// forward and backward (send_forward_backward_recv_forward_backward);
// send_backward_recv_backward in the cool-down.
func blockingInterleaved(p *program) {
	if p.pl.Chunks == 1 {
		blockingOneFOneB(p)
		return
	}
	f, b := p.split()
	total := len(f)
	warm := min(2*(p.pl.Ranks-1-p.rank)+(p.pl.Chunks-1)*p.pl.Ranks, total)
	left := total - warm
	p.exchange(p.inOf(f, 0))
	for k := range warm {
		p.pass(f[k])
		first := none
		if k == warm-1 && left > 0 {
			first = p.in(b[0])
		}
		p.exchange(p.out(f[k]), p.inOf(f, k+1), first)
	}
	for k := range left {
		p.pass(f[warm+k])
		p.pass(b[k])
		p.exchange(p.out(f[warm+k]), p.out(b[k]), p.inOf(f, warm+k+1), p.inOf(b, k+1))
	}
	if left == 0 {
		p.exchange(p.inOf(b, 0))
	}
	for k := left; k < total; k++ {
		p.pass(b[k])
		p.exchange(p.out(b[k]), p.inOf(b, k+1))
	}
}
