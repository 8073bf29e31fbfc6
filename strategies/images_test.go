package strategies

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
)

const imageJob = "{model: %s, gpus: %d, runtime: {recipe: %s}, plan: {%s}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 1%s}}"

// imagesOf is a job of hf-eager on one GPU with images.
func imagesOf(t testing.TB, model, images string) *Job {
	t.Helper()
	j, err := decode(fmt.Sprintf(imageJob, model, 1, "hf-eager", "dp: 1", ", images: "+images))
	require.NoError(t, err, images)
	return j
}

// TestImageRules: each rule that images can break, with the complaint's place, value, rule and
// way out.
func TestImageRules(t *testing.T) {
	const (
		two   = ", images: {per_sequence: 2, size: 768}"
		text  = "text_config: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 2, intermediate_size: 64, vocab_size: 64}"
		known = "is not known; "
		or    = ", or leave out train.images"
	)
	for _, c := range []struct {
		model, recipe string
		gpus          int
		plan, train   string
		want          string
	}{
		// What a model and its software have.
		{"llama2-7b", "hf-eager", 1, "", two, "train.images: llama2-7b has no encoder of images; leave it out, or use a model that has one, such as qwen2.5-vl-7b"},
		{"{model_type: qwen3_vl, " + text + ", vision_config: {model_type: some_vision}}", "hf-eager", 1, "", two, "train.images: the encoder of qwen3 is not modelled; leave it out, and add its time and memory"},
		{"qwen3-vl-4b", "torchtitan", 1, "", two, "train.images: what recipe torchtitan does with the encoder of qwen3-vl-4b " + known + "leave it out, or use automodel, deepspeed-hf, hf-eager, megatron-core, megatron-pretrain or megatron-script"},
		{"qwen3-vl-30b-a3b", "torchtitan", 1, "", two, known + "leave it out, or use deepspeed-hf, hf-eager, megatron-core, megatron-pretrain or megatron-script"},
		{"qwen2.5-vl-7b", "megatron-core", 1, "", two, "train.images: what recipe megatron-core does with the encoder of qwen2.5-vl-7b " + known + "leave it out, or use automodel, deepspeed-hf or hf-eager"},
		{"llava-1.5-7b", "hf-compile", 1, "", ", images: {per_sequence: 1}", "train.images: what recipe hf-compile does with the encoder of llava-1.5-7b " + known + "leave it out, or use automodel, deepspeed-hf or hf-eager"},
		{"gemma3-4b", "hf-compile, compile_scope: layer", 1, "", ", images: {per_sequence: 1}", "train.images: what recipe hf-compile does with the encoder of gemma3-4b " + known},
		{"qwen3-vl-4b", "hf-eager", 1, "", two + ", offload_activations: true", "train.images: what of an encoder's activations goes to the host " + known + "leave out train.offload_activations, train.offload_layers and train.offload_modules"},
		{"qwen3-vl-4b", "megatron-core", 1, "", two + ", offload_layers: 4", "train.images: what of an encoder's activations goes to the host " + known + "leave out train.offload_activations, train.offload_layers and train.offload_modules"},
		{"qwen3-vl-4b", "hf-eager", 1, "", two + ", optimizer: muon", "train.images: how muon updates an encoder " + known + "use another train.optimizer"},

		// How many, how large.
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 0, size: 768}", "train.images.per_sequence: 0; give 1 to 65536, or leave train.images out"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: -1, size: 768}", "train.images.per_sequence: -1; give 1 to 65536, or leave train.images out"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 65537, size: 768}", "train.images.per_sequence: 65537; give 1 to 65536, or leave train.images out"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {}", "train.images.per_sequence: 0; give 1 to 65536, or leave train.images out"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2}", "train.images.size: is missing; give height and width in pixels, as in 512x768"},
		{"qwen2.5-vl-7b", "hf-eager", 1, "", ", images: {per_sequence: 2}", "train.images.size: is missing; give height and width in pixels, as in 448x672"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 768x31}", "train.images.size: 768x31 is outside 32 to 65536 pixels on a side"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 31x768}", "train.images.size: 31x768 is outside 32 to 65536 pixels on a side"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 65537x768}", "train.images.size: 65537x768 is outside 32 to 65536 pixels on a side"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 768x65537}", "train.images.size: 768x65537 is outside 32 to 65536 pixels on a side"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: -768}", "train.images.size: -768x-768 is outside 32 to 65536 pixels on a side"},
		{"gemma3-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 448}", "train.images.size: 448x448, but gemma3-4b brings every image to 896x896; leave it out"},
		{"llava-1.5-7b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 336x672}", "train.images.size: 336x672, but llava-1.5-7b brings every image to 336x336; leave it out"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 8, size: 768}", "train.images.per_sequence: 8 of 768x768 make 4608 tokens, more than the 4096 of a sequence; give fewer or smaller ones, or a longer train.sequence_length"},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 7, size: 768}", ""}, // 4032
		{"gemma3-4b", "hf-eager", 1, "", ", images: {per_sequence: 16}", ""},             // all of the sequence
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 768, frozen: [encode]}", `train.images.frozen: "encode" is not known; did you mean "encoder"?`},

		// What is no such value, where it is.
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 448x}", `"448x" is no size of an image; write height and width in pixels, as in 448x672, or one number for both`},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: x448}", `"x448" is no size of an image`},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 1x2x3}", `"1x2x3" is no size of an image`},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 448.5}", `"448.5" is no size of an image`},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 99999999999999999999}", `"99999999999999999999" is no size of an image`},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 768, frozen: encoder}", `frozen: expected a list, found "encoder"`},
		{"qwen3-vl-4b", "hf-eager", 1, "", ", images: {per_sequence: 2, size: 768, count: 1}", `unknown key "count"; known: per_sequence, size, frozen`},

		// How a plan splits them.
		{"qwen3-vl-4b", "megatron-core", 32, "tp: 32", two, "plan.tp: 32 does not divide the 16 heads of the encoder of images; use a divisor" + or},
		{"qwen3-vl-4b", "megatron-core", 2, "cp: 2", two, "plan.cp: 2, but how recipe megatron-core cuts an encoder of images over such ranks " + known + "set it to 1" + or},
		{"qwen3-vl-4b", "hf-eager", 2, "tp: 2", two, "plan.tp: 2, but how recipe hf-eager cuts an encoder of images over such ranks " + known + "set it to 1" + or},
		{"qwen3-vl-4b", "hf-eager", 2, "pp: 2", two, "plan.pp: 2, but how recipe hf-eager cuts an encoder of images over such ranks " + known + "set it to 1" + or},
		{"qwen3-vl-4b", "megatron-core", 16, "tp: 8, pp: 2", two, ""},
		{"qwen3-vl-4b", "hf-eager", 2, "dp: 2, data_parallel: fsdp2", two, ""},
		{"qwen3-vl-4b", "hf-eager", 2, "tp: 2", "", ""}, // text has none of this
	} {
		_, err := decode(fmt.Sprintf(imageJob, c.model, c.gpus, c.recipe, c.plan, c.train))
		if c.want == "" {
			require.NoError(t, err, "%s: %s%s", c.model, c.plan, c.train)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.True(t, diag.IsInput(err), c.want)
		require.Contains(t, err.Error(), "job.yaml:1:", "its place")
	}
}

