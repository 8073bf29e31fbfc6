package report

import (
	"fmt"
	"io"
	"slices"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/model/tape"
)

// Kernel is the price of one kernel.
type Kernel struct {
	Machine *hardware.Profile
	Kind    string // gemm, attention, or the kind of access to memory
	What    string // a remark on what the kernel does
	Op      tape.Op
	Quote   kernel.Quote
}

// WriteKernels prints prices of kernels of one kind; of several (sizes) a table.
func WriteKernels(w io.Writer, list []Kernel, f Format, s Style) error {
	return write(w, f, s, func() *page { return kernelPage(list) }, func() any {
		if len(list) == 1 {
			return list[0].plain()
		}
		out := make([]any, len(list))
		for i := range list {
			out[i] = list[i].plain()
		}
		return out
	}, func() ([]string, [][]string) { return kernelRecords(list) })
}

func kernelPage(list []Kernel) *page {
	k := &list[0]
	q := &k.Quote
	if len(list) > 1 {
		p := &page{title: fmt.Sprintf("%s on %s", k.Kind, k.Machine.Name)}
		p.add(fields{{"Kernel", k.What}, {"Clock", k.clock()}, {"Source", k.source()}})
		p.section("By size", append([]piece{kernelGrid(list)}, cacheNote(list)...)...)
		return p
	}
	p := &page{title: fmt.Sprintf("%s on %s", k.name(), k.Machine.Name)}
	f := fields{
		{"Time", fmt.Sprintf("%s, with 80 %% confidence %s to %s", q.Time, q.Low, q.High)},
		{"Bound by", kernelBound[q.Bound]},
	}
	if q.Bound == kernel.Compute && q.Format == "fp32" {
		f[1][1] = "compute (vector units)"
	}
	if k.What != "" {
		f = append(f, [2]string{"Kernel", k.What})
	}
	if q.Rate > 0 {
		f = append(f, [2]string{"Rate", fmt.Sprintf("%s, %s of the dense %s peak of %s", q.Rate, percent(float64(q.Rate/q.Peak)), q.Format, q.Peak)})
	}
	f = append(f, [2]string{"Memory", fmt.Sprintf("%s at %s, %s of %s", k.Op.Bytes, q.Bandwidth, percent(float64(q.Bandwidth/q.Memory)), q.Memory)},
		[2]string{"Clock", k.clock()}, [2]string{"Law", q.Formula}, [2]string{"Source", k.source()})
	p.add(append([]piece{f}, cacheNote(list)...)...)
	return p
}

// cacheNote says why a kernel moves more than memory gives.
func cacheNote(list []Kernel) []piece {
	if !slices.ContainsFunc(list, func(k Kernel) bool { return k.Quote.Bandwidth > k.Quote.Memory }) {
		return nil
	}
	return []piece{paragraph("What is above the peak of memory comes from the L2 cache, which holds a part of so few bytes from call to call.")}
}

var kernelBound = map[kernel.Bound]string{
	kernel.Compute: "compute (tensor cores)",
	kernel.Memory:  "memory bandwidth",
	kernel.Issue:   "issue (index arithmetic and conversions)",
	kernel.Latency: "latency (the fixed cost of a small kernel)",
}

// name says what is asked for.
func (k *Kernel) name() string {
	o := &k.Op
	switch o.Class {
	case tape.GEMM:
		return fmt.Sprintf("gemm %d × %d × %d, %s %s", o.M, o.N, o.K, o.DType, layoutWord(o.Layout))
	case tape.Attention:
		a, direction := o.Attn, "forward"
		if a.Backward {
			direction = "backward"
		}
		mask := "full"
		if a.Causal {
			mask = "causal"
		}
		return fmt.Sprintf("attention %s, %d × %d tokens, %d heads (%d key/value) of %d, %s %s", direction, a.Batch, a.Queries, a.Heads, a.KVHeads, a.QKDim, o.DType, mask)
	}
	return fmt.Sprintf("%s of %s", k.Kind, o.Bytes)
}

func (k *Kernel) clock() string {
	return k.Quote.Clock.String() + ", the highest; a long step at the power limit runs slower (perfplan estimate says how much)"
}

// source says where the law comes from and whether it was measured here.
func (k *Kernel) source() string {
	s := k.Quote.Source
	if k.Quote.On != "" {
		s = "scaled from " + k.Quote.On + ": " + s
	}
	return s
}

