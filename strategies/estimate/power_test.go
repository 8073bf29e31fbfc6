package estimate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// TestClockAt: at the clock found the dynamic energy is what was left for it, unless
// even the full clock draws less or the lowest more; GEMMs draw no more above their own.
func TestClockAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, low, high float64) float64 { return rapid.Float64Range(low, high).Draw(t, name) }
		law := &hardware.PowerLaw{Exponent: draw("exponent", 1, 3)}
		p := &pricer{machine: &machine{law: lawView{gemmClock: draw("gemm clock", 0.5, 1), gemmPower: draw("gemm exponent", 1, 3)}},
			job: &strategies.Job{Hardware: &hardware.Profile{Laws: hardware.Laws{Power: law}}}}
		d := &demand{gemms: draw("gemms", 0, 500), others: draw("others", 1, 500)}
		left := draw("left", 0, 1000)
		energy := func(r float64) float64 {
			return d.gemms*math.Pow(min(r, p.law.gemmClock), p.law.gemmPower) + d.others*math.Pow(r, law.Exponent)
		}
		r := p.clockAt(left, d)
		switch {
		case r == 1:
			require.LessOrEqual(t, energy(1), left+1e-6)
		case r == 0.3:
			require.GreaterOrEqual(t, energy(0.3), left-1e-6)
		default:
			require.InDelta(t, left, energy(r), 1e-6)
		}
	})
}

// TestSustainedProducts: the clock to which the limit takes an H200 that does nothing but
// multiply 8192³ matrices (measured for 4 s each, 2026-11-21, at 692 W).
func TestSustainedProducts(t *testing.T) {
	h, m := catalogMachine(t, "h200-sxm")
	law := h.Laws.Power
	gemm := law.Class[workNames[gemmWork]]
	for _, c := range []struct {
		dtype  tape.DType
		layout tape.Layout
		clock  float64
	}{
		{tape.BF16, tape.LayoutForward, 1486e6}, {tape.FP8, tape.LayoutForward, 1446e6}, {tape.FP8, tape.LayoutDgrad, 1377e6},
	} {
		o := tape.Op{Prim: "linear", Class: tape.GEMM, DType: c.dtype, Layout: c.layout, M: 8192, N: 8192, K: 8192, FLOPs: 2 * 8192 * 8192 * 8192, Count: 1}
		use := m.utilization(&o)
		clock := float64(h.GPU.MaxClock.Value) * math.Pow(float64(law.Cap-gemm.Static)/(float64(gemm.Full-gemm.Static)*use), 1/m.law.gemmPower)
		require.InEpsilon(t, c.clock, clock, 0.02, "%s %s", c.dtype, c.layout)
	}
}

// TestSustainedSpark: a DGX Spark that does nothing but multiply 8192³ matrices has 60 TFLOP/s at 100 W (J. Carmack, 2025-10-27), of 93.3 in short loops.
func TestSustainedSpark(t *testing.T) {
	rate, _ := loop(t, "gb10", tape.BF16, 8192)
	require.InEpsilon(t, 60e12, rate, 0.03)
}

// catalogMachine is a GPU of the catalog and what prices work on it.
func catalogMachine(t *testing.T, gpu string) (*hardware.Profile, *machine) {
	t.Helper()
	h, err := hardware.Load(gpu)
	require.NoError(t, err)
	m, err := newMachine(h)
	require.NoError(t, err)
	return h, m
}

// loop is the rate at which a GPU that was idle multiplies n³ matrices in 16 or 32 bits for 0.3 s (FLOP/s), and in a
// clock of its highest rate (FLOP).
func loop(t *testing.T, gpu string, dtype tape.DType, n int64) (rate, cycle float64) {
	h, m := catalogMachine(t, gpu)
	p := pricer{machine: m, job: &strategies.Job{Hardware: h, GPUs: 1}, own: 1, pace: 1, uneven: 1}
	o := tape.Op{Prim: "linear", Class: tape.GEMM, DType: dtype, Layout: tape.LayoutForward, M: n, N: n, K: n, FLOPs: units.FLOPs(2 * n * n * n), Count: 1}
	c, law := p.card(), h.Laws.Power.Class[workNames[gemmWork]]
	dynamic := float64(law.Full-law.Static) * c.scale * m.utilization(&o)
	p.clock = fullClock
	cycle = float64(o.FLOPs) / float64(p.device(&o)) / (m.law.gemmClock * float64(h.GPU.TopClock()))
	spared := c.spared(10) / 0.3 * (c.limit - 270*c.scale) // by the pause before it: see TestPauses
	p.clock = p.at(p.clockAt(c.limit-float64(law.Static)*c.scale+spared, &demand{gemms: dynamic}))
	return float64(o.FLOPs) / float64(p.device(&o)), cycle
}

