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
)

// oldestDNN is the first version of cuDNN that clears what its backward pass sums into
// (cudnn-frontend does it before).
const oldestDNN = 90600

// fused is a prepared plan of cuDNN.
type fused struct {
	s       *stream
	g       C.pp_dnn
	scratch []Buffer
}

func (g *gpu) Attention(s Stream, a Attention) (Op, error) {
	if err := g.d.needs("libcudnn"); err != nil {
		return nil, err
	}
	version := int(C.pp_cudnn_version())
	if version < oldestDNN {
		return nil, &Unavailable{fmt.Sprintf("cuDNN %s is too old for attention; install %s or later", dotted(version), dotted(oldestDNN))}
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	var e C.pp_error
	if g.dnn == nil {
		if C.pp_dnn_create_handle(g.ctx, &g.dnn, &e) != 0 {
			return nil, g.fail(&e)
		}
	}
	op := &fused{s: s.(*stream)}
	graph := a.graph(version)
	tensors := make([]C.pp_dnn_tensor, len(graph.tensors))
	for i, t := range graph.tensors {
		c := &tensors[i]
		*c = C.pp_dnn_tensor{_type: C.int(t.dtype), data: at(t.buffer)}
		elements := int64(1)
		for k := range t.dims {
			c.dims[k], c.strides[k] = C.int64_t(t.dims[k]), C.int64_t(t.strides[k])
			elements *= t.dims[k]
		}
		switch {
		case t.value != nil:
			c.by_value, c.value = 1, C.float(*t.value)
		case t.scratch:
			b, err := g.Alloc(elements * 4)
			if err != nil {
				return nil, errors.Join(err, op.Close())
			}
			op.scratch = append(op.scratch, b)
			c.data = at(b)
		case t.buffer == nil:
			c.virtual = 1
		}
	}
	ops := make([]C.pp_dnn_op, len(graph.ops))
	for i, o := range graph.ops {
		ops[i] = C.pp_dnn_op{kind: C.int(o.kind), mode: C.int(o.mode), axis: C.int(o.axis), _type: C.int(o.compute),
			x: C.int(o.x), b: C.int(o.b), t: C.int(o.t), y: C.int(o.y)}
	}
	if C.pp_dnn_create(g.ctx, g.dnn, C.int(len(tensors)), &tensors[0], C.int(len(ops)), &ops[0], &op.g, &e) != 0 {
		return nil, errors.Join(fmt.Errorf("%v: %w", a, g.fail(&e)), op.Close())
	}
	return op, nil
}

func (f *fused) Enqueue(n int) error {
	var e C.pp_error
	if C.pp_dnn_run(f.s.g.ctx, f.s.s, f.g, C.int(n), &e) != 0 {
		return f.s.g.fail(&e)
	}
	return nil
}

func (f *fused) Close() error {
	C.pp_dnn_destroy(f.s.g.ctx, f.g)
	f.g = nil
	var errs []error
	for _, b := range f.scratch {
		errs = append(errs, b.Close())
	}
	f.scratch = nil
	return errors.Join(errs...)
}
