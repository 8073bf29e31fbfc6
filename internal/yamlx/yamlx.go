package yamlx

import (
	"bytes"
	"encoding"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
)

// MaxFileSize is the largest file that is read. The largest real input, a set
// of measured runs, is below 1 MB.
const MaxFileSize = 16 << 20

// maxNodes bounds the nodes of a file after aliases are followed.
const maxNodes = 2_000_000

// maxDepth bounds nesting.
const maxDepth = 64

// Document is a parsed file, kept for positions and excerpts.
type Document struct {
	Name string
	Root *yaml.Node // the top value; nil for an empty file
	text []string   // lines, for excerpts
}

// ReadFile reads and parses a file. Standard input is left to the caller, which
// passes its bytes to Parse.
func ReadFile(name string) (*Document, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fileError(name, err)
	}
	if info.IsDir() {
		return nil, &diag.Error{File: name, Message: "is a folder; name a file in it"}
	}
	if info.Size() > MaxFileSize {
		return nil, tooLarge(name, info.Size())
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fileError(name, err)
	}
	return Parse(name, data)
}

func tooLarge(name string, size int64) error {
	return &diag.Error{File: name, Message: fmt.Sprintf("is %d MB; the largest file that is read is %d MB", size/1e6, MaxFileSize/1_000_000)}
}

func fileError(name string, err error) error {
	switch {
	case os.IsNotExist(err):
		return &diag.Error{File: name, Message: "no such file"}
	case os.IsPermission(err):
		return &diag.Error{File: name, Message: "may not be read: permission denied"}
	}
	return &diag.Error{File: name, Message: err.Error()}
}

// Parse parses YAML or JSON text. JSON is a subset of YAML but for tabs used as
// indentation, which become spaces first (JSON strings hold no raw tabs).
func Parse(name string, data []byte) (*Document, error) {
	if len(data) > MaxFileSize {
		return nil, tooLarge(name, int64(len(data)))
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, &diag.Error{File: name, Message: "is not a text file; YAML or JSON in UTF-8 is expected"}
	}
	if isJSON := bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")); isJSON {
		data = bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
	}
	d := &Document{Name: name, text: strings.Split(string(data), "\n")}
	var root yaml.Node
	if err := unmarshal(data, &root); err != nil {
		return nil, d.syntaxError(err)
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil, &diag.Error{File: name, Message: "is empty"}
	}
	d.Root = root.Content[0]
	if err := d.bound(); err != nil {
		return nil, err
	}
	return d, nil
}

// unmarshal shields the caller from the panics that yaml.v3 still has on a few
// malformed inputs.
func unmarshal(data []byte, root *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("yaml: %v", r)
		}
	}()
	return yaml.Unmarshal(data, root)
}

// syntaxError turns yaml.v3's "yaml: line N: message" into a positioned error.
func (d *Document) syntaxError(err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if n, tail, ok := strings.Cut(rest, ": "); ok {
			if v, e := strconv.Atoi(n); e == nil {
				line, msg = v, tail
			}
		}
	}
	e := &diag.Error{File: d.Name, Message: "is not valid YAML or JSON: " + msg}
	if line > 0 {
		e.Line, e.Col, e.Source = line, 1, d.line(line)
	}
	return e
}

// bound refuses nesting and alias expansion beyond any real file (the "billion
// laughs" of nested aliases).
func (d *Document) bound() error {
	count := 0
	var walk func(n *yaml.Node, depth int) *yaml.Node
	walk = func(n *yaml.Node, depth int) *yaml.Node {
		if count++; count > maxNodes || depth > maxDepth {
			return n
		}
		if n.Kind == yaml.AliasNode {
			return walk(n.Alias, depth+1)
		}
		for _, c := range n.Content {
			if bad := walk(c, depth+1); bad != nil {
				return bad
			}
		}
		return nil
	}
	if n := walk(d.Root, 0); n != nil {
		return d.Errorf(n, "is nested too deep or expands to more than %d values; write it out without aliases", maxNodes)
	}
	return nil
}

func (d *Document) line(n int) string {
	if n < 1 || n > len(d.text) {
		return ""
	}
	return d.text[n-1]
}

// Errorf returns a complaint at a node's position.
func (d *Document) Errorf(n *yaml.Node, format string, args ...any) *diag.Error {
	e := &diag.Error{File: d.Name, Message: fmt.Sprintf(format, args...)}
	if n != nil {
		e.Line, e.Col, e.Source = n.Line, n.Column, d.line(n.Line)
	}
	return e
}

