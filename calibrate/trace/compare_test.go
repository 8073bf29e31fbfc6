package trace

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// embedded are the measured runs, which take a second to read and under the race detector
// twenty: there those of one file will do.
var embedded = sync.OnceValues(func() ([]runs.Run, error) {
	if !testing.Short() {
		return runs.Embedded(nil)
	}
	const name = "../runs/data/h200-steps.yaml"
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	doc, err := yamlx.Parse(name, text)
	if err != nil {
		return nil, err
	}
	return runs.Decode(doc)
})

// Without a pipeline the predicted kernels, idle time and exposed communication add up
// to the predicted step, and classes to their family.
func TestPredictedPartsAddUp(t *testing.T) {
	t.Parallel()
	list, err := embedded()
	require.NoError(t, err)
	for i := range list {
		run := &list[i]
		if run.Err != nil || run.Job.Plan.PP > 1 || run.Measured.StepTime <= 0 {
			continue
		}
		if testing.Short() && i%10 > 0 { // the race detector finds no more in all of them
			continue
		}
		r, err := estimate.Estimate(run.Job, estimate.Options{Detail: true})
		if err != nil {
			continue // validate names the runs that no recipe has
		}
		c, err := Compare(r, []*Summary{{Span: Seconds(r.StepTime)}})
		require.NoError(t, err)
		beside := predicted(r, func(string, Amount) {})
		sum := c.Term(Compute).Predicted - beside + c.Term(Idle).Predicted + c.Term(Exposed).Predicted
		require.InEpsilon(t, float64(r.StepTime), float64(sum), 1e-3, run.ID)
		for _, f := range c.Families {
			require.NotEqual(t, Other, f.Name, run.ID)
			var classes Amount
			for _, l := range f.Classes {
				classes.add(l.Predicted)
			}
			require.Equal(t, f.Predicted, classes, run.ID)
		}
	}
}

// byID is the estimate of an embedded run.
func byID(t *testing.T, id string) *estimate.Result {
	list, err := embedded()
	require.NoError(t, err)
	for i := range list {
		if list[i].ID == id {
			r, err := estimate.Estimate(list[i].Job, estimate.Options{Detail: true})
			require.NoError(t, err)
			return r
		}
	}
	t.Fatalf("no run %s", id)
	return nil
}

func TestLargestDifferencesInWords(t *testing.T) {
	r := byID(t, "h200x1-t0-00")
	base, err := LoadSummary("testdata/h200x1-t0-00.rank0.json")
	require.NoError(t, err)
	change := func(f func(s *Summary)) *Comparison {
		s := *base
		s.Kernels = append([]Sum(nil), base.Kernels...)
		f(&s)
		c, err := Compare(r, []*Summary{&s})
		require.NoError(t, err)
		require.Len(t, c.Largest, mostDifferences)
		return c
	}
	set := func(s *Summary, class string, time Seconds) {
		for i := range s.Kernels {
			if s.Kernels[i].Class == class {
				s.Kernels[i].Time = time
				return
			}
		}
		s.Kernels = append(s.Kernels, Sum{Class: class, Count: 1, Time: time, Longest: "name_of_it"})
	}
	for _, c := range []struct {
		change   func(s *Summary)
		of, text string
	}{
		{func(s *Summary) { set(s, "gemm", 0.1) }, "gemm", "The family gemm is slower than predicted, with 88 kernels instead of 87: 100.0 ms traced"},
		{func(s *Summary) { set(s, "unrolled", 0.1) }, "elementwise", "most in class unrolled (100.0 ms traced"},
		{func(s *Summary) { set(s, "norm-forward", 0.1) }, "norm", "Kernels of the family norm run that the prediction does not have, such as name_of_it: 100.0 ms traced, 0 s predicted"},
		{func(s *Summary) { s.Idle = 0.1 }, Idle, "The device is idle longer than predicted"},
		{func(s *Summary) { s.Exposed = 0.1 }, Exposed, "More communication is exposed than predicted"},
		{func(s *Summary) {
			set(s, "gemm", 0)
		}, "gemm", "The prediction has kernels of the family gemm that do not run"},
	} {
		got := change(c.change)
		require.Equal(t, c.of, got.Largest[0].Of)
		require.Contains(t, got.Largest[0].Text, c.text)
	}
	require.Contains(t, change(func(s *Summary) { set(s, Other, 0.01) }).Notes[1].Text, "of no known class, most of the time in name_of_it")
	require.Contains(t, change(func(s *Summary) { s.Cut = true }).Notes[1].Text, "is taken to begin with its first kernel")
}

