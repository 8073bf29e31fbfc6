package search

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/whole"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// Space is what a search ranks: every plan that machine, model and recipe admit,
// within these bounds. The zero value has no bounds but the natural ones.
type Space struct {
	MaxTP, MaxCP, MaxEP, MaxPP int64    // 0: no further than NVLink reaches, than each rank keeps 512 tokens of a sequence, the experts, the layers
	Precisions                 []string // none: the job's
	AnySchedule                bool     // also schedules that the recipe's framework does not have
	Fix                        Fix
}

// Fix holds keys of plan and train that every plan must have, by their last part.
type Fix map[string]string

// fixable are the keys of a Fix.
var fixable = []string{"tp", "sequence_parallel", "cp", "cp_comm_type", "ep", "expert_tp", "pp", "virtual_stages", "schedule", "dp", "data_parallel", "shard_degree",
	"bucket", "reshard_after_forward", "sync_every_micro_batch", "offload", "offload_fraction", "offload_overlap", "order", "micro_batch", "recompute", "recompute_method", "recompute_num_layers", "precision"}

// ParseFix reads "tp=8,pp=4". Keys may be written as in a job, plan.tp or
// train.micro_batch.
func ParseFix(text string) (Fix, error) {
	f := Fix{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		key = strings.TrimPrefix(strings.TrimPrefix(key, "plan."), "train.")
		key = strings.ReplaceAll(key, "-", "_")
		if !ok || value == "" {
			return nil, diag.Errorf("%q is not key=value; write it as in tp=8,pp=4", part)
		}
		if !slices.Contains(fixable, key) {
			return nil, diag.Errorf("%q cannot be fixed%s; it is one of %s", key, diag.DidYouMean(key, fixable), strings.Join(fixable, ", "))
		}
		var err error
		switch key {
		case "schedule":
			_, err = pipeline.Lookup(value)
		case "data_parallel":
			err = new(strategies.DataParallel).UnmarshalText([]byte(value))
		case "offload":
			err = new(strategies.Offload).UnmarshalText([]byte(value))
		case "cp_comm_type":
			err = new(strategies.CPCommType).UnmarshalText([]byte(value))
		case "bucket":
			var b units.Bytes
			if b, err = units.ParseBytes(value); err == nil && b == 0 {
				err = diag.Errorf("%s is no size of a bucket; give one above 0, as in 25MiB", value)
			} else if err == nil {
				err = strategies.CheckBucket(b)
			}
		case "sequence_parallel", "reshard_after_forward", "sync_every_micro_batch", "offload_overlap":
			_, err = strconv.ParseBool(value)
		case "offload_fraction":
			if n, e := strconv.ParseFloat(value, 64); e != nil || !(n > 0 && n <= 1) {
				err = diag.Errorf("%q is not a share of the optimizer above 0, up to 1; give one as in 0.5", value)
			}
		case "recompute":
			if !slices.Contains(strategies.Recomputes, value) {
				err = diag.Errorf("%q is not a recomputation; use none, selective or full", value)
			}
		case "order":
			err = new(strategies.Order).UnmarshalText([]byte(value))
		case "recompute_method":
			err = new(strategies.RecomputeMethod).UnmarshalText([]byte(value))
		case "precision": // the recipe knows
		default:
			if n, e := strconv.ParseInt(value, 10, 64); e != nil || n < 1 {
				err = diag.Errorf("%q is not a whole number from 1 on", value)
			}
		}
		if err != nil {
			return nil, diag.Errorf("%s: %v", key, err)
		}
		f[key] = value
	}
	return f, nil
}

// And returns f with the keys of g, which win.
func (f Fix) And(g Fix) Fix {
	out := Fix{}
	for _, x := range []Fix{f, g} {
		maps.Copy(out, x)
	}
	return out
}

// String is the form that ParseFix reads, with the keys in the order of a plan.
func (f Fix) String() string {
	var parts []string
	for _, k := range fixable {
		if v, ok := f[k]; ok {
			parts = append(parts, k+"="+v)
		}
	}
	return strings.Join(parts, ",")
}

// counts returns the fixed value of a key, else the values offered.
func (f Fix) counts(key string, offered []int64) []int64 {
	if v, ok := f[key]; ok {
		n, _ := strconv.ParseInt(v, 10, 64) // ParseFix has read it
		return []int64{n}
	}
	return offered
}

