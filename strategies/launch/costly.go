package launch

import (
	"slices"
	"strings"
)

// costly is a key of a file, or an argument, that no key of a job stands for though it changes
// time or memory: with any value but free, which is what it has where it costs nothing, and, where
// of names some, beside these alone (stages of ZeRO, kinds of ranks). why says what is taken instead.
type costly struct{ key, free, of, why string }

// among is the entry of a key in a table.
func among(table []costly, key string) (costly, bool) {
	if at := slices.IndexFunc(table, func(c costly) bool { return c.key == key }); at >= 0 {
		return table[at], true
	}
	return costly{}, false
}

// charge notes a key by what the file calls it, with its value.
func (j *Job) charge(c costly, from, value string) {
	what := strings.TrimSuffix(from+" "+value, " ")
	if c.why != "" {
		what += ": " + c.why
	}
	j.note("%s", what)
}

// costs reports whether a table has a key, which it notes where its value costs something with
// what there is of a job.
func (j *Job) costs(table []costly, key, from, value string, with ...string) bool {
	c, ok := among(table, key)
	heeded := c.of == "" || slices.ContainsFunc(with, func(w string) bool { return strings.Contains(c.of, w) })
	if ok && heeded && !same(value, c.free) {
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
