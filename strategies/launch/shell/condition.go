package shell

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/pattern"
	"mvdan.cc/sh/v3/syntax"
)

// truth is what is known of a condition. Not, and, or are -, min, max.
type truth int

const (
	no       truth = iota - 2
	unlikely       // unless an argument or a variable of the environment is given
	maybe
	likely
	yes
)

func is(b bool) truth {
	if b {
		return yes
	}
	return no
}

func (s *shell) holds(x syntax.ArithmExpr) truth {
	if n, open := s.arithmetic(x); open == "" {
		return is(n != 0)
	}
	return maybe
}

// equal is whether a text is that of a pattern.
func (s *shell) equal(text, p string) truth {
	if p == "*" {
		return yes
	}
	expr, err := pattern.Regexp(p, pattern.EntireString)
	match, bad := regexp.Compile(expr)
	given := s.given(text)
	switch {
	case err != nil || bad != nil || s.in(p) != "":
		return maybe
	case s.in(text) == "":
		return is(match.MatchString(text))
	case s.in(given) == "" && (p == "" || given != "") && match.MatchString(given): // [ "x$X" = x ]
		return likely
	}
	return maybe
}

// test is a condition in [[ ]].
func (s *shell) test(x syntax.TestExpr) truth {
	switch x := x.(type) {
	case *syntax.Word:
		return s.classic([]string{s.literal(x)})
	case *syntax.ParenTest:
		return s.test(x.X)
	case *syntax.UnaryTest:
		if w, ok := x.X.(*syntax.Word); ok {
			return s.classic([]string{x.Op.String(), s.literal(w)})
		}
		return -s.test(x.X)
	case *syntax.BinaryTest:
		switch x.Op {
		case syntax.AndTest:
			return min(s.test(x.X), s.test(x.Y))
		case syntax.OrTest:
			return max(s.test(x.X), s.test(x.Y))
		}
		a, aWord := x.X.(*syntax.Word)
		b, bWord := x.Y.(*syntax.Word)
		if aWord && bWord {
			return s.classic([]string{s.literal(a), x.Op.String(), s.literal(b)})
		}
	}
	return maybe
}

// classic is a condition in [ ].
func (s *shell) classic(a []string) truth {
	n := len(a)
	if i := slices.Index(a, "-o"); i > 0 && n > 3 {
		return max(s.classic(a[:i]), s.classic(a[i+1:]))
	}
	if i := slices.Index(a, "-a"); i > 0 && n > 3 {
		return min(s.classic(a[:i]), s.classic(a[i+1:]))
	}
	switch {
	case n == 0:
		return no
	case n == 1:
		return -s.equal(a[0], "")
	case a[0] == "!":
		return -s.classic(a[1:])
	case n == 3:
		return s.compare(a[0], a[1], a[2])
	case n > 3:
		return maybe
	}
	switch a[0] {
	case "-z":
		return s.equal(a[1], "")
	case "-n":
		return -s.equal(a[1], "")
	case "=", "==", "!=": // an empty variable without quotes
		return no
	}
	return maybe // files
}

// signs are comparisons of numbers with what one may be to the other.
var signs = map[string][]int{"-eq": {0}, "-ne": {-1, 1}, "-lt": {-1}, "-le": {-1, 0}, "-gt": {1}, "-ge": {0, 1}}

func (s *shell) compare(x, op, y string) truth {
	switch op {
	case "=", "==":
		return s.equal(x, y)
	case "!=":
		return -s.equal(x, y)
	case "=~":
		r, err := regexp.Compile(y)
		if err != nil || s.in(x+y) != "" {
			return maybe
		}
		return is(r.MatchString(x))
	}
	none := strings.NewReplacer(s.name("$#"), "0") // no arguments are given
	a, errA := strconv.Atoi(strings.TrimSpace(none.Replace(x)))
	b, errB := strconv.Atoi(strings.TrimSpace(none.Replace(y)))
	t := is(slices.Contains(signs[op], cmp.Compare(a, b)))
	switch {
	case signs[op] == nil || errA != nil || errB != nil:
		return maybe
	case s.in(x+y) != "":
		return min(max(t, unlikely), likely)
	}
	return t
}
