package main

import (
	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/strategies/estimate"
)

func newExplain(e *env) *cobra.Command {
	var job jobFlags
	var out output
	var stage, unit string
	var depth int
	cmd := &cobra.Command{
		Use:   "explain [FILE | NAME | -]",
		Short: "Show what a prediction is made of, down to single kernels",
		Long: `Show where a prediction comes from: by default a tree from the step time down to
single ops, sorted by time. --stage prints one intermediate instead:

  ops       what one rank runs: shapes, FLOPs, bytes, kernels
  times     each op alone: time, bound, formula, source
  timeline  what ran when, by stream
  memory    the peak of each pass, by class

Arguments and flags are those of perfplan estimate.`,
		Example: `  perfplan explain llama2-7b --gpus 8
  perfplan explain job.yaml --stage times --unit layer -o json`,
		Args: atMost(1),
		RunE: out.run(func(cmd *cobra.Command, args []string, format report.Format) error {
			x := report.Explain{Depth: depth, Unit: unit}
			var err error
			if x.Stage, err = report.ParseStage(stage); err != nil {
				return usage("--stage: %v", err)
			}
			switch {
			case depth < 0 || depth > 3:
				return usage("--depth: %d; give 0 (the step alone) to 3 (single ops)", depth)
			case cmd.Flags().Changed("depth") && x.Stage != report.Tree:
				return usage("--depth: is of the tree, not of --stage %s; leave one of them out", stage)
			case unit != "" && (x.Stage == report.Timeline || x.Stage == report.Memory):
				return usage("--unit: --stage %s has all units; leave one of them out", stage)
			}
			r, err := job.predict(e, args, estimate.Options{Detail: true, Record: true})
			if err != nil {
				return err
			}
			x.Estimate = *r
			if err := report.WriteExplain(e.out, &x, format, e.style); err != nil {
				return err
			}
			return fits(r)
		}),
	}
	cmd.Flags().StringVar(&stage, "stage", "tree", "`STAGE`: tree, ops, times, timeline or memory")
	cmd.Flags().IntVar(&depth, "depth", 3, "`LEVELS` of the tree: 1 units, 2 modules, 3 ops")
	cmd.Flags().StringVar(&unit, "unit", "", "only the unit of this `NAME`: embedding, layer, head")
	complete(cmd, "stage", []string{"tree", "ops", "times", "timeline", "memory"})
	out.addFlag(cmd, report.Formats...)
	job.add(cmd)
	return cmd
}
