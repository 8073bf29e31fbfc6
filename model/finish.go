package model

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/whole"
)

// finish turns the settings of a draft into the fields of its Spec and checks
// what only makes sense together.
func (r *reader) finish(d *draft) {
	r.blocks(d)
	fill(&d.Layers, d.encoderLayers)
	r.needs("hidden_size", d.Hidden)
	r.needs("num_hidden_layers", d.Layers)
	r.needs("num_attention_heads", d.Heads)
	r.needs("vocab_size", d.Vocab)
	for _, a := range activations {
		if a.name == d.activation {
			d.Activation = a.is
		}
	}
	r.check(d.Activation != XIELU || r.fam.base.Activation == XIELU, []string{"hidden_act"}, "hidden_act: xielu has parameters, which model_type apertus alone is known to have; change one of them")
	r.variants(d)
	r.mixers(d)
	r.compress(d)
	r.heads(d)
	r.beside(d)
	r.experts(d)
	r.windows(d)
	r.global(d)
	r.crossLayer(d)
	r.noRope(d)
	if len(r.missing) > 0 {
		r.errorf(r.node, "missing %s; model_type %s has no default; add what is missing", strings.Join(r.missing, ", "), r.fam.name)
	}
	r.check(d.Streams <= 1 || d.Place == PreNorm && d.Parallel == Serial && d.Mixers == nil && d.Vision == nil, []string{"hc_mult"},
		"hc_mult %d: residual streams are modelled around attention and an MLP with a norm before each; use 1", d.Streams)
	r.check(d.Place != SumNorm || d.Parallel == Serial && d.Mixers == nil && d.MTPLayers == 0 && d.perLayer.Width == 0, []string{"norm_placement"},
		"norm_placement sum: norms of sums are modelled around attention and an MLP, one after the other, with one output layer; use pre")
	r.check(!d.Bidirectional || d.Indexer == nil && d.Compress == nil && d.Mixers == nil && !d.Chunked, []string{"is_causal", "use_bidirectional_attention"},
		"is_causal: attention both ways is modelled where it sees all tokens or a window, not beside picked keys, sums of tokens, chunks or mixers of another kind; use true")
	r.encoder(d)
	d.AttnSoftcap, d.LogitSoftcap = d.attnCap != 0, d.logitCap != 0
	// Sums are only exact below maxParameters, and only then is anything counted.
	if len(r.errs) == 0 {
		n := d.approximateParams()
		r.check(n <= maxParameters, []string{"hidden_size"}, "these sizes make %.3g parameters; the largest model that is handled has %.0g", n, maxParameters)
	}
}

// needs notes a size that is neither given nor has a default.
func (r *reader) needs(name string, size int64) {
	if size <= 0 && !r.bad[name] {
		r.missing = append(r.missing, r.label(name))
		r.bad[name] = true
	}
}

// variants settles the switches whose meaning depends on each other.
func (r *reader) variants(d *draft) {
	r.positions(d)
	r.mpt(d)
	if _, known := r.given["z_loss_weight"]; known || d.normedVocab > 0 && d.Vocab == d.normedVocab {
		d.NormHead = true
	}
	r.adjustFFN(d)
	if n := d.gateAndUp; n > 0 {
		r.check(n%2 == 0, []string{"gate_and_up"}, "%s %d is twice the width of the MLP; give an even number", r.label("gate_and_up"), n)
		d.FFN = n / 2
	}
	if d.postNorm {
		d.Place = Sandwich
	}
	if d.headNorm {
		d.QKNorm = HeadQKNorm
	}
	if d.eachNorm {
		d.QKNorm = EachQKNorm
	}
	if d.fullNorm {
		r.check(!d.headNorm, []string{"full_norm", "qk_layernorm"}, "qk_ln is one norm over all heads, qk_gn one over each; keep one")
		d.QKNorm = FullQKNorm
	}
	r.check(!d.singleNorms, []string{"single_head_norms"}, "qk_layernorm: a norm of its own for each head is not modelled; only false is")
	d.QKVHeads = d.QKVHeads && !d.multiQuery // heads that share one key and value do not lie beside theirs
	if d.multiQuery && !d.newDecoder {
		d.KVHeads = 1 // whatever num_kv_heads says
	}
	// Falcon's new decoder is always parallel, by default with a norm for each branch.
	switch {
	case d.newDecoder && (d.parallelNorms == 0 || d.parallelNorms == 2):
		d.Parallel = ParallelTwoNorm
	case !d.newDecoder && !d.parallel:
		d.Parallel = Serial
	}
	if d.embedWidth > 0 {
		r.check(d.embedWidth == d.Hidden, []string{"word_embed_proj_dim", "hidden_size"},
			"word_embed_proj_dim %d differs from hidden_size %d; projected embeddings are not modelled, use %d", d.embedWidth, d.Hidden, d.Hidden)
	}
}

