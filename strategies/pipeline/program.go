package pipeline

// program is what a rank runs: passes on its compute stream, and calls on its
// communication stream.
//
// A call is one batch of sends and receives (batch_isend_irecv), one kernel. It
// starts when the call before it has ended and the passes written before it have
// ended: a communicator's stream waits for the compute stream as it stands when
// the call is made (ProcessGroupNCCL), receives included. It ends one Times.Hop
// after it and the calls that hold the other sides of its messages have all
// started; both directions of a link carry data at once. A pass starts when the
// pass before it and the call it names have ended.
type program struct {
	pl       *Plan
	rank, m  int
	actions  []Action
	steps    []programStep
	messages []message // of all calls
	ends     []int32   // by call: where its messages end
	waiting  int32     // the call that the next pass waits for; -1: none
}

// programStep is one call or one pass.
type programStep struct {
	call   int32 // its number; -1 for a pass
	action int32 // of a pass: its place in the list; a pair starts there
	wait   int32 // of a pass: the call that it waits for; -1: none
}

// message is what a stage hands to its neighbour on another rank, numbered by
// direction, receiving stage and micro batch; none where nothing has to move.
type message = int32

const none message = -1

// in returns the message that an action waits for.
func (p *program) in(action int) message {
	a := p.actions[action]
	stage := p.pl.Stage(p.rank, int(a.Chunk))
	switch a.Kind {
	case Forward:
		if from, ok := p.pl.Before(stage); ok {
			return p.message(0, from, stage, a.MicroBatch)
		}
	case Backward, BackwardInput:
		if from, ok := p.pl.After(stage); ok {
			return p.message(1, from, stage, a.MicroBatch)
		}
	}
	return none
}

// out returns the message that an action produces.
func (p *program) out(action int) message {
	a := p.actions[action]
	stage := p.pl.Stage(p.rank, int(a.Chunk))
	switch a.Kind {
	case Forward:
		if to, ok := p.pl.After(stage); ok {
			return p.message(0, stage, to, a.MicroBatch)
		}
	case Backward, BackwardInput:
		if to, ok := p.pl.Before(stage); ok {
			return p.message(1, stage, to, a.MicroBatch)
		}
	}
	return none
}

func (p *program) message(direction, from, to int, mb int32) message {
	a, _ := p.pl.Where(from)
	b, _ := p.pl.Where(to)
	if a == b {
		return none
	}
	return message((direction*p.pl.Stages()+to)*p.m + int(mb))
}

// receiver returns the rank that a message goes to.
func (p *program) receiver(msg message) int {
	rank, _ := p.pl.Where(int(msg) / p.m % p.pl.Stages())
	return rank
}

// post appends a call with the messages there are and returns its number, or -1
// where there are none.
func (p *program) post(messages ...message) int32 {
	from := len(p.messages)
	for _, m := range messages {
		if m != none {
			p.messages = append(p.messages, m)
		}
	}
	if len(p.messages) == from {
		return -1
	}
	call := int32(len(p.ends))
	p.ends = append(p.ends, int32(len(p.messages)))
	p.steps = append(p.steps, programStep{call: call, action: -1, wait: -1})
	return call
}

// call returns the messages of a call.
func (p *program) call(n int32) []message {
	from := int32(0)
	if n > 0 {
		from = p.ends[n-1]
	}
	return p.messages[from:p.ends[n]]
}

// wait makes the next pass wait for a call; -1 asks for none. Calls of a rank end
// in order, so the latest is enough.
func (p *program) wait(call int32) { p.waiting = max(p.waiting, call) }

// exchange posts a call and waits for it.
func (p *program) exchange(messages ...message) { p.wait(p.post(messages...)) }

// pass appends the pass of an action; that of the first of a pair stands for
// both.
func (p *program) pass(action int) {
	p.steps = append(p.steps, programStep{call: -1, action: int32(action), wait: p.waiting})
	p.waiting = -1
}

// split returns the places of the forwards and of the backwards in the list.
func (p *program) split() (forwards, backwards []int) {
	n := len(p.actions) / 2
	forwards, backwards = make([]int, 0, n), make([]int, 0, n)
	for i, a := range p.actions {
		if a.Kind == Forward {
			forwards = append(forwards, i)
		} else {
			backwards = append(backwards, i)
		}
	}
	return forwards, backwards
}

// inOf is in of the i-th of places; none past the end.
func (p *program) inOf(places []int, i int) message {
	if i >= len(places) {
		return none
	}
	return p.in(places[i])
}
