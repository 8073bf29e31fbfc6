package strategies

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
)

// Images are those of each sequence of a vision-language model.
type Images struct {
	PerSequence int64    `yaml:"per_sequence" json:"per_sequence"`
	Size        Pixels   `yaml:"size" json:"size"`               // of each, as the model's processor leaves it; left out: the one that the model has
	Frozen      []string `yaml:"frozen" json:"frozen,omitempty"` // parts of the model that are not trained: encoder, projector
}

// Pixels is a height and a width, written 448x672, or one number for both.
type Pixels struct{ Height, Width int64 }

// DecodeNode reads it.
func (p *Pixels) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	height, width, both := strings.Cut(n.Value, "x")
	if !both {
		width = height
	}
	h, err := strconv.ParseInt(height, 10, 64)
	w, err2 := strconv.ParseInt(width, 10, 64)
	if err != nil || err2 != nil {
		return diag.List{d.Errorf(n, "%q is no size of an image; write height and width in pixels, as in 448x672, or one number for both", n.Value)}
	}
	*p = Pixels{h, w}
	return nil
}

// String writes it as DecodeNode reads it.
func (p Pixels) String() string { return fmt.Sprintf("%dx%d", p.Height, p.Width) }

// MarshalText writes it into JSON.
func (p Pixels) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Parts of a model that images may leave frozen.
const (
	encoderPart   = "encoder"
	projectorPart = "projector"
)

// Bounds beyond any job, so that products of them stay inside int64.
const (
	mostImages = 1 << 16
	mostPixels = 1 << 16
)

// resolveImages gives the model the images of a job, or leaves its encoder out.
func (j *Job) resolveImages() error {
	i, v := j.Train.Images, j.Model.Vision
	m := *j.Model
	if i == nil {
		if v != nil {
			m.Vision, m.TextOnly, j.leavesEncoder = nil, true, true
			j.Model = &m
		}
		return nil
	}
	own := *i
	if err := first(func() error { return j.checkEncoder(v) }, func() error { return j.checkSize(v, &own) }); err != nil {
		return err
	}
	of := model.Images{Each: own.PerSequence, Height: own.Size.Height, Width: own.Size.Width}
	for _, part := range own.Frozen {
		if err := oneOf("train.images.frozen", part, []string{encoderPart, projectorPart}); err != nil {
			return err
		}
	}
	of.FrozenEncoder, of.FrozenProjector = slices.Contains(own.Frozen, encoderPart), slices.Contains(own.Frozen, projectorPart)
	if m.LoRA != nil && !(of.FrozenEncoder && of.FrozenProjector) {
		own.Frozen, of.FrozenEncoder, of.FrozenProjector = []string{encoderPart, projectorPart}, true, true
		j.note("train.images.frozen", strings.Join(own.Frozen, ", "), "adapters are beside the language model's projections")
	}
	m.Vision = v.Of(of)
	if tokens, seq := own.PerSequence*m.Vision.Tokens(), j.Train.SequenceLength; tokens > seq {
		return diag.Errorf("train.images.per_sequence: %d of %s make %d tokens, more than the %d of a sequence; give fewer or smaller ones, or a longer train.sequence_length", own.PerSequence, own.Size, tokens, seq)
	}
	j.Model, j.Train.Images = &m, &own
	return nil
}

// checkEncoder holds images against what model and software know of them.
func (j *Job) checkEncoder(v *model.Vision) error {
	known := ""
	if v != nil {
		known = v.Encoder.ModelType
	}
	_, able := j.Recipe.Images[known]
	switch {
	case v == nil && j.Model.TextOnly:
		return diag.Errorf("train.images: the encoder of %s is not modelled; leave it out, and add its time and memory", j.ModelName)
	case v == nil:
		return diag.Errorf("train.images: %s has no encoder of images; leave it out, or use a model that has one, such as qwen2.5-vl-7b", j.ModelName)
	case !able || j.Recipe.Structure.Compiled || j.Layers != nil:
		return diag.Errorf("train.images: what recipe %s does with the encoder of %s is not known; leave it out, or use %s", j.Runtime.Recipe, j.ModelName, diag.Or(j.looking(known)))
	case j.Train.AwayActivations():
		return diag.Errorf("train.images: what of an encoder's activations goes to the host is not known; leave out train.offload_activations, train.offload_layers and train.offload_modules")
	case j.Recipe.Optimizer[j.Train.Optimizer].Matrix != "":
		return diag.Errorf("train.images: how %s updates an encoder is not known; use another train.optimizer", j.Train.Optimizer)
	}
	return nil
}