// adjustFFN makes the MLP's width of the one that a file has as LFM2's class does: two thirds of it,
// times a factor, rounded up (modeling_lfm2.py, Lfm2MLP).
func (r *reader) adjustFFN(d *draft) {
	if d.blockFFN > 0 {
		d.FFN = d.blockFFN
	}
	if !d.twoThirds {
		return
	}
	d.FFN = 2 * d.FFN / 3
	if d.ffnFactor > 0 {
		d.FFN = (int64(d.ffnFactor*float64(d.FFN)) + d.ffnMultiple - 1) / d.ffnMultiple * d.ffnMultiple
	}
}

// positions settles how the order of tokens is known, where switches say it.
func (r *reader) positions(d *draft) {
	if _, given := r.given["turned_positions"]; given {
		d.turned = true
	}
	if _, given := r.given["alibi"]; d.turned && !given { // which is a default of transformers' class, that knows no other
		d.alibi = false
	}
	r.check(!d.alibi || !d.turned, []string{"rope", "alibi"}, "rope and alibi at once are not modelled; set one of them to false")
	switch {
	case d.alibi:
		d.Position = ALiBi
	case d.turned:
		d.Position = Rotary
	case d.positionType == "nope":
		d.Position = NoPosition
	case d.learned:
		d.Position = LearnedPosition
	}
	d.HeadMasks = d.HeadMasks && d.Position == ALiBi
}

// MPT's attn_type.
const (
	ownKeys     = "multihead_attention"
	groupedKeys = "grouped_query_attention"
	oneKey      = "multiquery_attention"
)

// mpt settles the switches of MPT: how many heads share a key, biases and norms.
func (r *reader) mpt(d *draft) {
	switch d.attnType {
	case groupedKeys:
		r.needs("num_key_value_heads", d.KVHeads)
	case oneKey:
		d.multiQuery = true
	case ownKeys:
		r.check(d.KVHeads == 0 || d.KVHeads == d.Heads, []string{"num_key_value_heads", "attn_type"},
			"kv_n_heads %d: multihead_attention has as many as n_heads, %d; set attn_type to grouped_query_attention, or leave it out", d.KVHeads, d.Heads)
	}
	if d.noBias {
		d.QKVBias, d.OutBias, d.MLPBias = false, false, false
	}
	switch {
	case strings.HasSuffix(d.normType, "rmsnorm"):
		d.Norm = RMSNorm
	case d.noBias:
		d.Norm = LayerNormNoB
	}
}

// Layers whose attention sees sums of tokens, those that an indexer picks and all
// (transformers' layer_types).
const (
	pickedSums = "compressed_sparse_attention"
	allSums    = "heavily_compressed_attention"
)

