package launch

import (
	"strconv"
	"strings"
)

// summedAttention is what it calls attention to a window and to sums of tokens (DeepSeek-V4).
const summedAttention = "dsv4_hybrid"

// sums says what such attention sees.
func (m *megatron) sums() {
	for _, s := range []struct {
		name, key string
		standard  int64
	}{{"v_head_dim", "head_dim", 128}, {"qk_pos_emb_head_dim", "qk_rope_head_dim", 64}, {"csa_window_size", "sliding_window", 128}, {"o_groups", "o_groups", 8}, {"o_lora_rank", "o_lora_rank", 1024}} {
		m.takeOr("model."+s.key, s.name, s.standard)
	}
	const name = "csa_compress_ratios"
	if ratios, ok := numbers(m.word(name)); ok {
		m.set("model.compress_ratios", ratios, m.from(name))
	} else {
		m.note("%s %s: no list of numbers; give model.compress_ratios", m.from(name), m.word(name))
	}
	if m.has("csa_dense_mode") {
		m.note("%s: estimated with the indexer, whose layers then see all sums", m.from("csa_dense_mode"))
	}
}

// streams says how many residual streams there are.
func (m *megatron) streams() {
	for _, s := range []struct{ switched, name string }{{"enable_hyper_connections", "num_residual_streams"}, {"enable_mhc_connections", "mhc_num_residual_streams"}} {
		if m.has(s.switched) {
			m.takeOr("model.hc_mult", s.name, int64(4))
		}
	}
}

// mostNumbers bounds a list that is multiplied out.
const mostNumbers = 10_000

// numbers reads a list as Megatron's arguments have it: lists of numbers, which may be repeated,
// joined by plus signs, as in ([0]*2+[4,128]*20).
func numbers(text string) ([]int64, bool) {
	text = strings.NewReplacer(" ", "", "(", "", ")", "").Replace(text)
	if !strings.Contains(text, "[") { // one list by itself comes without its brackets
		text = "[" + text + "]"
	}
	var out []int64
	for term := range strings.SplitSeq(text, "+") {
		list, times, repeated := strings.Cut(term, "*")
		n := int64(1)
		if repeated {
			var err error
			if n, err = strconv.ParseInt(times, 10, 64); err != nil {
				return nil, false
			}
		}
		inside, ok := strings.CutPrefix(list, "[")
		inside, closed := strings.CutSuffix(inside, "]")
		if !ok || !closed || n < 0 || n > mostNumbers {
			return nil, false
		}
		var one []int64
		for v := range strings.SplitSeq(inside, ",") {
			x, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return nil, false
			}
			one = append(one, x)
		}
		for range n {
			if out = append(out, one...); len(out) > mostNumbers {
				return nil, false
			}
		}
	}
	return out, len(out) > 0
}
