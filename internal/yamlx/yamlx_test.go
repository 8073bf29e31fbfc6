package yamlx

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
)

func mustParse(t testing.TB, text string) *Document {
	t.Helper()
	d, err := Parse("f.yaml", []byte(text))
	require.NoError(t, err)
	return d
}

// outline writes a node and all in it on one line: {key: value}, [item], "text",
// and other scalars as they are.
func outline(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		parts := make([]string, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			parts = append(parts, outline(n.Content[i])+": "+outline(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case yaml.SequenceNode:
		parts := make([]string, 0, len(n.Content))
		for _, c := range n.Content {
			parts = append(parts, outline(c))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.ScalarNode:
		if n.Tag == "!!str" {
			return fmt.Sprintf("%q", n.Value)
		}
		return n.Value
	}
	return fmt.Sprintf("kind %d", n.Kind)
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"a job", "perfplan: job/v1\ngpus: 64\nplan: {tp: 2}\n", `{"perfplan": "job/v1", "gpus": 64, "plan": {"tp": 2}}`},
		{"JSON", `{"a": 1, "b": [true, null, "x"]}`, `{"a": 1, "b": [true, null, "x"]}`},
		{"JSON indented with tabs", "{\n\t\"a\":\t1,\n\t\"b\": {\n\t\t\"c\": 2\n\t}\n}\n", `{"a": 1, "b": {"c": 2}}`},
		{"a JSON list", "[\n\t1\n]", `[1]`},
		{"all escapes of JSON", `{"a": "\" \\ \/ \b \f \n \r \t \u002F \\/"}`, `{"a": "\" \\ / \b \f \n \r \t / \\/"}`},
		{"a character as two surrogates, as json.dumps writes it", `{"a": "\ud83d\uDE80 \u00e9 \\ud83d\\ude80"}`, `{"a": "🚀 é \\ud83d\\ude80"}`},
		{"CRLF", "a: 1\r\nb: 2\r\n", `{"a": 1, "b": 2}`},
		{"byte order mark", "\xef\xbb\xbfa: 1", `{"a": 1}`},
		{"comments and a document start", "# c\n---\na: 1 # d\n...\n", `{"a": 1}`},
		{"aliases stand for what they mean", "a: &x {n: 1}\nb: *x\nc: [*x, *x]\n", `{"a": {"n": 1}, "b": {"n": 1}, "c": [{"n": 1}, {"n": 1}]}`},
		{"an alias as a key", "a: &x tp\n*x : 3\n", `{"a": "tp", "tp": 3}`},
		{"a scalar", "llama2-7b", `"llama2-7b"`},
		{"wide characters", "模型: 🚀\n", `{"模型": "🚀"}`},
		{"a colon in a quoted text", `a: "b: c"`, `{"a": "b: c"}`},
		{"nested as deep as it may be", strings.Repeat("[", maxDepth) + "1" + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth) + "1" + strings.Repeat("]", maxDepth)},
	} {
		d, err := Parse("f.yaml", []byte(c.in))
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, outline(d.Root), c.name)
	}
}