// compress settles attention to a window and to sums of tokens, which is latent attention of
// one key that needs no expanding.
func (r *reader) compress(d *draft) {
	c := d.compress
	if c.Groups == 0 {
		r.check(c.Ratios == nil && c.Out == 0, []string{"compress_ratios", "o_lora_rank"}, "attention to sums of tokens needs o_groups, which is missing")
		return
	}
	d.Compress, d.mla.KVLora = &c, 0 // whatever else is wrong
	fill(&c.Picked, 4)
	fill(&d.KVHeads, 1)
	r.needs("head_dim", d.HeadDim)
	r.needs("o_lora_rank", c.Out)
	if d.HeadDim == 0 || d.Heads == 0 {
		return
	}
	c.Window = d.Window
	r.needs("sliding_window", c.Window)
	r.check(d.mla.QLora > 0, []string{"q_lora_rank"}, "q_lora_rank is missing: queries come through a latent, of which an indexer reads")
	c.Picked = cmp.Or(d.compressRate[pickedSums], c.Picked)
	rates := map[string]int64{"sliding_attention": 0, pickedSums: c.Picked, allSums: cmp.Or(d.compressRate[allSums], 128)}
	about := "compress_ratios"
	switch {
	case c.Ratios != nil:
	case d.layerTypes != nil:
		about = "layer_types"
		for _, kind := range d.layerTypes {
			rate, ok := rates[kind]
			if !r.check(ok, []string{about}, "layer_types: %q is not known; sliding_attention, %s and %s are", kind, pickedSums, allSums) {
				c.Ratios = make([]int64, d.Layers)
				return
			}
			c.Ratios = append(c.Ratios, rate)
		}
	default: // transformers' own order
		for i := range d.Layers {
			kind := allSums
			if i > 1 && i%2 == 1 {
				kind = pickedSums
			}
			c.Ratios = append(c.Ratios, rates[kind])
		}
	}
	if !r.check(int64(len(c.Ratios)) >= d.Layers && int64(len(c.Ratios)) <= d.Layers+maxLayers, []string{about, "num_hidden_layers"},
		"%s has %d entries for %d layers; give one for each, and for those of multi-token prediction after them", about, len(c.Ratios), d.Layers) {
		c.Ratios = make([]int64, d.Layers)
		return
	}
	for i, ratio := range c.Ratios {
		if !r.check(0 <= ratio && ratio <= maxSeq, []string{about}, "%s: layer %d has %d; give the tokens of a sum, or 0", about, i, ratio) {
			c.Ratios = make([]int64, d.Layers)
			return
		}
		if ratio == 1 { // as Megatron spells a layer without sums
			c.Ratios[i] = 0
		}
	}
	rope := d.mla.Rope
	if rope == 0 && d.rotaryFraction > 0 {
		rope = int64(float64(d.HeadDim) * d.rotaryFraction)
	}
	rope = cmp.Or(rope, 64)
	r.check(rope < d.HeadDim, []string{"qk_rope_head_dim", "head_dim"}, "qk_rope_head_dim %d leaves nothing of a head of %d; make it smaller", rope, d.HeadDim)
	r.check(d.Heads*d.HeadDim%c.Groups == 0 && d.Heads%c.Groups == 0, []string{"o_groups", "num_attention_heads"}, "o_groups %d does not divide num_attention_heads %d; use %s", c.Groups, d.Heads, divisors(d.Heads))
	r.check(d.KVHeads == 1, []string{"num_key_value_heads"}, "num_key_value_heads %d: all heads of model_type %s share one key; use 1", d.KVHeads, r.fam.name)
	d.VDim, d.RotaryDim = d.HeadDim, rope
	d.MLA = &MLA{QLora: d.mla.QLora, KVLora: d.HeadDim, Rope: rope, Nope: d.HeadDim - rope}
	if x := d.indexer; slices.Contains(c.Ratios, c.Picked) {
		r.needs("index_n_heads", x.Heads)
		r.needs("index_head_dim", x.HeadDim)
		r.needs("index_topk", x.TopK)
		d.Indexer = &x
	}
	d.layerTypes, d.Window = nil, 0
}

