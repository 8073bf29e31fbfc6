package model

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
)

// FLOPBreakdown is the model FLOPs of one forward pass by class. One
// multiply-add is two FLOPs; only matrix products count, as in every published
// MFU (arXiv 2204.02311, appendix B): no norms, softmax, rotary or biases.
type FLOPBreakdown struct {
	Projections units.FLOPs // q, k, v and output; the latent projections of MLA
	Attention   units.FLOPs // scores, and scores times values
	MLP         units.FLOPs // dense MLP, the experts a token is sent to, shared experts
	Indexer     units.FLOPs // scores by which an indexer picks keys, of which a step has no gradient worth counting
	Scan        units.FLOPs // state-space mixers, gated delta nets
	Router      units.FLOPs
	Head        units.FLOPs // logits, whether or not lm_head is tied
	Adapters    units.FLOPs // of LoRA
	MTP         units.FLOPs // the multi-token-prediction modules, each with its logits
	Vision      units.FLOPs // the encoder of images and its projector
	Encoder     units.FLOPs // the layers of an encoder of text
}

// Total is the sum for the main model.
func (f FLOPBreakdown) Total() units.FLOPs {
	return f.Projections + f.Attention + f.Indexer + f.Scan + f.MLP + f.Router + f.Head + f.Adapters + f.Vision + f.Encoder
}

// StepFLOPs counts a training step without recomputation, multi-token prediction included:
// three times ForwardFLOPs, as the backward pass multiplies by each operand once, but twice
// what frozen weights multiply, which have no gradients.
func (s *Spec) StepFLOPs(tokens, seq int64, causal bool) units.FLOPs {
	f := s.ForwardFLOPs(tokens, seq, causal)
	var images units.FLOPs
	if s.Vision != nil {
		all, learned, passed := s.Vision.flops(s.images(tokens, seq), s.Hidden)
		images, f.Vision = units.FLOPs(all+learned+passed), 0
	}
	if s.LoRA == nil {
		return 3*f.Trained() - 2*f.Indexer + images
	}
	e := s.encoded(tokens, seq, causal)
	trained := f.Attention + f.Scan + f.Adapters + e.Attention + e.Adapters
	return 3*trained + 2*(f.Trained()-trained) - f.Indexer + images
}

// images are those of so many tokens.
func (s *Spec) images(tokens, seq int64) float64 {
	if s.Vision == nil || seq == 0 {
		return 0
	}
	return float64(tokens) / float64(seq) * float64(s.Vision.Each)
}

// Trained is the sum with multi-token prediction.
func (f FLOPBreakdown) Trained() units.FLOPs { return f.Total() + f.MTP }

// class is where the FLOPs of a part belong.
type class uint8

const (
	noProduct class = iota
	projection
	feedForward
	expert
	router
	logits
	adapter
)

var classes = map[Role]class{
	RoleQ: projection, RoleK: projection, RoleV: projection, RoleQKV: projection, RoleOGate: projection, RoleO: projection,
	RoleCrossQ: projection, RoleCrossO: projection, // keys and values are of the encoder's tokens: crossed
	RoleQDown: projection, RoleQUp: projection, RoleKVDown: projection, RoleKVUp: projection,
	RoleIndexQ: projection, RoleIndexK: projection, RoleIndexWeights: projection,
	RoleSumKV: projection, RoleSumGate: projection, RoleIndexSumKV: projection, RoleIndexSumGate: projection, RoleOGroups: projection,
	RoleMix1: projection, RoleMix2: projection, RoleMix3: projection,
	RoleMambaIn: projection, RoleMambaOut: projection,
	RoleDeltaQKVZ: projection, RoleDeltaBA: projection, RoleDeltaQKV: projection, RoleDeltaZ: projection, RoleDeltaB: projection, RoleDeltaA: projection, RoleDeltaOut: projection,
	RoleShortIn: projection, RoleShortOut: projection,
	RoleLatentDown: feedForward, RoleLatentUp: feedForward,
	RoleLayerEmbedIn: feedForward, RoleLayerGate: feedForward, RoleLayerUp: feedForward,
	RoleGate: feedForward, RoleUp: feedForward, RoleGateUp: feedForward, RoleDown: feedForward,
	RoleExpertsGateUp: expert, RoleExpertsDown: expert,
	RoleSharedGate: feedForward, RoleSharedGateUp: feedForward, RoleSharedUp: feedForward, RoleSharedDown: feedForward,
	RoleRouter: router, RoleSharedRouter: router,
	RoleHeadDense: logits, RoleHead: logits,
}

