package launch

import (
	"maps"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"github.com/perfplan/perfplan/internal/diag"
)

// A name is taken to be misspelt that is at least so long, and at most so many letters from one
// that is known: names of other releases and programs are often near to each other.
const shortestTypo, mostTypos = 6, 2

// misspelt is the known name that an unknown one seems to mean, "" where it may be one of its own.
func misspelt(name string, known []string) string {
	near := diag.Nearest(name, known)
	if len(name) < shortestTypo || near == "" || levenshtein.ComputeDistance(name, near) > mostTypos {
		return ""
	}
	return near
}

// ignore lists a name that nobody knows, as a file has it, apart from those that seem to be misspelt
// from what is known, be that given beside it; spell writes that as the file would.
func (j *Job) ignore(from, name string, known []string, given func(string) bool, spell func(string) string) {
	switch near := misspelt(name, known); {
	case near == "":
		j.Ignored = append(j.Ignored, from)
	case given(near):
		j.Unknown = append(j.Unknown, from+"; did you mean "+spell(near)+", which is there, too?")
	default:
		j.Unknown = append(j.Unknown, from+"; did you mean "+spell(near)+"?")
	}
}

// namesOf are the keys of tables.
func namesOf[M ~map[string]V, V any](tables ...M) (out []string) {
	for _, t := range tables {
		out = slices.AppendSeq(out, maps.Keys(t))
	}
	return out
}

// ignores lists the arguments that nobody knows.
func (j *Job) ignores(t *trainer) {
	names := map[string]string{}
	for name, a := range t.given {
		names[a.from] = name
	}
	options := slices.Concat(trainerKeys().known(), namesOf(renamed))
	for _, d := range t.dialects {
		options = slices.Concat(options, namesOf(d.names), namesOf(d.defaults))
	}
	slices.Sort(options)
	given := func(name string) bool {
		if to, ok := t.dialects[0].names[name]; ok {
			name = to
		}
		return t.given[name].given
	}
	dashes := ""
	if t.flags {
		dashes = "--"
	}
	for _, from := range t.ignored {
		name, ok := names[from]
		if !ok {
			name = from
		}
		j.ignore(from, name, options, given, func(near string) string { return dashes + strings.ReplaceAll(near, ".", "_") })
	}
}
