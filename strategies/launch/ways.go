package launch

import (
	"fmt"
	"slices"
	"strings"
)

// unsettle leaves open what another reading of a file, by a condition that goes another way,
// says otherwise.
func (j *Job) unsettle(other *Job, by string) {
	for _, o := range other.Settings {
		if !j.mentions(o.Key) {
			j.Settings = append(j.Settings, Setting{Key: o.Key, From: o.From})
		}
	}
	for i := range j.Settings {
		s := &j.Settings[i]
		o := other.setting(s.Key)
		if s.way() != o.way() {
			s.either(o, by)
		}
	}
	with := " (" + by + ")"
	for i, n := range j.Notes {
		if !strings.Contains(n, " (line ") && !slices.Contains(other.Notes, n) {
			j.Notes[i] += with
		}
	}
	for _, n := range other.Notes {
		if !slices.ContainsFunc(j.Notes, func(o string) bool { return o == n || strings.HasPrefix(o, n+" (line ") }) {
			j.Notes = append(j.Notes, n+with)
		}
	}
	for _, lists := range [][2]*[]string{{&j.Ignored, &other.Ignored}, {&j.Unknown, &other.Unknown}} {
		for _, n := range *lists[1] {
			if !slices.Contains(*lists[0], n) {
				*lists[0] = append(*lists[0], n)
			}
		}
	}
}

// either leaves a setting open to what another reading says, by a condition.
func (s *Setting) either(o Setting, by string) {
	if s.ways == nil {
		s.Why, s.ways = by+", which the file does not decide: give the key", []string{s.way()}
	}
	if s.From == "" || strings.HasPrefix(s.From, "without ") {
		s.From = o.From
	}
	s.Value = nil
	if w := o.way(); !slices.Contains(s.ways, w) {
		s.ways = append(s.ways, w)
	}
}

// way is how messages name one value of several.
func (s *Setting) way() string {
	switch {
	case s.Value != nil:
		return fmt.Sprint(s.Value)
	case s.Why != "":
		return "not known"
	}
	return "none"
}
