package report

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestOrdered: an object keeps the order of its keys and leaves out what is not there; a quantity is a
// number in its SI base unit, and what is not known is null, or an empty cell.
func TestOrdered(t *testing.T) {
	object := ordered{{"time_s", units.Seconds(0.0015)}, {"name", "a<b & c"}, {"rate", known(units.Rate(0))}, {"list", unlessNone([]int64{})}, {"note", unlessNone("")},
		{"count", unlessNone(int64(2))}, {"inner", ordered{{"bytes", 25 * units.MiB}}}, {"fits", true}}
	var b bytes.Buffer
	require.NoError(t, writeJSON(&b, object))
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, b.Bytes()))
	require.Equal(t, `{"time_s":0.0015,"name":"a<b & c","rate":null,"count":2,"inner":{"bytes":26214400},"fits":true}`, compact.String())

	header, rows := tabled([]ordered{append(ordered{{"name", "first"}}, object...)}, "name", "time_s", "rate", "note", "absent", "count", "fits")
	require.Equal(t, []string{"name", "time_s", "rate", "note", "absent", "count", "fits"}, header)
	require.Equal(t, [][]string{{"first", "0.0015", "", "", "", "2", "true"}}, rows)
}