func TestParseErrors(t *testing.T) {
	const invalid = "is not valid YAML or JSON: "
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "f: is empty; YAML or JSON is expected"},
		{"blank", " \n\n", "f: is empty; YAML or JSON is expected"},
		{"only comments", "# a\n# b\n", "f: is empty; YAML or JSON is expected"},
		{"null", "null", "f: is empty; YAML or JSON is expected"},
		{"binary", "\x7fELF\x02\x01\x00", "f: is not a text file; YAML or JSON in UTF-8 is expected"},
		{"Latin-1", "name: caf\xe9", "f: is text in another encoding than UTF-8, in line 1 the byte 0xe9; save it in UTF-8"},
		{"UTF-16", "\xff\xfea\x00:\x00", "f: is text in UTF-16, as > of older PowerShells writes it; save it in UTF-8"},
		{"a control character", "a: 1\nb: x\x01y", "f:2:5: " + invalid + "control characters are not allowed; remove them\n  b: x\ufffdy\n      ^"},
		{"too large", strings.Repeat("#", MaxFileSize+1), "f: is larger than 2 MiB, the most that is read; split it"},
		{"too many lines", strings.Repeat("\n", maxNodes+1), "f: has more than 300000 lines and commas, the most that is read; split it"},

		{"two documents", "a: 1\n---\nb: 2\n", "f:2:1: holds a second document, which begins here; keep one in a file\n  ---\n  ^"},
		{"a second document of nothing", "a: 1\n---\n", "f:2:1: holds a second document, which begins here; keep one in a file\n  ---\n  ^"},
		{"something behind the end", "{a: 1}\n\n}", "f:3:1: " + invalid + "did not find expected <document start>; check the brackets and the indentation, here or just above\n  }\n  ^"},

		{"a tab", "a:\n \tb: 1\n", "f:2:2: " + invalid + "found character that cannot start any token; indent with spaces, not tabs, and quote text that starts with @, % or `\n    b: 1\n   ^"},
		{"an open bracket", "a: 1\nb: [1, 2\nc: 3\n", "f:2:1: " + invalid + "did not find expected ',' or ']'; put a comma between the items and close the bracket\n  b: [1, 2\n  ^"},
		{"an open brace on the first line", "{a: 1", "f:1:1: " + invalid + "did not find expected ',' or '}'; put a comma between the items and close the bracket\n  {a: 1\n  ^"},
		{"JSON without a comma", "{\n  \"a\": 1\n  \"b\": 2\n}", "f:3:3: " + invalid + "did not find expected ',' or '}'; put a comma between the items and close the bracket\n    \"b\": 2\n    ^"},
		{"wrong indentation", "a: 1\n b: 2\n", "f:2:2: " + invalid + "mapping values are not allowed in this context; check the indentation, and quote text that holds a colon and a space\n   b: 2\n   ^"},
		{"a list in a mapping", "a: 1\n- b\n", "f:2:1: " + invalid + "did not find expected key; check the indentation and the quotes, here or just below\n  - b\n  ^"},
		{"a mapping in a list", "- a\nb: 1\n", "f:2:1: " + invalid + "did not find expected '-' indicator; check the indentation, here or just below\n  b: 1\n  ^"},
		{"no colon", "a: 1\nb\nc: 2\n", "f:2:1: " + invalid + "could not find expected ':'; a key ends with a colon and a space\n  b\n  ^"},
		{"an open quote", "a: \"x\nb: 1", "f:2:1: " + invalid + "found unexpected end of stream; close the quote\n  b: 1\n  ^"},
		{"a missing value", "a: 1\nb: [1,,2]", "f:2:1: " + invalid + "did not find expected node content; a value is missing\n  b: [1,,2]\n  ^"},
		{"a list on the line of its key", "a: 1\nb: - 1", "f:2:1: " + invalid + "block sequence entries are not allowed in this context; begin the list on a line of its own\n  b: - 1\n  ^"},
		{"a Windows path in double quotes", `a: "C:\models"`, "f:1:1: " + invalid + "found unknown escape character; write \\\\ for a backslash, or use single quotes\n  a: \"C:\\models\"\n  ^"},
		{"an alias of nothing", "a: 1\nb: 日 *x\nc: *x\n", "f:2:6: " + invalid + "*x refers to nothing above; mark a value with &x or quote the text\n  b: 日 *x\n        ^"},
		{"a tab after an open text", "a: |\n\t\n x", "f:2:1: " + invalid + "found a tab character where an indentation space is expected; indent with spaces, not tabs\n   \n  ^"},
		{"a star", "a: 1\nb: * 2", "f:2:1: " + invalid + "did not find expected alphabetic or numeric character; quote text that starts with * or &\n  b: * 2\n  ^"},
		{"half a character in JSON", `{"a": "\ud83d"}`, "f:1:1: " + invalid + "found invalid Unicode character escape code\n  {\"a\": \"\\ud83d\"}\n  ^"},

		{"nested too deep", "a: 1\nb: " + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), "f:2:68: is nested deeper than 64 levels, or holds itself by an alias; write it flatter"},
		{"an alias of itself", "a: &x [*x]", "f:1:4: is nested deeper than 64 levels, or holds itself by an alias; write it flatter"},
		{"a hundred thousand brackets", strings.Repeat("[", 100_000), "f:1:1: " + invalid + "exceeded max depth of 10000; write it flatter"},
		{"a billion laughs", laughs(), "f:1:29: is one value too many; a file may hold 300000, counting what an alias stands for each time; split it"},
	} {
		d, err := Parse("f", []byte(c.in))
		require.Nil(t, d, c.name)
		require.True(t, diag.IsInput(err), c.name)
		if strings.Contains(c.want, "\n") {
			require.EqualError(t, err, c.want, c.name)
		} else {
			first, _, _ := strings.Cut(err.Error(), "\n")
			require.Equal(t, c.want, first, c.name)
		}
	}
}

