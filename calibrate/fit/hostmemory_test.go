package fit

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
)

// hostCopies adds what one and all of some threads took to move 6 GiB.
func (n *noisy) hostCopies(one float64, threads int64, all float64) {
	const moved = "6442450944"
	n.add("host-memory", one, "threads", "1", "bytes", moved)
	n.add("host-memory", all, "threads", strconv.FormatInt(threads, 10), "bytes", moved)
}

// TestHostMemory: updates by the host take as long as torch's fused AdamW of 268 million
// values took on the host of an H100 whose 1 and 16 threads were measured so (2026-11-25).
func TestHostMemory(t *testing.T) {
	n := newNoisy(t, 0)
	n.gemms(1024)
	n.hostCopies(0.2675, 16, 0.0465)
	r, err := Run(&n.file, base(t), Options{})
	require.NoError(t, err)
	law, node := r.Loaded.Laws.Offload, &r.Loaded.Node
	require.Equal(t, measuredUpdate, law.Spread)
	require.Equal(t, hardware.Measured, node.HostRate.Kind)
	require.Equal(t, base(t).Node.Cores.Value, node.Cores.Value, "inherited")
	require.Equal(t, base(t).Laws.Offload.ToHost, law.ToHost)
	const values = 1 << 28
	for threads, took := range map[float64]float64{1: 0.3071, 2: 0.1753, 4: 0.1028, 8: 0.0673, 16: 0.0533} {
		got := values/(threads*law.Update) + values*adamBytes/(law.Memory*float64(node.HostRate.Value))
		require.InEpsilon(t, took, got, 0.07, "%v threads", threads)
	}
}

// TestHostMemoryEdges: threads that add nothing to one, or go as fast as it each, still
// make a law; fewer than two cases make none.
func TestHostMemoryEdges(t *testing.T) {
	for _, all := range []float64{0.2, 0.2 / 16, 0.3} {
		n := newNoisy(t, 0)
		n.gemms(1024)
		n.hostCopies(0.2, 16, all)
		r, err := Run(&n.file, base(t), Options{})
		require.NoError(t, err)
		law := r.Loaded.Laws.Offload
		update := func(threads float64) float64 {
			return 1/(threads*law.Update) + adamBytes/(law.Memory*float64(r.Loaded.Node.HostRate.Value))
		}
		const one = adamBytes * 0.2 / 6442450944
		require.InEpsilon(t, min(one, one*all/0.2), update(16), 0.6, "%v", all)
		require.GreaterOrEqual(t, update(1), 0.99*update(16))
	}
	n := newNoisy(t, 0)
	n.gemms(1024)
	n.add("host-memory", 0.2, "threads", "1", "bytes", "6442450944")
	n.add("host-memory", 0.2, "threads", "all", "bytes", "6442450944")
	r, err := Run(&n.file, base(t), Options{})
	require.NoError(t, err)
	require.Equal(t, base(t).Laws.Offload, r.Loaded.Laws.Offload)
	text := ""
	for _, d := range r.Notes {
		text += d.Text + "\n"
	}
	require.Contains(t, text, "probe host-memory has 1 usable cases, fewer than the 2 needed: the host's memory is inherited")
}
