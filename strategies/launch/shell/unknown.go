package shell

import (
	"regexp"
	"slices"
	"strings"
)

// firstUnknown is the character that stands for the first of unknowns, others follow it.
const firstUnknown, mostUnknowns = '\U000F0000', 60_000

// unknowns are what a script does not give.
type unknowns struct{ names []string }

// name is what stands for an unknown in values.
func (u *unknowns) name(n string) string {
	i := slices.Index(u.names, n)
	if i < 0 {
		i = min(len(u.names), mostUnknowns)
		u.names = append(u.names[:i], n)
	}
	return string(firstUnknown + rune(i))
}

// is reports whether a character stands for an unknown.
func (u *unknowns) is(r rune) bool {
	return r >= firstUnknown && int(r-firstUnknown) < len(u.names)
}

// in is the first unknown in a value, "" where there is none.
func (u *unknowns) in(s string) string {
	if i := strings.IndexFunc(s, u.is); i >= 0 {
		return string([]rune(s[i:])[:1])
	}
	return ""
}

// fill puts in something for each unknown.
func (u *unknowns) fill(s string, by func(name string) string) string {
	var b strings.Builder
	for _, r := range s {
		if u.is(r) {
			b.WriteString(by(u.names[r-firstUnknown]))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Show writes what a script does not give by its names, as $MBS, $(nproc). Open is the first.
func (u *unknowns) Show(s string) (text, open string) {
	name := func(n string) string { return n }
	return u.fill(s, name), u.fill(u.in(s), name)
}

// Fill puts in a text for what a script does not give.
func (u *unknowns) Fill(s, instead string) string {
	return u.fill(s, func(string) string { return instead })
}

var variable = regexp.MustCompile(`^\$\w+$`)

// given is a value without the variables that nobody sets.
func (u *unknowns) given(s string) string {
	return u.fill(s, func(n string) string {
		if variable.MatchString(n) {
			return ""
		}
		return u.name(n)
	})
}