// TestPartsOfHopper: parts of one chip multiply as much in a clock of an SM in bursts, whatever clock their datasheets
// give the peak at; and what PyTorch reaches for 0.2 to 0.4 s on an H100 SXM, an H100 PCIe and an H800 PCIe, which
// are the same but for links (zzc0721/torch-performance-test-data issues 79, 95 and 112).
func TestPartsOfHopper(t *testing.T) {
	_, own := loop(t, "h100-sxm", tape.BF16, 10240)
	for _, c := range []struct {
		gpu      string
		sms      float64
		measured map[tape.DType][]float64 // TFLOP/s
	}{
		{"h100-sxm", 132, map[tape.DType][]float64{tape.BF16: {719.72}, tape.F16: {668.42}, tape.TF32: {376.66}}},
		{"h100-pcie", 114, map[tape.DType][]float64{tape.BF16: {471.79, 487.22}, tape.F16: {449.65, 462.26}, tape.TF32: {225.65, 229.82}}},
		{"h100-nvl", 132, nil},
	} {
		_, cycle := loop(t, c.gpu, tape.BF16, 10240)
		require.InEpsilon(t, own/132, cycle/c.sms, 0.02, c.gpu)
		for dtype, all := range c.measured {
			rate, _ := loop(t, c.gpu, dtype, 10240)
			for _, x := range all {
				require.InEpsilon(t, x*1e12, rate, 0.07, "%s %s", c.gpu, dtype)
			}
		}
	}
}

// TestVectorPower: an H200 that does nothing but multiply in fp32 on its vector units draws 653 to 701 W at
// 1965 to 1980 MHz (2.5 s each, 2026-11-28).
func TestVectorPower(t *testing.T) {
	h, m := catalogMachine(t, "h200-sxm")
	gemm := h.Laws.Power.Class[workNames[gemmWork]]
	for _, c := range []struct {
		m, n, k int64
		layout  tape.Layout
		power   float64
	}{
		{8192, 8192, 8192, tape.LayoutForward, 699}, {8192, 3584, 4096, tape.LayoutForward, 701}, {3584, 4096, 8192, tape.LayoutWgrad, 653},
	} {
		o := tape.Op{Prim: "linear", Class: tape.GEMM, DType: tape.F32, Layout: c.layout, M: c.m, N: c.n, K: c.k, FLOPs: units.FLOPs(2 * c.m * c.n * c.k), Count: 1}
		require.InEpsilon(t, c.power, float64(gemm.Static)+float64(gemm.Full-gemm.Static)*m.utilization(&o), 0.06, c)
	}
}

// TestGroupedPower: PyTorch's grouped GEMMs against cuBLAS with the same products (an H200 at 690 W, 2.8 s
// each, 2026-11-26): the clocks that they settle at, for the rates that they reach in bursts.
func TestGroupedPower(t *testing.T) {
	_, m := catalogMachine(t, "h200-sxm")
	use := func(o tape.Op) float64 { return m.utilization(&o) / m.timer.Utilization(&o) }
	grouped := tape.Op{Prim: "grouped_mm", Class: tape.GroupedGEMM, DType: tape.BF16, M: 16384, N: 14336, K: 4096, Batch: 8, FLOPs: 2 * 16384 * 14336 * 4096, Count: 1}
	var sum [2]float64
	for _, c := range []struct{ burst, grouped, clock float64 }{ // TFLOP/s, or none of cuBLAS; MHz
		{706.4, 1, 1302}, {716.2, 1, 1284}, {733.1, 1, 1327}, {767.8, 1, 1448}, {775.3, 1, 1440}, {704.4, 1, 1356}, {713.2, 1, 1276}, {709.8, 1, 1306}, {782.3, 1, 1436},
		{640.1, 1, 1424}, {617.9, 1, 1598}, {701.4, 1, 1426}, {627.7, 1, 1398}, {667.5, 1, 1428}, {693.7, 1, 1459}, {741.7, 1, 1431}, {733.8, 1, 1501}, {746.8, 1, 1467},
		{796.4, 0, 1430}, {783.5, 0, 1435}, {759.1, 0, 1462}, {763.5, 0, 1450}, {681.7, 0, 1437}, {700.1, 0, 1411}, {690.5, 0, 1476}, {758.7, 0, 1456}, {755.9, 0, 1498},
	} {
		power := math.Pow(c.clock, -m.law.gemmPower) / c.burst
		sum[int(c.grouped)] += power / (9 + 9*c.grouped)
	}
	require.InEpsilon(t, sum[1]/sum[0], use(grouped), 0.01)
	each := grouped
	each.Calls = true
	require.Equal(t, 1.0, use(each), "a call of cuBLAS for each expert")
}

