package ops

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// encoding is a step of an encoder-decoder model in pure bf16, whose encoder reads four times what its decoder does.
func encoding(t testing.TB, name, precision string) Config {
	if strings.HasPrefix(name, "{") {
		doc, err := yamlx.Parse("model.yaml", []byte(name))
		require.NoError(t, err)
		s, errs := model.Decode(doc, doc.Root)
		require.NoError(t, errs.Err())
		c := encoding(t, "bart-base", precision)
		c.Spec = s
		return c
	}
	c := config(t, name, "hf-eager")
	c.Precision, c.MicroBatch, c.Sequence, c.Source = c.Recipe.Precision[precision], 8, 128, 512
	return c
}

// encoderUnits are the distinct units of an encoder-decoder model.
func encoderUnits(m *Model) (list []*Unit) {
	for i := range m.Encoder {
		list = append(list, &m.Encoder[i])
	}
	list = append(list, &m.Embedding)
	for i := range m.Kinds {
		list = append(list, &m.Kinds[i])
	}
	return append(list, &m.Head)
}

// TestEncodersOfTextAreSound: memory of every unit is given back and what is trained has its gradient, whatever the
// attention, the dtypes and what is computed again, of padded sequences and with adapters, too.
func TestEncodersOfTextAreSound(t *testing.T) {
	for _, name := range []string{"flan-t5-base", "t5-small", "mt5-small", "bart-base", "mbart-large-50", "{model_type: marian}", "{model_type: pegasus}", "{model_type: m2m_100}"} {
		for _, precision := range []string{"bf16-pure", "bf16-autocast", "bf16-mixed", "fp32"} {
			for _, attention := range []string{"sdpa", "unfused"} {
				for _, again := range []Recompute{NoRecompute, FullRecompute} {
					c := encoding(t, name, precision)
					c.Attention, c.Recompute = attention, again
					c.Spec.OwnBiases, c.Spec.Encoder.OwnBiases = name == "mt5-small", name == "mt5-small" // as UMT5
					padded, adapted := c, c
					padded.Padding = 0.2
					spec, err := c.Spec.Adapted(16, []string{"q", "v"}, 0.1)
					require.NoError(t, err)
					adapted.Spec = spec
					for _, c := range []Config{c, padded, adapted} {
						for _, u := range encoderUnits(Build(c)) {
							sound(t, "hf-eager", u)
						}
					}
				}
			}
		}
	}
}

// TestOlderBiases: before transformers' pull 47014 of 2026-07 T5 writes out its attention whatever is asked for, by
// biases of every sequence: no kernel of attention, and products in 16 bits.
func TestOlderBiases(t *testing.T) {
	for _, precision := range []string{"bf16-pure", "bf16-autocast"} {
		for _, again := range []Recompute{NoRecompute, FullRecompute} {
			c := of(t, "flan-t5-base", "hf-eager", "26.06")
			c.Precision, c.MicroBatch, c.Sequence, c.Source, c.Recompute = c.Recipe.Precision[precision], 8, 128, 512, again
			m := Build(c)
			for _, u := range encoderUnits(m) {
				sound(t, "hf-eager", u)
				for _, o := range u.Forward.Ops {
					require.NotEqual(t, tape.Attention, o.Class, u.Name)
					require.False(t, o.Class == tape.GEMM && o.DType != tape.BF16, "%s: %s", u.Name, o.Prim)
				}
			}
			add := mustFind(t, &m.Encoder[1].Forward, "add_")
			require.EqualValues(t, 8*12*512*512, add.Elements)
		}
	}
}

// TestEncoderDecoderKernels: what a layer launches, counted by hand in traces of FLAN-T5 and BART large with layers
// of each stack (H200, PyTorch 2.11, transformers 5.17, 2026-11-30), of 8 sequences of 512 and 128 tokens. Copies from
// device to device are not among them, nor the one kernel in front of attention with dropout.
func TestEncoderDecoderKernels(t *testing.T) {
	bart := func(c *Config) {
		c.Spec.AttnDropout, c.Spec.ActDropout, c.Spec.Encoder.AttnDropout, c.Spec.Encoder.ActDropout = 0, 0, 0, 0
	}
	for _, x := range []struct {
		name            string
		change          func(c *Config)
		encoder, layers [2]int // forward, backward
	}{
		{"flan-t5-large", nil, [2]int{57, 87}, [2]int{79, 122}},
		{"bart-large", bart, [2]int{14, 32}, [2]int{22, 53}},
	} {
		c := encoding(t, x.name, "bf16-pure")
		if x.change != nil {
			x.change(&c)
		}
		m := Build(c)
		for _, u := range []struct {
			*Unit
			want [2]int
		}{{&m.Encoder[1], x.encoder}, {&m.Kinds[0], x.layers}} {
			require.Equal(t, u.want, [2]int{launches(&u.Forward), launches(&u.Backward)}, "%s of %s", u.Name, x.name)
		}
	}
}

