package launch

import (
	"slices"
	"strconv"
	"strings"
)

// longest is the most layers that a list comes to.
const longest = 1 << 14

// listing is what is left to read of a list of layers.
type listing struct {
	rest  string
	wrong bool
}

// pattern is a number for each layer, as Megatron-LM's arguments list them: in sums and multiples of lists
// (megatron/training/arguments.py, _eval_pattern). false: it is no such list.
func pattern(text string) ([]int64, bool) {
	p := &listing{rest: strings.Join(strings.Fields(text), "")}
	out := p.sum()
	return out, !p.wrong && p.rest == ""
}

func (p *listing) sum() []int64 {
	out := p.product()
	for !p.wrong && p.takes("+") {
		out = append(out, p.product()...)
	}
	p.wrong = p.wrong || len(out) > longest
	return out
}

func (p *listing) product() (out []int64) {
	switch {
	case p.takes("("):
		out = p.sum()
		p.wrong = !p.takes(")") || p.wrong
	case p.takes("["):
		out = append(out, p.number())
		for !p.wrong && p.takes(",") {
			out = append(out, p.number())
		}
		p.wrong = !p.takes("]") || p.wrong
	default:
		p.wrong = true
	}
	for !p.wrong && p.takes("*") {
		n := p.number()
		if p.wrong = p.wrong || n*int64(len(out)) > longest; !p.wrong {
			out = slices.Repeat(out, int(n))
		}
	}
	return out
}

func (p *listing) number() int64 {
	digits := p.rest[:len(p.rest)-len(strings.TrimLeft(p.rest, "0123456789"))]
	n, err := strconv.ParseInt(digits, 10, 32)
	p.rest, p.wrong = p.rest[len(digits):], p.wrong || err != nil
	return n
}

// takes reports whether a sign is next, and goes past it.
func (p *listing) takes(sign string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, sign)
	return ok
}

// sparse says which layers have experts: all, all but the first, every so many, or those that are listed.
func (m *megatron) sparse() {
	const name = "moe_layer_freq"
	freq := strings.Trim(m.flags[name].value, `"'`)
	each, listed := pattern(freq)
	first, layers := slices.Index(each, 1), m.number("num_layers")
	n, whole := plain(freq).(int64)
	switch {
	case freq == "" || whole && n == 1:
	case whole:
		m.set("model.moe_layer_freq", n, m.from(name))
	case !listed || first < 0 || layers > 0 && int64(len(each)) != layers:
		m.note("%s %s: which layers have experts; give model.mlp_only_layers, those without", m.from(name), freq)
	case slices.Contains(each[first:], 0):
		var dense []any
		for i, kind := range each {
			if kind == 0 {
				dense = append(dense, i)
			}
		}
		m.set("model.mlp_only_layers", dense, m.from(name))
	case first > 0:
		m.set("model.first_k_dense_replace", int64(first), m.from(name))
	}
}
