package kernel

import (
	"cmp"
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

type attentionModel struct {
	law       *hardware.AttentionLaw
	peak      float64
	on        float64
	fp32      units.FLOPRate // of fp32 operands
	sms       float64
	bandwidth float64 // bytes a second
	l2        float64 // bytes
}

func (a *attentionModel) init(p *hardware.Profile) {
	a.law = p.Laws.Attention
	a.peak = float64(max(p.GPU.Peak.Of("bf16"), p.GPU.Peak.Of("fp16")))
	a.on = a.peak
	a.sms, a.bandwidth, a.l2 = float64(p.GPU.SMs.Value), float64(p.GPU.Bandwidth.Value), float64(p.GPU.L2.Value)
	// PyTorch's kernel for fp32 makes each product from three in TF32, whatever allow_tf32
	// says, and multiplies on the vector units where there is none (pytorch,
	// mem_eff_attention/gemm_kernel_utils.h, DefaultGemmType).
	a.fp32 = cmp.Or(p.GPU.Peak.TF32.Value/3, p.GPU.Peak.FP32.Value, units.FLOPRate(vectorRate(&p.GPU)))
	if a.law.On != nil {
		a.on = float64(max(a.law.On.Peak.Of("bf16"), a.law.On.Peak.Of("fp16")))
	}
}

func (a *attentionModel) pass(s *tape.AttentionShape) hardware.AttentionPass {
	return a.law.Pass(s.Flavour, s.Backward)
}

func (a *attentionModel) rate(s *tape.AttentionShape) float64 {
	return a.law.At(a.pass(s).Rate, float64(s.QKDim+s.VDim)/2)
}

// fixed is what a law calls its time beside FLOPs.
func (a *attentionModel) fixed(s *tape.AttentionShape) string {
	if len(a.pass(s).Block) > 0 {
		return "launch, whole blocks of rows"
	}
	return "setup"
}

// seconds is the law for a problem at a peak rate.
func (a *attentionModel) seconds(s *tape.AttentionShape, peak float64) float64 {
	p := a.pass(s)
	width := computed(s, &p)
	if len(p.Block) > 0 {
		return a.added(s, a.blocks(s, &p, peak))
	}
	if p.Whole && s.Window > 0 {
		all := *s
		all.Window = 0
		s = &all
	}
	pairs := s.Pairs()
	if s.Masked {
		pairs *= a.law.At(p.Masked, width)
	} else if windowed := s.Window > 0 && s.Window < s.Keys; s.Causal || windowed { // whose edges are two, in both
		beyond := a.law.At(p.Diagonal, width)
		if windowed {
			beyond += p.Window
		}
		pairs += beyond * float64(s.Queries)
	}
	rows, seen := min(p.Rows, s.Queries), s.Keys
	if s.Backward {
		rows, seen = min(p.Rows, s.Keys), s.Queries
	}
	if s.Window > 0 {
		seen = min(seen, s.Window+rows)
	}
	if s.Picked > 0 { // each query has a block of its own
		rows, seen = 1, s.Picked
	}
	// As if all SMs computed the longest block.
	flops := 2 * max(float64(s.Batch*s.Heads)*pairs, float64(rows*seen)*a.sms) * 2 * width
	if s.Backward {
		flops *= 2.5
	}
	return a.added(s, float64(p.Setup)+flops/(a.law.At(p.Rate, width)*peak))
}

// computed is the mean width of queries, keys and values as the kernels of a pass compute them.
func computed(s *tape.AttentionShape, p *hardware.AttentionPass) float64 {
	width := float64(s.QKDim+s.VDim) / 2
	if s.QKDim != s.VDim {
		return width
	}
	return p.Padded(width)
}

// blocks is the law of blocks for a problem at a peak rate.
func (a *attentionModel) blocks(s *tape.AttentionShape, p *hardware.AttentionPass, peak float64) float64 {
	width := computed(s, p)
	along, seen := s.Queries, s.Keys // a block of queries goes through keys
	if s.Backward {
		along, seen = seen, along
	}
	rows := float64(p.Rows)
	each := float64(s.Batch*s.Heads) * math.Ceil(float64(along)/rows)
	block, whole := a.law.At(p.Block, width), max(float64(seen), rows/2)
	windowed := s.Window > 0 && s.Window < s.Keys
	var busiest float64 // keys that an SM goes through with blocks of rows
	switch {
	case s.Masked:
		busiest = math.Ceil(each/a.sms) * (whole*a.law.At(p.Masked, width) + block)
	case s.Causal || windowed:
		mean := s.Pairs()/float64(along) + a.law.At(p.Diagonal, width)
		if windowed {
			mean += p.Window
			whole = min(whole, float64(s.Window)+rows)
		}
		busiest = max(each/a.sms*(mean+block)+a.law.At(p.Longest, width)*(whole+block), whole+block)
	default:
		busiest = math.Ceil(each/a.sms) * (whole + block)
	}
	flops, heads := 4*width*rows*busiest*a.sms, float64(s.Heads*s.Queries+s.KVHeads*s.Keys)
	bytes := float64(s.Batch) * heads * float64(s.QKDim+s.VDim) * 2
	if s.Backward {
		flops, bytes = 2.5*flops, 2*bytes+4*float64(s.Batch*s.Heads*s.Queries*s.QKDim)
	}
	t := flops / (a.law.At(p.Rate, width) * peak)
	if p.Kept != nil { // a loop over twice what L2 holds finds nothing of it again
		sums := min(float64(s.Batch*s.Heads), a.sms) * float64(s.Queries+2*s.Keys) * width * 4
		held := min(max(2*a.l2/sums-1, 0), 1)
		t += held * (flops/(a.law.At(p.Kept, width)*peak) - t)
	}
	if p.Bytes > 0 { // of a flavour whose law itself goes by no blocks nothing is known
		t = max(t, bytes/(p.Bytes*a.bandwidth))
	}
	return float64(p.Launch) + t
}

// added is the time of a problem with what some add to it.
func (a *attentionModel) added(s *tape.AttentionShape, t float64) float64 {
	if s.Sinks && s.Backward {
		t += float64(a.law.Sink) * float64(s.Batch*s.Heads*s.Queries)
	}
	if s.Dropout {
		t *= a.law.Dropped(s.Flavour, s.Backward, float64(s.QKDim+s.VDim)/2)
	}
	return t
}

func (a *attentionModel) time(o *tape.Op) units.Seconds {
	s := o.Attn
	if o.DType == tape.F32 {
		wide := *s
		wide.Flavour = cmp.Or(s.Flavour, tape.F32.String()) // the law's own, where it has none
		return units.Seconds(a.seconds(&wide, float64(a.fp32)))
	}
	return units.Seconds(a.seconds(s, a.peak) * a.correction(s, nil))
}

// least is the time of one token of one head by the kernel of an op.
func (a *attentionModel) least(o *tape.Op) units.Seconds {
	s := *o.Attn
	s.Batch, s.Heads, s.KVHeads, s.Queries, s.Keys = 1, 1, 1, 1, 1
	return a.time(&tape.Op{DType: o.DType, Attn: &s})
}

// correction is the measured time over the law at nearby problems of the same
// kind, as for matrix multiplies.
func (a *attentionModel) correction(s *tape.AttentionShape, without *hardware.AttentionPoint) float64 {
	if s.Window > 0 || s.Picked > 0 || s.QKDim != s.VDim || s.Queries != s.Keys || s.Dropout || len(a.pass(s).Block) > 0 && !s.Causal && !s.Masked { // no point is without a mask
		return 1
	}
	if _, own := a.law.Flavour[s.Flavour]; own { // the points are of the law's own kernel
		return 1
	}
	pass := 0
	if s.Backward {
		pass = 1
	}
	pts := a.law.Points
	lq, lw, lh := math.Log2(float64(s.Queries)), math.Log2(float64(s.QKDim)), math.Log2(float64(s.Batch*s.Heads))
	return nearby(len(pts), nearbyWidth, func(i int) float64 {
		p := &pts[i]
		if p.Masked != s.Masked || p.Time[pass] == 0 || p == without {
			return math.Inf(1)
		}
		dq, dw, dh := math.Log2(p.Sequence)-lq, math.Log2(p.Width)-lw, math.Log2(p.Batch*p.Heads)-lh
		return dq*dq + dw*dw + dh*dh
	}, func(i int) float64 {
		shape := pointShape(&pts[i], s.Backward)
		return math.Log(float64(pts[i].Time[pass]) / a.seconds(&shape, a.on))
	})
}

// pointShape is the problem of a measured point.
func pointShape(p *hardware.AttentionPoint, backward bool) tape.AttentionShape {
	return tape.AttentionShape{Batch: int64(p.Batch), Heads: int64(p.Heads), KVHeads: int64(p.KVHeads), Queries: int64(p.Sequence), Keys: int64(p.Sequence),
		QKDim: int64(p.Width), VDim: int64(p.Width), Masked: p.Masked, Causal: !p.Masked, Backward: backward}
}
