package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/strategies/search"
)

// Tests put in what they have read and predicted already.
var (
	embedded = runs.Embedded
	validate = runs.Validate
)

// validateFlags are what is asked of validate beside its files.
type validateFlags struct {
	groups                         []string
	rows, ablation, choices, parts bool
	failOver, machine              string
}

func newValidate(e *env) *cobra.Command {
	var out output
	var f validateFlags
	cmd := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Compare predictions with measured runs",
		Long: `Predict every run of runs/v1 files and compare with what was measured, by run and
by group. Without a file the embedded runs are taken: our own on H200 GPUs and
published ones from A100 to GB300.

With --hardware every run is predicted on that machine instead of the one it names,
which shows whether a calibration of yours predicts better than the catalog: only runs
of the same GPU are comparable, others are left out.

An error is (predicted − measured) / measured. With --fail-over the exit code is 3
when the mean |error| of any group exceeds the tolerance. Runs that cannot be
predicted are listed with the reason; when that is all of them, the exit code is 2.`,
		Example: `  perfplan validate
  perfplan validate --group h200-single --rows
  perfplan validate --hardware my-h200.yaml
  perfplan validate --ablation --group h200-single,h200-fsdp
  perfplan validate runs.yaml --fail-over step_time=5%,peak_allocated=2%`,
		RunE: out.run(func(_ *cobra.Command, args []string, format report.Format) error {
			limits, err := f.read(args)
			if err != nil {
				return err
			}
			list, end, err := f.load(e, args)
			defer end() // on the way to an error, too
			if err != nil {
				return err
			}
			if f.ablation {
				end()
				return ablate(e, list, format)
			}
			r, err := f.predict(list, format)
			if err != nil {
				return err
			}
			end()
			if len(args) > 0 {
				r.Own, _ = runs.Own(list, r.Rows) // nothing to carry over is no error here
				for _, copies := range runs.Copies(list) {
					fmt.Fprintf(e.err, "perfplan: %s\n", copies)
				}
			}
			if err := report.WriteValidate(e.out, r, f.rows, format, e.style); err != nil {
				return err
			}
			return within(r, limits)
		}),
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringSliceVar(&f.groups, "group", nil, "only the runs of this `GROUP` (repeatable)")
	cmd.Flags().StringVar(&f.machine, "hardware", "", "predict on this machine, `NAME` or file, with the same GPU")
	cmd.Flags().BoolVar(&f.rows, "rows", false, "also print each run")
	cmd.Flags().BoolVar(&f.ablation, "ablation", false, "instead leave out one effect after the other: what each is worth")
	cmd.Flags().BoolVar(&f.choices, "choices", false, "also compare the layout predicted best with the best measured, where several of one job were")
	cmd.Flags().BoolVar(&f.parts, "parts", false, "also fit what measured steps take of each part: kernels, communication, the host, bubbles")
	cmd.Flags().StringVar(&f.failOver, "fail-over", "", "exit with code 3 when a group's mean |error| exceeds `LIMIT`: 5% (of step_time), or quantity=limit,...")
	completeOrFile(cmd, "hardware", hardware.Names())
	out.addFlag(cmd, report.Formats...)
	return cmd
}

// read returns the tolerances. What can be wrong of the flags is told before any run is read.
func (f *validateFlags) read(files []string) ([]runs.Tolerance, error) {
	if f.ablation && (f.rows || f.choices || f.parts || f.failOver != "") {
		return nil, usage("--ablation prints neither --rows nor --choices nor --parts and knows no --fail-over; leave them out")
	}
	var limits []runs.Tolerance
	if f.failOver != "" {
		var err error
		if limits, err = runs.ParseTolerances(f.failOver); err != nil {
			return nil, usage("--fail-over: %v", err)
		}
	}
	if len(files) == 0 {
		if err := runs.CheckGroups(f.groups); err != nil {
			return nil, usage("--group: %v", err)
		}
	}
	if f.machine != "" {
		if _, err := hardware.Load(f.machine); err != nil {
			return nil, err
		}
	}
	return limits, nil
}

// load returns the runs to predict, and says that they are being predicted until end is called.
func (f *validateFlags) load(e *env, files []string) (list []runs.Run, end func(), err error) {
	const predicting = "predicting the runs"
	end = e.busy(predicting)
	if list, err = measured(files, f.groups...); err != nil {
		return nil, end, err
	}
	if list, err = runs.Filter(list, f.groups); err != nil {
		return nil, end, usage("--group: %v", err)
	}
	if f.machine == "" {
		return list, end, nil
	}
	here, err := runs.On(list, f.machine)
	if err != nil {
		return nil, end, err
	}
	end()
	leftOut(e, list, len(here))
	return here, e.busy(predicting), nil
}

// predict compares predictions with the runs, with what is asked for beside the errors.
func (f *validateFlags) predict(list []runs.Run, format report.Format) (*runs.Report, error) {
	compare := validate
	if format == report.JSON || format == report.YAML { // which print every figure
		compare = runs.Complete
	}
	r := compare(list)
	if err := r.Refusal(); err != nil {
		return nil, err
	}
	if f.choices {
		r.Choices = runs.Choices(list, r.Rows, runs.Fewest)
	}
	if f.parts {
		var err error
		if r.Parts, err = runs.Parts(r.Rows); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// ablate prints what each effect is worth.
func ablate(e *env, list []runs.Run, format report.Format) error {
	p := &progress{out: e.err, last: time.Now()}
	found, err := runs.Ablate(list, func(done int) {
		p.show(search.Progress{Phase: "effects left out", Done: done, Total: len(runs.Effects)})
	})
	p.end()
	if err != nil {
		return err
	}
	return report.Write(e.out, report.Ablation(found), format, e.style)
}

// leftOut says which of all runs are not among those that another machine can stand for,
// so many of them.
func leftOut(e *env, all []runs.Run, taken int) {
	refused := 0
	for i := range all {
		if all[i].Err != nil {
			refused++
		}
	}
	if others := len(all) - taken - refused; others > 0 {
		fmt.Fprintf(e.err, "perfplan: %d runs of other GPUs are left out\n", others)
	}
	if refused > 0 {
		fmt.Fprintf(e.err, "perfplan: left out because they cannot be predicted: %d; validate without --hardware says why\n", refused)
	}
}

// measured loads the runs of the files, or of the embedded ones at least those of the
// groups; all where none is named.
func measured(files []string, groups ...string) ([]runs.Run, error) {
	if len(files) == 0 {
		return embedded(groups)
	}
	for _, f := range files {
		if err := scripted(f, "is not a file of measured runs; of a log of training perfplan init --measured --from %s makes one, with its configuration by another --from where the log has it not"); err != nil {
			return nil, err
		}
	}
	return runs.LoadAll(files)
}

// within turns a broken tolerance into an error; so is one that nothing could be
// held against.
func within(r *runs.Report, limits []runs.Tolerance) error {
	for _, t := range limits {
		if r.Compared(t.Quantity) == 0 {
			return broken{fmt.Sprintf("no run has a %s to compare, so the tolerance says nothing", t.Quantity)}
		}
	}
	if b := r.Exceeds(limits); len(b) > 0 {
		return broken{report.BreachText(b)}
	}
	return nil
}
