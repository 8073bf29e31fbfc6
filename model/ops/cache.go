package ops

import (
	"slices"

	"github.com/perfplan/perfplan/model"
)

// Cache keeps units for further models: layers do not depend on how a pipeline ends, nor on
// whether others are recomputed, too. Models share them, and must leave them as they are. The
// zero value is ready; it must not be shared between goroutines.
type Cache struct {
	layers map[layerKey]Unit
	heads  map[Config][2]Unit
}

// layerKey is what a layer depends on.
type layerKey struct {
	Config
	kind model.LayerKind
}

// mostCached is how many units a Cache keeps of each sort, at some 40 KB each.
const mostCached = 64

// keep keeps one more unit, and all others only while there is room.
func keep[K comparable, V any](kept *map[K]V, key K, unit V) V {
	if len(*kept) >= mostCached {
		clear(*kept)
	} else if *kept == nil {
		*kept = map[K]V{}
	}
	(*kept)[key] = unit
	return unit
}

// layer is buildLayers, for one layer from the cache.
func (x *Cache) layer(c Config, kinds []model.LayerKind, params model.Parameters) Unit {
	if len(kinds) > 1 {
		return buildLayers(c, kinds, params)
	}
	c.LossApart, c.Partly, c.Bucket = false, false, 0
	key := layerKey{c, kinds[0]}
	if u, ok := x.layers[key]; ok {
		return u
	}
	return keep(&x.layers, key, buildLayers(c, kinds, params))
}

// head is buildHead, from the cache.
func (x *Cache) head(c Config, params model.Parameters) (head, loss Unit) {
	c.Partly, c.Bucket = false, 0
	u, ok := x.heads[c]
	if !ok {
		head, loss := buildHead(c, params)
		u = keep(&x.heads, c, [2]Unit{head, loss})
	}
	return u[0], u[1]
}

// Build is ops.Build with the units that the cache has.
func (x *Cache) Build(c Config) *Model {
	m := &Model{}
	params := c.Spec.Tensors()
	if c.Spec.Vision != nil {
		m.Encoder, m.Encodes = buildVision(c)
	}
	if c.Spec.Encoder != nil {
		m.Encoder, m.Encodes = x.encodesText(c)
		m.Embedding = buildEntry(c, params.Embedding)
	} else {
		m.Embedding = buildEmbedding(c, params.Embedding)
	}
	together := int(max(c.Together, 1))
	kept := c
	kept.Recompute = NoRecompute
	var known [][]model.LayerKind
	m.Layers = make([]int, int(c.Spec.Layers)/together)
	for i := range m.Layers {
		kinds := make([]model.LayerKind, together)
		for n := range kinds {
			kinds[n] = c.Spec.Kind(int64(i*together + n))
		}
		k := slices.IndexFunc(known, func(x []model.LayerKind) bool { return slices.Equal(x, kinds) })
		if k < 0 {
			k = len(m.Kinds)
			known = append(known, kinds)
			m.Kinds = append(m.Kinds, x.layer(c, kinds, params))
			if c.Partly {
				m.Kinds[k].Name = "recomputed " + m.Kinds[k].Name
				m.Kept = append(m.Kept, x.layer(kept, kinds, params))
			}
		}
		m.Layers[i] = k
	}
	m.Head, m.Loss = x.head(c, params)
	if c.Bucket > 0 {
		x.cut(c, m, params)
	}
	return m
}
