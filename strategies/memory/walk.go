package memory

import (
	"fmt"
	"sync"

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
	numTracked
)

const NumClasses = numTracked

var classNames = [numTracked]string{"parameters", "gradients", "optimizer", "activations", "logits_loss", "weight_copies", "gathered_and_buckets", "workspaces"}

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
	Bucketed                // gradients are copied into buckets that live between steps (torch DDP)
	MainBuffers             // weight gradients are added into buffers that live between steps (Megatron)
	Sharded                 // parameters are gathered and gradients scattered unit by unit (FSDP, ZeRO-3)
)

// Step is the sequence of one rank.
type Step struct {
	Static       Bytes // lives between steps
	Units        []*ops.Unit
	MicroBatches int64
	Mode         Mode
	Sharding     Sharding
	SyncEvery    bool
	Record       bool

	// For the replay of the allocator: what of Static is a tensor per parameter, and
	// the buckets that make up Static[Gathered].
	Dense, Expert Stored
	Buckets       []units.Bytes
}

// Stored is what a rank keeps of each of its parameters between steps, in bytes per
// element. The optimizer makes its states, so many tensors each, in its first step.
type Stored struct {
	Weights, States units.Bytes
	Tensors         int
}

// Streams of a rank. The allocator keeps the memory of each apart.
const (
	compute = iota
	gatherStream
	scatterStream
)

// Sharding are the sizes of unit-wise sharding, per parameter.
type Sharding struct {
	Ranks, ExpertRanks       int64       // that share one copy of dense parameters, of experts
	Gather, Reduce, Gradient units.Bytes // element sizes: gathered weights, reduction, gradient of autograd
	Kept                     units.Bytes // element size of the sharded gradient
	Reshard                  bool
	Root                     bool // first and last unit are one
	Copies                   bool // flat buffers beside the parameters (FSDP2)
}

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

// tracker follows allocations.
type tracker struct {
	now, peak    units.Bytes
	by, at       Bytes
	moment, here moment
	rising       bool // what is there now is the peak, which settle has not noted yet

	alloc  *allocator.Allocator
	blocks []slot
	points []Point
	label  string // of the next point, with record
	record bool
}

type slot struct {
	bytes units.Bytes
	block allocator.Block
	class Class
	live  bool
}

// settle notes of which classes the peak is, and when. It comes before anything but
// a further allocation.
func (t *tracker) settle() {
	if t.rising {
		t.at, t.moment, t.rising = t.by, t.here, false
	}
}

func (t *tracker) take(id int, b units.Bytes, c Class) { t.takeOn(compute, id, b, c) }

// takeOn allocates on a stream.
func (t *tracker) takeOn(stream, id int, b units.Bytes, c Class) {
	if b <= 0 {
		return
	}
	s := &t.blocks[id]
	s.bytes, s.class, s.live = b, c, true
	if t.alloc != nil {
		s.block, _ = t.alloc.Alloc(b, stream)
	}
	t.now += b
	t.by[c] += b
	if t.now > t.peak {
		t.peak, t.rising = t.now, true
	}
	if t.record {
		n := len(t.points)
		if n == 0 || t.points[n-1].Label != t.label {
			t.points = append(t.points, Point{Label: t.label})
			n++
		}
		if p := &t.points[n-1]; t.now > p.Allocated {
			p.Allocated, p.By = t.now, t.by
		}
	}
}

func (t *tracker) free(id int) {
	if id >= len(t.blocks) || !t.blocks[id].live {
		return
	}
	t.settle()
	s := &t.blocks[id]
	s.live = false
	t.now -= s.bytes
	t.by[s.class] -= s.bytes
	if t.alloc != nil {
		t.alloc.Free(s.block)
	}
}

// move hands a block to another id.
func (t *tracker) move(from, to int) {
	t.blocks[to] = t.blocks[from]
	t.blocks[from] = slot{}
}

// reclass changes what a live block counts as.
func (t *tracker) reclass(id int, c Class) {
	if id < len(t.blocks) && t.blocks[id].live {
		t.settle()
		s := &t.blocks[id]
		t.by[s.class] -= s.bytes
		t.by[c] += s.bytes
		s.class = c
	}
}

