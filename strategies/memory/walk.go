package memory

import (
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/memory/allocator"
)

// Class is what device memory is used for.
type Class uint8

const (
	Parameters Class = iota
	Gradients
	OptimizerStates
	Activations
	LogitsLoss
	WeightCopies // parameters cast for compute
	Gathered     // gathered shards and buckets of data parallelism
	Workspaces
	Rounding // what blocks of the allocator are larger than what is in them: known where it is replayed
	numTracked
)

const NumClasses = numTracked

var classNames = [numTracked]string{"parameters", "gradients", "optimizer", "activations", "logits_loss", "weight_copies", "gathered_and_buckets", "workspaces", "rounding"}

func (c Class) String() string { return classNames[c] }

// Bytes is memory by class.
type Bytes [numTracked]units.Bytes

// Total is the sum over the classes.
func (b *Bytes) Total() units.Bytes {
	var t units.Bytes
	for _, v := range b {
		t += v
	}
	return t
}

// classOf maps what a tape's storage holds.
func classOf(k tape.StoreKind) Class {
	switch k {
	case tape.Gradient:
		return Gradients
	case tape.WeightCopy:
		return WeightCopies
	case tape.Workspace:
		return Workspaces
	case tape.Logits:
		return LogitsLoss
	}
	return Activations
}

// Mode is what happens to the gradients and parameters of a unit.
type Mode uint8

const (
	Plain       Mode = iota // gradients are kept where autograd left them
	Bucketed                // gradients go into buckets that live between steps (torch DDP, gradient_as_bucket_view)
	Copied                  // they are copied into such buckets and back, and stay beside them
	MainBuffers             // weight gradients are added into buffers that live between steps (Megatron)
	Lingering               // into such buffers too, but autograd's own stay until the next backward pass (DeepSpeed's BF16_Optimizer)
	Swept                   // into such buffers once the backward pass is over, when autograd's own go (nanotron)
	Sharded                 // parameters are gathered and gradients scattered unit by unit (FSDP, ZeRO-3)
)

// Step is the sequence of one rank.
type Step struct {
	Static       Bytes // lives between steps
	Units        []*ops.Unit
	MicroBatches int64
	Mode         Mode
	Sharding     Sharding
	Spans        [][]bool // by unit and parameter: it is of what is gathered for several units at once; nil: none is
	Drops        bool     // and that is sharded between the passes
	SyncEvery    bool
	Sum          units.Bytes // Lingering: element size of the buffers
	Record       bool
	Away         Away
	Nodes        bool // layers run as nodes beside those of the micro batch before, which hold what nodes says

	// Of a chunk of a pipeline: whether its input is a tensor of its own, which stays
	// until its gradient is sent; whether each output stays until its gradient has come;
	// whether backward passes are split, and then by what autograd traces; and what of the
	// last stage's outputs stays to the end of the step.
	Receives, HoldsOutput bool
	Splits, Traced        bool
	KeptOutput            units.Bytes // of each micro batch
	HoldsEmbeddings       bool        // until the last layer is done, as what calls the layers does
	Buffered              units.Bytes // and what of the last one's stays until the next one's takes its place

	// For the replay of the allocator: what of Static is a tensor per parameter, the
	// buckets that make up Static[Gathered], and what making Static and the update
	// take beside it.
	Dense, Expert Stored
	Buckets       []units.Bytes
	Update        Update
	Flat          []units.Bytes // values that the update runs over at once, one after the other
}

// Synced reports whether the gradients of a micro batch of a pipeline are reduced after
// its backward pass: those of unit-wise sharding are kept whole until the last, as
// PyTorch's stages have it (stage.py, backward_maybe_with_nosync).
func (s *Step) Synced(last bool) bool { return s.Mode != Sharded || s.SyncEvery || last }

// Stored is what a rank keeps of each of its parameters between steps, in bytes per
// element. The optimizer makes its states, so many tensors each, in its first step, and
// holds something of each beside the gradients while it runs.
type Stored struct {
	Weights, States, Update units.Bytes
	Frozen                  units.Bytes // weights of what is not trained
	Packed                  units.Bytes // of matrices among these
	Tensors                 int
	Apart                   bool // the optimizer keeps one tensor less of each matrix of a layer

	Embedding units.Bytes // of the states of an embedding; 0: as States
	Paged     int64       // states of tensors of so many values are outside the allocator, but for Scales; 0: none
	Scales    units.Bytes // among States, not among those of an embedding
	Passing   units.Bytes // what the update of a tensor holds of it, before it goes on to the next
}

