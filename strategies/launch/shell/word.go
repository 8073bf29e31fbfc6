package shell

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// In a word that is being made: where it is cut, and that there is one though it is empty.
const cut, quotes = "\x00", "\x01"

var (
	blanks  = strings.NewReplacer(" ", cut, "\t", cut, "\n", cut)
	joined  = strings.NewReplacer(cut, " ", quotes, "")
	escaped = map[bool]*regexp.Regexp{false: regexp.MustCompile(`(?s)\\(.)`), true: regexp.MustCompile("\\\\([\"$`\\\\])")}
	series  = regexp.MustCompile(`^\{\d{1,3}\.\.\d{1,3}\}$`)
)

// put is a text as it is put in.
func put(text string, quoted bool) string {
	if quoted {
		return quotes + text
	}
	return blanks.Replace(text)
}

// literal is a word as one, as in an assignment.
func (s *shell) literal(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	return joined.Replace(s.parts(w.Parts, false))
}

// fields are the words of a command.
func (s *shell) fields(words []*syntax.Word) (out []string) {
	for _, w := range words {
		if series.MatchString(w.Lit()) {
			more, _ := safely(func() ([]string, error) { return expand.Fields(s.config(), w) })
			out = append(out, more...)
			continue
		}
		for _, f := range strings.FieldsFunc(s.parts(w.Parts, false), func(r rune) bool { return string(r) == cut }) {
			out = append(out, joined.Replace(f))
		}
	}
	return s.bounded(out)
}

// document is a here-document.
func (s *shell) document(r *syntax.Redirect) string {
	if r.Word.Lit() == "" { // in quotes
		return r.Hdoc.Lit()
	}
	return joined.Replace(s.parts(r.Hdoc.Parts, true))
}

// parts are those of a word with what is put in.
func (s *shell) parts(parts []syntax.WordPart, quoted bool) string {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(escaped[quoted].ReplaceAllString(strings.ReplaceAll(p.Value, "\\\n", ""), "$1"))
		case *syntax.SglQuoted:
			b.WriteString(put(p.Value, true))
		case *syntax.DblQuoted:
			if len(p.Parts) == 0 {
				b.WriteString(quotes)
			}
			b.WriteString(s.parts(p.Parts, true))
		case *syntax.ParamExp:
			b.WriteString(s.param(p, quoted))
		case *syntax.ArithmExp:
			n, open := s.arithmetic(p.X)
			b.WriteString(cmp.Or(open, strconv.Itoa(n)))
		case *syntax.CmdSubst:
			text, ok := "", false
			if len(p.Stmts) == 1 {
				text, ok = s.output(p.Stmts[0])
			}
			if !ok {
				text = s.unknown(p)
			}
			b.WriteString(put(text, quoted))
		default:
			b.WriteString(s.unknown(p))
		}
	}
	return b.String()
}

// param is what ${} puts in. Of what it does to a value nothing is known.
func (s *shell) param(p *syntax.ParamExp, quoted bool) string {
	v := s.get(p.Param.Value)
	index, _ := p.Index.(*syntax.Word)
	values := []string{v.String()}
	all := v.Kind == expand.Indexed && (index != nil && strings.ContainsAny(index.Lit(), "@*") || strings.ContainsAny(p.Param.Value, "@*"))
	if all {
		values = slices.Clone(v.List)
	}
	switch {
	case p.Repl != nil || p.Slice != nil || p.Excl || p.Exp != nil && p.Exp.Op > syntax.AssignUnsetOrNull:
		values = []string{s.unknown(p)}
	case p.Exp != nil:
		return s.fallback(p, v.String(), quoted)
	case p.Length && all:
		values = []string{strconv.Itoa(len(values))}
	case p.Length:
		values = []string{cmp.Or(s.in(values[0]), strconv.Itoa(len(values[0])))}
	case p.Index != nil && !all && (v.Kind == expand.Indexed || s.in(v.Str) == ""):
		n, open := s.arithmetic(p.Index)
		if values[0] = open; open == "" && n >= 0 && n < len(elements(v)) {
			values[0] = elements(v)[n]
		}
	}
	for i := range values {
		values[i] = put(values[i], quoted)
	}
	return strings.Join(values, cut)
}

// fallback is what ${X:-y} and its like put in. A variable that is empty, or set to others that
// nobody sets, is taken to be unset.
func (s *shell) fallback(p *syntax.ParamExp, value string, quoted bool) string {
	given := s.given(value) != ""
	switch op := p.Exp.Op; op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		given, value = !given, ""
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		given = true
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if !given {
			s.put(p.Param.Value, s.literal(p.Exp.Word))
		}
	}
	if given || p.Exp.Word == nil {
		return put(value, quoted && value != "")
	}
	return s.parts(p.Exp.Word.Parts, quoted)
}

