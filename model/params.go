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
	l := layoutOf(s)
	p := Parameters{
		Embedding: s.unit(l.embedding, LayerKind{}),
		Head:      s.unit(l.head, LayerKind{}),
		layers:    map[LayerKind][]Tensor{},
	}
	for _, k := range s.Kinds() {
		p.layers[k.LayerKind] = s.unit(concat(l.layer), k.LayerKind)
	}
	if s.MTPLayers > 0 {
		if k := s.MTPKind(); p.Layer(k) == nil {
			p.layers[k] = s.unit(concat(l.layer), k)
		}
		p.MTP = s.predicting()
	}
	return p
}

// predicting returns what a multi-token-prediction module has beside its layer: two norms, a
// projection of twice the hidden size, or of residual streams and of the embedding, and a final
// norm; embedding and head are the main model's (arXiv 2412.19437, section 2.2).
func (s *Spec) predicting() []Tensor {
	var out []Tensor
	add := func(r Role, tensors []Tensor) {
		for i := range tensors { // the weight, then the bias
			tensors[i].Role = r
			if i > 0 {
				tensors[i].Role = r.Bias()
			}
		}
		out = append(out, s.freeze(tensors)...)
	}
	add(RoleMTPEmbedNorm, s.norm("mtp.enorm", s.Hidden))
	add(RoleMTPHiddenNorm, s.norm("mtp.hnorm", s.Hidden))
	if s.Streams > 1 { // the projections apart, and a mixture of its own
		add(RoleMTPProj, s.linear("mtp.e_proj", s.Hidden, s.Hidden, ColumnSplit, false))
		add(RoleMTPStreams, s.linear("mtp.h_proj", s.Hidden, s.Hidden, ColumnSplit, false))
		add(RoleMix3, s.mixing("mtp.hc_head_fn", partMix3))
		add(RoleMix3Bias, s.mixing("mtp.hc_head_base", partMix3Bias))
		add(RoleMix3Scale, s.mixing("mtp.hc_head_scale", partMix3Scale))
	} else {
		add(RoleMTPProj, s.linear("mtp.eh_proj", 2*s.Hidden, s.Hidden, ColumnSplit, false))
	}
	add(RoleMTPNorm, s.norm("mtp.norm", s.Hidden))
	return out
}

// mixing returns what makes the weights of mixtures of n residual streams of all of them: of
// the one that a block reads, n, of those that it is added to, n, and of streams among each other,
// n·n; a bias of each and a factor of each kind. The mixture behind all layers is read alone.
func (s *Spec) mixing(name string, p part) []Tensor {
	n := s.Streams
	if n <= 1 {
		return nil
	}
	weights, kinds := n*(n+2), int64(3)
	if p >= partMix3 {
		weights, kinds = n, 1
	}
	switch p {
	case partMix1, partMix2, partMix3:
		return []Tensor{{Name: name, Shape: []int64{weights, n * s.Hidden}}}
	case partMix1Bias, partMix2Bias, partMix3Bias:
		return []Tensor{{Name: name, Shape: []int64{weights}, NoDecay: true}}
	}
	return []Tensor{{Name: name, Shape: []int64{kinds}, NoDecay: true}}
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
	k.Follows = false // there is no layer before it
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
	return n
}