// StatesOf are the bytes of the optimizer's states of a parameter, in the allocator and outside of it.
func (s *Stored) StatesOf(p *ops.Param) (inside, outside units.Bytes) {
	n, each, scales := units.Bytes(p.Local), s.States, s.Scales
	if p.Role.Table() && s.Embedding > 0 {
		each, scales = s.Embedding, 0
	}
	if s.Paged > 0 && p.Local >= s.Paged {
		return n * scales, n * (each - scales)
	}
	return n * each, 0
}

// weights are the bytes per element that are kept of a parameter.
func (s *Stored) weights(p *ops.Param) units.Bytes {
	switch {
	case p.Packs():
		return s.Packed
	case p.Frozen:
		return s.Frozen
	}
	return s.Weights
}

// Streams of a rank. The allocator keeps the memory of each apart.
const (
	compute = iota
	gatherStream
	scatterStream
	hostStream // that of copies from the host, where they are made on it
)

// Peak is the largest moment.
type Peak struct {
	Allocated units.Bytes
	Reserved  units.Bytes
	By        Bytes
	Moment    string
	Points    []Point // with Step.Record
}

// Point is the highest allocation within one pass over a unit.
type Point struct {
	Label     string
	Allocated units.Bytes
	By        Bytes
}

// moment is a pass over a unit.
type moment struct {
	unit int
	pass pass
}

type pass uint8

const (
	between pass = iota // steps
	forward
	backward
	optimizer
)

// walker runs a Step over a tracker.
type walker struct {
	*Step
	t       *tracker
	width   int           // ids per unit
	buffer  int           // id of Buffered
	called  int           // id of embeddings that are held, which the first layer is done with
	first   int           // first id of all
	base    int           // first id of this micro batch: the kept gradients of the first one have their own
	extra   int           // first id after those of the units
	parts   []part        // by unit, that which spans units, and one more
	full    []units.Bytes // what gathers are copied out to, or are: of all units
	held    int           // unit whose gather waits for the next one's to be copied out; -1: none
	saved   []int32       // by unit: first store that a forward pass does not have
	filled  units.Bytes   // of gradients that are in a bucket
	passed  units.Bytes   // and of those before them that were
	reduces units.Bytes   // of all gradients, as they are reduced
	grads   int           // base of the micro batch whose gradients are kept, or linger
	tied    struct {      // gradients of one table, which autograd adds up
		uses    []use // in the order in which they come: of a tied head, of embeddings
		inPlace bool  // the second is added to the first
	}
	split bool           // the weights' part of a backward pass comes later: saved tensors stay for it
	warm  bool           // this is the first step
	next  int            // first id that nothing uses
	trips []Trip         // by unit, where some go to the host
	bare  [][]tape.Event // by unit: its backward pass without gradients, where GEMMs add these to buffers
}

// ids of a unit's data-parallel blocks, relative to extra.
const (
	gatherID  = iota // flat all-gather output
	scatterID        // reduce-scatter input
	shardID          // sharded gradient
	castID           // shard cast for the gather
	hostID           // the largest tensor of the shard, from the host
	leftID           // shard cast for the root's second gather
	outID            // reduce-scatter output that is cast or added
	joinID           // gradient of FSDP1's one parameter
	keepID           // unsharded gradients kept over micro batches
	nodeID           // what nodes of its backward pass hold
	viewID           // gathered parameters that products keep a view of
	perUnit
)

// Measure walks the step and returns its peak. With alloc it also replays the
// caching allocator over three steps and reports what it reserves: the optimizer
// makes its states at the end of the first one, out of what the activations left,
// so that those of the second no longer find it whole, nor those of the third what the
// second cut (28 of 651 measured runs; none needs a fourth).
func Measure(s *Step, alloc *allocator.Allocator) Peak {
	w := (&tracker{alloc: alloc, record: s.Record}).walkers([]*Step{s}, 2)[0]
	begin(w)
	w.t.forget()
	if alloc != nil && (s.Dense.Tensors > 0 || s.Update.Moments > 0) { // else the states are there from the start
		w.warm = true
		w.step()
		w.warm = false
		w.t.forget()
		w.rebuild()
	}
	w.step()
	if alloc != nil {
		w.t.points = w.t.points[:0]
		w.step()
	}
	w.t.settle()
	p := Peak{Allocated: w.t.peak, By: w.t.at, Moment: w.label(w.t.moment), Points: w.t.points}
	w.t.release()
	if alloc != nil {
		p.Reserved = alloc.PeakReserved()
	}
	return p
}