func fixed[T ~string](f Fix, key string, offered []T) []T {
	if v, ok := f[key]; ok {
		return []T{T(v)}
	}
	return offered
}

// switches returns the fixed value of a switch, else those offered; nil leaves it to
// the default.
func (f Fix) switches(key string, offered ...*bool) []*bool {
	if v, ok := f[key]; ok {
		if on, _ := strconv.ParseBool(v); on {
			return []*bool{&yes}
		}
		return []*bool{&no}
	}
	return offered
}

var yes, no = true, false

// cut is what the kernels of a layer depend on.
type cut struct {
	contexts
	tp, ep, expertTP int64
	sp               *bool
	microBatch       int64
	recompute        strategies.Recomputation
	precision        string
}

// cuts lists the ways to cut and run layers, from the least parallel on.
func (s *Space) cuts(j *strategies.Job) []cut {
	f := s.Fix
	precisions := s.Precisions
	if len(precisions) == 0 {
		precisions = []string{j.Train.Precision}
	}
	out := []cut{{}}
	out = expand(out, func(*cut) []string { return fixed(f, "precision", precisions) }, func(c *cut, v string) { c.precision = v })
	out = expand(out, func(*cut) []int64 { return f.counts("tp", whole.Divisors(j.GPUs, bound(s.MaxTP, island(j)))) }, func(c *cut, v int64) { c.tp = v })
	out = expand(out, func(c *cut) []contexts { return s.contexts(j, c.tp) }, func(c *cut, v contexts) { c.contexts = v })
	out = expand(out, func(c *cut) []*bool { return f.switches("sequence_parallel", sequences(j, c.tp)...) }, func(c *cut, v *bool) { c.sp = v })
	out = expand(out, func(*cut) []int64 { return f.counts("ep", s.experts(j)) }, func(c *cut, v int64) { c.ep = v })
	out = expand(out, func(c *cut) []int64 { return f.counts("expert_tp", expertWidths(j, c.tp, c.sp)) }, func(c *cut, v int64) { c.expertTP = v })
	out = expand(out, func(*cut) []int64 { return f.counts("micro_batch", microBatches(j)) }, func(c *cut, v int64) { c.microBatch = v })
	// Last, as floors of all are often that of the first.
	return expand(out, func(*cut) []strategies.Recomputation { return recomputes(j, f) }, func(c *cut, v strategies.Recomputation) { c.recompute = v })
}

// expand makes of each item one with every value that an axis has for it, in order: the
// last axis that a list is expanded by varies fastest.
func expand[T, V any](items []T, values func(*T) []V, set func(*T, V)) []T {
	var out []T
	for i := range items {
		for _, v := range values(&items[i]) {
			out = append(out, items[i])
			set(&out[len(out)-1], v)
		}
	}
	return out
}

// island is how many GPUs NVLink joins.
func island(j *strategies.Job) int64 {
	return max(j.Hardware.Node.GPUs.Value, j.Hardware.Node.NVLinkDomain.Value)
}

// bound is the smaller of a limit and a natural one, where there is a limit.
func bound(limit, natural int64) int64 {
	if limit > 0 {
		return limit
	}
	return natural
}

// contexts is how many ranks share a sequence, and how they come by each other's keys.
type contexts struct {
	cp   int64
	comm strategies.CPCommType
}

func (s *Space) contexts(j *strategies.Job, tp int64) []contexts {
	most := []int64{1}
	if len(j.Recipe.CPCommTypes) > 0 {
		most = whole.Divisors(max(j.GPUs/max(tp, 1), 1), bound(s.MaxCP, max(j.Train.SequenceLength/512, 1)))
	}
	var out []contexts
	for _, cp := range s.Fix.counts("cp", most) {
		kinds := []strategies.CPCommType{""}  // the recipe's own
		if cp > 1 && j.Model.Indexer == nil { // for whose keys there is but one way
			for _, k := range j.Recipe.CPCommTypes[min(1, len(j.Recipe.CPCommTypes)):] {
				kinds = append(kinds, strategies.CPCommType(k))
			}
		}
		if cp > 1 {
			kinds = fixed(s.Fix, "cp_comm_type", kinds)
		}
		for _, k := range kinds {
			out = append(out, contexts{cp, k})
		}
	}
	return out
}

