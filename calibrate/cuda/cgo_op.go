//go:build cgo && linux

package cuda

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"
)

// launch is a kernel launch with its arguments in C memory.
type launch struct {
	s *stream
	l C.pp_launch
	n int // arguments
}

// supported are the compute capabilities that the compiler knows; none where it does not say.
func supported() []int {
	var list [64]C.int
	n := C.pp_architectures(&list[0], C.int(len(list)))
	var out []int
	for _, c := range list[:n] {
		out = append(out, int(c))
	}
	return out
}

// module compiles a source for the GPU, once.
func (g *gpu) module(source string) (C.pp_module, error) {
	if m, ok := g.modules[source]; ok {
		return m, nil
	}
	if err := g.d.needs("libnvrtc"); err != nil {
		return nil, err
	}
	text, arch := C.CString(source), C.CString("--gpu-architecture="+g.dev.Architecture(supported()))
	defer C.free(unsafe.Pointer(text))
	defer C.free(unsafe.Pointer(arch))
	var cubin, log *C.char
	var size C.size_t
	var m C.pp_module
	var e C.pp_error
	failed := C.pp_compile(text, arch, &cubin, &size, &log, &e) != 0
	defer C.free(unsafe.Pointer(cubin))
	defer C.free(unsafe.Pointer(log))
	if failed {
		err := g.fail(&e)
		if log != nil {
			err = fmt.Errorf("%w\n%s", err, strings.TrimRight(C.GoString(log), "\n"))
		}
		return nil, err
	}
	if C.pp_module_load(g.ctx, cubin, &m, &e) != 0 {
		return nil, g.fail(&e)
	}
	g.modules[source] = m
	return m, nil
}

func (g *gpu) Kernel(s Stream, k Kernel) (Op, error) {
	m, err := g.module(k.Source)
	if err != nil {
		return nil, err
	}
	l := &launch{s: s.(*stream), n: len(k.Args)}
	name := C.CString(k.Name)
	defer C.free(unsafe.Pointer(name))
	var e C.pp_error
	if C.pp_function_get(g.ctx, m, name, &l.l.f, &e) != 0 {
		return nil, fmt.Errorf("kernel %s: %w", k.Name, g.fail(&e))
	}
	for i := range 3 {
		l.l.grid[i], l.l.block[i] = C.uint(k.Grid[i]), C.uint(k.Block[i])
	}
	var values [][]byte
	for _, a := range k.Args {
		v, err := bytesOf(a)
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.Name, err)
		}
		values = append(values, v)
	}
	l.store(values)
	return l, nil
}

// bytesOf is an argument as the kernel gets it.
func bytesOf(a any) ([]byte, error) {
	le := binary.LittleEndian
	switch v := a.(type) {
	case Buffer:
		return le.AppendUint64(nil, uint64(at(v))), nil
	case int32:
		return le.AppendUint32(nil, uint32(v)), nil
	case uint32:
		return le.AppendUint32(nil, v), nil
	case int64:
		return le.AppendUint64(nil, uint64(v)), nil
	case uint64:
		return le.AppendUint64(nil, v), nil
	case float32:
		return le.AppendUint32(nil, math.Float32bits(v)), nil
	case []byte:
		return v, nil
	}
	return nil, fmt.Errorf("an argument of type %T; use Buffer, int32, uint32, int64, uint64, float32 or []byte", a)
}

// argAlign is the alignment of each argument in memory.
const argAlign = 16

// store puts the arguments into one piece of C memory: the addresses, then the
// values.
func (l *launch) store(values [][]byte) {
	head := (len(values)*8 + argAlign - 1) / argAlign * argAlign
	size := head
	for _, v := range values {
		size += (len(v) + argAlign - 1) / argAlign * argAlign
	}
	p := C.malloc(C.size_t(size + argAlign))
	l.l.args = (*unsafe.Pointer)(p)
	addresses := unsafe.Slice((*unsafe.Pointer)(p), max(len(values), 1))
	offset := head
	for i, v := range values {
		addresses[i] = unsafe.Add(p, offset)
		copy(unsafe.Slice((*byte)(addresses[i]), len(v)), v)
		offset += (len(v) + argAlign - 1) / argAlign * argAlign
	}
}

// setArg changes a 32-bit argument for later launches.
func (l *launch) setArg(i int, v uint32) {
	*(*uint32)(unsafe.Slice((*unsafe.Pointer)(unsafe.Pointer(l.l.args)), l.n)[i]) = v
}

func (l *launch) Enqueue(n int) error {
	var e C.pp_error
	if C.pp_launch_kernel(l.s.g.ctx, l.s.s, &l.l, C.int(n), &e) != 0 {
		return l.s.g.fail(&e)
	}
	return nil
}

func (l *launch) Close() error {
	C.free(unsafe.Pointer(l.l.args))
	l.l.args = nil
	return nil
}

// multiplication is a prepared cublasLtMatmul.
type multiplication struct {
	s *stream
	g C.pp_gemm
}