// walkers returns one walker for each of the chunks of a rank, with ids for so many
// micro batches in flight.
func (t *tracker) walkers(chunks []*Step, inFlight int) []*walker {
	var all []*walker
	n := 0
	for _, s := range chunks {
		w := &walker{Step: s, t: t, first: n}
		w.measure()
		w.leaving()
		w.extra = n + inFlight*w.width*len(s.Units)
		w.next = w.extra + perUnit*len(w.parts) + len(w.full)
		n = w.next + w.kept()
		w.buffer, w.called = n-1, n-2
		all = append(all, w)
	}
	t.table(n)
	for _, w := range all {
		w.slot(0)
	}
	return all
}

// measure finds how many ids the units need and what parameters they hold.
func (w *walker) measure() {
	s := w.Step
	for _, u := range s.Units {
		saved := int32(0)
		for _, e := range u.Forward.Events {
			saved = max(saved, e.Store+1)
		}
		w.saved, w.width = append(w.saved, saved), max(w.width, int(saved))
		for _, e := range u.Backward.Events {
			w.width = max(w.width, int(e.Store)+1)
		}
		w.width = max(w.width, int(u.GradStore)+1, int(u.InGradStore)+1)
	}
	if s.Mode == MainBuffers {
		w.bare = bare(s.Units)
	}
	w.width++ // received
	w.parts, w.held = make([]part, len(s.Units)+2), -1
	for i := range w.parts {
		w.parts[i].from = len(w.full)
		from, to := w.within(i)
		for k := from; k < to; k++ {
			w.shard(k, i)
		}
		if !s.Sharding.Copies {
			w.full = append(w.full, 0) // the gather itself
		}
	}
	for k := range s.Units {
		w.reduces += w.parts[k].grads * s.Sharding.Reduce
	}
	w.tie()
}

// begin allocates what lives between steps: the Static of the first of a rank's chunks.
func begin(chunks ...*walker) {
	w := chunks[0]
	w.enter(0, between)
	replay := w.t.alloc != nil
	var made []int // ids
	if replay && w.Update.Copied > 0 {
		each(chunks, func(w *walker, p *ops.Param) {
			made = append(made, w.next)
			w.keep(units.Bytes(p.Local)*w.Update.Copied, Parameters)
		})
	}
	single, flat := replay && w.Dense.Tensors > 0, replay && w.Update.Master > 0
	for c, b := range w.Static {
		switch class := Class(c); {
		case class == Parameters && flat: // what is not trained is in no flat buffer
			each(chunks, func(w *walker, p *ops.Param) {
				if p.Frozen {
					n := units.Bytes(p.Local) * w.stored(p).weights(p)
					b -= n
					w.keep(n, Parameters)
				}
			})
			w.keep(b, Parameters)
		case class == Parameters && single:
			for _, w := range chunks {
				w.tensors(Parameters, func(p *ops.Param) (int, units.Bytes) { return 1, units.Bytes(p.Local) * w.stored(p).weights(p) })
			}
		case class == OptimizerStates && (flat || single): // made already, or not yet
		case class == Gathered && single && len(w.Buckets) > 0:
			for _, b := range w.Buckets {
				w.keep(b, Gathered)
			}
		default:
			w.keep(b, class)
		}
		if Class(c) == Parameters { // each is part of the flat buffer now
			for _, id := range made {
				w.t.free(id)
			}
			if flat {
				w.masters()
			}
		}
	}
	if replay && !flat { // of zeros, for the optimizer to make its states
		for _, n := range w.Flat {
			w.passing(n * w.Update.Cast)
		}
	}
}

// passing allocates gradients that go at once.
func (w *walker) passing(b units.Bytes) {
	w.keep(b, Gradients)
	w.t.free(w.next - 1)
}