// sequences says whether tensor ranks also cut the sequence between matrix products:
// the default, or each way where the recipe knows both.
func sequences(j *strategies.Job, tp int64) []*bool {
	if tp > 1 && j.Recipe.Structure.SharedTPInput && j.Model.Indexer == nil { // which needs it
		return onOff
	}
	return byDefault
}

func (s *Space) experts(j *strategies.Job) []int64 {
	if j.Model.MoE == nil || !j.Recipe.Structure.ExpertParallel {
		return []int64{1}
	}
	return whole.Divisors(j.Model.MoE.Experts, min(bound(s.MaxEP, j.Model.MoE.Experts), j.GPUs))
}

// expertWidths are the ways to cut experts along their width: not, or like the matrices
// of the rest, which is Megatron-Core's default. Tensor ranks that hold the same tokens
// cannot share experts so. A Fix may ask for other degrees.
func expertWidths(j *strategies.Job, tp int64, sp *bool) []int64 {
	if tp == 1 || sp == &no || j.Model.MoE == nil || !j.Recipe.Structure.ExpertParallel || j.Model.MoE.FFN%tp != 0 {
		return []int64{1}
	}
	return []int64{1, tp}
}

// recomputes are the job's own recomputation, or all that it can choose from; a number of layers
// to recompute means full recomputation, a fixed kind all of that kind.
func recomputes(j *strategies.Job, f Fix) []strategies.Recomputation {
	kind, given := f["recompute"]
	_, layers := f["recompute_num_layers"]
	own := strategies.Recomputation{Kind: j.Given.Recompute, Modules: j.Given.RecomputeModules}
	switch {
	case given && kind != string(own.Kind):
		all := slices.DeleteFunc(j.Recomputations(), func(r strategies.Recomputation) bool { return string(r.Kind) != kind })
		if len(all) == 0 { // for a rule to say why
			all = []strategies.Recomputation{{Kind: ops.Recompute(kind)}}
		}
		return all
	case own.Kind != "":
		return []strategies.Recomputation{own}
	case layers:
		return []strategies.Recomputation{{Kind: ops.FullRecompute}}
	}
	return j.Recomputations()
}

// parts are how many layers of a stage full recomputation is offered for beside all
// of them: so many parts of a stage, or every second to every last of them.
const parts = 4

// depth is how many layers full recomputation counts, by a method; nil: every layer.
type depth struct {
	by   strategies.RecomputeMethod
	some *int64
}

// everyLayer is all that most cuts have.
var everyLayer = []depth{{}}

// set gives it to a job.
func (d *depth) set(j *strategies.Job) {
	if j.Given.RecomputeNumLayers = d.some; d.some != nil {
		j.Given.RecomputeMethod = d.by
	}
}

// depths lists those of a cut. Keys that the job gives stay.
func (s *Space) depths(j *strategies.Job, c *cut, stages int64) []depth {
	by := j.Given.RecomputeMethod
	if v, ok := s.Fix["recompute_method"]; ok {
		if by = strategies.RecomputeMethod(v); c.recompute.Kind != ops.FullRecompute || len(j.Recipe.RecomputeMethods) == 0 {
			return nil
		}
	}
	if _, ok := s.Fix["recompute_num_layers"]; ok {
		return []depth{{by, &s.Fix.counts("recompute_num_layers", nil)[0]}}
	}
	if some := j.Given.RecomputeNumLayers; some != nil {
		return []depth{{by, some}}
	}
	all := everyLayer
	if c.recompute.Kind != ops.FullRecompute || len(j.Recipe.RecomputeMethods) == 0 {
		return all
	}
	if by == "" {
		by = strategies.RecomputeMethod(j.Recipe.RecomputeMethods[0])
	} else {
		all = nil // a method counts something
	}
	most := (j.Model.Layers + stages - 1) / stages
	for i := int64(1); i <= parts; i++ {
		switch n := most * i / parts; {
		case by == strategies.RecomputeBlock && i < parts && n > 0 && n > most*(i-1)/parts:
			all = append(all, depth{by, &n})
		case by != strategies.RecomputeBlock && 1 < i && i <= most:
			all = append(all, depth{by, &i})
		}
	}
	return all
}

// microBatches are the divisors of the global batch up to 16; powers of two
// without one.
func microBatches(j *strategies.Job) []int64 {
	if b := j.Given.MicroBatch; b > 0 {
		return []int64{b}
	}
	const most = 16
	if b := j.Given.GlobalBatch; b > 0 {
		return whole.Divisors(b, most)
	}
	return whole.Divisors(most, most)
}

