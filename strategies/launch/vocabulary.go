package launch

import (
	"bytes"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

//go:embed keys/*.yaml
var keyFiles embed.FS

// vocabulary is what is known of the keys of a program's files, or of its arguments, beside those
// that are keys of a job under another name.
type vocabulary struct {
	read     map[string]bool // that a job is read from
	costly   []costly        // in the order in which they are told
	harmless *regexp.Regexp  // that cost nothing worth a word, or nothing without another one that is told
}

// costly is a key that no key of a job stands for though it changes time or memory: with any value
// but Free, which is what it has where it costs nothing, and, where Of names some, beside these
// alone (stages of ZeRO, kinds of ranks). Why says what is taken instead.
type costly struct{ Key, Free, Of, Why string }

// keysOf reads a program's vocabulary when it is first asked for, as lazily compiles a pattern.
func keysOf(program string) func() *vocabulary {
	return sync.OnceValue(func() *vocabulary {
		name := "keys/" + program + ".yaml"
		text, err := keyFiles.ReadFile(name)
		if err != nil {
			panic(err)
		}
		var file struct {
			Read     []string
			Costly   []costly
			Harmless []string // patterns of whole names
		}
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(&file); err != nil {
			panic(fmt.Errorf("%s: %w", name, err))
		}
		return &vocabulary{
			read: words(strings.Join(file.Read, " ")), costly: file.Costly,
			harmless: regexp.MustCompile(`(?s)^(` + strings.Join(file.Harmless, "|") + `)$`),
		}
	})
}

// known are the names of keys that mean something.
func (v *vocabulary) known() []string {
	out := namesOf(v.read)
	for _, c := range v.costly {
		out = append(out, c.Key)
	}
	return out
}

// among is the entry of a key in a table.
func among(table []costly, key string) (costly, bool) {
	if at := slices.IndexFunc(table, func(c costly) bool { return c.Key == key }); at >= 0 {
		return table[at], true
	}
	return costly{}, false
}

// charge notes a key by what the file calls it, with its value.
func (j *Job) charge(c costly, from, value string) {
	what := strings.TrimSuffix(from+" "+value, " ")
	if c.Why != "" {
		what += ": " + c.Why
	}
	j.note("%s", what)
}

// costs reports whether a table has a key, which it notes where its value costs something with
// what there is of a job.
func (j *Job) costs(table []costly, key, from, value string, with ...string) bool {
	c, ok := among(table, key)
	heeded := c.Of == "" || slices.ContainsFunc(with, func(w string) bool { return strings.Contains(c.Of, w) })
	if ok && heeded && !same(value, c.Free) {
		j.charge(c, from, value)
	}
	return ok
}

// same reports whether a value is another, however numbers are written.
func same(a, b string) bool {
	v, err := number(a)
	free, freeErr := number(b)
	return a == b && a != "" || err == nil && freeErr == nil && v == free
}
