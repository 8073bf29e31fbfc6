package yamlx

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/diag"
	_ "github.com/perfplan/perfplan/internal/seed"
)

// size reads its own text, as the quantities do.
type size int

func (s *size) UnmarshalText(t []byte) error {
	if _, err := fmt.Sscanf(string(t), "%d MB", (*int)(s)); err != nil {
		return fmt.Errorf("%q is not a size; write it as in \"25 MB\"", t)
	}
	return nil
}

// named is a name or a mapping, as the model of a job is.
type named struct{ Name string }

func (m *named) DecodeNode(d *Document, n *yaml.Node) diag.List {
	if n.Kind == yaml.ScalarNode {
		m.Name = n.Value
		return nil
	}
	var full struct {
		Name string `yaml:"name"`
	}
	errs := d.DecodeInto(n, &full)
	m.Name = full.Name
	return errs
}

type inner struct {
	TP    int64   `yaml:"tp"`
	Fast  *bool   `yaml:"fast"`
	Sizes []size  `yaml:"sizes"`
	Model named   `yaml:"model"`
	Also  []named `yaml:"also"`
}

type Common struct {
	Title string `yaml:"title"`
}

type outer struct {
	Common  `yaml:",inline"`
	GPUs    int                  `yaml:"gpus"`
	Small   int32                `yaml:"small"`
	Rate    float64              `yaml:"rate"`
	On      bool                 `yaml:"on"`
	Plan    inner                `yaml:"plan"`
	Maybe   *inner               `yaml:"maybe"`
	Words   []string             `yaml:"words"`
	By      map[string]float64   `yaml:"by"`
	Curves  map[int64][]float64  `yaml:"curves"`
	Any     any                  `yaml:"any"`
	Ignored string               `yaml:"-"`
	Untold  string               // no tag: not a key
	Lists   map[string][]float64 `yaml:"lists"`
	private int
}

func TestDecode(t *testing.T) {
	yes := true
	for _, c := range []struct {
		name, in string
		want     outer
	}{
		{"every kind", "title: x\ngpus: 64\nsmall: -2\nrate: 2.5\non: true\nwords: [a, 1, true]\nby: {x: 1}\ncurves: {8: [1, 2]}\nany: [1, {a: b}]\n",
			outer{Common: Common{"x"}, GPUs: 64, Small: -2, Rate: 2.5, On: true, Words: []string{"a", "1", "true"}, By: map[string]float64{"x": 1},
				Curves: map[int64][]float64{8: {1, 2}}, Any: []any{1, map[string]any{"a": "b"}}}},
		{"nested", "plan: {tp: 2, fast: true, sizes: [1 MB, 25 MB], model: gpt2, also: [{name: a}, b]}\n",
			outer{Plan: inner{TP: 2, Fast: &yes, Sizes: []size{1, 25}, Model: named{"gpt2"}, Also: []named{{"a"}, {"b"}}}}},
		{"a pointer", "maybe: {tp: 2}", outer{Maybe: &inner{TP: 2}}},
		{"a key with nothing after it means the default", "gpus:\nmaybe:\nplan:\nwords: ~\nany: null\n", outer{}},
		{"JSON", `{"title": "x", "curves": {"8": [1e3]}}`, outer{Common: Common{"x"}, Curves: map[int64][]float64{8: {1000}}}},
		{"whole numbers as people write them", "gpus: 1_000\nsmall: 4096.0\nplan: {tp: 1e9}", outer{GPUs: 1000, Small: 4096, Plan: inner{TP: 1e9}}},
		{"a whole number that a float cannot hold", "plan: {tp: 9007199254740993}", outer{Plan: inner{TP: 9007199254740993}}},
		{"a leading zero is decimal, as to a person", "gpus: 010", outer{GPUs: 10}},
		{"numbers", "rate: -1e-3\nby: {a: 1_0.5, b: .5, c: 7}", outer{Rate: -1e-3, By: map[string]float64{"a": 10.5, "b": 0.5, "c": 7}}},
		{"an alias", "plan: &p {tp: 2}\nmaybe: *p", outer{Plan: inner{TP: 2}, Maybe: &inner{TP: 2}}},
		{"text that looks like something else", "title: 2024-01-01\nwords: [1e400, .nan, yes, '']", outer{Common: Common{"2024-01-01"}, Words: []string{"1e400", ".nan", "yes", ""}}},
	} {
		var got outer
		require.NoError(t, mustParse(t, c.in).Decode(&got), c.name)
		require.Equal(t, c.want, got, c.name)
	}
	_ = outer{}.private
}

