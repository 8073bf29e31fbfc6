package model

import (
	"slices"

	"gopkg.in/yaml.v3"
)

// Vision makes tokens of images for a language model: an encoder, whose tokens are
// patches that all see one another, and a projector to the language model's width.
type Vision struct {
	Encoder *Spec // without vocabulary

	Patch     int64 // patch_size: side of a patch in pixels
	Frames    int64 // temporal_patch_size: images that a patch goes through; a still one is repeated
	Channels  int64 // in_channels, num_channels
	PatchBias bool
	Packed    bool  // patches of all images are one sequence, which attention cuts by image (Qwen-VL); else an image is one
	Rows      int64 // of a table of learned positions; 0: none
	Grid      bool  // the table is a square that is interpolated at each image's patches (Qwen3-VL)
	Class     bool  // one token more in front of the patches, and a norm before the layers (CLIP)
	Size      int64 // image_size: side of every image in pixels; 0: any size

	Projector Projector
	Merge     int64   // patches along either side of what becomes a token
	Idle      int64   // layers at the end whose output nothing reads (LLaVA, vision_feature_layer)
	Deep      []int64 // deepstack_visual_indexes: layers whose output is projected, too, for the first layers of the language model

	Images // of a job, no key of a model
}

// Images are those of a job, and which parts of the model it leaves as they are.
type Images struct {
	Each          int64 // of a sequence
	Height, Width int64 // in pixels

	FrozenEncoder, FrozenProjector bool
}

// Projector is how patches become tokens of the language model.
type Projector string

const (
	MergeProjector Projector = "merger" // norm, Merge² patches side by side, two products with GELU between (Qwen-VL)
	MLPProjector   Projector = "mlp"    // two products with GELU between (LLaVA)
	PoolProjector  Projector = "pool"   // mean of Merge² patches, norm, product (Gemma 3)
)

// Of is the encoder for images of a job.
func (v *Vision) Of(i Images) *Vision {
	of := *v
	of.Images = i
	return &of
}

// Sides are the rows and columns of patches of an image.
func (v *Vision) Sides() (rows, columns int64) { return v.Height / v.Patch, v.Width / v.Patch }

// Patches are those of an image.
func (v *Vision) Patches() int64 {
	rows, columns := v.Sides()
	return rows * columns
}

// Tokens are those of an image that the language model reads.
func (v *Vision) Tokens() int64 {
	rows, columns := v.Sides()
	return (rows / v.Merge) * (columns / v.Merge)
}

// Positions are those of an image in the encoder.
func (v *Vision) Positions() int64 {
	if v.Class {
		return v.Patches() + 1
	}
	return v.Patches()
}

// Parts is into how many parts a layer's attention cuts an image: one, or its windows, those
// at the edges as others.
func (v *Vision) Parts(k LayerKind) int64 {
	if !k.Windowed {
		return 1
	}
	rows, columns := v.Sides()
	side := v.windowSide()
	return ((rows + side - 1) / side) * ((columns + side - 1) / side)
}

// Pairs are those of positions of an image that see one another in a layer of kind k.
func (v *Vision) Pairs(k LayerKind) int64 {
	if !k.Windowed {
		return v.Positions() * v.Positions()
	}
	side := v.windowSide()
	squares := func(n int64) int64 { return n/side*side*side + (n%side)*(n%side) } // of the windows' sides along n patches
	rows, columns := v.Sides()
	return squares(rows) * squares(columns)
}

// windowSide is that of a window, in patches.
func (v *Vision) windowSide() int64 {
	side := int64(1)
	for (side+1)*(side+1) <= v.Encoder.Window {
		side++
	}
	return side
}

// Mutual reports whether tokens of an image see one another in the language model, whatever
// their order (Gemma 3).
func (v *Vision) Mutual() bool { return v != nil && v.Projector == PoolProjector }

// Used are the layers of the encoder that something reads the output of.
func (v *Vision) Used() int64 { return v.Encoder.Layers - v.Idle }

