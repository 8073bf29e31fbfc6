package diag

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// Error is one complaint about user input.
type Error struct {
	File      string // name as the user gave it; "-" for standard input
	Line, Col int    // 1-based, in characters; 0 when the complaint is about the whole file
	Message   string // what is wrong and what to do, in one sentence
	Source    string // the line of the file, printed above the caret; may be empty
}

// maxMessage bounds a message, in characters: it may quote a value, and a value
// may be as long as the file.
const maxMessage = 4000

// Place returns "file:line:col", as far as it is known.
func (e *Error) Place() string {
	if e.File == "" || e.Line <= 0 {
		return printable(e.File)
	}
	return fmt.Sprintf("%s:%d:%d", printable(e.File), e.Line, e.Col)
}

// Error returns "file:line:col: message", then the source line and a caret.
func (e *Error) Error() string {
	var b strings.Builder
	if place := e.Place(); place != "" {
		b.WriteString(place + ": ")
	}
	message := e.Message
	if end := offset(message, maxMessage); end < len(message) {
		message = message[:end] + "…"
	}
	b.WriteString(printable(message))
	if e.Source != "" && e.Line > 0 {
		before, after := window(e.Source, e.Col)
		fmt.Fprintf(&b, "\n  %s%s\n  %s^", before, after, strings.Repeat(" ", width(before)))
	}
	return b.String()
}

// window cuts a long source line to what is around a column, and there in two.
func window(source string, col int) (before, after string) {
	const left, right = 60, 40
	source = strings.TrimRight(source, "\r\n")
	at := offset(source, col-1)
	before, after = source[:at], source[at:]
	if start := offsetBack(before, left); start > 0 {
		before = "…" + before[start:]
	}
	if end := offset(after, right); end < len(after) {
		after = after[:end] + "…"
	}
	return printable(before), printable(after)
}

// offset is where the first n characters of s end.
func offset(s string, n int) int {
	for i := range s {
		if n <= 0 {
			return i
		}
		n--
	}
	return len(s)
}

// offsetBack is where the last n characters of s begin.
func offsetBack(s string, n int) int {
	i := len(s)
	for ; n > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		i -= size
	}
	return i
}

// printable replaces what would move the cursor or hide text on a terminal: tabs
// and other blanks by a space, control characters by a mark.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, s)
}

// wide are the characters that take two columns of a terminal: the main blocks
// of classes W and F of Unicode's EastAsianWidth.txt.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115F, 1}, {0x2E80, 0x303E, 1}, {0x3041, 0x4DBF, 1}, {0x4E00, 0xA4CF, 1},
		{0xAC00, 0xD7A3, 1}, {0xF900, 0xFAFF, 1}, {0xFE30, 0xFE6F, 1}, {0xFF00, 0xFF60, 1}, {0xFFE0, 0xFFE6, 1},
	},
	R32: []unicode.Range32{{0x1F300, 0x1F6FF, 1}, {0x1F900, 0x1FAFF, 1}, {0x20000, 0x3FFFD, 1}},
}

// width is the number of terminal columns that s takes.
func width(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.Is(unicode.Mn, r): // an accent on the character before it
		case unicode.Is(wide, r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// List is all complaints about one input.
type List []*Error

// maxPrinted is how many complaints of a list are printed.
const maxPrinted = 100

// Error joins the complaints with newlines.
func (l List) Error() string {
	parts := make([]string, 0, min(len(l), maxPrinted+1))
	for i, e := range l {
		if i == maxPrinted {
			parts = append(parts, fmt.Sprintf("and %d more; correct these first", len(l)-i))
			break
		}
		parts = append(parts, e.Error())
	}
	return strings.Join(parts, "\n")
}

// Err returns the list in the order of the files, each complaint once, or nil
// when it is empty.
func (l List) Err() error {
	if len(l) == 0 {
		return nil
	}
	l = slices.Clone(l)
	slices.SortStableFunc(l, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return slices.CompactFunc(l, func(a, b *Error) bool { return *a == *b })
}

// Errorf returns a complaint about an input that has no position: a flag, a
// combination of settings.
func Errorf(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...)}
}

// IsInput reports whether err is a complaint about user input.
func IsInput(err error) bool {
	var e *Error
	var l List
	return errors.As(err, &e) || errors.As(err, &l)
}

// Nearest returns the candidate closest to word, or "" when none is close
// enough to be a plausible typing mistake: one edit in three letters. Case does
// not count; of equals the first is taken.
func Nearest(word string, candidates []string) string {
	lower, n := strings.ToLower(word), utf8.RuneCountInString(word)
	best, distance := "", min(max(2, 1+n/3), n) // at least one letter stays
	for _, c := range candidates {
		longer := utf8.RuneCountInString(c) - n
		if max(longer, -longer) >= distance {
			continue // keeps a page of text from being compared letter by letter
		}
		if d := edits(lower, strings.ToLower(c)); d < distance {
			best, distance = c, d
		}
	}
	return best
}

// edits is how many letters have to be added, left out or replaced to make one word of the other;
// two neighbours that changed places are one edit.
func edits(a, b string) int {
	if len(a) == len(b) {
		i := 0
		for i < len(a) && a[i] == b[i] {
			i++
		}
		if i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:] {
			return 1
		}
	}
	return levenshtein.ComputeDistance(a, b)
}

