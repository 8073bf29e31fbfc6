package fake

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// rate of a dtype relative to bf16.
var rates = map[string]float64{"bf16": 1, "fp16": 1, "tf32": 0.5, "fp32": 0.06, "fp8": 1.8}

// computed is how many multiplications are few enough to be really done.
const computed = 1 << 22

func (g *gpu) GEMM(s cuda.Stream, m cuda.GEMM) (cuda.Op, error) {
	if err := g.d.needs("libcublasLt"); err != nil {
		return nil, err
	}
	if g.d.FailKernel == m.DType {
		return nil, &cuda.Error{Call: "cublasLtMatmulAlgoGetHeuristic", Code: 15, Name: "CUBLAS_STATUS_NOT_SUPPORTED", Device: g.dev.Index}
	}
	a, b, c := m.Sizes()
	w := float64(cuda.Width(m.DType))
	flops, bytes := 2*float64(m.M)*float64(m.N)*float64(m.K), w*float64(a+b+c)
	compute := flops / (peak * rates[m.DType]) * (1 + 120/float64(m.K))
	o := &op{s: s.(*stream), kind: "gemm", work: max(compute, bytes/bandwidth) + 2e-6, clock: true}
	if m.DType == "bf16" && m.M*m.N*m.K <= computed {
		o.done = func() { multiply(m) }
	}
	return o, g.lost()
}

// multiply does a small bf16 product by the layout's formula.
func multiply(m cuda.GEMM) {
	na, nb, nc := m.Sizes()
	a, b := floats(m.A.(*buffer).slice(2*na)), floats(m.B.(*buffer).slice(2*nb))
	out := m.C.(*buffer).slice(2 * nc)
	M, N, K := int(m.M), int(m.N), int(m.K)
	put := func(i int, v float32) { binary.LittleEndian.PutUint16(out[2*i:], bf16(v)) }
	switch m.Layout {
	case cuda.FProp:
		for i := range M {
			for j := range N {
				var sum float32
				for k := range K {
					sum += a[i*K+k] * b[j*K+k]
				}
				put(i*N+j, sum)
			}
		}
	case cuda.DGrad:
		for i := range M {
			for k := range K {
				var sum float32
				for j := range N {
					sum += a[i*N+j] * b[j*K+k]
				}
				put(i*K+k, sum)
			}
		}
	case cuda.WGrad:
		for j := range N {
			for k := range K {
				var sum float32
				for i := range M {
					sum += a[i*N+j] * b[i*K+k]
				}
				put(j*K+k, sum)
			}
		}
	}
}

// floats reads bf16.
func floats(b []byte) []float32 {
	out := make([]float32, len(b)/2)
	for i := range out {
		out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
	}
	return out
}

// bf16 rounds to nearest even.
func bf16(v float32) uint16 {
	u := math.Float32bits(v)
	return uint16((u + 0x7FFF + u>>16&1) >> 16)
}

// Attention runs at three quarters of the multiplications' rate, backward at a half.
func (g *gpu) Attention(s cuda.Stream, a cuda.Attention) (cuda.Op, error) {
	if err := g.d.needs("libcudnn"); err != nil {
		return nil, err
	}
	if g.d.FailKernel == "attention" {
		return nil, &cuda.Error{Call: "cudnnBackendFinalize", Code: 3000, Name: "CUDNN_STATUS_NOT_SUPPORTED", Device: g.dev.Index}
	}
	queries, keys, _ := a.Sizes()
	pairs := float64(queries) * float64(a.Sequence)
	if a.Causal {
		pairs /= 2
	}
	flops, rate := 4*pairs, 0.75
	if a.Backward {
		flops, rate = 10*pairs, 0.5
	}
	o := &op{s: s.(*stream), kind: "attention", work: flops/(peak*rate) + 5e-6, clock: true}
	if a.DType == "bf16" && pairs <= computed*4 {
		o.done = func() { attend(a, queries, keys) }
	}
	return o, g.lost()
}

// attend does a small bf16 problem by the formula.
func attend(a cuda.Attention, queries, keys int64) {
	read := func(b cuda.Buffer, n int64) []float32 { return floats(b.(*buffer).slice(2 * n)) }
	write := func(b cuda.Buffer, v []float32) {
		out := b.(*buffer).slice(2 * int64(len(v)))
		for i, x := range v {
			binary.LittleEndian.PutUint16(out[2*i:], bf16(x))
		}
	}
	q, k, v := read(a.Q, queries), read(a.K, keys), read(a.V, keys)
	if !a.Backward {
		o, _, _, _ := a.Reference(q, k, v, nil)
		write(a.O, o)
		return
	}
	_, dq, dk, dv := a.Reference(q, k, v, read(a.DO, queries))
	write(a.DQ, dq)
	write(a.DK, dk)
	write(a.DV, dv)
}

func (g *gpu) Kernel(s cuda.Stream, k cuda.Kernel) (cuda.Op, error) {
	if err := g.d.needs("libnvrtc"); err != nil {
		return nil, err
	}
	if g.d.FailKernel == k.Name {
		return nil, &cuda.Error{Call: "cuModuleGetFunction", Code: 500, Name: "CUDA_ERROR_NOT_FOUND", Text: "named symbol not found", Device: g.dev.Index}
	}
	work := max(k.Work.Bytes/bandwidth, k.Work.Elements/issue) + k.Work.Seconds
	o := &op{s: s.(*stream), kind: "memory", work: work, clock: k.Work.Elements > 0}
	if k.Name == "spin" { // writes the time that it took
		o.done = func() {
			ns := k.Args[1].(*buffer).slice(8)
			binary.LittleEndian.PutUint64(ns, binary.LittleEndian.Uint64(ns)+uint64(work*1e9))
		}
	}
	return o, g.lost()
}

