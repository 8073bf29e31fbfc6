package shell

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

func (s *shell) stmts(list []*syntax.Stmt) truth {
	t := yes
	for _, st := range list {
		t = s.stmt(st)
	}
	return t
}

// stmt walks through a statement and says whether it succeeds.
func (s *shell) stmt(st *syntax.Stmt) truth {
	if s.steps++; s.steps > mostSteps {
		s.flow = over
	}
	if s.flow != onward {
		return maybe
	}
	s.write(st)
	t := s.walk(st.Cmd)
	if c, ok := st.Cmd.(*syntax.CallExpr); ok && len(c.Args) > 0 && slices.Contains(shells, path.Base(c.Args[0].Lit())) {
		for _, r := range st.Redirs {
			if r.Hdoc != nil {
				s.within(nil, s.document(r), s.line(c))
			}
		}
	}
	if st.Negated {
		return -t
	}
	return t
}

// walk walks through a command.
func (s *shell) walk(c syntax.Command) truth {
	switch c := c.(type) {
	case *syntax.CallExpr:
		return s.simple(c)
	case *syntax.DeclClause:
		s.declare(c)
	case *syntax.IfClause:
		if len(c.Cond) == 0 {
			return s.stmts(c.Then)
		}
		return s.either(s.stmts(c.Cond), func() truth { return s.stmts(c.Then) }, func() truth {
			if c.Else == nil {
				return yes
			}
			return s.walk(c.Else)
		}, c.Cond[len(c.Cond)-1])
	case *syntax.CaseClause:
		return s.choose(c, s.literal(c.Word), c.Items)
	case *syntax.ForClause:
		s.loop(c)
	case *syntax.WhileClause:
		s.rounds(c.Cond[0], c.Do, func(int) truth {
			t := s.stmts(c.Cond)
			if c.Until {
				t = -t
			}
			return t
		})
	case *syntax.Block:
		return s.stmts(c.Stmts)
	case *syntax.Subshell:
		vars := maps.Clone(s.vars)
		t := s.stmts(c.Stmts)
		s.vars = vars
		if s.exited {
			s.flow, s.exited = onward, false
		}
		return t
	case *syntax.BinaryCmd:
		return s.both(c)
	case *syntax.FuncDecl:
		s.funcs[c.Name.Value] = function{c.Body, s.nested}
	case *syntax.TestClause:
		return s.test(c.X)
	case *syntax.ArithmCmd:
		return s.holds(c.X)
	case *syntax.LetClause:
		for _, x := range c.Exprs {
			s.let(c, x)
		}
	}
	return yes
}

// choose goes the ways of a case.
func (s *shell) choose(c *syntax.CaseClause, subject string, items []*syntax.CaseItem) truth {
	if len(items) == 0 {
		return yes
	}
	t := no
	for _, p := range items[0].Patterns {
		t = max(t, s.equal(subject, s.literal(p)))
	}
	return s.either(t, func() truth { return s.stmts(items[0].Stmts) }, func() truth { return s.choose(c, subject, items[1:]) }, c.Word, items[0].Patterns[0])
}

// both goes the ways of a list or a pipe.
func (s *shell) both(c *syntax.BinaryCmd) truth {
	t := s.stmt(c.X)
	then := func() truth { return s.stmt(c.Y) }
	switch c.Op {
	case syntax.AndStmt:
		return s.either(t, then, func() truth { return no }, c.X)
	case syntax.OrStmt:
		return s.either(t, func() truth { return yes }, then, c.X)
	}
	return then()
}

// loop goes through a for.
func (s *shell) loop(c *syntax.ForClause) {
	switch l := c.Loop.(type) {
	case *syntax.WordIter:
		words := s.params
		if l.InPos.IsValid() {
			words = slices.DeleteFunc(s.fields(l.Items), func(w string) bool { return w == s.name("$@") }) // no arguments are given
		}
		s.rounds(c, c.Do, func(n int) truth {
			if n < len(words) {
				s.put(l.Name.Value, words[n])
			}
			return is(n < len(words))
		})
	case *syntax.CStyleLoop:
		s.rounds(c, c.Do, func(n int) truth {
			if x := []syntax.ArithmExpr{l.Init, l.Post}[min(n, 1)]; x != nil {
				s.holds(x)
			}
			if l.Cond == nil {
				return yes
			}
			return s.holds(l.Cond)
		})
	}
}