// TestImagesResolved: what images are left out, and what is made of those given. Sizes become
// multiples of what makes a token, as by Python's round, which takes halves to even ones
// (transformers, models/qwen2_vl/image_processing_qwen2_vl.py, smart_resize).
func TestImagesResolved(t *testing.T) {
	for _, c := range []struct {
		model, images string
		size          Pixels
		tokens        int64
		note          string
	}{
		{"qwen3-vl-4b", "{per_sequence: 2, size: 768}", Pixels{768, 768}, 24 * 24, ""},
		{"qwen3-vl-4b", "{per_sequence: 2, size: 448x672}", Pixels{448, 672}, 14 * 21, ""},
		{"qwen3-vl-4b", "{per_sequence: 2, size: 32}", Pixels{32, 32}, 1, ""},
		{"qwen2.5-vl-7b", "{per_sequence: 1, size: 1080x1920}", Pixels{1092, 1932}, 39 * 69, "multiples of 28 pixels, to which the model's processor brings 1080x1920"},
		{"qwen2.5-vl-7b", "{per_sequence: 2, size: 69x71}", Pixels{56, 84}, 2 * 3, "brings 69x71"},
		{"qwen2.5-vl-7b", "{per_sequence: 2, size: 70x98}", Pixels{56, 112}, 2 * 4, "brings 70x98"}, // 2.5 and 3.5
		{"gemma3-4b", "{per_sequence: 2}", Pixels{896, 896}, 256, ""},
		{"gemma3-4b", "{per_sequence: 2, size: 896}", Pixels{896, 896}, 256, ""},
		{"llava-1.5-7b", "{per_sequence: 2}", Pixels{336, 336}, 576, ""},
	} {
		j := imagesOf(t, c.model, c.images)
		require.Equal(t, c.size, j.Train.Images.Size, "%s %s", c.model, c.images)
		v := j.Model.Vision
		require.Equal(t, []int64{j.Train.Images.PerSequence, c.size.Height, c.size.Width, c.tokens}, []int64{v.Each, v.Height, v.Width, v.Tokens()}, "%s %s", c.model, c.images)
		require.False(t, j.Model.TextOnly)
		notes := ""
		for _, d := range j.Defaulted {
			if strings.HasPrefix(d, "train.images.") {
				notes += d
			}
		}
		if c.note == "" {
			require.Empty(t, notes, c.images)
		} else {
			require.Contains(t, notes, "train.images.size = "+c.size.String()+" (")
			require.Contains(t, notes, c.note)
		}
	}
}

