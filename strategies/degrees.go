package strategies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/whole"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
)

// What remedies name: the values of one degree that break no rule while the others stay
// as they are, and with which the degrees divide the GPUs.

// mostDegree bounds how many ranks a remedy puts side by side.
const mostDegree = 64

// degrees lists the divisors of n over the other degrees, up to a limit, that a rule
// allows; none when the others alone do not divide n.
func degrees(n, others, limit int64, allowed func(int64) bool) []int64 {
	if n%others != 0 {
		return nil
	}
	return slices.DeleteFunc(whole.Divisors(n/others, limit), func(d int64) bool { return !allowed(d) })
}

// mostGPUs is how many GPUs a job may have.
const mostGPUs = 1 << 20

// legalTP lists the tensor-parallel degrees.
func (p *Plan) legalTP(s Shape) []int64 {
	return degrees(s.GPUs, p.CP*p.PP, mostDegree, func(tp int64) bool {
		return s.cutsHeads(tp) && s.cutsMixers(tp, p.CP) && (tp == 1 || s.Model.Compress == nil)
	})
}

// legalCP lists the context-parallel degrees.
func (p *Plan) legalCP(s Shape) []int64 {
	return degrees(s.GPUs, p.TP*p.PP, mostDegree, func(cp int64) bool {
		return s.cutsMixers(p.TP, cp) && (cp == 1 || s.Model.Compress == nil && !s.masksKeys() && !s.Model.CrossLayer() && len(s.Recipe.CPCommTypes) > 0 && s.Train.SequenceLength%s.chunks(cp) == 0 && (s.contextsBy(p) != A2A || p.tradesHeads(s, cp)))
	})
}

// masksKeys reports whether an indexer picks keys of whole sequences.
func (s *Shape) masksKeys() bool {
	return s.Model.Indexer != nil && s.Recipe.Structure.Indexer == ops.MaskedIndexer
}

// gathersKeys reports whether kernels gather the keys that an indexer picks.
func (s *Shape) gathersKeys() bool {
	return s.Model.Indexer != nil && s.Recipe.Structure.Indexer == ops.AbsorbedIndexer
}

// legalPP lists the pipeline-parallel degrees.
func (p *Plan) legalPP(s Shape) []int64 {
	return degrees(s.GPUs, p.TP*p.CP, s.Model.Layers, func(pp int64) bool {
		return (pp == 1 || !s.Recipe.Structure.WholeModels && !s.Model.CrossLayer()) && pp*p.VirtualStages <= s.Model.Layers+2 && (pp > 1 || p.VirtualStages == 1)
	})
}

// legalEP lists the expert-parallel degrees.
func (p *Plan) legalEP(s Shape) []int64 {
	return degrees(p.TP*p.CP*p.DP, p.ExpertTP, s.Model.MoE.Experts, func(ep int64) bool { return s.Model.MoE.Experts%ep == 0 })
}

// legalExpertTP lists the degrees by which experts can be cut along their width.
func (p *Plan) legalExpertTP(s Shape) []int64 {
	return degrees(p.TP*p.CP*p.DP, 1, mostDegree, func(n int64) bool { return s.Model.MoE.FFN%n == 0 })
}

// cutsHeads reports whether tensor ranks get whole heads and equal parts of the MLP.
func (s *Shape) cutsHeads(tp int64) bool {
	m := s.Model
	if tp > 1 && (m.CrossLayer() || s.Recipe.Structure.WholeMatrices) {
		return false
	}
	return m.Heads%tp == 0 && m.FFN%tp == 0 && (m.MLA != nil || s.sharesKV(tp, m.KVHeads) && (m.Global == nil || s.sharesKV(tp, m.Global.KVHeads)))
}

// sharesKV reports whether tensor ranks get whole key/value heads, or several one head.
func (s *Shape) sharesKV(tp, heads int64) bool {
	return heads%tp == 0 || !s.DTensor && tp%heads == 0
}

// cutsMixers reports whether tensor and context ranks get whole heads of mixers other than attention.
func (s *Shape) cutsMixers(tp, cp int64) bool {
	for _, m := range mixersOf(s.Model) {
		if tp*cp > 1 && (s.Recipe.Structure.Mixers == ops.WholeMixer || m.whole || m.groups%tp != 0 || m.heads%(tp*cp) != 0 || m.each && m.groups%(tp*cp) != 0) {
			return false
		}
	}
	return true
}

