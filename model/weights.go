package model

import (
	"fmt"
	"slices"
	"strings"
)

// weights are the parameters of modules by their use, the weight before the bias, with what
// their names add to the module's.
type weights map[Role][]Tensor

// unit returns the parameters of a list of modules; those without weights have none.
func (s *Spec) unit(modules []module, w weights) []Tensor {
	out := make([]Tensor, 0, 2*len(modules))
	for _, m := range modules {
		out = append(out, s.named(m, w[m.role])...)
	}
	return out
}

// named are the weights of a module under its name.
func (s *Spec) named(m module, tensors []Tensor) []Tensor {
	frozen := s.Indexer != nil && s.Indexer.Frozen && strings.HasPrefix(string(m.role), "index_") || s.StillPositions && m.role == RolePosition
	out := slices.Clone(tensors)
	for i := range out {
		t := &out[i]
		t.Name, t.Frozen = m.name+t.Name, frozen
		switch {
		case t.Role != "": // a use of its own
		case i == 0:
			t.Role = m.role
		default:
			t.Role = m.role.Bias()
		}
	}
	return s.freeze(out)
}

// ends are the weights before and after the layers.
func (s *Spec) ends() weights {
	w := weights{
		RoleEmbed: {{Name: ".weight", Shape: []int64{s.Vocab, s.Hidden}, Split: VocabSplit, TiedCopy: s.Encoder != nil}}, // which is the encoder's
		RoleHead:  {{Name: ".weight", Shape: []int64{s.Vocab, s.Hidden}, Split: VocabSplit, TiedCopy: s.Tied}},
	}
	if s.Normed(RoleFinalNorm) {
		w[RoleFinalNorm] = s.norm(s.Hidden)
	}
	if s.HeadDense {
		w[RoleHeadDense], w[RoleHeadNorm] = s.linear(s.Hidden, s.Hidden, Replicated, s.MLPBias), s.norm(s.Hidden)
	}
	if s.HeadBias {
		w[RoleHead] = append(w[RoleHead], vector(".bias", VocabSplit, s.Vocab)...)
	}
	if s.Position == LearnedPosition {
		w[RolePosition] = matrix(Replicated, s.MaxPositions+s.IdlePositions, s.Hidden)
	}
	if s.Position == RelativeBias && !s.OwnBiases {
		w[RoleRelative] = matrix(ColumnSplit, s.Buckets, s.Heads)
	}
	if s.TypeVocab > 0 {
		w[RoleType] = matrix(Replicated, s.TypeVocab, s.Hidden)
	}
	if s.EmbedNorm {
		w[RoleEmbedNorm] = s.norm(s.Hidden)
	}
	if e := s.PerLayer; e != nil {
		w[RoleLayerEmbed] = matrix(VocabSplit, e.Vocab, s.Layers*e.Width)
		w[RoleLayerEmbedIn] = s.linear(s.Hidden, s.Layers*e.Width, Replicated, false)
		w[RoleLayerEmbedNorm] = s.norm(e.Width)
	}
	s.mixing(w, RoleMix3, RoleMix3Bias, RoleMix3Scale)
	return w
}

// layer are the weights of a layer of kind k.
func (s *Spec) layer(k LayerKind) weights {
	s = s.Of(k)
	w := weights{}
	norms := func(roles ...Role) {
		for _, r := range roles {
			if s.Normed(r) {
				w[r] = s.norm(s.Hidden)
			}
		}
	}
	if k.Mixer != NoMixer && !k.Bare {
		norms(RoleNorm1)
	}
	if k.Mixer != NoMixer {
		norms(RoleNorm3)
	}
	if k.Mixer.Attends() {
		s.attention(w, k)
		s.latents(w)
		if s.Indexer != nil && !k.Follows {
			s.indexer(w, k)
		}
	}
	if k.Mixer.Scans() {
		s.mamba(w)
	}
	switch k.Mixer {
	case DeltaMixer:
		s.delta(w)
	case ShortMixer:
		s.short(w)
	}
	if s.Compress != nil {
		s.sums(w, k)
	}
	if !k.NoMLP {
		norms(RoleNorm2, RoleNorm4)
		if k.MoE && s.MoE != nil {
			s.sparse(w)
		} else {
			s.dense(w)
		}
	}
	if e := s.PerLayer; e != nil {
		w[RoleLayerGate] = s.linear(s.Hidden, e.Width, Replicated, false)
		w[RoleLayerUp] = s.linear(e.Width, s.Hidden, Replicated, false)
		w[RoleNorm8] = s.norm(s.Hidden)
	}
	s.mixing(w, RoleMix1, RoleMix1Bias, RoleMix1Scale)
	s.mixing(w, RoleMix2, RoleMix2Bias, RoleMix2Scale)
	return w
}

