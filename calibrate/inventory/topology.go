package inventory

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// Topology is how the devices of a machine reach each other, in the words of
// nvidia-smi topo -m: NV# (# NVLinks), PIX (one PCIe switch), PXB (several), PHB (host
// bridge), NODE (within a NUMA node), SYS (across).
type Topology struct {
	Devices []string   // GPU0, NIC0 or mlx5_0
	Cells   [][]string // by row and column; X on the diagonal
	NICs    []string   // names of the cards, where the legend tells them
}

var (
	escape  = regexp.MustCompile("\x1b\\[[0-9;]*m")
	link    = regexp.MustCompile(`^(X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)$`)
	legend  = regexp.MustCompile(`^\s*(NIC\d+):\s+(\S+)`)
	gpuName = regexp.MustCompile(`^GPU\d+$`)
	anyName = regexp.MustCompile(`^(GPU\d+|NIC\d+|mlx\d+_\w+|bnxt_re\w*|ibp\w+|hfi\w+|rdmap?\w+)$`)
)

// Bounds of the text: a machine has at most some hundred devices.
const (
	maxDevices = 512
	maxLine    = 1 << 16
)

// ParseTopology reads the text of nvidia-smi topo -m; name is for messages.
func ParseTopology(r io.Reader, name string) (*Topology, error) {
	t := &Topology{}
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	fail := func(line int, format string, args ...any) error {
		return &diag.Error{File: name, Line: line, Col: 1, Message: fmt.Sprintf(format, args...)}
	}
	line := 0
	for in.Scan() {
		line++
		fields := strings.Fields(escape.ReplaceAllString(in.Text(), ""))
		if m := legend.FindStringSubmatch(in.Text()); m != nil {
			t.NICs = append(t.NICs, m[2])
			continue
		}
		switch {
		case len(fields) == 0 || len(t.Devices) > 0 && len(t.Cells) == len(t.Devices):
		case len(t.Devices) == 0:
			if !gpuName.MatchString(fields[0]) {
				continue // text before the table
			}
			for _, f := range fields {
				if !anyName.MatchString(f) {
					break // CPU Affinity
				}
				t.Devices = append(t.Devices, f)
			}
			if len(t.Devices) > maxDevices {
				return nil, fail(line, "a table of %d devices; at most %d are possible", len(t.Devices), maxDevices)
			}
		case fields[0] != t.Devices[len(t.Cells)]:
			return nil, fail(line, "the row begins with %q; it should be that of %s, as in the header", fields[0], t.Devices[len(t.Cells)])
		case len(fields) <= len(t.Devices):
			return nil, fail(line, "the row of %s has %d cells; the header has %d devices", fields[0], len(fields)-1, len(t.Devices))
		default:
			row := fields[1 : 1+len(t.Devices)]
			for i, c := range row {
				if !link.MatchString(c) || (c == "X") != (i == len(t.Cells)) {
					return nil, fail(line, "%s to %s: %q is no kind of link here; nvidia-smi topo -m prints X, NV#, PIX, PXB, PHB, NODE or SYS", fields[0], t.Devices[i], c)
				}
			}
			t.Cells = append(t.Cells, row)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fail(line+1, "%v; this is not the text of nvidia-smi topo -m", err)
	}
	if len(t.Devices) == 0 {
		return nil, fail(0, "no table of GPUs; save it by: nvidia-smi topo -m > %s", name)
	}
	if len(t.Cells) < len(t.Devices) {
		return nil, fail(line, "the table ends after %d of %d rows", len(t.Cells), len(t.Devices))
	}
	return t, nil
}

// gpus are the rows of GPUs.
func (t *Topology) gpus() []int {
	var out []int
	for i, d := range t.Devices {
		if gpuName.MatchString(d) {
			out = append(out, i)
		}
	}
	return out
}

// GPUs counts them.
func (t *Topology) GPUs() int { return len(t.gpus()) }

// Cards counts the network cards.
func (t *Topology) Cards() int { return len(t.Devices) - t.GPUs() }

// Links is the number of NVLinks between two devices.
func (t *Topology) Links(i, j int) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(t.Cells[i][j], "NV"))
	return n
}

// Domain is the size of the largest set of GPUs that reach each other over NVLink; 1
// without.
func (t *Topology) Domain() int {
	left := t.gpus()
	best := 0
	for len(left) > 0 {
		set := []int{left[0]}
		for k := 0; k < len(set); k++ {
			for _, j := range left {
				if !slices.Contains(set, j) && t.Links(set[k], j) > 0 {
					set = append(set, j)
				}
			}
		}
		best = max(best, len(set))
		left = slices.DeleteFunc(left, func(i int) bool { return slices.Contains(set, i) })
	}
	return best
}

// mostLinks is how many NVLinks a GPU has at most: 18 of Hopper and Blackwell.
const mostLinks = 18

// Switched says whether GPUs reach each other through switches: each pair then shows
// all links of a GPU, more together than one has. Of two GPUs it cannot be told.
func (t *Topology) Switched() (switched, known bool) {
	g := t.gpus()
	if len(g) < 3 {
		return false, false
	}
	for _, i := range g {
		total := 0
		for _, j := range g {
			if i != j {
				total += t.Links(i, j)
			}
		}
		if total > mostLinks {
			return true, true
		}
	}
	return false, true
}