// arithmetic is the value of an expression: of its text, in which words are put in first, as
// bash does it.
func (s *shell) arithmetic(x syntax.ArithmExpr) (n int, open string) {
	whole := &syntax.ArithmExp{Left: x.Pos(), X: x}
	s.touched = ""
	n, ok := safely(func() (int, error) {
		var b strings.Builder
		if err := syntax.NewPrinter().Print(&b, whole); err != nil {
			return 0, err
		}
		w, err := syntax.NewParser().Document(strings.NewReader(strings.TrimSuffix(strings.TrimPrefix(b.String(), "$(("), "))")))
		if err != nil {
			return 0, err
		}
		text := joined.Replace(s.parts(w.Parts, true))
		if s.touched = s.in(text); s.touched != "" {
			return 0, nil
		}
		put, err := syntax.NewParser().Arithmetic(strings.NewReader(text))
		if err != nil {
			return 0, err
		}
		syntax.Walk(put, func(n syntax.Node) bool {
			if b, ok := n.(*syntax.BinaryArithm); ok && b.Op == syntax.TernQuest { // of which the library takes 1 alone to be true
				b.X = &syntax.BinaryArithm{Op: syntax.Neq, X: b.X, Y: &syntax.Word{Parts: []syntax.WordPart{&syntax.Lit{Value: "0"}}}}
			}
			return true
		})
		return expand.Arithm(s.config(), put)
	})
	if !ok && s.touched == "" {
		return 0, s.unknown(whole)
	}
	return n, s.touched
}

// safely calls the library, which fails on some input and panics on some.
func safely[T any](do func() (T, error)) (out T, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	out, err := do()
	return out, err == nil
}

// excerpt is a piece of the script, for messages.
func (s *shell) excerpt(nodes ...syntax.Node) string {
	var b strings.Builder
	for i, n := range nodes {
		b.WriteString(strings.Repeat(" in ", min(i, 1)))
		_, _ = safely(func() (any, error) { return nil, syntax.NewPrinter().Print(&b, n) })
	}
	text, _ := s.Show(strings.Join(strings.Fields(b.String()), " "))
	if r := []rune(text); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return text
}

// unknown is what stands for a part of a word whose value the script does not give.
func (s *shell) unknown(n syntax.Node) string { return s.name(s.excerpt(n)) }

// put sets a variable.
func (s *shell) put(name, value string) {
	s.vars[name] = text(s.bounded([]string{value})[0])
}

func text(value string) expand.Variable {
	return expand.Variable{Set: true, Kind: expand.String, Str: value}
}

// bounded is a list without values that are too long.
func (s *shell) bounded(list []string) []string {
	total := len(list)
	for _, v := range list {
		total += len(v)
	}
	if total <= mostValue {
		return list
	}
	return []string{s.name(fmt.Sprintf("a value of %d bytes", total))}
}

// elements are those of an array, or the one of what is none.
func elements(v expand.Variable) []string {
	if v.Kind == expand.String && v.Str != "" {
		return []string{v.Str}
	}
	return v.List
}

// get is the value of a variable: an unknown, where the script does not set it.
func (s *shell) get(name string) expand.Variable {
	v, ok := s.vars[name]
	n, err := strconv.Atoi(name)
	switch {
	case ok:
	case s.params != nil && (name == "@" || name == "*"):
		v = expand.Variable{Set: true, Kind: expand.Indexed, List: s.params}
	case s.params != nil && name == "#":
		v = text(strconv.Itoa(len(s.params)))
	case s.params != nil && err == nil && n > 0:
		v = text(strings.Join(s.params[min(n-1, len(s.params)):min(n, len(s.params))], ""))
	default:
		v = text(s.name("$" + name))
	}
	if s.spent += len(strings.Join(elements(v), " ")); s.spent > mostSpent {
		return text(s.name("$" + name))
	}
	return v
}

// config is how the library is to put in values: it may ask no one but s.
func (s *shell) config() *expand.Config { return &expand.Config{Env: s} }

// Get is the value of a variable, for the library.
func (s *shell) Get(name string) expand.Variable {
	if name == "IFS" || name == "PWD" { // for which it asks by itself
		return expand.Variable{}
	}
	v := s.get(name)
	v.List = slices.Clone(v.List) // which it writes to
	s.touched = cmp.Or(s.in(strings.Join(elements(v), "")), s.touched)
	return v
}

// Set sets a variable, for the library.
func (s *shell) Set(name string, v expand.Variable) error {
	s.put(name, v.Str)
	return nil
}

// Each goes through no variables, for the library.
func (s *shell) Each(func(string, expand.Variable) bool) {}