// queries is the width of all queries, with the gate of attention's output where they come with it.
func (s *Spec) queries() int64 {
	if s.GatedAttention && !s.GateApart {
		return 2 * s.Heads * s.HeadDim
	}
	return s.Heads * s.HeadDim
}

// attention has queries, keys and values, but latent ones.
func (s *Spec) attention(w weights, k LayerKind) {
	q, kv, v := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim, s.KVHeads*s.VDim
	if s.Sinks {
		w[RoleSinks] = vector("", ColumnSplit, s.Heads)
	}
	switch {
	case s.MLA != nil:
	case s.SeparateHeads:
		for i := range s.Heads {
			for _, r := range []Role{RoleQ, RoleK, RoleV} {
				w[r] = append(w[r], s.ofHead(r, i)...)
			}
		}
	case s.FusedQKV:
		w[RoleQKV] = s.linear(s.Hidden, s.queries()+kv+v, ColumnSplit, s.QKVBias)
	default:
		w[RoleQ] = s.linear(s.Hidden, s.queries(), ColumnSplit, s.QKVBias)
		if !k.Borrows {
			w[RoleK] = perKVHead(s.linear(s.Hidden, kv, ColumnSplit, s.QKVBias))
		}
		if !k.Borrows && !(k.Global && s.Global.KeysAreValues) {
			w[RoleV] = perKVHead(s.linear(s.Hidden, v, ColumnSplit, s.QKVBias))
		}
	}
	if s.GateApart {
		w[RoleOGate] = s.linear(s.Hidden, q, ColumnSplit, false)
	}
	switch s.QKNorm {
	case HeadQKNorm:
		w[RoleQNorm], w[RoleKNorm] = s.norm(s.HeadDim), s.norm(s.HeadDim)
	case EachQKNorm:
		w[RoleQNorm] = vector(".weight", ColumnSplit, s.Heads, s.HeadDim)
		w[RoleKNorm] = perKVHead(vector(".weight", ColumnSplit, s.KVHeads, s.HeadDim))
	case FullQKNorm:
		w[RoleQNorm], w[RoleKNorm] = cut(s.norm(q)), perKVHead(cut(s.norm(kv)))
	}
	if k.Borrows {
		delete(w, RoleKNorm)
	}
	out := s.Heads * s.VDim
	if c := s.Compress; c != nil {
		out = c.Groups * c.Out
	}
	w[RoleO] = s.linear(out, s.Hidden, RowSplit, s.OutBias)
	if s.Encoder != nil {
		s.crossing(w)
	}
	if s.OwnBiases {
		w[RoleRelative] = matrix(ColumnSplit, s.Buckets, s.Heads)
	}
}

// ofHead is the projection of one head of queries, keys or values.
func (s *Spec) ofHead(r Role, head int64) []Tensor {
	out := s.linear(s.Hidden, s.HeadDim, Replicated, s.QKVBias)
	for i := range out {
		out[i].Name = fmt.Sprintf(".%d%s", head, out[i].Name)
	}
	out[0].Role = r.Of(head)
	if s.QKVBias {
		out[1].Role = r.Of(head).Bias()
	}
	return out
}

