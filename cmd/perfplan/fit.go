package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/capacity"
	"github.com/perfplan/perfplan/strategies/search"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// commonMachines are asked about when neither the job nor a flag names hardware.
const commonMachines = "a100-80g-sxm,h100-sxm,h200-sxm,b200-sxm"

func newFit(e *env) *cobra.Command {
	job := jobFlags{own: append([]setting{{"model", "model", "NAME", "catalog name, file or folder of the model", model.Names()}}, runSettings...)}
	var out output
	var deadline, largest string
	var most int64
	cmd := &cobra.Command{
		Use:   "fit [FILE | NAME | -] --deadline TIME --tokens N | --largest QUANTITY",
		Short: "The smallest cluster that makes a deadline, or the largest job that fits",
		Long: `With --deadline and --tokens: the smallest cluster of each kind of machine that
trains the model in time, failures, checkpoints and spare nodes included. With
--largest sequence, micro-batch or model: the largest that fits a given cluster.
Time does not fall evenly with GPUs: the cluster is the smallest of the sizes in
whole nodes that were looked at, which are the roundest where there are many; the
notes say which.

--hardware takes a list. Plans are the best simple ones, unless the job has its own.
What is impossible is answered with the nearest that is possible, and exit code 3.
Other arguments and flags are those of perfplan train.`,
		Example: `  perfplan fit llama2-7b --tokens 2T --deadline 30d --hardware h100-sxm,h200-sxm
  perfplan fit --model llama2-70b --gpus 64 --hardware h100-sxm --largest sequence`,
		Args: atMost(1),
		RunE: out.run(func(cmd *cobra.Command, args []string, format report.Format) error {
			if (deadline == "") == (largest == "") {
				return usage("%s needs either --deadline 30d with --tokens 2T, or --largest sequence, micro-batch or model", cmd.CommandPath())
			}
			if largest != "" && cmd.Flags().Changed("max-gpus") {
				return usage("--max-gpus bounds what --deadline looks for; leave it out beside --largest, which --gpus gives a cluster")
			}
			if deadline != "" && job.given("gpus") {
				return usage("--deadline looks for the number of GPUs that --gpus sets; leave it out, or see perfplan train")
			}
			if len(args) > 0 && job.given("model") {
				return usage("both %q and --model name the model; leave one of them out", args[0])
			}
			named := len(args) > 0
			if !named && largest == "model" {
				args = []string{"gpt2"} // every model takes its place
			}
			doc, err := job.document(e, args)
			if err != nil {
				return err
			}
			if largest == "model" && (job.given("model") || named && len(doc.Root.Content) == 2) { // a job of nothing but its model
				return usage("--largest model tries every model of the catalog; leave the one that is named out, or give --largest sequence or micro-batch")
			}
			machines, err := job.machines(doc)
			if err != nil {
				return err
			}
			if largest != "" {
				return fitLargest(e, &job, doc, machines, largest, format)
			}
			return fitDeadline(e, &job, doc, machines, deadline, most, format)
		}),
	}
	cmd.Flags().StringVar(&deadline, "deadline", "", "`TIME` in which to train, as in 30d")
	cmd.Flags().StringVar(&largest, "largest", "", "`QUANTITY` to make as large as fits: sequence, micro-batch or model")
	cmd.Flags().Int64Var(&most, "max-gpus", 32768, "largest cluster to try, `N`")
	complete(cmd, "largest", []string{"sequence", "micro-batch", "model"})
	out.addFlag(cmd, report.Formats...)
	job.add(cmd)
	return cmd
}

// doublings are n, 2n, 4n, … up to most.
func doublings(n, most int64) (out []int64) {
	for ; n <= most; n *= 2 {
		out = append(out, n)
	}
	return out
}

