package yamlx

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
)

// seeds are texts of every construct and of every kind of mistake.
var seeds = []string{
	benchmarkJob,
	"title: x\ngpus: 64\nsmall: -2\nrate: 2.5e-3\non: true\nwords: [a, 1]\nby: {x: 1}\ncurves: {8: [1, 2]}\nany: [1, {a: b}]\n",
	"plan: {tp: 2, fast: true, sizes: [1 MB, 25 MB], model: gpt2, also: [{name: a}, b]}",
	"{\n\t\"title\": \"\\ud83d\\ude80\",\n\t\"curves\": {\"8\": [1e3]}\n}",
	"a: &x [*x]", "a: &x {n: 1}\n<<: *x\n*x : 3", "? [a]\n: {b: c}\n", "a: !!int 8\nb: !x {}\n", "a: |\n  x\n\n y\nb: >-\n z",
	"a: 1\n---\nb: 2\n", "%YAML 1.1\n---\na", "\xef\xbb\xbfa: 1\r\nb: 2\r\n", "a: \u0085b: \u2028c", "a:\n\tb: 1", "a: \x01", "a: \"\\x00\\u2028\\q\"",
	"- - - a\n- ? b\n", "[[[[[[]]]]]]", "{a: {b: {c: }}}", "gpus: 1e400\nrate: .nan\nsmall: 99999999999\n", "# only\n# comments", "a: *b", "'a': \"b\"\n? \n: \n",
	"any: {? {a: 1} : [], 1: 2, <<: x}", "any: 0001-01-01\n", "any: !!binary aGk=", "-   -\n -",

	// Found by fuzzing: a value on the line below its tag, a second byte order mark,
	// and the shortest text of each of yaml.v3's complaints.
	"!\n0: 1", "\ufeff\ufeff1",
	"[*xa", "--- -", "- \n)\\?", "%", "!Z%", "- -\n>     ", "{r", "''|", "*-7Y!", ">\u00a0", "%YAML  1", "{\"\\u", "\"__\\U\"", ":", "{", "!<", "%YAML ", "!|!", "!<!0!!",
	"0: 0\n--\n\t", "|\t\n\t\n ::", "!%FD\n@00\n", "!%ED%E10\n", ">0", "{>", "%YAML 101-%\n\n-", "%YAML 1.4", "{\"\\ud80A\\gdc00\"", "!0!!", "\"\r---\r\"", "'l",
	"%YAM*B1.1\n---a", "%Y7", "\"\\X\"", "! ?", "0: &0:", "any: {? {a: 1} : 2, <: x}", "any: {? : [], <<: x}", "!%0a\n", "!<)0!6>", "? ?", "?\r?",
}

// FuzzParse checks that a text is refused with a place in it, or read to nodes
// that stand where they say.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("f", data)
		if err != nil {
			require.Nil(t, d)
			require.True(t, diag.IsInput(err), "%v", err)
			require.True(t, strings.HasPrefix(err.Error(), "f:"), "%v", err)
			require.NotContains(t, err.Error(), "runtime error", "a panic of yaml.v3")
			return
		}
		again, err := Parse("f", data)
		require.NoError(t, err)
		require.Equal(t, outline(d.Root), outline(again.Root))
		standing(t, d, d.Root)
	})
}

// standing checks that each plain scalar begins at its line and column.
func standing(t *testing.T, d *Document, n *yaml.Node) {
	require.NotEqual(t, yaml.AliasNode, n.Kind)
	for _, c := range n.Content {
		standing(t, d, c)
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && n.Anchor == "" && n.Value != "" {
		first, _, _ := strings.Cut(strings.FieldsFunc(n.Value, func(r rune) bool { return r == ' ' || r == '\n' || r == '\u2028' || r == '\u2029' })[0], "\t")
		line := []rune(d.line(n.Line))
		if n.Column <= len(line) && line[n.Column-1] == '!' {
			return // the non-specific tag stands before the value, even on the line before
		}
		require.True(t, strings.HasPrefix(string(line[min(n.Column-1, len(line)):]), first), "%q is not at %d:%d %q", n.Value, n.Line, n.Column, string(line))
	}
}

// FuzzDecode checks that decoding neither panics nor depends on anything but the
// text, and that its complaints have a place.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("f", data)
		if err != nil {
			return
		}
		var first, second outer
		err = d.Decode(&first)
		again, parseErr := Parse("f", data)
		require.NoError(t, parseErr)
		require.Equal(t, err, again.Decode(&second))
		require.Equal(t, first, second)
		if err != nil {
			for _, e := range err.(diag.List) {
				require.Positive(t, e.Line, e.Message)
				require.Positive(t, e.Col, e.Message)
				require.NotEmpty(t, e.Message)
				require.Less(t, len(e.Error()), 10_000)
			}
		}
	})
}

// FuzzSet checks that a value that is taken is found again, and that one that is
// refused changes nothing.
func FuzzSet(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), "plan.tp", "4", "inherits")
		f.Add([]byte("plan: {tp: 1}\nhardware: h100-sxm\n"), "hardware.gpu", s, "inherits")
	}
	f.Add([]byte("a: &x {tp: 1}\nb: *x"), "b.tp", "2", "")
	f.Add([]byte("a: {b: [1]}"), "a.b.0", "~", "")
	f.Add([]byte("a: {b: c}"), "a..b", "1", "a")
	f.Add([]byte("a: 1\na: 2"), "a", "null", "") // found by fuzzing: the second of two was left
	f.Fuzz(func(t *testing.T, data []byte, path, value, under string) {
		d, err := Parse("f", data)
		if err != nil {
			return
		}
		root, before := d.Root, outline(d.Root)
		if err := d.Set("--set", path, value, under); err != nil {
			require.True(t, diag.IsInput(err), "%v", err)
			require.Same(t, root, d.Root)
			require.Equal(t, before, outline(root))
			return
		}
		require.Equal(t, before, outline(root), "the nodes that were there do not change")
		at := d.At(strings.Split(path, ".")...)
		if value == "null" || value == "~" {
			require.Nil(t, at)
			return
		}
		v, err := Parse("v", []byte(value))
		require.NoError(t, err)
		require.Equal(t, outline(v.Root), outline(at))
		var out outer
		_ = d.Decode(&out)
	})
}