// VisionParameters are the parameters of an encoder and its projector by unit.
type VisionParameters struct {
	Patches   []Tensor // patch projection, tables, norm before the layers
	Layers    Parameters
	Projector []Tensor // norm after the layers and projector
	Deep      []Tensor // one of the projectors of inner layers
}

// Tensors lists the parameters of an encoder and of a projector to width hidden.
func (v *Vision) Tensors(hidden int64) VisionParameters {
	e := v.Encoder
	shape := []int64{e.Hidden, v.Channels, v.Patch, v.Patch}
	if v.Packed {
		shape = []int64{e.Hidden, v.Channels, v.Frames, v.Patch, v.Patch}
	}
	p := VisionParameters{Layers: e.Tensors()}
	add := func(to *[]Tensor, frozen bool, name string, r Role, tensors []Tensor) {
		for _, t := range e.named(module{name, r}, tensors) {
			t.Frozen = frozen
			*to = append(*to, t)
		}
	}
	frozen := v.FrozenEncoder
	if v.Class {
		add(&p.Patches, frozen, "embeddings.class_embedding", RoleClass, []Tensor{{Shape: []int64{e.Hidden}}})
	}
	patches := matrix(Replicated, shape...)
	if v.PatchBias {
		patches = append(patches, vector(".bias", Replicated, e.Hidden)...)
	}
	add(&p.Patches, frozen, "patch_embed.proj", RolePatches, patches)
	if v.Rows > 0 {
		add(&p.Patches, frozen, "pos_embed", RolePosition, matrix(Replicated, v.Rows, e.Hidden))
	}
	if v.Class {
		add(&p.Patches, frozen, "pre_layernorm", RoleEmbedNorm, e.norm(e.Hidden))
	}
	if frozen {
		for _, tensors := range p.Layers.layers {
			for i := range tensors {
				tensors[i].Frozen = true
			}
		}
	}
	if v.Projector == MLPProjector || v.Projector == PoolProjector {
		add(&p.Projector, frozen, "post_layernorm", RoleFinalNorm, e.norm(e.Hidden))
	}
	frozen = v.FrozenProjector
	merged := e.Hidden * v.Merge * v.Merge
	merger := func(to *[]Tensor, name string, normed int64) {
		add(to, frozen, name+".norm", RoleMergeNorm, e.norm(normed))
		add(to, frozen, name+".linear_fc1", RoleMergeUp, e.linear(merged, merged, ColumnSplit, true))
		add(to, frozen, name+".linear_fc2", RoleMergeDown, e.linear(merged, hidden, RowSplit, true))
	}
	switch v.Projector {
	case MergeProjector:
		merger(&p.Projector, "merger", e.Hidden)
	case MLPProjector:
		add(&p.Projector, frozen, "multi_modal_projector.linear_1", RoleMergeUp, e.linear(e.Hidden, hidden, ColumnSplit, true))
		add(&p.Projector, frozen, "multi_modal_projector.linear_2", RoleMergeDown, e.linear(hidden, hidden, RowSplit, true))
	case PoolProjector:
		add(&p.Projector, frozen, "multi_modal_projector.mm_input_projection_weight", RoleMergeUp, []Tensor{{Shape: []int64{e.Hidden, hidden}}})
		add(&p.Projector, frozen, "multi_modal_projector.mm_soft_emb_norm", RoleMergeNorm, vector(".weight", Replicated, e.Hidden))
	}
	if len(v.Deep) > 0 {
		merger(&p.Deep, "deepstack_merger", merged)
	}
	return p
}

// units calls f with the parameters of every unit of the encoder and the projector, and
// with how often the model has it.
func (v *Vision) units(hidden int64, f func(tensors []Tensor, times int64)) {
	p := v.Tensors(hidden)
	f(p.Patches, 1)
	for _, k := range v.Encoder.Kinds() {
		f(p.Layers.Layer(k.LayerKind), k.Layers)
	}
	f(p.Projector, 1)
	f(p.Deep, int64(len(v.Deep)))
}

