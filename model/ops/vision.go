package ops

import (
	"slices"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// buildVision records the units of the encoder of images, and the order in which they run.
func buildVision(c Config) (units []Unit, order []int) {
	v := c.Spec.Vision
	params := v.Tensors(c.Spec.Hidden)
	e := c.encoder()
	patches, out := buildPatches(e, v, params.Patches)
	e.stream, e.planes, e.fixed = out.DType(), !out.Flat(), v.FrozenEncoder
	units, order = append(units, patches), append(order, 0)
	at, inner := map[model.LayerKind]int{}, 0
	for i := range v.Used() {
		k := v.Encoder.Kind(i)
		if _, built := at[k]; !built {
			u := buildLayers(e, []model.LayerKind{k}, params.Layers)
			u.Name = "vision " + u.Name
			at[k] = len(units)
			units = append(units, u)
		}
		order = append(order, at[k])
		if slices.Contains(v.Deep, i) {
			if i == v.Deep[0] {
				inner = len(units)
				units = append(units, buildInner(e, params.Deep))
			}
			order = append(order, inner)
		}
	}
	order = append(order, len(units))
	return append(units, buildProjector(e, c.Spec, params)), order
}

// encoder is the configuration of the encoder's layers: its patches are whole on every
// context rank, and it has no experts.
func (c Config) encoder() Config {
	v := c.Spec.Vision
	images := c.MicroBatch * v.Each
	c.vision, c.Spec = v, v.Encoder
	c.MicroBatch, c.Sequence = images, v.Positions()
	if v.Packed {
		c.MicroBatch, c.Sequence = 1, images*v.Positions()
	}
	c.Document, c.Together, c.Partly = 0, 1, false
	c.Shard = Shard{TP: c.Shard.TP, CP: 1, EP: 1, ExpertTP: 1}
	if v.FrozenEncoder || c.Recompute == SelectiveRecompute {
		c.Recompute = NoRecompute
	}
	return c
}

// images are those of a micro batch, by what the encoder's configuration has.
func (b *builder) images() int64 {
	if b.vision.Packed {
		return b.Sequence / b.vision.Positions()
	}
	return b.MicroBatch
}

// hosted is what the host does n times beside the kernels of the encoder of images.
func (b *builder) hosted(n int64, h recipe.Hosted) {
	b.t.Tiny("image", int(n)*h.Kernels)
	for range int(n) * h.Waits {
		b.t.Wait()
	}
}

// buildPatches makes the encoder's tokens of pixels. It returns these, too.
func buildPatches(c Config, v *model.Vision, tensors []model.Tensor) (u Unit, made tape.Tensor) {
	b := newBuilder(c, tensors)
	t, h := b.t, b.recipe.Images[c.Spec.ModelType]
	t.Module = "patches"
	images := b.images()
	pixels := v.Channels * v.Frames * v.Patch * v.Patch
	batch, patches := images, v.Patches()
	if v.Packed {
		batch, patches = 1, images*v.Patches()
	}
	x := t.Outside(tape.F32, batch, patches, pixels)
	x = b.give(x, t.To(x, b.weight))
	b.hosted(1, h.Pass)
	b.hosted(images, h.Image)
	t.Call()
	y := t.Patches(x, b.p(model.RolePatches), b.p(model.RolePatches.Bias()), !v.Packed)
	t.Release(x)
	switch {
	case v.Grid: // the four of the table around each patch, weighed
		x := t.Embedding(t.Outside(tape.I64, patches, 4), b.p(model.RolePosition))
		x = b.give(x, t.Mul(x, t.Outside(tape.F32, patches, 4, 1)))
		x = b.give(x, t.Reshape(x, patches*4, c.Spec.Hidden))
		x = b.give(x, t.SumGroups(x, 4))
		x = b.give(x, t.Reshape(x, 1, patches, c.Spec.Hidden))
		x = b.give(x, t.To(x, y.DType()))
		z := t.Add(y, x)
		t.Release(x)
		y = b.give(y, z)
	case v.Rows > 0:
		if v.Class {
			y = b.give(y, t.Prepend(y, b.p(model.RoleClass)))
		}
		x := t.Embedding(t.Outside(tape.I64, 1, v.Rows), b.p(model.RolePosition))
		z := t.Add(y, x)
		t.Release(x)
		y = b.give(y, z)
	}
	if b.has(model.RoleEmbedNorm) {
		y = b.give(y, b.norm(y, model.RoleEmbedNorm, true))
	}
	t.Module = "rotary"
	b.hosted(1, h.Tables)
	if v.Encoder.Window > 0 { // windows are brought side by side
		y = b.give(y, t.Reshape(y, patches, c.Spec.Hidden))
		y = b.give(y, t.Rows(y, patches, 1))
		y = b.give(y, t.Reshape(y, 1, patches, c.Spec.Hidden))
	}
	made = *y
	return b.finish("vision patches", nil, y), made
}

// look runs attention of one sequence of all images' patches on the normed input h, which it
// borrows: each image, or each window of it, sees itself.
func (b *builder) look(h *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	t, s := b.t, b.Spec
	t.Call()
	t.Module = "attention"
	in := b.block(h, model.RoleQKV)
	heads, _ := b.heads()
	n, width := in.Dim(1), s.HeadDim
	qkv := b.column(in, model.RoleQKV)
	t.Release(in)
	var x []*tape.Tensor
	if b.recipe.Structure.FusedQKV { // whose parts are not brought to the front
		x = t.Split(qkv, heads*width, heads*width, heads*width)
	} else {
		x = t.Unbind(qkv)
	}
	t.Release(qkv)
	t.Module = "rotary"
	for i := range x {
		x[i] = b.give(x[i], t.Reshape(x[i], 1, n, heads, width))
		switch {
		case i == 2:
			x[i] = b.give(x[i], t.Transpose(x[i], 1, 2))
		case b.program("rotary_wide"):
			cos, sin := t.Outside(tape.F32, 1, n, 1, width), t.Outside(tape.F32, 1, n, 1, width)
			x[i] = b.give(x[i], b.call("rotary_wide", tensorOf(x[i]), tensorOf(cos), tensorOf(sin))[0].t)
			x[i] = b.give(x[i], t.Transpose(x[i], 1, 2))
		default: // in fp32, too
			d := x[i].DType()
			x[i] = b.give(x[i], t.Transpose(x[i], 1, 2))
			x[i] = b.give(x[i], t.Float(x[i]))
			x[i] = b.give(x[i], b.rotaryApart(x[i], width))
			x[i] = b.give(x[i], t.To(x[i], d))
		}
	}
	t.Module = "attention"
	o := tape.AttentionOptions{Flavour: b.flavour(), Efficient: b.efficient(b.flavour())}
	parts := b.images() * b.vision.Parts(kind)
	apart := b.Attention == "sdpa" && b.recipe.Structure.ImageCalls
	if o.Apart = parts; apart { // a call for each
		o.Apart, o.Calls = 0, parts
		b.hosted(1, recipe.Hosted{Kernels: 1, Waits: 3})
		for i := range x {
			x[i] = b.give(x[i], t.Parted(x[i]))
		}
	}
	y := t.Attention(x[0], x[1], x[2], o)
	t.Release(x...)
	if apart {
		y = b.give(y, t.Assembled(y))
	}
	y = b.give(y, t.Transpose(y, 1, 2))
	y = b.give(y, t.Reshape(y, 1, n, heads*width))
	z := b.row(y, model.RoleO)
	t.Release(y)
	return z
}

// buildInner makes tokens of what an inner layer of the encoder puts out, for a layer of the
// language model.
func buildInner(c Config, tensors []model.Tensor) Unit {
	b := newBuilder(c, tensors)
	t := b.t
	batch, seq, width := b.hiddenDims()
	x := b.input(batch, seq, width)
	k := c.vision.Merge * c.vision.Merge
	y := t.Merged(x, k)
	y = b.give(y, b.norm(y, model.RoleMergeNorm, true))
	y = b.give(y, b.merge2(y))
	z := t.Carry(x, y)
	t.Release(y, x)
	return b.finish("vision inner projector", x, z)
}

// merge2 are the two products of a projector with GELU between them.
func (b *builder) merge2(x *tape.Tensor) *tape.Tensor {
	b.t.Module = "projector"
	in := b.block(x, model.RoleMergeUp)
	y := b.column(in, model.RoleMergeUp)
	b.t.Release(in)
	y = b.give(y, b.call("gelu", tensorOf(y))[0].t)
	return b.give(y, b.row(y, model.RoleMergeDown))
}

// buildProjector makes tokens of what the encoder puts out: [images, tokens, hidden size].
func buildProjector(c Config, text *model.Spec, params model.VisionParameters) Unit {
	v := c.vision
	tensors := slices.Clone(params.Projector)
	for i := v.Used(); i < v.Encoder.Layers; i++ { // whose outputs nothing reads, so that they get no gradients
		for _, p := range params.Layers.Layer(v.Encoder.Kind(i)) {
			p.Frozen = true
			tensors = append(tensors, p)
		}
	}
	b := newBuilder(c, tensors)
	t := b.t
	batch, seq, width := b.hiddenDims()
	x := b.input(batch, seq, width)
	y := t.Hold(x)
	tokens := b.images() * v.Tokens()
	switch v.Projector {
	case model.MergeProjector:
		y = b.give(y, b.norm(y, model.RoleMergeNorm, true))
		y = b.give(y, t.Merged(y, v.Merge*v.Merge))
		y = b.give(y, b.merge2(y))
		if v.Encoder.Window > 0 {
			y = b.give(y, t.Reshape(y, tokens, text.Hidden))
			y = b.give(y, t.Rows(y, tokens, 1))
		}
	case model.MLPProjector:
		idle := t.Detached(x)
		for i := v.Used(); i < v.Encoder.Layers; i++ {
			idle = b.give(idle, b.layer(idle, v.Encoder.Kind(i)))
		}
		t.Release(idle)
		if v.Class {
			y = b.give(y, t.Slice(y, 1, 1, seq))
			y = b.give(y, t.Contiguous(y))
		}
		y = b.give(y, b.merge2(y))
	case model.PoolProjector:
		y = b.give(y, b.norm(y, model.RoleFinalNorm, true))
		t.Module = "projector"
		y = b.give(y, t.Pool(y, v.Merge*v.Merge))
		own := b.Spec
		b.Spec = text
		y = b.give(y, b.norm(y, model.RoleMergeNorm, true))
		b.Spec = own
		t.Module = "projector"
		y = b.give(y, t.Contiguous(y))
		y = b.give(y, t.Linear(y, b.p(model.RoleMergeUp), nil, true))
	}
	y = b.give(y, t.Reshape(y, 1, tokens, text.Hidden))
	if v.Projector != model.PoolProjector { // images' tokens are told apart and joined again
		b.hosted(1, recipe.Hosted{Kernels: 2, Waits: 1})
		y = b.give(y, t.Copied(y))
	}
	t.Release(x)
	return b.finish("vision projector", x, y)
}

// placed puts the tokens of images, which it takes over, where those of text leave room in x.
func (b *builder) placed(x, images *tape.Tensor) *tape.Tensor {
	t, h := b.t, b.recipe.Images[b.Spec.Vision.Encoder.ModelType]
	t.Module = "embedding"
	b.hosted(1, h.Places)
	images = b.give(images, t.To(images, x.DType()))
	y := t.PutImages(x, images, h.Lists)
	t.Release(images)
	b.hosted(b.MicroBatch, h.Sequence)
	b.hosted(b.MicroBatch*b.Spec.Vision.Each, h.Turned)
	if h.Masks > 0 {
		t.Note("image_masks", 1)
	}
	for range h.Masks { // of all pairs of positions
		t.Release(t.BoolMask(b.MicroBatch, b.Sequence))
	}
	return y
}
