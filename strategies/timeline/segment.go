package timeline

import "github.com/perfplan/perfplan/internal/units"

// Launch is one kernel on its way from the host to the device.
type Launch struct {
	Host   units.Seconds // CPU time up to and including its launch
	Busy   units.Seconds // device time; 0 for host work alone
	Loaded units.Seconds // device time under communication
	Gap    units.Seconds // between it and the kernel before it
	Comm   bool          // communication on the compute stream
}

// Compress turns launches into the segment that behaves as they do one by one.
// latency is the time from the host's call to the start on an idle device.
func Compress(launches []Launch, latency units.Seconds) Segment {
	var s Segment
	for i := range launches {
		l := &launches[i]
		s.Host += l.Host
		if l.Busy == 0 {
			continue
		}
		s.Lag = max(s.Lag+l.Gap+l.Busy, s.Host+latency+l.Busy)
		s.Busy += l.Gap + l.Busy
		s.Loaded += l.Gap + l.Loaded
		if l.Comm {
			s.Comm += l.Busy
		}
	}
	return s
}