// params counts the parameters, and those that are trained: of layers that nothing reads
// none is.
func (v *Vision) params(hidden int64) (all, trained int64) {
	v.units(hidden, func(tensors []Tensor, times int64) {
		for _, t := range tensors {
			if all += times * t.Size(); !t.Frozen {
				trained += times * t.Size()
			}
		}
	})
	return all, trained
}

// approximateParams is the number of parameters in floating point, which cannot overflow.
func (v *Vision) approximateParams(hidden int64) (n float64) {
	v.units(hidden, func(tensors []Tensor, times int64) {
		for _, t := range tensors {
			n += float64(times) * t.approximateSize()
		}
	})
	return n
}

// flops are those of one forward pass over n images: 2 × the elements of each matrix for
// every patch or token that it multiplies, and attention over all pairs that see one
// another; learned is what of it has a gradient for weights, passed what of it for inputs.
func (v *Vision) flops(n float64, hidden int64) (all, learned, passed float64) {
	p, e := v.Tensors(hidden), v.Encoder
	count := func(tensors []Tensor, rows float64, inner bool) {
		for _, t := range tensors {
			if len(t.Shape) < 2 || t.Role == RolePosition {
				continue
			}
			f := 2 * float64(t.Size()) * rows
			if all += f; !t.Frozen {
				learned += f
			}
			if inner {
				passed += f
			}
		}
	}
	patches, tokens, positions := n*float64(v.Patches()), n*float64(v.Tokens()), n*float64(v.Positions())
	count(p.Patches, patches, false)
	for i := range v.Used() {
		k := e.Kind(i)
		count(p.Layers.Layer(k), positions, !v.FrozenEncoder)
		a := 2 * float64(e.Heads*(e.HeadDim+e.VDim)) * n * float64(v.Pairs(k))
		if all += a; !v.FrozenEncoder {
			learned, passed = learned+a, passed+a
		}
	}
	// Gradients pass a projector on their way to the encoder and to the norm in front of its
	// products; of an MLP's two, whose norm is the encoder's, to the first.
	inner := !v.FrozenEncoder || !v.FrozenProjector && v.Projector != MLPProjector
	count(p.Projector, tokens, inner)
	if !inner && !v.FrozenProjector {
		passed += 2 * float64(hidden*hidden) * tokens
	}
	for range v.Deep {
		count(p.Deep, tokens, inner)
	}
	return all, learned, passed
}

// encoders are the vision_config of multimodal families, read by the keys of their own
// configuration classes (transformers 5.17).
var encoders = []family{
	{name: "qwen2_vl_vision", also: "qwen2_vl", keys: packedKeys + " embed_dim=hidden_size hidden_size=out_hidden_size mlp_ratio=expansion_ratio spatial_patch_size=", base: packedLike(draft{
		Spec: Spec{Hidden: 1280, Layers: 32, Heads: 16, Activation: QuickGELU, Norm: LayerNorm}, expansion: 4,
		vision: Vision{Patch: 14},
	})},
	{name: "qwen2_5_vl_vision", also: "qwen2_5_vl", keys: packedKeys + " window_size fullatt_block_indexes tokens_per_second= spatial_patch_size=", base: packedLike(draft{
		Spec:       Spec{Hidden: 3584, FFN: 3420, Layers: 32, Heads: 16, Activation: SiLU, Gated: true, Norm: RMSNorm},
		vision:     Vision{Patch: 14},
		windowSize: 112, fullLayers: []int64{7, 15, 23, 31},
	})},
	{name: "qwen3_vl_vision", also: "qwen3_vl qwen3_vl_moe qwen3_vl_moe_vision", keys: packedKeys + " num_position_embeddings deepstack_visual_indexes", base: thirdLike([]int64{8, 16, 24})},
	{name: "qwen3_vl_vision", also: "qwen3_5 qwen3_5_moe qwen3_5_vision qwen3_5_moe_vision", keys: packedKeys + " num_position_embeddings deepstack_visual_indexes", base: thirdLike(nil)},
	{name: "siglip_vision_model", keys: batchedKeys + " vision_use_head= projection_dim= ", base: batchedLike(draft{
		Spec:   Spec{Hidden: 768, FFN: 3072, Layers: 12, Heads: 12, Activation: GELUTanh},
		vision: Vision{Patch: 16, Size: 224, PatchBias: true},
	})},
	{name: "clip_vision_model", keys: batchedKeys + " projection_dim= initializer_factor= vocab_size= dropout= ", base: batchedLike(draft{
		Spec:   Spec{Hidden: 768, FFN: 3072, Layers: 12, Heads: 12, Activation: QuickGELU},
		vision: Vision{Patch: 32, Size: 224, Class: true},
	})},
}

