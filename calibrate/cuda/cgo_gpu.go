//go:build cgo && linux

package cuda

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// gpu is a GPU with its primary context.
type gpu struct {
	d       *driver
	dev     Device
	ctx     C.pp_context
	lt      unsafe.Pointer         // cuBLASLt's handle, when needed
	dnn     unsafe.Pointer         // cuDNN's
	modules map[string]C.pp_module // by source
	events  []C.pp_event           // to be used again
	closed  bool
}

// Open retains the primary context, which the libraries use too.
func (d *driver) Open(index int) (GPU, error) {
	if index < 0 || index >= len(d.devices) {
		return nil, fmt.Errorf("there is no GPU %d; this machine has %d", index, len(d.devices))
	}
	g := &gpu{d: d, dev: d.devices[index], modules: map[string]C.pp_module{}}
	var free C.size_t
	var e C.pp_error
	if C.pp_retain(C.int(index), &g.ctx, &free, &e) != 0 {
		return nil, failure(&e, index)
	}
	g.dev.Free = int64(free)
	d.gpus = append(d.gpus, g)
	return g, nil
}

func (g *gpu) Device() Device { return g.dev }

func (g *gpu) fail(e *C.pp_error) error { return failure(e, g.dev.Index) }

func (g *gpu) Telemetry() (Telemetry, error) { return g.d.nvml.telemetry(g.dev) }

// Close releases the context and with it all that was allocated in it.
func (g *gpu) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	var e C.pp_error
	if g.lt != nil {
		C.pp_lt_destroy(g.ctx, g.lt, &e) // the context goes in any case
	}
	if g.dnn != nil {
		C.pp_dnn_destroy_handle(g.ctx, g.dnn, &e)
	}
	if C.pp_release(C.int(g.dev.Index), &e) != 0 {
		return g.fail(&e)
	}
	return nil
}

// buffer is memory of the device, or of the host when host is set.
type buffer struct {
	g      *gpu
	ptr    C.pp_ptr
	host   unsafe.Pointer
	pinned bool
	bytes  int64
}

func (g *gpu) Alloc(bytes int64) (Buffer, error) {
	b := &buffer{g: g, bytes: bytes}
	var e C.pp_error
	if C.pp_alloc(g.ctx, C.size_t(bytes), &b.ptr, &e) != 0 {
		return nil, g.fail(&e)
	}
	return b, nil
}

func (g *gpu) AllocHost(bytes int64, pinned bool) (Buffer, error) {
	b := &buffer{g: g, bytes: bytes, pinned: pinned}
	var e C.pp_error
	if pinned {
		if C.pp_host_alloc(g.ctx, C.size_t(bytes), &b.host, &b.ptr, &e) != 0 {
			return nil, g.fail(&e)
		}
		return b, nil
	}
	if b.host = C.calloc(1, C.size_t(bytes)); b.host == nil {
		return nil, fmt.Errorf("the host has no %d bytes of memory", bytes)
	}
	clear(unsafe.Slice((*byte)(b.host), bytes)) // so that the pages are there
	return b, nil
}

func (b *buffer) Bytes() int64 { return b.bytes }

func (b *buffer) Close() error {
	var e C.pp_error
	switch {
	case b.g.closed:
	case b.host == nil:
		if C.pp_free(b.g.ctx, b.ptr, &e) != 0 {
			return b.g.fail(&e)
		}
	case b.pinned:
		if C.pp_host_free(b.g.ctx, b.host, &e) != 0 {
			return b.g.fail(&e)
		}
	default:
		C.free(b.host)
	}
	return nil
}

// at is a buffer's address on the device; 0 of none.
func at(b Buffer) C.pp_ptr {
	if b, ok := b.(*buffer); ok && b != nil {
		return b.ptr
	}
	return 0
}

func (g *gpu) Write(dst Buffer, data []byte) error {
	if int64(len(data)) > dst.Bytes() {
		return fmt.Errorf("%d bytes do not go into a buffer of %d", len(data), dst.Bytes())
	}
	if len(data) == 0 {
		return nil
	}
	var e C.pp_error
	if C.pp_write(g.ctx, at(dst), unsafe.Pointer(&data[0]), C.size_t(len(data)), &e) != 0 {
		return g.fail(&e)
	}
	return nil
}