// Like returns at most n candidates that are spelled like a word, the nearest first: those
// that Nearest would take, and those that begin as the word does or as which the word begins.
func Like(word string, candidates []string, n int) []string {
	type one struct {
		name string
		far  int
	}
	var near []one
	lower := strings.ToLower(word)
	for _, c := range candidates {
		low := strings.ToLower(c)
		switch far := edits(lower, low); {
		case Nearest(word, []string{c}) != "", len(word) > 2 && len(c) > 2 && (strings.HasPrefix(low, lower) || strings.HasPrefix(lower, low)):
			near = append(near, one{c, far})
		}
	}
	slices.SortStableFunc(near, func(a, b one) int { return cmp.Compare(a.far, b.far) })
	var out []string
	for _, c := range near[:min(n, len(near))] {
		out = append(out, c.name)
	}
	return out
}

// DidYouMean returns `; did you mean "x"?`: the candidates that the word is the whole or a part of,
// else the nearest one, else the only one that the word may be short for, as seq_length is, else
// the list of candidates if it is short.
func DidYouMean(word string, candidates []string) string {
	if whole := completed(word, candidates); len(whole) > 0 {
		return fmt.Sprintf("; did you mean %s?", Or(whole))
	}
	if near := cmp.Or(Nearest(word, candidates), shortFor(word, candidates)); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	if len(candidates) > 0 && len(candidates) <= 16 {
		return "; known: " + strings.Join(candidates, ", ")
	}
	return ""
}

// completed quotes the candidate that differs from a word in case alone, else those that go on
// with a hyphen, as h100 does in h100-sxm, else with a digit, as fsdp in fsdp2, else the only one
// that ends with the word after a hyphen, as rtx-4090.
func completed(word string, candidates []string) []string {
	word = strings.ToLower(word)
	digit := func(c rune) bool { return '0' <= c && c <= '9' }
	for i, is := range []func(string) bool{
		func(c string) bool { return c == word },
		func(c string) bool { return strings.HasPrefix(c, word+"-") },
		func(c string) bool { return strings.HasPrefix(c, word) && strings.IndexFunc(c[len(word):], digit) == 0 },
		func(c string) bool { return strings.HasSuffix(c, "-"+word) },
	} {
		var out []string
		for _, c := range candidates {
			if word != "" && is(strings.ToLower(c)) {
				out = append(out, strconv.Quote(c))
			}
		}
		if len(out) == 1 || len(out) > 1 && i < 3 {
			return out
		}
	}
	return nil
}

// shortFor returns the only candidate that begins as the word does and has its letters in that order.
func shortFor(word string, candidates []string) string {
	letters := []rune(strings.ToLower(word))
	if len(letters) < 4 {
		return ""
	}
	found := ""
	for _, c := range candidates {
		at := 0
		for i, r := range strings.ToLower(c) {
			if at < len(letters) && r == letters[at] {
				at++
			} else if i == 0 {
				break
			}
		}
		if at < len(letters) {
			continue
		}
		if found != "" {
			return ""
		}
		found = c
	}
	return found
}

// Or joins choices in words: a, b or c.
func Or(choices []string) string {
	last := len(choices) - 1
	if last < 1 {
		return strings.Join(choices, "")
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// Note is a remark that travels beside a result: something that makes the
// number less certain, with a remedy.
type Note struct {
	Code   string `json:"code"` // stable, for scripts: "hardware.uncalibrated"
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}