// TestHalfZeros: the time of an MLP's six products at the limit where half of an operand of
// four are zeros, and of one of these four by itself, over that without zeros (an H100 at 699 W, 8192 rows
// by 6144 by 24576, 2.5 s each, means of two, 2026-11-23).
func TestHalfZeros(t *testing.T) {
	h, m := catalogMachine(t, "h100-sxm")
	power := func(half bool) float64 {
		return m.utilization(&tape.Op{Prim: "linear", Class: tape.GEMM, DType: tape.BF16, M: 8192, N: 6144, K: 24576, FLOPs: 2 * 8192 * 6144 * 24576, Count: 1, Zeros: half})
	}
	share := func(halves float64) float64 {
		return math.Pow((halves*power(true)+(6-halves)*power(false))/(6*power(false)), h.Laws.Power.GEMMExp/m.law.gemmPower)
	}
	require.InDelta(t, 0.963, share(6), 0.006, "each of four: 0.958, 0.961, 0.964, 0.968")
	require.InDelta(t, 0.974, share(4), 0.004)
}

// TestPauses: how much faster than without pauses an H200 multiplies 8192³ matrices in
// bursts of so many milliseconds with pauses between them (measured for 4 to 7 s each,
// 2026-11-23; a pause draws some 270 W).
func TestPauses(t *testing.T) {
	h, m := catalogMachine(t, "h200-sxm")
	p := pricer{machine: m, job: &strategies.Job{Hardware: h, GPUs: 1}, own: 1}
	c, law := p.card(), h.Laws.Power.Class[workNames[gemmWork]]
	var squares float64
	cases := []struct{ burst, pause, faster float64 }{
		{8, 1, 1.081}, {15, 3, 1.076}, {38, 7, 1.081}, {76, 13, 1.079}, {156, 28, 1.058}, {393, 69, 1.050}, {802, 141, 1.029}, {1629, 287, 1.013},
		{6, 2, 1.167}, {11, 5, 1.162}, {30, 13, 1.139}, {61, 26, 1.108}, {123, 53, 1.100}, {324, 139, 1.048}, {658, 282, 1.034}, {1345, 577, 1.011},
		{4, 4, 1.183}, {8, 8, 1.192}, {21, 21, 1.189}, {41, 41, 1.175}, {86, 86, 1.126}, {228, 228, 1.064}, {464, 464, 1.045}, {954, 954, 1.017},
	}
	for _, x := range cases {
		spared := c.spared(units.Seconds(x.pause/1e3)) * (c.limit - 270) // joules beyond the limit
		dynamic := c.limit - float64(law.Static)
		faster := min(math.Pow(1+spared/(x.burst/1e3)/dynamic, c.law.GEMMExp/m.law.gemmPower), 1.19) // 1.19: at the full clock
		require.InEpsilon(t, x.faster, faster, 0.05, "%v", x)
		squares += (faster/x.faster - 1) * (faster/x.faster - 1)
	}
	require.Less(t, math.Sqrt(squares/float64(len(cases))), 0.016)
}

// TestEnergyOfStep: power is the energy of a step over its time, whatever runs beside
// what, and no card draws more than its limit. Tensor ranks that wait for each other's
// values idle as they do: the energy of four steps on two and four H200 is within 7 % (h200-tp).
func TestEnergyOfStep(t *testing.T) {
	for _, job := range []string{
		"{model: llama3-8b, hardware: h200-sxm, gpus: 8, plan: {tp: 8}, train: {micro_batch: 4, grad_accumulation: 16}}",
		"{model: llama3-70b, hardware: h100-sxm, gpus: 64, plan: {tp: 4, pp: 4, schedule: interleaved-1f1b, virtual_stages: 5}, train: {micro_batch: 1, grad_accumulation: 64}}",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {recipe: torchtitan}, plan: {cp: 4, dp: 2, data_parallel: fsdp2}, train: {sequence_length: 32768, micro_batch: 1}}",
		"{model: mixtral-8x7b, hardware: b200-sxm, gpus: 16, plan: {ep: 8}, train: {micro_batch: 1, grad_accumulation: 8}}",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 8, plan: {dp: 8, data_parallel: ddp}, train: {micro_batch: 1, grad_accumulation: 64}}",
	} {
		r := mustEstimate(t, mustParse(t, job))
		require.InEpsilon(t, float64(r.Energy), float64(r.Power)*float64(r.StepTime), 1e-9, job)
		require.LessOrEqual(t, float64(r.Power), 1.01*float64(r.Job.Hardware.GPU.Power.Value), job)
	}
}

