package inventory

// GPU is what NVML tells of one; 0 and "" are unknown.
type GPU struct {
	Index                int
	Name, UUID, Bus      string
	Memory               int64   // bytes
	MaxClock             float64 // SM, Hz
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
	Cores        int    // of all processors
	HostMemory   int64  // bytes
}
