package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/fit"
	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/hardware"
)

// A quick calibration of an H200 leaves predictions of H200 runs where they were, and
// makes those of a machine known by its datasheet alone better.
func TestCalibrationPredictsRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("figures are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	folder := t.TempDir()
	names, err := filepath.Glob("../../calibrate/fit/reference/*.jsonl")
	require.NoError(t, err)
	var files []*sample.File
	for _, name := range names {
		f, err := sample.ReadFile(name)
		require.NoError(t, err)
		files = append(files, f)
	}
	samples, err := fit.Join(names, files)
	require.NoError(t, err)
	calibrated := func(base string) string {
		p, err := hardware.Load(base)
		require.NoError(t, err)
		r, err := fit.Run(samples, p, fit.Options{})
		require.NoError(t, err)
		name := filepath.Join(folder, filepath.Base(base)+".yaml")
		require.NoError(t, os.WriteFile(name, r.YAML, 0o600))
		return name
	}
	list, err := runs.Load("../../calibrate/runs/data/h200-steps.yaml")
	require.NoError(t, err)
	on := func(machine string) (error float64, times []float64) {
		placed, err := runs.On(list, machine)
		require.NoError(t, err)
		r := runs.Validate(placed)
		for _, row := range r.Rows {
			require.Equal(t, runs.OK, row.Status, row.Reason)
			times = append(times, float64(row.Predicted.StepTime))
		}
		return r.Summary[len(r.Summary)-1].Stats["step_time"].MeanAbs, times
	}
	catalog, before := on("h200-sxm")
	fitted, after := on(calibrated("h200-sxm"))
	datasheet, _ := on("testdata/h200-datasheet.yaml")
	better, _ := on(calibrated("testdata/h200-datasheet.yaml"))
	t.Logf("mean error: catalog %.4f, calibrated %.4f, datasheet %.4f, datasheet calibrated %.4f", catalog, fitted, datasheet, better)
	require.Less(t, fitted, catalog+0.005)
	require.Less(t, fitted, datasheet/2)
	require.Less(t, better, 0.7*datasheet)
	for i := range before {
		require.InEpsilon(t, before[i], after[i], 0.02, list[i].ID)
	}
}
