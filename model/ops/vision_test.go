package ops

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// encoders are one model of each kind of encoder, with a size of images that it takes.
var encoders = []struct {
	name          string
	height, width int64
}{{"qwen2-vl-7b", 448, 672}, {"qwen2.5-vl-3b", 448, 672}, {"qwen3-vl-4b", 512, 768}, {"qwen3.5-9b", 512, 768}, {"gemma3-4b", 896, 896}, {"llava-1.5-7b", 336, 336}}

// frozen are the parts that images may leave as they are.
var frozen = []model.Images{{}, {FrozenEncoder: true}, {FrozenProjector: true}, {FrozenEncoder: true, FrozenProjector: true}}

// lookingConfig is config with two images in each of two sequences.
func lookingConfig(t testing.TB, name, recipeName string, of model.Images) Config {
	c := config(t, name, recipeName)
	for _, e := range encoders {
		if e.name == name {
			of.Height, of.Width = e.height, e.width
		}
	}
	if of.Each == 0 {
		of.Each = 2
	}
	c.Spec.Vision = c.Spec.Vision.Of(of)
	return c
}

// unread sets parameters frozen that have no gradient because nothing reads what they make:
// those of CLIP's last layer already are, the norm behind it is not even run.
func unread(v *model.Vision, u Unit) *Unit {
	u.Params = append([]Param{}, u.Params...)
	for i := range u.Params {
		if p := &u.Params[i]; v.Projector == model.MLPProjector && strings.HasPrefix(p.Name, "post_layernorm.") {
			p.Frozen, p.Used = true, true
		}
	}
	return &u
}

// looks runs f over the units of an encoder, each as often as it runs.
func looks(m *Model, f func(u *Unit)) {
	for _, i := range m.Encodes {
		f(&m.Encoder[i])
	}
}

// TestEncodersAreSound: whatever is frozen, recomputed or cut, memory of every unit of an
// encoder and of what takes its tokens is given back, and what is trained has its gradient.
func TestEncodersAreSound(t *testing.T) {
	for _, r := range []string{"hf-eager", "megatron-core"} {
		for _, e := range encoders {
			for _, of := range frozen {
				for _, again := range []Recompute{NoRecompute, SelectiveRecompute, FullRecompute} {
					for _, shard := range []Shard{{TP: 1, CP: 1, EP: 1, ExpertTP: 1}, {TP: 2, CP: 1, EP: 1, ExpertTP: 1, SequenceParallel: r == "megatron-core"}} {
						t.Run(fmt.Sprintf("%s/%s/%v %v/%s/tp%d", r, e.name, of.FrozenEncoder, of.FrozenProjector, again, shard.TP), func(t *testing.T) {
							c := lookingConfig(t, e.name, r, of)
							c.Recompute, c.Shard = again, shard
							m, missing := tryBuild(c)
							require.Empty(t, missing)
							for _, u := range m.Encoder {
								sound(t, r, unread(c.Spec.Vision, u))
							}
							sound(t, r, &m.Embedding)
							for i := range m.Kinds {
								sound(t, r, &m.Kinds[i])
							}
						})
					}
				}
			}
		}
	}
}

// TestEncoderProducts: products and convolutions are those that the formulas of the model
// count, in either pass, whatever is frozen. LLaVA's last layer runs though nothing reads it.
func TestEncoderProducts(t *testing.T) {
	count := func(s *tape.Section) (n float64) {
		n = flops(s)
		for _, o := range s.Ops {
			if o.Class == tape.Convolution {
				n += float64(o.FLOPs)
			}
		}
		return
	}
	for _, e := range encoders {
		for _, of := range frozen {
			c := lookingConfig(t, e.name, "hf-eager", of)
			v := c.Spec.Vision
			images := float64(c.MicroBatch * v.Each)
			text := *c.Spec
			text.Vision = nil
			all := float64(c.Spec.ForwardFLOPs(c.MicroBatch*c.Sequence, c.Sequence, true).Vision)
			step := float64(c.Spec.StepFLOPs(c.MicroBatch*c.Sequence, c.Sequence, true) - text.StepFLOPs(c.MicroBatch*c.Sequence, c.Sequence, true))
			var scores, layer float64 // attention's; what a layer multiplies
			for i := range v.Used() {
				scores += images * 4 * float64(v.Encoder.Hidden*v.Positions()*v.Positions()/v.Parts(v.Encoder.Kind(i)))
			}
			for _, p := range v.Encoder.Tensors().Layer(v.Encoder.Kind(0)) {
				if len(p.Shape) > 1 {
					layer += 2 * images * float64(p.Size()*v.Positions())
				}
			}
			back := step - all
			if !of.FrozenEncoder {
				back -= 2 * scores
			}
			var forward, backward float64
			looks(built(t, c), func(u *Unit) {
				forward, backward = forward+count(&u.Forward), backward+count(&u.Backward)
			})
			require.InEpsilon(t, all-scores+float64(v.Idle)*layer, forward, 1e-9, "%s %+v", e.name, of)
			require.InDelta(t, back, backward, 1e-9*all, "%s %+v", e.name, of)
		}
	}
}