// TestImagesLeftOut: without images a model is its language model, and a remark says what
// would add its encoder. The catalog's own model stays as it is.
func TestImagesLeftOut(t *testing.T) {
	for _, train := range []string{"", ", images: null"} {
		j, err := decode(fmt.Sprintf(imageJob, "qwen3-vl-4b", 1, "hf-eager", "dp: 1", train))
		require.NoError(t, err)
		require.Nil(t, j.Train.Images)
		require.Nil(t, j.Model.Vision)
		require.True(t, j.Model.TextOnly)
		require.Zero(t, j.Model.Params().Vision)
		notes := j.Remarks()
		require.Len(t, notes, 1)
		require.Equal(t, "model.towers", notes[0].Code)
		require.Equal(t, "for such steps give train.images", notes[0].Remedy)
	}
	large, small := imagesOf(t, "qwen3-vl-4b", "{per_sequence: 1, size: 768}"), imagesOf(t, "qwen3-vl-4b", "{per_sequence: 3, size: 64, frozen: [encoder]}")
	require.Empty(t, large.Remarks())
	require.Equal(t, []int64{1, 768, 3, 64}, []int64{large.Model.Vision.Each, large.Model.Vision.Height, small.Model.Vision.Each, small.Model.Vision.Height}, "one job's images are not another's")
	own, err := model.Load("qwen3-vl-4b")
	require.NoError(t, err)
	require.Equal(t, model.Images{}, own.Vision.Images)
}