// heads derives the widths of attention.
func (r *reader) heads(d *draft) {
	if d.Compress != nil {
		return
	}
	if d.mla.KVLora > 0 {
		latent := []string{"kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"}
		r.check(d.mla.Rope > 0 && d.mla.Nope > 0 && d.VDim > 0, latent,
			"latent attention needs kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim and v_head_dim; give all four")
		// Every head has its own keys and values once the latent is expanded.
		d.HeadDim, d.KVHeads, d.RotaryDim = d.mla.Rope+d.mla.Nope, d.Heads, d.mla.Rope
		d.FusedQKV = false // its projections are other matrices
		mla := d.mla
		d.MLA = &mla
		r.indexer(d)
		return
	}
	r.check(d.indexer.TopK == 0, []string{"index_topk"}, "an indexer picks keys of latent attention, for which kv_lora_rank is missing")
	r.check(d.mla == (MLA{}) && d.VDim == 0, []string{"q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"},
		"latent attention needs kv_lora_rank, which is missing")
	d.KVHeads = cmp.Or(d.KVHeads, d.Heads)
	if d.SeparateHeads {
		r.check(d.KVHeads == d.Heads && d.Position != Rotary && d.QKNorm == NoQKNorm, []string{"separate_heads"},
			"heads with projections of their own are modelled where each has keys, too, and none is turned or normed; change one of them")
		d.FusedQKV = false
	}
	heads, kv := r.label("num_attention_heads"), r.label("num_key_value_heads")
	if d.Heads > 0 && d.Heads%d.KVHeads != 0 {
		r.check(false, []string{"num_key_value_heads", "num_attention_heads"},
			"%s %d does not divide %s %d; use %s", kv, d.KVHeads, heads, d.Heads, divisors(d.Heads))
	}
	if d.HeadDim == 0 && d.Heads > 0 {
		remedy := "change one of them"
		if r.known["head_dim"] != "" {
			remedy = "give head_dim or " + remedy
		}
		r.check(d.headsFloor || d.Hidden%d.Heads == 0, []string{"num_attention_heads", "hidden_size"},
			"%s %d does not divide %s %d; %s", heads, d.Heads, r.label("hidden_size"), d.Hidden, remedy)
		d.HeadDim = max(1, d.Hidden/d.Heads)
	}
	d.VDim = d.HeadDim
	switch {
	case d.Position != Rotary:
		d.RotaryDim = 0
	case d.RotaryDim == 0 && d.rotaryFraction > 0:
		d.RotaryDim = int64(float64(d.HeadDim) * d.rotaryFraction)
	case d.RotaryDim == 0:
		d.RotaryDim = d.HeadDim
	}
	r.check(d.RotaryDim <= d.HeadDim, []string{"rotary_dim", "head_dim", "num_attention_heads"},
		"rotary_dim %d is wider than a head, which has %d", d.RotaryDim, d.HeadDim)
}

// indexer settles which keys latent attention sees, and which layers pick them.
func (r *reader) indexer(d *draft) {
	x := d.indexer
	if x.TopK == 0 {
		return
	}
	r.needs("index_n_heads", x.Heads)
	r.needs("index_head_dim", x.HeadDim)
	r.check(d.mla.QLora > 0, []string{"q_lora_rank"}, "an indexer reads the query latent, which %s is the width of; give it", r.label("q_lora_rank"))
	own := make([]string, 0, d.Layers) // "full" or "shared"
	about := "indexer_types"
	switch {
	case d.indexTypes != nil:
		own = d.indexTypes
	case d.indexPattern != "":
		about = "index_topk_pattern"
		for _, c := range d.indexPattern {
			own = append(own, map[rune]string{'F': "full", 'S': "shared"}[c])
		}
	default:
		for i := range d.Layers {
			if max(i-max(d.indexFrom, 1)+1, 0)%max(d.indexEvery, 1) == 0 {
				own = append(own, "full")
			} else {
				own = append(own, "shared")
			}
		}
	}
	d.Indexer = &x
	if !r.check(int64(len(own)) == d.Layers, []string{about, "num_hidden_layers"}, "%s has %d entries for %d layers", about, len(own), d.Layers) {
		return
	}
	for i, kind := range own {
		if !r.check(kind == "full" || kind == "shared", []string{about}, "%s: layer %d is neither full nor shared (F and S in a pattern); only these are known", about, i) ||
			!r.check(i > 0 || kind == "full", []string{about}, "%s: the first layer has none before it whose keys it could share; make it full", about) {
			return
		}
	}
	if slices.Contains(own, "shared") {
		x.Follow = make([]bool, len(own))
		for i, kind := range own {
			x.Follow[i] = kind == "shared"
		}
	}
}

// beside settles whether layers have experts beside their MLP, which then is what all
// tokens go to.
func (r *reader) beside(d *draft) {
	switch {
	case d.global.HeadDim == 0: // no such family
	case d.beside:
		r.needs("num_experts", d.moe.Experts)
		d.moe.Beside, d.moe.SharedFFN, d.moe.Shared = true, d.FFN, 1
	default:
		d.moe = MoE{}
		r.given["num_experts"] = entry{}
	}
}

