package runs

import (
	"fmt"
	"math"
	"os"
	"sort"
	"testing"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies/estimate"
)

func TestQuick(t *testing.T) {
	file := os.Getenv("QUICK")
	if file == "" {
		t.Skip()
	}
	doc, err := yamlx.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := Decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	type agg struct{ e, m, r []float64 }
	groups := map[string]*agg{}
	pct := func(p, m float64) float64 {
		if m == 0 {
			return math.NaN()
		}
		return (p/m - 1) * 100
	}
	for _, r := range rs {
		if os.Getenv("GROUP") != "" && r.Group != os.Getenv("GROUP") {
			continue
		}
		if r.Err != nil {
			fmt.Println(r.ID, r.Group, "ERR", r.Err)
			continue
		}
		res, err := estimate.Estimate(r.Job, estimate.Options{})
		if err != nil {
			fmt.Println(r.ID, "EST", err)
			continue
		}
		m := r.Measured
		a := groups[r.Group]
		if a == nil {
			a = &agg{}
			groups[r.Group] = a
		}
		e := pct(float64(res.StepTime), float64(m.StepTime))
		pm := pct(float64(res.Memory.PeakAllocated), float64(m.PeakAllocated))
		pr := pct(float64(res.Memory.PeakReserved), float64(m.PeakReserved))
		a.e = append(a.e, e)
		if !math.IsNaN(pm) {
			a.m = append(a.m, pm)
		}
		if !math.IsNaN(pr) {
			a.r = append(a.r, pr)
		}
		if os.Getenv("V") != "" && len(m.PerStage) > 0 {
			fmt.Print("   stages ")
			for i, b := range m.PerStage {
				fmt.Printf("%.3f/%.3f (%+.2f%%) ", float64(res.Memory.ByStage[i])/1e9, float64(b)/1e9, pct(float64(res.Memory.ByStage[i]), float64(b)))
			}
			for _, st := range res.Stages {
				fmt.Printf(" F %.2f B %.2f", float64(st.Forward)*1e3, float64(st.Backward)*1e3)
			}
			fmt.Println()
		}
		if os.Getenv("V") != "" {
			fmt.Printf("%-18s %-18s %-15s g%d %s b%d s%d a%d %-13s %-9s | step %8.1f %+6.1f%% fwd %+6.1f bwd %+6.1f opt %+6.1f | mem %+6.2f res %+6.1f dev %+6.1f | clk %4.0f/%4.0f E %+5.1f host %.1f exp %.1f %s\n", r.ID, r.Group, r.Name, r.Job.GPUs, r.Job.Plan.String(), r.Job.Train.MicroBatch, r.Job.Train.SequenceLength, r.Job.Train.GradAccumulation, r.Job.Train.Precision, r.Job.Train.Recompute,
				float64(res.StepTime)*1e3, e, pct(float64(res.Forward), float64(m.ForwardTime)), pct(float64(res.Backward), float64(m.BackwardTime)), pct(float64(res.Optimizer), float64(m.OptimizerTime)), pm, pr, pct(float64(res.Memory.DeviceUsed), float64(m.DeviceUsed)),
				float64(res.Clock)/1e6, float64(m.Clock)/1e6, pct(float64(res.Energy), float64(m.Energy)), float64(res.HostIdle)*1e3, float64(res.Parts.Exposed)*1e3, res.Memory.Moment)
		}
	}
	stat := func(v []float64) string {
		if len(v) == 0 {
			return "-"
		}
		s, sg := 0.0, 0.0
		abs := []float64{}
		for _, x := range v {
			s += math.Abs(x)
			sg += x
			abs = append(abs, math.Abs(x))
		}
		sort.Float64s(abs)
		return fmt.Sprintf("n %3d mean %.2f median %.2f max %.1f signed %+.2f", len(v), s/float64(len(v)), abs[len(abs)/2], abs[len(abs)-1], sg/float64(len(v)))
	}
	var names []string
	all := &agg{}
	for g, a := range groups {
		names = append(names, g)
		all.e = append(all.e, a.e...)
		all.m = append(all.m, a.m...)
		all.r = append(all.r, a.r...)
	}
	sort.Strings(names)
	for _, g := range names {
		fmt.Printf("%-28s step %s | mem %s | res %s\n", g, stat(groups[g].e), stat(groups[g].m), stat(groups[g].r))
	}
	fmt.Printf("%-28s step %s | mem %s | res %s\n", "all", stat(all.e), stat(all.m), stat(all.r))
}
