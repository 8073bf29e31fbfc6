package main

import (
	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/whatif"
)

func newSensitivity(e *env) *cobra.Command {
	var job jobFlags
	var out output
	cmd := &cobra.Command{
		Use:   "sensitivity [FILE | NAME | -]",
		Short: "What the step time depends on: which part of a machine is worth buying",
		Long: `Perturb one fact at a time (compute peak, memory, NVLink and network rate, latency,
power limit, host, micro batch) and predict the step again: the elasticity of the
step time, and what 10, 50 and 100 % more of it buy in throughput, the most
effective first. The plan stays as it is. A job that does not fit exits with code 3.

Arguments and flags are those of perfplan estimate.`,
		Example: `  perfplan sensitivity llama2-70b --gpus 64 --hardware h200-sxm
  perfplan sensitivity job.yaml -o csv`,
		Args: atMost(1),
		RunE: out.run(func(_ *cobra.Command, args []string, format report.Format) error {
			r, err := job.predict(e, args, estimate.Options{})
			if err != nil {
				return err
			}
			x := report.Sensitivity{Estimate: *r}
			end := e.busy("pulling every lever")
			x.Found, err = whatif.Sense(r.Result)
			if end(); err != nil {
				return err
			}
			if err := report.Write(e.out, &x, format, e.style); err != nil {
				return err
			}
			return fits(r)
		}),
	}
	out.addFlag(cmd, report.Formats...)
	job.add(cmd)
	return cmd
}