func (g *gpu) GEMM(s Stream, spec GEMM) (Op, error) {
	if err := g.d.needs("libcublasLt"); err != nil {
		return nil, err
	}
	m, err := spec.multiply()
	if err != nil {
		return nil, err
	}
	a, b, c := spec.Sizes()
	w := Width(spec.DType)
	out := w
	if spec.DType == "fp8" {
		out = 2
	}
	if spec.A.Bytes() < a*w || spec.B.Bytes() < b*w || spec.C.Bytes() < c*out {
		return nil, fmt.Errorf("GEMM %d×%d×%d %s: the buffers are too small", spec.M, spec.N, spec.K, spec.DType)
	}
	var e C.pp_error
	if g.lt == nil {
		if C.pp_lt_create(g.ctx, &g.lt, &e) != 0 {
			return nil, g.fail(&e)
		}
	}
	t := C.pp_gemm_spec{
		type_in: C.int(m.dataIn), type_out: C.int(m.dataOut), compute: C.int(m.compute),
		trans_a: cbool(m.transA), trans_b: cbool(m.transB), fast_accum: cbool(m.fastAccumulate),
		rows_a: C.uint64_t(m.a[0]), cols_a: C.uint64_t(m.a[1]), rows_b: C.uint64_t(m.b[0]), cols_b: C.uint64_t(m.b[1]),
		rows_d: C.uint64_t(m.d[0]), cols_d: C.uint64_t(m.d[1]),
		pa: at(spec.B), pb: at(spec.A), pd: at(spec.C), // exchanged: see multiply
		scale: at(spec.Scale), workspace: at(spec.Workspace),
	}
	if spec.Workspace != nil {
		t.workspace_size = C.size_t(spec.Workspace.Bytes())
	}
	if spec.DType != "fp8" {
		t.scale = 0
	} else if t.scale == 0 {
		return nil, errors.New("a GEMM of fp8 needs a scale")
	}
	op := &multiplication{s: s.(*stream)}
	if C.pp_gemm_create(g.ctx, g.lt, &t, &op.g, &e) != 0 {
		return nil, fmt.Errorf("GEMM %d×%d×%d %s %s: %w", spec.M, spec.N, spec.K, spec.Layout, spec.DType, g.fail(&e))
	}
	return op, nil
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func (m *multiplication) Enqueue(n int) error {
	var e C.pp_error
	if C.pp_gemm_run(m.s.g.ctx, m.s.s, &m.g, C.int(n), &e) != 0 {
		return m.s.g.fail(&e)
	}
	return nil
}

func (m *multiplication) Close() error {
	C.pp_gemm_destroy(&m.g)
	return nil
}

// transfer is a copy, or a fill when src is nil.
type transfer struct {
	s        *stream
	dst, src *buffer
	bytes    int64
}

func (g *gpu) Copy(s Stream, dst, src Buffer, bytes int64) (Op, error) {
	t := &transfer{s.(*stream), dst.(*buffer), src.(*buffer), bytes}
	if bytes > dst.Bytes() || bytes > src.Bytes() {
		return nil, fmt.Errorf("a copy of %d bytes from a buffer of %d to one of %d", bytes, src.Bytes(), dst.Bytes())
	}
	if t.dst.host != nil && t.src.host != nil {
		return nil, errors.New("a copy from host to host is not the GPU's")
	}
	return t, nil
}

func (g *gpu) Fill(s Stream, dst Buffer, bytes int64) (Op, error) {
	if bytes > dst.Bytes() {
		return nil, fmt.Errorf("a fill of %d bytes in a buffer of %d", bytes, dst.Bytes())
	}
	return &transfer{s: s.(*stream), dst: dst.(*buffer), bytes: bytes}, nil
}

func (t *transfer) Enqueue(n int) error {
	var e C.pp_error
	var code C.int
	c, s, bytes := t.s.g.ctx, t.s.s, C.size_t(t.bytes)
	switch {
	case t.src == nil:
		code = C.pp_fill(c, s, t.dst.ptr, bytes, C.int(n), &e)
	case t.src.host != nil:
		code = C.pp_copy(c, s, 1, t.src.host, t.dst.ptr, 0, bytes, C.int(n), &e)
	case t.dst.host != nil:
		code = C.pp_copy(c, s, 2, t.dst.host, 0, t.src.ptr, bytes, C.int(n), &e)
	default:
		code = C.pp_copy(c, s, 0, nil, t.dst.ptr, t.src.ptr, bytes, C.int(n), &e)
	}
	if code != 0 {
		return t.s.g.fail(&e)
	}
	return nil
}

func (t *transfer) Close() error { return nil }

// replay is graphs, one for each stream, that are launched together.
type replay struct {
	g  []*gpu
	c  []C.pp_context
	s  []C.pp_stream
	ex []C.pp_graph_exec
}

// capture records n executions of an op on its streams.
func capture(streams []*stream, op Op, n int) (Op, error) {
	r := &replay{}
	var e C.pp_error
	var begun []*stream
	var err error
	for _, s := range streams {
		if C.pp_capture_begin(s.g.ctx, s.s, &e) != 0 {
			err = s.g.fail(&e)
			break
		}
		begun = append(begun, s)
	}
	if err == nil {
		err = op.Enqueue(n)
	}
	for _, s := range begun {
		var ex C.pp_graph_exec
		if C.pp_capture_end(s.g.ctx, s.s, cbool(err == nil), &ex, &e) != 0 && err == nil {
			err = s.g.fail(&e)
		}
		if ex != nil {
			r.g, r.c, r.s, r.ex = append(r.g, s.g), append(r.c, s.g.ctx), append(r.s, s.s), append(r.ex, ex)
		}
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (g *gpu) Capture(s Stream, op Op, n int) (Op, error) {
	return capture([]*stream{s.(*stream)}, op, n)
}

func (r *replay) Enqueue(n int) error {
	var e C.pp_error
	if C.pp_graph_launch(C.int(len(r.ex)), &r.c[0], &r.s[0], &r.ex[0], C.int(n), &e) != 0 {
		return failure(&e, r.g[0].dev.Index)
	}
	return nil
}

func (r *replay) Close() error {
	var first error
	for i, ex := range r.ex {
		var e C.pp_error
		if C.pp_graph_free(r.c[i], ex, &e) != 0 && first == nil {
			first = r.g[i].fail(&e)
		}
	}
	r.ex = nil
	return first
}
