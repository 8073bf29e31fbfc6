package inventory

import (
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
)

// GPU is what NVML tells of one; 0 and "" are unknown.
type GPU struct {
	Index                int
	Name, UUID, Bus      string
	Memory               int64   // bytes
	MaxClock             float64 // SM, Hz
	MaxMemoryClock       float64 // Hz
	PowerLimit           float64 // W, enforced
	PowerDefault         float64 // W
	SlowdownTemp         int     // °C
	ECC, MultiInstance   bool
	PCIeGen, PCIeWidth   int // the most that card and slot do together
	NVLinks, NVLinkMajor int // active links, their generation
}

// NIC is a network card with verbs.
type NIC struct {
	Name string  // mlx5_0
	Rate float64 // B/s, one direction
	Link string  // InfiniBand, Ethernet
}

// Machine is an inventory.
type Machine struct {
	GPUs         []GPU
	NICs         []NIC
	Topology     *Topology // nil: unknown
	Driver, CUDA string
	CPU          string // intel, amd, arm; "" other
	HostMemory   int64  // bytes
}

// Nearest names the catalog's entry for a GPU: of the same name, then of the nearest
// memory, and of those the one that does not add a cloud's network to another entry
// of the GPU. Without one of the name it is an error that says what is there.
func Nearest(name string, memory int64) (string, error) {
	best, gap, known := "", math.Inf(1), []string{}
	for _, n := range hardware.Names() {
		p, err := hardware.Load(n)
		if err != nil {
			return "", err
		}
		if p.GPU.Name.Value != name {
			known = append(known, p.GPU.Name.Value)
			continue
		}
		d := 0.0
		if memory > 0 {
			d = math.Round(100 * math.Abs(math.Log(float64(memory)/float64(p.GPU.Memory.Value)))) // in per cent: what is reserved differs
		}
		if p.Inherits != "" {
			if base, err := hardware.Load(p.Inherits); err == nil && base.GPU.Name.Value == name {
				d += 0.5
			}
		}
		if d < gap {
			best, gap = n, d
		}
	}
	if best == "" {
		near := diag.Nearest(name, known)
		if near != "" {
			near = "; the nearest name is " + near
		}
		return "", diag.Errorf("the catalog has no GPU named %q%s; name the entry to start from with --base", name, near)
	}
	return best, nil
}
