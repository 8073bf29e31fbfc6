package trace

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"sync"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model/tape"
)

//go:embed classes.yaml
var classesYAML []byte

// Other is the class and the family of kernels that the table does not know.
const Other = "other"

// Collectives is the family of communication.
const Collectives = "collective"

// Family is a group of classes that do the same kind of work.
type Family struct {
	Name     string   `yaml:"name"`
	Classes  []string `yaml:"classes"`
	Compiled string   `yaml:"compiled"` // the family it becomes a part of in a compiled step
}

// Kernel is a row of the table: which names belong to a class.
type Kernel struct {
	Class   string `yaml:"class"`
	Pattern string `yaml:"pattern"` // regular expression, anywhere in the name
	Example string `yaml:"example"` // a name that it is there for
	Source  string `yaml:"source"`

	expression *regexp.Regexp
}

type classes struct {
	Families []Family          `yaml:"families"`
	Ops      map[string]string `yaml:"ops"` // class by primitive of an estimate
	Kernels  []Kernel          `yaml:"kernels"`

	family   map[string]string // by class
	compiled map[string]string // by class, in a compiled step
}

// table is classes.yaml. The file is part of the program and covered by a test.
var table = sync.OnceValue(func() *classes {
	t, err := parse(classesYAML)
	if err != nil {
		panic(err)
	}
	return t
})

func parse(text []byte) (*classes, error) {
	doc, err := yamlx.Parse("calibrate/trace/classes.yaml", text)
	if err != nil {
		return nil, err
	}
	t := &classes{family: map[string]string{}, compiled: map[string]string{}}
	if err := doc.Decode(t); err != nil {
		return nil, err
	}
	for _, f := range t.Families {
		for _, c := range f.Classes {
			t.family[c], t.compiled[c] = f.Name, cmp.Or(f.Compiled, f.Name)
		}
	}
	for prim, c := range t.Ops {
		if t.family[c] == "" {
			return nil, fmt.Errorf("calibrate/trace/classes.yaml: class %q of op %s is in no family", c, prim)
		}
	}
	for i := range t.Kernels {
		k := &t.Kernels[i]
		if t.family[k.Class] == "" {
			return nil, fmt.Errorf("calibrate/trace/classes.yaml: class %q is in no family", k.Class)
		}
		if k.expression, err = regexp.Compile(k.Pattern); err != nil {
			return nil, fmt.Errorf("calibrate/trace/classes.yaml: pattern of %s: %w", k.Class, err)
		}
	}
	return t, nil
}

// ClassOf is the class of a kernel by its name: that of the first pattern that
// matches, or Other.
func ClassOf(name string) string {
	for i := range table().Kernels {
		if k := &table().Kernels[i]; k.expression.MatchString(name) {
			return k.Class
		}
	}
	return Other
}

// FamilyOf is the family of a class, Other of one that is in none.
func FamilyOf(class string) string {
	if f, ok := table().family[class]; ok {
		return f
	}
	return Other
}

// classOfOp is the class of a kernel of an estimate, by the name it has in a trace.
func classOfOp(o *tape.Op) string {
	if c, ok := table().Ops[o.Prim]; ok {
		return c
	}
	return o.Class.String()
}

// classOfCall is the class of a collective of an estimate. NCCL makes an all-to-all of
// sends.
func classOfCall(kind string) string {
	if kind == "all-to-all" {
		return "send-recv"
	}
	return kind
}