// global settles what attention of layers without a window has of its own.
func (r *reader) global(d *draft) {
	if d.global.HeadDim == 0 {
		return
	}
	g := d.global
	if g.KVHeads == 0 || !g.KeysAreValues {
		g.KVHeads = d.KVHeads
	}
	r.check(d.Heads%max(g.KVHeads, 1) == 0, []string{"num_global_key_value_heads", "num_attention_heads"},
		"%s %d does not divide %s %d; use %s", r.label("num_global_key_value_heads"), g.KVHeads, r.label("num_attention_heads"), d.Heads, divisors(d.Heads))
	if n := len(d.Windows); n > 0 {
		d.Windows[n-1] = false // as transformers has it whatever layer_types says (configuration_gemma4.py)
	}
	d.Global = &g
}

// crossLayer settles what layers read beside the residual stream.
func (r *reader) crossLayer(d *draft) {
	if d.perLayer.Width > 0 {
		own := d.perLayer
		d.PerLayer = &own
	}
	if d.sharedKV == 0 {
		return
	}
	first := d.Layers - d.sharedKV
	if !r.check(first > 0, []string{"num_kv_shared_layers", "num_hidden_layers"}, "%s %d leaves no layer of %d that has keys and values; give fewer", r.label("num_kv_shared_layers"), d.sharedKV, d.Layers) {
		return
	}
	d.KVLayers = first
	for i := first; i < d.Layers && d.Windows != nil; i++ {
		r.check(slices.Contains(d.Windows[:first], d.Windows[i]), []string{"num_kv_shared_layers", "layer_types"},
			"layer %d reads keys and values of a layer like it, but none of the first %d is; share fewer (num_kv_shared_layers %d) or change layer_types", i, first, d.sharedKV)
	}
}

