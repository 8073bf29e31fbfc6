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
	for line := range strings.Lines(text("proc/cpuinfo")) {
		key, value, _ := strings.Cut(line, ":")
		switch v := strings.TrimSpace(value); {
		case strings.TrimSpace(key) == "vendor_id" && v == "GenuineIntel":
			m.CPU = "intel"
		case strings.TrimSpace(key) == "vendor_id" && v == "AuthenticAMD":
			m.CPU = "amd"
		case strings.TrimSpace(key) == "CPU implementer":
			m.CPU = "arm"
		}
	}
	for line := range strings.Lines(text("proc/meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				m.HostMemory = kib << 10
			}
		}
	}
}
