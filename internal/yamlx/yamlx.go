package yamlx

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
)

// MaxFileSize is the largest file that is read. The largest real input, a set
// of measured runs, is below 1 MB; a hostile one of this size costs less than a
// second and some 200 MB.
const MaxFileSize = 2 << 20

// maxNodes bounds the values of a file after aliases are followed, and before
// that its lines and commas, which take memory too.
const maxNodes = 300_000

// maxDepth bounds nesting.
const maxDepth = 64

// Document is a parsed file, kept for positions and excerpts. It holds no alias
// nodes: where a file uses *name, the node that &name marks stands twice.
type Document struct {
	Name string
	Root *yaml.Node // the top value
	text []string   // lines, for excerpts

	origins map[*yaml.Node]source // of nodes that Set made
}

// ReadFile reads and parses a file. Standard input is left to the caller, which
// passes its bytes to Parse.
func ReadFile(name string) (*Document, error) {
	f, err := diag.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1)) // a pipe or a device does not tell its size
	if err != nil {
		return nil, diag.Unread(name, err)
	}
	return Parse(name, data)
}

// Parse parses YAML or JSON text that holds one document.
func Parse(name string, data []byte) (*Document, error) {
	if len(data) > MaxFileSize {
		return nil, &diag.Error{File: name, Message: fmt.Sprintf("is larger than %d MiB, the most that is read; split it", MaxFileSize>>20)}
	}
	data = bytes.TrimLeft(data, "\ufeff") // byte order marks
	if err := diag.NotText(name, data, "YAML or JSON in UTF-8"); err != nil {
		return nil, err
	}
	if bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte(",")) > maxNodes {
		return nil, &diag.Error{File: name, Message: fmt.Sprintf("has more than %d lines and commas, the most that is read; split it", maxNodes)}
	}
	if start := bytes.TrimSpace(data); bytes.HasPrefix(start, []byte("{")) || bytes.HasPrefix(start, []byte("[")) {
		data = fromJSON(data)
	}
	d := &Document{Name: name, text: lines(data)}
	root, err := d.decodeText(data)
	switch {
	case err != nil:
		return nil, err
	case root == nil || root.Tag == "!!null":
		return nil, &diag.Error{File: name, Message: "is empty; YAML or JSON is expected"}
	}
	if err := d.bound(root); err != nil {
		return nil, err
	}
	d.Root = root
	return d, nil
}

// escapes are the escape sequences of a JSON string; a pair of surrogates is one.
var escapes = regexp.MustCompile(`\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|.)`)

// fromJSON turns what JSON allows and the scanner does not into what it takes: tabs
// between tokens, characters written as two surrogates, and an escaped slash.
func fromJSON(data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
	if !bytes.Contains(data, []byte(`\u`)) && !bytes.Contains(data, []byte(`\/`)) {
		return data
	}
	return escapes.ReplaceAllFunc(data, func(s []byte) []byte {
		switch {
		case string(s) == `\/`:
			return s[1:]
		case len(s) != len(`\ud83d\ude80`):
			return s
		}
		high, _ := strconv.ParseUint(string(s[2:6]), 16, 16)
		low, _ := strconv.ParseUint(string(s[8:12]), 16, 16)
		return []byte(string(utf16.DecodeRune(rune(high), rune(low))))
	})
}

// lines splits a text where YAML does.
func lines(data []byte) []string {
	text := string(data)
	if strings.ContainsAny(text, "\r\u0085\u2028\u2029") {
		text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").Replace(text)
	}
	return strings.Split(text, "\n")
}

// decodeText returns the top value of the only document of a text, nil when
// there is none.
func (d *Document) decodeText(data []byte) (root *yaml.Node, err error) {
	defer func() { // yaml.v3 still panics on a few malformed inputs
		if r := recover(); r != nil {
			root, err = nil, d.syntaxError(fmt.Sprint(r))
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	switch err := decoder.Decode(&first); {
	case err == io.EOF:
		return nil, nil
	case err != nil:
		return nil, d.syntaxError(err.Error())
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		return nil, d.Errorf(&second, "holds a second document, which begins here; keep one in a file")
	case err != io.EOF:
		return nil, d.syntaxError(err.Error())
	}
	return first.Content[0], nil
}

// bound puts the nodes that aliases mean in their place. It refuses nesting and
// expansion beyond any real file (the "billion laughs" of nested aliases).
func (d *Document) bound(root *yaml.Node) error {
	count := 0
	var walk func(n *yaml.Node, depth int) error
	walk = func(n *yaml.Node, depth int) error {
		if depth > maxDepth {
			return d.Errorf(n, "is nested deeper than %d levels, or holds itself by an alias; write it flatter", maxDepth)
		}
		if count++; count > maxNodes {
			return d.Errorf(n, "is one value too many; a file may hold %d, counting what an alias stands for each time; split it", maxNodes)
		}
		for i, c := range n.Content {
			if c.Kind == yaml.AliasNode {
				c = c.Alias
				n.Content[i] = c
			}
			if err := walk(c, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(root, 0)
}

// Errorf returns a complaint at a node's position.
func (d *Document) Errorf(n *yaml.Node, format string, args ...any) *diag.Error {
	e := &diag.Error{File: d.Name, Message: fmt.Sprintf(format, args...)}
	if from, ok := d.origins[n]; ok && (n.Kind != yaml.MappingNode || from.concerns(e.Message)) {
		e.File, e.Message = from.flag, from.strip(e.Message)
		return e
	}
	if n != nil && n.Line > 0 {
		e.Line, e.Col, e.Source = n.Line, n.Column, d.line(n.Line)
	}
	return e
}

func (d *Document) line(n int) string {
	if n < 1 || n > len(d.text) {
		return ""
	}
	return d.text[n-1]
}

// Key returns the key node and value node of a mapping entry, or nils.
func Key(n *yaml.Node, name string) (key, value *yaml.Node) {
	if i := index(n, name); i >= 0 {
		return n.Content[i], n.Content[i+1]
	}
	return nil, nil
}

// index is where the key stands in a mapping's Content, or -1.
func index(n *yaml.Node, key string) int {
	if n == nil || n.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind == yaml.ScalarNode && k.Value == key {
			return i
		}
	}
	return -1
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

// Place returns the node below n that an error names by its leading path of keys, such as
// "plan.tp: …", so that the error points at it, or the last of the path that is there.
func Place(n *yaml.Node, err error) *yaml.Node {
	path, _, ok := strings.Cut(err.Error(), ":")
	if !ok {
		return n
	}
	at := n
	for k := range strings.SplitSeq(path, ".") {
		_, v := Key(at, k)
		if v == nil {
			break
		}
		at = v
	}
	return at
}