// datum is a value of its own kind of node, whose decoder does not know its key.
type datum struct{ Value int64 }

func (x *datum) DecodeNode(d *Document, n *yaml.Node) diag.List { return d.DecodeInto(n, &x.Value) }

// TestNodesAreNamed: what a NodeDecoder says of a value names its key, once.
func TestNodesAreNamed(t *testing.T) {
	for in, want := range map[string]string{
		"memory: 80 apples":  `f.yaml:1:9: memory: expected a whole number, found "80 apples"`,
		"memory: [1]":        "f.yaml:1:9: memory: expected a whole number, found a list",
		"own: x":             `f.yaml:1:6: own: "x" is wrong`,
		"inner: {value: x}":  `f.yaml:1:16: value: expected a whole number, found "x"`,
		"inner: {other: {}}": `f.yaml:1:9: unknown key "other"`,
	} {
		var out struct {
			Memory datum    `yaml:"memory"`
			Own    itself   `yaml:"own"`
			Inner  valuable `yaml:"inner"`
		}
		require.ErrorContains(t, mustParse(t, in).Decode(&out), want, in)
	}
}

// itself names its key.
type itself struct{}

func (*itself) DecodeNode(d *Document, n *yaml.Node) diag.List {
	return diag.List{d.Errorf(n, "own: %q is wrong", n.Value)}
}

// valuable is a mapping.
type valuable struct{}

func (*valuable) DecodeNode(d *Document, n *yaml.Node) diag.List {
	var full struct {
		Value int64 `yaml:"value"`
	}
	return d.DecodeInto(n, &full)
}

// What a file leaves out stays as it was: a profile is read over the one it inherits.
func TestDecodeKeepsDefaults(t *testing.T) {
	got := outer{GPUs: 8, Plan: inner{TP: 4, Model: named{"gpt2"}}, By: map[string]float64{"x": 1}}
	require.NoError(t, mustParse(t, "plan: {tp: 2}\nrate:\n").Decode(&got))
	require.Equal(t, outer{GPUs: 8, Plan: inner{TP: 2, Model: named{"gpt2"}}, By: map[string]float64{"x": 1}}, got)
}

// TestUnknownAmongMany: an unknown key that is like none is answered with those that there are,
// however many.
func TestUnknownAmongMany(t *testing.T) {
	var keys []string
	var fields []reflect.StructField
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("key_%02d", i))
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: reflect.TypeFor[int](), Tag: reflect.StructTag(`yaml:"` + keys[i] + `"`)})
	}
	err := mustParse(t, "elephant: 1").Decode(reflect.New(reflect.StructOf(fields)).Interface())
	require.ErrorContains(t, err, `unknown key "elephant"; known: `+strings.Join(keys, ", ")+"\n")
}

