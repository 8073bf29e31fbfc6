package whatif

import (
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
)

// Axis is a setting of a job and the values it takes in turn.
type Axis struct {
	Path   string // as --set takes it: plan.bucket
	Values []string
}

// mostValues bounds one axis, mostPoints a product of them: beyond it a search with
// bounds (perfplan plan) is the better question.
const (
	mostValues = 10_000
	mostPoints = 100_000
)

// ParseAxis reads path=v1,v2,… where a value may be a range: 8..1024 doubles (8, 16,
// … 1024), 1..8:1 counts in steps, 1MiB..1GiB doubles sizes. The end of a range is
// taken when it is met.
func ParseAxis(text string) (Axis, error) {
	path, list, ok := strings.Cut(text, "=")
	if path = strings.TrimSpace(path); !ok || path == "" {
		return Axis{}, diag.Errorf("%q is not an axis; write path=value,value or path=from..to, as in plan.tp=1,2,4 or gpus=8..1024", text)
	}
	a := Axis{Path: path}
	for _, item := range split(list) {
		values, err := expand(strings.TrimSpace(item))
		if err != nil {
			return Axis{}, diag.Errorf("%s: %v", path, err)
		}
		if a.Values = append(a.Values, values...); len(a.Values) > mostValues {
			return Axis{}, diag.Errorf("%s: more than %d values; take fewer", path, mostValues)
		}
	}
	seen := map[string]bool{}
	for _, v := range a.Values {
		switch {
		case v == "":
			return Axis{}, diag.Errorf("%s: a value is empty; write the values with commas between them", path)
		case seen[v]:
			return Axis{}, diag.Errorf("%s: the value %s is given twice; leave one of them out", path, v)
		}
		seen[v] = true
	}
	return a, nil
}

// split cuts at the commas that no bracket encloses.
func split(list string) []string {
	var out []string
	depth, from := 0, 0
	for i, r := range list {
		switch r {
		case '[', '{', '(':
			depth++
		case ']', '}', ')':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, list[from:i]), i+1
			}
		}
	}
	return append(out, list[from:])
}

// expand returns the values of a range, or the value itself.
func expand(item string) ([]string, error) {
	low, rest, ok := strings.Cut(item, "..")
	if !ok {
		return []string{item}, nil
	}
	high, step, stepped := strings.Cut(rest, ":")
	from, size, err := number(low)
	if err != nil {
		return nil, diag.Errorf("the range %s begins with %q, which is no number or size; write it as in 8..64 or 1MiB..1GiB", item, low)
	}
	to, size2, err := number(high)
	if err != nil {
		return nil, diag.Errorf("the range %s ends with %q, which is no number or size; write it as in 8..64 or 1MiB..1GiB", item, high)
	}
	by := 0.0
	if stepped {
		if by, _, err = number(step); err != nil || by <= 0 {
			return nil, diag.Errorf("the range %s has the step %q; give a number above 0", item, step)
		}
	}
	switch {
	case size != size2:
		return nil, diag.Errorf("the range %s mixes a number with a size", item)
	case from <= 0 && !stepped:
		return nil, diag.Errorf("the range %s doubles from 0; begin above it, or give a step as in 0..4:1", item)
	case to < from:
		return nil, diag.Errorf("the range %s runs backwards; write %s..%s", item, high, low)
	case stepped && (to-from)/by > mostValues:
		return nil, diag.Errorf("the range %s has more than %d values; take a larger step", item, mostValues)
	}
	var out []string
	for i, v := 0, from; v <= to; i++ {
		out = append(out, write(v, size))
		if v *= 2; stepped {
			v = from + float64(i+1)*by
		}
	}
	return out, nil
}

// number reads a number, or a data size.
func number(text string) (v float64, size bool, err error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 53); err == nil && n >= 0 {
		return float64(n), false, nil
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil && v >= 0 && v < 1e300 {
		return v, false, nil
	}
	b, err := units.ParseBytes(text)
	return float64(b), true, err
}

func write(v float64, size bool) string {
	if !size {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	text, _ := units.Bytes(v).MarshalText() // v is finite
	return string(text)
}

// Numbers returns the values of an axis as numbers (sizes in bytes), nil when one is
// none.
func (a *Axis) Numbers() []float64 {
	out := make([]float64, len(a.Values))
	for i, s := range a.Values {
		v, _, err := number(s)
		if err != nil {
			return nil
		}
		out[i] = v
	}
	return out
}

// Product lists every combination of the axes' values, the last axis fastest.
func Product(axes []Axis) ([][]string, error) {
	total := 1
	for i, a := range axes {
		for _, b := range axes[:i] {
			if a.Path == b.Path {
				return nil, diag.Errorf("%s: is given twice; write its values in one list", a.Path)
			}
		}
		if total *= len(a.Values); total > mostPoints {
			return nil, diag.Errorf("the axes have more than %d points together; take fewer values, or search with perfplan plan", mostPoints)
		}
	}
	out := make([][]string, total)
	for i := range out {
		point := make([]string, len(axes))
		rest := i
		for k := len(axes) - 1; k >= 0; k-- {
			n := len(axes[k].Values)
			point[k] = axes[k].Values[rest%n]
			rest /= n
		}
		out[i] = point
	}
	return out, nil
}
