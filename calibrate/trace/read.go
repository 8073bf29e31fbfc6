package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perfplan/perfplan/internal/diag"
)

// MaxSize is the largest trace that is read, unpacked: more than the profiler
// itself can hold, less than what a hostile archive grows to.
const MaxSize = 8 << 30

// Trace is what one rank ran on its device.
type Trace struct {
	Name   string
	Rank   int    // -1 when the trace does not say
	World  int    // ranks of the job; 0 when the trace does not say
	GPU    string // the device's name; "" when the trace does not say
	Spans  []Span
	Marked []Mark

	classes map[string]string // by name, as far as asked for
}

// class is ClassOf, which takes some microseconds, once for each name.
func (t *Trace) class(name string) string {
	c, ok := t.classes[name]
	if !ok {
		c = ClassOf(name)
		t.classes[name] = c
	}
	return c
}

// Span is one kernel, copy or fill. Times are microseconds on the clock of the
// trace.
type Span struct {
	Name       string
	Start, End float64
}

// Mark is an annotation as the device saw it: from the first to the last kernel
// launched inside.
type Mark struct {
	Name       string
	Start, End float64
}

// remedy ends the complaint about a file that is no trace.
const remedy = `give the file that torch.profiler's export_chrome_trace or tensorboard_trace_handler wrote`

// opening is how JSON of a trace begins: an object, or a list of objects. A log may begin with
// a bracket, too, as in "[rank0]:" or "{'loss': 2.1}".
var opening = regexp.MustCompile(`^\s*(\{\s*(["}]|$)|\[\s*([{\]]|$))`)

// Read reads the Chrome trace of one rank, packed with gzip or not, event by event.
// Only what ran on the device is kept. An error names the event and the byte where it
// was found.
func Read(name string, in io.Reader) (*Trace, error) {
	b, err := unpack(name, in)
	if err != nil {
		return nil, err
	}
	if head, _ := b.Peek(b.Size()); len(bytes.TrimSpace(head)) == 0 {
		return nil, complain(name, "is empty; %s", remedy)
	} else if !opening.Match(head) && utf8.Valid(head[:min(len(head), 64)]) {
		return nil, complain(name, "is not a trace but text; %s, after the job; of a log of training perfplan init --measured --from makes runs, which perfplan validate holds against predictions", remedy)
	}
	limited := &io.LimitedReader{R: b, N: MaxSize}
	r := &reader{name: name, in: json.NewDecoder(limited), names: map[string]string{}, device: -1, trace: &Trace{Name: name, Rank: -1, classes: map[string]string{}}}
	err = r.file()
	switch {
	case limited.N <= 0:
		return nil, complain(name, "is larger than %d bytes; profile fewer steps", int64(MaxSize))
	case err != nil:
		return nil, err
	case len(r.trace.Spans) == 0:
		return nil, complain(name, "holds no kernel; profile with ProfilerActivity.CUDA, and after the first steps")
	}
	r.trace.GPU = r.gpus[r.device]
	slices.SortStableFunc(r.trace.Spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	slices.SortStableFunc(r.trace.Marked, func(a, b Mark) int { return cmp.Compare(a.Start, b.Start) })
	return r.trace, nil
}

// unpack reads what gzip has packed, or what is not packed as it is.
func unpack(name string, in io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(in, 1<<16)
	if head, _ := b.Peek(2); !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, complain(name, "is a broken archive: %v; write it again", err)
	}
	return bufio.NewReaderSize(z, 1<<16), nil
}

func complain(name, format string, args ...any) error {
	return &diag.Error{File: name, Message: fmt.Sprintf(format, args...)}
}

// reader reads one file.
type reader struct {
	name   string
	in     *json.Decoder
	event  int // number of the one that is read, from 0; -1 outside
	names  map[string]string
	device int64            // of the kernels so far; -1 before the first
	gpus   map[int64]string // names of the host's devices
	trace  *Trace
}

// fail says where the file is wrong.
func (r *reader) fail(err error) error {
	place := fmt.Sprintf("byte %d", r.in.InputOffset())
	if r.event >= 0 {
		place = fmt.Sprintf("traceEvents[%d], %s", r.event, place)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return complain(r.name, "ends in the middle (%s); it was cut off, write it again", place)
	}
	return complain(r.name, "is not a trace (%s): %s; %s", place, strings.TrimPrefix(err.Error(), "json: "), remedy)
}