// walker runs a Step over a tracker.
type walker struct {
	*Step
	t      tracker
	width  int           // ids per unit
	base   int           // first id of this micro batch: the kept gradients of the first one have their own
	extra  int           // first id after those of the units
	params []units.Bytes // by unit: parameters on this rank, whole
	shards []units.Bytes // and what this rank keeps of them
	warm   bool          // this is the first step
	next   int           // first id that nothing uses
}

// ids of a unit's data-parallel blocks, relative to extra.
const (
	gatherID  = iota // flat all-gather output
	fullID           // parameters copied out
	scatterID        // reduce-scatter input
	shardID          // sharded gradient
	castID           // shard cast for the gather
	keepID           // unsharded gradients kept over micro batches
	perUnit
)

// Measure walks the step and returns its peak. With alloc it also replays the
// caching allocator over two steps and reports what it reserves: the optimizer
// makes its states at the end of the first one, out of what the activations left,
// so that those of the second no longer find it whole.
func Measure(s *Step, alloc *allocator.Allocator) Peak {
	w := newWalker(s, alloc)
	if alloc != nil && s.Dense.Tensors > 0 { // else the states are there from the start
		w.warm = true
		w.step()
		w.warm = false
		w.t.peak, w.t.points = 0, w.t.points[:0]
		w.rebuild()
	}
	w.step()
	w.t.settle()
	p := Peak{Allocated: w.t.peak, By: w.t.at, Moment: w.label(w.t.moment), Points: w.t.points}
	w.release()
	if alloc != nil {
		p.Reserved = alloc.PeakReserved()
	}
	return p
}

func newWalker(s *Step, alloc *allocator.Allocator) *walker {
	w := &walker{Step: s}
	for _, u := range s.Units {
		for _, sec := range []*tape.Section{&u.Forward, &u.Backward} {
			for _, e := range sec.Events {
				w.width = max(w.width, int(e.Store)+1)
			}
		}
		w.width = max(w.width, int(u.GradStore)+1, int(u.InGradStore)+1)
		var n, shard units.Bytes
		for _, p := range u.Params {
			ranks := s.Sharding.Ranks
			if p.Split == model.ExpertSplit {
				ranks = s.Sharding.ExpertRanks
			}
			if !p.TiedCopy {
				n += units.Bytes(p.Local)
				shard += units.Bytes(p.Local) / units.Bytes(max(ranks, 1))
			}
		}
		w.params, w.shards = append(w.params, n), append(w.shards, shard)
	}
	if last := len(s.Units) - 1; s.Sharding.Root && last > 0 {
		w.params[0] += w.params[last]
		w.shards[0] += w.shards[last]
		w.params[last], w.shards[last] = 0, 0
	}
	w.extra = 2 * w.width * len(s.Units)
	w.next = w.extra + perUnit*len(s.Units)
	w.table(w.next + w.kept())
	w.t.alloc, w.t.record = alloc, s.Record
	w.enter(0, between)
	for c, b := range s.Static { // what lives between steps
		switch each := alloc != nil && s.Dense.Tensors > 0; {
		case each && Class(c) == Parameters:
			w.perParameter(Parameters)
		case each && Class(c) == OptimizerStates: // not yet
		case each && Class(c) == Gathered && len(s.Buckets) > 0:
			for _, b := range s.Buckets {
				w.keep(b, Gathered)
			}
		default:
			w.keep(b, Class(c))
		}
	}
	return w
}

// keep allocates what stays to the end.
func (w *walker) keep(b units.Bytes, c Class) {
	w.t.take(w.next, b, c)
	w.next++
}

