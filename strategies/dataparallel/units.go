package dataparallel

import (
	"slices"
	"strings"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
)

// Partition are the units of FSDP of a model: Root, Rest, and those that modules are.
type Partition struct {
	Of   [][]int // by stretch of the model and parameter: its unit
	Leaf []bool  // by unit: it is inside a layer, which is longer in use
	Kept []bool  // by unit: it stays gathered after the forward pass as the root does (torch/distributed/fsdp/_runtime_utils.py, _post_forward_reshard)
}

// Units that are of no module of their own.
const (
	Root = iota // the model
	Rest        // the model in front of its head, where that is a unit by size
	firstUnit
)

// Units returns the units of a policy over the stretches of a model in their order: embedding,
// layers, head.
func Units(policy strategies.UnitPolicy, list []*ops.Unit) Partition {
	p := Partition{Of: make([][]int, len(list)), Leaf: make([]bool, firstUnit), Kept: []bool{Root: true, Rest: false}}
	least, left := policy.Least, make([][]int, len(list))
	for i, u := range list {
		p.Of[i] = make([]int, len(u.Params))
		all := make([]int, len(u.Params))
		for k := range all {
			all[k] = k
		}
		m := module{&p, i, u, least}
		if u.Layers == 0 && tied(list) { // modules that share a parameter are in one unit (PyTorch's documentation of FullyShardedDataParallel)
			left[i] = all
			continue
		}
		switch {
		case policy.Units == strategies.ModelUnit:
		case policy.Units == strategies.ModuleUnits:
			if left[i] = all; u.Layers > 0 {
				m.children(all)
			}
		case u.Layers == 0:
			left[i] = m.leaves(all)
		case policy.Units == strategies.SizeUnits:
			left[i] = m.wrap(all, 0)
		default:
			p.assign(i, m.leaves(all), false)
		}
	}
	if policy.Units == strategies.SizeUnits {
		p.rest(list, left, least)
	}
	return p
}

// rest makes one unit of what no module of a layer, nor the embedding, has been large enough for.
func (p *Partition) rest(list []*ops.Unit, left [][]int, least int64) {
	n := int64(0)
	for i, ks := range left {
		for _, k := range ks {
			if !ofHead(list[i], k) {
				n += list[i].Params[k].Size()
			}
		}
	}
	if n < least {
		return
	}
	for i, ks := range left {
		for _, k := range ks {
			if !ofHead(list[i], k) {
				p.Of[i][k] = Rest
			}
		}
	}
}

// ofHead is whether a parameter is one of the output layer.
func ofHead(u *ops.Unit, k int) bool { return strings.HasPrefix(u.Params[k].Name, "lm_head") }

// Spans says of the parameters of each stretch which are gathered for several of them at once,
// and whether these are sharded between the passes.
func (p Partition) Spans() (of [][]bool, drops bool) {
	of = make([][]bool, len(p.Of))
	for i, units := range p.Of {
		of[i] = make([]bool, len(units))
		for k, n := range units {
			of[i][k], drops = n < firstUnit, drops || n == Rest
		}
	}
	return of, drops
}

// tied is whether a parameter of the last stretch is one of the first.
func tied(list []*ops.Unit) bool {
	return slices.ContainsFunc(list[len(list)-1].Params, func(p ops.Param) bool { return p.TiedCopy })
}

// assign makes a unit of parameters of a stretch.
func (p *Partition) assign(stretch int, ks []int, leaf bool) {
	if len(ks) == 0 {
		return
	}
	for _, k := range ks {
		p.Of[stretch][k] = len(p.Leaf)
	}
	p.Leaf, p.Kept = append(p.Leaf, leaf), append(p.Kept, false)
}

// module is a part of a stretch, whose parameters have names like those of a checkpoint.
type module struct {
	p       *Partition
	stretch int
	u       *ops.Unit
	least   int64
}

// path are the names of the modules around a parameter.
func (m *module) path(k int) []string {
	parts := strings.Split(m.u.Params[k].Name, ".")
	return parts[:max(len(parts)-1, 1)]
}

// groups parts parameters by the module that they are in so many levels down; those that are in
// none come first.
func (m *module) groups(ks []int, depth int) (own []int, inside [][]int) {
	at := map[string]int{}
	for _, k := range ks {
		path := m.path(k)
		if len(path) <= depth {
			own = append(own, k)
			continue
		}
		i, ok := at[path[depth]]
		if !ok {
			i = len(inside)
			at[path[depth]], inside = i, append(inside, nil)
		}
		inside[i] = append(inside[i], k)
	}
	return own, inside
}

// size is how many parameters there are.
func (m *module) size(ks []int) (n int64) {
	for _, k := range ks {
		if p := &m.u.Params[k]; !p.TiedCopy {
			n += p.Size()
		}
	}
	return n
}

// wrap makes units of the modules of at least so many parameters beside those that are inside
// units within them, these first, and returns what is left (wrap.py, _recursive_wrap).
func (m *module) wrap(ks []int, depth int) []int {
	left, inside := m.groups(ks, depth)
	for _, c := range inside {
		left = append(left, m.wrap(c, depth+1)...)
	}
	if m.size(left) < m.least {
		return left
	}
	m.p.assign(m.stretch, left, depth > 0)
	return nil
}

// leaves makes units of modules without others that have at least so many parameters, and
// returns what is left.
func (m *module) leaves(ks []int) (left []int) {
	if m.least == 0 {
		return ks
	}
	at := map[string][]int{}
	var order []string
	for _, k := range ks {
		name := strings.Join(m.path(k), ".")
		if at[name] == nil {
			order = append(order, name)
		}
		at[name] = append(at[name], k)
	}
	for _, name := range order {
		if c := at[name]; m.size(c) >= m.least {
			m.p.assign(m.stretch, c, m.u.Layers > 0)
			continue
		}
		left = append(left, at[name]...)
	}
	return left
}

// children makes a unit of each module of a layer that has modules.
func (m *module) children(ks []int) {
	_, inside := m.groups(ks, 0)
	for _, c := range inside {
		if own, _ := m.groups(c, 1); len(own) < len(c) {
			m.p.assign(m.stretch, c, true)
		}
	}
}
