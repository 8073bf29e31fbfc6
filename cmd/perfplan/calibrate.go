package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/perfplan/perfplan/calibrate"
	"github.com/perfplan/perfplan/calibrate/cuda"
	"github.com/perfplan/perfplan/calibrate/fit"
	"github.com/perfplan/perfplan/calibrate/probe"
	"github.com/perfplan/perfplan/calibrate/rendezvous"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/report"
)

// openDriver reaches the GPUs; tests put a model of them in its place.
var openDriver = cuda.Open

func newCalibrate(e *env) *cobra.Command {
	var out output
	var o calibrate.Options
	var folders []string
	var quick, list bool
	var w written
	cmd := &cobra.Command{
		Use:        "calibrate",
		SuggestFor: []string{"bench", "benchmark", "measure"},
		Short:      "Measure the GPUs of this machine",
		Long: `Measure the GPUs of this machine: matrix multiplies, memory-bound kernels, launches,
fused attention, copies, power and clocks, and with several GPUs their collectives.
Every sample goes into a samples file (JSON lines); --out fits them into a machine
file, as "perfplan hardware fit" does later.

It needs the NVIDIA driver, cuBLASLt and NVRTC, cuDNN for attention and NCCL for
collectives, in the CUDA toolkit's folders or inside a Python environment with PyTorch;
no Python runs.
NVLink multicast stays off unless NCCL_NVLS_ENABLE says otherwise. Ctrl-C keeps what
was measured; --resume goes on. Under torchrun, srun or mpirun the processes measure
collectives together and the first one writes.`,
		Example: `  perfplan calibrate --out machine.yaml
  perfplan calibrate --quick
  perfplan calibrate --only gemm,memory,launch --quick --verify
  perfplan calibrate --gpus 0,1 --budget 3m --samples samples.jsonl
  perfplan calibrate --list`,
		Args: atMost(0),
		RunE: out.run(func(cmd *cobra.Command, _ []string, format report.Format) error {
			probes, err := probe.Select(o.Only)
			if err != nil { // before a GPU is looked for
				return usage("--only: %v", err)
			}
			if list {
				return report.WriteProbes(e.out, probeRows(probes), format, e.style)
			}
			if quick {
				o.Effort = probe.Quick
			} else {
				o.Effort = probe.Full
			}
			if o.Budget < 0 {
				return usage("--budget: %v; give a time to measure for, as in 3m", o.Budget)
			}
			if err := w.apart(o.Samples); err != nil {
				return err
			}
			d, err := openDriver(cuda.Options{Folders: folders})
			if err != nil {
				return err
			}
			defer d.Close()
			return measure(cmd.Context(), e, d, o, w, format)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Samples, "samples", "samples.jsonl", "`file` for the samples; one that is there is never replaced")
	f.StringVar(&w.profile, "out", "", "fit the samples and write the machine into this `file`; replaces it")
	f.StringVar(&w.base, "base", "", "`NAME` or file of the machine that is refined; default: the catalog's of the same GPU")
	f.BoolVar(&quick, "quick", false, "fewer cases, less than a minute")
	f.DurationVar(&o.Budget, "budget", 0, "`time` to measure for, as in 3m (default: by what there is to measure)")
	f.StringSliceVar(&o.Only, "only", nil, "only these `PROBES`, as in gemm,memory")
	f.BoolVar(&list, "list", false, "list the probes and stop")
	f.IntSliceVar(&o.GPUs, "gpus", nil, "only these `GPUs`, as in 0,1")
	f.BoolVar(&o.Resume, "resume", false, "go on with the samples file: measure what is not in it")
	f.BoolVar(&o.Force, "force", false, "measure GPUs that others use, too")
	f.BoolVar(&o.Verify, "verify", false, "first check the probes' results")
	f.StringSliceVar(&folders, "lib", nil, "`folder` to look for CUDA libraries in first (repeatable)")
	f.Uint64Var(&o.Seed, "seed", 1, "`number` that the random order of cases starts from")
	complete(cmd, "only", probe.Keys())
	completeOrFile(cmd, "base", hardware.Names())
	out.addFlag(cmd, report.Formats...)
	return cmd
}

// probeRows are the probes for --list.
func probeRows(probes []probe.Probe) [][2]string {
	var rows [][2]string
	for _, p := range probes {
		rows = append(rows, [2]string{p.Key, p.Doc})
	}
	return rows
}

// written is the machine file that the samples are fitted into.
type written struct {
	profile, base string
	machine       *hardware.Profile
}

// apart refuses samples, profile and the machine that is refined in one file.
func (w *written) apart(samples string) error {
	if w.profile != "" && filepath.Clean(w.profile) == filepath.Clean(samples) { // neither need be there yet
		return usage("--out: %s is the file of the samples (--samples), which would be lost; name another file", w.profile)
	}
	if err := distinct("--out", w.profile, samples, w.base); err != nil {
		return err
	}
	return distinct("--samples", samples, w.base)
}

// find loads the machine that is refined, when a file is asked for.
func (w *written) find(device string) (err error) {
	if w.profile != "" {
		w.machine, err = baseOf(w.base, device)
	}
	return err
}

// write fits the samples, when a file was asked for, and adds what there is to say to
// the report. The samples are there whatever happens.
func (w *written) write(samples string, c *report.Calibration) error {
	if w.profile == "" {
		return nil
	}
	r, err := fit.Run(c.File, w.machine, fit.Options{Name: samples})
	if err != nil {
		return err
	}
	if err := writeFile(w.profile, func(f *os.File) error { _, err := f.Write(r.YAML); return err }); err != nil {
		return err
	}
	c.Profile, c.Notes = w.profile, append(c.Notes, r.Notes...)
	return nil
}

// joinTime is how long the processes of a launch may take to come together.
const joinTime = 2 * time.Minute

// measure runs a calibration with progress on the error stream and prints what came
// of it.
func measure(parent context.Context, e *env, d cuda.Driver, o calibrate.Options, w written, format report.Format) error {
	ctx, stop := e.interrupt(parent, syscall.SIGTERM)
	defer stop()
	if err := w.find(d.Devices()[0].Name); err != nil { // before the time is spent
		return err
	}
	place, err := rendezvous.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	if place != nil {
		peers, err := rendezvous.Join(ctx, *place, joinTime)
		if err != nil {
			return err
		}
		defer peers.Close()
		o.Peers = peers
		if o.Host, err = os.Hostname(); err != nil {
			return err
		}
		if o.GPUs == nil {
			if o.GPUs, err = place.Devices(len(d.Devices())); err != nil {
				return err
			}
		}
	}
	watch, done := calibration(e.err)
	if place == nil || place.Rank == 0 {
		guarded, end := stalled(e.err, watch, o.Samples)
		defer end()
		o.Watch = guarded
	}
	result, err := calibrate.Run(ctx, d, o)
	done()
	if err != nil || place != nil && place.Rank != 0 {
		return err // the first process writes
	}
	c := &report.Calibration{File: result.File, Samples: o.Samples, New: result.New, Failed: result.Failed, Verified: result.Verified, Wrong: result.Wrong,
		Interrupted: result.Interrupted, Seconds: result.Elapsed.Seconds(), Notes: result.Notes}
	failed := w.write(o.Samples, c)
	if err := report.Write(e.out, c, format, e.style); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if len(c.Wrong) > 0 {
		return broken{"the check of results failed: " + strings.Join(c.Wrong, "; ")}
	}
	if c.Interrupted { // scripts must not take it for all that was asked for
		return stopped{"stopped before all was measured; go on with --resume"}
	}
	return nil
}

// stallTime is how long a case may take before it counts as hanging: a driver or NCCL
// that waits for a GPU for ever cannot be interrupted.
const stallTime = 3 * time.Minute

// stalled ends the process with a word when no progress comes for too long. What was
// written to the samples file by then is there.
func stalled(w io.Writer, watch func(calibrate.Progress), samples string) (guarded func(calibrate.Progress), end func()) {
	var last atomic.Pointer[calibrate.Progress]
	last.Store(&calibrate.Progress{})
	timer := time.AfterFunc(stallTime, func() {
		p := last.Load()
		fmt.Fprintf(w, "perfplan: nothing has happened for %v in probe %s (%s); a GPU or NCCL hangs. What was measured before is in %s: go on with --resume\n", stallTime, p.Probe, p.Case, samples)
		os.Exit(exitInternal)
	})
	return func(p calibrate.Progress) {
		last.Store(&p)
		timer.Reset(stallTime)
		watch(p)
	}, func() { timer.Stop() }
}

// calibration shows how far a calibration is: a bar with the time left on a terminal,
// else a line for each probe.
func calibration(w io.Writer) (watch func(calibrate.Progress), done func()) {
	if isTerminal(w) {
		return bar(w)
	}
	last := ""
	return func(p calibrate.Progress) {
		if p.Probe != last && p.Probe != "" {
			fmt.Fprintf(w, "%5.0f s  %s\n", p.Elapsed.Seconds(), p.Probe)
		}
		last = p.Probe
	}, func() {}
}

func bar(w io.Writer) (watch func(calibrate.Progress), done func()) {
	const steps = 1000
	var now atomic.Pointer[calibrate.Progress] // the bar draws in a goroutine of its own
	now.Store(&calibrate.Progress{})
	all := mpb.New(mpb.WithOutput(w), mpb.WithWidth(40), mpb.WithAutoRefresh())
	b := all.AddBar(steps,
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return fmt.Sprintf("%-10s", now.Load().Probe) }, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
			p := now.Load()
			return fmt.Sprintf("%s, about %s left", p.Elapsed.Round(time.Second), p.Left.Round(time.Second))
		})))
	return func(p calibrate.Progress) {
			now.Store(&p)
			b.SetCurrent(int64(p.Done * steps))
		}, func() {
			b.Abort(true)
			all.Wait()
		}
}