// TestSlowdowns: what kernels of an H200 take at the clocks that NVML reads at its limit, over bursts at 1980 MHz (loops of
// 1 to 2 s and in turn with products of 8192³, 8 ms and 2 ms, PyTorch 2.11, 2026-11-30; products over what the curves say).
func TestSlowdowns(t *testing.T) {
	h, err := hardware.Load("h200-sxm")
	require.NoError(t, err)
	for _, c := range []struct {
		what          string
		work          work
		clock, slower float64
	}{
		{"8192 x 8192 x 8192, over and over", gemmWork, 1468, 1.165}, {"8192 x 11008 x 4096", gemmWork, 1464, 1.177}, {"8192 x 3072 x 3072", gemmWork, 1507, 1.145},
		{"8192 x 2048 x 2048", gemmWork, 1582, 1.100}, {"a traced step of Llama 3 8B", gemmWork, 1644, 1.081}, {"of Llama 3.2 3B", gemmWork, 1699, 1.067},
		{"width 128 beside products, forward", attentionWork, 1483, 1.268}, {"backward too", attentionWork, 1502, 1.262}, {"alone", attentionWork, 1741, 1.132}, {"backward", attentionWork, 1752, 1.092},
		{"transposed copy", issueWork, 1635, 1.100}, {"cast", issueWork, 1620, 1.087}, {"concatenation", issueWork, 1638, 1.135}, {"SiLU", issueWork, 1515, 1.171},
		{"product of vectors", memoryWork, 1564, 1.000}, {"copy", memoryWork, 1590, 1.002}, {"AdamW", memoryWork, 1614, 1.048}, {"AdamW, 20 ms in turn", memoryWork, 1773, 1.018}, {"sum", memoryWork, 1586, 1.019},
	} {
		got := h.Laws.Power.Slowdown(workNames[c.work], &h.GPU, c.clock*1e6/float64(h.GPU.TopClock()))
		require.InEpsilon(t, c.slower, got, 0.045, "%s: %s", workNames[c.work], c.what)
	}
}

// TestMixtures: the clocks that NVML reads where products of 8192³ take a share of the time and work of so many watts the
// rest (H200, 8 ms and 2 ms in turn, 690 W, 2026-11-30).
func TestMixtures(t *testing.T) {
	h, m := catalogMachine(t, "h200-sxm")
	p := pricer{machine: m, job: &strategies.Job{Hardware: h, GPUs: 1}, own: 1}
	gemm := h.Laws.Power.Class[workNames[gemmWork]]
	product := tape.Op{Prim: "linear", Class: tape.GEMM, DType: tape.BF16, M: 8192, N: 8192, K: 8192, FLOPs: 2 * 8192 * 8192 * 8192, Count: 1}
	dynamic := float64(gemm.Full-gemm.Static) * m.utilization(&product)
	for _, c := range []struct {
		what                string
		share, watts, clock float64
	}{
		{"nothing", 1, 0, 1468}, {"AdamW", 0.808, 411, 1614}, {"fills", 0.817, 357, 1635}, {"concatenations", 0.796, 357, 1638}, {"casts", 0.805, 366, 1620}, {"transposed copies", 0.805, 393, 1635}, {"sums", 0.825, 572, 1586}, {"copies", 0.818, 592, 1590},
	} {
		left := float64(h.Laws.Power.Cap) - c.share*float64(gemm.Static) - (1-c.share)*c.watts
		got := p.clockAt(left, &demand{gemms: c.share * dynamic}) * float64(h.GPU.TopClock()) / 1e6
		require.InEpsilon(t, c.clock, got, 0.035, c.what)
	}
}

// TestLimitOfModule: what the module's limit leaves a GPU of JUPITER under a quarter of a 32B's layers,
// as its tensor ranks have them (tiberiuiancu/Simulon, experiments/trace_*.clocks.csv @c5c0969e): 545 to
// 576 W on two nodes. An H200's share of its limit, 690 of 700 W, is taken for it.
func TestLimitOfModule(t *testing.T) {
	r := mustEstimate(t, mustParse(t, `{model: {model_type: decoder, hidden_size: 5120, num_hidden_layers: 16, num_attention_heads: 16, num_key_value_heads: 2, head_dim: 128, intermediate_size: 6400, gated_mlp: true, norm: rmsnorm, qk_norm: head, vocab_size: 65536, tie_word_embeddings: false},
		hardware: jupiter-gh200, gpus: 1, runtime: {recipe: megatron-script, release: "26.04", cuda_graphs: none}, plan: {data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 2, grad_accumulation: 16, precision: bf16}}`))
	require.InDelta(t, 560, float64(r.Power), 15)
}
