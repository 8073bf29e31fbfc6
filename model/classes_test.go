package model_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/model"
)

// Every key of a configuration class is known, and its default is the family's: a file that
// spells all of them out is the model of one that names its type alone.
func TestClassKeys(t *testing.T) {
	data, err := os.ReadFile("testdata/classes.yaml")
	require.NoError(t, err)
	var classes []yaml.Node
	require.NoError(t, yaml.Unmarshal(data, &classes))
	require.NotEmpty(t, classes)
	for i := range classes {
		text, err := yaml.Marshal(&classes[i])
		require.NoError(t, err)
		name := classes[i].Content[1].Value
		t.Run(name, func(t *testing.T) {
			more := moreKeys[name]
			got := decode(t, string(text)[:len(text)-2]+", "+more+"}\n")
			want := decode(t, "{model_type: "+name+", "+more+"}")
			got.Defaulted, want.Defaulted = nil, nil
			require.Equal(t, want, got)
		})
	}
}

// moreKeys are those without which a class has no model.
var moreKeys = map[string]string{}

// What classes have that are read since 2026-11-26, from modeling_*.py of transformers 5.17.
func TestMoreSwitches(t *testing.T) {
	for text, check := range map[string]func(*testing.T, *model.Spec){
		"{model_type: arcee, num_hidden_layers: 2, vocab_size: 100, hidden_size: 64, intermediate_size: 256, num_attention_heads: 4, num_key_value_heads: 2}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.ReLU2, s.Activation)
			require.Equal(t, int64(2*100*64+64+2*(2*64*64+2*64*32+2*64*256+2*64)), s.Params().Total, "no gate")
		},
		"{model_type: ministral, layer_types: [full_attention, sliding_attention], num_hidden_layers: 2}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{false, true}, s.Windows)
			require.False(t, s.QueryScale)
		},
		"{model_type: mistral3, text_config: {model_type: ministral3, rope_parameters: {rope_type: yarn, llama_4_scaling_beta: 0.1}}}": func(t *testing.T, s *model.Spec) {
			require.True(t, s.QueryScale && s.TextOnly)
			require.Nil(t, s.Windows)
		},
		"{model_type: glm4}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.Sandwich, s.Place)
			require.True(t, s.FusedGateUp && s.QKVBias && !s.OutBias)
			require.Equal(t, int64(64), s.RotaryDim)
			require.Equal(t, s.Params().Total-40*2*4096, decode(t, "{model_type: glm}").Params().Total, "two norms a layer")
		},
		"{model_type: ernie4_5, use_bias: true, num_hidden_layers: 1}": func(t *testing.T, s *model.Spec) {
			require.True(t, s.Tied && s.QKVBias && s.OutBias && s.MLPBias)
			require.Equal(t, model.TurnPairsMixed, s.Turn)
		},
		"{model_type: helium}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.CastRMSNorm, s.Norm)
		},
	} {
		t.Run(text, func(t *testing.T) { check(t, decode(t, text)) })
	}
}
