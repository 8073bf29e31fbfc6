//go:build cgo && linux

package inventory

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// Detect takes the inventory of this machine. Without a driver or a GPU the error is
// a *cuda.Missing.
func Detect() (*Machine, error) {
	lib, err := cuda.NVML(nil)
	if err != nil {
		return nil, err
	}
	defer lib.Shutdown()
	m, err := read(lib)
	if err != nil {
		return nil, err
	}
	m.system(os.DirFS("/"))
	if t := command(); t != nil && t.GPUs() == len(m.GPUs) {
		m.Topology = t // with the network cards, which NVML does not know
	}
	return m, nil
}

// commandTime bounds nvidia-smi, which may hang with a broken driver.
const commandTime = 5 * time.Second

// command asks nvidia-smi for the topology; nil where it is not there or prints none.
func command() *Topology {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	text, err := exec.CommandContext(ctx, "nvidia-smi", "topo", "-m").Output()
	if err != nil {
		return nil
	}
	t, err := ParseTopology(bytes.NewReader(text), "nvidia-smi topo -m")
	if err != nil {
		return nil
	}
	return t
}

// read asks NVML. A fact that it does not tell stays unknown.
func read(lib nvml.Interface) (*Machine, error) {
	n, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS || n == 0 {
		return nil, &cuda.Missing{Text: "the NVIDIA driver finds no GPU; check nvidia-smi"}
	}
	m := &Machine{}
	if v, ret := lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		m.Driver = v
	}
	if v, ret := lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		m.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	devices := make([]nvml.Device, n)
	for i := range n {
		d, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, &cuda.Error{Call: "nvmlDeviceGetHandleByIndex", Code: int(ret), Text: lib.ErrorString(ret), Device: i}
		}
		devices[i] = d
		m.GPUs = append(m.GPUs, describe(i, d))
	}
	m.Topology = topology(devices)
	return m, nil
}

func describe(i int, d nvml.Device) GPU {
	g := GPU{Index: i}
	if v, ret := d.GetName(); ret == nvml.SUCCESS {
		g.Name = v
	}
	if v, ret := d.GetUUID(); ret == nvml.SUCCESS {
		g.UUID = v
	}
	if v, ret := d.GetPciInfo(); ret == nvml.SUCCESS {
		g.Bus = fmt.Sprintf("%08x:%02x:%02x.0", v.Domain, v.Bus, v.Device)
	}
	if v, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.Memory = int64(v.Total)
	}
	if v, ret := d.GetMaxClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		g.MaxClock = float64(v) * 1e6
	}
	if v, ret := d.GetEnforcedPowerLimit(); ret == nvml.SUCCESS {
		g.PowerLimit = float64(v) * 1e-3
	}
	if v, ret := d.GetPowerManagementDefaultLimit(); ret == nvml.SUCCESS {
		g.PowerDefault = float64(v) * 1e-3
	}
	if v, ret := d.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN); ret == nvml.SUCCESS {
		g.SlowdownTemp = int(v)
	}
	if v, _, ret := d.GetEccMode(); ret == nvml.SUCCESS {
		g.ECC = v == nvml.FEATURE_ENABLED
	}
	if v, _, ret := d.GetMigMode(); ret == nvml.SUCCESS {
		g.MultiInstance = v == nvml.DEVICE_MIG_ENABLE
	}
	if v, ret := d.GetMaxPcieLinkGeneration(); ret == nvml.SUCCESS {
		g.PCIeGen = v
	}
	if v, ret := d.GetMaxPcieLinkWidth(); ret == nvml.SUCCESS {
		g.PCIeWidth = v
	}
	for l := range nvml.NVLINK_MAX_LINKS {
		if state, ret := d.GetNvLinkState(l); ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		g.NVLinks++
		if v, ret := d.GetNvLinkVersion(l); ret == nvml.SUCCESS {
			g.NVLinkMajor = majors[v]
		}
	}
	return g
}

// majors are the generations of nvmlNvlinkVersion_t.
var majors = map[uint32]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5}

// levels are NVML's words for a path over PCIe, in nvidia-smi's.
var levels = map[nvml.GpuTopologyLevel]string{nvml.TOPOLOGY_INTERNAL: "PIX", nvml.TOPOLOGY_SINGLE: "PIX", nvml.TOPOLOGY_MULTIPLE: "PXB",
	nvml.TOPOLOGY_HOSTBRIDGE: "PHB", nvml.TOPOLOGY_NODE: "NODE", nvml.TOPOLOGY_SYSTEM: "SYS"}

// topology asks for the path between each pair of GPUs; nil where NVML does not tell.
func topology(devices []nvml.Device) *Topology {
	t := &Topology{}
	for i := range devices {
		t.Devices = append(t.Devices, fmt.Sprintf("GPU%d", i))
		row := make([]string, len(devices))
		for j := range devices {
			if i == j {
				row[j] = "X"
				continue
			}
			level, ret := devices[i].GetTopologyCommonAncestor(devices[j])
			if ret != nvml.SUCCESS {
				return nil
			}
			row[j] = levels[level]
			if n := links(devices[i], devices[j]); n > 0 {
				row[j] = fmt.Sprintf("NV%d", n)
			}
		}
		t.Cells = append(t.Cells, row)
	}
	return t
}

// links counts the NVLinks from one GPU to another, or to a switch that both have
// links to, as nvidia-smi does.
func links(a, b nvml.Device) int {
	other, ret := b.GetPciInfo()
	if ret != nvml.SUCCESS {
		return 0
	}
	direct, switched := 0, 0
	for l := range nvml.NVLINK_MAX_LINKS {
		if state, ret := a.GetNvLinkState(l); ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		if kind, ret := a.GetNvLinkRemoteDeviceType(l); ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
			switched++
			continue
		}
		if remote, ret := a.GetNvLinkRemotePciInfo(l); ret == nvml.SUCCESS && remote.Domain == other.Domain && remote.Bus == other.Bus && remote.Device == other.Device {
			direct++
		}
	}
	return max(direct, switched)
}
