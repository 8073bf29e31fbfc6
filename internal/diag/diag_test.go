package diag

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
)

func TestError(t *testing.T) {
	for _, c := range []struct {
		name string
		err  Error
		want []string
	}{
		{"file, line, column and caret", Error{"llama.yaml", 3, 3, `unknown key "hiden_size"; did you mean "hidden_size"?`, "  hiden_size: 4096"}, []string{
			`llama.yaml:3:3: unknown key "hiden_size"; did you mean "hidden_size"?`,
			"    hiden_size: 4096",
			"    ^",
		}},
		{"the whole file", Error{File: "job.yaml", Message: "is empty"}, []string{"job.yaml: is empty"}},
		{"no file", Error{Message: "gpus: 0; give 1 or more"}, []string{"gpus: 0; give 1 or more"}},
		{"standard input", Error{"-", 1, 1, "expected a mapping", "x"}, []string{"-:1:1: expected a mapping", "  x", "  ^"}},
		{"a source without a line is not shown", Error{File: "f", Message: "m", Source: "s"}, []string{"f: m"}},
		{"column 0", Error{"f", 1, 0, "m", "abc"}, []string{"f:1:0: m", "  abc", "  ^"}},
		{"column behind the end", Error{"f", 1, 9, "m", "abc"}, []string{"f:1:9: m", "  abc", "     ^"}},
		{"tabs are one column", Error{"f", 2, 3, "m", "\t\tx: 1"}, []string{"f:2:3: m", "    x: 1", "    ^"}},
		{"CRLF", Error{"f", 1, 1, "m", "x: 1\r"}, []string{"f:1:1: m", "  x: 1", "  ^"}},
		{"a character of two columns", Error{"f", 1, 5, "m", "模型: 7b"}, []string{"f:1:5: m", "  模型: 7b", "        ^"}},
		{"an accent takes no column", Error{"f", 1, 7, "m", "cafe\u0301: x"}, []string{"f:1:7: m", "  cafe\u0301: x", "       ^"}},
		{"an emoji", Error{"f", 1, 4, "m", "🚀: x"}, []string{"f:1:4: m", "  🚀: x", "      ^"}},
		{"control characters do not reach the terminal", Error{"a\x1bb", 1, 3, "bad \x1b[31m\tred\u0085", "\x1b[31mx\u202e"}, []string{
			"a\ufffdb:1:3: bad \ufffd[31m red ",
			"  \ufffd[31mx\ufffd",
			"    ^",
		}},
	} {
		require.Equal(t, c.want, strings.Split(c.err.Error(), "\n"), c.name)
	}
}

// A line of JSON may hold the whole file: only what is around the column is shown.
func TestErrorCutsLongLines(t *testing.T) {
	digits := strings.Repeat("0123456789", 100)
	e := Error{"f", 1, 501, "m", digits}
	require.Equal(t, []string{
		"f:1:501: m",
		"  …" + digits[440:500] + digits[500:540] + "…",
		"  " + strings.Repeat(" ", 61) + "^",
	}, strings.Split(e.Error(), "\n"))

	e = Error{"f", 1, 1, strings.Repeat("x", 1<<20), strings.Repeat("模", 1<<20)}
	require.Less(t, len(e.Error()), 5000)
	require.True(t, utf8.ValidString(e.Error()))

	var l List
	page := strings.Repeat("x", 1<<17)
	for i := range 1000 {
		l = append(l, &Error{File: "f", Line: 1, Col: 1 << 16, Message: fmt.Sprint(i), Source: page})
	}
	start := time.Now()
	require.Less(t, len(l.Error()), 20_000)
	require.Less(t, time.Since(start), 5*time.Second)
}