// rounds goes through a loop as long as next says so: once, where the script does not decide
// how often.
func (s *shell) rounds(at syntax.Node, body []*syntax.Stmt, next func(n int) truth) {
	on := true
	for n := 0; n < mostRounds && on; n++ {
		t := next(n)
		s.either(t, func() truth {
			s.stmts(body)
			on = t == yes && (s.flow == onward || s.flow == skipping)
			if s.flow < returning {
				s.flow = onward
			}
			return yes
		}, func() truth { on = false; return yes }, at)
	}
}

// setting is an expression that sets a variable.
var setting = regexp.MustCompile(`^\s*(\w+)\s*([-+*/%&|^]|<<|>>)?=([^=].*)$`)

// let sets a variable by an expression, in quotes or not.
func (s *shell) let(c syntax.Node, x syntax.ArithmExpr) {
	text := ""
	if w, ok := x.(*syntax.Word); ok {
		text = s.literal(w)
	} else {
		text = strings.TrimSuffix(strings.TrimPrefix(s.excerpt(&syntax.ArithmCmd{Left: x.Pos(), X: x}), "(("), "))")
	}
	m := setting.FindStringSubmatch(text)
	if m == nil {
		s.holds(x)
		return
	}
	if text = m[3]; m[2] != "" {
		text = m[1] + m[2] + "(" + m[3] + ")"
	}
	if n, ok := s.calculate(text); ok {
		s.put(m[1], strconv.Itoa(n))
	} else {
		s.put(m[1], s.unknown(c))
	}
}

// calculate is the value of an expression in a text.
func (s *shell) calculate(text string) (int, bool) {
	if s.in(text) != "" {
		return 0, false
	}
	x, err := syntax.NewParser().Arithmetic(strings.NewReader(text))
	if err != nil || x == nil {
		return 0, false
	}
	n, open := s.arithmetic(x)
	return n, open == ""
}

// declare sets variables by export, local, declare.
func (s *shell) declare(c *syntax.DeclClause) {
	integers := false
	for _, a := range c.Args {
		if a.Name == nil {
			integers = integers || a.Value.Lit() == "-i"
			continue
		}
		if c.Variant.Value == "local" {
			s.locals = append(s.locals, s.restore(a.Name.Value))
			s.put(a.Name.Value, "")
		}
		if !a.Naked {
			s.assign(a)
		}
		if n, ok := s.calculate(s.get(a.Name.Value).Str); ok && integers {
			s.put(a.Name.Value, strconv.Itoa(n))
		}
	}
}

// restore brings a variable back to what it is now.
func (s *shell) restore(name string) func() {
	old, ok := s.vars[name]
	return func() {
		if s.vars[name] = old; !ok {
			delete(s.vars, name)
		}
	}
}

// assign sets a variable. Of tables and single elements nothing is known.
func (s *shell) assign(a *syntax.Assign) {
	name := a.Name.Value
	old := s.vars[name]
	switch {
	case a.Index != nil || a.Array != nil && slices.ContainsFunc(a.Array.Elems, func(e *syntax.ArrayElem) bool { return e.Index != nil }):
		s.put(name, s.name("$"+name))
	case a.Array != nil:
		var words []*syntax.Word
		for _, e := range a.Array.Elems {
			words = append(words, e.Value)
		}
		list := s.fields(words)
		s.Words = append(s.Words, list)
		if a.Append {
			list = slices.Concat(elements(old), list)
		}
		s.vars[name] = expand.Variable{Set: true, Kind: expand.Indexed, List: s.bounded(list)}
	case a.Append:
		s.put(name, s.get(name).String()+s.literal(a.Value))
	default:
		s.put(name, s.literal(a.Value))
	}
	s.Words = append(s.Words, strings.Fields(s.vars[name].Str))
}

// simple walks through assignments or a command.
func (s *shell) simple(c *syntax.CallExpr) truth {
	for _, a := range c.Assigns {
		if len(c.Args) > 0 { // for this command alone
			defer s.restore(a.Name.Value)()
		}
		s.assign(a)
	}
	words := s.fields(c.Args)
	if len(words) == 0 {
		return yes
	}
	s.Words = append(s.Words, words)
	return s.call(words[0], words[1:], s.line(c))
}

// shells are commands that take a script.
var shells = []string{"bash", "sh", "zsh", "sbatch"}