func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"gpu: 1", `1:1: unknown key "gpu"; did you mean "gpus"?`},
		{"plan: {size: 1}", `1:8: unknown key "size"; did you mean "sizes"?`},
		{"plan: {qqqqqqq: 1}", `1:8: unknown key "qqqqqqq"; known: tp, fast, sizes, model, also`},
		{"Untold: 1", `1:1: unknown key "Untold"; known: title, gpus, small, rate, on, plan, maybe, words, by, curves, any, lists`},
		{"sizes: 1", `1:1: unknown key "sizes"; did you mean "plan.sizes" or "maybe.sizes"?`},
		{"plan: {gpus: 1}", `1:8: unknown key "gpus"; did you mean "gpus" at the top?`},
		{"name: x", `1:1: unknown key "name"; known: title, gpus, small, rate, on, plan, maybe, words, by, curves, any, lists`}, // of a type that decodes itself
		{"hello", `1:1: expected a mapping, found "hello"`},
		{"[gpus]", `1:1: expected a mapping, found a list`},
		{"plan: 3", `1:7: plan: expected a mapping, found "3"`},
		{"by: [1]", `1:5: by: expected a mapping, found a list`},
		{"words: a", `1:8: words: expected a list, found "a"`},
		{"words: {a: b}", `1:8: words: expected a list, found a mapping`},
		{"title: [a]", `1:8: title: expected text, found a list`},
		{"gpus: many", `1:7: gpus: expected a whole number, found "many"`},
		{"gpus: 8k", `1:7: gpus: expected a whole number, found "8k"; write 8000 or 8192, whichever is meant`},
		{"gpus: -8k", `1:7: gpus: expected a whole number, found "-8k"`},
		{"gpus: 2.5", `1:7: gpus: expected a whole number, found "2.5"`},
		{"gpus: true", `1:7: gpus: expected a whole number, found "true"`},
		{"gpus: [1]", `1:7: gpus: expected a whole number, found a list`},
		{"gpus: 0x10", `1:7: gpus: expected a whole number, found "0x10"`},
		{"gpus: .inf", `1:7: gpus: expected a whole number, found ".inf"`},
		{`gpus: "8"`, `1:7: gpus: expected a whole number, found "8" in quotes; write it without`},
		{`gpus: "many"`, `1:7: gpus: expected a whole number, found "many"`},
		{"gpus: 1e300", `1:7: gpus: expected a whole number, found "1e300", which is too large`},
		{"gpus: 99999999999999999999", `1:7: gpus: expected a whole number, found "99999999999999999999", which is too large`},
		{"small: 3000000000", `1:8: small: expected a whole number, found "3000000000", which is too large`},
		{"rate: fast", `1:7: rate: expected a number, found "fast"`},
		{"rate: .nan", `1:7: rate: expected a number, found ".nan"`},
		{"rate: -.inf", `1:7: rate: expected a number, found "-.inf"`},
		{"rate: 1e400", `1:7: rate: expected a number, found "1e400"`},
		{"rate: nan", `1:7: rate: expected a number, found "nan"`},
		{"rate: '1'", `1:7: rate: expected a number, found "1" in quotes; write it without`},
		{"on: yes", `1:5: on: expected true or false, found "yes"`},
		{"on: 1", `1:5: on: expected true or false, found "1"`},
		{"on: 'true'", `1:5: on: expected true or false, found "true" in quotes; write it without`},
		{"plan: {sizes: [1 MB, 3]}", `1:22: sizes: "3" is not a size; write it as in "25 MB"`},
		{"plan: {sizes: [[1]]}", `1:16: sizes: expected one value, found a list`},
		{"plan: {model: {nam: x}}", `1:16: unknown key "nam"; did you mean "name"?`},
		{"words: [a, null]", `1:12: words: item 2 of the list is empty; give it a value or take it out`},
		{"by: {x: y}", `1:9: x: expected a number, found "y"`},
		{"by: {x: 1, x: 2}", `1:12: key "x" is given twice; leave one of them out`},
		{"curves: {x: [1]}", `1:10: curves: expected a whole number, found "x"`},
		{"gpus: 1\ngpus: 2", `2:1: key "gpus" is given twice; leave one of them out`},
		{"gpus: 1\n'gpus': 2", `2:1: key "gpus" is given twice; leave one of them out`},
		{"? [gpus]\n: 1", `1:3: a key is one word, found a list`},
		{"{~: 1}", `1:2: a key is one word, found nothing`},
		{"by: {{a: b}: 1}", `1:6: by: a key is one word, found a mapping`},
		{"!!str gpus: 1", `1:1: a key is one word, found "gpus"`},
		{"a: &x {gpus: 1}\n<<: *x", `2:1: merge keys (<<) are not understood; write the keys out`},
		{"gpus: !!int 8", `1:7: gpus: the tag "!!int" is not understood; write the value without it`},
		{"plan: !plan {tp: 2}", `1:7: plan: the tag "!plan" is not understood; write the value without it`},
		{"title: !!null x", `1:8: title: the tag "!!null" is not understood; write the value without it`},
		{"any: {? [a] : b, a: 1, a: 2}", `1:6: any: yaml: unmarshal errors:`},
		{"gpus: " + strings.Repeat("模", 99), `1:7: gpus: expected a whole number, found "` + strings.Repeat("模", 60) + `…"`},
	} {
		var out outer
		err := mustParse(t, c.in).Decode(&out)
		require.Error(t, err, c.in)
		require.Contains(t, "\n"+err.Error()+"\n", "\nf.yaml:"+c.want+"\n", c.in)
		require.True(t, diag.IsInput(err))
	}
}