// Count is numbers of parameters. Shared tensors are counted once.
type Count struct {
	Total  int64 // every parameter; without multi-token prediction
	Vision int64 // of Total, those of the encoder of images and of its projector
	Active int64 // what one token of text passes through: Total less Vision and the experts the router does not pick

	Trained int64 // of Total: all, or adapters alone

	Embedding    int64 // token and position tables
	Head         int64 // lm_head; 0 when tied
	NonEmbedding int64 // Total - Embedding - Head, the N of scaling laws (arXiv 2001.08361)

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
		c.Total += t.Size()
		if t.Split == VocabSplit || t.Role == RolePosition { // a table, not what comes after it
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
	c.Active = c.Total - idle
	c.Trained = c.Total
	if s.LoRA != nil {
		c.Trained = 0
		for _, k := range c.Layers {
			c.Trained += k.Layers * adapters(p.Layer(k.LayerKind))
		}
	}
	if s.Vision != nil {
		all, trained := s.Vision.params(s.Hidden)
		c.Vision, c.Total, c.Trained = all, c.Total+all, c.Trained+trained
	}
	c.NonEmbedding = c.Total - c.Embedding - c.Head
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
	return n
}

func concat(blocks [][]module) []module {
	var out []module
	for _, b := range blocks {
		out = append(out, b...)
	}
	return out
}

// unit returns the parameters of a list of modules.
func (s *Spec) unit(modules []module, k LayerKind) []Tensor {
	out := make([]Tensor, 0, 2*len(modules))
	for _, m := range modules {
		tensors := s.parameters(m, k)
		for i := range tensors { // the weight, then the bias
			if m.part == partMamba || m.part == partDelta { // which have several of their own
				break
			}
			tensors[i].Role = s.role(m.part)
			if i > 0 {
				tensors[i].Role = tensors[i].Role.Bias()
			}
		}
		if s.Indexer != nil && s.Indexer.Frozen && m.part >= partIndexQuery && m.part <= partIndexSumNorm {
			for i := range tensors {
				tensors[i].Frozen = true
			}
		}
		out = append(out, s.freeze(tensors)...)
	}
	return out
}

// role is the use of a part's parameters.
func (s *Spec) role(p part) Role {
	if p == partQuery && s.MLA != nil { // without a query latent the projection is the "up" one
		return RoleQUp
	}
	return roles[p]
}

var roles = map[part]Role{
	partTokens: RoleEmbed, partPositions: RolePosition, partEmbedNorm: RoleEmbedNorm,
	partNorm1: RoleNorm1, partNorm2: RoleNorm2, partPost1: RoleNorm3, partPost2: RoleNorm4,
	partLayerEmbed: RoleLayerEmbed, partLayerEmbedIn: RoleLayerEmbedIn, partLayerEmbedNorm: RoleLayerEmbedNorm,
	partLayerGate: RoleLayerGate, partLayerUp: RoleLayerUp, partPostLayer: RoleNorm8,
	partPostMLP: RoleNorm5, partPreExperts: RoleNorm6, partPostExperts: RoleNorm7, partRouterScale: RoleRouterScale, partExpertScale: RoleExpertScale,
	partSinks: RoleSinks, partQuery: RoleQ, partKey: RoleK, partValue: RoleV, partQKV: RoleQKV, partOut: RoleO,
	partQueryNorm: RoleQNorm, partKeyNorm: RoleKNorm,
	partQueryDown: RoleQDown, partQueryLatentNorm: RoleQDownNorm, partQueryUp: RoleQUp,
	partKVDown: RoleKVDown, partKVLatentNorm: RoleKVDownNorm, partKVUp: RoleKVUp,
	partIndexQuery: RoleIndexQ, partIndexKey: RoleIndexK, partIndexNorm: RoleIndexKNorm, partIndexWeights: RoleIndexWeights,
	partIndexSumKV: RoleIndexSumKV, partIndexSumGate: RoleIndexSumGate, partIndexSumBias: RoleIndexSumBias, partIndexSumNorm: RoleIndexSumNorm,
	partSumKV: RoleSumKV, partSumGate: RoleSumGate, partSumBias: RoleSumBias, partSumNorm: RoleSumNorm, partOutGroups: RoleOGroups,
	partMix1: RoleMix1, partMix1Bias: RoleMix1Bias, partMix1Scale: RoleMix1Scale, partMix2: RoleMix2, partMix2Bias: RoleMix2Bias, partMix2Scale: RoleMix2Scale,
	partMix3: RoleMix3, partMix3Bias: RoleMix3Bias, partMix3Scale: RoleMix3Scale,
	partMambaConv: RoleMambaConv, partMambaIn: RoleMambaIn, partMambaNorm: RoleMambaNorm, partMambaOut: RoleMambaOut,
	partDeltaConv: RoleDeltaConv, partDeltaQKVZ: RoleDeltaQKVZ, partDeltaBA: RoleDeltaBA, partDeltaQKV: RoleDeltaQKV, partDeltaZ: RoleDeltaZ,
	partDeltaB: RoleDeltaB, partDeltaA: RoleDeltaA, partDeltaNorm: RoleDeltaNorm, partDeltaOut: RoleDeltaOut,
	partLatentDown: RoleLatentDown, partLatentUp: RoleLatentUp,
	partGate: RoleGate, partUp: RoleUp, partGateUp: RoleGateUp, partDown: RoleDown, partActPositive: RoleActPositive, partActNegative: RoleActNegative,
	partRouter: RoleRouter, partExpertsUp: RoleExpertsGateUp, partExpertsDown: RoleExpertsDown,
	partSharedGate: RoleSharedGate, partSharedUp: RoleSharedUp, partSharedDown: RoleSharedDown, partSharedSwitch: RoleSharedRouter,
	partFinalNorm: RoleFinalNorm, partHead: RoleHead,
}

// has reports whether a layer of kind k may have a part.
func (k LayerKind) has(p part) bool {
	switch {
	case p == partNorm1 || p == partPost1:
		return k.Mixer != NoMixer
	case p >= partIndexQuery && p <= partIndexWeights:
		return k.Mixer == AttentionMixer && !k.Follows
	case p >= partSinks && p <= partKVUp:
		return k.Mixer == AttentionMixer
	case p >= partMamba && p <= partMambaOut:
		return k.Mixer == MambaMixer
	case p >= partDelta && p <= partDeltaOut:
		return k.Mixer == DeltaMixer
	case p == partNorm2 || p == partPost2, p >= partPostMLP && p <= partExpertScale, p >= partGate && p <= partSharedSwitch:
		return !k.NoMLP
	}
	return true
}

// parameters returns the weight and bias of one module in a layer of kind k;
// nothing when the model has no such module.
func (s *Spec) parameters(m module, k LayerKind) []Tensor {
	s = s.Of(k)
	h, hd, q, kv := s.Hidden, s.HeadDim, s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	v := s.KVHeads * s.VDim
	mla, moe, mamba, delta := s.MLA, s.MoE, s.Mamba, s.Delta
	gate := int64(0) // of attention, beside its queries
	if s.GatedAttention {
		gate = q
	}
	if !k.has(m.part) {
		return nil
	}
	sparse := k.MoE && moe != nil
	shared := sparse && moe.SharedFFN > 0
	picks := s.Compress == nil || k.Ratio == s.Compress.Picked // where there is an indexer

	switch m.part {
	case partTokens:
		return []Tensor{{Name: m.name + ".weight", Shape: []int64{s.Vocab, h}, Split: VocabSplit}}
	case partPositions:
		if s.Position == LearnedPosition {
			return []Tensor{{Name: m.name + ".weight", Shape: []int64{s.MaxPositions + s.IdlePositions, h}}}
		}
	case partEmbedNorm:
		if s.EmbedNorm {
			return s.norm(m.name, h)
		}
	case partLayerEmbed:
		if e := s.PerLayer; e != nil {
			return []Tensor{{Name: m.name + ".weight", Shape: []int64{e.Vocab, s.Layers * e.Width}, Split: VocabSplit}}
		}
	case partLayerEmbedIn:
		if e := s.PerLayer; e != nil {
			return s.linear(m.name, h, s.Layers*e.Width, Replicated, false)
		}
	case partLayerEmbedNorm:
		if e := s.PerLayer; e != nil {
			return s.norm(m.name, e.Width)
		}
	case partLayerGate:
		if e := s.PerLayer; e != nil {
			return s.linear(m.name, h, e.Width, Replicated, false)
		}
	case partLayerUp:
		if e := s.PerLayer; e != nil {
			return s.linear(m.name, e.Width, h, Replicated, false)
		}
	case partPostLayer:
		if s.PerLayer != nil {
			return s.norm(m.name, h)
		}

	case partNorm1, partNorm2, partPost1, partPost2:
		if s.Normed(roles[m.part]) {
			return s.norm(m.name, h)
		}
	case partPostMLP, partPreExperts, partPostExperts:
		if sparse && moe.Beside {
			return s.norm(m.name, h)
		}
	case partRouterScale:
		if sparse && moe.Beside {
			return []Tensor{{Name: m.name, Shape: []int64{h}, NoDecay: true}}
		}
	case partExpertScale:
		if sparse && moe.Beside {
			return []Tensor{{Name: m.name, Shape: []int64{moe.Experts}, NoDecay: true}}
		}
	case partFinalNorm:
		return s.norm(m.name, h)

	case partSinks:
		if s.Sinks {
			return []Tensor{{Name: m.name, Shape: []int64{s.Heads}, Split: ColumnSplit, NoDecay: true}}
		}
	case partQuery:
		if !s.FusedQKV && (mla == nil || mla.QLora == 0) {
			return s.linear(m.name, h, q+gate, ColumnSplit, s.QKVBias && mla == nil)
		}
	case partKey:
		if !s.FusedQKV && mla == nil && !k.Borrows {
			return perKVHead(s.linear(m.name, h, kv, ColumnSplit, s.QKVBias))
		}
	case partValue:
		if !s.FusedQKV && mla == nil && !k.Borrows && !(k.Global && s.Global.KeysAreValues) {
			return perKVHead(s.linear(m.name, h, v, ColumnSplit, s.QKVBias))
		}
	case partQKV:
		if s.FusedQKV && mla == nil {
			return s.linear(m.name, h, q+gate+kv+v, ColumnSplit, s.QKVBias)
		}
	case partOut:
		if c := s.Compress; c != nil {
			return s.linear(m.name, c.Groups*c.Out, h, RowSplit, s.OutBias)
		}
		return s.linear(m.name, s.Heads*s.VDim, h, RowSplit, s.OutBias)
	case partQueryNorm:
		switch s.QKNorm {
		case HeadQKNorm:
			return s.norm(m.name, hd)
		case EachQKNorm:
			return []Tensor{{Name: m.name + ".weight", Shape: []int64{s.Heads, hd}, Split: ColumnSplit, NoDecay: true}}
		case FullQKNorm:
			return cut(s.norm(m.name, q))
		}
	case partKeyNorm:
		if k.Borrows {
			return nil
		}
		switch s.QKNorm {
		case HeadQKNorm:
			return s.norm(m.name, hd)
		case EachQKNorm:
			return perKVHead([]Tensor{{Name: m.name + ".weight", Shape: []int64{s.KVHeads, hd}, Split: ColumnSplit, NoDecay: true}})
		case FullQKNorm:
			return perKVHead(cut(s.norm(m.name, kv)))
		}
	case partQueryDown:
		if mla != nil && mla.QLora > 0 {
			return s.linear(m.name, h, mla.QLora, Replicated, s.QKVBias)
		}
	case partQueryLatentNorm:
		if mla != nil && mla.QLora > 0 {
			return s.norm(m.name, mla.QLora)
		}
	case partQueryUp:
		if mla != nil && mla.QLora > 0 {
			return s.linear(m.name, mla.QLora, q, ColumnSplit, false)
		}
	case partKVDown:
		if s.Compress != nil { // the key itself
			return s.linear(m.name, h, mla.KVLora, Replicated, false)
		}
		if mla != nil {
			return s.linear(m.name, h, mla.KVLora+mla.Rope, Replicated, s.QKVBias)
		}
	case partKVLatentNorm:
		if mla != nil {
			return s.norm(m.name, mla.KVLora)
		}
	case partKVUp:
		if mla != nil && s.Compress == nil {
			return s.linear(m.name, mla.KVLora, s.Heads*(mla.Nope+s.VDim), ColumnSplit, false)
		}

	case partIndexQuery:
		if x := s.Indexer; x != nil && picks {
			return s.linear(m.name, mla.QLora, x.Heads*x.HeadDim, Replicated, false)
		}
	case partIndexKey:
		if x := s.Indexer; x != nil && s.Compress == nil {
			return s.linear(m.name, h, x.HeadDim, Replicated, false)
		}
	case partIndexNorm: // a layer norm, whatever the model's norms are
		if x := s.Indexer; x != nil && s.Compress == nil {
			return []Tensor{{Name: m.name + ".weight", Shape: []int64{x.HeadDim}, NoDecay: true}, {Name: m.name + ".bias", Shape: []int64{x.HeadDim}, NoDecay: true}}
		}
	case partIndexWeights:
		if x := s.Indexer; x != nil && picks {
			return s.linear(m.name, h, x.Heads, Replicated, false)
		}
	case partIndexSumKV, partIndexSumGate:
		if s.Compress != nil && picks {
			return s.linear(m.name, h, s.Compress.Sums(k.Ratio)*s.Indexer.HeadDim, Replicated, false)
		}
	case partIndexSumBias:
		if s.Compress != nil && picks {
			return []Tensor{{Name: m.name, Shape: []int64{k.Ratio, s.Compress.Sums(k.Ratio) * s.Indexer.HeadDim}, NoDecay: true}}
		}
	case partIndexSumNorm:
		if s.Compress != nil && picks {
			return s.norm(m.name, s.Indexer.HeadDim)
		}
	case partSumKV, partSumGate:
		if k.Ratio > 0 {
			return s.linear(m.name, h, s.Compress.Sums(k.Ratio)*hd, Replicated, false)
		}
	case partSumBias:
		if k.Ratio > 0 {
			return []Tensor{{Name: m.name, Shape: []int64{k.Ratio, s.Compress.Sums(k.Ratio) * hd}, NoDecay: true}}
		}
	case partSumNorm:
		if k.Ratio > 0 {
			return s.norm(m.name, hd)
		}
	case partOutGroups:
		if c := s.Compress; c != nil {
			return []Tensor{{Name: m.name + ".weight", Shape: []int64{c.Groups * c.Out, q / c.Groups}, Split: ColumnSplit}}
		}

	case partMix1, partMix1Bias, partMix1Scale, partMix2, partMix2Bias, partMix2Scale, partMix3, partMix3Bias, partMix3Scale:
		return s.mixing(m.name, m.part)

	case partMamba:
		own := func(r Role, name string) Tensor {
			return Tensor{Role: r, Name: m.name + "." + name, Shape: []int64{mamba.Heads}, Split: ColumnSplit, NoDecay: true}
		}
		return []Tensor{own(RoleMambaStep, "dt_bias"), own(RoleMambaDecay, "A_log"), own(RoleMambaSkip, "D")}
	case partMambaConv:
		t := []Tensor{{Name: m.name + ".weight", Shape: []int64{mamba.Convolved(), 1, mamba.Conv}, Split: ColumnSplit}}
		if mamba.ConvBias {
			t = append(t, Tensor{Name: m.name + ".bias", Shape: []int64{mamba.Convolved()}, Split: ColumnSplit, NoDecay: true})
		}
		return t
	case partMambaIn:
		return s.linear(m.name, h, mamba.Projected(), ColumnSplit, mamba.Bias)
	case partMambaNorm:
		return []Tensor{{Name: m.name + ".weight", Shape: []int64{mamba.Inner()}, Split: ColumnSplit, NoDecay: true}}
	case partMambaOut:
		return s.linear(m.name, mamba.Inner(), h, RowSplit, mamba.Bias)

	case partDelta:
		own := func(r Role, name string) Tensor {
			return Tensor{Role: r, Name: m.name + "." + name, Shape: []int64{delta.ValueHeads}, Split: ColumnSplit, NoDecay: true}
		}
		return []Tensor{own(RoleDeltaStep, "dt_bias"), own(RoleDeltaDecay, "A_log")}
	case partDeltaConv:
		return []Tensor{{Name: m.name + ".weight", Shape: []int64{delta.Convolved(), 1, delta.Conv}, Split: ColumnSplit}}
	case partDeltaQKVZ:
		return s.linear(m.name, h, delta.Convolved()+delta.Values(), ColumnSplit, false)
	case partDeltaBA:
		return s.linear(m.name, h, 2*delta.ValueHeads, ColumnSplit, false)
	case partDeltaQKV:
		return s.linear(m.name, h, delta.Convolved(), ColumnSplit, false)
	case partDeltaZ:
		return s.linear(m.name, h, delta.Values(), ColumnSplit, false)
	case partDeltaB, partDeltaA:
		return s.linear(m.name, h, delta.ValueHeads, ColumnSplit, false)
	case partDeltaNorm:
		return []Tensor{{Name: m.name + ".weight", Shape: []int64{delta.ValueDim}, NoDecay: true}}
	case partDeltaOut:
		return s.linear(m.name, delta.Values(), h, RowSplit, false)

	case partGate:
		if !sparse && s.Gated && !s.FusedGateUp {
			return s.linear(m.name, h, s.FFN, ColumnSplit, s.MLPBias)
		}
	case partUp:
		if !sparse && !(s.Gated && s.FusedGateUp) {
			return s.linear(m.name, h, s.FFN, ColumnSplit, s.MLPBias)
		}
	case partGateUp:
		if !sparse && s.Gated && s.FusedGateUp {
			return s.linear(m.name, h, 2*s.FFN, ColumnSplit, s.MLPBias)
		}
	case partDown:
		if !sparse {
			return s.linear(m.name, s.FFN, h, RowSplit, s.MLPBias)
		}

	case partActPositive, partActNegative:
		if !sparse && s.Activation == XIELU {
			return []Tensor{{Name: m.name, Shape: []int64{1}, NoDecay: true}}
		}

	case partRouter:
		if sparse {
			// DeepSeek-V3's correction term is a buffer, gpt-oss's bias a parameter.
			return s.linear(m.name, h, moe.Experts, Replicated, moe.RouterBias && moe.Router == SoftmaxRouter)
		}
	case partExpertsUp:
		if sparse {
			return s.experts(m.name, moe.width(h), s.upWidth(moe.FFN))
		}
	case partExpertsDown:
		if sparse {
			return s.experts(m.name, moe.FFN, moe.width(h))
		}
	case partLatentDown:
		if sparse && moe.Latent > 0 {
			return s.linear(m.name, h, moe.Latent, Replicated, false)
		}
	case partLatentUp:
		if sparse && moe.Latent > 0 {
			return s.linear(m.name, moe.Latent, h, Replicated, false)
		}
	case partSharedGate:
		if shared && s.Gated {
			return s.linear(m.name, h, moe.SharedFFN, ColumnSplit, s.MLPBias)
		}
	case partSharedUp:
		if shared {
			return s.linear(m.name, h, moe.SharedFFN, ColumnSplit, s.MLPBias)
		}
	case partSharedDown:
		if shared {
			return s.linear(m.name, moe.SharedFFN, h, RowSplit, s.MLPBias)
		}
	case partSharedSwitch:
		if shared && moe.SharedGate {
			return s.linear(m.name, h, 1, Replicated, false)
		}

	case partHead:
		head := []Tensor{{Name: m.name + ".weight", Shape: []int64{s.Vocab, h}, Split: VocabSplit, TiedCopy: s.Tied}}
		if s.HeadBias {
			head = append(head, Tensor{Name: m.name + ".bias", Shape: []int64{s.Vocab}, Split: VocabSplit, NoDecay: true})
		}
		return head
	}
	return nil
}

// width is the width of what routed experts read and write in a model of hidden size h.
func (m *MoE) width(h int64) int64 {
	if m.Latent > 0 {
		return m.Latent
	}
	return h
}

// upWidth is the output width of the first MLP projection(s) of width ffn.
func (s *Spec) upWidth(ffn int64) int64 {
	if s.Gated {
		return 2 * ffn
	}
	return ffn
}

// linear is a projection from in to out. A row-split bias is whole everywhere:
// it is added once, after the partial sums.
func (s *Spec) linear(name string, in, out int64, split Split, bias bool) []Tensor {
	shape := []int64{out, in}
	if s.TransposedWeights {
		shape = []int64{in, out}
	}
	t := []Tensor{{Name: name + ".weight", Shape: shape, Split: split}}
	if bias {
		if split == RowSplit {
			split = Replicated
		}
		t = append(t, Tensor{Name: name + ".bias", Shape: []int64{out}, Split: split, NoDecay: true})
	}
	return t
}

// experts is one projection of all experts, stored as a single tensor.
func (s *Spec) experts(name string, in, out int64) []Tensor {
	shape := []int64{s.MoE.Experts, out, in}
	if s.MoE.Transposed {
		shape = []int64{s.MoE.Experts, in, out}
	}
	t := []Tensor{{Name: name, Shape: shape, Split: ExpertSplit}}
	if s.MoE.ExpertBias {
		t = append(t, Tensor{Name: name + "_bias", Shape: []int64{s.MoE.Experts, out}, Split: ExpertSplit, NoDecay: true})
	}
	return t
}

// Normed reports whether layers with a block of that kind have a norm before or after it, which need
// not have parameters; there is one before the head always.
func (s *Spec) Normed(r Role) bool {
	switch r {
	case RoleNorm1:
		return s.Place != PostNorm
	case RoleNorm2:
		return s.Place != PostNorm && s.Parallel != ParallelOneNorm
	case RoleNorm3, RoleNorm4:
		return s.Place == PostNorm || s.Place == Sandwich
	}
	return r == RoleFinalNorm
}

// norm is a norm over width elements.
func (s *Spec) norm(name string, width int64) []Tensor {
	if s.Norm == PlainNorm {
		return nil
	}
	t := []Tensor{{Name: name + ".weight", Shape: []int64{width}, NoDecay: true}}
	if s.Norm == LayerNorm || s.Norm == LayerNorm1P {
		t = append(t, Tensor{Name: name + ".bias", Shape: []int64{width}, NoDecay: true})
	}
	return t
}

// cut divides tensors as the output of a column-split projection that they go with.
func cut(tensors []Tensor) []Tensor {
	for i := range tensors {
		tensors[i].Split = ColumnSplit
	}
	return tensors
}

func perKVHead(tensors []Tensor) []Tensor {
	for i := range tensors {
		tensors[i].KVHead = true
	}
	return tensors
}