// built is Build that fails the test where a recipe lacks a program.
func built(t testing.TB, c Config) *Model {
	m, missing := tryBuild(c)
	require.Empty(t, missing)
	return m
}

// TestFrozenEncoder: a frozen encoder keeps nothing and has no kernel in the backward pass;
// its projector is trained without going back to it, and not at all where that is frozen, too.
func TestFrozenEncoder(t *testing.T) {
	for _, e := range encoders {
		for _, of := range frozen {
			c := lookingConfig(t, e.name, "hf-eager", of)
			c.Recompute = FullRecompute // of the language model
			m := built(t, c)
			for i := range m.Encoder {
				u := &m.Encoder[i]
				projector := strings.HasSuffix(u.Name, "projector")
				still := of.FrozenEncoder && (!projector || of.FrozenProjector)
				require.Equal(t, still, len(u.Backward.Ops) == 0, "%s, %s: %+v", e.name, u.Name, of)
				require.Equal(t, still, u.GradStore < 0, "%s, %s: %+v", e.name, u.Name, of)
				if still {
					require.Zero(t, u.Saved(), "%s, %s", e.name, u.Name)
					require.Empty(t, u.Backward.Grads)
				}
				if of.FrozenEncoder || u.Name == "vision patches" {
					require.Negative(t, u.InGradStore, "%s, %s: %+v", e.name, u.Name, of)
				} else {
					require.GreaterOrEqual(t, u.InGradStore, int32(0), "%s, %s: %+v", e.name, u.Name, of)
				}
			}
			require.Equal(t, of.FrozenEncoder && of.FrozenProjector, m.Embedding.InGradStore < 0, "%s: gradients of images' tokens", e.name)
		}
	}
}

// TestIdleLayer: a layer that nothing reads keeps nothing: beside it are what LLaVA's first
// product reads without class tokens, and what GELU and the second read.
func TestIdleLayer(t *testing.T) {
	m := built(t, lookingConfig(t, "llava-1.5-7b", "hf-eager", model.Images{}))
	projector := &m.Encoder[len(m.Encoder)-1]
	require.EqualValues(t, 4*576*2*(1024+4096+4096), projector.Saved())
	require.Equal(t, 1, number(&projector.Forward, "attention"))
	require.Zero(t, number(&projector.Backward, "attention_backward"))
}

// TestLooks: which units run, and in which order: layers with windows and without are two,
// inner layers' projectors follow the layers that they read, and the last of LLaVA's runs with
// its projector, which does not read it.
func TestLooks(t *testing.T) {
	for name, want := range map[string]string{
		"qwen2-vl-7b":   "patches 32×layer projector",
		"qwen2.5-vl-3b": "patches 7×windowed layer layer 7×windowed layer layer 7×windowed layer layer 7×windowed layer layer projector",
		"qwen3-vl-4b":   "patches 6×layer inner projector 6×layer inner projector 6×layer inner projector 6×layer projector",
		"qwen3.5-9b":    "patches 27×layer projector",
		"gemma3-4b":     "patches 27×layer projector",
		"llava-1.5-7b":  "patches 23×layer projector",
	} {
		c := lookingConfig(t, name, "hf-eager", model.Images{})
		m := built(t, c)
		var names []string
		looks(m, func(u *Unit) { names = append(names, strings.TrimPrefix(u.Name, "vision ")) })
		var got []string
		for i := 0; i < len(names); {
			n := 1
			for i+n < len(names) && names[i+n] == names[i] {
				n++
			}
			if got = append(got, names[i]); n > 1 {
				got[len(got)-1] = fmt.Sprintf("%d×%s", n, names[i])
			}
			i += n
		}
		require.Equal(t, want, strings.Join(got, " "), name)

		// Each takes over what the one before hands on; tokens go to the language model.
		var handed, last *Unit
		looks(m, func(u *Unit) {
			if handed != nil {
				require.Equal(t, handed.Output, u.Input, "%s: %s after %s", name, u.Name, handed.Name)
			}
			handed, last = u, u
		})
		require.Equal(t, m.Embedding.Input, last.Output, name)
		require.InDelta(t, float64(c.MicroBatch*2*c.Spec.Vision.Tokens()*c.Spec.Hidden*2), float64(last.Output), 512, name)

		var params int64
		looks(m, func(u *Unit) { params += u.LocalParams() })
		require.Equal(t, c.Spec.Params().Vision, params, "%s: parameters of all units", name)
	}
}

