package fit

import (
	"embed"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/hardware"
)

// What calibrations of the reference machine measured, with the device, the
// libraries and the day in their first lines. Whoever changes a probe or one of its
// kernels measures again, and so does whoever has a larger calibration:
//
//	grep -E '"perfplan"|"probe":"(gemm|memory|adam|launch|power|overlap)"' samples.jsonl > reference/h200-2gpu.jsonl
//	grep -E '"perfplan"|"probe":"attention"' samples.jsonl > reference/h200-attention.jsonl
//
//go:embed reference/*.jsonl
var referenceFiles embed.FS

// reference is the machine of the catalog whose laws of memory-bound kernels, launches,
// power and overlap were read off PyTorch itself, together with what the probes of
// a calibration measure on it. The probes' kernels are not PyTorch's: what they tell of
// another machine is how much longer it takes over the same kernels.
type reference struct {
	*fitter
	shots map[string]shot      // by probe and case
	slow  map[string][]float64 // slowdowns
}

// theReference reads the embedded samples, once.
var theReference = sync.OnceValues(func() (*reference, error) {
	entries, err := referenceFiles.ReadDir("reference")
	if err != nil {
		return nil, err
	}
	var files []*sample.File
	var names []string
	for _, e := range entries {
		in, err := referenceFiles.Open("reference/" + e.Name())
		if err != nil {
			return nil, err
		}
		f, err := sample.Read(in, e.Name())
		if err != nil {
			return nil, err
		}
		files, names = append(files, f), append(names, e.Name())
	}
	all, err := Join(names, files)
	if err != nil {
		return nil, err
	}
	base, ok := hardware.ByDevice(all.Header.Device)
	if !ok {
		return nil, fmt.Errorf("the catalog has no machine with the GPU of the reference samples, %q", all.Header.Device)
	}
	x, err := newFitter(all, base)
	if err != nil {
		return nil, err
	}
	x.gap = float64(base.Laws.Launch.Gap)
	r := &reference{x, map[string]shot{}, x.slowdowns()}
	for _, shots := range [][]shot{x.kernelShots(), x.attentionShots()} {
		r.add(shots)
	}
	for _, shots := range x.gemmShots() {
		r.add(shots)
	}
	return r, nil
})

func (r *reference) add(shots []shot) {
	for _, s := range shots {
		r.shots[s.probe+" "+s.name] = s
	}
}

// is reports whether a GPU is of the reference's kind.
func (r *reference) is(g *hardware.GPU) bool {
	return g != nil && g.Name.Value == r.base.GPU.Name.Value
}

// told is by how much a reading differs from the reference's, as a factor: 1 where
// their uncertainties, relative and of one reading each, allow that it does not. A
// short measurement does not overrule a longer one that it does not contradict.
func told(now, then, uncertainty float64) float64 {
	if !(now > 0) || !(then > 0) || math.Abs(math.Log(now/then)) <= math.Sqrt2*uncertainty {
		return 1
	}
	return now / then
}

// drift is how far a case is from what was expected. Cases whose extents are near each
// other differ alike, as the corrections of hardware/kernel have it.
type drift struct {
	at  [3]float64 // logarithms of the extents, base 2
	log float64    // of measured over expected
}

// Weights of nearby cases, as in hardware/kernel: exp(−d²/2w²) of the distance in
// octaves, and a prior.
const (
	driftWidth = 0.5
	driftPrior = 0.3
)

// around is ln(measured/expected) at a place: the mean of the cases around it, of
// all cases where none is near. One case may be left out.
func around(cases []drift, at [3]float64, all float64, without int) float64 {
	sum, weight := driftPrior*all, driftPrior
	for i, c := range cases {
		d := 0.0
		for k := range at {
			d += (c.at[k] - at[k]) * (c.at[k] - at[k])
		}
		if i == without || d > 9*driftWidth*driftWidth {
			continue
		}
		if d < 1e-12 {
			return c.log // measured itself
		}
		e := math.Exp(-d / (2 * driftWidth * driftWidth))
		sum, weight = sum+e*c.log, weight+e
	}
	return sum / weight
}

// octaves is a place by its extents.
func octaves(a, b, c float64) [3]float64 {
	return [3]float64{math.Log2(a), math.Log2(b), math.Log2(c)}
}

// drifted is ln of the time of a case over what the base says of it: over the
// reference's time of the same case, where the base's law was measured on that GPU, since
// a probe's loop finds its operands in the cache and may pick another kernel.
func (x *fitter) drifted(s *shot, on *hardware.GPU) float64 {
	if r, ok := x.ref.shots[s.probe+" "+s.name]; ok && x.ref.is(on) {
		return math.Log(s.kernel / r.kernel)
	}
	return math.Log(s.kernel / float64(x.before.Time(&s.op)))
}

// logs are the values of drifts.
func logs(cases ...[]drift) []float64 {
	var out []float64
	for _, c := range slices.Concat(cases...) {
		out = append(out, c.log)
	}
	return out
}