// Of a pipeline, the traces of the stages that the prediction is of are taken.
func TestStagesOfAPipeline(t *testing.T) {
	r := byID(t, "h200x4-t5-00")
	var traces []*Summary
	for rank := range 4 {
		traces = append(traces, &Summary{Rank: rank, World: 4, Span: 1})
	}
	c, err := Compare(r, traces)
	require.NoError(t, err)
	require.Equal(t, traces[r.Detail.Rank:r.Detail.Rank+1], c.Traces)
	other := traces[(r.Detail.Rank+1)%4]
	c, err = Compare(r, []*Summary{other})
	require.NoError(t, err)
	require.Equal(t, []*Summary{other}, c.Traces)
	require.Contains(t, c.Notes[0].Text, "the traces are of others, whose stages differ")
}

// TestStagesByOrder: the ranks of a stage stand where plan.order counts them, whatever the number of
// replicas that were traced where pipeline ranks come last.
func TestStagesByOrder(t *testing.T) {
	for _, c := range []struct {
		order string
		world int
		ranks map[int][]int // by pipeline rank
	}{
		{"tp-cp-ep-dp-pp", 8, map[int][]int{0: {0, 1, 2, 3}, 1: {4, 5, 6, 7}}},
		{"tp-cp-ep-dp-pp", 4, map[int][]int{0: {0, 1}, 1: {2, 3}}},
		{"tp-cp-ep-pp-dp", 8, map[int][]int{0: {0, 1, 4, 5}, 1: {2, 3, 6, 7}}},
	} {
		doc, err := yamlx.Parse("job.yaml", []byte("{model: llama2-7b, hardware: h100-sxm, gpus: 8, plan: {tp: 2, pp: 2, order: "+c.order+"}}"))
		require.NoError(t, err)
		job, err := strategies.Decode(doc, doc.Root)
		require.NoError(t, err)
		r, err := estimate.Estimate(job, estimate.Options{Detail: true})
		require.NoError(t, err)
		var traces []*Summary
		for rank := range c.world {
			traces = append(traces, &Summary{Rank: rank, World: c.world, Span: 1})
		}
		found, err := Compare(r, traces)
		require.NoError(t, err)
		var ranks []int
		for _, s := range found.Traces {
			ranks = append(ranks, s.Rank)
		}
		require.Equal(t, c.ranks[r.Detail.Rank], ranks, c.order)
	}
}

// What a trace says of itself is held against the job.
func TestForeignTraces(t *testing.T) {
	r := byID(t, "h200x1-t0-00") // on one H200
	span := Seconds(r.StepTime)
	for name, c := range map[string]struct {
		traces []*Summary
		codes  []string
	}{
		"own":         {[]*Summary{{Rank: 0, World: 1, GPU: "NVIDIA H200", Span: span}}, nil},
		"silent":      {[]*Summary{{Rank: -1, Span: span}, {Rank: -1, Span: span}}, nil},
		"short name":  {[]*Summary{{GPU: "NVIDIA H200 SXM", Span: span}}, nil},
		"other GPU":   {[]*Summary{{GPU: "NVIDIA A100-SXM4-80GB", Span: span}}, []string{"compare.gpu"}},
		"a prefix":    {[]*Summary{{GPU: "NVIDIA H20", Span: span}}, []string{"compare.gpu"}},
		"other world": {[]*Summary{{World: 8, Span: span}}, []string{"compare.world"}},
		"rank twice":  {[]*Summary{{Rank: 3, Span: span}, {Rank: 3, Span: span}}, []string{"compare.rank"}},
	} {
		got, err := Compare(r, c.traces)
		require.NoError(t, err)
		var codes []string
		for _, n := range got.Notes {
			if n.Code != "compare.clock" {
				codes = append(codes, n.Code)
			}
		}
		require.Equal(t, c.codes, codes, name)
	}
}