// latents are those of latent attention.
func (s *Spec) latents(w weights) {
	mla := s.MLA
	if mla == nil {
		return
	}
	switch {
	case mla.QLora > 0:
		w[RoleQDown] = s.linear(s.Hidden, mla.QLora, Replicated, s.QKVBias)
		w[RoleQDownNorm] = s.norm(mla.QLora)
		w[RoleQUp] = s.linear(mla.QLora, s.Heads*s.HeadDim, ColumnSplit, false)
	case !s.FusedQKV: // without a latent of queries their projection is the "up" one
		w[RoleQ] = s.linear(s.Hidden, s.queries(), ColumnSplit, false)
		w[RoleQ][0].Role = RoleQUp
	}
	w[RoleKVDownNorm] = s.norm(mla.KVLora)
	if s.Compress != nil { // the key itself
		w[RoleKVDown] = s.linear(s.Hidden, mla.KVLora, Replicated, false)
		return
	}
	w[RoleKVDown] = s.linear(s.Hidden, mla.KVLora+mla.Rope, Replicated, s.QKVBias)
	w[RoleKVUp] = s.linear(mla.KVLora, s.Heads*(mla.Nope+s.VDim), ColumnSplit, false)
}

// indexer are those of what picks keys; its norm is a layer norm, whatever the model's are.
func (s *Spec) indexer(w weights, k LayerKind) {
	x := s.Indexer
	if s.Compress == nil {
		w[RoleIndexK] = s.linear(s.Hidden, x.HeadDim, Replicated, false)
		w[RoleIndexKNorm] = append(vector(".weight", Replicated, x.HeadDim), vector(".bias", Replicated, x.HeadDim)...)
	}
	if s.Compress == nil || k.Ratio == s.Compress.Picked {
		w[RoleIndexQ] = s.linear(s.MLA.QLora, x.Heads*x.HeadDim, Replicated, false)
		w[RoleIndexWeights] = s.linear(s.Hidden, x.Heads, Replicated, false)
	}
}

// sums are those of the sums of tokens that attention sees, and of those that an indexer scores.
func (s *Spec) sums(w weights, k LayerKind) {
	c := s.Compress
	w[RoleOGroups] = matrix(ColumnSplit, c.Groups*c.Out, s.Heads*s.HeadDim/c.Groups)
	of := func(kv, gate, bias, norm Role, width int64) {
		sums := c.Sums(k.Ratio) * width
		w[kv], w[gate] = s.linear(s.Hidden, sums, Replicated, false), s.linear(s.Hidden, sums, Replicated, false)
		w[bias], w[norm] = vector("", Replicated, k.Ratio, sums), s.norm(width)
	}
	if k.Ratio > 0 {
		of(RoleSumKV, RoleSumGate, RoleSumBias, RoleSumNorm, s.HeadDim)
	}
	if k.Ratio == c.Picked {
		of(RoleIndexSumKV, RoleIndexSumGate, RoleIndexSumBias, RoleIndexSumNorm, s.Indexer.HeadDim)
	}
}

// mixing are what makes the weights of mixtures of n residual streams of all of them: of
// the one that a block reads, n, of those that it is added to, n, and of streams among each other,
// n·n; a bias of each and a factor of each kind. The mixture behind all layers is read alone.
func (s *Spec) mixing(w weights, mix, bias, scale Role) {
	n := s.Streams
	if n <= 1 {
		return
	}
	mixed, kinds := n*(n+2), int64(3)
	if mix == RoleMix3 {
		mixed, kinds = n, 1
	}
	w[mix] = []Tensor{{Shape: []int64{mixed, n * s.Hidden}}}
	w[bias], w[scale] = vector("", Replicated, mixed), vector("", Replicated, kinds)
}

