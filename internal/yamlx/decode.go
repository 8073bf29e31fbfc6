package yamlx

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
)

// NodeDecoder is a type that decodes its own node. It returns all complaints.
type NodeDecoder interface {
	DecodeNode(d *Document, n *yaml.Node) diag.List
}

// Decode decodes the whole document into out, a pointer.
func (d *Document) Decode(out any) error {
	return d.DecodeInto(d.Root, out).Err()
}

// DecodeInto decodes a node into out, a pointer, and returns all complaints.
func (d *Document) DecodeInto(n *yaml.Node, out any) diag.List {
	dec := decoder{doc: d, root: reflect.TypeOf(out).Elem()}
	dec.value(n, reflect.ValueOf(out).Elem(), "")
	return dec.errs
}

// maxComplaints ends the decoding of a file that is something else altogether.
const maxComplaints = 1000

type decoder struct {
	doc  *Document
	root reflect.Type // of what is decoded
	errs diag.List
}

func (c *decoder) errorf(n *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, c.doc.Errorf(n, format, args...))
}

var (
	nodeDecoderType     = reflect.TypeFor[NodeDecoder]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// value decodes n into v; label names the key for messages.
func (c *decoder) value(n *yaml.Node, v reflect.Value, label string) {
	if n.Style&yaml.TaggedStyle != 0 {
		c.errorf(n, "%sthe tag %q is not understood; write the value without it", prefix(label), shorten(n.Tag))
		return
	}
	null := n.Tag == "!!null" // "key:" with nothing after it means the default
	if v.Kind() == reflect.Pointer {
		if null {
			return
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if v.CanAddr() && v.Addr().Type().Implements(nodeDecoderType) {
		c.errs = append(c.errs, c.named(n, label, v.Addr().Interface().(NodeDecoder).DecodeNode(c.doc, n))...)
		return
	}
	if null {
		return
	}
	if v.CanAddr() && v.Addr().Type().Implements(textUnmarshalerType) {
		if n.Kind != yaml.ScalarNode {
			c.errorf(n, "%sexpected one value, found %s", prefix(label), kindName(n))
		} else if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
			c.errorf(n, "%s%v", prefix(label), err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		c.structure(n, v, label)
	case reflect.Map:
		c.mapping(n, v, label)
	case reflect.Slice:
		c.list(n, v, label)
	case reflect.Interface:
		var x any
		if err := n.Decode(&x); err != nil {
			c.errorf(n, "%s%v", prefix(label), err)
		} else if x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		c.scalar(n, v, label)
	}
}

// named puts the label in front of what a NodeDecoder, which does not know it, says of the
// whole of a single value or a list.
func (c *decoder) named(n *yaml.Node, label string, errs diag.List) diag.List {
	key := prefix(label)
	for _, e := range errs {
		if whole := e.Line > 0 && e.File == c.doc.Name && e.Line == n.Line && e.Col == n.Column; whole && n.Kind != yaml.MappingNode && !strings.HasPrefix(e.Message, key) {
			e.Message = key + e.Message
		}
	}
	return errs
}

func (c *decoder) scalar(n *yaml.Node, v reflect.Value, label string) {
	if remedy, ok := assign(v, n); !ok {
		c.errorf(n, "%sexpected %s, found %s%s", prefix(label), typeName(v), kindName(n), remedy)
	}
}

// assign sets v to a scalar. When n is no scalar of v's type, it says what to do,
// if it knows.
func assign(v reflect.Value, n *yaml.Node) (remedy string, ok bool) {
	if n.Kind != yaml.ScalarNode {
		return "", false
	}
	if v.Kind() == reflect.String {
		v.SetString(n.Value)
		return "", true
	}
	if n.Style != 0 { // quoted, or a block of text
		if _, ok := assign(reflect.New(v.Type()).Elem(), unquoted(n)); ok {
			return " in quotes; write it without", false
		}
		return "", false
	}
	number := strings.ReplaceAll(n.Value, "_", "")
	f, err := strconv.ParseFloat(number, 64)
	isNumber := (n.Tag == "!!int" || n.Tag == "!!float") && err == nil
	switch v.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(n.Value)
		if n.Tag != "!!bool" || err != nil {
			return "", false
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		if !isNumber || f != math.Trunc(f) {
			return thousand(n.Value), false
		}
		x, err := strconv.ParseInt(number, 10, 64)
		if err != nil { // 1e9 and 4096.0 are whole numbers to a person
			x = int64(f)
		}
		if err != nil && math.Abs(f) > 1<<53 || v.OverflowInt(x) {
			return ", which is too large", false
		}
		v.SetInt(x)
	case reflect.Float64:
		if !isNumber {
			return "", false
		}
		v.SetFloat(f)
	default:
		panic("yamlx: cannot decode into " + v.Type().String()) // a mistake in our own struct
	}
	return "", true
}

// unquoted is n as if it had been written without quotes.
func unquoted(n *yaml.Node) *yaml.Node {
	plain := &yaml.Node{Kind: yaml.ScalarNode, Value: n.Value, Line: n.Line, Column: n.Column}
	plain.Tag = plain.ShortTag()
	return plain
}

func (c *decoder) list(n *yaml.Node, v reflect.Value, label string) {
	if n.Kind != yaml.SequenceNode {
		c.errorf(n, "%sexpected a list, found %s", prefix(label), kindName(n))
		return
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, e := range n.Content {
		if len(c.errs) >= maxComplaints {
			return
		}
		if e.Tag == "!!null" {
			c.errorf(e, "%sitem %d of the list is empty; give it a value or take it out", prefix(label), i+1)
			continue
		}
		c.value(e, s.Index(i), label)
	}
	v.Set(s)
}

func (c *decoder) mapping(n *yaml.Node, v reflect.Value, label string) {
	m := reflect.MakeMapWithSize(v.Type(), len(n.Content)/2)
	c.entries(n, label, func(key, value *yaml.Node) {
		k, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		if k.Kind() != reflect.String && key.Style == yaml.DoubleQuotedStyle { // JSON has to quote a number
			key = unquoted(key)
		}
		c.value(key, k, label)
		c.value(value, elem, key.Value)
		m.SetMapIndex(k, elem)
	})
	v.Set(m)
}

func (c *decoder) structure(n *yaml.Node, v reflect.Value, label string) {
	info := fieldsOf(v.Type())
	c.entries(n, label, func(key, value *yaml.Node) {
		if index, ok := info.index[key.Value]; ok {
			c.value(value, v.FieldByIndex(index), key.Value)
			return
		}
		if info.rest == nil {
			c.errorf(key, "unknown key %q%s", shorten(key.Value), cmp.Or(elsewhere(c.root, key.Value, info.names), diag.DidYouMean(key.Value, info.names), "; known: "+strings.Join(info.names, ", ")))
			return
		}
		rest := v.FieldByIndex(info.rest)
		if rest.IsNil() {
			rest.Set(reflect.MakeMap(rest.Type()))
		}
		rest.SetMapIndex(reflect.ValueOf(key.Value), reflect.ValueOf(value))
	})
}

// mostLevels bounds where elsewhere looks, in types that hold themselves too.
const mostLevels = 4

// elsewhere returns `; did you mean "plan.tp"?` for a key that belongs somewhere else in a
// type, as close to its top as it is found. The nearest of the keys that may stand where it
// does goes before it.
func elsewhere(t reflect.Type, key string, beside []string) string {
	type place struct {
		path string
		of   reflect.Type
	}
	level := []place{{"", t}}
	for range mostLevels {
		var next []place
		var found []string
		for _, p := range level {
			for p.of.Kind() == reflect.Pointer {
				p.of = p.of.Elem()
			}
			if to := reflect.PointerTo(p.of); p.of.Kind() != reflect.Struct || to.Implements(nodeDecoderType) || to.Implements(textUnmarshalerType) {
				continue
			}
			info := fieldsOf(p.of)
			for _, name := range info.names {
				inner := place{p.path + name + ".", p.of.FieldByIndex(info.index[name]).Type}
				switch next = append(next, inner); {
				case name != key:
				case p.path == "":
					found = append(found, strconv.Quote(name)+" at the top")
				default:
					found = append(found, strconv.Quote(p.path+name))
				}
			}
		}
		if len(found) > 0 {
			if near := diag.Nearest(key, beside); near != "" {
				found = slices.Insert(found, 0, strconv.Quote(near))
			}
			return "; did you mean " + diag.Or(found) + "?"
		}
		level = next
	}
	return ""
}

// entries calls each for the entries of a mapping whose key is one word that was
// not given before, and complains about the others.
func (c *decoder) entries(n *yaml.Node, label string, each func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		c.errorf(n, "%sexpected a mapping, found %s", prefix(label), kindName(n))
		return
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && len(c.errs) < maxComplaints; i += 2 {
		switch key := n.Content[i]; {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!null" || key.Style&yaml.TaggedStyle != 0:
			c.errorf(key, "%sa key is one word, found %s", prefix(label), kindName(key))
		case key.Tag == "!!merge":
			c.errorf(key, "%smerge keys (<<) are not understood; write the keys out", prefix(label))
		case seen[key.Value]:
			c.errorf(key, "key %q is given twice; leave one of them out", shorten(key.Value))
		default:
			seen[key.Value] = true
			each(key, n.Content[i+1])
		}
	}
}

// fields are the YAML keys of a struct type. A field tagged `yaml:",rest"` of
// type map[string]*yaml.Node collects unknown keys instead of refusing them.
type fields struct {
	index map[string][]int
	names []string
	rest  []int
}

var fieldCache sync.Map // reflect.Type → *fields

func fieldsOf(t reflect.Type) *fields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(*fields)
	}
	f := &fields{index: map[string][]int{}}
	for _, sf := range reflect.VisibleFields(t) {
		tag, ok := sf.Tag.Lookup("yaml")
		if !ok || tag == "-" || !sf.IsExported() {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if option == "rest" {
			f.rest = sf.Index
			continue
		}
		if name == "" {
			continue // an inlined struct: its own fields are visible
		}
		f.index[name] = sf.Index
		f.names = append(f.names, name)
	}
	fieldCache.Store(t, f)
	return f
}

func prefix(label string) string {
	if label == "" {
		return ""
	}
	return shorten(label) + ": "
}

func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return strconv.Quote(shorten(n.Value))
}

// thousand says how to write what was meant by 8k: 8000 to some, to those who count
// positions of a sequence 8192.
func thousand(text string) (remedy string) {
	digits, k := strings.CutSuffix(strings.ToLower(text), "k")
	x, err := strconv.ParseInt(digits, 10, 32)
	if !k || err != nil || x < 1 {
		return ""
	}
	return fmt.Sprintf("; write %d or %d, whichever is meant", 1000*x, 1024*x)
}

func typeName(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}
	return "text"
}

// shorten keeps a message readable when the value is a whole page.
func shorten(s string) string {
	const most = 60
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i] + "…"
		}
	}
	return s
}