// TestEncoderKernels: convolutions, calls of attention and norms of one layer's forward pass.
// Two sequences have two images each. Images of Qwen-VL lie in one sequence, which
// scaled_dot_product_attention takes image by image or window by window
// (modeling_qwen2_5_vl.py), and kernels that know of lengths at once; those of others are a
// batch.
func TestEncoderKernels(t *testing.T) {
	for _, c := range []struct {
		name, attention string
		calls           []int // of attention, by kind of layer
		batch           int64
		positions       []int64
		norms           int // LayerNorm or the mean of RMSNorm
		products        int
	}{
		{"qwen2-vl-7b", "sdpa", []int{4}, 1, []int64{32 * 48}, 2, 4},
		{"qwen2-vl-7b", "flash", []int{1}, 4, []int64{32 * 48}, 2, 4},
		{"qwen2.5-vl-3b", "sdpa", []int{4 * 4 * 6, 4}, 1, []int64{64, 32 * 48}, 2, 5},
		{"qwen2.5-vl-3b", "flash", []int{1, 1}, 0, []int64{64, 32 * 48}, 2, 5},
		{"qwen3-vl-4b", "sdpa", []int{4}, 1, []int64{32 * 48}, 2, 4},
		{"gemma3-4b", "sdpa", []int{1}, 4, []int64{4096}, 2, 6},
		{"llava-1.5-7b", "sdpa", []int{1}, 4, []int64{577}, 2, 6},
	} {
		t.Run(c.name+"/"+c.attention, func(t *testing.T) {
			conf := lookingConfig(t, c.name, "hf-eager", model.Images{})
			conf.Attention = c.attention
			var calls []int
			var positions []int64
			for _, u := range built(t, conf).Encoder {
				if u.Name == "vision patches" {
					require.Equal(t, 1, number(&u.Forward, "patches"))
					require.Equal(t, 1, number(&u.Backward, "patches_wgrad"))
				}
				if !strings.HasSuffix(u.Name, "layer") {
					continue
				}
				n, norms := 0, 0
				for _, s := range []*tape.Section{&u.Forward, &u.Backward} {
					for _, o := range s.Ops {
						if o.Class == tape.Attention {
							n += max(int(o.Count), 1)
							require.False(t, o.Attn.Causal || o.Attn.Masked, "patches see one another")
							if s == &u.Forward {
								positions = append(positions, o.Attn.Queries)
								if c.batch > 0 {
									require.Equal(t, c.batch, o.Attn.Batch)
								}
							}
						}
						if s == &u.Forward && (o.Prim == "layer_norm" || o.Prim == "mean") {
							norms++
						}
					}
				}
				require.Equal(t, c.norms, norms, u.Name)
				require.Equal(t, c.products, products(&u.Forward)[tape.LayoutForward], u.Name)
				require.Equal(t, c.products, products(&u.Backward)[tape.LayoutWgrad], u.Name)
				require.Zero(t, n%2, "as many back as forth")
				calls = append(calls, n/2)
			}
			require.Equal(t, c.calls, calls)
			require.Equal(t, c.positions, positions)
		})
	}
}

// TestImagesInText: tokens of images are put among the embedded text by a mask in
// transformers, by lists in Megatron-Bridge; Gemma 3's see one another, for which masks of all
// pairs are made and attention reads one; Qwen3-VL's inner layers are added to the first three.
func TestImagesInText(t *testing.T) {
	for _, c := range []struct {
		name, recipe   string
		scatter, lists int
		masks          int
		masked         bool
		deep           int
	}{
		{"qwen2.5-vl-3b", "hf-eager", 1, 0, 0, false, 0},
		{"qwen3-vl-4b", "hf-eager", 1, 0, 0, false, 3},
		{"qwen3-vl-4b", "megatron-core", 0, 1, 0, false, 3},
		{"gemma3-4b", "hf-eager", 1, 0, 14, true, 0},
		{"llava-1.5-7b", "hf-eager", 1, 0, 0, false, 0},
	} {
		t.Run(c.recipe+"/"+c.name, func(t *testing.T) {
			conf := lookingConfig(t, c.name, c.recipe, model.Images{})
			m := built(t, conf)
			put := func(prim string) int { return number(&m.Embedding.Forward, prim) }
			require.Equal(t, []int{c.scatter, c.lists, c.masks}, []int{put("masked_scatter"), put("index_put_"), put("mask")})
			masked, deep := false, 0
			for i := range conf.Spec.Layers {
				u := &m.Kinds[m.Layers[i]]
				for _, o := range u.Forward.Ops {
					masked = masked || o.Attn != nil && o.Attn.Masked
				}
				if in(&u.Forward, "attention") > 0 && number(&u.Forward, "index_put_") > 0 {
					require.Equal(t, int64(deep), i, "the first layers")
					deep++
				}
			}
			require.Equal(t, c.masked, masked)
			require.Equal(t, c.deep, deep)

			conf.Spec.Vision = nil // what is trained on text alone has none of it
			text := built(t, conf)
			require.Empty(t, text.Encoder)
			require.Empty(t, text.Encodes)
			require.Less(t, len(text.Embedding.Forward.Ops), len(m.Embedding.Forward.Ops))
		})
	}
}

