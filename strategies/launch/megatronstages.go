package launch

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mostStages bounds what a layout may repeat: more than any pipeline has.
const mostStages = 1 << 12

var (
	repeated = regexp.MustCompile(`(?:\(([EtmL|]*)\)|([EtmL|]))\*(\d{1,3})`)
	spelled  = regexp.MustCompile(`^[EtmL|]+$`)
)

// stages says into how many stages a pipeline is cut, and how many layers each has.
func (m *megatron) stages() {
	pp, layers, each := m.number("pipeline_model_parallel_size"), m.number("num_layers"), m.number("num_layers_per_virtual_pipeline_stage")
	if pp <= 1 {
		return
	}
	list, from := m.layout()
	switch n := int64(len(list)); {
	case n > pp && n%pp == 0:
		m.set("plan.virtual_stages", n/pp, m.from(from))
	case n > 0:
	case m.take("plan.virtual_stages", "num_virtual_stages_per_pipeline_rank"), m.take("plan.virtual_stages", "virtual_pipeline_model_parallel_size"):
	case each > 0 && layers > 0 && layers/pp/each > 1:
		m.set("plan.virtual_stages", layers/pp/each, m.from("num_layers_per_virtual_pipeline_stage"))
	}
	if list != nil {
		m.stageLayers(list, pp, layers, from)
	}
}

// stageLayers sets the layers of stages, where they are as many as the pipeline and the model have.
func (m *megatron) stageLayers(list []int64, pp, layers int64, from string) {
	const key = "plan.stage_layers"
	var sum int64
	var values []any
	for _, n := range list {
		sum += n
	}
	switch {
	case int64(len(list))%pp != 0:
		m.open(key, m.from(from), fmt.Sprintf("%d is the number of stages, no multiple of the %d ranks of the pipeline: give the key", len(list), pp))
		return
	case layers > 0 && sum != layers:
		m.open(key, m.from(from), fmt.Sprintf("%d layers, but the model has %d: give the key", sum, layers))
		return
	case !m.fill(list, from):
		m.open(key, m.from(from), "stages inside the pipeline without a layer, and none that has more than one: give the key")
		return
	}
	for _, n := range list {
		values = append(values, n)
	}
	m.set(key, values, m.from(from))
}

// fill gives every stage inside a pipeline that has no layer, as one with multi-token
// prediction alone, one of the nearest that has several, those before it first.
func (m *megatron) fill(list []int64, from string) bool {
	for i := 1; i < len(list)-1; i++ {
		if list[i] > 0 {
			continue
		}
		giver := -1
		for k, n := range list {
			if n > 1 && (k < i || giver < 0) {
				giver = k
			}
		}
		if giver < 0 {
			return false
		}
		list[giver]--
		list[i]++
		m.note("%s: stage %d, which has no layer, is taken to have one of stage %d", m.from(from), i, giver)
	}
	return true
}

// layout is how many layers each stage has by an argument, virtual stages apart, as in
// Et*3|(tt|)*29,m|L (megatron/core/transformer/pipeline_parallel_layer_layout.py) or in the
// pattern of a hybrid model, and which argument that is; nil: none is given, or it cannot be
// read.
func (m *megatron) layout() (list []int64, from string) {
	const name = "pipeline_model_parallel_layout"
	if by := m.pattern(); by != "" && !m.has(name) {
		blocks, _, _ := strings.Cut(m.word(by), "/")
		if stages := strings.Split(blocks, "|"); len(stages) > 1 {
			for _, stage := range stages {
				list = append(list, int64(len(stage)))
			}
		}
		return list, by
	}
	if !m.has(name) {
		return nil, ""
	}
	text := strings.ReplaceAll(m.word(name), ",", "")
	for repeated.MatchString(text) && len(text) < mostStages {
		text = repeated.ReplaceAllStringFunc(text, func(s string) string {
			p := repeated.FindStringSubmatch(s)
			n, _ := strconv.Atoi(p[3])
			return strings.Repeat(p[1]+p[2], n)
		})
	}
	if !spelled.MatchString(text) {
		m.note("%s %s", m.from(name), m.flags[name].value)
		return nil, ""
	}
	stages := strings.Split(text, "|")
	for _, stage := range stages {
		list = append(list, int64(strings.Count(stage, "t")))
	}
	predicts := func(stage string) bool { return strings.Contains(stage, "m") }
	if i := slices.IndexFunc(stages, predicts); i >= 0 && i < len(stages)-1 {
		m.note("%s: multi-token prediction of stage %d is taken to be on the last, %d, with the loss", m.from(name), i, len(stages)-1)
	}
	return list, name
}
