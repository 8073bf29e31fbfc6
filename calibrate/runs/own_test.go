package runs

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// ownRows are runs of one recipe and GPU, off by factors, predicted with a standard deviation.
func ownRows(deviation float64, factors ...float64) ([]Run, []Row) {
	h := &hardware.Profile{}
	h.GPU.Name.Value = "NVIDIA H200"
	var list []Run
	var rows []Row
	for i, f := range factors {
		j := &strategies.Job{Hardware: h, GPUs: int64(i + 1)} // no copies of each other
		j.Runtime.Recipe = "megatron-core"
		p := Prediction{Figures: Figures{StepTime: 2}}
		p.Off[estimate.LeftOut].Share = deviation
		list = append(list, Run{ID: string(rune('a' + i)), Job: j})
		rows = append(rows, Row{ID: string(rune('a' + i)), Status: OK, Predicted: p, Measured: Figures{StepTime: units.Seconds(2 * f)}})
	}
	return list, rows
}

func TestOwn(t *testing.T) {
	for _, c := range []struct {
		name          string
		deviation     float64
		factors       []float64
		ratio, spread float64
	}{
		// By hand: of the predicted variance d², 2·0.3/(2+n−1) within and 0.15 in common.
		{"one run", 0.1, []float64{1.05}, math.Pow(1.05, 1./3), math.Sqrt(4. / 3 * 0.003)},
		{"three alike", 0.1, []float64{1.08, 1.08, 1.08}, math.Pow(1.08, 0.75), math.Sqrt(1.25 * 0.0015)},
		{"as predicted", 0.1, []float64{1, 1}, 1, math.Sqrt(1.3 * 0.002)},
		{"faster", 0.1, []float64{0.95}, math.Pow(0.95, 1./3), math.Sqrt(4. / 3 * 0.003)},
		// What one run is off beyond a third of it may be its own, or not.
		{"surely predicted", 0.03, []float64{1.1}, math.Pow(1.1, 1./3), 2. / 3 * math.Log(1.1)},
		// 4 deviations: 16/4 − 0.15/3 in common.
		{"three far away", 0.1, []float64{math.Exp(0.4), math.Exp(0.4), math.Exp(0.4)}, math.Exp(0.4 * 3 * 3.95 / (3*3.95 + 0.15)), math.Sqrt((3.95/(3*3.95+0.15) + 1) * 0.0015)},
	} {
		list, rows := ownRows(c.deviation, c.factors...)
		got, err := Own(list, rows)
		require.NoError(t, err, c.name)
		require.InDelta(t, c.ratio, got.Ratio, 1e-12, c.name)
		require.InDelta(t, c.spread, got.Spread, 1e-12, c.name)
		require.Equal(t, int64(len(c.factors)), got.Runs, c.name)
		require.Equal(t, "megatron-core", got.Recipe)
		require.Equal(t, "NVIDIA H200", got.GPU)
	}
}

// Runs far from what is predicted are believed: what is expected of the next holds them.
func TestOwnFarAway(t *testing.T) {
	for _, factors := range [][]float64{{1.3, 1.3}, {2}, {2, 2, 2}, {0.5, 0.52}, {5, 5.1}} {
		list, rows := ownRows(0.03, factors...)
		own, err := Own(list, rows)
		require.NoError(t, err)
		low, high := hardware.Range(units.Seconds(own.Ratio), own.Spread)
		for _, f := range factors {
			require.LessOrEqual(t, float64(low), f, "%v: %v", factors, own)
			require.GreaterOrEqual(t, float64(high), f, "%v: %v", factors, own)
		}
	}
}

// Runs that disagree say less than runs that agree.
func TestOwnRunsThatDisagree(t *testing.T) {
	agree, rows := ownRows(0.1, 1.2, 1.2, 1.2)
	a, err := Own(agree, rows)
	require.NoError(t, err)
	differ, rows := ownRows(0.1, 1.0, 1.2, 1.44)
	d, err := Own(differ, rows)
	require.NoError(t, err)
	require.Less(t, d.Ratio, a.Ratio)
	require.Greater(t, d.Spread, 2*a.Spread)
}

