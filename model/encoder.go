package model

import (
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// Keys of encoder-decoder models (transformers 5.17, configuration_t5.py, configuration_bart.py).
// A checkpoint of T5 whose output layer is its own says so by tie_word_embeddings: false, whatever
// the class makes of that for models from scratch (pull 43880: it ties them, and keeps in
// scale_decoder_outputs what the key said).
const (
	t5Keys = " d_model=hidden_size d_kv=head_dim d_ff=intermediate_size num_layers=encoder_layers num_decoder_layers=num_hidden_layers num_heads=num_attention_heads vocab_size" +
		" feed_forward_proj relative_attention_num_buckets relative_attention_max_distance= dropout_rate=every_dropout tie_word_embeddings scale_decoder_outputs is_encoder_decoder==true" +
		" dense_act_fn= is_gated_act= n_positions= classifier_dropout= output_past="
	bartKeys = " d_model=hidden_size encoder_layers encoder_attention_heads encoder_ffn_dim decoder_layers=num_hidden_layers decoder_attention_heads=num_attention_heads decoder_ffn_dim=intermediate_size" +
		" vocab_size max_position_embeddings activation_function=hidden_act dropout=hidden_dropout attention_dropout activation_dropout tie_word_embeddings is_encoder_decoder==true" +
		" encoder_layerdrop==0 decoder_layerdrop==0 num_hidden_layers= scale_embedding= normalize_before= normalize_embedding= add_final_layer_norm= add_bias_logits= static_position_embeddings= classif_dropout="
)

// t5Like fills in what T5 and those after it have in common (modeling_t5.py).
func t5Like(d draft) draft {
	d.Hidden, d.HeadDim, d.Buckets, d.encodes = 512, 64, 32, true
	d.Norm, d.Place, d.Position = NarrowRMSNorm, PreNorm, RelativeBias
	d.Tied, d.NarrowLoss, d.Rewidened = true, true, true
	d.EmbedDropout, d.AttnDropout, d.ResidDropout, d.ActDropout, d.FinalDropout = 0.1, 0.1, 0.1, 0.1, 0.1
	return d
}

// bartLike fills in what BART and those after it have in common (modeling_bart.py). Embeddings have a norm where
// positions are learned (modeling_mbart.py), and logits no bias where these are in no table (modeling_m2m_100.py).
func bartLike(d draft) draft {
	d.Hidden, d.FFN, d.Layers, d.Heads, d.MaxPositions = 1024, 4096, 12, 16, 1024
	d.encodes, d.encoderLayers, d.encoderHeads, d.encoderFFN = true, 12, 16, 4096
	fill(&d.Vocab, 50265)
	fill(&d.Activation, GELU)
	fill(&d.Position, LearnedPosition)
	d.Norm, d.EmbedScale, d.Tied, d.NarrowLoss, d.NarrowSoftmax = LayerNorm, true, true, true, true
	if d.LogitsBias = d.Position == LearnedPosition; d.LogitsBias && !d.StillPositions {
		d.EmbedNorm, d.IdlePositions = true, 2
	}
	d.EmbedDropout, d.ResidDropout = 0.1, 0.1
	if d.Position == Sinusoidal {
		d.AttnDropout = 0.1
	}
	return biased(d)
}

// bartLayout is the layout of BART and those after it, whose norms are at these places of attention and MLP.
func bartLayout(family string, attention, mlp Role) layout {
	return layout{[]string{family}, Serial,
		[]module{{"shared", RoleEmbed}, {"embed_positions", RolePosition}, {"layernorm_embedding", RoleEmbedNorm}},
		[][]module{{
			{"self_attn.k_proj", RoleK},
			{"self_attn.v_proj", RoleV},
			{"self_attn.q_proj", RoleQ},
			{"self_attn.out_proj", RoleO},
			{"self_attn_layer_norm", attention},
			{"encoder_attn.k_proj", RoleCrossK},
			{"encoder_attn.v_proj", RoleCrossV},
			{"encoder_attn.q_proj", RoleCrossQ},
			{"encoder_attn.out_proj", RoleCrossO},
			{"encoder_attn_layer_norm", RoleCrossNorm},
			{"fc1", RoleUp},
			{"fc2", RoleDown},
			{"final_layer_norm", mlp},
		}}, []module{{"layer_norm", RoleFinalNorm}, {"lm_head", RoleHead}}}
}

// gatedActivation reads feed_forward_proj: an activation, with gated- before it where it has a gate. Of
// gated-gelu T5 makes the tanh form (configuration_t5.py).
type gatedActivation draft

// DecodeNode takes it apart.
func (f *gatedActivation) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	act, gated := strings.CutPrefix(n.Value, "gated-")
	if gated && act == "gelu" {
		act = string(GELUNew)
	}
	for _, a := range activations {
		if a.name == act {
			f.activation, f.Gated = act, gated
			return nil
		}
	}
	return diag.List{doc.Errorf(n, "%q is not known%s", n.Value, diag.DidYouMean(n.Value, []string{"relu", "gelu", "silu", "gated-relu", "gated-gelu", "gated-silu"}))}
}

