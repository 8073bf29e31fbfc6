package diag

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Error is one complaint about user input.
type Error struct {
	File      string // name as the user gave it; "-" for standard input
	Line, Col int    // 1-based; 0 when the complaint is about the whole file
	Message   string // what is wrong and what to do, in one sentence
	Source    string // the line of the file, printed above the caret; may be empty
}

// Error returns "file:line:col: message", then the source line and a caret.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Col)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	if e.Source != "" && e.Line > 0 {
		line, col := window(e.Source, e.Col)
		fmt.Fprintf(&b, "\n  %s\n  %s^", line, strings.Repeat(" ", col))
	}
	return b.String()
}

// window cuts a long source line to the part around the column and returns the
// offset of the column in it.
func window(source string, col int) (string, int) {
	r := []rune(strings.ReplaceAll(strings.TrimRight(source, "\r\n"), "\t", " "))
	at := min(max(col-1, 0), len(r))
	const before, after = 60, 40
	lo, hi := max(at-before, 0), min(at+after, len(r))
	return string(r[lo:hi]), at - lo
}

// List is all complaints about one input, in file order.
type List []*Error

// Error joins the complaints with newlines.
func (l List) Error() string {
	parts := make([]string, len(l))
	for i, e := range l {
		parts[i] = e.Error()
	}
	return strings.Join(parts, "\n")
}

// Err returns the list sorted by position, or nil when it is empty.
func (l List) Err() error {
	if len(l) == 0 {
		return nil
	}
	sort.SliceStable(l, func(i, j int) bool {
		if l[i].Line != l[j].Line {
			return l[i].Line < l[j].Line
		}
		return l[i].Col < l[j].Col
	})
	return l
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
// enough to be a plausible typing mistake.
func Nearest(word string, candidates []string) string {
	best, distance := "", 1+max(1, len(word)/3)
	for _, c := range candidates {
		if d := levenshtein.ComputeDistance(strings.ToLower(word), strings.ToLower(c)); d < distance {
			best, distance = c, d
		}
	}
	return best
}

// DidYouMean returns `; did you mean "x"?` or, when nothing is near, the list
// of candidates if it is short.
func DidYouMean(word string, candidates []string) string {
	if near := Nearest(word, candidates); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	if len(candidates) > 0 && len(candidates) <= 16 {
		return "; known: " + strings.Join(candidates, ", ")
	}
	return ""
}

// Note is a remark that travels beside a result: something that makes the
// number less certain, with a remedy.
type Note struct {
	Code   string `json:"code"` // stable, for scripts: "hardware.uncalibrated"
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}
