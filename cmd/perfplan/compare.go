package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/calibrate/trace"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/strategies/estimate"
)

func newCompare(e *env) *cobra.Command {
	job := jobFlags{more: true}
	var out output
	var classes bool
	cmd := &cobra.Command{
		Use:   "compare JOB TRACE...",
		Short: "Where a profiled run lost its time against the prediction",
		Long: `Compare the prediction of a job with what torch.profiler traced of a real run of it:
by family of kernels their number and time, the time the device is idle, and how much
of the communication is exposed. The largest differences are named in plain words.

JOB is a job file or a model. A TRACE is a Chrome trace of one rank (.json or .json.gz,
profiled with ProfilerActivity.CUDA over two steps or more), or its summary: one of the
"traces" of this command's JSON. Several ranks are averaged. Predicted kernels are at
the clock of the predicted step, traced ones as run.`,
		Example: `  perfplan compare job.yaml rank0.json.gz
  perfplan compare job.yaml trace/*.json.gz --classes
  perfplan compare job.yaml rank0.json.gz -o json`,
		RunE: out.run(func(cmd *cobra.Command, args []string, format report.Format) error {
			if len(args) < 2 {
				return usage("%s needs a job and one trace or more, as in \"perfplan compare job.yaml rank0.json.gz\"", cmd.CommandPath())
			}
			if err := once("traces", "give each rank's once", args[1:]); err != nil {
				return err
			}
			j, given, err := job.load(e, args[:1])
			if err != nil {
				return err
			}
			var traces []*trace.Summary
			for _, name := range args[1:] {
				s, err := trace.LoadSummary(name)
				if err != nil {
					return err
				}
				traces = append(traces, s)
			}
			r, err := predict(e, j, given, estimate.Options{Detail: true})
			if err != nil {
				return err
			}
			c, err := trace.Compare(r.Result, traces)
			if err != nil {
				return err
			}
			return report.Write(e.out, &report.Compare{Estimate: *r, Found: c, Classes: classes}, format, e.style)
		}),
	}
	cmd.Flags().BoolVar(&classes, "classes", false, "also print the classes of each family, as text and Markdown")
	out.addFlag(cmd, report.Formats...)
	job.add(cmd)
	return cmd
}

// once refuses one file given twice, by whatever names: what it holds would count double.
func once(kind, remedy string, files []string) error {
	var infos []os.FileInfo
	for i, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return nil // loading it says why
		}
		for k, before := range infos {
			if os.SameFile(before, info) {
				return usage("%s and %s, %s %d and %d, are one file; %s", files[k], name, kind, k+1, i+1, remedy)
			}
		}
		infos = append(infos, info)
	}
	return nil
}