// TestPaddedSource: of a padded batch attention of either stack to the encoder's tokens reads a mask of every sequence,
// with which T5's biases are put together in each layer; a decoder's own attention is told of no padding.
func TestPaddedSource(t *testing.T) {
	picked := func(p *tape.Section) (elements []float64) {
		for _, o := range p.Ops {
			if o.Prim == "where" && o.Elements > 16*128*128/2 {
				elements = append(elements, o.Elements)
			}
		}
		return elements
	}
	c := encoding(t, "flan-t5-large", "bf16-pure")
	plain := Build(c)
	c.Padding = 0.2
	padded := Build(c)
	softmax := 8. * 16 * 512 * 512 // of rows that see nothing
	require.Equal(t, []float64{softmax}, picked(&plain.Encoder[1].Forward))
	require.Equal(t, []float64{8 * 16 * 512 * 512, softmax}, picked(&padded.Encoder[1].Forward))
	own := []float64{16 * 128 * 128, 8 * 16 * 128 * 128}
	require.Equal(t, own, picked(&plain.Kinds[0].Forward))
	require.Equal(t, append(own, 8*16*128*512), picked(&padded.Kinds[0].Forward))

	masks := func(m *Model) (n int) {
		for i := range m.Kinds[0].Forward.Ops {
			if o := &m.Kinds[0].Forward.Ops[i]; o.Class == tape.Attention && o.Attn.Masked {
				n++
			}
		}
		return n
	}
	c = encoding(t, "bart-base", "bf16-pure")
	require.Zero(t, masks(Build(c)))
	c.Padding = 0.2
	require.Equal(t, 1, masks(Build(c)))
}

// TestEncoderRuns: units of an encoder run in the order of its layers, and its products are those of its sequence, of
// which keys and values of every decoder layer are made, too.
func TestEncoderRuns(t *testing.T) {
	c := encoding(t, "flan-t5-base", "bf16-pure")
	m := Build(c)
	require.Equal(t, []string{"encoder embedding", "encoder layer", "encoder norm"}, []string{m.Encoder[0].Name, m.Encoder[1].Name, m.Encoder[2].Name})
	require.Len(t, m.Encodes, 1+12+1)
	h, f, own, read := 768., 2048., 8*128., 8*512.
	scores := func(queries, keys float64) float64 { return 2 * 2 * 8 * 12 * 64 * queries * keys } // scores and sums of values, with biases
	require.InEpsilon(t, 2*read*(4*h*h+3*h*f)+scores(512, 512), flops(&m.Encoder[1].Forward), 1e-12)
	require.InEpsilon(t, 2*own*(4*h*h+2*h*h+3*h*f)+2*read*2*h*h+scores(128, 128), flops(&m.Kinds[0].Forward), 1e-12)
	require.InEpsilon(t, 2*flops(&m.Kinds[0].Forward), flops(&m.Kinds[0].Backward), 1e-12)
	for _, o := range m.Kinds[0].Forward.Ops {
		if o.Class == tape.Attention {
			require.Equal(t, [2]int64{128, 512}, [2]int64{o.Attn.Queries, o.Attn.Keys})
			require.False(t, o.Attn.Causal)
		}
	}
}

// TestSharedTable: the table of words is one parameter, the encoder's, of which decoder and a tied head have copies.
func TestSharedTable(t *testing.T) {
	for name, copies := range map[string]int{"t5-small": 2, "flan-t5-small": 1} {
		m := Build(encoding(t, name, "bf16-pure"))
		tied := 0
		for _, u := range encoderUnits(m) {
			for _, p := range u.Params {
				if p.TiedCopy {
					tied++
				}
			}
		}
		require.Equal(t, copies, tied, name)
		require.Equal(t, model.RoleEmbed, m.Encoder[0].Params[0].Role)
		require.False(t, m.Encoder[0].Params[0].TiedCopy)
	}
}