// encoder settles the encoder of text of a family that has one: a stack as the decoder's, but for its
// own sizes, whose tokens all see one another.
func (r *reader) encoder(d *draft) {
	if !d.encodes {
		return
	}
	if !r.gives("scale_decoder_outputs") {
		d.HeadScale = d.Tied && d.Position == RelativeBias
	}
	e := d.Spec
	e.Bidirectional, e.Layers = true, d.encoderLayers
	fill(&e.Layers, d.Layers)
	if d.encoderHeads > 0 {
		e.Heads, e.KVHeads = d.encoderHeads, d.encoderHeads
		r.check(e.Hidden%e.Heads == 0, []string{"encoder_attention_heads", "hidden_size"}, "%s %d does not divide %s %d; change one of them", r.label("encoder_attention_heads"), e.Heads, r.label("hidden_size"), e.Hidden)
		e.HeadDim = max(1, e.Hidden/e.Heads)
		e.VDim = e.HeadDim
	}
	if d.encoderFFN > 0 {
		e.FFN = d.encoderFFN
	}
	d.Encoder = &e
}

// crossing is attention to what an encoder made.
func (s *Spec) crossing(w weights) {
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	w[RoleCrossQ] = s.linear(s.Hidden, q, ColumnSplit, s.QKVBias)
	w[RoleCrossK], w[RoleCrossV] = perKVHead(s.linear(s.Hidden, kv, ColumnSplit, s.QKVBias)), perKVHead(s.linear(s.Hidden, kv, ColumnSplit, s.QKVBias))
	w[RoleCrossO] = s.linear(q, s.Hidden, RowSplit, s.OutBias)
	w[RoleCrossNorm] = s.norm(s.Hidden)
}

// Behind are the parameters of an encoder of text behind its layers.
func (s *Spec) Behind() []Tensor {
	if !s.Normed(RoleFinalNorm) {
		return nil
	}
	return s.unit([]module{{"final_layer_norm", RoleFinalNorm}}, s.ends())
}

// countEncoder adds the parameters of an encoder of text.
func (s *Spec) countEncoder(c *Count) {
	e := s.Encoder
	if e == nil {
		return
	}
	p := e.Tensors()
	for _, t := range p.Embedding {
		c.Total += t.Size()
		if t.Split == VocabSplit || t.Role.Table() {
			c.Embedding += t.Size()
		}
	}
	for _, k := range e.Kinds() {
		c.Encoder += k.Layers * total(p.Layer(k.LayerKind))
	}
	c.Encoder += total(e.Behind())
	c.Total += c.Encoder
}

// SourceOf is how many tokens the encoder reads for a sequence of so many.
func (s *Spec) SourceOf(seq int64) int64 {
	if s.Encoder == nil {
		return 0
	}
	if s.Source > 0 {
		return s.Source
	}
	return seq
}

// encoded are the FLOPs of an encoder of text beside so many tokens of the decoder, in sequences of length seq.
func (s *Spec) encoded(tokens, seq int64, causal bool) FLOPBreakdown {
	if s.Encoder == nil || seq == 0 {
		return FLOPBreakdown{}
	}
	f := s.Encoder.ForwardFLOPs(tokens*s.SourceOf(seq)/seq, s.SourceOf(seq), causal)
	f.Head = 0
	return f
}

// crossed adds the FLOPs of an encoder of text, and of attention to what it made: the projections of
// keys and values of its tokens, and all pairs of a token with one of these.
func (s *Spec) crossed(f *FLOPBreakdown, tokens, seq int64, causal bool) {
	if s.Encoder == nil || seq == 0 {
		return
	}
	f.Encoder = s.encoded(tokens, seq, causal).Total()
	source := s.SourceOf(seq)
	sequences := float64(tokens) / float64(seq)
	w := weights{}
	s.crossing(w)
	each := 2 * float64(s.Layers) * sequences * float64(source)
	for _, m := range []module{{role: RoleCrossK}, {role: RoleCrossV}} {
		f.Projections += units.FLOPs(each * float64(w[m.role][0].Size()))
		f.Adapters += units.FLOPs(each * float64(adapters(s.named(m, w[m.role]))))
	}
	f.Attention += units.FLOPs(float64(s.Layers) * sequences * float64(seq) * float64(source) * 2 * float64(s.Heads) * float64(s.HeadDim+s.VDim))
}