const (
	encoderKeys = " hidden_size hidden_act intermediate_size patch_size rope_parameters="
	packedKeys  = encoderKeys + " depth=num_hidden_layers num_heads=num_attention_heads in_channels in_chans=in_channels spatial_merge_size temporal_patch_size out_hidden_size"
	batchedKeys = encoderKeys + " num_hidden_layers num_attention_heads num_channels=in_channels image_size attention_dropout="
)

// packedLike fills in what Qwen-VL's encoders have in common.
func packedLike(d draft) draft {
	d.FusedQKV, d.Position, d.Turn, d.Place = true, Rotary, TurnFP32, PreNorm
	d.vision.Packed, d.vision.Frames, d.vision.Channels, d.vision.Merge, d.vision.Projector = true, 2, 3, 2, MergeProjector
	return biased(d)
}

// thirdLike fills in what Qwen3-VL's encoder and Qwen3.5's have in common: all but inner layers that are projected.
func thirdLike(deep []int64) draft {
	return packedLike(draft{
		Spec:   Spec{Hidden: 1152, FFN: 4304, Layers: 27, Heads: 16, Activation: GELUTanh, Norm: LayerNorm},
		vision: Vision{Patch: 16, PatchBias: true, Rows: 2304, Grid: true, Deep: deep},
	})
}

// batchedLike fills in what CLIP and SigLIP have in common.
func batchedLike(d draft) draft {
	d.Norm, d.Position, d.Place = LayerNorm, NoPosition, PreNorm
	d.vision.Frames, d.vision.Channels, d.vision.Merge = 1, 3, 1
	return biased(d)
}

