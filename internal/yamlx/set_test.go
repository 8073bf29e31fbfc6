package yamlx

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/diag"
)

func TestSet(t *testing.T) {
	for _, c := range []struct{ name, text, path, value, under, want string }{
		{"a value", "plan: {tp: 1}", "plan.tp", "4", "", `{"plan": {"tp": 4}}`},
		{"a new key", "plan: {tp: 1}", "plan.pp", "2", "", `{"plan": {"tp": 1, "pp": 2}}`},
		{"new mappings on the way", "gpus: 8", "plan.a.b", "x", "", `{"gpus": 8, "plan": {"a": {"b": "x"}}}`},
		{"inside a key with nothing after it", "plan:", "plan.tp", "4", "inherits", `{"plan": {"tp": 4}}`},
		{"inside a name", "hardware: h100-sxm", "hardware.gpu.power", "500 W", "inherits", `{"hardware": {"inherits": "h100-sxm", "gpu": {"power": "500 W"}}}`},
		{"in place of a list", "l: [1, 2]", "l", "[3]", "", `{"l": [3]}`},
		{"a mapping", "a: 1", "plan", "{tp: 2, pp: 1}", "", `{"a": 1, "plan": {"tp": 2, "pp": 1}}`},
		{"text with a unit", "a: 1", "bucket", "25 MiB", "", `{"a": 1, "bucket": "25 MiB"}`},
		{"quoted text", "a: 1", "b", `"null"`, "", `{"a": 1, "b": "null"}`},
		{"wide characters", "模型: x", "模型", "🚀", "", `{"模型": "🚀"}`},
		{"null takes a key away", "plan: {tp: 2, pp: 1}", "plan.tp", "null", "", `{"plan": {"pp": 1}}`},
		{"so does ~", "plan: {tp: 2}", "plan.tp", "~", "", `{"plan": {}}`},
		{"null of what is not there", "gpus: 8", "plan.tp", "null", "", `{"gpus": 8}`},
		{"null inside a name that is kept as it is", "hardware: h100-sxm", "hardware.gpu", "null", "inherits", `{"hardware": "h100-sxm"}`},
		{"an alias changes in this place only", "a: &x {tp: 1}\nb: *x", "b.tp", "2", "", `{"a": {"tp": 1}, "b": {"tp": 2}}`},
		{"an anchor too", "a: &x {tp: 1}\nb: *x", "a.tp", "2", "", `{"a": {"tp": 2}, "b": {"tp": 1}}`},
		{"a replaced anchor", "a: &x {tp: 1}\nb: *x", "a", "2", "", `{"a": 2, "b": {"tp": 1}}`},
	} {
		d := mustParse(t, c.text)
		before, root := outline(d.Root), d.Root
		require.NoError(t, d.Set("--set "+c.path, c.path, c.value, c.under), c.name)
		require.Equal(t, c.want, outline(d.Root), c.name)
		require.Equal(t, before, outline(root), "%s: the nodes that were there do not change", c.name)
	}
}

func TestSetErrors(t *testing.T) {
	deep := strings.Repeat("a.", maxDepth) + "a"
	for _, c := range []struct{ name, text, path, value, want string }{
		{"an empty part", "a: 1", "a..b", "1", `the path "a..b" has an empty part; write it as in plan.tp=4`},
		{"no path", "a: 1", "", "1", `the path "" has an empty part; write it as in plan.tp=4`},
		{"no value", "a: 1", "a", "", `the value "" is empty; YAML or JSON is expected`},
		{"a comment", "a: 1", "a", "# x", `the value "# x" is empty; YAML or JSON is expected`},
		{"bad YAML", "a: 1", "a", "[1", `the value "[1" is not valid YAML or JSON: did not find expected ',' or ']'; put a comma between the items and close the bracket`},
		{"two documents", "a: 1", "a", "1\n---\n2", `the value "1\n---\n2" holds a second document, which begins here; keep one in a file`},
		{"binary", "a: 1", "a", "\x00", `the value "\x00" is not a text file; YAML or JSON in UTF-8 is expected`},
		{"inside a number", "gpus: 8", "gpus.x", "1", `gpus is "8", which has no key x`},
		{"inside a list", "a: {l: [1]}", "a.l.0", "1", `a.l is a list, which has no key 0`},
		{"inside a file that is a name", "llama2-7b", "gpus", "1", `the file holds "llama2-7b", not a mapping`},
		{"inside a file that is a list", "[1]", "gpus", "1", `the file holds a list, not a mapping`},
		{"too deep", "b: 1", deep, "1", "the path has 65 parts; use 64 at most"},
	} {
		d := mustParse(t, c.text)
		before := outline(d.Root)
		err := d.Set("--set", c.path, c.value, "")
		require.EqualError(t, err, "--set: "+c.want, c.name)
		require.True(t, diag.IsInput(err), c.name)
		require.Equal(t, before, outline(d.Root), c.name)
	}
	d := mustParse(t, "b: 1")
	require.ErrorContains(t, d.Set("--set", deep[:2*maxDepth-3], strings.Repeat("[", maxDepth)+strings.Repeat("]", maxDepth), ""), "nested deeper than 64 levels")
	require.Equal(t, `{"b": 1}`, outline(d.Root))
}