// A run that was predicted closely says more than one that was not.
func TestOwnWeighs(t *testing.T) {
	list, rows := ownRows(0.1, 1.04, 1)
	rows[0].Predicted.Off[estimate.LeftOut].Share = 0.05
	near, err := Own(list, rows)
	require.NoError(t, err)
	rows[0].Predicted.Off[estimate.LeftOut].Share = 0.2
	far, err := Own(list, rows)
	require.NoError(t, err)
	require.InDelta(t, math.Log(near.Ratio), 4*math.Log(far.Ratio), 0.1*math.Log(near.Ratio)) // of both, 4 parts in 5 and 1
}

func TestOwnRefuses(t *testing.T) {
	list, rows := ownRows(0.1, 1.2, 1.2)
	other := *list[1].Job
	other.Runtime.Recipe = "torchtitan"
	list[1].Job = &other
	_, err := Own(list, rows)
	require.EqualError(t, err, "run b is of torchtitan on NVIDIA H200, others of megatron-core on NVIDIA H200; give runs of one recipe and one kind of GPU")

	list, rows = ownRows(0.1, 1000, 1100)
	_, err = Own(list, rows)
	require.ErrorContains(t, err, "times what is predicted of them, where 0.1 to 10 is believed; check the unit of step_time")

	list, rows = ownRows(0.1, 1.2)
	rows[0].Status, rows[0].Reason = Unsupported, "plan.tp: 3 does not divide 32 heads"
	_, err = Own(list, rows)
	require.ErrorContains(t, err, "no run says how long a step takes against its prediction (a: plan.tp: 3 does not divide 32 heads)")
	rows[0].Where = "runs.yaml:9:16"
	_, err = Own(list, rows)
	require.ErrorContains(t, err, "(runs.yaml:9:16: a: plan.tp: 3 does not divide 32 heads)")
	rows[0].Status, rows[0].Measured.StepTime = OK, 0
	_, err = Own(list, rows)
	require.ErrorContains(t, err, "none has a measured step_time")
}

// A log that was copied counts once, and that is said.
func TestOwnCopies(t *testing.T) {
	one := fmt.Sprintf(row, "a", "{}")
	other := strings.Replace(fmt.Sprintf(row, "d", "{}"), "157 ms", "158 ms", 1)
	own := func(rows ...string) (*strategies.OwnRuns, []string) {
		list, err := decode(file(rows...))
		require.NoError(t, err)
		got, err := Own(list, Validate(list).Rows)
		require.NoError(t, err)
		return got, Copies(list)
	}
	first, copied := own(one)
	require.Empty(t, copied)
	again, copied := own(one, strings.Replace(one, "id: a", "id: b", 1))
	require.Equal(t, first, again)
	require.Equal(t, []string{"run b has the job and the measurements of run a: for --runs they count once"}, copied)
	again, copied = own(one, strings.Replace(one, "id: a", "id: b", 1), other, strings.Replace(one, "id: a", "id: c", 1))
	require.EqualValues(t, 2, again.Runs)
	require.Equal(t, []string{"runs b, c have the job and the measurements of run a: for --runs they count once"}, copied)
	for _, change := range [][2]string{{"gpus: 1", "gpus: 2"}, {"micro_batch: 4", "micro_batch: 2"}, {"25.66 GB", "25.67 GB"}, {"plan: {}", "plan: {bucket: 1MiB}"}, {"tinyllama-1.1b", "llama3.2-1b"}, {"hf-eager", "hf-eager, release: '25.08'"}} {
		again, copied = own(one, strings.NewReplacer("id: a", "id: b", change[0], change[1]).Replace(one))
		require.EqualValues(t, 2, again.Runs, change)
		require.Empty(t, copied)
	}
}
