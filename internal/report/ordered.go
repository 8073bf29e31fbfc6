package report

import (
	"bytes"
	"encoding/json"
)

// ordered is a JSON object whose keys keep their order.
type ordered []entry

type entry struct {
	key   string
	value any
}

// MarshalJSON writes the entries in order.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, e := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(e.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(e.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