func kernelGrid(list []Kernel) *grid {
	g := &grid{columns: []column{{title: "moved", right: true}, {title: "time", right: true}, {title: "80 % range", right: true, drop: 2}, {title: "bandwidth", right: true}, {title: "of peak", right: true}, {title: "bound", drop: 1}}}
	for i := range list {
		q := &list[i].Quote
		g.row(list[i].Op.Bytes.String(), q.Time.String(), q.Low.String()+" to "+q.High.String(), q.Bandwidth.String(), percent(float64(q.Bandwidth/q.Memory)), string(q.Bound))
	}
	return g
}

// layoutWord is the layout as the command line spells it.
func layoutWord(l tape.Layout) string {
	if l == tape.LayoutForward {
		return "fprop"
	}
	return l.String()
}

// shape is the problem, in the words of the flags.
func (k *Kernel) shape() ordered {
	o := &k.Op
	switch o.Class {
	case tape.GEMM:
		m, n, kk := layerShape(o)
		return ordered{{"m", m}, {"n", n}, {"k", kk}, {"layout", layoutWord(o.Layout)}, {"dtype", o.DType.String()}}
	case tape.Attention:
		a, direction := o.Attn, "fwd"
		if a.Backward {
			direction = "bwd"
		}
		return ordered{{"seq", a.Queries}, {"heads", a.Heads}, {"kv_heads", a.KVHeads}, {"head_dim", a.QKDim}, {"batch", a.Batch}, {"causal", a.Causal}, {"direction", direction}, {"dtype", o.DType.String()}}
	}
	return ordered{{"kind", k.Kind}, {"class", o.Class.String()}, {"dtype", o.DType.String()}, {"elements", o.Elements}}
}

func (k *Kernel) plain() any {
	q := &k.Quote
	name := "memory"
	switch k.Op.Class {
	case tape.GEMM, tape.Attention:
		name = k.Kind
	}
	out := append(document("kernel/v1", ordered{{"hardware", k.Machine.Name}, {"kernel", name}}), k.shape()...)
	out = append(out, ordered{{"time_s", float64(q.Time)}, {"time_low_s", float64(q.Low)}, {"time_high_s", float64(q.High)}, {"relative_error", q.RelErr}, {"bound", string(q.Bound)}, {"clock_hz", float64(q.Clock)}}...)
	if q.Rate > 0 {
		out = append(out, ordered{{"flops", float64(k.Op.FLOPs)}, {"flops_per_s", float64(q.Rate)}, {"peak_format", q.Format}, {"peak_flops_per_s", float64(q.Peak)}, {"share_of_peak", float64(q.Rate / q.Peak)}}...)
	}
	return append(out, ordered{{"bytes", float64(k.Op.Bytes)}, {"bytes_per_s", float64(q.Bandwidth)}, {"peak_bytes_per_s", float64(q.Memory)}, {"share_of_bandwidth", float64(q.Bandwidth / q.Memory)},
		{"formula", q.Formula}, {"source", q.Source}, {"scaled_from", q.On}}...)
}

func kernelRecords(list []Kernel) ([]string, [][]string) {
	header := []string{"hardware", "kernel"}
	for _, e := range list[0].shape() {
		header = append(header, e.key)
	}
	header = append(header, "time_s", "time_low_s", "time_high_s", "bound", "flops", "flops_per_s", "bytes", "bytes_per_s", "clock_hz")
	var rows [][]string
	for i := range list {
		k := &list[i]
		row := []string{k.Machine.Name, k.Kind}
		for _, e := range k.shape() {
			row = append(row, fmt.Sprint(e.value))
		}
		q := &k.Quote
		for _, v := range []float64{float64(q.Time), float64(q.Low), float64(q.High)} {
			row = append(row, number(v))
		}
		row = append(row, string(q.Bound))
		for _, v := range []float64{float64(k.Op.FLOPs), float64(q.Rate), float64(k.Op.Bytes), float64(q.Bandwidth), float64(q.Clock)} {
			row = append(row, number(v))
		}
		rows = append(rows, row)
	}
	return header, rows
}

// layerShape is the tokens, outputs and inputs of the linear layer that a multiply
// belongs to (the inverse of kernel.GEMM).
func layerShape(o *tape.Op) (m, n, k int64) {
	switch o.Layout {
	case tape.LayoutDgrad:
		return o.M, o.K, o.N
	case tape.LayoutWgrad:
		return o.K, o.M, o.N
	}
	return o.M, o.N, o.K
}
