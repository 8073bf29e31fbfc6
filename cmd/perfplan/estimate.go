package main

import (
	"os"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/search"
)

func newEstimate(e *env) *cobra.Command {
	var job jobFlags
	var out output
	var trace string
	cmd := &cobra.Command{
		Use:        "estimate [FILE | NAME | -]",
		SuggestFor: []string{"predict", "simulate"},
		Short:      "Predict step time, memory and MFU of a job",
		Long: `Predict one training step: its time with what bounds it, throughput, MFU, and
whether it fits in memory.

The argument is a job file (perfplan init writes one), a model of the catalog, a
model file or Hugging Face config.json, or - for standard input. Flags override the
file. A job without a plan gets the fastest simple one that fits. A job that does
not fit exits with code 3 and names the cheapest remedies, those on the fewest GPUs
first.`,
		Example: `  perfplan estimate llama2-7b --gpus 64
  perfplan estimate job.yaml --tp 2 --set plan.bucket=100MiB -o json
  perfplan estimate config.json --hardware h200-sxm --gpus 8 --data-parallel fsdp2`,
		Args: atMost(1),
		RunE: out.run(func(_ *cobra.Command, args []string, format report.Format) error {
			doc, err := job.document(e, args)
			if err != nil {
				return err
			}
			if err := distinct("--trace", trace, job.files...); err != nil {
				return err
			}
			with := job.with(doc)
			j, _, err := job.decode(doc)
			if err != nil {
				return err
			}
			r, err := predict(e, j, doc.Root, estimate.Options{Record: trace != ""})
			if err != nil {
				return err
			}
			if !r.Result.Memory.Fits {
				end := e.busy("looking for what would fit")
				r.Remedies, r.Tried = search.Remedies(j, r.Result, with)
				end()
			}
			if trace != "" {
				if err := writeFile(trace, func(f *os.File) error { return report.WriteTrace(f, r.Result) }); err != nil {
					return usage("--trace: %v", err)
				}
			}
			if err := report.Write(e.out, r, format, e.style); err != nil {
				return err
			}
			return fits(r)
		}),
	}
	out.addFlag(cmd, report.Formats...)
	job.add(cmd)
	cmd.Flags().StringVar(&trace, "trace", "", "also write the timeline to `FILE`, for chrome://tracing or ui.perfetto.dev; replaces it")
	return cmd
}

// predict loads a job and estimates it.
func (f *jobFlags) predict(e *env, args []string, o estimate.Options) (*report.Estimate, error) {
	j, given, err := f.load(e, args)
	if err != nil {
		return nil, err
	}
	return predict(e, j, given, o)
}

// fits fails where a job does not fit.
func fits(r *report.Estimate) error {
	if m := &r.Result.Memory; !m.Fits {
		return broken{report.Misfit(m)}
	}
	return nil
}

// predict estimates a job, and picks its plan when it has none.
func predict(e *env, j *strategies.Job, given *yaml.Node, o estimate.Options) (*report.Estimate, error) {
	r := &report.Estimate{Given: given}
	if j.Open {
		end := e.busy("choosing a plan")
		choice, err := search.Best(j)
		end()
		if err != nil {
			return nil, err
		}
		j, r.Choice = choice.Job, choice
	}
	var err error
	if r.Result, err = estimate.Estimate(j, o); err != nil {
		return nil, err
	}
	return r, nil
}
