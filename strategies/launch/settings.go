package launch

import (
	"slices"
	"strings"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
)

// Setting is a key of a job file.
type Setting struct {
	Key   string // "plan.tp"
	Value any    // string, int64, float64, bool, or []any; nil: it is not known, and Why says so
	From  string // what said so: a flag, a key
	Why   string
	ways  []string // the values that conditions may give it
	last  bool     // what another file says, or leaves open, goes before it
}

// Open says what leaves a setting open.
func (s Setting) Open() string {
	why := s.Why
	if len(s.ways) > 1 {
		why = strings.Join(s.ways, " or ") + ": " + why
	}
	return strings.Map(printable, strings.Join(slices.DeleteFunc([]string{s.Key, s.From, why}, func(w string) bool { return w == "" }), ": "))
}

func (j *Job) set(key string, value any, from string) {
	j.Settings = append(j.Settings, Setting{Key: key, Value: value, From: from})
}

// open leaves a key that the file has something of, and says why it must be given.
func (j *Job) open(key, from, why string) {
	j.Settings = append(j.Settings, Setting{Key: key, From: from, Why: why})
}

// drop leaves out a key.
func (j *Job) drop(key string) {
	j.Settings = slices.DeleteFunc(j.Settings, func(s Setting) bool { return s.Key == key })
}

// at is the place of a key, -1 where a job has none.
func (j *Job) at(key string) int {
	return slices.IndexFunc(j.Settings, func(s Setting) bool { return s.Key == key })
}

// mentions reports whether a job has a key, be it left open.
func (j *Job) mentions(key string) bool { return j.at(key) >= 0 }

// setting is that of a key, with no key where there is none.
func (j *Job) setting(key string) Setting {
	if i := j.at(key); i >= 0 {
		return j.Settings[i]
	}
	return Setting{}
}

// value is that of a key which is set; nil: it is not.
func (j *Job) value(key string) any { return j.setting(key).Value }

// textOf is the text that a key has, "" where it has none.
func (j *Job) textOf(key string) string {
	text, _ := j.value(key).(string)
	return text
}

// says reports whether a key has a value.
func (j *Job) says(key string, value any) bool {
	return slices.ContainsFunc(j.Settings, func(s Setting) bool { return s.Key == key && s.Value == value })
}

// count is the whole number that a key has, 0 where it has none.
func (j *Job) count(key string) int64 {
	for _, s := range j.Settings {
		if n, ok := s.Value.(int64); ok && s.Key == key {
			return n
		}
	}
	return 0
}

// runs is the recipe that a job has, nil where it has none that is known.
func (j *Job) runs() *recipe.Recipe {
	r, err := recipe.Load(j.textOf("runtime.recipe"))
	if err != nil {
		return nil
	}
	return r
}

// specOf is a model of the catalog, nil where that has none of the name.
func specOf(name string) *model.Spec {
	m, err := model.Load(name)
	if name == "" || err != nil {
		return nil
	}
	return m
}
