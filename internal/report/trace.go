package report

import (
	"io"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// WriteTrace writes the timeline of a result in the trace format of Chrome, for chrome://tracing and
// Perfetto: a span (X) of each kernel, and the name (M) of each thread, which is a stream.
func WriteTrace(w io.Writer, r *estimate.Result) error {
	if len(r.Spans) == 0 {
		return diag.Errorf("a step with pipeline parallelism records no single spans; use a plan without it")
	}
	var streams []string
	list := spans(r)
	for _, s := range list {
		if !slices.Contains(streams, s.Stream) {
			streams = append(streams, s.Stream)
		}
	}
	events := []ordered{}
	event := func(name, phase string, thread int, start, duration float64, args any) { // in microseconds
		events = append(events, ordered{{"name", name}, {"ph", phase}, {"pid", 0}, {"tid", thread}, {"ts", start}, {"dur", duration}, {"args", args}})
	}
	for i, s := range streams {
		event("thread_name", "M", i, 0, 0, ordered{{"name", s}})
	}
	for _, s := range list {
		event(s.Label, "X", slices.Index(streams, s.Stream), s.Start*1e6, (s.End-s.Start)*1e6, omitted{})
	}
	return writeJSON(w, ordered{{"traceEvents", events}, {"displayTimeUnit", "ms"}})
}