// The caret stands below the character that the column names.
func TestCaret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := rapid.StringN(0, 300, -1).Filter(func(s string) bool { return !strings.ContainsAny(s, "\r\n") }).Draw(t, "source")
		col := rapid.IntRange(0, 320).Draw(t, "col")
		text := (&Error{File: "f", Line: 1, Col: col, Message: "m", Source: source}).Error()
		lines := strings.Split(text, "\n")
		if source == "" {
			require.Len(t, lines, 1)
			return
		}
		require.Len(t, lines, 3)
		at := width(lines[2]) - 1
		// What is left of the caret, and the character above it.
		n, above := 0, ""
		for _, r := range lines[1] {
			if n >= at && width(string(r)) > 0 {
				above = string(r)
				break
			}
			n += width(string(r))
		}
		require.Equal(t, at, n)
		if r := []rune(source); col >= 1 && col <= len(r) && width(printable(string(r[col-1]))) > 0 {
			require.Equal(t, printable(string(r[col-1])), above)
		}
	})
}

func TestListErr(t *testing.T) {
	require.NoError(t, List(nil).Err())
	require.NoError(t, List{}.Err())

	second, first, flag := &Error{File: "job.yaml", Line: 7, Col: 2, Message: "b"}, &Error{File: "job.yaml", Line: 3, Col: 9, Message: "a"}, &Error{Message: "flag"}
	other := &Error{File: "model.yaml", Line: 1, Col: 1, Message: "c"}
	l := List{other, second, first, flag, {File: "job.yaml", Line: 7, Col: 2, Message: "b"}}
	require.Equal(t, List{flag, first, second, other}, l.Err(), "by file, line and column, each once")
	require.Equal(t, List{other, second, first, flag, second}, l, "the list itself is left alone")
	require.EqualError(t, l.Err(), "flag\njob.yaml:3:9: a\njob.yaml:7:2: b\nmodel.yaml:1:1: c")
}

func TestListIsCut(t *testing.T) {
	var l List
	for i := range 150 {
		l = append(l, &Error{File: "f", Line: i + 1, Col: 1, Message: "m"})
	}
	lines := strings.Split(l.Err().Error(), "\n")
	require.Len(t, lines, 101)
	require.Equal(t, "f:100:1: m", lines[99])
	require.Equal(t, "and 50 more; correct these first", lines[100])
}

func TestIsInput(t *testing.T) {
	require.True(t, IsInput(Errorf("gpus: %d", 0)))
	require.True(t, IsInput(List{{Message: "m"}}.Err()))
	require.True(t, IsInput(fmt.Errorf("while reading: %w", &Error{Message: "m"})))
	require.True(t, IsInput(fmt.Errorf("while reading: %w", List{{Message: "m"}})))
	require.True(t, IsInput(errors.Join(fs.ErrNotExist, &Error{Message: "m"})))
	require.False(t, IsInput(fs.ErrNotExist))
	require.False(t, IsInput(nil))
}

