package pipeline

import (
	"fmt"

	"github.com/perfplan/perfplan/internal/diag"
)

// Megatron-LM and PyTorch run the same order whenever m is a multiple of p:
// 2(p-1-rank) + (v-1)p forwards of warm-up, groups of p micro batches per
// chunk. They differ in two ways. Megatron refuses other m (unless the group
// size is set by hand) and runs plain 1F1B at v = 1. PyTorch takes every m that
// divides into max(1, m/p) equal rounds, with a round as the group, and keeps
// the doubled warm-up at v = 1.
func init() {
	row := Info{
		Name:     "interleaved-1f1b",
		Doc:      "1F1B over v chunks per rank, in groups of p micro batches (Megatron): bubble / v, transfers x v",
		Source:   "arXiv 2104.04473; Megatron-LM schedules.py (get_pp_rank_microbatches, get_schedule_table)",
		rule:     groupsOfRanks,
		order:    interleavedMegatron,
		blocking: blockingInterleaved,
		period:   func(p, _, _ int) int { return p },

		GathersAhead: true, // schedules.py, param_sync_func
	}
	register(row)

	row.Name = "interleaved-1f1b-torch"
	row.GathersAhead = false
	row.Doc = "interleaved 1F1B as PyTorch orders it: any m that divides into max(1, m/p) equal rounds"
	row.Source = "torch ScheduleInterleaved1F1B"
	row.rule = equalRounds("interleaved-1f1b-torch")
	row.order = interleavedTorch
	row.blocking = nil
	row.inStep = interleavedSteps
	row.period = torchPeriod
	register(row)
}

func interleavedMegatron(l *list) {
	if l.v == 1 {
		oneFOneB(l)
		return
	}
	l.interleaved(l.p)
}

func interleavedTorch(l *list) { l.interleaved(roundSize(l.p, l.m)) }

func (l *list) interleaved(group int) {
	f, b := l.grouped(group)
	l.oneForwardOneBackward((l.v-1)*group+2*(l.p-1-l.rank), f, b, false, 0)
}

// interleavedSteps pads what a rank runs so that all are in line (torch 2.8,
// _get_1f1b_rank_ops): a step for each rank before it, as many after the warm-up as the
// first backward takes to arrive, and one before each backward of the cool-down, in which
// others still run a forward.
func interleavedSteps(p *program) []int32 {
	ranks, v, n := p.pl.Ranks, p.pl.Chunks, len(p.actions)/2
	warm := min((v-1)*roundSize(ranks, p.m)+2*(ranks-1-p.rank), n)
	steps := make([]int32, 0, 3*n)
	idle := func(n int) {
		for range n {
			steps = append(steps, -1)
		}
	}
	idle(p.rank)
	for i := range p.actions {
		if i == warm && warm > 0 {
			idle(v*ranks + 2*(ranks-1-p.rank) - warm - p.rank)
		}
		if i >= 2*n-warm {
			idle(1)
		}
		steps = append(steps, int32(i))
	}
	return steps
}

// groupsOfRanks is Megatron's rule: m is a multiple of p, unless v is 1.
func groupsOfRanks(p, v, m int) error {
	if v == 1 || m%p == 0 {
		return nil
	}
	return diag.Errorf("interleaved-1f1b: %d micro batches are not a multiple of %d pipeline ranks; use %s", m, p, nearest(m, func(n int) bool { return n%p == 0 }))
}

// roundSize is how many micro batches PyTorch sends through one chunk in a row.
func roundSize(p, m int) int { return m / max(1, m/p) }

// equalRounds is PyTorch's rule: m divides into max(1, m/p) rounds.
func equalRounds(name string) func(p, v, m int) error {
	return func(p, _, m int) error {
		rounds := max(1, m/p)
		if m%rounds == 0 {
			return nil
		}
		return diag.Errorf("%s: %d micro batches do not divide into %d equal rounds (micro batches / %d pipeline ranks, rounded down); use %s", name, m, rounds, p, nearest(m, func(n int) bool { return n%max(1, n/p) == 0 }))
	}
}

// torchPeriod is a round; the rounds of a longer step keep their size only when
// they hold exactly p micro batches.
func torchPeriod(p, _, m int) int {
	if roundSize(p, m) != p || m%p != 0 {
		return 0
	}
	return p
}

// nearest names the legal values just below and above n.
func nearest(n int, legal func(int) bool) string {
	up := n + 1
	for !legal(up) {
		up++
	}
	for down := n - 1; down > 0; down-- {
		if legal(down) {
			return fmt.Sprintf("%d or %d", down, up)
		}
	}
	return fmt.Sprint(up)
}