// laughs is nine lines that stand for 9^9 values (CVE-2003-1564).
func laughs() string {
	var b strings.Builder
	b.WriteString("a: &a [x, x, x, x, x, x, x, x, x]\n")
	for c := 'b'; c < 'j'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	return b.String()
}

// Lines and columns are those of an editor, whatever ends a line.
func TestPositions(t *testing.T) {
	for name, text := range map[string]string{
		"LF": "é: 1\n\nb:\n  日本: {k: v}\n", "CRLF": "é: 1\r\n\r\nb:\r\n  日本: {k: v}\r\n", "CR": "é: 1\r\rb:\r  日本: {k: v}\r",
		"NEL": "é: 1\u0085\u0085b:\u0085  日本: {k: v}", "LS": "é: 1\u2028\u2028b:\u2028  日本: {k: v}", "BOM": "\xef\xbb\xbfé: 1\n\nb:\n  日本: {k: v}",
	} {
		d := mustParse(t, text)
		e := d.Errorf(d.At("b", "日本", "k"), "m")
		require.Equal(t, diag.Error{File: "f.yaml", Line: 4, Col: 11, Message: "m", Source: "  日本: {k: v}"}, *e, name)
	}
	d := mustParse(t, "{\n\t\"a\": [\n\t\t1\n\t]\n}")
	require.EqualError(t, d.Errorf(d.At("a").Content[0], "m"), "f.yaml:3:3: m\n    1\n    ^")
	require.EqualError(t, d.Errorf(nil, "m"), "f.yaml: m")
}

func TestKeyAndAt(t *testing.T) {
	d := mustParse(t, "a: {b: {c: 1}}\nl: [x]\n? [k]\n: 2\n")
	key, value := Key(d.Root, "a")
	require.Equal(t, "a", key.Value)
	require.Same(t, d.At("a"), value)
	require.Equal(t, "1", d.At("a", "b", "c").Value)
	require.Same(t, d.Root, d.At())
	for _, path := range [][]string{{"x"}, {"a", "x"}, {"l", "x"}, {"a", "b", "c", "x"}, {""}} {
		require.Nil(t, d.At(path...), path)
	}
	key, value = Key(nil, "a")
	require.Nil(t, key)
	require.Nil(t, value)
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	d, err := ReadFile(file("job.yaml", "a: 1"))
	require.NoError(t, err)
	require.Equal(t, "1", d.At("a").Value)

	refused := func(name, want string) {
		_, err := ReadFile(name)
		require.EqualError(t, err, name+": "+want)
		require.True(t, diag.IsInput(err))
	}
	refused(filepath.Join(dir, "missing.yaml"), "no such file; give one that is there")
	refused(dir, "is a folder; name a file in it")
	refused(filepath.Join(dir, "job.yaml", "x"), "may not be read: not a directory; give another file")
	refused(filepath.Join(dir, strings.Repeat("x", 5000)), "may not be read: file name too long; give another file")
	refused(file("empty.yaml", ""), "is empty; YAML or JSON is expected")
	large := file("large.yaml", "")
	require.NoError(t, os.Truncate(large, 50<<20))
	refused(large, "is larger than 2 MiB, the most that is read; split it")
	if runtime.GOOS == "linux" {
		refused("/dev/zero", "is larger than 2 MiB, the most that is read; split it") // has no size and no end
	}
	if os.Getuid() != 0 {
		secret := file("secret.yaml", "a: 1")
		require.NoError(t, os.Chmod(secret, 0))
		refused(secret, "may not be read: permission denied; give a file that you may read")
	}
}

