package probe

import (
	"cmp"
	"encoding/binary"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/calibrate/cuda"
	"github.com/perfplan/perfplan/calibrate/cuda/fake"
	"github.com/perfplan/perfplan/calibrate/sample"
	_ "github.com/perfplan/perfplan/internal/seed"
)

// world opens all GPUs of a fake.
func world(t *testing.T, o fake.Options) *World {
	d := fake.New(o)
	var benches []*Bench
	for i := range d.GPUs {
		b, err := NewBench(d, i)
		require.NoError(t, err)
		benches = append(benches, b)
	}
	w, err := NewWorld(d, benches, nil, "")
	require.NoError(t, err)
	return w
}

func TestMedian(t *testing.T) {
	// The orders of the interval are those of the sign test's table (Conover, Practical
	// Nonparametric Statistics, table A3): of 10 values the 2nd and 9th, of 20 the 6th
	// and 15th.
	ascending := func(n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = float64(i + 1)
		}
		return out
	}
	for n, want := range map[int][3]float64{1: {1, 1, 1}, 2: {1.5, 1, 2}, 5: {3, 1, 5}, 10: {5.5, 2, 9}, 20: {10.5, 6, 15}} {
		m, low, high := Median(ascending(n))
		require.Equal(t, want, [3]float64{m, low, high}, "%d values", n)
	}
	m, _, _ := Median(nil)
	require.Zero(t, m)
}

func TestMedianLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(1e-6, 1), 1, 60).Draw(t, "values")
		slices.SortFunc(v, cmp.Compare[float64])
		m, low, high := Median(v)
		require.True(t, v[0] <= low && low <= m && m <= high && high <= v[len(v)-1])
		require.LessOrEqual(t, Outliers(v), len(v)/2)
	})
}

func TestOutliers(t *testing.T) {
	require.Equal(t, 1, Outliers([]float64{1, 1, 1.001, 1.002, 1.5}))
	require.Zero(t, Outliers([]float64{1, 1, 1, 1, 1.019}), "less than a clock tells")
	require.Zero(t, Outliers(nil))
}

// The numbers of offsets.encode divide like a division.
func TestOffsetsDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 1<<31-1).Draw(t, "size")
		n := rapid.Uint32Range(0, 1<<31-1).Draw(t, "n")
		raw := offsets{size: []int64{size}, stride: [][3]int64{{1, 2, 3}}}.encode()
		require.Len(t, raw, 4+12*12+12*12)
		magic, shift := uint64(binary.LittleEndian.Uint32(raw[8:])), binary.LittleEndian.Uint32(raw[12:])
		q := (uint64(n)*magic>>32 + uint64(n)) >> shift
		require.Equal(t, uint64(n)/uint64(size), q)
	})
}

// Every kernel that a probe names is in kernels.cu, and none is there for nothing.
func TestKernelsExist(t *testing.T) {
	var defined []string
	for line := range strings.Lines(source) {
		if strings.HasPrefix(line, "extern \"C\" __global__") {
			name, _, _ := strings.Cut(line[strings.Index(line, "__global__")+len("__global__ "):], "(")
			if strings.Contains(line, "__launch_bounds__") {
				_, rest, _ := strings.Cut(line, ") ")
				name, _, _ = strings.Cut(rest, "(")
			}
			defined = append(defined, strings.TrimSpace(strings.TrimPrefix(name, "void ")))
		}
		if strings.HasPrefix(line, "STRIDED(") {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, "STRIDED("), ",")
			defined = append(defined, name)
		}
	}
	slices.Sort(defined)
	spy := &kernels{seen: map[string]bool{}}
	w := world(t, fake.Options{})
	w.Benches[0].GPU = spyGPU{w.Benches[0].GPU, spy}
	for _, p := range Registry() {
		if p.Applicable != nil && p.Applicable(w) != nil {
			continue
		}
		prepare(t, w, p, Full)
	}
	var used []string
	for name := range spy.seen {
		used = append(used, name)
	}
	slices.Sort(used)
	require.Equal(t, defined, used)
}

