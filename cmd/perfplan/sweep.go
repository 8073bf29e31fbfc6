package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/strategies/whatif"
)

func newSweep(e *env) *cobra.Command {
	job := jobFlags{own: []setting{price}}
	var out output
	var by, plot string
	cmd := &cobra.Command{
		Use:   "sweep [FILE | NAME | -] PATH=VALUE,VALUE... [PATH=FROM..TO...]",
		Short: "Predict a job at every combination of settings and mark the best",
		Long: `Predict a job at every combination of settings: step time, throughput, memory,
exposed communication and what each GPU sends. What a rule forbids is shown with the
rule; the best point that fits is marked. Ctrl-C prints the points predicted so far,
with exit code 130.

An axis is a path of the job file (as --set takes it) or the name of a flag, with
values between commas. 8..1024 doubles, 1..8:1 counts in steps, 1MiB..1GiB doubles
sizes. Other arguments and flags are those of perfplan estimate.`,
		Example: `  perfplan sweep job.yaml plan.bucket=1MiB,25MiB,100MiB
  perfplan sweep llama2-7b gpus=8..1024 hardware=h100-sxm,h200-sxm --by cost --price 3
  perfplan sweep job.yaml plan.data_parallel=ddp,zero1,zero2,zero3 -o csv
  perfplan sweep job.yaml gpus=8..512 -o plot --plot curve.svg`,
		RunE: out.run(func(cmd *cobra.Command, args []string, format report.Format) error {
			objective, err := whatif.ParseObjective(by)
			if err != nil {
				return usage("--by: %v", err)
			}
			args, axes, err := axesOf(args)
			if err != nil {
				return err
			}
			if len(axes) == 0 {
				return usage("%s needs an axis, as in plan.tp=1,2,4 or gpus=8..1024", cmd.CommandPath())
			}
			doc, err := job.document(e, args)
			if err != nil {
				return err
			}
			for _, a := range axes {
				job.files = append(job.files, a.Values...)
			}
			if err := drawable(plot, job.files...); err != nil {
				return err
			}
			decode, err := job.variants(doc, axes...)
			if err != nil {
				return err
			}
			ctx, stop := e.interrupt(cmd.Context())
			defer stop()
			end := e.busy("predicting every point")
			t, err := whatif.Sweep(ctx, axes, objective, decode)
			end()
			if errors.Is(err, context.Canceled) {
				return stopped{"stopped before any point was predicted"}
			}
			if err != nil {
				return err
			}
			if err := e.draw(plot, func(f *os.File) error { return report.PlotSweep(f, t) }); err != nil {
				return err
			}
			if err := report.WriteSweep(e.out, t, format, e.style); err != nil {
				return err
			}
			if t.Left > 0 {
				return stopped{fmt.Sprintf("stopped; %d of %d points were not predicted", t.Left, t.Left+len(t.Points))}
			}
			if t.Best < 0 {
				return broken{"no point of the sweep fits in memory"}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&by, "by", whatif.Objectives[0].Name, "what the best point has: `OBJECTIVE` tokens (per second and GPU), step, throughput, mfu, memory, energy or cost")
	cmd.Flags().StringVar(&plot, "plot", "", "also draw the objective into `FILE`, an SVG; replaces it")
	complete(cmd, "by", []string{"tokens", "step", "throughput", "mfu", "memory", "energy", "cost"})
	out.addFlag(cmd, report.PlotFormats...)
	job.add(cmd)
	return cmd
}
