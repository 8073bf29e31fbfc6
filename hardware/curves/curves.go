package curves

import (
	"fmt"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// Unit says what an axis counts, in SI base units.
type Unit string

// The units of axes.
const (
	Tokens    Unit = "tokens"
	Bytes     Unit = "bytes"
	FLOPRate  Unit = "FLOP/s"
	Rate      Unit = "bytes/s"
	Intensity Unit = "FLOPs/byte"
)

// Figure is one picture.
type Figure struct {
	Key    string // for scripts: gemm, memory, collective, roofline
	Title  string
	X, Y   Unit
	Series []Series
	Points bool // the series but the first are single points, not lines
}

// Series is one line; X ascends and doubles.
type Series struct {
	Name string
	X, Y []float64
}

// Of draws the figures of a machine. Machines of one GPU have no collectives.
func Of(h *hardware.Profile) ([]Figure, error) {
	timer, err := kernel.New(h)
	if err != nil {
		return nil, err
	}
	fabric, err := collective.FabricOf(h.GPU, h.Node, h.Network, h.Software, h.Laws.Collectives...)
	if err != nil {
		return nil, err
	}
	out := []Figure{gemm(timer), memory(timer)}
	if f := bus(fabric); len(f.Series) > 0 {
		out = append(out, f)
	}
	return append(out, roofline(h, timer)), nil
}

// dtype is 16-bit: all GPUs of the catalog have tensor cores for it, and price bf16 as
// fp16 where they lack it.
const dtype = tape.BF16

// gemm is the rate by tokens for square layers of common widths.
func gemm(t *kernel.Timer) Figure {
	f := Figure{Key: "gemm", Title: "16-bit matrix multiplies, forward, by tokens", X: Tokens, Y: FLOPRate}
	for _, width := range []int64{8192, 4096, 2048, 1024} {
		s := Series{Name: fmt.Sprintf("%d × %d", width, width)}
		for m := int64(64); m <= 32768; m *= 2 {
			o := kernel.GEMM(tape.LayoutForward, dtype, m, width, width)
			s.X, s.Y = append(s.X, float64(m)), append(s.Y, float64(t.Quote(&o).Rate))
		}
		f.Series = append(f.Series, s)
	}
	return f
}

// kinds of access that differ in what limits them.
var kinds = []string{"copy", "reduce_row", "softmax_fp32", "upcast", "broadcast", "concat"}

// memory is the bandwidth by bytes moved.
func memory(t *kernel.Timer) Figure {
	f := Figure{Key: "memory", Title: "memory-bound kernels, by bytes moved", X: Bytes, Y: Rate}
	for _, kind := range kinds {
		s := Series{Name: kind}
		for b := units.Bytes(256 << 10); b <= 4*units.GiB; b *= 2 {
			o, err := kernel.Access(kind, "", b)
			if err != nil {
				continue // no kind of the list is unknown
			}
			s.X, s.Y = append(s.X, float64(b)), append(s.Y, float64(o.Bytes.Per(t.Time(&o))))
		}
		f.Series = append(f.Series, s)
	}
	return f
}

// bus is the bus bandwidth of collectives on a whole node.
func bus(f *collective.Fabric) Figure {
	n := f.Island()
	fig := Figure{Key: "collective", Title: fmt.Sprintf("bus bandwidth of collectives on %d GPUs, by size", n), X: Bytes, Y: Rate}
	if n < 2 {
		return fig
	}
	g := f.Group(n, 1)
	for _, op := range []collective.Op{collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.AllToAll} {
		s := Series{Name: op.String()}
		for b := 4 * units.KiB; b <= 8*units.GiB; b *= 2 {
			s.X, s.Y = append(s.X, float64(b)), append(s.Y, float64(f.Cost(op, b, g).BusBW))
		}
		fig.Series = append(fig.Series, s)
	}
	return fig
}

// roofline is the least of peak and intensity times bandwidth, with kernels on it.
func roofline(h *hardware.Profile, t *kernel.Timer) Figure {
	f := Figure{Key: "roofline", Title: "roofline, 16-bit, with matrix multiplies and attention", X: Intensity, Y: FLOPRate, Points: true}
	peak := float64(max(h.GPU.Peak.BF16.Value, h.GPU.Peak.FP16.Value))
	roof := Series{Name: "roof"}
	for x := 1.0; x <= 1<<14; x *= 2 {
		roof.X, roof.Y = append(roof.X, x), append(roof.Y, min(peak, x*float64(h.GPU.Bandwidth.Value)))
	}
	add := func(s *Series, o tape.Op) {
		s.X, s.Y = append(s.X, float64(o.FLOPs)/float64(o.Bytes)), append(s.Y, float64(t.Quote(&o).Rate))
	}
	var multiplies, forward, backward = Series{Name: "matrix multiply"}, Series{Name: "attention forward"}, Series{Name: "attention backward"}
	for _, width := range []int64{1024, 4096, 8192} {
		for m := int64(64); m <= 16384; m *= 4 {
			add(&multiplies, kernel.GEMM(tape.LayoutForward, dtype, m, width, width))
		}
	}
	for seq := int64(512); seq <= 16384; seq *= 2 {
		s := tape.AttentionShape{Batch: 1, Heads: 32, KVHeads: 8, Queries: seq, QKDim: 128, VDim: 128, Causal: true}
		add(&forward, kernel.Attention(dtype, s))
		s.Backward = true
		add(&backward, kernel.Attention(dtype, s))
	}
	f.Series = []Series{roof, multiplies, forward, backward}
	return f
}
