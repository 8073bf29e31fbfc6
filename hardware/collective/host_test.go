package collective

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
)

// TestThroughHost: GPUs that do not reach each other's memory over PCIe exchange data through the
// host's, at 0.6 of the link in each direction: 27.3 GB/s of 48 among 4 RTX 5090 (NVIDIA/nccl-tests
// issue 287), taken to be so of fewer, of half the link, of messages and of all-to-all too. With peer access they have the link: 4 RTX 4090 with a patched driver reach 25.7 at
// 256 MiB (tinygrad/open-gpu-kernel-modules issue 36). A bridge of NVLink needs neither.
func TestThroughHost(t *testing.T) {
	const gen4, gen5 = 31.5 * units.GBps, 63 * units.GBps
	for _, c := range []struct {
		name       string
		capability int
		pcie       units.Rate
		staged     bool
		op         Op
		ranks      int64
		bus        float64 // GB/s of 256 MiB
		within     float64
	}{
		{"4 RTX 5090", 120, gen5, true, AllReduce, 4, 27.3, 0.06},
		{"2 RTX 5090: as 4", 120, gen5, true, AllGather, 2, 27.3, 0.06},
		{"2 RTX 4090: of half the link", 89, gen4, true, AllReduce, 2, 27.3 / 2, 0.06},
		{"4 RTX 4090, peer access", 89, gen4, false, AllReduce, 4, 25.7, 0.15},
		{"a message while one comes back", 89, gen4, true, SendRecv, 2, 14.4, 0.03},
		{"a message, peer access", 89, gen4, false, SendRecv, 2, 24, 0.03},
		{"all-to-all", 89, gen4, true, AllToAll, 4, 14.4, 0.2},
	} {
		f := &Fabric{Capability: c.capability, PCIe: c.pcie, GPUs: 8, Domain: 1, CPU: "amd", Staged: c.staged}
		cost := f.Cost(c.op, 256*units.MiB, Group{Ranks: c.ranks})
		require.InEpsilon(t, c.bus*1e9, float64(cost.BusBW), c.within, c.name)
		if c.staged {
			require.GreaterOrEqual(t, cost.RelErr, fitted().Host.Error, "%s: servers differ", c.name)
		}
	}

	bridged := &Fabric{Capability: 86, NVLink: 56 * units.GBps, PCIe: 31.5 * units.GBps, GPUs: 2, Domain: 2, CPU: "amd", Staged: true}
	peers := &Fabric{Capability: 86, NVLink: 56 * units.GBps, PCIe: 31.5 * units.GBps, GPUs: 2, Domain: 2, CPU: "amd"}
	require.Equal(t, peers.Cost(AllReduce, units.GiB, Group{Ranks: 2}), bridged.Cost(AllReduce, units.GiB, Group{Ranks: 2}))
}

// TestPeerAccess: GeForce cards of the catalog are staged, others not.
func TestPeerAccess(t *testing.T) {
	for name, staged := range map[string]bool{"rtx-3090": true, "rtx-4090": true, "rtx-5090": true, "rtx-2080-ti": true, "rtx-3080": true, "rtx-5080": true, "rtx-a6000": false, "rtx-a5000": false, "rtx-6000-ada": false, "a30": false, "quadro-rtx-8000": false, "rtx-pro-4500-blackwell": false, "rtx-pro-5000-blackwell": false, "rtx-pro-6000-blackwell": false, "l40s": false, "h100-sxm": false} {
		h, err := hardware.Load(name)
		require.NoError(t, err)
		f, err := FabricOf(h.GPU, h.Node, h.Network, h.Software)
		require.NoError(t, err)
		require.Equal(t, staged, f.Staged, name)
	}
}
