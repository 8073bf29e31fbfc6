package launch

import (
	"slices"
	"strings"
)

// costlyKey is a key of a configuration that no key of a job stands for though it changes time or
// memory: unless it has the value own, and only with what of names (all where it names nothing).
// why says what is taken instead.
type costlyKey struct{ key, of, own, why string }

// costs reports whether a table has a key, which it notes by what the file calls it where its
// value costs something with what there is of a job.
func (j *Job) costs(table []costlyKey, key, from, value string, with ...string) bool {
	at := slices.IndexFunc(table, func(k costlyKey) bool { return k.key == key })
	if at < 0 {
		return false
	}
	k := table[at]
	if k.of != "" && !slices.ContainsFunc(with, func(w string) bool { return strings.Contains(k.of, w) }) || same(value, k.own) {
		return true
	}
	what := strings.TrimSuffix(from+" "+value, " ")
	if k.why != "" {
		what += ": " + k.why
	}
	j.note("%s", what)
	return true
}

// same reports whether a value is another, however numbers are written.
func same(a, b string) bool {
	v, err := number(a)
	own, ownErr := number(b)
	return a == b && a != "" || err == nil && ownErr == nil && v == own
}