// looking are the recipes of such models that run an encoder.
func (j *Job) looking(encoder string) []string {
	return recipe.Having(func(r *recipe.Recipe) bool {
		_, runs := r.Images[encoder]
		return runs && !r.Structure.Compiled && !r.Structure.HandLayers && r.Structure.Takes(j.Model.MoE != nil)
	})
}

// checkSize holds the size of images against that which the model takes.
func (j *Job) checkSize(v *model.Vision, i *Images) error {
	unit := v.Patch * v.Merge
	fixed := Pixels{v.Size, v.Size}
	switch p := i.Size; {
	case i.PerSequence < 1 || i.PerSequence > mostImages:
		return diag.Errorf("train.images.per_sequence: %d; give 1 to %d, or leave train.images out", i.PerSequence, mostImages)
	case p == Pixels{} && v.Size > 0:
		i.Size = fixed
		return nil
	case v.Size > 0 && p != fixed:
		return diag.Errorf("train.images.size: %s, but %s brings every image to %s; leave it out", p, j.ModelName, fixed)
	case p == Pixels{}:
		return diag.Errorf("train.images.size: is missing; give height and width in pixels, as in %dx%d", 16*unit, 24*unit)
	case p.Height < unit || p.Width < unit || p.Height > mostPixels || p.Width > mostPixels:
		return diag.Errorf("train.images.size: %s is outside %d to %d pixels on a side", p, unit, mostPixels)
	case p.Height%unit != 0 || p.Width%unit != 0: // as smart_resize of the processors does
		nearest := func(n int64) int64 { return int64(math.RoundToEven(float64(n)/float64(unit))) * unit }
		i.Size = Pixels{nearest(p.Height), nearest(p.Width)}
		j.note("train.images.size", i.Size, fmt.Sprintf("multiples of %d pixels, to which the model's processor brings %s", unit, p))
	}
	return nil
}

// checkImages holds a plan against what is known of images.
func (j *Job) checkImages(p *Plan) error {
	if j.Model.Vision == nil {
		return nil
	}
	if e := j.Model.Vision.Encoder; e.Heads%max(p.TP, 1) != 0 {
		return diag.Errorf("plan.tp: %d does not divide the %d heads of the encoder of images; use a divisor, or leave out train.images", p.TP, e.Heads)
	}
	for _, c := range []struct {
		key string
		n   int64
		bad bool
	}{{"cp", p.CP, p.CP > 1}, {"tp", p.TP, p.TP > 1 && !j.Recipe.Structure.SharedTPInput}, {"pp", p.PP, p.PP > 1 && j.Recipe.Structure.TorchPipeline}} {
		if c.bad {
			return diag.Errorf("plan.%s: %d, but how recipe %s cuts an encoder of images over such ranks is not known; set it to 1, or leave out train.images", c.key, c.n, j.Recipe.Name)
		}
	}
	// Megatron-Bridge, models/qwen_vl/modelling_qwen3_vl: layers to which the encoder's inner ones add are all on the first stage
	if deep := int64(len(j.Model.Vision.Deep)); p.PP > 1 {
		first := p.SplitLayers(j.Model, j.Recipe, j.Model.Layers, p.modelStages(j.Recipe))[0]
		if first < deep {
			return diag.Errorf("plan.pp: %d leaves the first stage %d layers, but it needs the first %d, to which inner layers of the encoder add; use a lower one, or plan.stage_layers", p.PP, first, deep)
		}
	}
	return nil
}