// machines takes --hardware out of the flags as a list; without one the job's own
// machine stands, as the value "", and without that the common ones.
func (f *jobFlags) machines(doc *yamlx.Document) (whatif.Axis, error) {
	list := ""
	f.edits = slices.DeleteFunc(f.edits, func(x edit) bool {
		if x.path == "hardware" {
			list = x.value
		}
		return x.path == "hardware"
	})
	switch {
	case list != "":
		return whatif.ParseAxis("hardware=" + list)
	case doc.At("hardware") != nil:
		return whatif.Axis{Path: "hardware", Values: []string{""}}, nil
	}
	return whatif.ParseAxis("hardware=" + commonMachines)
}

// fitDeadline answers --deadline: the smallest cluster of each kind of machine.
func fitDeadline(e *env, job *jobFlags, doc *yamlx.Document, machines whatif.Axis, deadline string, most int64, format report.Format) error {
	limit, err := units.ParseSeconds(deadline)
	if err != nil || limit == 0 {
		return usage("--deadline: %q is no time to train in; write a number above 0 of d, h or min, as in 30d or 12h", deadline)
	}
	if err := job.growing(); err != nil {
		return err
	}
	decode, err := job.variants(doc, machines, whatif.Axis{Path: "gpus"})
	if err != nil {
		return err
	}
	split, err := job.modelParallel(doc)
	if err != nil {
		return err
	}
	if split > most {
		return usage("--max-gpus: %d, but the plan splits the model over %d GPUs; give %d or more", most, split, split)
	}
	p := &progress{out: e.err, last: time.Now()}
	defer p.end() // on the way to an error, too
	var list []*capacity.Cluster
	for i, m := range machines.Values {
		p.show(search.Progress{Phase: "clusters, machines done", Done: i, Total: len(machines.Values)})
		j, malformed, err := decode([]string{m, ""})
		if err != nil && !malformed && split > 1 {
			j, err = firstLegal(doublings(split, most), func(gpus string) (*strategies.Job, bool, error) { return decode([]string{m, gpus}) })
		}
		if err != nil {
			return err
		}
		c, err := capacity.Deadline(j, limit, most)
		if err != nil {
			return err
		}
		list = append(list, c)
	}
	p.end()
	if err := report.Write(e.out, report.Deadline(list), format, e.style); err != nil {
		return err
	}
	if text := report.Deadlines(list); text != "" {
		return broken{text}
	}
	return nil
}

// fitLargest finds the largest value of a quantity on each machine.
func fitLargest(e *env, job *jobFlags, doc *yamlx.Document, machines whatif.Axis, name string, format report.Format) error {
	q, err := capacity.ParseQuantity(name)
	if err != nil {
		return usage("--largest: %v", err)
	}
	for _, x := range job.edits {
		if x.path == q.Path && q.Step > 0 {
			return usage("--largest %s looks for what %s sets; leave one of them out", q.Name, x.origin)
		}
	}
	job.edits = slices.DeleteFunc(job.edits, func(x edit) bool { return x.path == q.Path })
	decode, err := job.variants(doc, machines, whatif.Axis{Path: q.Path})
	if err != nil {
		return err
	}
	p := &progress{out: e.err, last: time.Now()}
	defer p.end() // on the way to an error, too
	var list []report.MachineLargest
	for i, m := range machines.Values {
		var gpus int64
		name := m
		found, err := capacity.FindLargest(q, func(value string) (*strategies.Job, error) {
			p.show(search.Progress{Phase: q.Name + " " + value + ", machines done", Done: i, Total: len(machines.Values)})
			j, _, err := decode([]string{m, value})
			if j != nil {
				gpus, name = j.GPUs, j.Hardware.Name
			}
			return j, err
		})
		if err != nil {
			return err
		}
		list = append(list, report.MachineLargest{Hardware: name, GPUs: gpus, Largest: found})
	}
	p.end()
	if err := report.Write(e.out, report.Largest(list), format, e.style); err != nil {
		return err
	}
	if text := report.Fitting(list); text != "" {
		return broken{text}
	}
	return nil
}
