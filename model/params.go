package model

import "slices"

// Parameters are the parameters of a model by unit, each unit in the order in
// which PyTorch's parameters() yields them: a module's own parameters before
// those of its children, children in the order of definition (transformers
// 5.17). The whole model is Embedding, then Layer(Kind(i)) for every layer,
// then Head.
type Parameters struct {
	Embedding []Tensor // token and position tables, embedding norm
	Head      []Tensor // final norm and lm_head; a tied lm_head is a TiedCopy
	MTP       []Tensor // of one multi-token-prediction module what is beside its layer, Layer(MTPKind)

	layers map[LayerKind][]Tensor
}

// Layer returns the parameters of a layer of a kind that the model has.
func (p Parameters) Layer(k LayerKind) []Tensor {
	return p.layers[k.parameters()]
}

// Tensors lists the parameters. A position table whose MaxPositions is open has
// zero rows; see AtSequence.
func (s *Spec) Tensors() Parameters {
	l, ends := layoutOf(s), s.ends()
	p := Parameters{
		Embedding: s.unit(l.embedding, ends),
		Head:      s.unit(l.head, ends),
		layers:    map[LayerKind][]Tensor{},
	}
	modules := slices.Concat(l.layer...)
	for _, k := range s.Kinds() {
		p.layers[k.LayerKind] = s.unit(modules, s.layer(k.LayerKind))
	}
	if s.MTPLayers > 0 {
		if k := s.MTPKind(); p.Layer(k) == nil {
			p.layers[k] = s.unit(modules, s.layer(k))
		}
		p.MTP = s.predicting()
	}
	return p
}

// predicting returns what a multi-token-prediction module has beside its layer: two norms, a
// projection of twice the hidden size, or of residual streams and of the embedding, and a final
// norm; embedding and head are the main model's (arXiv 2412.19437, section 2.2).
func (s *Spec) predicting() []Tensor {
	w := weights{RoleMTPEmbedNorm: s.norm(s.Hidden), RoleMTPHiddenNorm: s.norm(s.Hidden), RoleMTPNorm: s.norm(s.Hidden)}
	modules := []module{{"mtp.enorm", RoleMTPEmbedNorm}, {"mtp.hnorm", RoleMTPHiddenNorm}, {"mtp.eh_proj", RoleMTPProj}, {"mtp.norm", RoleMTPNorm}}
	if s.Streams > 1 { // the projections apart, and a mixture of its own
		w[RoleMTPProj], w[RoleMTPStreams] = s.linear(s.Hidden, s.Hidden, ColumnSplit, false), s.linear(s.Hidden, s.Hidden, ColumnSplit, false)
		s.mixing(w, RoleMix3, RoleMix3Bias, RoleMix3Scale)
		modules = slices.Replace(modules, 2, 3, module{"mtp.e_proj", RoleMTPProj}, module{"mtp.h_proj", RoleMTPStreams},
			module{"mtp.hc_head_fn", RoleMix3}, module{"mtp.hc_head_base", RoleMix3Bias}, module{"mtp.hc_head_scale", RoleMix3Scale})
	} else {
		w[RoleMTPProj] = s.linear(2*s.Hidden, s.Hidden, ColumnSplit, false)
	}
	return s.unit(modules, w)
}

// MTPModules is how many modules of multi-token prediction have parameters of their own.
func (s *Spec) MTPModules() int64 {
	if s.MTPShared {
		return min(s.MTPLayers, 1)
	}
	return s.MTPLayers
}

// MTPKind is the kind of layer that a multi-token-prediction module has: the last one's, or
// attention and the last one's MLP where layers have either alone.
func (s *Spec) MTPKind() LayerKind {
	k := s.Kind(s.Layers - 1)
	if s.NoMLP != nil {
		k = LayerKind{MoE: s.MoE != nil}
	}
	k.Follows, k.Wide = false, false // there is no layer before it, and it is none of the model's
	if c := s.Compress; c != nil {
		if k.Ratio = 0; int64(len(c.Ratios)) > s.Layers {
			k.Ratio = c.Ratios[s.Layers]
		}
	}
	return k
}

// KindCount is how many layers are of a kind, whatever their windows.
type KindCount struct {
	LayerKind
	Layers int64
	Params int64 // of one of them
}

// Kinds counts the layers by kind, in the order of their first layers but dense ones first.
func (s *Spec) Kinds() []KindCount {
	var out []KindCount
	for i := range s.Layers {
		k := s.Kind(i).parameters()
		at := slices.IndexFunc(out, func(c KindCount) bool { return c.LayerKind == k })
		if at < 0 {
			at, out = len(out), append(out, KindCount{LayerKind: k})
		}
		out[at].Layers++
	}
	slices.SortStableFunc(out, func(a, b KindCount) int {
		switch {
		case a.MoE == b.MoE:
			return 0
		case b.MoE:
			return -1
		}
		return 1
	})
	return out
}