// quiet are commands that start nothing, and succeed.
var quiet = strings.Fields(": true echo printf cd mkdir set source . ulimit trap wait module sleep cat hostname date ls shopt alias")

// call is a command with its arguments: a function, what the shell does itself, or a program.
func (s *shell) call(name string, args []string, line int) truth {
	if f, ok := s.funcs[name]; ok {
		return s.function(f, args)
	}
	switch name {
	case "exit":
		s.flow, s.exited = over, true
	case "return":
		s.flow = returning
	case "break":
		s.flow = leaving
	case "continue":
		s.flow = skipping
	case "false":
		return no
	case "getopts":
		return unlikely
	case "test":
		return s.classic(args)
	case "[":
		return s.classic(args[:max(len(args)-1, 0)])
	case "unset":
		for _, a := range args {
			s.put(a, "")
		}
	case "read": // what is not known
		for _, a := range args {
			s.put(a, s.name("$"+a))
		}
		return maybe
	case "shift":
		n, err := strconv.Atoi(strings.Join(args, ""))
		if err != nil {
			n = 1
		}
		s.params = s.params[min(max(n, 0), len(s.params)):]
	case "eval":
		if text := strings.Join(args, " "); !s.within(nil, text, line) {
			s.start(strings.Fields(text), line)
		}
		return maybe
	default:
		if !slices.Contains(quiet, name) {
			s.start(append([]string{name}, args...), line)
			return maybe
		}
	}
	return yes
}

var dashC = regexp.MustCompile(`^-\w*c$`)

// start notes a program, or walks through the script that a shell among its words is given.
func (s *shell) start(words []string, line int) {
	for i, w := range words {
		if !slices.Contains(shells, path.Base(w)) {
			continue
		}
		rest := words[i+1:]
		for len(rest) > 1 && strings.HasPrefix(rest[0], "-") && !dashC.MatchString(rest[0]) {
			rest = rest[1:]
		}
		if len(rest) > 1 && dashC.MatchString(rest[0]) && s.within(words[:i], rest[1], line) {
			return
		}
	}
	if len(words) == 0 {
		return
	}
	env := map[string]string{}
	for _, name := range Kept {
		if v, ok := s.vars[name]; ok {
			env[name] = v.Str
		}
	}
	s.Commands = append(s.Commands, Command{slices.Concat(s.outer, words), line, env})
}

// function walks through a function with its arguments, and forgets what is local after it.
func (s *shell) function(f function, args []string) truth {
	if s.depth >= mostDepth {
		return maybe
	}
	params, nested, locals := s.params, s.nested, s.locals
	s.params, s.nested, s.locals = append([]string{}, args...), f.nested, nil
	s.depth++
	t := s.stmt(f.body)
	s.depth--
	for _, restore := range slices.Backward(s.locals) {
		restore()
	}
	s.params, s.nested, s.locals = params, nested, locals
	if s.flow == returning {
		s.flow = onward
	}
	return t
}

// plainSum is what expr calculates as arithmetic does.
var plainSum = regexp.MustCompile(`^[-+*/% ()\d]+$`)

// output is what echo, expr or cat of a here-document write.
func (s *shell) output(st *syntax.Stmt) (string, bool) {
	c, ok := st.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) == 0 {
		return "", false
	}
	for _, r := range st.Redirs {
		if r.Hdoc != nil && c.Args[0].Lit() == "cat" {
			return s.document(r), true
		}
	}
	if c.Args[0].Lit() == "expr" {
		text := strings.Join(s.fields(c.Args[1:]), " ")
		n, ok := s.calculate(text)
		return strconv.Itoa(n), ok && plainSum.MatchString(text)
	}
	if c.Args[0].Lit() == "echo" {
		return strings.Join(slices.DeleteFunc(s.fields(c.Args[1:]), func(w string) bool { return w == "-e" || w == "-n" }), " "), true
	}
	return "", false
}

// write keeps what a statement writes into a file.
func (s *shell) write(st *syntax.Stmt) {
	i := slices.IndexFunc(st.Redirs, func(r *syntax.Redirect) bool { return r.Op == syntax.RdrOut || r.Op == syntax.ClbOut })
	if i < 0 {
		return
	}
	name, _ := s.Show(s.literal(st.Redirs[i].Word))
	delete(s.Files, name)
	if text, ok := s.output(st); ok && len(s.Files) < mostWays {
		s.Files[name] = text
	}
}