// perParameter allocates the tensors that every parameter has of a class.
func (w *walker) perParameter(c Class) {
	for _, u := range w.Units {
		for i := range u.Params {
			p := &u.Params[i]
			if p.TiedCopy {
				continue
			}
			s := &w.Dense
			if p.Split == model.ExpertSplit {
				s = &w.Expert
			}
			if c == Parameters {
				w.keep(units.Bytes(p.Local)*s.Weights, c)
				continue
			}
			for range s.Tensors {
				w.keep(units.Bytes(p.Local)*s.States/units.Bytes(s.Tensors), c)
			}
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
	if w.Mode == MainBuffers {
		n = 1 // and the second repeats the first, which leaves no gradient behind
	}
	for i := int64(0); i < n; i++ {
		sync := w.SyncEvery || i == n-1
		w.base = 0
		if i > 0 {
			w.base = w.width * len(w.Units)
		}
		w.forward()
		w.backward(i == 0, sync)
	}
	w.enter(0, optimizer)
	w.base = 0
	if w.warm && w.Dense.Tensors > 0 {
		w.perParameter(OptimizerStates)
	}
	// The loss goes with the last name that holds it.
	last := len(w.Units) - 1
	for _, w.base = range [2]int{w.width * len(w.Units), 0} {
		w.t.free(w.id(last, w.Units[last].OutputStore))
	}
	// Gradients go when the optimizer has used them.
	for i, u := range w.Units {
		for _, g := range u.Backward.Grads {
			w.t.free(w.id(i, g.Store))
		}
		for k := range perUnit {
			w.t.free(w.at(i, k))
		}
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

// tables are the blocks of walkers that are done.
var tables sync.Pool

// table gives the walker n empty blocks.
func (w *walker) table(n int) {
	if t, _ := tables.Get().(*[]slot); t != nil && cap(*t) >= n {
		w.t.blocks = (*t)[:n]
		clear(w.t.blocks)
		return
	}
	w.t.blocks = make([]slot, n)
}

// release gives the blocks of a walker that is done to the next.
func (w *walker) release() {
	blocks := w.t.blocks
	w.t.blocks = nil
	tables.Put(&blocks)
}

// kept is the most that keep is called in a walk.
func (w *walker) kept() int {
	n := int(NumClasses) + len(w.Buckets)
	for _, u := range w.Units {
		n += len(u.Params) * (1 + max(w.Dense.Tensors, w.Expert.Tensors))
	}
	return n
}

func (w *walker) id(unit int, store int32) int { return w.base + unit*w.width + int(store) }
func (w *walker) at(unit, what int) int        { return w.extra + unit*perUnit + what }

// events applies the memory events of a section.
func (w *walker) events(unit int, sec *tape.Section, skip func(int32) bool) {
	for i := range sec.Events {
		e := &sec.Events[i]
		if e.Bytes > 0 {
			if skip != nil && skip(e.Store) {
				continue
			}
			w.t.take(w.id(unit, e.Store), e.Bytes, classOf(e.Kind))
		} else {
			w.t.free(w.id(unit, e.Store))
		}
	}
}

func (w *walker) forward() {
	for i, u := range w.Units {
		w.enter(i, forward)
		if w.Mode == Sharded {
			w.open(i)
			if i+1 < len(w.Units) {
				w.gather(i + 1)
			}
		}
		if i > 0 && u.InputStore >= 0 {
			w.t.move(w.id(i-1, w.Units[i-1].OutputStore), w.id(i, u.InputStore))
		}
		w.events(i, &u.Forward, nil)
		if w.Mode == Sharded && w.Sharding.Reshard {
			w.close(i)
		}
	}
	for i, u := range w.Units {
		for _, e := range u.Forward.Deferred {
			w.t.free(w.id(i, e.Store))
		}
	}
	if w.Mode == Sharded && w.Sharding.Root && w.Sharding.Reshard {
		w.t.free(w.at(0, fullID))
	}
}

// gather allocates the flat output of an all-gather.
func (w *walker) gather(i int) {
	if w.params[i] == 0 || w.t.blocks[w.at(i, gatherID)].live || w.t.blocks[w.at(i, fullID)].live {
		return
	}
	w.t.takeOn(gatherStream, w.at(i, gatherID), w.params[i]*w.Sharding.Gather, Gathered)
}

// open makes the parameters of a unit available.
func (w *walker) open(i int) {
	if w.params[i] == 0 || w.t.blocks[w.at(i, fullID)].live {
		return
	}
	w.gather(i)
	if w.Sharding.Copies {
		w.t.take(w.at(i, fullID), w.params[i]*w.Sharding.Gather, Gathered)
		w.t.free(w.at(i, gatherID))
	} else {
		w.t.move(w.at(i, gatherID), w.at(i, fullID))
	}
}

func (w *walker) close(i int) {
	if w.Sharding.Root && (i == 0 || i == len(w.Units)-1) {
		return // the root stays until the pass ends
	}
	w.t.free(w.at(i, fullID))
}

func (w *walker) backward(first, sync bool) {
	last := len(w.Units) - 1
	head := w.Units[last]
	w.t.take(w.id(last, head.GradStore), 512, Activations)
	if w.Mode == Sharded && w.Sharding.Root {
		w.open(0)
	}
	for i := last; i >= 0; i-- {
		u := w.Units[i]
		w.enter(i, backward)
		if w.Mode == Sharded {
			w.open(i)
			if i > 0 {
				w.gather(i - 1)
			}
		}
		if i < last && u.GradStore >= 0 && w.Units[i+1].InGradStore >= 0 {
			w.t.move(w.id(i+1, w.Units[i+1].InGradStore), w.id(i, u.GradStore))
		}
		w.backwardUnit(i, u, first, sync)
	}
	if w.Mode == Sharded {
		for i := range w.Units {
			w.t.free(w.at(i, fullID))
			w.t.free(w.at(i, gatherID))
			w.t.free(w.at(i, scatterID))
		}
	}
}

// backwardUnit applies a unit's backward events and does with its gradients what
// the mode says.
func (w *walker) backwardUnit(i int, u *ops.Unit, first, sync bool) {
	sec := &u.Backward
	grad := func(store int32) bool {
		for _, g := range sec.Grads {
			if g.Store == store {
				return true
			}
		}
		return false
	}
	switch w.Mode {
	case MainBuffers:
		w.events(i, sec, grad) // the GEMM writes into the buffer
		return
	case Plain, Bucketed:
		// Later micro batches add into the gradient that is there: theirs goes at once.
		release := !first || w.Mode == Bucketed && sync
		at := 0
		for k := range sec.Events {
			e := &sec.Events[k]
			for at < len(sec.Grads) && int32(e.Op) > sec.Grads[at].Op {
				w.settle(i, &sec.Grads[at], release)
				at++
			}
			if e.Bytes > 0 {
				w.t.take(w.id(i, e.Store), e.Bytes, classOf(e.Kind))
			} else {
				w.t.free(w.id(i, e.Store))
			}
		}
		for ; at < len(sec.Grads); at++ {
			w.settle(i, &sec.Grads[at], release)
		}
	case Sharded:
		w.events(i, sec, nil)
		w.scatter(i, u, first, sync)
	}
}

// settle ends the life of a new gradient or keeps it.
func (w *walker) settle(i int, g *tape.ParamGrad, release bool) {
	id := w.id(i, g.Store)
	if release {
		w.t.free(id)
		return
	}
	w.t.reclass(id, Gradients)
}

// scatter frees a unit's gathered parameters and turns its gradients into a shard.
func (w *walker) scatter(i int, u *ops.Unit, first, sync bool) {
	s := &w.Sharding
	if w.params[i] > 0 {
		w.t.free(w.at(i, fullID))
	}
	if w.params[i] == 0 {
		for _, g := range u.Backward.Grads {
			w.t.reclass(w.id(i, g.Store), Gradients)
		}
		return
	}
	n := w.params[i]
	if !sync { // kept whole, in the reduction's dtype
		if first {
			w.t.take(w.at(i, keepID), n*s.Reduce, Gradients)
		}
		w.freeGrads(i)
		return
	}
	if j := i + 1; j < len(w.Units) { // the reduction before this one has ended
		w.t.free(w.at(j, scatterID))
	}
	if s.Root && i == 0 { // the cast shard of the root's second gather is still there (seen with 2 and 4 ranks)
		w.t.takeOn(gatherStream, w.at(i, castID), w.shards[i]*s.Gather, Gathered)
	}
	w.t.take(w.at(i, scatterID), n*s.Reduce, Gathered)
	w.t.free(w.at(i, castID))
	w.freeGrads(i)
	w.t.free(w.at(i, keepID))
	if !w.t.blocks[w.at(i, shardID)].live {
		w.t.takeOn(scatterStream, w.at(i, shardID), w.shards[i]*s.Reduce, Gradients)
	}
}

// freeGrads releases the gradients that autograd left, with those of the head when
// i is the root.
func (w *walker) freeGrads(i int) {
	for _, g := range w.Units[i].Backward.Grads {
		w.t.free(w.id(i, g.Store))
	}
	if w.Sharding.Root && i == 0 {
		last := len(w.Units) - 1
		for _, g := range w.Units[last].Backward.Grads {
			w.t.free(w.id(last, g.Store))
		}
	}
}