func TestDidYouMean(t *testing.T) {
	keys := []string{"tp", "cp", "pp", "dp", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprintf("candidate-%02d", i)
	}
	for _, c := range []struct {
		word  string
		among []string
		want  string
		why   string
	}{
		{"hiden_size", keys, `; did you mean "hidden_size"?`, "a letter left out"},
		{"HIDDEN_SIZE", keys, `; did you mean "hidden_size"?`, "case"},
		{"H200", []string{"h200-sxm", "h200"}, `; did you mean "h200"?`, "case alone, before a word that a hyphen goes on"},
		{"fsdp", []string{"ddp", "fsdp1", "fsdp2"}, `; did you mean "fsdp1" or "fsdp2"?`, "a word that a digit goes on"},
		{"h10", []string{"h20", "h100-sxm"}, `; did you mean "h100-sxm"?`, "a number that is not typed to its end"},
		{"4090", []string{"rtx-4090", "rtx-3090"}, `; did you mean "rtx-4090"?`, "its end, after a hyphen"},
		{"70b", []string{"llama2-70b", "llama3-70b"}, "; known: llama2-70b, llama3-70b", "the end of several"},
		{"hidden-size", keys, `; did you mean "hidden_size"?`, "a dash"},
		{"hiddenSize", keys, `; did you mean "hidden_size"?`, "camel case"},
		{"num_layers", keys, `; did you mean "num_hidden_layers"?`, "seven letters away, but short for it"},
		{"seq_length", []string{"sequence_length", "micro_batch"}, `; did you mean "sequence_length"?`, "short for it"},
		{"num_heads", []string{"num_attention_heads", "num_key_value_heads"}, "; known: num_attention_heads, num_key_value_heads", "short for two"},
		{"ence_length", []string{"full_sequence_length"}, "; known: full_sequence_length", "begins otherwise"},
		{"tps", []string{"tensor_parallel_size"}, "; known: tensor_parallel_size", "three letters are short for many things"},
		{"tpp", keys, `; did you mean "tp"?`, ""},
		{"xp", keys, `; did you mean "tp"?`, "one letter in two; the first of equals"},
		{"xy", keys, "; known: " + strings.Join(keys, ", "), "no letter in common"},
		{"x", []string{"a", "b"}, "; known: a, b", "a letter for a letter is not a slip"},
		{"A", []string{"a", "b"}, `; did you mean "a"?`, "but case is"},
		{"", []string{"a", ""}, "; known: a, ", "nothing was typed"},
		{"candidate-xx", many, `; did you mean "candidate-00"?`, ""},
		{"elephant", many, "", "too many to list"},
		{"h200", []string{"h20", "h200-sxm"}, `; did you mean "h200-sxm"?`, "a word that a hyphen goes on comes before the nearest"},
		{"A100", []string{"a10g", "a100-pcie", "a100-sxm", "a1000-x"}, `; did you mean "a100-pcie" or "a100-sxm"?`, "all of them"},
		{"x", nil, "", "none to list"},
		{"größe", []string{"grösse", "größen"}, `; did you mean "größen"?`, "letters, not bytes"},
	} {
		require.Equal(t, c.want, DidYouMean(c.word, c.among), "%q: %s", c.word, c.why)
	}
}

// TestSwapped: two letters that changed places are one mistake, even in a short word.
func TestSwapped(t *testing.T) {
	for word, want := range map[string]string{"gpsu": "gpus", "trian": "train", "paln": "plan", "gups": "gpus", "spug": "", "palm": ""} {
		require.Equal(t, want, Nearest(word, []string{"gpus", "plan", "train", "run"}), word)
	}
}

// Whatever is suggested is one of the candidates and the candidate itself is
// suggested for itself; a page of text is answered at once.
func TestNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates := rapid.SliceOfN(rapid.StringN(1, 20, -1), 1, 20).Draw(t, "candidates")
		word := rapid.String().Draw(t, "word")
		if near := Nearest(word, candidates); near != "" {
			require.Contains(t, candidates, near)
		}
		one := rapid.SampledFrom(candidates).Draw(t, "one")
		require.True(t, strings.EqualFold(one, Nearest(one, candidates)) || strings.ToLower(one) == strings.ToLower(Nearest(one, candidates)))
	})
	start := time.Now()
	require.Empty(t, Nearest(strings.Repeat("hidden_size", 1<<20), []string{"hidden_size", strings.Repeat("x", 100)}))
	require.Less(t, time.Since(start), 5*time.Second)
}

func TestLike(t *testing.T) {
	known := []string{"gpt2", "gpt_neox", "gptj", "llama", "llama4", "olmo"}
	for word, want := range map[string][]string{
		"gpt_neo": {"gpt_neox"},
		"lama":    {"llama"},
		"gpt":     {"gpt2", "gptj"},
		"rwkv":    nil,
		"":        nil,
	} {
		require.Equal(t, want, Like(word, known, 2), word)
	}
}

func TestOr(t *testing.T) {
	require.Equal(t, "", Or(nil))
	require.Equal(t, "a", Or([]string{"a"}))
	require.Equal(t, "a or b", Or([]string{"a", "b"}))
	require.Equal(t, "a, b or c", Or([]string{"a", "b", "c"}))
}
