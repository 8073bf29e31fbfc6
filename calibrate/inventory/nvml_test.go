//go:build cgo && linux

package inventory

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// board is a modelled GPU with two links to a switch.
func board(i int) *mock.Device {
	none := func(v int) func() (int, nvml.Return) { return func() (int, nvml.Return) { return v, nvml.SUCCESS } }
	return &mock.Device{
		GetNameFunc:       func() (string, nvml.Return) { return "NVIDIA H200", nvml.SUCCESS },
		GetUUIDFunc:       func() (string, nvml.Return) { return "", nvml.ERROR_NOT_SUPPORTED },
		GetPciInfoFunc:    func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{Bus: uint32(0x18 + i)}, nvml.SUCCESS },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 143771 << 20}, nvml.SUCCESS },
		GetMaxClockInfoFunc: func(c nvml.ClockType) (uint32, nvml.Return) {
			return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1980, nvml.CLOCK_MEM: 3201}[c], nvml.SUCCESS
		},
		GetEnforcedPowerLimitFunc:          func() (uint32, nvml.Return) { return 700000, nvml.SUCCESS },
		GetPowerManagementDefaultLimitFunc: func() (uint32, nvml.Return) { return 700000, nvml.SUCCESS },
		GetTemperatureThresholdFunc:        func(nvml.TemperatureThresholds) (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED },
		GetEccModeFunc: func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
			return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, nvml.SUCCESS
		},
		GetMigModeFunc:               func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 0, nvml.SUCCESS },
		GetMaxPcieLinkGenerationFunc: none(5),
		GetMaxPcieLinkWidthFunc:      none(16),
		GetNvLinkStateFunc: func(l int) (nvml.EnableState, nvml.Return) {
			return map[bool]nvml.EnableState{true: nvml.FEATURE_ENABLED}[l < 2], nvml.SUCCESS
		},
		GetNvLinkVersionFunc:          func(int) (uint32, nvml.Return) { return 6, nvml.SUCCESS },
		GetNvLinkRemoteDeviceTypeFunc: func(int) (nvml.IntNvLinkDeviceType, nvml.Return) { return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS },
		GetTopologyCommonAncestorFunc: func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) { return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS },
	}
}

func library(gpus int) *mock.Interface {
	return &mock.Interface{
		DeviceGetCountFunc:             func() (int, nvml.Return) { return gpus, nvml.SUCCESS },
		SystemGetDriverVersionFunc:     func() (string, nvml.Return) { return "580.1", nvml.SUCCESS },
		SystemGetCudaDriverVersionFunc: func() (int, nvml.Return) { return 13010, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc:     func(i int) (nvml.Device, nvml.Return) { return board(i), nvml.SUCCESS },
	}
}

func TestRead(t *testing.T) {
	m, err := read(library(2))
	require.NoError(t, err)
	require.Equal(t, "13.1", m.CUDA)
	require.Equal(t, GPU{Index: 1, Name: "NVIDIA H200", Bus: "00000000:19:00.0", Memory: 143771 << 20, MaxClock: 1980e6, PowerLimit: 700, PowerDefault: 700,
		ECC: true, MultiInstance: true, PCIeGen: 5, PCIeWidth: 16, NVLinks: 2, NVLinkMajor: 4}, m.GPUs[1])
	require.Equal(t, [][]string{{"X", "NV2"}, {"NV2", "X"}}, m.Topology.Cells)
}

func TestNoGPU(t *testing.T) {
	var missing *cuda.Missing
	_, err := read(library(0))
	require.True(t, errors.As(err, &missing))
}
