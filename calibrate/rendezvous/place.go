package rendezvous

import (
	"net"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// Place is a process among those of a launch.
type Place struct {
	Rank, Size          int
	Local, LocalSize    int // on this machine; LocalSize 0: unknown
	Address             string
	Launcher, AddressOf string // for messages: who launched, which variable named the address
}

// launchers are the environments that are understood, and their variables. The first
// whose rank is set counts.
var launchers = []struct {
	name                        string
	rank, size, local, localAll string
}{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
	{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
}

// portStep keeps clear of MASTER_PORT itself, on which torchrun listens.
const portStep = 17

// Ports from a Slurm job's number, the same in all its processes.
const slurmPort, slurmPorts = 15000, 20000

// FromEnv finds this process's place; nil when it was started alone.
func FromEnv(env func(string) string) (*Place, error) {
	for _, l := range launchers {
		if env(l.rank) == "" || env(l.size) == "" {
			continue
		}
		p := &Place{Launcher: l.name}
		for _, v := range []struct {
			name string
			to   *int
			must bool
		}{{l.rank, &p.Rank, true}, {l.size, &p.Size, true}, {l.local, &p.Local, false}, {l.localAll, &p.LocalSize, false}} {
			text := env(v.name)
			if text == "" && !v.must {
				continue
			}
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return nil, diag.Errorf("%s=%q: %s sets a whole number there; start perfplan by it, or unset %s", v.name, text, l.name, l.rank)
			}
			*v.to = n
		}
		if p.Size <= 1 {
			return nil, nil
		}
		if p.Rank >= p.Size {
			return nil, diag.Errorf("%s=%d with %s=%d; ranks count from 0", l.rank, p.Rank, l.size, p.Size)
		}
		return p, p.setAddress(env)
	}
	return nil, nil
}

// setAddress finds where the process of rank 0 listens.
func (p *Place) setAddress(env func(string) string) error {
	host, port := env("MASTER_ADDR"), env("MASTER_PORT")
	p.AddressOf = "MASTER_ADDR"
	if host == "" && p.Launcher == "srun" {
		host, p.AddressOf = firstHost(env("SLURM_STEP_NODELIST")), "SLURM_STEP_NODELIST"
		if host == "" {
			host, p.AddressOf = firstHost(env("SLURM_JOB_NODELIST")), "SLURM_JOB_NODELIST"
		}
	}
	if host == "" && p.LocalSize == p.Size {
		host, p.AddressOf = "127.0.0.1", "one machine"
	}
	if host == "" {
		return diag.Errorf("%s started %d processes and does not say where the first one is; set MASTER_ADDR to its machine and MASTER_PORT to a free port, the same for all", p.Launcher, p.Size)
	}
	number := slurmPort
	if job, err := strconv.Atoi(env("SLURM_JOB_ID")); err == nil && job > 0 {
		number += job % slurmPorts
	}
	if port != "" {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n+portStep > 65535 {
			return diag.Errorf("MASTER_PORT=%q: give a port from 1 to %d; perfplan uses the one %d above it", port, 65535-portStep, portStep)
		}
		number = n + portStep
	}
	p.Address = net.JoinHostPort(host, strconv.Itoa(number))
	return nil
}

// firstHost is the first machine of a Slurm list: node[03-05,9],other is node03.
func firstHost(list string) string {
	prefix, rest, ranged := strings.Cut(list, "[")
	if name, _, ok := strings.Cut(prefix, ","); ok || !ranged {
		return name
	}
	end := strings.IndexAny(rest, ",-]")
	if end < 0 {
		return ""
	}
	return prefix + rest[:end]
}

// Devices are the GPUs of this process among so many that it sees: all when it is
// alone on its machine, its own when each process has one; nil is all.
func (p *Place) Devices(visible int) ([]int, error) {
	switch {
	case p.LocalSize == 1 || visible == 1:
		return nil, nil
	case p.Local < visible:
		return []int{p.Local}, nil
	}
	return nil, diag.Errorf("%s started a process %d on this machine, which has %d GPUs; start one for each GPU or one for each machine", p.Launcher, p.Local, visible)
}