// kernels collects the names of kernels that are asked for.
type kernels struct{ seen map[string]bool }

type spyGPU struct {
	cuda.GPU
	k *kernels
}

func (g spyGPU) Kernel(s cuda.Stream, k cuda.Kernel) (cuda.Op, error) {
	g.k.seen[k.Name] = true
	return g.GPU.Kernel(s, k)
}

// prepare sets a probe up, prepares all its cases and takes one time of each.
func prepare(t *testing.T, w *World, p Probe, e Effort) {
	b := w.Benches[0]
	cases := p.Cases(w, e)
	if p.Setup != nil {
		require.NoError(t, p.Setup(w, b, cases), p.Key)
	}
	for _, c := range cases {
		trial, err := p.Prepare(w, b, c)
		require.NoError(t, err, "%s %s", p.Key, c.Key())
		r, err := trial.Once(true)
		require.NoError(t, err, "%s %s", p.Key, c.Key())
		require.NotEmpty(t, r.Seconds)
		require.NoError(t, trial.Close())
	}
	require.NoError(t, w.LeaveGroups())
	for _, b := range w.Benches {
		require.NoError(t, b.Reset())
	}
}

// Cases are different from one another, also where several GPUs bring more; a quick
// calibration measures a part of a full one's kinds.
func TestCases(t *testing.T) {
	w := world(t, fake.Options{GPUs: 4})
	for _, p := range Registry() {
		if p.Cases == nil {
			continue
		}
		for _, e := range []Effort{Quick, Full} {
			seen := map[string]bool{}
			for _, c := range p.Cases(w, e) {
				require.False(t, seen[c.Key()], "%s %s", p.Key, c.Key())
				seen[c.Key()] = true
			}
			require.NotEmpty(t, seen, p.Key)
		}
	}
	require.Equal(t, []int{2, 4}, w.groups())
}

// All probes run on several GPUs, and free what they took.
func TestAllOnFour(t *testing.T) {
	w := world(t, fake.Options{GPUs: 4})
	for _, p := range Registry() {
		if p.Applicable == nil || p.Applicable(w) == nil {
			prepare(t, w, p, Quick)
		}
	}
	require.Zero(t, w.Driver.(*fake.Driver).Live)
}

// Results are checked where the fake computes; a collective that mixes ranks up is
// found.
func TestVerify(t *testing.T) {
	w := world(t, fake.Options{GPUs: 4})
	for _, p := range []Probe{gemm, copies, attention, collective, host} {
		require.NoError(t, p.Verify(w, w.Benches[0]), p.Key)
		require.NoError(t, w.LeaveGroups())
	}
	w.first = 1
	require.ErrorContains(t, collective.Verify(w, nil), "all-reduce over 4 GPUs: rank 1 got")
	require.ErrorContains(t, memory.Verify(w, w.Benches[0]), "kernel copy of bf16: element 0 is 0, not -3", "the fake computes no kernel")
	w.Benches[0].GPU = unmasked{w.Benches[0].GPU}
	require.ErrorContains(t, attention.Verify(w, w.Benches[0]), "heads 4/2 of 64, bf16, causal true: O is ")
}

// unmasked forgets the mask of attention.
type unmasked struct{ cuda.GPU }

func (g unmasked) Attention(s cuda.Stream, a cuda.Attention) (cuda.Op, error) {
	a.Causal = false
	return g.GPU.Attention(s, a)
}

// Attention says why it cannot run.
func TestAttentionApplicable(t *testing.T) {
	require.NoError(t, attention.Applicable(world(t, fake.Options{})))
	require.EqualError(t, attention.Applicable(world(t, fake.Options{Missing: []string{"libcudnn"}})), "libcudnn not found; a fitted machine inherits the catalog's attention")
	w := world(t, fake.Options{})
	w.Benches[0].GPU = volta{w.Benches[0].GPU}
	require.ErrorContains(t, attention.Applicable(w), "compute capability 8.0")
}

// volta has no tensor cores for attention.
type volta struct{ cuda.GPU }

