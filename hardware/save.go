package hardware

import (
	"bytes"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// digits of a fitted constant that mean anything, and some more.
const digits = 6

// Encode writes a hardware/v1 file: what the profile inherits, and the facts and
// laws that it holds. Load gives them back, the constants of laws to six digits.
// Facts and laws that are to be inherited must be left out of the profile.
func Encode(p *Profile) ([]byte, error) {
	f := file{Format: "hardware/v1", Title: p.Title, Inherits: p.Inherits, GPU: p.GPU, Node: p.Node, Network: p.Network, Software: p.Software, Price: p.Price, Measured: p.Laws}
	n, err := encode(reflect.ValueOf(f))
	if err != nil {
		return nil, err
	}
	return yamlx.Encode(n)
}

// encode turns a value into a node; nil for the zero value, which is left out.
func encode(v reflect.Value) (*yaml.Node, error) {
	if v.IsZero() {
		return nil, nil
	}
	if v.Kind() == reflect.Float64 && v.Type() != reflect.TypeFor[units.Bytes]() {
		v = rounded(v)
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return nil, err
		}
		n := scalar(string(text))
		if strings.Contains(n.Value, "\n") {
			n.Style = yaml.LiteralStyle
		}
		return n, nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		return encode(v.Elem())
	case reflect.Struct:
		return encodeStruct(v)
	case reflect.Map:
		return encodeMap(v)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.Len() {
			item, err := encode(v.Index(i))
			if err != nil {
				return nil, err
			}
			if item == nil {
				item = scalar("0")
			}
			if item.Kind == yaml.MappingNode {
				n.Style = 0
			}
			n.Content = append(n.Content, item)
		}
		return n, nil
	case reflect.Float64:
		return scalar(strconv.FormatFloat(v.Float(), 'g', -1, 64)), nil
	}
	return scalar(fmt.Sprint(v.Interface())), nil
}

// rounded is a number to as many digits as are written.
func rounded(v reflect.Value) reflect.Value {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(v.Float(), 'e', digits-1, 64), 64) // its own text
	out := reflect.New(v.Type()).Elem()
	out.SetFloat(f)
	return out
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// encodeStruct writes the fields that have a name in files. A Datum without
// provenance is its bare value.
func encodeStruct(v reflect.Value) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if d, ok := v.Interface().(interface{ IsSet() bool }); ok {
		value, err := encode(v.FieldByName("Value"))
		if !d.IsSet() || err != nil {
			return nil, err
		}
		if value == nil {
			value = scalar(fmt.Sprint(v.FieldByName("Value").Interface()))
		}
		source, kind := v.FieldByName("Source").String(), v.FieldByName("Kind").String()
		if source == "" && kind == "" {
			return value, nil
		}
		n.Style = yaml.FlowStyle
		n.Content = append(n.Content, scalar("value"), value)
		for _, x := range [][2]string{{"source", source}, {"kind", kind}} {
			if x[1] != "" {
				n.Content = append(n.Content, scalar(x[0]), scalar(x[1]))
			}
		}
		return n, nil
	}
	for i := range v.NumField() {
		key, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		if key == "" && option != "inline" {
			continue
		}
		item, err := encode(v.Field(i))
		if err != nil {
			return nil, err
		}
		switch {
		case item == nil:
		case option == "inline":
			n.Content = append(n.Content, item.Content...)
		default:
			n.Content = append(n.Content, scalar(key), item)
		}
	}
	if len(n.Content) == 0 {
		return nil, nil
	}
	return n, nil
}

func encodeMap(v reflect.Value) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, k := range keys {
		item, err := encode(v.MapIndex(k))
		if err != nil {
			return nil, err
		}
		if item == nil {
			item = scalar("0")
		}
		n.Content = append(n.Content, scalar(fmt.Sprint(k)), item)
	}
	return n, nil
}

// MarshalText writes the table that UnmarshalText reads, times to five digits.
func (p GEMMPoints) MarshalText() ([]byte, error) {
	var b bytes.Buffer
	for _, q := range p {
		fmt.Fprintf(&b, "%g %g %g  %s\n", q.M, q.N, q.K, microseconds(q.Time[:]))
	}
	return b.Bytes(), nil
}

// MarshalText writes the table that UnmarshalText reads, times to five digits.
func (p AttentionPoints) MarshalText() ([]byte, error) {
	var b bytes.Buffer
	for _, q := range p {
		masked := 0
		if q.Masked {
			masked = 1
		}
		fmt.Fprintf(&b, "%g %g %g %g %g %d  %s\n", q.Batch, q.Sequence, q.Heads, q.KVHeads, q.Width, masked, microseconds(q.Time[:]))
	}
	return b.Bytes(), nil
}

func microseconds(times []units.Seconds) string {
	out := make([]string, len(times))
	for i, t := range times {
		out[i] = "-"
		if t > 0 {
			us := float64(t) * 1e6
			out[i] = strconv.FormatFloat(us, 'f', max(4-int(math.Floor(math.Log10(us))), 0), 64)
		}
	}
	return strings.Join(out, " ")
}