// file reads the object, or the bare list of events that is a trace too.
func (r *reader) file() error {
	r.event = -1
	t, err := r.in.Token()
	if err != nil {
		return r.fail(err)
	}
	switch t {
	case json.Delim('['):
		return r.events()
	case json.Delim('{'):
	default:
		return complain(r.name, "is not a trace: it begins with %v; %s", t, remedy)
	}
	found := false
	for r.in.More() {
		key, err := r.in.Token()
		if err != nil {
			return r.fail(err)
		}
		switch key {
		case "traceEvents":
			found = true
			if t, err := r.in.Token(); err != nil || t != json.Delim('[') {
				return r.fail(cmp.Or(err, errors.New("traceEvents is no list")))
			}
			if err := r.events(); err != nil {
				return err
			}
		case "distributedInfo":
			info := struct {
				Rank  int `json:"rank"`
				World int `json:"world_size"`
			}{Rank: -1}
			if err := r.in.Decode(&info); err != nil {
				return r.fail(err)
			}
			r.trace.Rank, r.trace.World = info.Rank, info.World
		default:
			var rest json.RawMessage
			if err := r.in.Decode(&rest); err != nil {
				return r.fail(err)
			}
			if key == "deviceProperties" {
				r.devices(rest)
			}
		}
	}
	if _, err := r.in.Token(); err != nil {
		return r.fail(err)
	}
	if !found {
		return complain(r.name, "has no traceEvents; %s", remedy)
	}
	return nil
}

// devices keeps the names of the host's GPUs. They are for a note alone, so that a list of
// another form is passed over.
func (r *reader) devices(list json.RawMessage) {
	var found []struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
	}
	if json.Unmarshal(list, &found) != nil {
		return
	}
	r.gpus = map[int64]string{}
	for _, d := range found {
		r.gpus[d.ID] = short(d.Name)
	}
}

// event is the part of a trace event that is read.
type event struct {
	Phase    string          `json:"ph"`
	Category string          `json:"cat"`
	Name     string          `json:"name"`
	Start    json.RawMessage `json:"ts"`
	Duration json.RawMessage `json:"dur"`
	Args     json.RawMessage `json:"args"`
}

// events reads the list after its opening bracket.
func (r *reader) events() error {
	for r.event = 0; r.in.More(); r.event++ {
		var e event
		if err := r.in.Decode(&e); err != nil {
			return r.fail(err)
		}
		if e.Phase != "X" {
			continue
		}
		var err error
		switch strings.ToLower(e.Category) { // older releases wrote Kernel, Memcpy and Memset
		case "kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset":
			err = r.span(&e)
		case "gpu_user_annotation":
			err = r.mark(&e)
		}
		if err != nil {
			return r.fail(err)
		}
	}
	r.event = -1
	if _, err := r.in.Token(); err != nil {
		return r.fail(err)
	}
	return nil
}

// interned is a name, held once: there are some hundreds in millions of events.
func (r *reader) interned(name string) string {
	if s, ok := r.names[name]; ok {
		return s
	}
	r.names[name] = name
	return name
}

func (r *reader) span(e *event) error {
	var on struct {
		Device int64 `json:"device"`
	}
	if e.Args != nil {
		if err := json.Unmarshal(e.Args, &on); err != nil {
			return err
		}
	}
	if r.device >= 0 && on.Device != r.device {
		return fmt.Errorf("kernels of devices %d and %d; profile each rank in a process of its own", r.device, on.Device)
	}
	r.device = on.Device
	start, end, err := interval(e)
	if err != nil {
		return err
	}
	r.trace.Spans = append(r.trace.Spans, Span{r.interned(e.Name), start, end})
	return nil
}

func (r *reader) mark(e *event) error {
	start, end, err := interval(e)
	if err != nil {
		return err
	}
	r.trace.Marked = append(r.trace.Marked, Mark{r.interned(e.Name), start, end})
	return nil
}

// latest is the largest time in microseconds that is one: three centuries, for
// clocks that count from 1970.
const latest = 1e16

func interval(e *event) (start, end float64, err error) {
	var duration float64
	if err := json.Unmarshal(e.Start, &start); err != nil {
		return 0, 0, fmt.Errorf("ts %s of a kernel is no number of microseconds", bounded(e.Start))
	}
	if err := json.Unmarshal(e.Duration, &duration); err != nil {
		return 0, 0, fmt.Errorf("dur %s of a kernel is no number of microseconds", bounded(e.Duration))
	}
	if duration < 0 || math.Abs(start) > latest || duration > latest {
		return 0, 0, fmt.Errorf("a kernel at ts %g that takes dur %g", start, duration)
	}
	return start, start + duration, nil
}

// bounded is a value for a message.
func bounded(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "(missing)"
	}
	return string(raw[:min(len(raw), 40)])
}
