package shell

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// What bounds a script that never ends, or grows.
const (
	mostText   = 256 << 10 // bytes of a script; the parser and the walk need stack for what is nested
	mostSteps  = 20_000    // statements
	mostRounds = 1000      // of a loop
	mostDepth  = 10        // functions in functions, scripts in scripts
	mostLeft   = 8         // lines of a script that are no shell
	mostWays   = 128       // readings
	mostValue  = 64 << 10  // bytes of a variable
	mostSpent  = 16 << 20  // bytes of variables put in
)

// Command is a program with its arguments, after those of what it is an argument of.
type Command struct {
	Words []string
	Line  int
	Env   map[string]string // variables of Kept that are set when it starts
}

// Kept are variables by which programs start processes, those that PyTorch's allocator reads and that of connections to a device.
var Kept = []string{"NPROC_PER_NODE", "NNODES", "CUDA_VISIBLE_DEVICES", "NGPU", "CONFIG_FILE", "MODULE", "CONFIG", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_DEVICE_MAX_CONNECTIONS"}

// Reading is what a script comes to where its conditions go one way. In words a character
// stands for what the script does not give, which Show names.
type Reading struct {
	Commands []Command
	Words    [][]string        // of all commands and assignments, for scripts that start nothing
	Preset   map[string]string // variables that are set before
	Files    map[string]string // here-documents by the files that they are written to
	Notes    []string
	By       string // the condition that goes another way than in the first reading
	*unknowns
}

// Read reads a script: nil, where it is none. What preset says of it and of those within it are
// variables that are set before they start. The first reading goes the likely way at each
// condition that the script does not decide; in each other one of them goes the other way.
func Read(text string, preset func(script string) map[string]string) (out []Reading) {
	type trial struct {
		answers map[string]bool
		by      string
	}
	u, met, steps := &unknowns{}, map[string]bool{}, 0
	todo := []trial{{map[string]bool{}, ""}}
	for n := 0; n < len(todo); n++ {
		if n == mostWays || steps > 10*mostSteps {
			out[0].Notes = append(out[0].Notes, "more conditions than are looked at that the file does not decide: the others are taken to go one way")
			break
		}
		s := survive(text, preset, u, todo[n].answers)
		if s == nil {
			return nil
		}
		s.By = todo[n].by
		out, steps = append(out, s.Reading), steps+s.steps
		for _, q := range s.asked {
			if !met[q.key] && !q.sure {
				met[q.key] = true
				other := maps.Clone(todo[n].answers)
				other[q.key] = !q.way
				todo = append(todo, trial{other, q.text})
			}
		}
	}
	return out
}

// survive walks through a script with answers to its conditions. Where it exits the last one
// that is not answered goes the other way, as scripts exit that complain of their arguments.
func survive(text string, preset func(string) map[string]string, u *unknowns, answers map[string]bool) *shell {
	for {
		s := &shell{Reading: Reading{Preset: map[string]string{}, Files: map[string]string{}, unknowns: u}, preset: preset, answers: answers, vars: map[string]expand.Variable{}, funcs: map[string]function{}}
		if !s.run(text) {
			return nil
		}
		n := len(s.asked)
		if !s.exited || n == 0 || len(answers) >= mostWays {
			return s
		}
		last := s.asked[n-1]
		if _, told := answers[last.key]; told {
			return s
		}
		answers[last.key] = !last.way
	}
}

// question is a condition that the script does not decide, and the way that was gone.
type question struct {
	key, text string
	way       bool
	sure      bool // as long as nothing is set outside
}

// flow is where a script goes after a statement.
type flow int

const (
	onward    flow = iota
	leaving        // a loop
	skipping       // the rest of a round
	returning      // from a function
	over
)

// shell is a script on its way.
type shell struct {
	Reading
	preset  func(string) map[string]string
	vars    map[string]expand.Variable
	funcs   map[string]function
	params  []string // of a function; nil in none: $1 is not known
	locals  []func() // restore what is local to it
	outer   []string // the command that a script is an argument of
	nested  int      // the line of it; 0: in none
	answers map[string]bool
	asked   []question
	flow    flow
	exited  bool
	steps   int
	depth   int
	spent   int
	touched string // what is not known that the library was given
}

// function is a function with the line of what the script that it is in is an argument of.
type function struct {
	body   *syntax.Stmt
	nested int
}

// run walks through a text.
func (s *shell) run(text string) bool {
	for name, value := range s.preset(text) {
		s.Preset[name] = value
		s.put(name, value)
	}
	f := s.parse(text)
	if f != nil {
		s.stmts(f.Stmts)
	}
	return f != nil
}

// within walks through a script that is an argument of a command, or given to it.
func (s *shell) within(outer []string, text string, line int) bool {
	if s.depth >= mostDepth {
		return false
	}
	was, at := s.outer, s.nested
	s.outer, s.nested = slices.Concat(was, outer), line
	s.depth++
	ok := s.run(text)
	s.depth--
	s.outer, s.nested = was, at
	return ok
}

// continued are ends of comments that look as though their lines went on, which the parser heeds
// and bash does not.
var continued = regexp.MustCompile(`(?m)(^[ \t]*#.*?|[ \t]#[^'"\n]*?)\\+$`)

// parse reads a text, without the few lines of the outermost script that are no shell, as
// where DATA=<path to the data> is to be filled in.
func (s *shell) parse(text string) *syntax.File {
	var left []string
	text = continued.ReplaceAllString(text, "$1")
	for n := 0; n < 10*mostLeft && len(text) <= mostText && len(left) <= mostLeft; n++ {
		f, err := syntax.NewParser().Parse(strings.NewReader(text), "")
		var p syntax.ParseError
		if err == nil {
			s.Notes = append(s.Notes, left...)
			return f
		}
		if !errors.As(err, &p) || int(p.Pos.Offset()) > len(text) {
			return nil
		}
		at := int(p.Pos.Offset())
		from := strings.LastIndex(text[:at], "\n") + 1
		line, rest, _ := strings.Cut(text[from:], "\n")
		switch {
		case strings.HasPrefix(p.Text, `"[x]"`): // in (--moe-layer-freq [0]*3+[1]*58)
			text = text[:at] + `\` + text[at:]
		case s.depth > 0 || strings.TrimSpace(line) == "":
			return nil
		default:
			left = append(left, fmt.Sprintf("line %d, which is no shell: %s", p.Pos.Line(), p.Text))
			text = text[:from] + "\n" + rest
		}
	}
	return nil
}

func (s *shell) line(n syntax.Node) int {
	if s.nested > 0 {
		return s.nested
	}
	return int(n.Pos().Line())
}

// either goes one of two ways. Where the script does not decide which, it is the first one, or
// that which is likely, if it was not answered otherwise.
func (s *shell) either(t truth, then, otherwise func() truth, asks ...syntax.Node) truth {
	way := t >= maybe
	if t != yes && t != no {
		text := fmt.Sprintf("line %d asks %s", s.line(asks[0]), s.excerpt(asks...))
		q := question{fmt.Sprint(text, asks[0].Pos().Offset()), text, way, t != maybe}
		if told, ok := s.answers[q.key]; ok {
			q.way = told
		}
		if way = q.way; !slices.ContainsFunc(s.asked, func(o question) bool { return o.key == q.key }) {
			s.asked = append(s.asked, q)
		}
	}
	if way {
		return then()
	}
	return otherwise()
}