// All complaints of a file come at once, in its order, and none stops the rest.
func TestDecodeReportsEverything(t *testing.T) {
	var out outer
	err := mustParse(t, "on: maybe\ngpu: 1\nplan:\n  tp: two\n  sizes: [1, 2 MB, 3]\n  model: {x: y}\ngpus: 8\ngpus: 9\n").Decode(&out)
	require.EqualError(t, err, strings.Join([]string{
		`f.yaml:1:5: on: expected true or false, found "maybe"`, "  on: maybe", "      ^",
		`f.yaml:2:1: unknown key "gpu"; did you mean "gpus"?`, "  gpu: 1", "  ^",
		`f.yaml:4:7: tp: expected a whole number, found "two"`, "    tp: two", "        ^",
		`f.yaml:5:11: sizes: "1" is not a size; write it as in "25 MB"`, "    sizes: [1, 2 MB, 3]", "            ^",
		`f.yaml:5:20: sizes: "3" is not a size; write it as in "25 MB"`, "    sizes: [1, 2 MB, 3]", "                     ^",
		`f.yaml:6:11: unknown key "x"; known: name`, "    model: {x: y}", "            ^",
		`f.yaml:8:1: key "gpus" is given twice; leave one of them out`, "  gpus: 9", "  ^",
	}, "\n"))
	require.Equal(t, 8, out.GPUs)

	err = mustParse(t, sequence("k%d: 1\n", 5000)).Decode(&out)
	require.Len(t, err, maxComplaints, "a file that is something else altogether")
}

func TestRest(t *testing.T) {
	var out struct {
		ID   string                `yaml:"id"`
		Rest map[string]*yaml.Node `yaml:",rest"`
	}
	require.NoError(t, mustParse(t, "id: a\nmodel: gpt2\nplan: {tp: 2}\n").Decode(&out))
	require.Equal(t, "a", out.ID)
	require.Len(t, out.Rest, 2)
	require.Equal(t, "gpt2", out.Rest["model"].Value)
	require.Error(t, mustParse(t, "plan: 1\nplan: 2").Decode(&out), "twice is refused here too")
	require.Error(t, mustParse(t, "<<: {a: 1}").Decode(&out))
}

// A mistake in our own struct shows in the first test that decodes into it.
func TestUnsupportedType(t *testing.T) {
	var out struct {
		C complex128 `yaml:"c"`
	}
	require.PanicsWithValue(t, "yamlx: cannot decode into complex128", func() { _ = mustParse(t, "c: 1").Decode(&out) })
}

// Numbers read back as they were written.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, number := rapid.Int64().Draw(t, "whole"), rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, "number")
		d, err := Parse("f", fmt.Appendf(nil, "plan: {tp: %d}\nrate: %v\n", whole, number))
		require.NoError(t, err)
		var out outer
		require.NoError(t, d.Decode(&out))
		require.Equal(t, whole, out.Plan.TP)
		require.Equal(t, number, out.Rate)
	})
}
