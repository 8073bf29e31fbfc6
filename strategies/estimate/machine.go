package estimate

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// group is a parallel group of ranks.
type group uint8

const (
	tpGroup group = iota
	cpGroup
	epGroup
	expertTPGroup // ranks that share the matrices of their experts
	amaxGroup     // ranks that agree on the largest values of delayed scaling
	dpGroup
	shardGroup   // ranks that share one copy of what is sharded
	replicaGroup // of such copies
	ppGroup      // neighbours in the pipeline
	expertDPGroup
	expertShardGroup
	expertReplicaGroup // of the copies of the same experts
	embeddingGroup     // the first and the last stage of a pipeline
	numGroups
)

var groupNames = [numGroups]string{"tp", "cp", "ep", "expert_tp", "amax", "dp", "shard", "replicas", "pp", "expert_dp", "expert_shard", "expert_replicas", "embedding"}

func (g group) String() string { return groupNames[g] }

// groupOf is the group that a tape.Comm names.
func groupOf(name string) group { return group(slices.Index(groupNames[:], name)) }

// kindOf is the operation that a tape.Comm names.
func kindOf(name string) collective.Op {
	var op collective.Op
	if err := op.UnmarshalText([]byte(name)); err != nil {
		panic(err) // model/ops names none but these
	}
	return op
}

// machine is what prices depend on beside the job: made once for a profile, and
// safe for concurrent use.
type machine struct {
	hardware *hardware.Profile
	timer    *kernel.Timer
	fabric   *collective.Fabric
	law      lawView
}

// lawView is the part of the hardware laws that the pricer reads often.
type lawView struct {
	gap, latency units.Seconds
	slow         []float64 // by kind of collective: its time under compute over its time alone
	skew         float64
	gemmClock    float64         // of the maximum clock: above which GEMMs gain nothing
	gemmPower    float64         // their power goes by the clock to this
	gemmRates    float64         // time of GEMMs at the highest clock over what their rates say
	grouped      float64         // power of one kernel for all experts over that of others at the same rate
	vector       float64         // power of GEMMs on vector units over others' at the same share of the best rate
	zeros        float64         // power of GEMMs one operand of which is zero by half, over others'
	narrow       hardware.Narrow // see there; ones where nobody measured it
}

// machines are those used last; a search or a sweep uses one for all its jobs.
var machines struct {
	mu   sync.Mutex
	last []*machine // latest first
}

// machineOf returns the machine of a profile, which must not change from then on.
func machineOf(h *hardware.Profile) (*machine, error) {
	const most = 4
	machines.mu.Lock()
	defer machines.mu.Unlock()
	for i, m := range machines.last {
		if m.hardware == h {
			copy(machines.last[1:i+1], machines.last[:i])
			machines.last[0] = m
			return m, nil
		}
	}
	m, err := newMachine(h)
	if err != nil {
		return nil, err
	}
	machines.last = slices.Insert(machines.last[:min(len(machines.last), most-1)], 0, m)
	return m, nil
}

func newMachine(h *hardware.Profile) (*machine, error) {
	timer, err := kernel.New(h)
	if err != nil {
		return nil, err
	}
	fabric, err := collective.FabricOf(h.GPU, h.Node, h.Network, h.Software, h.Laws.Collectives...)
	if err != nil {
		return nil, fmt.Errorf("hardware %s: %w", h.Name, err)
	}
	l := h.Laws
	m := &machine{hardware: h, timer: timer, fabric: fabric}
	m.law = lawView{gap: l.Launch.Gap, latency: l.Launch.Latency,
		skew: max(l.Overlap.Skew, 1), gemmClock: 1, gemmRates: 1, zeros: 1, vector: 1, grouped: 1, narrow: hardware.Narrow{Forward: 1, Gradients: 1}}
	for _, op := range collective.Ops() {
		m.law.slow = append(m.law.slow, cmp.Or(l.Overlap.Collectives[op.String()], unmeasured))
	}
	if l.Power != nil {
		on := cmp.Or(l.Power.On, &h.GPU)
		if l.Power.GEMMClock > 0 {
			m.law.gemmClock = l.Power.GEMMShare(&h.GPU)
			m.law.gemmRates = rated(&h.GPU) / rated(on)
		}
		m.law.gemmPower = l.Power.ExponentOf(workNames[gemmWork])
		m.law.zeros = cmp.Or(l.Power.Class[workNames[gemmWork]].Zeros, 1)
		m.law.vector = cmp.Or(l.Power.Class[workNames[gemmWork]].Vector, 1)
		m.law.grouped = cmp.Or(l.Power.Class[workNames[gemmWork]].Grouped, 1)
		if n := l.Power.Class[workNames[gemmWork]].Narrow; n != nil {
			m.law.narrow = *n
		}
	}
	return m, nil
}

// rated is the clock that a GPU's tensor peak is given at, over its highest. Laws give rates
// of the peak: where it is given at a lower share, they are reached at a lower one.
func rated(g *hardware.GPU) float64 { return float64(g.Clock.Value / g.TopClock()) }

// utilization is how much of the power that its kind of work draws at most an op takes.
func (m *machine) utilization(o *tape.Op) float64 {
	use := m.timer.Utilization(o)
	if o.Zeros {
		use *= m.law.zeros
	}
	switch {
	case o.DType == tape.F32 && workOf(o.Class) == gemmWork:
		use *= m.law.vector
	case o.Class == tape.GroupedGEMM && !o.Calls && !o.DType.Narrow():
		use *= m.law.grouped
	case !o.DType.Narrow() || o.DType == tape.FP4 || workOf(o.Class) != gemmWork:
	case o.Layout == tape.LayoutForward:
		use *= m.law.narrow.Forward
	default:
		use *= m.law.narrow.Gradients
	}
	return use
}

// slow is the time of a collective under compute over its time alone.
func (m *machine) slow(op collective.Op) float64 { return m.law.slow[op] }

// unmeasured is that of kinds that no law has.
const unmeasured = 1.1
