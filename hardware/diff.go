package hardware

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Difference is a datum that two profiles hold different values of.
type Difference struct {
	Path string  // as in the file: gpu.bandwidth, measured.gemm.setup
	A, B string  // the values as text; "" where a profile has none
	Rel  float64 // B over A, less 1
	Has  bool    // that both are numbers, and A is not zero
}

// Diff lists the data in which two profiles differ, the largest factor first, up or
// down, then what only one has or what is no number. Provenance does not count; what is
// inherited does.
func Diff(a, b *Profile) []Difference {
	left, right := flatten(a), flatten(b)
	var out []Difference
	for path, x := range left {
		y, ok := right[path]
		switch d := (Difference{Path: path, A: x.text, B: y.text}); {
		case !ok:
			out = append(out, d)
		case x.text == y.text && x.number == y.number:
		default:
			if x.isNumber && y.isNumber && x.number != 0 {
				d.Rel, d.Has = y.number/x.number-1, true
			}
			if d.Has && math.Abs(d.Rel) < 1e-9 { // the same number, spelled in another unit
				continue
			}
			out = append(out, d)
		}
	}
	for path, y := range right {
		if _, ok := left[path]; !ok {
			out = append(out, Difference{Path: path, B: y.text})
		}
	}
	slices.SortFunc(out, func(x, y Difference) int {
		if x.Has != y.Has {
			if x.Has {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(y.size(), x.size()), strings.Compare(x.Path, y.Path))
	})
	return out
}

// size is how far apart the numbers are, the same for twice and for half: rounded, so
// that equal changes stand in the order of their paths.
func (d Difference) size() float64 {
	switch {
	case !d.Has:
		return 0
	case d.Rel <= -1: // gone, or of the other sign
		return math.Inf(1)
	}
	return math.Round(1e6 * math.Abs(math.Log1p(d.Rel)))
}

// leaf is one value of a profile.
type leaf struct {
	text     string
	number   float64
	isNumber bool
}

// flatten lists the values of a profile by their path.
func flatten(p *Profile) map[string]leaf {
	out := map[string]leaf{}
	f := file{GPU: p.GPU, Node: p.Node, Network: p.Network, Software: p.Software, Price: p.Price, Measured: p.Laws}
	walk(reflect.ValueOf(f), "", out)
	return out
}

// keyed are table rows whose path says what they are of, not where they stand.
func keyed(v reflect.Value) (key string, inner any) {
	switch x := v.Interface().(type) {
	case GEMMPoint:
		return fmt.Sprintf("%g×%g×%g", x.M, x.N, x.K), x.Time
	case AttentionPoint:
		mask := ""
		if x.Masked {
			mask = " masked"
		}
		return fmt.Sprintf("%g×%g heads %g/%g of %g%s", x.Batch, x.Sequence, x.Heads, x.KVHeads, x.Width, mask), x.Time
	case WidthFactor:
		return fmt.Sprint(x.Width), x.Factor
	case CollectiveCurve:
		return fmt.Sprintf("%s %d/%d", x.Op, x.Ranks, max(x.Nodes, 1)), timesBySize(x.Bytes, x.Time)
	case CopyCurve:
		return fmt.Sprintf("%s pinned %v", x.Direction, x.Pinned), timesBySize(x.Bytes, x.Time)
	}
	return "", nil
}

// timesBySize turns a curve into values by size.
func timesBySize[B fmt.Stringer, T any](bytes []B, times []T) map[string]T {
	out := map[string]T{}
	for i := range min(len(bytes), len(times)) {
		out[bytes[i].String()] = times[i]
	}
	return out
}

// layers name the three times of a GEMM point, directions the two of attention.
var (
	layers     = []string{"fprop", "dgrad", "wgrad"}
	directions = []string{"forward", "backward"}
)

func walk(v reflect.Value, path string, out map[string]leaf) {
	join := func(key string) string { return strings.TrimPrefix(path+"."+key, ".") }
	if _, text := v.Interface().(encoding.TextMarshaler); text && v.Kind() == reflect.Float64 {
		if v.Float() != 0 {
			out[path] = leaf{fmt.Sprint(v.Interface()), v.Float(), true}
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walk(v.Elem(), path, out)
		}
	case reflect.Struct:
		if d, ok := v.Interface().(interface{ IsSet() bool }); ok {
			if d.IsSet() {
				walk(v.FieldByName("Value"), path, out)
			}
			return
		}
		if law, ok := v.Interface().(KernelLaw); ok && len(law.Bytes) > 0 {
			walk(reflect.ValueOf(timesBySize(law.Bytes, law.Time)), path, out)
			walk(reflect.ValueOf(law.Spread), path, out)
			return
		}
		for i := range v.NumField() {
			key, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			switch {
			case option == "inline":
				walk(v.Field(i), path, out)
			case key != "" && key != "source" && key != "conditions":
				walk(v.Field(i), join(key), out)
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			walk(v.MapIndex(k), join(fmt.Sprint(k)), out)
		}
	case reflect.Slice, reflect.Array:
		names := map[int][]string{3: layers, 2: directions}[v.Len()]
		for i := range v.Len() {
			item := v.Index(i)
			if key, inner := keyed(item); inner != nil {
				walk(reflect.ValueOf(inner), join(key), out)
			} else if v.Kind() == reflect.Array {
				walk(item, join(names[i]), out)
			} else {
				walk(item, fmt.Sprintf("%s[%d]", path, i), out)
			}
		}
	case reflect.Float64:
		out[path] = leaf{strconv.FormatFloat(v.Float(), 'g', 5, 64), v.Float(), true}
	case reflect.Int64:
		out[path] = leaf{fmt.Sprint(v.Interface()), float64(v.Int()), true}
	case reflect.String:
		if v.String() != "" {
			out[path] = leaf{text: v.String()}
		}
	case reflect.Bool:
		out[path] = leaf{text: fmt.Sprint(v.Bool())}
	}
}