// mamba are those of a state-space mixer, which holds time steps, decays and skips itself.
func (s *Spec) mamba(w weights) {
	m := s.Mamba
	w[RoleMambaStep] = perHead(m.Heads, Tensor{Role: RoleMambaStep, Name: ".dt_bias"}, Tensor{Role: RoleMambaDecay, Name: ".A_log"}, Tensor{Role: RoleMambaSkip, Name: ".D"})
	w[RoleMambaConv] = matrix(ColumnSplit, m.Convolved(), 1, m.Conv)
	if m.ConvBias {
		w[RoleMambaConv] = append(w[RoleMambaConv], vector(".bias", ColumnSplit, m.Convolved())...)
	}
	w[RoleMambaIn] = s.linear(s.Hidden, m.Projected(), ColumnSplit, m.Bias)
	if !m.Normless {
		w[RoleMambaNorm] = vector(".weight", ColumnSplit, m.Inner())
	}
	w[RoleMambaOut] = s.linear(m.Inner(), s.Hidden, RowSplit, m.Bias)
}

// delta are those of a gated delta net, which holds decays and their biases itself; its
// projections are in two or in four.
func (s *Spec) delta(w weights) {
	d := s.Delta
	w[RoleDeltaStep] = perHead(d.ValueHeads, Tensor{Role: RoleDeltaStep, Name: ".dt_bias"}, Tensor{Role: RoleDeltaDecay, Name: ".A_log"})
	w[RoleDeltaConv] = matrix(ColumnSplit, d.Convolved(), 1, d.Conv)
	for r, out := range map[Role]int64{
		RoleDeltaQKVZ: d.Convolved() + d.Values(), RoleDeltaBA: 2 * d.ValueHeads,
		RoleDeltaQKV: d.Convolved(), RoleDeltaZ: d.Values(), RoleDeltaB: d.ValueHeads, RoleDeltaA: d.ValueHeads,
	} {
		w[r] = s.linear(s.Hidden, out, ColumnSplit, false)
	}
	w[RoleDeltaNorm] = vector(".weight", Replicated, d.ValueDim)
	w[RoleDeltaOut] = s.linear(d.Values(), s.Hidden, RowSplit, false)
}

// short are those of a short convolution.
func (s *Spec) short(w weights) {
	c := s.Short
	w[RoleShortConv] = matrix(ColumnSplit, s.Hidden, 1, c.Conv)
	if c.Bias {
		w[RoleShortConv] = append(w[RoleShortConv], vector(".bias", ColumnSplit, s.Hidden)...)
	}
	w[RoleShortIn], w[RoleShortOut] = s.linear(s.Hidden, 3*s.Hidden, ColumnSplit, c.Bias), s.linear(s.Hidden, s.Hidden, RowSplit, c.Bias)
}

// dense are those of an MLP.
func (s *Spec) dense(w weights) {
	switch {
	case s.Gated && s.FusedGateUp:
		w[RoleGateUp] = s.linear(s.Hidden, 2*s.FFN, ColumnSplit, s.MLPBias)
	case s.Gated:
		w[RoleGate] = s.linear(s.Hidden, s.FFN, ColumnSplit, s.MLPBias)
		fallthrough
	default:
		w[RoleUp] = s.linear(s.Hidden, s.FFN, ColumnSplit, s.MLPBias)
	}
	w[RoleDown] = s.linear(s.FFN, s.Hidden, RowSplit, s.MLPBias)
	if s.Activation == XIELU {
		w[RoleActPositive], w[RoleActNegative] = vector("", Replicated, 1), vector("", Replicated, 1)
	}
}

