package timeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestCopies: copies to the host and from it slow each other while both run, and neither slows
// kernels, which collectives do, nor is slowed by them.
func TestCopies(t *testing.T) {
	kernels := Segment{Busy: 4, Loaded: 6}
	for _, c := range []struct {
		name            string
		run             func(*Sim)
		now, exposed    float64
		copied, starved float64
		contends        float64
	}{
		{"kernels beside a copy", func(s *Sim) { s.Copy(0, "in", 10, 0); s.Run(&kernels) }, 4, 0, 10, 0, 0},
		{"kernels beside a collective", func(s *Sim) { s.Launch(0, "gather", 10, 0, 1); s.Run(&kernels) }, 6, 0, 0, 0, 2},
		{"both ways: 2 alone, then 4 crowded", func(s *Sim) { s.Copy(0, "in", 2, 2); s.Wait(s.Copy(1, "out", 4, 0)) }, 5, 5, 6, 5, 0},
		{"one way, one after the other", func(s *Sim) { s.Copy(0, "in", 2, 0); s.Wait(s.Copy(0, "in", 4, 0)) }, 6, 6, 6, 6, 0},
		{"a fetch of the compute stream", func(s *Sim) { s.Fetch(3, 1) }, 4, 3, 3, 3, 0},
		{"beside a copy of 3 the other way", func(s *Sim) { s.Copy(1, "out", 3, 0); s.Fetch(4, 0) }, 5.5, 5.5, 7, 5.5, 0},
		{"a copy of what a collective behind another leaves", func(s *Sim) {
			s.Launch(0, "gather", 2, 0, 1)
			s.Wait(s.CopyAfter(s.Launch(0, "reduce", 3, 0, 1), 1, "out", 4))
		}, 9, 9, 4, 4, 0},
		{"a copy behind it, and beside the next gather", func(s *Sim) {
			out := s.CopyAfter(s.Launch(0, "reduce", 3, 0, 1), 1, "out", 4)
			s.Wait(s.Launch(0, "gather", 5, 0, 1))
			s.Wait(out)
		}, 8, 8, 4, 0, 0},
		{"a collective behind a copy", func(s *Sim) { s.Copy(0, "in", 2, 0); s.Wait(s.Launch(0, "gather", 3, 0, 1)) }, 5, 5, 2, 2, 0},
	} {
		s := Sim{Crowd: 1.5}
		c.run(&s)
		require.InDelta(t, c.now, s.Now, 1e-9, c.name)
		require.InDelta(t, c.exposed, s.Exposed, 1e-9, c.name)
		require.InDelta(t, c.copied, s.Copied, 1e-9, c.name)
		require.InDelta(t, c.starved, s.Starved, 1e-9, c.name)
		require.InDelta(t, c.contends, s.Slowed, 1e-9, c.name)
	}
}

// TestCopiesRepeat: what passes over equal stretches passes over their copies, too.
func TestCopiesRepeat(t *testing.T) {
	stretch := func(s *Sim) {
		in := s.Copy(0, "in", 1, s.Now)
		s.Run(&Segment{Busy: 2, Loaded: 3})
		s.Wait(in)
		s.Wait(s.Copy(1, "out", 0.5, s.Now))
	}
	var all, some Sim
	for range 10 {
		stretch(&all)
	}
	var a, b Mark
	stretch(&some)
	some.Mark(&a)
	stretch(&some)
	some.Mark(&b)
	require.True(t, b.Repeats(&a))
	some.Skip(&a, 8)
	require.InDelta(t, all.Now, some.Now, 1e-9)
	require.InDelta(t, all.Copied, some.Copied, 1e-9)
	require.InDelta(t, float64(units.Seconds(all.Moved)), some.Moved, 1e-9)
}
