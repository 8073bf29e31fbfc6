//go:build cgo && linux

package cuda

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// comm is the local members of a group.
type comm struct {
	g       C.pp_group
	streams []*stream
}

// maxMembers is how many local GPUs a group of shim.h holds.
const maxMembers = 64

func (d *driver) CommID() ([]byte, error) {
	if err := d.needs("libnccl"); err != nil {
		return nil, err
	}
	var id C.pp_nccl_id
	var e C.pp_error
	if C.pp_nccl_new_id(&id, &e) != 0 {
		return nil, failure(&e, -1)
	}
	return C.GoBytes(unsafe.Pointer(&id), C.int(unsafe.Sizeof(id))), nil
}

func (d *driver) Join(id []byte, ranks int, members []Member) (Comm, error) {
	if err := d.needs("libnccl"); err != nil {
		return nil, err
	}
	var cid C.pp_nccl_id
	if len(id) != int(unsafe.Sizeof(cid)) {
		return nil, fmt.Errorf("an identity of a group has %d bytes, not %d", unsafe.Sizeof(cid), len(id))
	}
	if len(members) == 0 || len(members) > maxMembers || len(members) > ranks {
		return nil, fmt.Errorf("%d local members in a group of %d; 1 to %d are possible", len(members), ranks, min(maxMembers, ranks))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&cid)), len(id)), id)
	c := &comm{}
	c.g.members, c.g.ranks = C.int(len(members)), C.int(ranks)
	for i, m := range members {
		s := m.Stream.(*stream)
		c.streams = append(c.streams, s)
		c.g.rank[i], c.g.context[i], c.g.stream[i] = C.int(m.Rank), s.g.ctx, s.s
	}
	var e C.pp_error
	if C.pp_nccl_join(&c.g, &cid, &e) != 0 {
		return nil, failure(&e, c.streams[0].g.dev.Index)
	}
	return c, nil
}

func (c *comm) Close() error {
	var e C.pp_error
	if C.pp_nccl_leave(&c.g, &e) != 0 {
		return failure(&e, c.streams[0].g.dev.Index)
	}
	return nil
}

// collective is an operation of a group.
type collective struct {
	c *comm
	k C.pp_collective
}

// The number of bf16 in ncclDataType_t.
const ncclBFloat16 = 9

func (c *comm) Collective(o Collective) (Op, error) {
	number := -1
	for i, n := range Collectives {
		if n == o.Op {
			number = i
		}
	}
	if number < 0 {
		return nil, fmt.Errorf("there is no collective %q; use one of %v", o.Op, Collectives)
	}
	if len(o.In) != len(c.streams) || len(o.Out) != len(c.streams) {
		return nil, fmt.Errorf("%s of %d local members with %d and %d buffers", o.Op, len(c.streams), len(o.In), len(o.Out))
	}
	op := &collective{c: c}
	op.k.op, op.k._type, op.k.width = C.int(number), ncclBFloat16, 2
	op.k.count = C.size_t(o.Bytes) / op.k.width
	for i := range c.streams {
		if o.In[i].Bytes() < o.Bytes || o.Out[i].Bytes() < o.Bytes {
			return nil, fmt.Errorf("%s of %d bytes: the buffers are too small", o.Op, o.Bytes)
		}
		op.k.in[i], op.k.out[i] = at(o.In[i]), at(o.Out[i])
	}
	return op, nil
}

func (o *collective) Enqueue(n int) error {
	var e C.pp_error
	if C.pp_nccl_run(&o.c.g, &o.k, C.int(n), &e) != 0 {
		return failure(&e, o.c.streams[0].g.dev.Index)
	}
	return nil
}

func (o *collective) Close() error { return nil }

func (c *comm) Capture(op Op, n int) (Op, error) { return capture(c.streams, op, n) }