// Key returns the key node and value node of a mapping entry, or nils.
func Key(n *yaml.Node, name string) (key, value *yaml.Node) {
	n = resolve(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// At returns the node at a path of mapping keys, or nil; for positioned errors
// of checks that run after decoding.
func (d *Document) At(path ...string) *yaml.Node {
	n := d.Root
	for _, p := range path {
		if _, n = Key(n, p); n == nil {
			return nil
		}
	}
	return n
}

func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

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
	dec := decoder{doc: d}
	dec.value(n, reflect.ValueOf(out).Elem(), "")
	return dec.errs
}

type decoder struct {
	doc  *Document
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
	n = resolve(n)
	if v.Kind() == reflect.Pointer {
		if n.Tag == "!!null" {
			return
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if v.CanAddr() && v.Addr().Type().Implements(nodeDecoderType) {
		c.errs = append(c.errs, v.Addr().Interface().(NodeDecoder).DecodeNode(c.doc, n)...)
		return
	}
	if n.Tag == "!!null" { // "key:" with nothing after it means the default
		return
	}
	if v.CanAddr() && v.Addr().Type().Implements(textUnmarshalerType) {
		if n.Kind != yaml.ScalarNode {
			c.errorf(n, "%sexpected one value, found %s", prefix(label), kindName(n))
			return
		}
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
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
		if n.Kind != yaml.SequenceNode {
			c.errorf(n, "%sexpected a list, found %s", prefix(label), kindName(n))
			return
		}
		s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, e := range n.Content {
			c.value(e, s.Index(i), label)
		}
		v.Set(s)
	case reflect.Interface:
		var x any
		if err := n.Decode(&x); err != nil {
			c.errorf(n, "%s%v", prefix(label), err)
			return
		}
		if x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		c.scalar(n, v, label)
	}
}

func (c *decoder) scalar(n *yaml.Node, v reflect.Value, label string) {
	if n.Kind != yaml.ScalarNode {
		c.errorf(n, "%sexpected %s, found %s", prefix(label), typeName(v), kindName(n))
		return
	}
	text := strings.TrimSpace(n.Value)
	fail := func() { c.errorf(n, "%sexpected %s, found %q", prefix(label), typeName(v), shorten(n.Value)) }
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.Value)
	case reflect.Bool:
		switch n.Value {
		case "true", "True", "TRUE":
			v.SetBool(true)
		case "false", "False", "FALSE":
			v.SetBool(false)
		default:
			fail()
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if n.Tag == "!!str" {
			fail()
			return
		}
		x, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil { // 1e9 and 4096.0 are integers to a person
			f, ferr := strconv.ParseFloat(text, 64)
			if ferr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
				fail()
				return
			}
			x = int64(f)
		}
		if v.OverflowInt(x) {
			fail()
			return
		}
		v.SetInt(x)
	case reflect.Float64:
		if n.Tag == "!!str" {
			fail()
			return
		}
		f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			fail()
			return
		}
		v.SetFloat(f)
	default:
		panic("yamlx: cannot decode into " + v.Type().String()) // a mistake in our own struct
	}
}

func (c *decoder) mapping(n *yaml.Node, v reflect.Value, label string) {
	if n.Kind != yaml.MappingNode {
		c.errorf(n, "%sexpected a mapping, found %s", prefix(label), kindName(n))
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := reflect.New(v.Type().Key()).Elem()
		c.value(n.Content[i], key, label)
		if m.MapIndex(key).IsValid() {
			c.errorf(n.Content[i], "key %q is given twice", n.Content[i].Value)
			continue
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		c.value(n.Content[i+1], elem, n.Content[i].Value)
		m.SetMapIndex(key, elem)
	}
	v.Set(m)
}

func (c *decoder) structure(n *yaml.Node, v reflect.Value, label string) {
	if n.Kind != yaml.MappingNode {
		c.errorf(n, "%sexpected a mapping, found %s", prefix(label), kindName(n))
		return
	}
	info := fieldsOf(v.Type())
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			c.errorf(key, "key %q is given twice", key.Value)
			continue
		}
		seen[key.Value] = true
		index, ok := info.index[key.Value]
		if !ok {
			if info.rest != nil {
				rest := v.FieldByIndex(info.rest)
				if rest.IsNil() {
					rest.Set(reflect.MakeMap(rest.Type()))
				}
				rest.SetMapIndex(reflect.ValueOf(key.Value), reflect.ValueOf(val))
				continue
			}
			c.errorf(key, "unknown key %q%s", key.Value, diag.DidYouMean(key.Value, info.names))
			continue
		}
		c.value(val, v.FieldByIndex(index), key.Value)
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
	return label + ": "
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		return strconv.Quote(shorten(n.Value))
	}
	return "nothing"
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

func shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// Set sets the value at a dotted path, making mappings on the way, as `--set
// plan.tp=4` asks for. The value is YAML itself. A name on the way that holds a
// scalar is replaced by {under: scalar}, so that `--set hardware.gpu.bandwidth=…`
// extends a catalog name.
func (d *Document) Set(path, value, under string) error {
	v, err := Parse("--set "+path, []byte(value))
	if err != nil {
		return diag.Errorf("--set %s=%s: the value cannot be read: %v", path, value, err)
	}
	keys := strings.Split(path, ".")
	n := d.Root
	for i, k := range keys {
		if k == "" {
			return diag.Errorf("--set %s=%s: the path has an empty part; write it as in plan.tp=4", path, value)
		}
		if n.Kind == yaml.ScalarNode {
			*n = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column, Content: []*yaml.Node{
				{Kind: yaml.ScalarNode, Tag: "!!str", Value: under, Line: n.Line, Column: n.Column},
				{Kind: yaml.ScalarNode, Tag: n.Tag, Value: n.Value, Line: n.Line, Column: n.Column}}}
		}
		if n.Kind != yaml.MappingNode {
			return diag.Errorf("--set %s=%s: %s is not a mapping", path, value, strings.Join(keys[:i], "."))
		}
		_, next := Key(n, k)
		if i == len(keys)-1 {
			if next != nil {
				*next = *v.Root
			} else {
				n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: k}, v.Root)
			}
			return nil
		}
		if next == nil {
			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: k}, next)
		}
		n = resolve(next)
	}
	return nil
}
