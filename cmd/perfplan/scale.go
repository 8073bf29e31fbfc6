package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/whatif"
)

func newScale(e *env) *cobra.Command {
	var job jobFlags
	var out output
	var plot string
	cmd := &cobra.Command{
		Use:   "scale [FILE | NAME | -] gpus=FROM..TO",
		Short: "Strong and weak scaling: how far more GPUs pay",
		Long: `Grow a job over numbers of GPUs: strong scaling keeps the job's global batch, weak
scaling its batch per GPU. Each size gets its efficiency against the smallest that
fits; where it falls below 80 %, the term that grew is named, and where the job
cannot grow further, the rule.

The plan keeps its degrees and data parallelism takes the GPUs; a job without a plan
gets the best simple one at every size.`,
		Example: `  perfplan scale llama2-7b gpus=8..4096 --data-parallel zero1
  perfplan scale job.yaml gpus=8..1024 --plot scaling.svg`,
		RunE: out.run(func(cmd *cobra.Command, args []string, format report.Format) error {
			args, axes, err := axesOf(args)
			if err != nil {
				return err
			}
			if len(axes) != 1 {
				return usage("%s needs one axis, as in gpus=8..4096", cmd.CommandPath())
			}
			gpus, err := whatif.GPUCounts(axes[0])
			if err != nil {
				return err
			}
			if err := job.growing(); err != nil {
				return err
			}
			j, err := job.loadFor(e, args, gpus)
			if err != nil {
				return err
			}
			if err := drawable(plot, job.files...); err != nil {
				return err
			}
			end := e.busy("predicting every size")
			x, err := whatif.Scale(j, gpus)
			end()
			if err != nil {
				return err
			}
			if err := e.draw(plot, func(f *os.File) error { return report.PlotScale(f, x) }); err != nil {
				return err
			}
			return report.WriteScale(e.out, x, format, e.style)
		}),
	}
	cmd.Flags().StringVar(&plot, "plot", "", "also draw the efficiencies into `FILE`, an SVG; replaces it")
	out.addFlag(cmd, report.PlotFormats...)
	job.add(cmd)
	return cmd
}

// loadFor is load of a job that is asked about on some numbers of GPUs: where it names none
// itself, and one node is less than these or than its plan takes, it is that on the first of
// them where it is legal.
func (f *jobFlags) loadFor(e *env, args []string, gpus []int64) (*strategies.Job, error) {
	doc, err := f.document(e, args)
	if err != nil {
		return nil, err
	}
	if f.given("gpus") || doc.At("gpus") != nil {
		j, _, err := f.decode(doc)
		return j, err
	}
	decode, err := f.variants(doc, whatif.Axis{Path: "gpus"})
	if err != nil {
		return nil, err
	}
	j, malformed, err := decode([]string{""})
	if malformed || err == nil && j.GPUs >= gpus[0] {
		return j, err
	}
	return firstLegal(gpus, func(n string) (*strategies.Job, bool, error) { return decode([]string{n}) })
}