// tradesHeads reports whether every context rank gets heads for its positions.
func (p *Plan) tradesHeads(s Shape, cp int64) bool {
	m := s.Model
	return m.MLA == nil && slices.Contains(s.Recipe.CPCommTypes, string(A2A)) && m.Heads/p.TP%cp == 0 && s.leavesKV(max(m.KVHeads/p.TP, 1), cp)
}

// fewerStages says how to get by with no more stages than there are layers.
func (p *Plan) fewerStages(s Shape) string {
	var out []string
	if legal := p.legalPP(s); len(legal) > 0 {
		out = append(out, "pp "+diag.Or(texts(legal)))
	}
	if most := (s.Model.Layers + 2) / p.PP; p.VirtualStages > 1 && most > 0 && p.PP <= s.Model.Layers {
		out = append(out, fmt.Sprintf("virtual_stages of at most %d", most))
	}
	if len(out) == 0 {
		return "use fewer of both"
	}
	return "use " + strings.Join(out, ", or ")
}

// evenSequences offers the nearest numbers of tokens that context and tensor ranks share
// evenly, as far as the model has positions for them.
func (p *Plan) evenSequences(s Shape) string {
	seq, unit := s.Train.SequenceLength, p.CP*p.TP
	if p.CP > 1 && p.TP%2 == 1 { // context ranks take two pieces each
		unit *= 2
	}
	var out []string
	if below := seq / unit * unit; below > 0 {
		out = append(out, fmt.Sprint(below))
	}
	if above := (seq/unit + 1) * unit; s.Model.Position != model.LearnedPosition || above <= s.Model.MaxPositions {
		out = append(out, fmt.Sprint(above))
	}
	if len(out) == 0 {
		return ""
	}
	return "sequences of " + diag.Or(out) + " tokens, "
}

// changes says to which values one of the degrees could be changed.
func (p *Plan) changes(s Shape) string {
	var out []string
	for _, d := range []struct {
		name  string
		value int64
		legal func(Shape) []int64
	}{{"tp", p.TP, p.legalTP}, {"cp", p.CP, p.legalCP}, {"pp", p.PP, p.legalPP}} {
		if d.value == 1 {
			continue
		}
		if legal := d.legal(s); len(legal) > 0 {
			out = append(out, d.name+" "+diag.Or(texts(legal)))
		}
	}
	if len(out) == 0 {
		out = append(out, fmt.Sprintf("degrees whose product divides %d", s.GPUs))
	}
	degrees, gpus := strings.Join(out, ", or "), p.orGPUs(s)
	if gpus != "" && p.TP*p.CP*p.PP > s.GPUs { // these are what is missing
		return "use " + strings.TrimPrefix(gpus, ", or ") + ", or " + degrees
	}
	return "use " + degrees + gpus
}

// orGPUs offers as many GPUs as the degrees need, at least those of the job where replicas
// take the rest; "" where no number of them would do.
func (p *Plan) orGPUs(s Shape) string {
	q := *p // with 1 for what is not given
	for _, d := range []*int64{&q.TP, &q.CP, &q.PP, &q.DP, &q.EP, &q.ExpertTP, &q.ShardDegree} {
		if *d = max(*d, 1); *d > mostGPUs {
			return ""
		}
	}
	if m := s.Model; !s.cutsHeads(q.TP) || !s.cutsMixers(q.TP, q.CP) || q.PP > m.Layers || q.EP > 1 && (m.MoE == nil || m.MoE.Experts%q.EP != 0) {
		return ""
	}
	ranks := q.TP * q.CP * q.DP // of a stage
	for _, unit := range []int64{q.EP * q.ExpertTP, q.TP * q.ShardDegree} {
		if ranks > mostGPUs || unit > mostGPUs || p.DP > 0 && ranks%unit != 0 {
			return ""
		}
		ranks = whole.LCM(ranks, unit)
	}
	need := ranks * q.PP
	if p.DP <= 0 {
		need *= (s.GPUs + need - 1) / need
	}
	if need > mostGPUs {
		return ""
	}
	return fmt.Sprintf(", or %d GPUs", need)
}

// anyDP is a plan whose number of replicas follows from the GPUs.
func (p *Plan) anyDP() *Plan {
	free := *p
	free.DP = 0
	return &free
}

// texts writes numbers as words of a message.
func texts(v []int64) []string {
	out := make([]string, len(v))
	for i, x := range v {
		out[i] = fmt.Sprint(x)
	}
	return out
}