// plans calls f with every plan of a cut, in order, those that differ in nothing that
// a rule looks at together, and how deep they recompute. It stops when f says so.
func (s *Space) plans(j *strategies.Job, c *cut, f func([]strategies.Plan, *depth) bool) {
	var copies, same []strategies.Plan
	for staged := range s.pipelines(j, c) {
		depths := s.depths(j, c, staged.PP*staged.VirtualStages)
		copies = s.copies(copies[:0], j, staged)
		for _, p := range copies {
			same = s.variants(same[:0], j, p, dataRanks(j, &p)*p.CP > 1)
			for i := range depths {
				if !f(same, &depths[i]) {
					return
				}
			}
		}
	}
}

// pipelines lists the plans of a cut up to their pipeline.
func (s *Space) pipelines(j *strategies.Job, c *cut) iter.Seq[strategies.Plan] {
	return func(yield func(strategies.Plan) bool) {
		p := strategies.Plan{TP: c.tp, SequenceParallel: c.sp, CP: c.cp, CPCommType: c.comm, EP: c.ep, ExpertTP: c.expertTP}
		most := j.Model.Layers
		if j.Recipe.Structure.WholeModels {
			most = 1
		}
		for _, p.PP = range s.Fix.counts("pp", whole.Divisors(dataRanks(j, &p), bound(s.MaxPP, most))) {
			for _, p.VirtualStages = range s.Fix.counts("virtual_stages", s.stages(j, p.PP)) {
				for _, p.Schedule = range s.schedules(j, p.PP, p.VirtualStages) {
					if !yield(p) {
						return
					}
				}
			}
		}
	}
}

// copies appends the plans that have the pipeline of p: what its copies share out, and
// where its ranks are.
func (s *Space) copies(out []strategies.Plan, j *strategies.Job, p strategies.Plan) []strategies.Plan {
	dp := dataRanks(j, &p)
	if n := s.Fix.counts("dp", nil); n != nil {
		p.DP = n[0]
	}
	p.Offload = strategies.Offload(s.Fix["offload"])
	p.OffloadFraction, _ = strconv.ParseFloat(s.Fix["offload_fraction"], 64) // ParseFix has read it; 0 where it is not fixed
	p.OffloadOverlap = s.Fix.switches("offload_overlap", nil)[0]
	offered := fixed(s.Fix, "data_parallel", kinds(j, p.Offload))
	if dp*p.CP == 1 {
		offered = offered[:1] // nothing to share out
	}
	for _, p.DataParallel = range offered {
		for _, p.ShardDegree = range s.Fix.counts("shard_degree", shards(j, p.DataParallel, dp*p.CP, p.TP)) {
			for _, p.Order = range s.orders(j, &p, dp) {
				out = append(out, p)
			}
		}
	}
	return out
}

// dataRanks is how many ranks the degrees that a plan has so far leave for data: one where
// a Fix asks for more than there are, so that the rule that this breaks is found.
func dataRanks(j *strategies.Job, p *strategies.Plan) int64 {
	return max(j.GPUs/max(p.TP*p.CP, 1)/max(p.PP, 1), 1)
}

// virtual lists the numbers of chunks per rank that cut the layers evenly, with
// embedding and head counting as layers or not. Where none does, as with 61 layers, it lists
// those whose largest chunk is at most a tenth over the mean.
func virtual(layers, pp int64) []int64 {
	even, near := []int64{1}, []int64{1}
	for v := int64(2); pp > 1 && v*pp <= layers; v++ {
		chunks := v * pp
		largest := (layers + chunks - 1) / chunks
		switch {
		case layers%chunks == 0 || (layers+2)%chunks == 0:
			even = append(even, v)
		case 10*largest*chunks <= 11*layers:
			near = append(near, v)
		}
	}
	if len(even) > 1 {
		return even
	}
	return near
}

// stages lists the numbers of chunks per rank for which some schedule is to be looked at.
func (s *Space) stages(j *strategies.Job, pp int64) []int64 {
	if s.AnySchedule || s.Fix["schedule"] != "" {
		return virtual(j.Model.Layers, pp)
	}
	return offeredStages(j, pp)
}

