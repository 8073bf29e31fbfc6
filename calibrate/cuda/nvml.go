//go:build cgo && linux

package cuda

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// management is NVML; nil where there is none, and then nothing is known.
type management struct {
	lib     nvml.Interface
	handles map[string]nvml.Device // by place on the bus
}

func manage(folders []string) *management {
	lib, err := NVML(folders)
	if err != nil {
		return nil
	}
	return &management{lib, map[string]nvml.Device{}}
}

// NVML opens and initializes the management library, which is looked for where the
// others are. Who gets it shuts it down.
func NVML(folders []string) (nvml.Interface, error) {
	first := ""
	for _, path := range newSearch(folders).candidates("NVML") {
		lib := nvml.New(nvml.WithLibraryPath(path))
		ret := lib.Init()
		if ret == nvml.SUCCESS {
			return lib, nil
		}
		if first == "" {
			first = fmt.Sprintf("%s: nvmlInit: %s", path, lib.ErrorString(ret))
		}
	}
	return nil, &Missing{"no NVIDIA driver found: " + first + "; run this on a machine with an NVIDIA GPU and its driver"}
}

func (m *management) close() {
	if m != nil {
		m.lib.Shutdown() // the process ends
	}
}

func (m *management) driverVersion() string {
	if m == nil {
		return ""
	}
	v, ret := m.lib.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return ""
	}
	return v
}

// handle finds a GPU by its place on the bus: NVML counts GPUs otherwise than CUDA.
func (m *management) handle(d Device) (nvml.Device, bool) {
	if m == nil {
		return nil, false
	}
	if h, ok := m.handles[d.Bus]; ok {
		return h, true
	}
	h, ret := m.lib.DeviceGetHandleByPciBusId(d.Bus)
	if ret == nvml.SUCCESS {
		m.handles[d.Bus] = h
	}
	return h, ret == nvml.SUCCESS
}

// describe adds what NVML knows: memory in use, processes, limits.
func (m *management) describe(d *Device) {
	h, ok := m.handle(*d)
	if !ok {
		return
	}
	if mem, ret := h.GetMemoryInfo(); ret == nvml.SUCCESS {
		d.Free = int64(mem.Free)
	}
	if list, ret := h.GetComputeRunningProcesses(); ret == nvml.SUCCESS {
		for _, p := range list {
			if int(p.Pid) != os.Getpid() {
				d.OtherProcesses++
			}
		}
	}
	if mw, ret := h.GetEnforcedPowerLimit(); ret == nvml.SUCCESS {
		d.PowerLimit = float64(mw) * 1e-3
	}
	if mhz, ret := h.GetMaxClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		d.MaxClock = float64(mhz) * 1e6
	}
}

// reasons that hold the clock down, by bit of nvmlClocksEventReasons; an idle GPU
// and settings of the user are none.
var reasons = []struct {
	bit  uint64
	name string
}{
	{nvml.ClocksEventReasonSwPowerCap, "power-cap"},
	{nvml.ClocksThrottleReasonHwSlowdown, "hardware-slowdown"},
	{nvml.ClocksEventReasonSwThermalSlowdown, "thermal"},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, "hardware-thermal"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power-brake"},
	{nvml.ClocksEventReasonSyncBoost, "sync-boost"},
}

// telemetry reads a GPU's clock, power, temperature and what slows it. Power is the
// momentary one where the GPU tells it, else the average over about a second.
func (m *management) telemetry(d Device) (Telemetry, error) {
	var t Telemetry
	h, ok := m.handle(d)
	if !ok {
		return t, &Unavailable{fmt.Sprintf("GPU %d: NVML is not there; clocks and power stay unknown", d.Index)}
	}
	if mhz, ret := h.GetClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		t.ClockHz = float64(mhz) * 1e6
	}
	field := []nvml.FieldValue{{FieldId: nvml.FI_DEV_POWER_INSTANT}}
	if ret := h.GetFieldValues(field); ret == nvml.SUCCESS && field[0].NvmlReturn == uint32(nvml.SUCCESS) {
		t.PowerW = float64(binary.LittleEndian.Uint32(field[0].Value[:4])) * 1e-3
	} else if mw, ret := h.GetPowerUsage(); ret == nvml.SUCCESS {
		t.PowerW = float64(mw) * 1e-3
	}
	if c, ret := h.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		t.TempC = float64(c)
	}
	bits, ret := h.GetCurrentClocksEventReasons()
	if ret != nvml.SUCCESS { // drivers before 535
		bits, _ = h.GetCurrentClocksThrottleReasons()
	}
	var names []string
	for _, r := range reasons {
		if bits&r.bit != 0 {
			names = append(names, r.name)
		}
	}
	t.Throttled = strings.Join(names, ",")
	return t, nil
}