func (g *gpu) Read(src Buffer, bytes int64) ([]byte, error) {
	if bytes > src.Bytes() {
		return nil, fmt.Errorf("a buffer of %d bytes does not hold %d", src.Bytes(), bytes)
	}
	out := make([]byte, bytes)
	if bytes == 0 {
		return out, nil
	}
	var e C.pp_error
	if C.pp_read(g.ctx, unsafe.Pointer(&out[0]), at(src), C.size_t(bytes), &e) != 0 {
		return nil, g.fail(&e)
	}
	return out, nil
}

// stream is a CUDA stream.
type stream struct {
	g *gpu
	s C.pp_stream
}

func (g *gpu) Stream() (Stream, error) {
	s := &stream{g: g}
	var e C.pp_error
	if C.pp_stream_create(g.ctx, &s.s, &e) != 0 {
		return nil, g.fail(&e)
	}
	return s, nil
}

func (s *stream) GPU() GPU { return s.g }

func (s *stream) Sync() error {
	var e C.pp_error
	if C.pp_stream_sync(s.g.ctx, s.s, &e) != 0 {
		return s.g.fail(&e)
	}
	return nil
}

func (s *stream) Close() error {
	if s.g.closed {
		return nil
	}
	var e C.pp_error
	if C.pp_stream_destroy(s.g.ctx, s.s, &e) != 0 {
		return s.g.fail(&e)
	}
	return nil
}

// mark is an event; it goes back to its GPU when closed.
type mark struct {
	g *gpu
	e C.pp_event
}

func (s *stream) Mark() (Mark, error) {
	m := &mark{g: s.g}
	if n := len(s.g.events); n > 0 {
		m.e, s.g.events = s.g.events[n-1], s.g.events[:n-1]
	}
	var e C.pp_error
	if C.pp_event_record(s.g.ctx, s.s, &m.e, &e) != 0 {
		return nil, s.g.fail(&e)
	}
	return m, nil
}

func (m *mark) Since(earlier Mark) (float64, error) {
	o, ok := earlier.(*mark)
	if !ok || o.g != m.g {
		return 0, errors.New("marks of different GPUs cannot be compared")
	}
	var ms C.float
	var e C.pp_error
	if C.pp_event_elapsed(m.g.ctx, o.e, m.e, &ms, &e) != 0 {
		return 0, m.g.fail(&e)
	}
	return float64(ms) * 1e-3, nil
}

func (m *mark) Close() error {
	m.g.events = append(m.g.events, m.e)
	return nil
}

// gateSource holds a stream until the host's counter reaches a ticket. After the
// limit it gives up and says so, lest a full queue hang the GPU.
const gateSource = `
extern "C" __global__ void gate(volatile unsigned *counter, unsigned ticket, unsigned long long limit) {
	unsigned long long start, now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	while (counter[0] < ticket) {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
		if (now - start > limit) { counter[1] = ticket; break; }
	}
}`

// gateLimit is how long a gate holds, in nanoseconds.
const gateLimit = 2_000_000_000

// gate is a counter in host memory that all GPUs see.
type gate struct {
	counter *buffer
	ticket  uint32
	ops     map[*stream]*launch
}

func (g *gpu) Gate() (Gate, error) {
	if err := g.d.needs("libnvrtc"); err != nil {
		return nil, err
	}
	b, err := g.AllocHost(64, true)
	if err != nil {
		return nil, err
	}
	return &gate{counter: b.(*buffer), ticket: 1, ops: map[*stream]*launch{}}, nil
}

func (t *gate) Hold(s Stream) error {
	st := s.(*stream)
	l := t.ops[st]
	if l == nil {
		op, err := st.g.Kernel(st, Kernel{Source: gateSource, Name: "gate", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1},
			Args: []any{Buffer(t.counter), uint32(0), uint64(gateLimit)}})
		if err != nil {
			return err
		}
		l = op.(*launch)
		t.ops[st] = l
		// The first launch loads the kernel, which may wait for other streams.
		if err := l.Enqueue(1); err != nil {
			return err
		}
		if err := st.Sync(); err != nil {
			return err
		}
	}
	l.setArg(1, t.ticket)
	return l.Enqueue(1)
}

func (t *gate) Release() (bool, error) {
	p := (*C.uint32_t)(t.counter.host)
	gaveUp := (*C.uint32_t)(unsafe.Add(t.counter.host, 4))
	held := uint32(C.pp_load(gaveUp)) != t.ticket
	C.pp_store(p, C.uint32_t(t.ticket))
	t.ticket++
	runtime.KeepAlive(t)
	return held, nil
}

func (t *gate) Close() error {
	for _, l := range t.ops {
		l.Close()
	}
	return t.counter.Close()
}