// ForwardFLOPs counts one forward pass over tokens in sequences of length seq.
//
// Every matrix of the model costs 2 × its elements per token; experts cost
// top-k of them. Attention costs 2 × heads × (head_dim + v_head_dim) per pair
// of query and key that is counted: with causal, half of all pairs, unless the model's
// attention goes both ways; else all, the "full" convention of sources that ignore the mask. A sliding window is
// exact in both: see pairs; keys that an indexer picks are as many as in one, and sums of
// tokens in the stead of these tokens are so many times fewer. Its scores cost
// 2 × heads × head_dim for each pair. A scan costs scanFLOPs for each element of its
// states, a gated delta net deltaFLOPs.
func (s *Spec) ForwardFLOPs(tokens, seq int64, causal bool) FLOPBreakdown {
	var perToken [adapter + 1]float64
	l := layoutOf(s)
	add := func(modules []module, w weights, times int64) {
		for _, m := range modules {
			if c := classes[m.role]; c != noProduct && len(w[m.role]) > 0 {
				for _, t := range w[m.role] { // one, or one for each head
					if len(t.Shape) > 1 {
						perToken[c] += 2 * float64(t.Size()) * float64(times)
					}
				}
				if s.LoRA != nil {
					perToken[adapter] += 2 * float64(adapters(s.named(m, w[m.role]))) * float64(times)
				}
			}
		}
	}
	kinds := s.Kinds()
	for _, k := range kinds {
		add(slices.Concat(l.layer...), s.layer(k.LayerKind), k.Layers)
	}
	ends := s.ends()
	add(l.embedding, ends, 1)
	add(l.head, ends, 1)
	if s.MoE != nil {
		perToken[expert] *= float64(s.MoE.TopK) / float64(s.MoE.Experts)
	}
	n := float64(tokens)
	f := FLOPBreakdown{
		Projections: units.FLOPs(n * perToken[projection]),
		MLP:         units.FLOPs(n * (perToken[feedForward] + perToken[expert])),
		Router:      units.FLOPs(n * perToken[router]),
		Head:        units.FLOPs(n * perToken[logits]),
		Adapters:    units.FLOPs(n * perToken[adapter]),
		Scan:        s.scanned(kinds, n),
	}
	f.Attention, f.Indexer = s.attended(kinds, tokens, seq, causal)
	s.crossed(&f, tokens, seq, causal)
	if n := s.images(tokens, seq); n > 0 {
		all, _, _ := s.Vision.flops(n, s.Hidden)
		f.Vision = units.FLOPs(all)
	}
	if s.MTPLayers > 0 {
		projection := 2 * n * float64(s.Handed()+s.Hidden) * float64(s.Hidden) // of what layers hand on and of the next token's embedding
		f.MTP = units.FLOPs(s.MTPLayers) * (s.lastLayer().ForwardFLOPs(tokens, seq, causal).Total() + units.FLOPs(projection))
	}
	return f
}

// attended are the FLOPs of attention in layers of these kinds, and of their indexers' scores.
func (s *Spec) attended(kinds []KindCount, tokens, seq int64, causal bool) (attention, scores units.FLOPs) {
	causal = causal && !s.Bidirectional
	var layers, indexed int64
	sums, scored := 0.0, 0.0 // pairs of queries and of sums of tokens, over all layers; what indexers spend on theirs
	for _, k := range kinds {
		if !k.Mixer.Attends() {
			continue
		}
		layers += k.Layers
		switch c := s.Compress; {
		case c != nil && k.Ratio > 0 && k.Ratio == c.Picked:
			sums += float64(k.Layers) * pairs(seq, s.Indexer.TopK*k.Ratio, false, causal) / float64(k.Ratio)
			scored += s.indexerFLOPs(tokens, seq, k.Layers, causal) / float64(k.Ratio)
		case c != nil && k.Ratio > 0:
			sums += float64(k.Layers) * pairs(seq, 0, false, causal) / float64(k.Ratio)
		case c == nil && !k.Follows:
			indexed += k.Layers
		}
	}
	windowed := int64(0)
	for _, w := range s.Windows {
		if w {
			windowed++
		}
	}
	seen := int64(0) // of all keys before a query
	switch {
	case s.Compress != nil:
		seen = s.Compress.Window
	case s.Indexer != nil:
		seen = s.Indexer.TopK
		scored = s.indexerFLOPs(tokens, seq, indexed, causal)
	}
	perPair := func(s *Spec) float64 { return 2 * float64(s.Heads) * float64(s.HeadDim+s.VDim) }
	perSequence := float64(layers-windowed)*pairs(seq, seen, false, causal)*perPair(s.Of(LayerKind{Global: s.Global != nil})) +
		float64(windowed)*pairs(seq, s.Window, s.Chunked, causal)*perPair(s) + sums*perPair(s)
	if seq > 0 {
		attention = units.FLOPs(float64(tokens) / float64(seq) * perSequence)
	}
	return attention, units.FLOPs(scored)
}