func (g *gpu) Copy(s cuda.Stream, dst, src cuda.Buffer, bytes int64) (cuda.Op, error) {
	to, from := dst.(*buffer), src.(*buffer)
	if bytes > to.bytes || bytes > from.bytes {
		return nil, fmt.Errorf("a copy of %d bytes from a buffer of %d to one of %d", bytes, from.bytes, to.bytes)
	}
	o := &op{s: s.(*stream), kind: "memory"}
	switch {
	case !to.host && !from.host:
		o.work = 2 * float64(bytes) / bandwidth
	case to.host && !to.pinned || from.host && !from.pinned:
		o.work, o.wait = 10e-6+float64(bytes)/(pcie/4), true
	default:
		o.work = 8e-6 + float64(bytes)/pcie
	}
	if len(*from.data) > 0 {
		o.done = func() { copy(to.slice(bytes), from.slice(bytes)) }
	}
	return o, g.lost()
}

func (g *gpu) Fill(s cuda.Stream, dst cuda.Buffer, bytes int64) (cuda.Op, error) {
	to := dst.(*buffer)
	o := &op{s: s.(*stream), kind: "memory", work: float64(bytes) / bandwidth}
	if len(*to.data) > 0 {
		o.done = func() { clear(to.slice(bytes)) }
	}
	return o, g.lost()
}

// comm is the local members of a group; those of other processes are always there.
type comm struct {
	d       *Driver
	ranks   int
	members []cuda.Member
}

func (d *Driver) CommID() ([]byte, error) { return make([]byte, 128), d.needs("libnccl") }

func (d *Driver) Join(id []byte, ranks int, members []cuda.Member) (cuda.Comm, error) {
	if err := d.needs("libnccl"); err != nil {
		return nil, err
	}
	for _, m := range members {
		if err := m.Stream.(*stream).g.lost(); err != nil {
			return nil, err
		}
	}
	return &comm{d, ranks, members}, nil
}

func (c *comm) Close() error { return nil }

// wire is the share of the size that crosses a link, as nccl-tests counts.
func wire(op string, n float64) float64 {
	switch op {
	case "all-reduce":
		return 2 * (n - 1) / n
	case "broadcast", "send-recv":
		return 1
	}
	return (n - 1) / n
}

// collective is one operation of a group.
type collective struct {
	c *comm
	k cuda.Collective
}

func (c *comm) Collective(k cuda.Collective) (cuda.Op, error) {
	for i, m := range c.members {
		if k.In[i].Bytes() < k.Bytes || k.Out[i].Bytes() < k.Bytes {
			return nil, fmt.Errorf("%s of %d bytes: the buffers are too small", k.Op, k.Bytes)
		}
		if err := m.Stream.(*stream).g.lost(); err != nil {
			return nil, err
		}
	}
	return &collective{c, k}, nil
}

func (o *collective) Enqueue(n int) error {
	c := o.c
	work := alpha*math.Log2(float64(max(c.ranks, 2))) + wire(o.k.Op, float64(c.ranks))*float64(o.k.Bytes)/link
	for range n {
		met := &meeting{members: len(c.members)}
		for i, m := range c.members {
			s := m.Stream.(*stream)
			s.g.calls++
			if err := s.g.lost(); err != nil {
				return err
			}
			if s.capturing == nil {
				c.d.now += hostCost
			}
			it := &item{work: work, watts: watts["comm"], gap: gap, group: met}
			if i == len(c.members)-1 && len(*o.k.In[0].(*buffer).data) > 0 { // something was written, to be looked at
				it.done = o.reduce
			}
			s.put(it)
		}
	}
	return nil
}

// reduce really does what the local members ask for, with sums where all are local.
func (o *collective) reduce() {
	n := len(o.c.members)
	if n != o.c.ranks {
		return
	}
	part := o.k.Bytes / int64(n)
	in := make([][]byte, n)
	for i, b := range o.k.In {
		in[i] = append([]byte(nil), b.(*buffer).slice(o.k.Bytes)...)
	}
	sum := make([]byte, o.k.Bytes)
	for e := 0; e+1 < len(sum); e += 2 {
		var v float32
		for _, b := range in {
			v += floats(b[e : e+2])[0]
		}
		binary.LittleEndian.PutUint16(sum[e:], bf16(v))
	}
	for i, b := range o.k.Out {
		out := b.(*buffer).slice(o.k.Bytes)
		switch o.k.Op {
		case "all-reduce":
			copy(out, sum)
		case "reduce-scatter":
			copy(out[:part], sum[int64(i)*part:])
		case "all-gather":
			for r := range n {
				copy(out[int64(r)*part:int64(r+1)*part], in[r])
			}
		case "all-to-all":
			for r := range n {
				copy(out[int64(r)*part:int64(r+1)*part], in[r][int64(i)*part:])
			}
		case "broadcast":
			copy(out, in[0])
		case "send-recv":
			if i%2 == 1 {
				copy(out, in[i-1])
			}
		}
	}
}

func (o *collective) Close() error { return nil }

func (c *comm) Capture(o cuda.Op, n int) (cuda.Op, error) {
	var streams []*stream
	for _, m := range c.members {
		streams = append(streams, m.Stream.(*stream))
	}
	return capture(c.d, streams, o, n)
}
