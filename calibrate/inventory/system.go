package inventory

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// system reads network cards, processor and memory from the files of a Linux system.
// What is not there stays unknown.
func (m *Machine) system(root fs.FS) {
	text := func(name string) string {
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	const cards = "sys/class/infiniband"
	entries, _ := fs.ReadDir(root, cards)
	for _, e := range entries {
		port := path.Join(cards, e.Name(), "ports", "1")
		rate, _, _ := strings.Cut(text(path.Join(port, "rate")), " ") // 400 Gb/sec (4X NDR)
		gbit, err := strconv.ParseFloat(rate, 64)
		if err != nil || gbit <= 0 {
			continue
		}
		m.NICs = append(m.NICs, NIC{Name: e.Name(), Rate: gbit * 1e9 / 8, Link: text(path.Join(port, "link_layer"))})
	}
	cores, socket, threads := map[[2]string]bool{}, "", 0
	for line := range strings.Lines(text("proc/cpuinfo")) {
		key, value, _ := strings.Cut(line, ":")
		switch k, v := strings.TrimSpace(key), strings.TrimSpace(value); {
		case k == "vendor_id" && v == "GenuineIntel":
			m.CPU = "intel"
		case k == "vendor_id" && v == "AuthenticAMD":
			m.CPU = "amd"
		case k == "CPU implementer":
			m.CPU = "arm"
		case k == "processor":
			threads++
		case k == "physical id":
			socket = v
		case k == "core id":
			cores[[2]string{socket, v}] = true
		}
	}
	if m.Cores = len(cores); m.Cores == 0 { // Arm's say no more than the number of threads, each of a core of its own
		m.Cores = threads
	}
	for line := range strings.Lines(text("proc/meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				m.HostMemory = kib << 10
			}
		}
	}
}
