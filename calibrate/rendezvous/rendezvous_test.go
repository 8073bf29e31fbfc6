package rendezvous

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
)

func TestFromEnv(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want *Place
		err  string
	}{
		"alone":             {map[string]string{}, nil, ""},
		"torchrun":          {map[string]string{"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}, &Place{3, 8, 1, 2, "a:29517", "torchrun", "MASTER_ADDR"}, ""},
		"torchrun of one":   {map[string]string{"RANK": "0", "WORLD_SIZE": "1"}, nil, ""},
		"mpirun, one node":  {map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, &Place{1, 2, 1, 2, "127.0.0.1:15000", "mpirun", "one machine"}, ""},
		"mpirun, two nodes": {map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, nil, "mpirun started 4 processes and does not say where the first one is; set MASTER_ADDR"},
		"srun":              {map[string]string{"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "5", "SLURM_STEP_NODELIST": "gpu[007-009],x", "SLURM_JOB_ID": "40001"}, &Place{5, 16, 5, 0, "gpu007:15001", "srun", "SLURM_STEP_NODELIST"}, ""},
		"no number":         {map[string]string{"RANK": "x", "WORLD_SIZE": "2"}, nil, `RANK="x": torchrun sets a whole number there`},
		"rank too high":     {map[string]string{"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, nil, "RANK=2 with WORLD_SIZE=2; ranks count from 0"},
		"no port":           {map[string]string{"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "65530"}, nil, "MASTER_PORT=\"65530\": give a port from 1 to 65518"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FromEnv(func(k string) string { return c.env[k] })
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.True(t, diag.IsInput(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{"": "", "a": "a", "a,b": "a", "n[1-4]": "n1", "n[01,3],m": "n01", "a,n[1-2]": "a", "n[7]": "n7", "n[": ""} {
		require.Equal(t, want, firstHost(list), list)
	}
}

func TestDevices(t *testing.T) {
	for _, c := range []struct {
		local, size, visible int
		want                 []int
		bad                  bool
	}{{3, 8, 8, []int{3}, false}, {3, 8, 1, nil, false}, {0, 1, 8, nil, false}, {2, 0, 4, []int{2}, false}, {4, 8, 4, nil, true}} {
		got, err := (&Place{Local: c.local, LocalSize: c.size, Launcher: "srun"}).Devices(c.visible)
		require.Equal(t, c.want, got)
		require.Equal(t, c.bad, err != nil)
	}
}

// free is an address of this machine that nobody listens on.
func free(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// all joins so many processes, as goroutines, and runs each.
func all(t *testing.T, n int, run func(p *Peers) error) {
	address := free(t)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			p, err := Join(context.Background(), Place{Rank: r, Size: n, Address: address}, 10*time.Second)
			if err == nil {
				defer p.Close()
				err = run(p)
			}
			errs[r] = err
		})
	}
	wg.Wait()
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
	}
}

// Everybody gets what everybody brought, in order, again and again.
func TestShare(t *testing.T) {
	for _, n := range []int{2, 5} {
		all(t, n, func(p *Peers) error {
			for round := range 20 {
				got, err := p.Share(fmt.Appendf(nil, "%d of %d in %d", p.Rank(), p.Size(), round))
				if err != nil {
					return err
				}
				for r, part := range got {
					if want := fmt.Sprintf("%d of %d in %d", r, n, round); string(part) != want {
						return fmt.Errorf("got %q, not %q", part, want)
					}
				}
			}
			return nil
		})
	}
}

// A process that ends is noticed.
func TestLeaving(t *testing.T) {
	all(t, 2, func(p *Peers) error {
		if p.Rank() == 1 {
			return nil
		}
		_, err := p.Share([]byte("x"))
		if err == nil {
			return fmt.Errorf("nobody noticed that process 1 has ended")
		}
		return nil
	})
}

// A stranger's connection does no harm.
func TestStranger(t *testing.T) {
	address := free(t)
	done := make(chan error, 1)
	go func() {
		p, err := Join(context.Background(), Place{Rank: 0, Size: 2, Address: address}, 10*time.Second)
		if err == nil {
			err = p.Close()
		}
		done <- err
	}()
	for {
		c, err := net.Dial("tcp", address)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: perfplan.example\r\n\r\n")
		c.Close()
		break
	}
	p, err := Join(context.Background(), Place{Rank: 1, Size: 2, Address: address}, 10*time.Second)
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.NoError(t, p.Close())
}

func TestNobodyCame(t *testing.T) {
	_, err := Join(context.Background(), Place{Rank: 0, Size: 3, Address: free(t)}, 200*time.Millisecond)
	require.ErrorContains(t, err, "1 of 3 processes came")
	_, err = Join(context.Background(), Place{Rank: 1, Size: 3, Address: free(t), AddressOf: "MASTER_ADDR"}, 200*time.Millisecond)
	require.ErrorContains(t, err, "the first process cannot be reached at 127.0.0.1:")
}
