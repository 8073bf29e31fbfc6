package fake

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// Options say what machine to model. The zero value is one GPU near an H200 without
// noise or failures.
type Options struct {
	GPUs  int     // 1 when 0
	Noise float64 // standard deviation of single executions, relative
	Seed  uint64

	MaxAlloc   int64          // an allocation beyond this fails; 0: the GPU's memory
	FailKernel string         // a kernel of this name, a GEMM of this dtype or all attention, fails when prepared
	LostAfter  map[int]int    // by GPU: after so many calls of Enqueue all its calls fail
	Busy       map[int]int    // by GPU: other processes on it
	Missing    []string       // libraries that are not there
	NoNVML     bool           // clocks and power unknown
	Start      time.Time      // of the virtual clock
	OnSleep    func(wait int) // called at every Sleep with its number
}

// The modelled GPU: rates near those of an H200 (hardware/catalog/h200-sxm.yaml).
const (
	peak      = 800e12 // FLOP/s of bf16 reached by large products at the highest clock
	bandwidth = 4.2e12 // B/s
	issue     = 400e9  // elements/s
	gap       = 1.0e-6 // s between dependent kernels
	floor     = 1.5e-6 // s of the smallest kernel
	hostCost  = 2.0e-6 // s of a launch on the host
	codeCost  = 26e-3  // s of code of the host's own
	maxClock  = 1980e6 // Hz
	limit     = 700.0  // W
	idle      = 120.0  // W
	memory    = 140 << 30
	link      = 350e9 // B/s of a collective
	alpha     = 12e-6 // s of a collective
	pcie      = 50e9  // B/s
	inertia   = 0.05  // s over which power is averaged
	contend   = 1.3   // slowdown of work beside other work
)

// watts of a kind of work at the highest clock.
var watts = map[string]float64{"gemm": 1000, "attention": 900, "memory": 600, "comm": 300}

// Driver is the fake driver. Its fields may be read by tests.
type Driver struct {
	Options
	now     float64 // virtual host time, s
	rng     *rand.Rand
	gpus    []*gpu
	streams []*stream
	sleeps  int
	Live    int // buffers not yet freed
}

// New makes a driver.
func New(o Options) *Driver {
	o.GPUs = cmp.Or(o.GPUs, 1)
	if o.Start.IsZero() {
		o.Start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	}
	return &Driver{Options: o, rng: rand.New(rand.NewPCG(o.Seed, 1))}
}

func (d *Driver) Versions() cuda.Versions {
	return cuda.Versions{Driver: "580.00", CUDA: "13.0", CuBLASLt: "13.0.0", NVRTC: "13.0", NCCL: "2.28.9", CuDNN: "9.14.0"}
}

func (d *Driver) Libraries() []cuda.Library {
	var out []cuda.Library
	for _, n := range []string{"libcuda", "libnvrtc", "libcublasLt", "libnccl", "libcudnn"} {
		out = append(out, cuda.Library{Name: n, Path: "fake/" + n, Err: d.needs(n)})
	}
	return out
}

func (d *Driver) needs(library string) error {
	if slices.Contains(d.Missing, library) {
		return &cuda.Unavailable{Text: library + " not found"}
	}
	return nil
}

func (d *Driver) Devices() []cuda.Device {
	var out []cuda.Device
	for i := range d.GPUs {
		dev := cuda.Device{Index: i, Name: "NVIDIA H200", Bus: fmt.Sprintf("0000:%02x:00.0", i+1), Memory: memory, SMs: 132,
			MaxClock: maxClock, Capability: [2]int{9, 0}, Free: memory - 500<<20, PowerLimit: limit, OtherProcesses: d.Busy[i]}
		if dev.OtherProcesses > 0 {
			dev.Free /= 2
		}
		out = append(out, dev)
	}
	return out
}

func (d *Driver) Open(index int) (cuda.GPU, error) {
	if index < 0 || index >= d.GPUs {
		return nil, fmt.Errorf("there is no GPU %d; this machine has %d", index, d.GPUs)
	}
	g := &gpu{d: d, dev: d.Devices()[index], power: idle}
	d.gpus = append(d.gpus, g)
	return g, nil
}

func (d *Driver) Now() time.Time { return d.Start.Add(time.Duration(d.now * 1e9)) }