// sparse are those of experts and of what is beside them.
func (s *Spec) sparse(w weights) {
	h, m := s.Hidden, s.MoE
	// DeepSeek-V3's correction term is a buffer, gpt-oss's bias a parameter.
	w[RoleRouter] = s.linear(h, m.Experts, Replicated, m.RouterBias && m.Router == SoftmaxRouter)
	width, up := h, m.FFN // of what experts read and write; of their first projection(s)
	if m.Latent > 0 {
		width = m.Latent
		w[RoleLatentDown], w[RoleLatentUp] = s.linear(h, m.Latent, Replicated, false), s.linear(m.Latent, h, Replicated, false)
	}
	if s.Gated {
		up = 2 * m.FFN
	}
	w[RoleExpertsGateUp], w[RoleExpertsDown] = s.stacked(width, up), s.stacked(m.FFN, width)
	if m.SharedFFN > 0 {
		switch {
		case s.Gated && s.FusedGateUp:
			w[RoleSharedGateUp] = s.linear(h, 2*m.SharedFFN, ColumnSplit, s.MLPBias)
		case s.Gated:
			w[RoleSharedGate] = s.linear(h, m.SharedFFN, ColumnSplit, s.MLPBias)
			fallthrough
		default:
			w[RoleSharedUp] = s.linear(h, m.SharedFFN, ColumnSplit, s.MLPBias)
		}
		w[RoleSharedDown] = s.linear(m.SharedFFN, h, RowSplit, s.MLPBias)
		if m.SharedGate {
			w[RoleSharedRouter] = s.linear(h, 1, Replicated, false)
		}
	}
	if m.Beside {
		w[RoleNorm5], w[RoleNorm6], w[RoleNorm7] = s.norm(h), s.norm(h), s.norm(h)
		w[RoleRouterScale], w[RoleExpertScale] = vector("", Replicated, h), vector("", Replicated, m.Experts)
	}
}

// matrix is a weight that is cut like that.
func matrix(split Split, shape ...int64) []Tensor {
	return []Tensor{{Name: ".weight", Shape: shape, Split: split}}
}

// vector is a bias, or a weight of a norm or the like.
func vector(name string, split Split, shape ...int64) []Tensor {
	return []Tensor{{Name: name, Shape: shape, Split: split, NoDecay: true}}
}

// perHead are vectors of a value for each head.
func perHead(heads int64, tensors ...Tensor) []Tensor {
	for i := range tensors {
		tensors[i].Shape, tensors[i].Split, tensors[i].NoDecay = []int64{heads}, ColumnSplit, true
	}
	return tensors
}

// linear is a projection from in to out. A row-split bias is whole everywhere:
// it is added once, after the partial sums.
func (s *Spec) linear(in, out int64, split Split, bias bool) []Tensor {
	t := matrix(split, out, in)
	if s.TransposedWeights {
		t = matrix(split, in, out)
	}
	if bias {
		if split == RowSplit {
			split = Replicated
		}
		t = append(t, vector(".bias", split, out)...)
	}
	return t
}

// stacked is one projection of all experts, stored as a single tensor.
func (s *Spec) stacked(in, out int64) []Tensor {
	shape := []int64{s.MoE.Experts, out, in}
	if s.MoE.Transposed {
		shape = []int64{s.MoE.Experts, in, out}
	}
	t := []Tensor{{Shape: shape, Split: ExpertSplit}}
	if s.MoE.ExpertBias {
		t = append(t, vector("_bias", ExpertSplit, s.MoE.Experts, out)...)
	}
	return t
}

// Normed reports whether layers with a block of that kind have a norm before or after it, which need
// not have parameters. There is one behind all layers, unless the last one's output is normed.
func (s *Spec) Normed(r Role) bool {
	before, behind := s.Place != PostNorm && s.Place != SumNorm, s.Place == PostNorm || s.Place == Sandwich || s.Place == SumNorm
	switch r {
	case RoleNorm1:
		return before
	case RoleNorm2:
		return before && s.Parallel != ParallelOneNorm
	case RoleNorm3, RoleNorm4:
		return behind
	}
	return r == RoleFinalNorm && s.Place != SumNorm
}

// norm is a norm over width elements.
func (s *Spec) norm(width int64) []Tensor {
	if s.Norm == PlainNorm {
		return nil
	}
	t := vector(".weight", Replicated, width)
	if s.Norm == LayerNorm || s.Norm == LayerNorm1P {
		t = append(t, vector(".bias", Replicated, width)...)
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
