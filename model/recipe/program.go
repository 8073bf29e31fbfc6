package recipe

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Program is one parsed module program.
type Program struct {
	Name   string
	Params []string
	Body   []Statement
	Slots  int // variables, parameters first
}

// Statement assigns the values of an expression to variables, or returns them.
type Statement struct {
	Targets []int // slots; nil for a bare call
	Return  bool
	Values  []Expr // one, or several in `return a, b`
}

// Expr is a variable, a number, a word (a dtype or group name), or a call.
type Expr struct {
	Kind   ExprKind
	Slot   int     // Variable
	Number float64 // Number
	Word   string  // Word; name of a Call
	Args   []Expr  // Call
}

// ExprKind says what an Expr is.
type ExprKind uint8

const (
	Variable ExprKind = iota
	Number
	Word
	Call
	Keyword // name=value in a call: Word and Args[0]
)

// ParseProgram parses a program from its heading, "name(a, b)", and body text.
func ParseProgram(heading, body string) (*Program, error) {
	p := &parser{text: heading, vars: map[string]int{}}
	name := p.name()
	if name == "" {
		return nil, fmt.Errorf("program heading %q: expected name(parameters)", heading)
	}
	prog := &Program{Name: name}
	if !p.take("(") {
		return nil, fmt.Errorf("program heading %q: expected ( after the name", heading)
	}
	for !p.take(")") {
		v := p.name()
		if v == "" {
			return nil, fmt.Errorf("program heading %q: expected a parameter name", heading)
		}
		prog.Params = append(prog.Params, v)
		p.slot(v)
		p.take(",")
	}
	for i, line := range strings.Split(body, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		p.text, p.at = line, 0
		s, err := p.statement()
		if err != nil {
			return nil, fmt.Errorf("program %s, line %d (%s): %w", name, i+1, strings.TrimSpace(line), err)
		}
		prog.Body = append(prog.Body, s)
	}
	if n := len(prog.Body); n == 0 || !prog.Body[n-1].Return {
		return nil, fmt.Errorf("program %s: does not end with return", name)
	}
	prog.Slots = len(p.vars)
	return prog, nil
}

type parser struct {
	text string
	at   int
	vars map[string]int
}

func (p *parser) slot(name string) int {
	s, ok := p.vars[name]
	if !ok {
		s = len(p.vars)
		p.vars[name] = s
	}
	return s
}

func (p *parser) space() {
	for p.at < len(p.text) && unicode.IsSpace(rune(p.text[p.at])) {
		p.at++
	}
}

func (p *parser) take(token string) bool {
	p.space()
	if strings.HasPrefix(p.text[p.at:], token) {
		p.at += len(token)
		return true
	}
	return false
}

func (p *parser) name() string {
	p.space()
	start := p.at
	for p.at < len(p.text) {
		c := p.text[p.at]
		if c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || p.at > start && (c >= '0' && c <= '9' || c == '.') {
			p.at++
			continue
		}
		break
	}
	return p.text[start:p.at]
}

func (p *parser) statement() (Statement, error) {
	var s Statement
	save := p.at
	if p.name() == "return" {
		s.Return = true
		for {
			e, err := p.expr()
			if err != nil {
				return s, err
			}
			s.Values = append(s.Values, e)
			if !p.take(",") {
				break
			}
		}
		return s, p.end()
	}
	p.at = save
	var targets []string
	for {
		v := p.name()
		if v == "" {
			return s, fmt.Errorf("expected a variable")
		}
		targets = append(targets, v)
		if !p.take(",") {
			break
		}
	}
	if !p.take("=") { // a bare call
		p.at = save
		targets = nil
	}
	e, err := p.expr()
	if err != nil {
		return s, err
	}
	s.Values = []Expr{e}
	for _, t := range targets { // after the expression: its own names are the old ones
		s.Targets = append(s.Targets, p.slot(t))
	}
	return s, p.end()
}

func (p *parser) end() error {
	p.space()
	if p.at < len(p.text) {
		return fmt.Errorf("unexpected %q", p.text[p.at:])
	}
	return nil
}

func (p *parser) expr() (Expr, error) {
	p.space()
	if p.at < len(p.text) && (p.text[p.at] >= '0' && p.text[p.at] <= '9' || p.text[p.at] == '-') {
		start := p.at
		p.at++
		for p.at < len(p.text) && strings.IndexByte("0123456789.e-", p.text[p.at]) >= 0 {
			p.at++
		}
		v, err := strconv.ParseFloat(p.text[start:p.at], 64)
		if err != nil {
			return Expr{}, fmt.Errorf("%q is not a number", p.text[start:p.at])
		}
		return Expr{Kind: Number, Number: v}, nil
	}
	n := p.name()
	if n == "" {
		return Expr{}, fmt.Errorf("expected a value")
	}
	if !p.take("(") {
		if s, ok := p.vars[n]; ok {
			return Expr{Kind: Variable, Slot: s}, nil
		}
		return Expr{Kind: Word, Word: n}, nil
	}
	e := Expr{Kind: Call, Word: n}
	for !p.take(")") {
		save := p.at
		key := p.name()
		keyword := key != "" && p.take("=")
		if !keyword {
			p.at = save
		}
		a, err := p.expr()
		if err != nil {
			return e, err
		}
		if keyword {
			a = Expr{Kind: Keyword, Word: key, Args: []Expr{a}}
		}
		e.Args = append(e.Args, a)
		if !p.take(",") && !p.take(")") {
			return e, fmt.Errorf("expected , or ) after an argument of %s", n)
		} else if p.text[p.at-1] == ')' {
			break
		}
	}
	return e, nil
}
