package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// ordered is an object for scripts whose keys keep their order. A quantity is a number in its SI
// base unit.
type ordered []entry

type entry struct {
	key   string
	value any
}

// omitted is the value of a key that an object leaves out.
type omitted struct{}

// unlessNone leaves a key out whose value is zero, or an empty list or map.
func unlessNone(v any) any {
	x := reflect.ValueOf(v)
	if !x.IsValid() || x.IsZero() || (x.Kind() == reflect.Slice || x.Kind() == reflect.Map) && x.Len() == 0 {
		return omitted{}
	}
	return v
}

// MarshalJSON writes the entries in order, as writeJSON does.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	b.WriteByte('{')
	for _, e := range o {
		if e.value == (omitted{}) {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		if err := out.Encode(e.key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if x := reflect.ValueOf(e.value); x.Kind() == reflect.Float64 {
			e.value = x.Float()
		}
		if err := out.Encode(e.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// value is the first that a key has, nil where there is none.
func (o ordered) value(key string) any {
	i := slices.IndexFunc(o, func(e entry) bool { return e.key == key })
	if i < 0 {
		return nil
	}
	return o[i].value
}

// listed are the objects of a list.
func listed[T any](list []T, plain func(*T) ordered) []ordered {
	out := make([]ordered, len(list))
	for i := range list {
		out[i] = plain(&list[i])
	}
	return out
}

// tabled are objects as rows for CSV, of some of their keys.
func tabled(list []ordered, keys ...string) (header []string, rows [][]string) {
	for _, o := range list {
		row := make([]string, len(keys))
		for i, k := range keys {
			row[i] = cell(o.value(k))
		}
		rows = append(rows, row)
	}
	return keys, rows
}

// cell is a value in CSV, empty where it is not known.
func cell(v any) string {
	x := reflect.Indirect(reflect.ValueOf(v))
	switch {
	case !x.IsValid(), v == (omitted{}):
		return ""
	case x.CanFloat():
		return number(x.Float())
	}
	if words, ok := v.([]string); ok {
		return strings.Join(words, ", ")
	}
	return fmt.Sprint(x.Interface())
}