// vision reads the encoder that a multimodal file, whose language model is d, has beside it.
func (r *reader) vision(outer *yaml.Node, fam *family, d *draft) {
	node := lookup(outer, "vision_config")
	if fam.encoder == "" || node == nil || node.Kind != yaml.MappingNode {
		return
	}
	e := &reader{doc: r.doc, node: node, vocab: r.vocab, given: map[string]entry{}, bad: map[string]bool{}}
	name := fam.encoder
	if given := lookup(node, "model_type"); given != nil && given.Value != "" {
		name = given.Value
	}
	e.fam = encoderOf(name)
	if e.fam == nil {
		return // left out, as job files are told
	}
	e.known = e.fam.names()
	v := e.fam.base
	v.ModelType = e.fam.name
	e.read(&v)
	for _, a := range activations {
		if a.name == v.activation {
			v.Activation = a.is
		}
	}
	e.heads(&v)
	e.experts(&v)
	e.square(&v)
	vision := v.vision
	if v.Hidden > 0 && v.projected > 0 {
		e.check(v.projected == d.Hidden, []string{"out_hidden_size"}, "%s %d differs from the language model's hidden_size %d; make them the same", e.label("out_hidden_size"), v.projected, d.Hidden)
	}
	switch {
	case vision.Packed:
	case fam.name == "gemma3":
		vision.Projector = PoolProjector
		tokens := r.number(outer, "mm_tokens_per_image", 256)
		side := vision.Size / vision.Patch
		for vision.Merge = 1; vision.Merge < side && (side/vision.Merge)*(side/vision.Merge) > tokens; vision.Merge++ {
		}
		e.check((side/vision.Merge)*(side/vision.Merge) == tokens && side%vision.Merge == 0, []string{"image_size", "patch_size"},
			"%d patches of %d pixels along either side of an image make no %d tokens (mm_tokens_per_image); change one of the three", side, vision.Patch, tokens)
	default:
		vision.Projector = MLPProjector
		at := r.number(outer, "vision_feature_layer", -2)
		if vision.Idle = v.Layers - at; at < 0 {
			vision.Idle = -1 - at
		}
		if vision.Idle < 0 || vision.Idle >= v.Layers {
			r.errorf(lookup(outer, "vision_feature_layer"), "vision_feature_layer: an encoder of %d layers has 1 to %d, or -%d to -1; given %d", v.Layers, v.Layers, v.Layers, at)
		}
		if n := lookup(outer, "vision_feature_select_strategy"); n != nil && n.Value != "default" {
			r.errorf(n, "vision_feature_select_strategy: %q is not modelled; use default, which leaves out the token in front of the patches", n.Value)
		}
	}
	if !vision.Packed {
		vision.Rows = (vision.Size / vision.Patch) * (vision.Size / vision.Patch)
		if vision.Class {
			vision.Rows++
		}
	}
	r.errs = append(r.errs, e.errs...)
	if len(e.missing) > 0 {
		r.errorf(node, "vision_config: missing %s", e.missing[0])
	}
	spec := v.Spec
	spec.Bidirectional = true
	vision.Encoder = &spec
	if len(r.errs) == 0 {
		n := vision.approximateParams(d.Hidden)
		r.check(n <= maxParameters, []string{"hidden_size"}, "vision_config: these sizes make %.3g parameters; the largest model that is handled has %.0g", n, maxParameters)
	}
	d.Vision = &vision
}

// square derives which layers of an encoder look through windows.
func (r *reader) square(d *draft) {
	v := &d.vision
	r.check(v.Size == 0 || v.Size%v.Patch == 0, []string{"patch_size", "image_size"}, "image_size %d is no multiple of patch_size %d; change one of them", v.Size, v.Patch)
	if _, given := r.given["deepstack_visual_indexes"]; !given { // those of the family's own encoder, of which a smaller one has less
		v.Deep = slices.DeleteFunc(slices.Clone(v.Deep), func(i int64) bool { return i >= d.Layers })
	}
	r.layerList("deepstack_visual_indexes", v.Deep, d.Layers)
	if d.windowSize == 0 {
		return
	}
	side := d.windowSize / v.Patch / v.Merge * v.Merge // transformers, get_window_index
	if !r.check(side > 0, []string{"window_size", "patch_size"}, "window_size %d has no room for %d patches of %d pixels; use %d or more", d.windowSize, v.Merge, v.Patch, v.Merge*v.Patch) {
		return
	}
	d.Window, d.Chunked = side*side, true
	full := marked(d.fullLayers, d.Layers)
	for i := range full {
		d.Windows = append(d.Windows, !full[i])
	}
}

// number reads a key of a multimodal file itself.
func (r *reader) number(n *yaml.Node, key string, absent int64) int64 {
	value := lookup(n, key)
	if value == nil || value.Tag == "!!null" {
		return absent
	}
	out := absent
	errs := r.doc.DecodeInto(value, &out)
	for _, err := range errs {
		err.Message = key + ": " + err.Message
	}
	r.errs = append(r.errs, errs...)
	return out
}

// encoderOf is the family of a vision_config's model_type; nil: it is not modelled.
func encoderOf(name string) *family {
	for i := range encoders {
		if f := &encoders[i]; f.named(name) {
			return f
		}
	}
	return nil
}