// keep allocates what stays to the end.
func (w *walker) keep(b units.Bytes, c Class) {
	w.t.take(w.next, b, c)
	w.next++
}

// each calls f with each parameter of a rank.
func each(chunks []*walker, f func(*walker, *ops.Param)) {
	for _, w := range chunks {
		for _, u := range w.Units {
			for i := range u.Params {
				if w.own(&u.Params[i]) {
					f(w, &u.Params[i])
				}
			}
		}
	}
}

// own is whether a parameter is not that of the embedding, in the same chunk.
func (w *walker) own(p *ops.Param) bool { return !p.TiedCopy || w.Units[0].Input > 0 }

// stored is what the rank keeps of a parameter.
func (w *walker) stored(p *ops.Param) *Stored {
	if p.Split == model.ExpertSplit {
		return &w.Expert
	}
	return &w.Dense
}

// states allocates the optimizer's tensors of each parameter.
func (w *walker) states() {
	w.tensors(OptimizerStates, func(p *ops.Param) (int, units.Bytes) {
		s := w.stored(p)
		if p.Frozen {
			return 0, 0
		}
		n := s.Tensors
		if s.Apart && p.Matrices(false) > 0 {
			n--
		}
		inside, _ := s.StatesOf(p)
		return n, inside / units.Bytes(s.Tensors)
	})
}

// tensors allocates so many tensors, each of so many bytes, as of says a parameter has: of all
// parameters of a unit at once where these are one (Sharding.Flat).
func (w *walker) tensors(c Class, of func(*ops.Param) (int, units.Bytes)) {
	for _, u := range w.Units {
		most, all := 0, units.Bytes(0)
		for i := range u.Params {
			if !w.own(&u.Params[i]) {
				continue
			}
			n, size := of(&u.Params[i])
			if w.Sharding.Flat {
				most, all = max(most, n), all+size
				continue
			}
			for range n {
				w.keep(size, c)
			}
		}
		for range most {
			w.keep(all, c)
		}
	}
}

// rebuild makes the buckets anew, in the order in which the gradients of the first
// step came. The old ones are still held by their collectives, which a thread looks
// after every 100 ms (ProcessGroupNCCL's watchdog).
func (w *walker) rebuild() {
	for _, b := range w.Buckets {
		w.t.alloc.Alloc(b, compute)
	}
}

func (w *walker) step() {
	n := min(w.MicroBatches, 2) // further ones repeat the second
	if (w.Mode == MainBuffers || w.Mode == Swept) && !w.Nodes {
		n = 1 // and the second repeats the first, which leaves no gradient behind
	}
	for i := int64(0); i < n; i++ {
		sync := w.SyncEvery || i == n-1
		w.slot(int(min(i, 1)))
		w.forward()
		w.settleNodes()
		w.backward(i == 0, sync)
	}
	w.update()
	// The loss goes with the last name that holds it.
	last := len(w.Units) - 1
	for k := range 2 {
		w.slot(1 - k)
		w.t.free(w.id(last, w.Units[last].OutputStore))
	}
}

// slot makes the ids of a micro batch in flight the current ones. The gradients of the
// first backward pass keep theirs to the end of the step.
func (w *walker) slot(k int) { w.base = w.first + k*w.width*len(w.Units) }

// update runs the optimizer, which leaves no kept gradients.
func (w *walker) update() {
	w.enter(0, optimizer)
	w.base = w.grads
	if w.Mode == Plain && w.Sharding.Bucket > 0 {
		w.reduce()
	}
	if w.warm && w.Dense.Tensors > 0 {
		w.states()
	}
	if w.Dense.Update > 0 {
		w.beside()
	}
	if w.Dense.Passing > 0 {
		each([]*walker{w}, func(w *walker, p *ops.Param) {
			if !p.Frozen {
				w.t.take(w.next, units.Bytes(p.Local)*w.stored(p).Passing, OptimizerStates)
				w.t.free(w.next)
			}
		})
	}
	if w.t.alloc != nil {
		w.flat()
	}
	w.clearGradients()
}

// clearGradients frees what a step leaves of gradients.
func (w *walker) clearGradients() {
	for i := range w.Units {
		if w.Mode != Lingering {
			w.freeGrads(i)
		}
	}
	for i := range w.parts {
		for k := range perUnit {
			w.t.free(w.at(i, k))
		}
	}
}