func (g volta) Device() cuda.Device {
	d := g.GPU.Device()
	d.Capability = [2]int{7, 0}
	return d
}

// Small GPUs get smaller cases.
func TestRoom(t *testing.T) {
	w := world(t, fake.Options{MaxAlloc: 1 << 30})
	full := len(gemm.Cases(w, Full))
	w.Benches[0].GPU = smallGPU{w.Benches[0].GPU}
	small := gemm.Cases(w, Full)
	require.NotEmpty(t, small)
	require.Less(t, len(small), full)
	for _, p := range []Probe{gemm, memory, adam, attention} {
		require.NoError(t, p.Setup(w, w.Benches[0], p.Cases(w, Full)), p.Key)
		require.NoError(t, w.Benches[0].Reset())
	}
}

// smallGPU has 4 GiB.
type smallGPU struct{ cuda.GPU }

func (g smallGPU) Device() cuda.Device {
	d := g.GPU.Device()
	d.Memory, d.Free = 4<<30, 3<<30
	return d
}

func TestSample(t *testing.T) {
	s := Sample(power, Case{"class": "gemm", "mode": sample.Sustained}, 2, []Reading{{Seconds: []float64{3, 1}}, {Seconds: []float64{2}, Telemetry: cuda.Telemetry{ClockHz: 1, Throttled: "power-cap"}}})
	require.Equal(t, sample.Sample{Probe: "power", Case: map[string]string{"class": "gemm", "mode": "sustained"}, GPU: 2, Seconds: 2, Low: 1, High: 3, Repeats: 3, Outliers: 0, ClockHz: 1, Throttled: "power-cap", Mode: sample.Sustained}, s)
}

// real runs the host's code, and takes its time.
type real struct{ cuda.Driver }

func (real) Now() time.Time  { return time.Now() }
func (real) Run(code func()) { code() }

// The probe of the host formats its text, in a time that a host needs for it, and leaves
// garbage collection as it was.
func TestHost(t *testing.T) {
	w := world(t, fake.Options{})
	w.Benches[0].Driver = real{w.Driver}
	was := debug.SetGCPercent(50)
	defer debug.SetGCPercent(was)
	trial, err := host.Prepare(w, w.Benches[0], nil)
	require.NoError(t, err)
	r, err := trial.Once(false)
	require.NoError(t, err)
	require.Len(t, r.Seconds, 1)
	require.Greater(t, r.Seconds[0], 50e-6)
	require.Less(t, r.Seconds[0], 0.5)
	require.Equal(t, 50, debug.SetGCPercent(50))

	text := hostText
	defer func() { hostText = text }()
	hostText = []byte("package  p\n")
	require.ErrorContains(t, host.Verify(w, nil), "otherwise")
	hostText = []byte("no Go")
	require.Error(t, host.Verify(w, nil))
	_, err = trial.Once(false)
	require.Error(t, err)
}

// What changes from minute to minute is read again after each other probe, in cases that
// are told apart, for a part of the time; what runs alone is read once.
func TestSequence(t *testing.T) {
	keys := func(names ...string) (out []string) {
		probes, err := Select(names)
		require.NoError(t, err)
		seen := map[string]bool{}
		for _, p := range Sequence(probes) {
			out = append(out, p.Key)
			if p.Key != host.Key {
				continue
			}
			for _, c := range p.Cases(nil, Quick) {
				require.False(t, seen[c.Key()], c.Key())
				seen[c.Key()] = true
				require.Equal(t, "format", c["code"])
			}
			if len(seen) > 1 {
				require.Less(t, p.Share, host.Share)
			}
		}
		return out
	}
	require.Equal(t, []string{"host"}, keys("host"))
	require.Equal(t, []string{"launch", "gemm"}, keys("gemm", "launch"))
	require.Equal(t, []string{"launch", "host", "memory", "host", "gemm", "host"}, keys("host", "gemm", "launch", "memory"))
	all := keys()
	require.Len(t, all, 2*len(Registry())-2)
	require.Equal(t, "host", all[len(all)-1])
}
