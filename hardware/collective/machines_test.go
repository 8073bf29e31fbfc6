package collective

import "github.com/perfplan/perfplan/internal/units"

// machine is the fabric of a machine column of testdata.
func machine(name string, v Version) *Fabric {
	h := hgxH200()
	h.NCCL = v
	switch name {
	case "h200-nvls", "h100-ib":
	case "h200-ring":
		h.Multicast = false
	case "p5":
		h.NICs, h.NICRate, h.Transport, h.CPU = 32, 12.5*units.GBps, "efa", "amd"
	case "roce-4x400":
		h.NICs, h.Transport = 4, "roce"
	case "b200-ring", "b200-nvls", "p6-b200", "p6-b300", "gb200":
		h.Capability, h.NVLink = 100, 900*units.GBps
		h.Multicast = name != "b200-ring"
		if name == "gb200" {
			h.CPU, h.GPUs, h.Domain, h.NICs = "arm", 4, 72, 4
		}
		if name == "p6-b200" || name == "p6-b300" {
			h.Transport = "efa"
		}
		if name == "p6-b300" {
			h.Capability, h.NICs = 103, 16
		}
	case "a100-nvlink", "a100-ib", "a100-4x200", "p4de":
		h = hgxA100()
		h.NCCL = v
		if name == "a100-4x200" {
			h.NICs = 4
		}
		if name == "p4de" {
			h.NICs, h.NICRate, h.CPU, h.Transport = 4, 12.5*units.GBps, "intel", "efa"
		}
	}
	return h
}
