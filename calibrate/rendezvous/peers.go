package rendezvous

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Peers are connected processes. A connection goes from each to the one of rank 0.
type Peers struct {
	place Place
	conns []net.Conn // rank 0: by rank, its own nil; others: that to rank 0
}

// hello begins every connection: who speaks, then rank and size.
const hello = "perfplan rendezvous 1\n"

// maxMessage bounds what a process shares.
const maxMessage = 16 << 20

// Join connects all processes; each must call it within the timeout.
func Join(ctx context.Context, p Place, timeout time.Duration) (*Peers, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if p.Rank == 0 {
		return listen(ctx, p)
	}
	return dial(ctx, p)
}

func listen(ctx context.Context, p Place) (*Peers, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", p.Address)
	if err != nil {
		return nil, fmt.Errorf("the first process cannot listen on %s (from %s): %w; set MASTER_ADDR to this machine and MASTER_PORT to a free port", p.Address, p.AddressOf, err)
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	out := &Peers{place: p, conns: make([]net.Conn, p.Size)}
	for n := 1; n < p.Size; {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%d of %d processes came: %w", n, p.Size, context.Cause(ctx))
			}
			return nil, errors.Join(err, out.Close())
		}
		rank, size, err := greeted(c)
		switch {
		case err != nil: // somebody else's connection
			c.Close()
			continue
		case size != p.Size || rank < 1 || rank >= p.Size || out.conns[rank] != nil:
			return nil, errors.Join(fmt.Errorf("a process came as rank %d of %d; this one is rank 0 of %d and each rank comes once", rank, size, p.Size), c.Close(), out.Close())
		}
		out.conns[rank] = c
		n++
	}
	return out, nil
}

// greetingTime is how long a connection may take to say who it is.
const greetingTime = 5 * time.Second

func greeted(c net.Conn) (rank, size int, err error) {
	buf := make([]byte, len(hello)+8)
	c.SetReadDeadline(time.Now().Add(greetingTime))
	if _, err := io.ReadFull(c, buf); err != nil {
		return 0, 0, err
	}
	if string(buf[:len(hello)]) != hello {
		return 0, 0, errors.New("not a process of perfplan")
	}
	n := buf[len(hello):]
	return int(binary.LittleEndian.Uint32(n)), int(binary.LittleEndian.Uint32(n[4:])), c.SetReadDeadline(time.Time{})
}

// retry is the pause between attempts to reach a process that has not started yet.
const retry = 100 * time.Millisecond

func dial(ctx context.Context, p Place) (*Peers, error) {
	var d net.Dialer
	for {
		c, err := d.DialContext(ctx, "tcp", p.Address)
		if err == nil {
			greeting := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte(hello), uint32(p.Rank)), uint32(p.Size))
			if _, err = c.Write(greeting); err == nil {
				return &Peers{place: p, conns: []net.Conn{c}}, nil
			}
			c.Close()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the first process cannot be reached at %s (from %s): %w; set MASTER_ADDR and MASTER_PORT to where it is", p.Address, p.AddressOf, err)
		case <-time.After(retry):
		}
	}
}

// Rank of this process.
func (p *Peers) Rank() int { return p.place.Rank }

// Size is the number of processes.
func (p *Peers) Size() int { return p.place.Size }

// Share gives every process what each of them brought, by rank. All call it together;
// it waits for the slowest.
func (p *Peers) Share(own []byte) ([][]byte, error) {
	if len(own) > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes; at most %d can be shared", len(own), maxMessage)
	}
	all := make([][]byte, p.place.Size)
	all[p.place.Rank] = own
	if p.place.Rank != 0 {
		c := p.conns[0]
		if err := send(c, own); err != nil {
			return nil, fmt.Errorf("the first process has ended: %w", err)
		}
		for i := range all {
			part, err := receive(c)
			if err != nil {
				return nil, fmt.Errorf("the first process has ended: %w", err)
			}
			all[i] = part
		}
		return all, nil
	}
	for r, c := range p.conns {
		if c == nil {
			continue
		}
		part, err := receive(c)
		if err != nil {
			return nil, fmt.Errorf("process %d has ended: %w", r, err)
		}
		all[r] = part
	}
	for r, c := range p.conns {
		for _, part := range all {
			if c == nil {
				break
			}
			if err := send(c, part); err != nil {
				return nil, fmt.Errorf("process %d has ended: %w", r, err)
			}
		}
	}
	return all, nil
}

func send(c net.Conn, part []byte) error {
	_, err := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(part))), part...))
	return err
}

func receive(c net.Conn) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	part := make([]byte, n)
	_, err := io.ReadFull(c, part)
	return part, err
}

// Close ends the connections.
func (p *Peers) Close() error {
	var errs []error
	for _, c := range p.conns {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
