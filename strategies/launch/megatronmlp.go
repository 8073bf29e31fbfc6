package launch

import "cmp"

// gluActivations are the values of --glu-activation, which GPTs of BigScience have.
var gluActivations = map[string]string{"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}

// mlp says what an MLP is; one with a gate has it of whichever argument gives it.
func (m *megatron) mlp() {
	gate := cmp.Or(m.first("swiglu", "quick_geglu", "glu_activation"), "swiglu")
	m.set("model.gated_mlp", m.has(gate), m.given(gate))
	switch {
	case m.has("hidden_act"):
		m.take("model.hidden_act", "hidden_act")
	case m.has("glu_activation"):
		if act, ok := gluActivations[m.word("glu_activation")]; ok {
			m.set("model.hidden_act", act, m.from("glu_activation"))
		} else {
			m.open("model.hidden_act", m.from("glu_activation"), m.word("glu_activation")+" is not known: give the key")
		}
	case m.has("quick_geglu"):
		m.set("model.hidden_act", "silu", m.from("quick_geglu")+", which costs what SiLU does")
	case m.has("swiglu"):
		m.set("model.hidden_act", "silu", m.from("swiglu"))
	case m.has("squared_relu"):
		m.set("model.hidden_act", "relu2", m.from("squared_relu"))
	default:
		m.set("model.hidden_act", "gelu", m.given("swiglu"))
	}
	if h := m.number("hidden_size"); !m.has("ffn_hidden_size") && h > 0 { // validate_args
		if m.has("swiglu") {
			m.set("model.intermediate_size", 4*h*2/3/64*64, "of hidden_size")
		} else {
			m.set("model.intermediate_size", 4*h, "of hidden_size")
		}
	}
}
