package timeline

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
)

const e = 1e-9

// TestRunByHand: the device waits for the host, and the host never for the device but
// where it must.
func TestRunByHand(t *testing.T) {
	var s Sim
	// Host-bound: 3 s to issue 1 s of work that ends 4 s after the host began.
	s.Run(&Segment{Host: 3, Busy: 1, Loaded: 1, Lag: 4})
	require.InDelta(t, 4, s.Now, e)
	require.InDelta(t, 3, s.Host, e)
	require.InDelta(t, 3, s.Idle, e)
	// The next is issued while nothing runs: the host is at 3, the device free at 4.
	s.Run(&Segment{Host: 0.5, Busy: 10, Loaded: 10, Lag: 10})
	require.InDelta(t, 14, s.Now, e)
	require.InDelta(t, 3.5, s.Host, e)
	require.InDelta(t, 3, s.Idle, e, "the device was busy")
	s.Run(&Segment{Host: 0.5, Busy: 1, Loaded: 1, Lag: 1, Sync: true})
	require.InDelta(t, 15, s.Host, e, "the host waited for the device")
}

// TestContention: two seconds of communication beside work that it slows by half:
// the work is slowed while, and only while, something is sent.
func TestContention(t *testing.T) {
	var s Sim
	task := s.Launch(0, "all-reduce", 2, 0, 1.25)
	s.Run(&Segment{Busy: 4, Loaded: 6})
	require.InDelta(t, 2.5, s.End(task), e, "2 s at 1.25 times their time")
	require.InDelta(t, 2.5+4-2.5/1.5, s.Now, e, "2.5 s did 2.5/1.5 s of the work")
	require.InDelta(t, s.Now-4, s.Slowed, e)
	require.Zero(t, s.Wait(task))
	require.Zero(t, s.Exposed)
}

// TestExposed: what nothing hides is waited for, alone and at its own speed.
func TestExposed(t *testing.T) {
	var s Sim
	s.Run(&Segment{Busy: 1, Loaded: 1})
	task := s.Launch(0, "all-gather", 3, 0, 2)
	require.InDelta(t, 3, s.Wait(task), e)
	require.InDelta(t, 4, s.Now, e)
	require.InDelta(t, 3, s.Exposed, e)
	require.InDelta(t, 3, s.Moved, e)
}

// TestLateHost: what the host has not issued yet is waited for because of the host; what
// waits for another stream, because of communication.
func TestLateHost(t *testing.T) {
	for _, c := range []struct{ host, ready, idle, exposed float64 }{
		{5, 5, 5, 3}, {5, 7, 5, 5}, {0, 2, 0, 5}, {2, 0, 0, 3},
	} {
		s := Sim{Host: c.host}
		require.InDelta(t, c.idle+c.exposed, s.Wait(s.Launch(0, "all-gather", 3, c.ready, 1)), e)
		require.InDelta(t, c.idle, s.Idle, e, c)
		require.InDelta(t, c.exposed, s.Exposed, e, c)
	}
}

// TestHold: on one connection to the device work that is launched behind a task waits until that
// starts, which is when the one before it of its communicator ends.
func TestHold(t *testing.T) {
	var s Sim
	s.Hold(s.Launch(0, "first", 3, 0, 1), 0)
	s.Run(&Segment{Busy: 1, Loaded: 1})
	require.InDelta(t, 1, s.Now, e, "runs beside the first")
	s.Hold(s.Launch(0, "another's", 1, 0, 1), 1)
	require.InDelta(t, 1, s.Now, e, "of another communicator")
	s.Hold(s.Launch(0, "second", 3, 0, 1), 0)
	require.InDelta(t, 3, s.Now, e)
	require.InDelta(t, 2, s.Exposed, e)
	s.Reset()
	s.Hold(s.Launch(0, "first", 3, 0, 1), 0)
	require.Zero(t, s.Now, "nothing is left of what was before")
}

// TestStreams: tasks of one stream run one after the other, of two at once.
func TestStreams(t *testing.T) {
	var s Sim
	a, b := s.Launch(0, "a", 1, 0, 1), s.Launch(0, "b", 1, 0, 1)
	c := s.Launch(1, "c", 1, 0, 1)
	s.Wait(b)
	require.InDelta(t, 1, s.End(a), e)
	require.InDelta(t, 2, s.End(b), e)
	require.InDelta(t, 1, s.End(c), e)
}