// TestEncoderCut: tensor ranks hold half of what can be cut; patches, tables and norms are
// whole on each. Context ranks have all patches.
func TestEncoderCut(t *testing.T) {
	c := lookingConfig(t, "qwen2.5-vl-3b", "megatron-core", model.Images{})
	cut := c
	cut.Shard.TP = 2
	context := c
	context.Shard.CP = 2
	whole, halves, same := built(t, c), built(t, cut), built(t, context)
	for i, u := range halves.Encoder {
		for k, p := range u.Params {
			of := whole.Encoder[i].Params[k]
			want := of.Local
			if p.Split == model.ColumnSplit || p.Split == model.RowSplit {
				want /= 2
			}
			require.Equal(t, want, p.Local, "%s, %s", u.Name, p.Name)
		}
		require.Equal(t, len(whole.Encoder[i].Forward.Ops), len(same.Encoder[i].Forward.Ops))
		require.Equal(t, flops(&whole.Encoder[i].Forward), flops(&same.Encoder[i].Forward))
		if strings.HasSuffix(u.Name, "layer") {
			require.Equal(t, flops(&whole.Encoder[i].Forward), 2*flops(&u.Forward))
		}
	}
}

// TestHostOfImages: what a recipe says that the host does around an encoder is there as often
// as it says: once, for each image and for each sequence.
func TestHostOfImages(t *testing.T) {
	c := lookingConfig(t, "qwen3-vl-4b", "hf-eager", model.Images{Each: 3})
	h, ok := c.Recipe.Images["qwen3_vl_vision"]
	require.True(t, ok)
	m := built(t, c)
	count := func(u *Unit) (kernels, waits int) {
		for _, o := range u.Forward.Ops {
			if o.Prim == "image" {
				kernels += max(int(o.Count), 1)
			}
			if o.Sync {
				waits++
			}
		}
		return
	}
	text := c
	spec := *c.Spec
	text.Spec, spec.Vision = &spec, nil
	_, without := count(&built(t, text).Embedding)
	const sequences, images = 2, 6
	kernels, waits := count(&m.Encoder[0])
	require.Equal(t, h.Pass.Kernels+images*h.Image.Kernels+h.Tables.Kernels, kernels)
	require.Equal(t, h.Pass.Waits+images*h.Image.Waits+h.Tables.Waits, waits)
	kernels, waits = count(&m.Embedding)
	require.Equal(t, h.Places.Kernels+sequences*h.Sequence.Kernels+images*h.Turned.Kernels, kernels)
	require.Equal(t, h.Places.Waits+sequences*h.Sequence.Waits+images*h.Turned.Waits, waits-without)
}

// TestRecipesKnowEncoders: what recipes say of encoders is of encoders that there are, and
// transformers runs all that the catalog has.
func TestRecipesKnowEncoders(t *testing.T) {
	known := map[string]bool{}
	for _, name := range model.Names() {
		s, err := model.Load(name)
		require.NoError(t, err)
		if s.Vision == nil {
			continue
		}
		known[s.Vision.Encoder.ModelType] = true
		r, err := recipe.Load("hf-eager")
		require.NoError(t, err)
		require.Contains(t, r.Images, s.Vision.Encoder.ModelType, name)
		require.Contains(t, r.Programs, string(s.Vision.Encoder.Activation), name)
	}
	require.Len(t, known, 5)
	for _, name := range recipe.Names() {
		r, err := recipe.Load(name)
		require.NoError(t, err)
		for encoder := range r.Images {
			require.True(t, known[encoder], "%s: %s", name, encoder)
		}
	}
}