// offeredStages lists the numbers of chunks per rank that the framework of a job has a
// schedule for.
func offeredStages(j *strategies.Job, pp int64) []int64 {
	if !slices.Contains(j.Recipe.Schedules, "interleaved-1f1b") {
		return []int64{1}
	}
	return virtual(j.Model.Layers, pp)
}

func (s *Space) schedules(j *strategies.Job, pp, v int64) []string {
	switch {
	case pp == 1:
		return []string{""}
	case s.AnySchedule && s.Fix["schedule"] == "":
		return pipeline.Names()
	}
	return fixed(s.Fix, "schedule", j.Schedules(v))
}

// shards lists the shard degrees worth telling apart: all ranks, and halves of
// them down to those of one node.
func shards(j *strategies.Job, kind strategies.DataParallel, ranks, tp int64) []int64 {
	out := []int64{0}
	if !kind.ShardsParameters() {
		return out
	}
	for n := ranks / 2; n > 1 && n*tp >= j.Hardware.Node.GPUs.Value; n /= 2 {
		if ranks%n == 0 {
			out = append(out, n)
		}
	}
	return out
}

// orders are the orders of ranks worth telling apart: the default, and pipeline before
// data ranks where only one of the two has room beside the tensor ranks of a node. A
// Fix may ask for others.
func (s *Space) orders(j *strategies.Job, p *strategies.Plan, dp int64) []strategies.Order {
	if v, ok := s.Fix["order"]; ok {
		var o strategies.Order
		_ = o.UnmarshalText([]byte(v)) // ParseFix has read it
		return []strategies.Order{o}
	}
	experts := p.TP
	if j.Model.MoE != nil {
		experts = p.EP * p.ExpertTP
	}
	near := island(j)
	if p.PP == 1 || dp == 1 || experts != p.TP*p.CP || p.TP*p.CP >= near || j.GPUs <= near {
		return defaultOrder
	}
	return bothOrders
}

var (
	defaultOrder = []strategies.Order{""}
	bothOrders   = []strategies.Order{"", strategies.TPPPDP}
)

// ways are the values of what no rule looks at: resharding, reducing after every
// micro batch, bucket (0 is the framework's own).
func (s *Space) ways(j *strategies.Job, p *strategies.Plan, many bool) (reshard, every []*bool, buckets []units.Bytes) {
	reshard, every, buckets = byDefault, byDefault, bucketSizes[:1]
	if many && p.DataParallel.ShardsParameters() {
		if reshard = onOff; p.DataParallel.FSDP() && !p.ReducesOnce() { // ZeRO-3 and pipelines have no choice
			every = offOn
		}
	} else if many && j.Recipe.Overlap.GradReduce {
		buckets = bucketSizes
	}
	reshard = s.Fix.switches("reshard_after_forward", reshard...)
	every = s.Fix.switches("sync_every_micro_batch", every...)
	if v, ok := s.Fix["bucket"]; ok {
		b, _ := units.ParseBytes(v) // ParseFix has read it
		buckets = []units.Bytes{b}
	}
	return
}

// variants appends the plans that differ from p in its ways.
func (s *Space) variants(out []strategies.Plan, j *strategies.Job, p strategies.Plan, many bool) []strategies.Plan {
	reshard, every, buckets := s.ways(j, &p, many)
	for _, r := range reshard {
		for _, e := range every {
			for _, b := range buckets {
				p.ReshardAfterForward, p.SyncEveryMicroBatch, p.Bucket = r, e, b
				out = append(out, p)
			}
		}
	}
	return out
}

// variant makes a plan the i-th of its variants.
func (s *Space) variant(j *strategies.Job, p *strategies.Plan, i int) {
	reshard, every, buckets := s.ways(j, p, p.DP*p.CP > 1)
	p.Bucket = buckets[i%len(buckets)]
	i /= len(buckets)
	p.SyncEveryMicroBatch = every[i%len(every)]
	p.ReshardAfterForward = reshard[i/len(every)]
}

var (
	bucketSizes = []units.Bytes{0, 10 * units.MiB, 25 * units.MiB, 50 * units.MiB, 100 * units.MiB, 200 * units.MiB, 400 * units.MiB, 800 * units.MiB}
	byDefault   = []*bool{nil}
	onOff       = []*bool{&yes, &no}
	offOn       = []*bool{&no, &yes}
)