// beside allocates what the optimizer holds of every parameter beside its gradient, and
// lets go of it.
func (w *walker) beside() {
	id := w.next
	for _, take := range [...]bool{true, false} {
		k := id
		each([]*walker{w}, func(w *walker, p *ops.Param) {
			switch {
			case p.Frozen:
			case take:
				w.t.take(k, units.Bytes(p.Local)*w.stored(p).Update, OptimizerStates)
			default:
				w.t.free(k)
			}
			k++
		})
	}
}

// enter begins a pass over a unit.
func (w *walker) enter(unit int, p pass) {
	w.t.settle()
	if w.t.here = (moment{unit, p}); w.t.record {
		w.t.label = w.label(w.t.here)
	}
}

// label names a pass over a unit; layers are numbered where each is told apart.
func (w *walker) label(m moment) string {
	if m.pass == between {
		return "between steps"
	}
	if m.pass == optimizer {
		return "optimizer"
	}
	name := w.Units[m.unit].Name
	if w.Record && m.unit > 0 && m.unit < len(w.Units)-1 {
		name = fmt.Sprintf("%s %d", name, m.unit)
	}
	if m.pass == forward {
		return name + " forward"
	}
	return name + " backward"
}

// kept is the most that keep is called in a walk.
func (w *walker) kept() int {
	n := int(NumClasses) + len(w.Buckets) + int(w.MicroBatches) + 4 + len(w.Flat)*(3+w.Update.Moments) // outputs, and what the update takes
	for _, u := range w.Units {
		n += len(u.Params) * (2 + max(w.Dense.Tensors, w.Expert.Tensors, 1))
	}
	return n
}

func (w *walker) id(unit int, store int32) int { return w.base + unit*w.width + int(store) }
func (w *walker) at(unit, what int) int        { return w.extra + unit*perUnit + what }

// received is the id of an input that came from another rank. The units know nothing
// of it: what they free is not there.
func (w *walker) received() int { return w.id(0, int32(w.width-1)) }

// events applies memory events of a section.
func (w *walker) events(unit int, events []tape.Event) {
	for k := range events {
		w.event(unit, events, k)
	}
}

// event applies one of them.
func (w *walker) event(unit int, events []tape.Event, k int) {
	if w.Away.All {
		w.again(unit, events, k)
	}
	if e := &events[k]; e.Bytes > 0 {
		w.t.take(w.id(unit, e.Store), e.Bytes, classOf(e.Kind))
	} else {
		w.end(unit, e)
	}
}

// end frees what an event of a unit ends the life of.
func (w *walker) end(unit int, e *tape.Event) {
	if w.split && w.stays(unit, e) {
		return
	}
	if w.HoldsEmbeddings && unit == 1 && e.Store == w.Units[1].InputStore && w.t.here.pass == forward && w.Units[0].Input == 0 {
		w.t.move(w.id(1, e.Store), w.called) // which is none that goes to the host
		return
	}
	w.t.free(w.id(unit, e.Store))
}

// stays reports whether what an event of a split backward pass ends the life of is needed by
// the weights' part. PyTorch keeps the graph down to the last parameter, and gradients of what
// matrices put out beside it; a first stage does it all then
// (torch/distributed/pipelining/_backward.py, stage_backward_input; stage.py, backward_one_chunk).
func (w *walker) stays(unit int, e *tape.Event) bool {
	saved := e.Store < w.saved[unit]
	if !w.Traced || e.Op == 0 {
		return saved
	}
	last := &w.Units[unit].Backward.Ops[e.Op-1] // that reads it
	return saved && !ofLoss(*last) || w.Units[0].Input > 0 && (last.Prim == "linear_wgrad" || last.Prim == "linear_dgrad")
}

// weights ends a backward pass that was split.
func (w *walker) weights() {
	for i, n := range w.saved {
		for k := range n {
			w.t.free(w.id(i, k))
		}
		for k := range w.Units[i].Backward.Events {
			if e := &w.Units[i].Backward.Events[k]; e.Bytes <= 0 && e.Store >= n && w.stays(i, e) {
				w.t.free(w.id(i, e.Store))
			}
		}
	}
}