// scanned are the FLOPs of state-space mixers and gated delta nets in layers of these kinds.
func (s *Spec) scanned(kinds []KindCount, tokens float64) (f units.FLOPs) {
	layers := func(has func(Mixer) bool) (n int64) {
		for _, k := range kinds {
			if has(k.Mixer) {
				n += k.Layers
			}
		}
		return n
	}
	if n := layers(Mixer.Scans); n > 0 {
		f = units.FLOPs(scanFLOPs * tokens * float64(n) * float64(s.Mamba.Inner()*s.Mamba.State))
	}
	if n := layers(func(m Mixer) bool { return m == DeltaMixer }); n > 0 {
		f += units.FLOPs(deltaFLOPs * tokens * float64(n) * float64(s.Delta.Values()*s.Delta.KeyDim))
	}
	return f
}

// indexerFLOPs are those of an indexer's scores of all keys in so many layers.
func (s *Spec) indexerFLOPs(tokens, seq, layers int64, causal bool) float64 {
	return float64(tokens) / float64(max(seq, 1)) * float64(layers) * pairs(seq, 0, false, causal) * 2 * float64(s.Indexer.Heads*s.Indexer.HeadDim)
}

// scanFLOPs are those of one element of a state and one token: decayed, added to and read
// (Megatron-Core, megatron/training/training.py, mamba_layer_flops).
const scanFLOPs = 7

// deltaFLOPs are those of one element of a gated delta net's state and one token: what it
// holds is looked up, forgotten, corrected and read (ibid., gdn_layer_flops).
const deltaFLOPs = 8

// pairs counts the pairs of query and key in one sequence of length s that
// attention computes, with a window of w keys (0: none).
//
// The causal half is s²/2, the triangle without its diagonal's half; a window
// cuts a triangle off it and leaves w·s − w²/2, which meets s²/2 at w = s. In
// chunks each chunk is a sequence of its own. Without the causal half the
// square s² becomes a band s·w, or the squares of the chunks.
func pairs(s, w int64, chunked, causal bool) float64 {
	seq, win := float64(s), float64(w)
	if w == 0 || w >= s {
		win = seq
	}
	full := seq * win
	if chunked && win < seq {
		whole := float64(s / w)
		rest := float64(s % w)
		full = whole*win*win + rest*rest
		if causal {
			return full / 2
		}
		return full
	}
	if causal {
		return full - win*win/2
	}
	return full
}

// lastLayer is the model cut down to its last layer.
func (s *Spec) lastLayer() *Spec {
	k, one := s.MTPKind(), *s
	one.Layers, one.MTPLayers, one.Vision = 1, 0, nil
	one.Mixers, one.NoMLP = []Mixer{k.Mixer}, []bool{k.NoMLP}
	if s.Windows != nil {
		one.Windows = []bool{k.Windowed}
	}
	if s.Indexer != nil {
		x := *s.Indexer
		x.Follow = nil
		one.Indexer = &x
	}
	if s.Compress != nil {
		c := *s.Compress
		c.Ratios = []int64{k.Ratio}
		one.Compress = &c
	}
	if s.NoRope != nil {
		one.NoRope = []bool{k.NoRope}
	}
	if s.MoE != nil {
		moe := *s.MoE
		moe.Dense = []bool{!k.MoE}
		one.MoE = &moe
	}
	return &one
}