func launches(t *rapid.T) []Launch {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Launch {
		s := func(name string, least float64) units.Seconds {
			return units.Seconds(rapid.Float64Range(least, 3).Draw(t, name))
		}
		l := Launch{Host: s("host", 0), Gap: s("gap", 0) / 30}
		if rapid.Bool().Draw(t, "kernel") {
			l.Busy = s("busy", 0.01)
			l.Loaded = l.Busy * units.Seconds(rapid.Float64Range(1, 2).Draw(t, "slow"))
		}
		return l
	}), 1, 12).Draw(t, "launches")
}

// TestCompressIsExact: a segment behaves as its launches one by one do, on an idle
// device and without communication.
func TestCompressIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := launches(t)
		latency := units.Seconds(rapid.Float64Range(0.1, 1).Draw(t, "latency"))
		var host, device units.Seconds // one by one, by hand
		for _, l := range list {
			host += l.Host
			if l.Busy > 0 {
				device = max(device+l.Gap, host+latency) + l.Busy
			}
		}
		seg := Compress(list, latency)
		var s Sim
		s.Run(&seg)
		require.InDelta(t, float64(device), s.Now, 1e-9)
		require.InDelta(t, float64(host), s.Host, 1e-9)
	})
}

// TestAddIsConcatenation: two segments in a row are one of all their launches, as long
// as a gap is no longer than the latency of a launch.
func TestAddIsConcatenation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := launches(t), launches(t)
		sum := Compress(a, 0.1)
		second := Compress(b, 0.1)
		sum.Add(&second)
		whole := Compress(append(append([]Launch{}, a...), b...), 0.1)
		for _, p := range [][2]units.Seconds{{sum.Host, whole.Host}, {sum.Busy, whole.Busy}, {sum.Loaded, whole.Loaded}, {sum.Lag, whole.Lag}} {
			require.InDelta(t, float64(p[1]), float64(p[0]), 1e-9)
		}
	})
}

// TestAddWaits: where the host waits for the end of a segment, the sum of several
// behaves as they do one by one.
func TestAddWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Sim
		var sum Segment
		for i := range rapid.IntRange(1, 4).Draw(t, "segments") {
			seg := Compress(append(launches(t), Launch{Host: 1, Busy: 1, Loaded: 1}), 0.1)
			seg.Sync = rapid.Bool().Draw(t, "sync")
			s.Run(&seg)
			if i == 0 {
				sum = seg
			} else {
				sum.Add(&seg)
			}
		}
		require.InDelta(t, s.Now, float64(max(sum.Busy, sum.Lag)), 1e-9)
		if !sum.Sync {
			require.InDelta(t, s.Host, float64(sum.Host), 1e-9)
		}
	})
}

// TestTimePasses: time never runs back, its parts are the whole, and no stream works
// more than there is time.
func TestTimePasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Sim{Record: &Recorder{}}
		var tasks []Task
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			before := s.Now
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				seg := Compress(launches(t), 0.1)
				s.Run(&seg)
			case 2:
				tasks = append(tasks, s.Launch(rapid.IntRange(0, MaxStreams-1).Draw(t, "stream"), "x", rapid.Float64Range(0, 5).Draw(t, "duration"), rapid.Float64Range(0, 50).Draw(t, "ready"), rapid.Float64Range(1, 2).Draw(t, "slow")))
			case 3:
				if len(tasks) > 0 {
					s.Wait(rapid.SampledFrom(tasks).Draw(t, "task"))
				}
			}
			require.GreaterOrEqual(t, s.Now, before)
		}
		for _, task := range tasks {
			s.Wait(task)
			require.LessOrEqual(t, s.End(task), s.Now+e)
		}
		require.InDelta(t, s.Now, s.Work+s.Inline+s.Idle+s.Slowed+s.Exposed, 1e-6)
		last := map[string]float64{}
		for _, x := range s.Record.Spans {
			require.GreaterOrEqual(t, x.End, x.Start)
			if x.Stream != "compute" {
				require.GreaterOrEqual(t, x.Start, last[x.Stream]-e, "%s runs one task at a time", x.Stream)
				last[x.Stream] = x.End
			}
		}
	})
}
