package report

import (
	"io"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// traceEvent is one event of the Chrome trace format: a span (X) or the name of a
// thread (M). Times are in microseconds.
type traceEvent struct {
	Name     string            `json:"name"`
	Phase    string            `json:"ph"`
	Process  int               `json:"pid"`
	Thread   int               `json:"tid"`
	Start    float64           `json:"ts"`
	Duration float64           `json:"dur"`
	Args     map[string]string `json:"args,omitempty"`
}

// WriteTrace writes the timeline of a result for chrome://tracing and Perfetto,
// one thread per stream.
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
	events := []traceEvent{}
	for i, s := range streams {
		events = append(events, traceEvent{Name: "thread_name", Phase: "M", Thread: i, Args: map[string]string{"name": s}})
	}
	for _, s := range list {
		events = append(events, traceEvent{Name: s.Label, Phase: "X", Thread: slices.Index(streams, s.Stream), Start: s.Start * 1e6, Duration: (s.End - s.Start) * 1e6})
	}
	return writeJSON(w, struct {
		Events []traceEvent `json:"traceEvents"`
		Unit   string       `json:"displayTimeUnit"`
	}{events, "ms"})
}
