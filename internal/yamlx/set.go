package yamlx

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
)

// source is the flag that a node comes from and the path that the flag sets.
type source struct{ flag, path string }

// Set sets the value at a dotted path, making mappings on the way, as `--set
// plan.tp=4` asks for. The value is YAML itself; null takes the key away. A name
// on the way that holds a scalar is replaced by {under: scalar}, so that `--set
// hardware.gpu.bandwidth=…` extends a catalog name. Complaints about the value
// name origin, the flag that set it.
//
// Set never changes a node, it makes new ones along the path: what an alias
// stands for changes in this place only, and an error changes nothing.
func (d *Document) Set(origin, path, value, under string) error {
	fail := func(format string, args ...any) error {
		return diag.Errorf("%s: %s", origin, fmt.Sprintf(format, args...))
	}
	e := edit{d, strings.Split(path, "."), nil, under, source{origin, path}}
	if slices.Contains(e.keys, "") {
		return fail("the path %q has an empty part; write it as in plan.tp=4", shorten(path))
	}
	if len(e.keys) > maxDepth {
		return fail("the path has %d parts; use %d at most", len(e.keys), maxDepth)
	}
	if d.origins == nil {
		d.origins = map[*yaml.Node]source{}
	}
	if value != "null" && value != "~" {
		v, err := Parse("", []byte(value))
		if bad := (*diag.Error)(nil); errors.As(err, &bad) {
			return fail("the value %q %s", shorten(value), bad.Message)
		}
		e.value = v.Root
		e.mark(v.Root)
	}
	root, err := e.apply(d.Root, 0)
	if err != nil {
		return fail("%v", err)
	}
	if err := d.bound(root); err != nil {
		return err
	}
	d.Root = root
	return nil
}

// edit is one Set.
type edit struct {
	doc   *Document
	keys  []string
	value *yaml.Node // nil takes the key away
	under string
	from  source
}

// apply returns n, which stands at keys[:i], with the value in its place.
func (e *edit) apply(n *yaml.Node, i int) (*yaml.Node, error) {
	if i == len(e.keys) {
		return e.value, nil
	}
	m, err := e.open(n, i)
	if err != nil {
		return nil, err
	}
	at := index(m, e.keys[i])
	switch {
	case at < 0 && e.value == nil:
		return n, nil // not there anyway
	case e.value == nil && i == len(e.keys)-1:
		for ; at >= 0; at = index(m, e.keys[i]) { // more than once if given twice
			m.Content = slices.Delete(m.Content, at, at+2)
		}
		return m, nil
	case at < 0:
		at = len(m.Content)
		key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: e.keys[i]}
		e.mark(key)
		m.Content = append(m.Content, key, nil)
	}
	m.Content[at+1], err = e.apply(m.Content[at+1], i+1)
	return m, err
}

// open returns what stands at keys[:i] as a mapping of its own.
func (e *edit) open(n *yaml.Node, i int) (*yaml.Node, error) {
	m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	switch {
	case n == nil || n.Tag == "!!null":
		e.mark(m)
	case n.Kind == yaml.MappingNode:
		e.place(m, n)
		m.Content = slices.Clone(n.Content)
	case i == 0:
		return nil, fmt.Errorf("the file holds %s, not a mapping", kindName(n))
	case n.Kind == yaml.ScalarNode && e.under != "":
		name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: e.under}
		e.place(name, n)
		e.place(m, n)
		m.Content = []*yaml.Node{name, n}
	default:
		return nil, fmt.Errorf("%s is %s, which has no key %s", strings.Join(e.keys[:i], "."), kindName(n), e.keys[i])
	}
	return m, nil
}

// mark records that a node and all in it come from the flag.
func (e *edit) mark(n *yaml.Node) {
	e.doc.origins[n] = e.from
	for _, c := range n.Content {
		e.mark(c)
	}
}

// place gives a new node the place of another.
func (e *edit) place(n, as *yaml.Node) {
	n.Line, n.Column = as.Line, as.Column
	if from, ok := e.doc.origins[as]; ok {
		e.doc.origins[n] = from
	}
}

// strip removes the path from the front of a message that a flag already names.
func (o source) strip(message string) string {
	last := strings.LastIndexByte(o.path, '.')
	paths := []string{o.path, o.path[last+1:]}
	if last >= 0 && strings.Contains(o.path[:last], ".") { // the mapping that the key is in
		paths = append(paths, o.path[:last])
	}
	for _, p := range paths {
		if rest, ok := strings.CutPrefix(message, p+": "); ok {
			return rest
		}
	}
	return message
}

// concerns reports whether a message about a mapping that the flag opened is about what
// the flag set: not where it begins with the path of another key, as of one left out.
func (o source) concerns(message string) bool {
	key, _, found := strings.Cut(message, ": ")
	within := func(a, b string) bool { return strings.HasPrefix(a+".", b+".") }
	return !found || !strings.Contains(key, ".") || strings.Contains(key, " ") || within(key, o.path) || within(o.path, key)
}