// No text costs more than about a second and 200 MB; the bounds here leave room
// for slow machines and for the race detector.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("parses 2 MB many times")
	}
	fill := func(s string) string { return strings.Repeat(s, (MaxFileSize-1000)/len(s)) }
	for name, text := range map[string]string{
		"a billion laughs":       laughs(),
		"aliases of a list":      "- &a [" + strings.Repeat("x, ", 1000) + "x]\n" + strings.Repeat("- *a\n", 100_000),
		"brackets":               fill("["),
		"closed brackets":        strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"lines of brackets":      fill("- " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "\n"),
		"lines of dashes":        fill(strings.Repeat("- ", 5000) + "\n"),
		"braces":                 fill("{a: "),
		"items":                  fill("- \n"),
		"question marks":         strings.Repeat("?\n", maxNodes),
		"flow items":             "[" + fill("1,") + "]",
		"JSON items":             `{"a": [` + strings.Repeat("1,", maxNodes-1) + "1]}",
		"comments":               strings.Repeat("- #x\n", maxNodes),
		"comments between keys":  strings.Repeat("a: 1 #x\n#y\n", maxNodes/2),
		"unknown keys":           sequence("k%d: 1\n", 140_000),
		"one key":                strings.Repeat("hidden_siz: 1\n", 140_000),
		"items of a wrong kind":  "list:\n" + strings.Repeat("- x\n", 290_000),
		"unknown keys, one line": "{" + sequence(`"k%d": 1,`, 140_000) + "}",
		"one long key":           strings.Repeat("k", MaxFileSize/2),
		"one long quoted key":    `{"` + fill("k") + `": 1}`,
		"keys of 1000 letters":   fill(strings.Repeat("k", 1000) + ": 1\n"),
		"one long number":        "n: " + fill("1"),
		"one long text":          `s: "` + fill(`\u00e9`) + `"`,
		"surrogates":             `{"s": "` + fill(`\ud83d\ude80`) + `"}`,
		"an open quote":          `"` + fill("a\n")[:600_000],
		"documents":              strings.Repeat("---\n", maxNodes),
		"anchors":                sequence("- &a%d x\n", 150_000),
		"tabs":                   fill("\t"),
		"spaces":                 fill(" "),
		"wide":                   "n: " + fill("模"),
		"a control character":    strings.Repeat("a: 1\n", 200_000) + "\x01",
	} {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			var out struct {
				Hidden int64   `yaml:"hidden_size"`
				List   []int64 `yaml:"list"`
				N      float64 `yaml:"n"`
				S      string  `yaml:"s"`
				A      any     `yaml:"a"`
			}
			text := []byte(text)
			d, err := Parse("f", text)
			if err == nil {
				err = d.Decode(&out)
			}
			if err != nil {
				require.Less(t, len(err.Error()), 100_000)
			}
			seconds := time.Since(start).Seconds()
			runtime.ReadMemStats(&after)
			require.Less(t, seconds, 10.0)
			require.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(600), "MB, what was collected meanwhile included")
			t.Logf("%.0f ms, %d MB", seconds*1000, (after.TotalAlloc-before.TotalAlloc)>>20)
		})
	}
}

// sequence repeats a format with the numbers from 0.
func sequence(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