// experts derives the widths of the MLP, and which layers are sparse.
func (r *reader) experts(d *draft) {
	// Mixtral has one width for both.
	d.FFN = cmp.Or(d.FFN, d.Hidden*d.expansion, d.moe.FFN)
	if !r.bad["hidden_size"] { // where it is four times that
		r.needs("intermediate_size", d.FFN)
	}
	if d.moe.Experts == 0 {
		_, none := r.given["num_experts"] // 0 turns experts off
		r.check(none || d.moe.TopK == 0 && d.moe.FFN == 0 && d.moe.Shared == 0,
			[]string{"num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "num_experts"},
			"experts need num_experts, which is missing; give it or leave the experts out")
		return
	}
	if d.moe.Router == sqrtRouter {
		d.moe.Router = SigmoidRouter
	}
	m := d.moe
	m.Jitter = d.jitter > 0
	fill(&m.FFN, d.FFN)
	fill(&m.Router, SoftmaxRouter)
	fill(&m.SharedFFN, m.Shared*m.FFN)
	if m.SharedFFN > 0 {
		fill(&m.Shared, 1)
	}
	experts, topK := r.label("num_experts"), r.label("num_experts_per_tok")
	_, chosen := r.given["num_experts_per_tok"]
	r.check(!chosen || m.TopK > 0, []string{"num_experts_per_tok"}, "%s: 0 is out of range; use 1 to %d", topK, m.Experts)
	r.needs("num_experts_per_tok", m.TopK)
	r.check(m.TopK <= m.Experts, []string{"num_experts_per_tok", "num_experts"},
		"%s %d is more than %s %d", topK, m.TopK, experts, m.Experts)
	if m.Groups > 1 {
		r.needs("topk_group", m.TopGroups)
		r.check(m.Experts%m.Groups == 0, []string{"n_group", "num_experts"}, "%s %d is no multiple of n_group %d", experts, m.Experts, m.Groups)
		r.check(m.TopGroups <= m.Groups, []string{"topk_group", "n_group"}, "topk_group %d is more than n_group %d", m.TopGroups, m.Groups)
		r.check(m.TopK*m.Groups <= m.Experts*m.TopGroups, []string{"topk_group", "num_experts_per_tok", "n_group"},
			"%s %d is more than the experts of topk_group %d of n_group %d", topK, m.TopK, m.TopGroups, m.Groups)
	}
	if m.Groups <= 1 || m.TopGroups >= m.Groups {
		m.Groups, m.TopGroups = 0, 0
	}
	if d.mlpTypes != nil {
		r.check(int64(len(d.mlpTypes)) == d.Layers, []string{"mlp_layer_types", "num_hidden_layers"},
			"mlp_layer_types has %d entries for %d layers", len(d.mlpTypes), d.Layers)
		d.sparseLayers = []int64{}
		for i, kind := range d.mlpTypes {
			if r.check(kind == "dense" || kind == "sparse", []string{"mlp_layer_types"}, "mlp_layer_types: %q is not known; dense and sparse are", kind); kind == "sparse" {
				d.sparseLayers = append(d.sparseLayers, int64(i))
			}
		}
	}
	r.layerList("moe_layers", d.sparseLayers, d.Layers)
	r.layerList("mlp_only_layers", d.denseLayers, d.Layers)

	dense, sparse := marked(d.denseLayers, d.Layers), marked(d.sparseLayers, d.Layers)
	m.Dense = make([]bool, d.Layers)
	for i := range d.Layers {
		m.Dense[i] = i < d.denseFirst || d.sparseLast > 0 && i > d.sparseLast || i%max(1, d.sparseEvery) != 0 || (i+1)%max(1, d.sparseStep) != 0 || dense[i]
		if d.sparseLayers != nil {
			m.Dense[i] = !sparse[i]
		}
	}
	if !slices.Contains(m.Dense, true) {
		m.Dense = nil
	}
	d.MoE = &m
}

// windows derives which layers see only a window of the keys.
func (r *reader) windows(d *draft) {
	if !d.useWindow {
		d.Window = 0
	}
	if d.layerTypes != nil {
		r.check(int64(len(d.layerTypes)) == d.Layers, []string{"layer_types", "num_hidden_layers"},
			"layer_types has %d entries for %d layers", len(d.layerTypes), d.Layers)
	}
	windowed := make([]bool, d.Layers)
	for i := range d.Layers {
		if d.layerTypes == nil {
			windowed[i] = i >= d.windowFrom && (d.windowUntil == 0 || i < d.windowUntil) && (d.windowPattern == 0 || (i+1)%d.windowPattern != 0) && (d.wholeEvery == 0 || i%d.wholeEvery != 0)
			continue
		}
		if i >= int64(len(d.layerTypes)) {
			break
		}
		switch d.layerTypes[i] {
		case "full_attention", "attention":
		case "sliding_attention", "chunked_attention":
			windowed[i] = true
		default:
			_, mixes := d.mixes[d.layerTypes[i]]
			r.check(mixes, []string{"layer_types"}, "layer_types: model_type %s has no %s; use %s", r.fam.name, d.layerTypes[i], diag.Or(d.layerKinds()))
		}
	}
	if d.windowTurns && d.Window > 0 {
		d.rope = make([]int64, d.Layers)
		for i, w := range windowed {
			if w {
				d.rope[i] = 1
			}
		}
	}
	if d.Window == 0 || !slices.Contains(windowed, true) {
		d.Window = 0
		return
	}
	d.Windows = windowed
}

// noRope derives which layers leave the rotary embedding out.
func (r *reader) noRope(d *draft) {
	if d.Position != Rotary {
		return
	}
	if d.rope != nil {
		r.check(int64(len(d.rope)) >= d.Layers, []string{"no_rope_layers", "num_hidden_layers"},
			"no_rope_layers has %d entries for %d layers", len(d.rope), d.Layers)
	}
	without := make([]bool, d.Layers)
	for i := range d.Layers {
		switch {
		case i < int64(len(d.rope)):
			without[i] = d.rope[i] == 0
		case d.rope == nil:
			without[i] = d.noRopeEvery > 0 && (i+1)%d.noRopeEvery == 0
		}
	}
	if slices.Contains(without, true) {
		d.NoRope = without
	}
}

// layerList checks a list of layer numbers.
func (r *reader) layerList(name string, layers []int64, n int64) {
	for _, i := range layers {
		r.check(0 <= i && i < n, []string{name, "num_hidden_layers"}, "%s names layer %d; there are layers 0 to %d", r.label(name), i, n-1)
	}
}

// marked turns a list of layer numbers into one flag per layer.
func marked(layers []int64, n int64) []bool {
	out := make([]bool, n)
	for _, i := range layers {
		if 0 <= i && i < n {
			out[i] = true
		}
	}
	return out
}

// divisors lists the divisors of n for a remedy: "1, 2, 4 or 8".
func divisors(n int64) string {
	var out []string
	for _, d := range whole.Divisors(n, n) {
		out = append(out, strconv.FormatInt(d, 10))
	}
	return diag.Or(out)
}