// TestFrozenParts: which parts are trained, by name. Adapters, which stand beside projections
// of the language model, leave both as they are, and that is said where it was not given.
func TestFrozenParts(t *testing.T) {
	for _, c := range []struct {
		frozen, lora       string
		encoder, projector bool
		note               string
	}{
		{"", "", false, false, ""},
		{"[]", "", false, false, ""},
		{"[encoder]", "", true, false, ""},
		{"[projector]", "", false, true, ""},
		{"[projector, encoder]", "", true, true, ""},
		{"", ", lora: {rank: 8}", true, true, "train.images.frozen = encoder, projector (adapters are beside the language model's projections)"},
		{"[encoder]", ", lora: {rank: 8}", true, true, "train.images.frozen = encoder, projector ("},
		{"[encoder, projector]", ", lora: {rank: 8}", true, true, ""},
	} {
		frozen := ""
		if c.frozen != "" {
			frozen = ", frozen: " + c.frozen
		}
		j, err := decode(fmt.Sprintf(imageJob, "qwen3-vl-4b", 1, "hf-eager", "dp: 1", ", images: {per_sequence: 1, size: 64"+frozen+"}"+c.lora))
		require.NoError(t, err, "%v", c)
		v, count := j.Model.Vision, j.Model.Params()
		require.Equal(t, [2]bool{c.encoder, c.projector}, [2]bool{v.FrozenEncoder, v.FrozenProjector}, "%v", c)
		if c.encoder && c.projector && c.lora == "" {
			require.Equal(t, count.Total-count.Vision, count.Trained)
		}
		require.Equal(t, c.note != "", strings.Contains(strings.Join(j.Defaulted, "\n"), "train.images.frozen"), "%v", c)
		require.Contains(t, strings.Join(j.Defaulted, "\n"), c.note)
	}
}

// TestImagesRoundTrip: images as YAML and JSON write them are read as the same ones, and a
// plan that is set later keeps them.
func TestImagesRoundTrip(t *testing.T) {
	for _, images := range []string{"{per_sequence: 2, size: 768}", "{per_sequence: 3, size: 448x672, frozen: [encoder]}", "{per_sequence: 1, size: 1000, frozen: [projector, encoder]}"} {
		want := imagesOf(t, "qwen3-vl-4b", images)
		for name, write := range map[string]func(any) ([]byte, error){"yaml": yaml.Marshal, "json": json.Marshal} {
			text, err := write(map[string]any{"model": "qwen3-vl-4b", "gpus": 1, "runtime": map[string]any{"recipe": "hf-eager"}, "plan": map[string]any{"dp": 1},
				"train": map[string]any{"sequence_length": 4096, "images": want.Train.Images}})
			require.NoError(t, err)
			got := mustDecode(t, string(text))
			if i := got.Train.Images; len(i.Frozen) == 0 {
				i.Frozen = nil
			}
			require.Equal(t, want.Train.Images, got.Train.Images, "%s: %s", name, text)
			require.Equal(t, want.Model.Vision, got.Model.Vision, "%s: %s", name, text)
		}
		require.NoError(t, want.SetPlan(Plan{DataParallel: FSDP2}))
		require.NotNil(t, want.Train.Images)
		require.NotNil(t, want.Model.Vision)
	}
}

// FuzzPixels: no text panics, and a size that is read is written as it is read again.
func FuzzPixels(f *testing.F) {
	for _, seed := range []string{"448x672", "768", "x", "1x", "-1x+2", "0x10", "1x2x3", "9223372036854775808", "４４８x６７２", strings.Repeat("9", 1000), ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p, again Pixels
		d := &yamlx.Document{}
		if errs := p.DecodeNode(d, &yaml.Node{Kind: yaml.ScalarNode, Value: text}); len(errs) > 0 {
			if len(text) < 64 { // of a longer one the error shows the beginning
				require.Contains(t, errs[0].Message, "is no size of an image; write height and width in pixels") // printed, long text is cut short
			}
			require.Zero(t, p)
			return
		}
		require.Empty(t, again.DecodeNode(d, &yaml.Node{Kind: yaml.ScalarNode, Value: p.String()}))
		require.Equal(t, p, again)
	})
}
