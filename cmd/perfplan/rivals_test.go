package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
)

// Columns of docs/rivals.csv. Errors stand behind the time that they are of.
const (
	rivalID, rivalGroup, rivalTP, rivalMeasured = 0, 1, 2, 5
	rivalOurs, rivalCalculon, rivalNetwork      = 6, 8, 10
)

// TestRivals keeps docs/rivals.csv and the table of docs/rivals.md at what perfplan
// predicts. Calculon's predictions are data.
func TestRivals(t *testing.T) {
	if testing.Short() {
		t.Skip("figures are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	file := filepath.Join(root(t), "docs", "rivals.csv")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	table, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	require.NoError(t, err)
	_, predictions := validated()
	today := map[string]float64{}
	for _, row := range predictions.Rows {
		today[row.ID] = float64(row.Predicted.StepTime)
	}
	for _, row := range table[1:] {
		measured := number(t, row[rivalMeasured])
		require.Contains(t, today, row[rivalID])
		row[rivalOurs] = strconv.FormatFloat(math.Round(today[row[rivalID]]*1e4)/1e4, 'f', -1, 64)
		row[rivalOurs+1] = fmt.Sprintf("%.4f", today[row[rivalID]]/measured-1)
	}
	var b bytes.Buffer
	require.NoError(t, csv.NewWriter(&b).WriteAll(table))
	name := filepath.Join(root(t), "docs", "rivals.md")
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), "| group |")
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, "\n\n")
	require.True(t, ok)
	want := before + rivalTable(t, table[1:]) + "\n" + after
	if *update {
		require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
		return
	}
	require.True(t, string(text) == b.String() && string(page) == want, "docs/rivals shows other predictions; run go test ./cmd/perfplan -run TestRivals -update")
}

func number(t *testing.T, s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	require.NoError(t, err)
	return v
}

// rivalTable is the table of errors by group, of perfplan and of Calculon.
func rivalTable(t *testing.T, rows [][]string) string {
	var b strings.Builder
	b.WriteString("| group | runs | predicted by | mean | median | p90 | max | signed |\n| --- | ---:| --- | ---:| ---:| ---:| ---:| ---:|\n")
	line := func(name, by, mark string, of [][]string, column int) { // name holds the first two cells
		var signed []float64
		for _, r := range of {
			signed = append(signed, number(t, r[column]))
		}
		e := runs.StatsOf(signed)
		fmt.Fprintf(&b, "| %s| %s", name, by)
		for _, v := range []string{fmt.Sprintf("%.1f %%", 100*e.MeanAbs), fmt.Sprintf("%.1f %%", 100*e.MedianAbs), fmt.Sprintf("%.1f %%", 100*e.P90Abs), fmt.Sprintf("%.1f %%", 100*e.MaxAbs), fmt.Sprintf("%+.1f %%", 100*e.MeanSigned)} {
			fmt.Fprintf(&b, " | %s%s%s", mark, v, mark)
		}
		b.WriteString(" |\n")
	}
	part := func(name, mark string, keep func(r []string) bool) {
		of := slices.DeleteFunc(slices.Clone(rows), func(r []string) bool { return !keep(r) })
		line(fmt.Sprintf("%s%s%s | %s%d%s ", mark, name, mark, mark, len(of), mark), mark+"perfplan"+mark, mark, of, rivalOurs+1)
		line("| ", mark+"Calculon"+mark, mark, of, rivalCalculon+1)
		if mark == "" && slices.ContainsFunc(of, func(r []string) bool { return r[rivalCalculon] != r[rivalNetwork] }) {
			line("| ", "Calculon, 100 Gbit/s", mark, of, rivalNetwork+1)
		}
	}
	for _, g := range []string{"korthikanti_table5_a100", "vtrain_multi_a100", "vtrain_single_a100", "sc21_table1_a100"} {
		part(g, "", func(r []string) bool { return r[rivalGroup] == g })
		if g == "vtrain_multi_a100" {
			part("the same with tp ≤ 8", "", func(r []string) bool { return r[rivalGroup] == g && number(t, r[rivalTP]) <= 8 })
		}
	}
	part("all", "**", func([]string) bool { return true })
	return b.String()
}
