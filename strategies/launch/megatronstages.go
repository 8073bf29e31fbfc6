package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mostStages bounds what a layout may repeat: more than any pipeline has.
const mostStages = 1 << 12

var (
	repeated = lazily(`(?:\(([EtmL|]*)\)|([EtmL|]))\*(\d{1,3})`)
	spelled  = lazily(`^[EtmL|]+$`)
)

// stages says into how many stages a pipeline is cut, and how many layers each has.
func (m *megatron) stages() {
	const key = "plan.virtual_stages"
	pp, layers := m.number("pipeline_model_parallel_size"), m.number("num_layers")
	if pp <= 1 {
		return
	}
	if list, from := m.layout(); list != nil {
		if n := int64(len(list)); n > pp && n%pp == 0 {
			m.set(key, n/pp, m.from(from))
		}
		m.stageLayers(list, pp, layers, from)
		return
	}
	virtual := int64(1)
	for _, name := range []string{"num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"} {
		if m.take(key, name) {
			virtual = max(m.number(name), 1)
			break
		}
	}
	whole := layers + int64(len(m.counted())) // validate_args
	switch each := "num_layers_per_virtual_pipeline_stage"; {
	case virtual > 1 || !m.has(each):
	case m.flags[each].open != "":
		m.take(key, each)
	case layers == 0:
		m.open(key, m.from(each), fmt.Sprintf("%d layers each, of a number of layers that is not known: give the key", m.number(each)))
	case whole/pp/m.number(each) > 1:
		virtual = whole / pp / m.number(each)
		m.set(key, virtual, m.from(each))
	}
	m.uneven(pp, virtual, layers)
}

// ends are arguments that say how many layers the first and the last rank of a pipeline have.
var ends = [2]string{"decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"}

// counting are arguments by which embedding and loss count as a layer each.
var counting = [2]string{"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"}

// counted are those of them that are given.
func (m *megatron) counted() (names []string) {
	for _, name := range counting {
		if m.has(name) {
			names = append(names, name)
		}
	}
	return names
}

// uneven says how many layers stages have where the first or the last rank has more or fewer
// (megatron/core/transformer/transformer_block.py, get_num_layers_to_build).
func (m *megatron) uneven(pp, virtual, layers int64) {
	const key = "plan.stage_layers"
	ranks, left, between := make([]int64, pp), layers, pp
	given := m.counted()
	for i, name := range ends {
		if m.has(name) {
			given = append(given, name)
			ranks[i*int(pp-1)] = m.number(name)
			left, between = left-m.number(name), between-1
		}
	}
	if len(given) == 0 || layers == 0 {
		return
	}
	left += int64(len(m.counted()))
	if between > 0 && left%between != 0 || between == 0 && left != 0 || left < 0 {
		m.open(key, m.from(given[0]), fmt.Sprintf("%d layers for %d more ranks of the pipeline, which Megatron-LM needs to divide: give the key", left, between))
		return
	}
	var list []int64
	for k := range virtual * pp {
		i, n := k%pp, left/max(between, 1)
		for end, name := range ends {
			if i == int64(end)*(pp-1) && m.has(name) {
				n = ranks[i]
			}
		}
		if n%virtual != 0 {
			m.open(key, m.from(given[0]), fmt.Sprintf("%d layers of rank %d for %d virtual stages, which Megatron-LM needs to divide: give the key", n, i, virtual))
			return
		}
		list = append(list, n/virtual)
	}
	for end, name := range counting {
		if m.has(name) {
			list[end*(len(list)-1)]--
		}
	}
	m.stageLayers(list, pp, layers, given[0])
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
	for repeated().MatchString(text) && len(text) < mostStages {
		text = repeated().ReplaceAllStringFunc(text, func(s string) string {
			p := repeated().FindStringSubmatch(s)
			n, _ := strconv.Atoi(p[3])
			return strings.Repeat(p[1]+p[2], n)
		})
	}
	if !spelled().MatchString(text) {
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