func (d *Driver) Sleep(t time.Duration) {
	d.sleeps++
	if d.OnSleep != nil {
		d.OnSleep(d.sleeps)
	}
	d.run()
	d.now += t.Seconds()
	for _, g := range d.gpus {
		g.rest(d.now)
	}
}

// Run does not run the code: it takes the virtual clock's time, whatever it is.
func (d *Driver) Run(func()) { d.now += codeCost * d.noise() }

func (d *Driver) Close() error { return nil }

// noise is the factor of one execution.
func (d *Driver) noise() float64 {
	if d.Noise == 0 {
		return 1
	}
	return max(1+d.Noise*d.rng.NormFloat64(), 0.5)
}

// gpu is a modelled GPU.
type gpu struct {
	d     *Driver
	dev   cuda.Device
	used  int64
	calls int     // of Enqueue
	power float64 // running average, W
	at    float64 // time of that average
	busy  int     // streams with work
}

func (g *gpu) Device() cuda.Device { return g.dev }

func (g *gpu) Close() error { return nil }

// lost is the error of a GPU that fell off the bus.
func (g *gpu) lost() error {
	if after, ok := g.d.LostAfter[g.dev.Index]; ok && g.calls > after {
		return &cuda.Error{Call: "cuLaunchKernel", Code: 999, Name: "CUDA_ERROR_UNKNOWN", Text: "unknown error", Device: g.dev.Index}
	}
	return nil
}

// spend averages power over an interval of work.
func (g *gpu) spend(from, to, w float64) {
	g.rest(from)
	if dt := to - g.at; dt > 0 {
		g.power += (w - g.power) * dt / (dt + inertia)
		g.at = to
	}
}

// rest lets the average fall while nothing runs.
func (g *gpu) rest(until float64) {
	if dt := until - g.at; dt > 0 {
		g.power += (idle - g.power) * dt / (dt + inertia)
		g.at = until
	}
}

// clock is what the power limit leaves.
func (g *gpu) clock() float64 {
	if g.power <= limit {
		return maxClock
	}
	return maxClock * limit / g.power
}

func (g *gpu) Telemetry() (cuda.Telemetry, error) {
	if g.d.NoNVML {
		return cuda.Telemetry{}, &cuda.Unavailable{Text: "NVML is not there"}
	}
	t := cuda.Telemetry{ClockHz: g.clock(), PowerW: min(g.power, limit), TempC: 40}
	if g.power > limit {
		t.Throttled = "power-cap"
	}
	return t, nil
}

// buffer is memory; its bytes exist once something is written.
type buffer struct {
	g      *gpu
	data   *[]byte
	bytes  int64
	host   bool
	pinned bool
}

func (g *gpu) alloc(bytes int64, host, pinned bool) (cuda.Buffer, error) {
	most := cmp.Or(g.d.MaxAlloc, memory)
	if !host && (bytes > most || g.used+bytes > memory) {
		return nil, &cuda.Error{Call: "cuMemAlloc_v2", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory", Device: g.dev.Index}
	}
	if !host {
		g.used += bytes
	}
	g.d.Live++
	return &buffer{g: g, data: new([]byte), bytes: bytes, host: host, pinned: pinned}, nil
}

func (g *gpu) Alloc(bytes int64) (cuda.Buffer, error) { return g.alloc(bytes, false, false) }

func (g *gpu) AllocHost(bytes int64, pinned bool) (cuda.Buffer, error) {
	return g.alloc(bytes, true, pinned)
}

func (b *buffer) Bytes() int64 { return b.bytes }

func (b *buffer) Close() error {
	b.g.d.Live--
	if !b.host {
		b.g.used -= b.bytes
	}
	return nil
}

// slice is the bytes of a buffer, made when first asked for.
func (b *buffer) slice(n int64) []byte {
	if have := int64(len(*b.data)); have < n {
		*b.data = append(*b.data, make([]byte, n-have)...)
	}
	return (*b.data)[:n]
}

func (g *gpu) Write(dst cuda.Buffer, data []byte) error {
	copy(dst.(*buffer).slice(int64(len(data))), data)
	return g.lost()
}

func (g *gpu) Read(src cuda.Buffer, bytes int64) ([]byte, error) {
	g.d.run()
	return append([]byte(nil), src.(*buffer).slice(bytes)...), g.lost()
}
