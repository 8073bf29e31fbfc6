package launch

import (
	"fmt"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// What models have that is not modelled, whichever file says so.
const (
	pairsSentences = "a head for pairs of sentences (Megatron's BERT)"
	retrieves      = "retrieved texts with an encoder of their own (RETRO)"
	seesImages     = "images, whose encoder no recipe of Megatron's has"
)

// otherPrograms are programs with Megatron-LM's arguments that train no decoder of texts alone, by
// how their paths end.
var otherPrograms = []struct{ path, has string }{
	{"pretrain_bert.py", pairsSentences}, {"pretrain_t5.py", "an encoder beside its decoder (T5)"}, {"pretrain_ict.py", "two encoders, of questions and of texts (ICT)"}, {"pretrain_retro.py", retrieves},
	{"pretrain_vision_classify.py", seesImages}, {"pretrain_vision_inpaint.py", seesImages}, {"pretrain_vision_dino.py", seesImages}, {"pretrain_vlm.py", seesImages}, {"multimodal/train.py", seesImages}, {"mimo/train.py", seesImages},
}

// nemoOthers are keys that configurations of NeMo 1 have whose models are no decoders that are known.
var nemoOthers = []struct{ key, has string }{
	{"model.bert_binary_head", pairsSentences}, {"model.mcore_bert", pairsSentences}, {"model.retro", retrieves},
	{"model.logits_soft_cap", "recurrences in most layers (Griffin)"}, {"model.hyena", "convolutions as long as a sequence (Hyena)"},
}

// program refuses a command whose program trains something else than a decoder of texts.
func (s start) program(name string) error {
	for word := range strings.FieldsSeq(s.text) {
		for _, p := range otherPrograms {
			if word = strings.Trim(word, `"'`); word == p.path || strings.HasSuffix(word, "/"+p.path) {
				return &diag.Error{File: name, Message: fmt.Sprintf("%s trains %s, which is not modelled; give a script that starts pretrain_gpt.py or pretrain_hybrid.py", p.path, p.has)}
			}
		}
	}
	return nil
}

// decodes refuses a configuration whose model is something else than a decoder that is known.
func (r *reading) decodes() error {
	for _, o := range nemoOthers {
		if n := r.node(o.key); n != nil && n.Tag != "!!null" {
			return r.doc.Errorf(n, "%s: the model has %s, which is not modelled; give a configuration of a GPT or a Mamba hybrid", o.key, o.has)
		}
	}
	return nil
}
