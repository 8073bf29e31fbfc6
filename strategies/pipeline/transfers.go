package pipeline

import "fmt"

// Transfers says how a framework moves activations and gradients between ranks
// while it runs a schedule: what is sent together, and what waits for it. The
// order of the passes is the schedule's in every mode.
type Transfers uint8

const (
	// Async sends and receives beside the computation, each as soon as its data
	// are there; a pass waits for its own input only. Megatron-LM with
	// --overlap-p2p-communication; the zero-bubble runtime and DualPipe post
	// their receives early too.
	Async Transfers = iota
	// Blocking stops a rank for every transfer until the other side has come to
	// it and the data are there: Megatron-LM without overlap, DeepSpeed. It is
	// known for 1f1b, interleaved-1f1b and gpipe; other schedules stay Async.
	Blocking
	// Torch is torch.distributed.pipelining. A rank has one communication stream,
	// on which sends and receives run in the order in which they were posted:
	// one that waits for its other side holds up all behind it. 1f1b and gpipe
	// have loops of their own (Schedule1F1B, ScheduleGPipe), all others go
	// through _PipelineScheduleRuntime.
	Torch
	// InStep is torch.distributed.pipelining up to torch 2.8, where schedules of
	// several stages on a rank run in time steps that all ranks count alike
	// (PipelineScheduleMulti): at the end of each, a rank waits for what it sends
	// and receives in it. It is known for interleaved-1f1b-torch; other schedules
	// are Torch.
	InStep
)

var transfersNames = [...]string{"async", "blocking", "torch", "in-step"}

func (t Transfers) String() string {
	if int(t) < len(transfersNames) {
		return transfersNames[t]
	}
	return fmt.Sprintf("transfers(%d)", uint8(t))
}

// programs returns what each rank runs under pl.Transfers, or nil where that is
// Async. lists are the passes of m micro batches.
func (pl *Plan) programs(lists [][]Action, m int) []program {
	write := pl.blocking
	switch pl.Transfers {
	case Blocking:
	case Torch:
		if write = pl.torch; write == nil {
			return torchRuntime(pl.emptyPrograms(lists, m))
		}
	case InStep:
		return torchInStep(pl.emptyPrograms(lists, m))
	default:
		return nil
	}
	if write == nil {
		return nil
	}
	ps := pl.emptyPrograms(lists, m)
	for r := range ps {
		write(&ps[r])
	}
	return ps
}

func (pl *Plan) emptyPrograms(lists [][]Action, m int) []program {
	ps := make([]program, len(lists))
	for r, l := range lists {
		n := len(l)
		ps[r] = program{pl: pl, rank: r, m: m, actions: l, waiting: -1,
			steps: make([]programStep, 0, 3*n), messages: make([]message, 0, 2*n), ends: make([]int32, 0, 2*n)}
	}
	return ps
}