func (w *walker) forward() {
	if w.Receives {
		w.t.take(w.received(), w.Units[0].Input, Activations)
	}
	for i, u := range w.Units {
		w.enter(i, forward)
		if w.Mode == Sharded {
			if i == 0 {
				w.open(w.spanning())
			}
			w.open(i)
			if next := i + 1; next < len(w.Units) && (w.Sharding.Ahead || !w.Sharding.Copies) {
				w.gather(next)
			}
		}
		if i > 0 && u.InputStore >= 0 {
			w.t.move(w.id(i-1, w.Units[i-1].OutputStore), w.id(i, u.InputStore))
		}
		w.send(i)
		if i == len(w.Units)-1 && w.Buffered > 0 {
			w.t.free(w.buffer)
		}
		events := u.Forward.Events
		if i == len(w.Units)-1 && w.t.blocks[w.called].live {
			head := slices.IndexFunc(u.Forward.Ops, ofHead)
			n := max(0, slices.IndexFunc(events, func(e tape.Event) bool { return int(e.Op) >= head && e.Bytes > 0 }))
			w.events(i, events[:n])
			w.t.free(w.called)
			events = events[n:]
		}
		if w.afterLoss(i) { // the model has returned before the loss
			n := before(events, slices.IndexFunc(u.Forward.Ops, ofLoss))
			w.events(i, events[:n])
			w.release()
			events = events[n:]
		}
		w.events(i, events)
		if w.Mode == Sharded && w.Sharding.Reshard && i < len(w.Units)-w.Sharding.Held {
			w.close(i)
			w.view(i)
		}
	}
	w.t.free(w.called)
	for i, u := range w.Units {
		for _, e := range u.Forward.Deferred {
			w.t.free(w.id(i, e.Store))
		}
	}
	w.sent()
	if w.Mode == Sharded {
		w.release()
		if w.Sharding.Root && w.Sharding.Reshard {
			w.discard(0)
		}
		if w.Drops {
			w.discard(w.spanning())
		}
	}
	if i, u := len(w.Units)-1, w.Units[len(w.Units)-1]; u.Output > 0 && !w.HoldsOutput { // it has been sent
		w.t.free(w.id(i, u.OutputStore))
	}
	if w.KeptOutput > 0 && w.t.alloc != nil {
		w.keep(w.KeptOutput, LogitsLoss)
	}
}

func (w *walker) backward(first, sync bool) {
	last := len(w.Units) - 1
	end := w.Units[last]
	w.drop()
	if first {
		w.grads = w.base
	}
	w.t.take(w.id(last, end.GradStore), max(end.Output, 512), Activations) // of a loss or as it came from another rank
	for i := last; i >= 0; i-- {
		u := w.Units[i]
		w.enter(i, backward)
		w.fetch(i)
		if w.Mode == Sharded && !w.afterLoss(i) && len(u.Backward.Ops) > 0 { // else it is frozen, and so are those before it
			w.reopen(i)
		}
		if i < last && u.GradStore >= 0 && w.Units[i+1].InGradStore >= 0 {
			w.t.move(w.id(i+1, w.Units[i+1].InGradStore), w.id(i, u.GradStore))
		}
		w.backwardUnit(i, u, first, sync)
		w.linger(i)
		if i == last && w.Buffered > 0 {
			w.t.take(w.buffer, w.Buffered, LogitsLoss)
		}
	}
	for i, u := range w.Units {
		for _, e := range u.Backward.Deferred {
			w.t.free(w.id(i, e.Store))
		}
	}
	if w.Mode == Sharded {
		w.flush()
		if p := w.spanning(); w.parts[p].grads > 0 {
			w.scatter(p, w.Units[0], first, sync)
		}
		for i := range w.parts[:len(w.parts)-1] {
			if sync || !w.Sharding.Stays {
				w.discard(i)
			}
			w.t.free(w.at(i, gatherID))
			w.t.free(w.at(i, scatterID))
			w.t.free(w.at(i, outID))
		}
	}
	if end.Output > 0 {
		w.t.free(w.id(last, end.OutputStore))
	}
	if w.Units[0].Input > 0 { // its gradient has been sent
		w.t.free(w.id(0, w.Units[0].InGradStore))
	}
	w.t.free(w.received())
	switch w.Mode {
	case Lingering:
		w.add()
	case Swept:
		for i := range w.Units {
			w.freeGrads(i)
		}
	}
}
