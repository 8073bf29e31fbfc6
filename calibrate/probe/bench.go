package probe

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

//go:embed kernels.cu
var source string

// Bench is one GPU with what its probes share.
type Bench struct {
	Driver cuda.Driver
	GPU    cuda.GPU
	Stream cuda.Stream
	gate   cuda.Gate // nil where there is none; times then hold launch costs
	own    []cuda.Buffer
	shared map[string]cuda.Buffer // by purpose
}

// NewBench opens a GPU.
func NewBench(d cuda.Driver, index int) (*Bench, error) {
	g, err := d.Open(index)
	if err != nil {
		return nil, err
	}
	b := &Bench{Driver: d, GPU: g, shared: map[string]cuda.Buffer{}}
	if b.Stream, err = g.Stream(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	gate, err := g.Gate()
	var none *cuda.Unavailable
	switch {
	case err == nil:
		b.gate = gate
	case !errors.As(err, &none):
		return nil, errors.Join(err, g.Close())
	}
	return b, nil
}

// Close gives the GPU back.
func (b *Bench) Close() error {
	errs := []error{b.Reset()}
	if b.gate != nil {
		errs = append(errs, b.gate.Close())
	}
	return errors.Join(append(errs, b.Stream.Close(), b.GPU.Close())...)
}

// Alloc allocates memory that Reset frees.
func (b *Bench) Alloc(bytes int64) (cuda.Buffer, error) {
	m, err := b.GPU.Alloc(bytes)
	if err == nil {
		b.own = append(b.own, m)
	}
	return m, err
}

// Shared is a buffer by purpose, allocated at the first call.
func (b *Bench) Shared(purpose string, bytes int64) (cuda.Buffer, error) {
	m := b.shared[purpose]
	if m == nil {
		var err error
		if m, err = b.Alloc(bytes); err != nil {
			return nil, err
		}
		b.shared[purpose] = m
	}
	if m.Bytes() < bytes {
		return nil, fmt.Errorf("internal: the buffer for %s holds %d bytes, not %d", purpose, m.Bytes(), bytes)
	}
	return m, nil
}

// Reset frees the memory allocated since the last one.
func (b *Bench) Reset() error {
	var errs []error
	for _, m := range b.own {
		errs = append(errs, m.Close())
	}
	b.own, b.shared = nil, map[string]cuda.Buffer{}
	return errors.Join(errs...)
}

// Room is how much memory the probes may take: a good part of what was free.
func Room(d cuda.Device) int64 { return d.Free / 10 * 8 }

// random kinds of fill_normal.
var random = map[string]int32{"bf16": 0, "fp16": 1, "fp32": 2, "tf32": 2, "fp8": 3}

// Randomize fills a buffer with normal random numbers, on which power and so clocks
// depend: multiplying zeros is faster by a tenth.
func (b *Bench) Randomize(m cuda.Buffer, dtype string, seed uint64) error {
	pairs := m.Bytes() / (2 * cuda.Width(dtype))
	return b.run(cuda.Kernel{Source: source, Name: "fill_normal", Grid: [3]int{1024, 1, 1}, Block: [3]int{256, 1, 1},
		Args: []any{m, pairs, random[dtype], seed}, Work: cuda.Work{Bytes: float64(m.Bytes())}})
}

// run launches a kernel once and waits.
func (b *Bench) run(k cuda.Kernel) error {
	op, err := b.GPU.Kernel(b.Stream, k)
	if err != nil {
		return err
	}
	defer op.Close()
	if err := op.Enqueue(1); err != nil {
		return err
	}
	return b.Stream.Sync()
}

// gated says that the timing keeps launch costs out.
func (b *Bench) gated() bool { return b.gate != nil }

// Time runs an op n times and returns the time of one. The executions are queued
// behind a gate, so that the device never waits for the host.
func (b *Bench) Time(op cuda.Op, n int, watch bool) (Reading, error) {
	var r Reading
	if b.gated() {
		if err := b.gate.Hold(b.Stream); err != nil {
			return r, err
		}
	}
	from, err := b.Stream.Mark()
	if err == nil {
		defer from.Close()
		err = op.Enqueue(n)
	}
	var to cuda.Mark
	if err == nil {
		if to, err = b.Stream.Mark(); err == nil {
			defer to.Close()
		}
	}
	held := true
	if b.gated() { // also after an error, or the stream would hang
		h, e := b.gate.Release()
		held, err = h, errors.Join(err, e)
	}
	if err != nil {
		return r, errors.Join(err, b.Stream.Sync())
	}
	if watch {
		if r.Telemetry, err = b.watch(); err != nil {
			return r, err
		}
	}
	if err := b.Stream.Sync(); err != nil {
		return r, err
	}
	if !held {
		return r, errors.New("the gate gave up before all work was queued; the machine is overloaded or a launch waits for the GPU")
	}
	total, err := to.Since(from)
	r.Seconds, r.Busy = []float64{total / float64(n)}, total
	return r, err
}

// watch reads clocks and power; where they are unknown that is no error.
func (b *Bench) watch() (cuda.Telemetry, error) {
	t, err := b.GPU.Telemetry()
	var none *cuda.Unavailable
	if errors.As(err, &none) {
		return cuda.Telemetry{}, nil
	}
	return t, err
}

// Bounds of a batch: it lasts about batchTime, and its launches fit into the queue
// of a held stream.
const (
	batchTime = 1.5e-3 // s
	maxBatch  = 100
)

// Trial prepares repeated timing of an op: a warm-up, then a batch whose size follows
// from a first time. The op is closed with the trial.
func (b *Bench) Trial(op cuda.Op) (Trial, error) {
	n := 0
	once := func(watch bool) (Reading, error) {
		if n == 0 {
			if err := op.Enqueue(2); err != nil { // loads the kernel
				return Reading{}, err
			}
			if err := b.Stream.Sync(); err != nil {
				return Reading{}, err
			}
			first, err := b.Time(op, 2, false)
			if err != nil {
				return first, err
			}
			n = min(max(int(batchTime/first.Seconds[0]+0.5), 1), maxBatch)
		}
		return b.Time(op, n, watch)
	}
	return Trial{Once: once, Close: op.Close}, nil
}

// ceil divides, rounding up, for numbers of blocks.
func ceil(a, b int64) int { return int((a + b - 1) / b) }

// Check returns an error when the GPU no longer works: after some errors a context
// fails all that follows.
func (b *Bench) Check() error {
	m, err := b.GPU.Alloc(4096)
	if err != nil {
		return err
	}
	op, err := b.GPU.Fill(b.Stream, m, 4096)
	if err == nil {
		err = op.Enqueue(1)
	}
	return errors.Join(err, b.Stream.Sync(), m.Close())
}
