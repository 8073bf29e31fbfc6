package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/perfplan/perfplan/calibrate/cuda"
	"github.com/perfplan/perfplan/calibrate/probe"
	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/internal/diag"
)

// Options of Run.
type Options struct {
	Effort  probe.Effort
	Budget  time.Duration // of measuring; 0: by effort and number of GPUs
	Only    []string      // probes; nil: all
	GPUs    []int         // local indices; nil: all
	Force   bool          // also on a busy GPU
	Resume  bool          // go on with the samples file, if there is one
	Verify  bool          // check the probes' results first
	Samples string        // name of the samples file
	Peers   probe.Peers   // other processes; nil: none
	Host    string        // name of this machine among those of the peers
	Seed    uint64        // of the order of cases
	Watch   func(Progress)
}

// Progress is how far a calibration is.
type Progress struct {
	Probe   string
	Case    string  // under way; "" between cases
	Done    float64 // of the whole, 0 to 1
	Elapsed time.Duration
	Left    time.Duration
}

// Outcome is what came of it.
type Outcome struct {
	File        *sample.File // all samples, those of earlier runs that were resumed included
	New         int          // samples of this run
	Failed      int          // cases of this run that failed
	Verified    []string     // probes whose results were checked and are right
	Wrong       []string     // checks that failed: probe and reason; they were not measured
	Notes       []diag.Note
	Interrupted bool
	Elapsed     time.Duration
}

// budgets of measuring, by effort; a second GPU brings collectives.
func budget(e probe.Effort, gpus int) time.Duration {
	switch {
	case e == probe.Quick:
		return 45 * time.Second
	case gpus == 1:
		return 200 * time.Second
	}
	return 420 * time.Second
}

// Run measures. It fails only when nothing can be measured; what goes wrong with a
// probe, a case or one of several GPUs is noted.
func Run(ctx context.Context, d cuda.Driver, o Options) (*Outcome, error) {
	probes, err := probe.Select(o.Only)
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	start := d.Now()
	indices, err := usable(d, o)
	if err != nil {
		return nil, err
	}
	var benches []*probe.Bench
	var failures []error
	for _, i := range indices {
		b, err := probe.NewBench(d, i)
		if err != nil {
			failures = append(failures, err)
			out.note("calibrate.gpu", "measure it again alone: --gpus "+fmt.Sprint(i), "GPU %d is left out: %v", i, err)
			continue
		}
		benches = append(benches, b)
	}
	if len(benches) == 0 {
		return nil, errors.Join(failures...)
	}
	w, err := probe.NewWorld(d, benches, o.Peers, o.Host)
	if err != nil {
		return nil, err
	}
	r := &run{ctx: ctx, d: d, w: w, o: o, out: out, start: start, seen: map[string]bool{}}
	r.total = o.Budget
	if r.total == 0 {
		r.total = budget(o.Effort, w.Ranks())
	}
	if err := r.openSamples(); err != nil {
		return nil, err
	}
	err = r.all(probes)
	for _, b := range w.Benches {
		if e := b.Close(); e != nil {
			out.note("calibrate.close", "", "GPU %d: %v", b.GPU.Device().Index, e)
		}
	}
	if r.writer != nil {
		err = errors.Join(err, r.writer.Close())
	}
	out.Elapsed = d.Now().Sub(start)
	return out, err
}

func (o *Outcome) note(code, remedy, format string, args ...any) {
	o.Notes = append(o.Notes, diag.Note{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// inUse is the memory that an idle GPU's driver may hold, bytes.
const inUse = 2 << 30

// usable are the GPUs to take: those of the options, none of them busy.
func usable(d cuda.Driver, o Options) ([]int, error) {
	devices := d.Devices()
	indices := o.GPUs
	if indices == nil {
		for _, dev := range devices {
			indices = append(indices, dev.Index)
		}
	}
	for k, i := range indices {
		switch {
		case i < 0 || i >= len(devices):
			return nil, diag.Errorf("there is no GPU %d; this machine has %d, counted from 0", i, len(devices))
		case slices.Contains(indices[:k], i):
			return nil, diag.Errorf("GPU %d is named twice", i)
		}
		dev := devices[i]
		if o.Force {
			continue
		}
		if dev.OtherProcesses > 0 {
			return nil, diag.Errorf("GPU %d (%s) is busy: %d other processes hold its memory; stop them, choose others with --gpus, or measure all the same with --force", i, dev.Name, dev.OtherProcesses)
		}
		if used := dev.Memory - dev.Free; used > inUse {
			return nil, diag.Errorf("GPU %d (%s) is busy: %.1f GiB of its memory are in use; stop what holds them, choose others with --gpus, or measure all the same with --force", i, dev.Name, float64(used)/(1<<30))
		}
	}
	return indices, nil
}

// openSamples starts the samples file or goes on with it. Only the leader has one.
func (r *run) openSamples() error {
	h := header(r.d, r.w, r.o)
	r.out.File = &sample.File{Header: h}
	if !r.w.Leads() {
		return nil
	}
	if _, err := os.Stat(r.o.Samples); err == nil && r.o.Resume {
		old, err := sample.ReadFile(r.o.Samples)
		if err != nil {
			return err
		}
		if old.Header.Device != h.Device {
			return diag.Errorf("%s was measured on %s, this machine has %s; leave out --resume, or name another file with --samples", r.o.Samples, old.Header.Device, h.Device)
		}
		r.out.File = old
		for _, s := range old.Samples {
			if s.Error == "" {
				r.seen[s.Probe+" "+probe.Case(s.Case).Key()] = true
			}
		}
		r.writer, err = sample.Append(r.o.Samples)
		return unwritable(r.o.Samples, err)
	}
	if _, err := os.Stat(r.o.Samples); err == nil {
		return diag.Errorf("%s is there already; go on with it by --resume, or name another file with --samples", r.o.Samples)
	}
	var err error
	r.writer, err = sample.Create(r.o.Samples, h)
	return unwritable(r.o.Samples, err)
}

func unwritable(name string, err error) error {
	if err != nil {
		return diag.Errorf("%s cannot be written: %v", name, err)
	}
	return nil
}

// header names the machine and what was set.
func header(d cuda.Driver, w *probe.World, o Options) sample.Header {
	v, dev := d.Versions(), w.Benches[0].GPU.Device()
	c := map[string]string{"effort": [...]string{"quick", "full"}[o.Effort], "seed": fmt.Sprint(o.Seed)}
	for _, l := range d.Libraries() {
		if l.Err == nil {
			c[l.Name] = l.Path
		}
	}
	if dev.PowerLimit > 0 {
		c["power_limit_w"] = fmt.Sprintf("%.0f", dev.PowerLimit)
	}
	if dev.MaxClock > 0 {
		c["max_clock_mhz"] = fmt.Sprintf("%.0f", dev.MaxClock/1e6)
	}
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "CUBLAS") {
			c[name] = value
		}
	}
	return sample.Header{Format: sample.Format, Device: dev.Name, GPUs: w.Ranks(), Driver: v.Driver, CUDA: v.CUDA, NCCL: v.NCCL, CuBLASLt: v.CuBLASLt, CuDNN: v.CuDNN,
		Date: d.Now().UTC().Format(time.DateOnly), Conditions: c}
}
