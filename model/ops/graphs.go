package ops

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
)

// firstGraph is what the last graph of a compiled module holds at least, whatever DDP's own first bucket
// does: DDPOptimizer is made without first_bucket_cap, and takes torch.distributed._DEFAULT_FIRST_BUCKET_BYTES.
const firstGraph = units.MiB

// graphs cuts what is compiled under PyTorch's DDP as DDPOptimizer does (torch/_dynamo/backends/distributed.py
// of 2.11, compile_fn): it walks operations from the last to the first and adds up the parameters that they
// read, a tied one each time. Once they fill a bucket, the operation before begins another graph.
type graphs struct {
	held, least, limit units.Bytes
	n                  byte // graphs behind this one
}

func newGraphs(bucket units.Bytes) *graphs {
	return &graphs{least: min(firstGraph, bucket), limit: bucket}
}

// add is the graph of the operation before, which reads so much.
func (g *graphs) add(b units.Bytes) byte {
	if g.held >= g.least {
		g.n, g.held, g.least = g.n+1, 0, g.limit
	}
	g.held += b
	return g.n
}

// unit is the graph that reads each parameter of a unit, from 0 for the last of the unit's; "": all are one.
func (g *graphs) unit(u *Unit, size units.Bytes) string {
	var read []int
	for i := range u.Params {
		if u.Params[i].Used && !u.biases(i) {
			read = append(read, i)
		}
	}
	slices.SortFunc(read, func(a, b int) int { return u.Params[b].Order - u.Params[a].Order })
	of := make([]byte, len(u.Params))
	var last byte
	for n, i := range read {
		b := u.Params[i].trained(size)
		if u.biases(i + 1) { // which the same operation reads
			b += u.Params[i+1].trained(size)
		}
		at := g.add(b)
		if n == 0 {
			last = at
		}
		of[i] = at - last
	}
	if !slices.ContainsFunc(of, func(n byte) bool { return n > 0 }) {
		return ""
	}
	return string(of)
}

// biases reports whether parameter i is the bias of the one before.
func (u *Unit) biases(i int) bool {
	return 0 < i && i < len(u.Params) && u.Params[i].Role == u.Params[i-1].Role.Bias()
}

// trained is what gradients of the parameter fill of a bucket.
func (p *Param) trained(size units.Bytes) units.Bytes {
	if p.Frozen {
		return 0
	}
	return units.Bytes(p.Local) * size
}

// cut builds the units of a model anew that DDP's buckets cut.
func (x *Cache) cut(c Config, m *Model, params model.Parameters) {
	size, g := c.Precision.Weights.Size(), newGraphs(c.Bucket)
	if c.LayerRecipe == nil {
		c.graphs = g.unit(&m.Head, size)
		m.Head, m.Loss = x.head(c, params)
	}
	keys := make([]layerKey, len(m.Layers)) // of each layer
	for i := len(keys) - 1; i >= 0; i-- {
		if c.LayerRecipe != nil { // compiled by itself
			g = newGraphs(c.Bucket)
		}
		c.graphs = g.unit(&m.Kinds[m.Layers[i]], size)
		keys[i] = layerKey{c, c.Spec.Kind(int64(i))}
	}
	var known []layerKey
	m.Kinds = nil
	for i, key := range keys {
		k := slices.Index(known, key)
		if k < 0 {
			k = len(known)
			known = append(known, key)
			m.Kinds = append(m.Kinds, x.layer(key.Config, []model.LayerKind{key.kind}, params))
		}
		m.Layers[i] = k
	}
}

// graph is the graph that reads the parameter of a role, of those that make up the unit.
func (b *builder) graph(r model.Role) byte {
	if i, ok := b.roles[r]; ok && i < len(b.graphs) {
		return b.graphs[i]
	}
	return 0
}

// readers are the projections that read what a norm made.
var readers = map[model.Role][]model.Role{
	model.RoleNorm1:     {model.RoleQKV, model.RoleQ, model.RoleK, model.RoleV, model.RoleOGate, model.RoleQDown, model.RoleQUp, model.RoleKVDown},
	model.RoleNorm2:     {model.RoleGateUp, model.RoleGate, model.RoleUp},
	model.RoleFinalNorm: {model.RoleHead},
}

// handsOn reports whether a graph behind the norm's reads what that makes, so that it leaves the one as it is, and is
// cast in the other.
func (b *builder) handsOn(norm model.Role) bool {
	return slices.ContainsFunc(readers[norm], func(r model.Role) bool { return b.has(r) && b.graph(r) != b.graph(norm) })
}