// AtSequence closes what a model leaves open until the sequence length is
// known: a learned position table without max_position_embeddings gets one row
// per position. It returns s itself when nothing is open.
func (s *Spec) AtSequence(seq int64) *Spec {
	if s.Position != LearnedPosition || s.MaxPositions > 0 {
		return s
	}
	closed := *s
	closed.MaxPositions = seq
	return &closed
}

// MatrixParams is the number of parameters in matrices of layers, as Tensor.Matrices counts them.
func (s *Spec) MatrixParams(each bool) int64 {
	p := s.Tensors()
	n := int64(0)
	add := func(tensors []Tensor, times int64) {
		for _, t := range tensors {
			if t.Matrices(each) > 0 {
				n += times * t.Size()
			}
		}
	}
	for _, k := range s.Kinds() {
		add(p.Layer(k.LayerKind), k.Layers)
	}
	if s.Encoder != nil {
		n += s.Encoder.MatrixParams(each)
	}
	return n
}

// Count is numbers of parameters. Shared tensors are counted once.
type Count struct {
	Total   int64 // every parameter; without multi-token prediction
	Vision  int64 // of Total, those of the encoder of images and of its projector
	Encoder int64 // of Total, those of the layers of an encoder of text, and of its final norm
	Active  int64 // what one token of text passes through: Total less Vision and the experts the router does not pick

	Trained int64 // of Total: all, or adapters alone

	Embedding int64 // token and position tables
	Head      int64 // lm_head; 0 when tied

	Layers  []KindCount // the kinds of layer
	Experts int64       // routed experts of all layers
	MTP     int64       // the multi-token-prediction modules, beside Total
}

// Sparse reports whether a token passes through some of the experts alone.
func (c *Count) Sparse() bool { return c.Active+c.Vision != c.Total }

// Params counts the parameters.
func (s *Spec) Params() Count {
	p := s.Tensors()
	var c Count
	for _, t := range p.Embedding {
		if t.TiedCopy {
			continue
		}
		c.Total += t.Size()
		if t.Split == VocabSplit || t.Role.Table() { // a table, not what comes after it
			c.Embedding += t.Size()
		}
	}
	for _, t := range p.Head {
		if t.TiedCopy {
			continue
		}
		c.Total += t.Size()
		if t.Split == VocabSplit {
			c.Head += t.Size()
		}
	}
	c.Layers = s.Kinds()
	var idle int64 // experts that a token does not use
	for i := range c.Layers {
		k := &c.Layers[i]
		tensors := p.Layer(k.LayerKind)
		k.Params = total(tensors)
		c.Total += k.Layers * k.Params
		for _, t := range tensors {
			if t.Split == ExpertSplit {
				c.Experts += t.Size() * k.Layers
				idle += t.Size() / s.MoE.Experts * (s.MoE.Experts - s.MoE.TopK) * k.Layers
			}
		}
	}
	s.countEncoder(&c)
	c.Active = c.Total - idle
	c.Trained = c.Total
	if s.LoRA != nil {
		c.Trained = 0
		for _, k := range c.Layers {
			c.Trained += k.Layers * adapters(p.Layer(k.LayerKind))
		}
		if s.Encoder != nil {
			c.Trained += s.Encoder.Params().Trained
		}
	}
	if s.Vision != nil {
		all, trained := s.Vision.params(s.Hidden)
		c.Vision, c.Total, c.Trained = all, c.Total+all, c.Trained+trained
	}
	if s.MTPLayers > 0 {
		c.MTP = s.MTPModules() * (total(p.Layer(s.MTPKind())) + total(p.MTP))
	}
	return c
}

func total(tensors []Tensor) int64 {
	var n int64
	for _, t := range tensors {
		if !t.TiedCopy {
			n += t.Size()
		}
	}
	return n
}

func adapters(tensors []Tensor) int64 {
	var n int64
	for _, t := range tensors {
		if t.Adapter {
			n += t.Size()
		}
	}
	return n
}

// approximateParams is Params().Total in floating point, which cannot overflow.
func (s *Spec) approximateParams() float64 {
	p := s.Tensors()
	sum := func(tensors []Tensor) (n float64) {
		for _, t := range tensors {
			n += t.approximateSize()
		}
		return n
	}
	n := sum(p.Embedding) + sum(p.Head)
	for _, k := range s.Kinds() {
		n += float64(k.Layers) * sum(p.Layer(k.LayerKind))
	}
	if s.Encoder != nil {
		n += s.Encoder.approximateParams() // with its output layer, which it has not
	}
	return n
}
