package estimate

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
)

// TestRangesOfFirstPredictions: steps of twenty rounds of public runs as the program predicted them before anybody had
// looked at them, with the deviation that it gave them then beside what is assumed (docs/unseen.md):
// with what ranges add to it today four fifths of them, tables alike, lie inside, and without not.
func TestRangesOfFirstPredictions(t *testing.T) {
	file, err := os.Open("testdata/first-predictions.csv")
	require.NoError(t, err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	rows = rows[1:]
	require.Len(t, rows, 2451)
	number := func(s string) float64 {
		x, err := strconv.ParseFloat(s, 64)
		require.NoError(t, err)
		return x
	}
	type table struct{ round, name string }
	tables := map[table]float64{}
	for _, row := range rows {
		tables[table{row[0], row[1]}]++
	}
	inside := func(unforeseen float64) (in, above float64) {
		for _, row := range rows {
			dev := math.Hypot(number(row[5]), assumedSpread*math.Sqrt(number(row[6])))
			if row[7] == "" { // of steps unlike those that we measured
				dev = math.Hypot(dev, unforeseen)
			}
			off := math.Log(number(row[3])/number(row[4])) / hardware.Eighty
			each := 1 / tables[table{row[0], row[1]}] / float64(len(tables))
			switch {
			case off > slower*dev:
				above += each
			case off >= -faster*dev:
				in += each
			}
		}
		return
	}
	in, above := inside(unforeseenSpread)
	require.InDelta(t, 0.8, in, 0.02)
	require.InDelta(t, 0.1, above, 0.02)
	in, _ = inside(0)
	require.Less(t, in, 0.74)
}