// A complaint about a value names the flag that set it, not a line of the file.
func TestSetNamesTheFlag(t *testing.T) {
	for _, c := range []struct{ flag, path, value, under, want string }{
		{"--tp", "plan.tp", "two", "", `--tp: expected a whole number, found "two"`},
		{"--set plan.sizes", "plan.sizes", "[1 MB, 2]", "", `--set plan.sizes: "2" is not a size; write it as in "25 MB"`},
		{"--set plan.tpp", "plan.tpp", "2", "", `--set plan.tpp: unknown key "tpp"; did you mean "tp"?`},
		{"--set gpus.x", "gpus.x", "2", "inherits", `f.yaml:1:7: gpus: expected a whole number, found a mapping` + "\n  gpus: 8\n        ^"},
		{"--set small.x", "small.x", "2", "", `--set small.x: small: expected a whole number, found a mapping`},
		{"--set plan", "plan", "{tpp: 1}", "", `--set plan: unknown key "tpp"; did you mean "tp"?`},
	} {
		d := mustParse(t, "gpus: 8\n")
		require.NoError(t, d.Set(c.flag, c.path, c.value, c.under))
		var out outer
		require.EqualError(t, d.Decode(&out), c.want)
	}

	other := mustParse(t, "gpus: 8\n") // a rule about a key that the flag beside it does not set
	require.NoError(t, other.Set("--tp", "plan.tp", "2", ""))
	require.EqualError(t, other.Errorf(other.At("plan"), "plan.pp: 3 stages"), "f.yaml: plan.pp: 3 stages")
	require.EqualError(t, other.Errorf(other.At("plan"), "plan: 2 is too many"), "--tp: plan: 2 is too many")

	d := mustParse(t, "gpus: 8\n") // one flag changes what another has set
	require.NoError(t, d.Set("--a", "plan", "{tp: x}", ""))
	require.NoError(t, d.Set("--b", "plan.also", "3", ""))
	require.NoError(t, d.Set("--c", "by", "name", ""))
	require.NoError(t, d.Set("--d", "by.x", "y", "base"))
	var out outer
	require.EqualError(t, d.Decode(&out), strings.Join([]string{
		`--a: tp: expected a whole number, found "x"`,
		`--b: expected a list, found "3"`,
		`--c: base: expected a number, found "name"`,
		`--d: expected a number, found "y"`,
	}, "\n"))
	e := d.Errorf(d.At("plan"), "m")
	require.Equal(t, "--a", e.File, "the mapping that --b put a key into is still --a's")
}

// A document may be made of nodes without a file, as for a model named on the
// command line.
func TestSetOfNodes(t *testing.T) {
	d := &Document{Root: &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}}
	require.NoError(t, d.Set("--gpus", "gpus", "x", ""))
	require.Equal(t, `{"gpus": "x"}`, outline(d.Root))
	var out outer
	require.EqualError(t, d.Decode(&out), `--gpus: expected a whole number, found "x"`)
}

// What was set is found at its path, and nothing else changes: another path keeps
// its value, and setting the old value again restores the document.
func TestSetThenAt(t *testing.T) {
	word := rapid.StringMatching(`[a-d]`)
	var tree func(depth int) *rapid.Generator[string]
	tree = func(depth int) *rapid.Generator[string] {
		leaf := rapid.SampledFrom([]string{"1", "x", "[1, 2]", "{}", "2.5 GB", "true", "'null'"})
		if depth == 0 {
			return leaf
		}
		return rapid.Custom(func(t *rapid.T) string {
			keys := rapid.SliceOfNDistinct(word, 1, 4, rapid.ID).Draw(t, "keys")
			parts := make([]string, len(keys))
			for i, k := range keys {
				parts[i] = k + ": " + rapid.OneOf(leaf, tree(depth-1)).Draw(t, "value")
			}
			return "{" + strings.Join(parts, ", ") + "}"
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		text := tree(3).Draw(t, "text")
		d, err := Parse("f", []byte(text))
		require.NoError(t, err)
		path, value := rapid.SliceOfN(word, 1, 4).Draw(t, "path"), tree(1).Draw(t, "value")
		other := rapid.SliceOfN(word, 1, 4).Draw(t, "other")
		was, wasOther, before := d.At(path...), d.At(other...), outline(d.Root)

		if err := d.Set("--set", strings.Join(path, "."), value, rapid.SampledFrom([]string{"", "inherits"}).Draw(t, "under")); err != nil {
			require.Equal(t, before, outline(d.Root))
			return
		}
		v, err := Parse("v", []byte(value))
		require.NoError(t, err)
		require.Equal(t, outline(v.Root), outline(d.At(path...)))
		if !related(path, other) && wasOther != nil {
			require.Same(t, wasOther, d.At(other...))
		}
		if was != nil {
			require.NoError(t, d.Set("--set", strings.Join(path, "."), outline(was), ""))
			require.Equal(t, before, outline(d.Root))
			require.NoError(t, d.Set("--set", strings.Join(path, "."), "null", ""))
			require.Nil(t, d.At(path...))
		}
	})
}

// related reports whether one path leads through the other.
func related(a, b []string) bool {
	n := min(len(a), len(b))
	return strings.Join(a[:n], ".") == strings.Join(b[:n], ".")
}
