package main

import (
	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/strategies/capacity"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// price is the flag of every command that knows of money.
var price = setting{"price", "run.price_per_gpu_hour", "USD", "US dollars per GPU-hour; default: the machine's", nil}

// tokens is the flag of every command that knows how long a job trains.
var tokens = setting{"tokens", "run.tokens", "N", "tokens to train on, as in 2T or 300B", nil}

// runSettings are the flags for the section run: of a job.
var runSettings = []setting{
	tokens,
	price,
	{"mtbf", "run.mtbf_per_gpu", "TIME", "mean time between failures of one GPU with its share of the machine, as in 50000h", nil},
	{"detection", "run.detection_time", "TIME", "from a failure to the decision to restart", nil},
	{"restart", "run.restart_time", "TIME", "from there to the loading of the checkpoint", nil},
	{"storage-rate", "run.storage_rate_per_gpu", "RATE", "of checkpoints and data, as in 122MB/s", nil},
	{"checkpoint-time", "run.checkpoint_time", "TIME", "that training stands still for a checkpoint; default: bytes over rate", nil},
	{"checkpoint-interval", "run.checkpoint_interval", "TIME", "between checkpoints; default: the best", nil},
	{"spares", "run.spare_nodes", "N", "spare nodes; default: enough to wait less than 1 % of the time", nil},
	{"repair", "run.repair_time", "TIME", "until an exchanged node is back", nil},
	{"data-stall", "run.data_stall", "SHARE", "that waiting for data adds to the step, as in 2%", nil},
	{"straggler-loss", "run.straggler_loss", "SHARE", "that waiting for slow nodes adds to the step, as in 2%", nil},
	{"pue", "run.pue", "FACTOR", "power of the site over that of its servers", nil},
}

func newTrain(e *env) *cobra.Command {
	job := jobFlags{own: runSettings}
	var out output
	cmd := &cobra.Command{
		Use:   "train [FILE | NAME | -]",
		Short: "Days, GPU-hours, cost and energy of a whole training run",
		Long: `Extend the predicted step to a training run: how long it takes with failures,
restarts, checkpoints, spare nodes, stragglers and data loading; what it costs and
what energy it draws; how often to write a checkpoint.

Every assumption is printed with its source, and can be set by a flag or in the
section run: of the job file. Arguments and other flags are those of perfplan
estimate. A job that does not fit exits with code 3.`,
		Example: `  perfplan train llama2-7b --gpus 256 --tokens 2T
  perfplan train job.yaml --tokens 15T --hardware aws-p5 --mtbf 30000h --spares 8`,
		Args: atMost(1),
		RunE: out.run(func(_ *cobra.Command, args []string, format report.Format) error {
			r, err := job.predict(e, args, estimate.Options{})
			if err != nil {
				return err
			}
			t := report.Train{Estimate: *r}
			if t.Training, err = capacity.Train(r.Result); err != nil {
				return err
			}
			if err := report.Write(e.out, &t, format, e.style); err != nil {
				return err
			}
			return fits(r)
		}),
	}
	out.addFlag(cmd, report.Formats...)
	job.add(cmd)
	return cmd
}
