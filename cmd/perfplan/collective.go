package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/internal/units"
)

// mostGPUs bounds a group; a job has the same bound.
const mostGPUs = 1 << 20

func newCollective(e *env) *cobra.Command {
	var out output
	var size, machine, nccl string
	var gpus, stride int64
	cmd := &cobra.Command{
		Use:   "collective OP --size SIZE --gpus N",
		Short: "Price one collective on one group: time, algorithm, bandwidth",
		Long: `Price one collective with the machine to itself, as estimate does: the time with its
range, the algorithm and protocol that NCCL picks and what it weighed them against.
Measured groups are answered from their curves, others by the model of NCCL.

OP is all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, reduce,
send-recv, or of experts' rows token-exchange (Hybrid-EP) or deepep-exchange. The size is
what nccl-tests prints: the gathered result of an all-gather, the buffer before
scattering of a reduce-scatter, else the buffer of one rank; of experts' rows what a rank
sends, once to each rank, across nodes once to each node.`,
		Example: `  perfplan collective all-reduce --size 1GiB --gpus 64 --hardware h100-sxm
  perfplan collective all-gather --size 1KiB..1GiB --gpus 8 --hardware h200-sxm
  perfplan collective reduce-scatter --size 256MiB --gpus 16 --stride 8`,
		Args: exactly("an operation"),
		RunE: out.run(func(_ *cobra.Command, args []string, format report.Format) error {
			c := &report.Collective{}
			if err := c.Op.UnmarshalText([]byte(args[0])); err != nil {
				return usage("%v", err)
			}
			sizes, err := units.ParseSizes(size)
			if err != nil {
				return usage("--size: %v", err)
			}
			switch {
			case gpus < 2 || gpus > mostGPUs:
				return usage("--gpus: %d; a collective runs on 2 to %d", gpus, mostGPUs)
			case stride < 1 || stride > mostGPUs:
				return usage("--stride: %d; give 1 for neighbours, or the GPUs from one rank to the next", stride)
			}
			if c.Machine, err = machineOf("--hardware", machine); err != nil {
				return err
			}
			fabric, err := fabricOf(c.Machine)
			if err != nil {
				return err
			}
			if nccl != "" {
				if fabric.NCCL, err = collective.ParseVersion(nccl); err != nil {
					return usage("--nccl: %v", err)
				}
				if oldest := collective.Oldest(); slices.Compare(fabric.NCCL[:], oldest[:]) < 0 {
					return usage("--nccl: %s is before %s, the first whose constants are known; give %s or later", fabric.NCCL, oldest, oldest)
				}
			}
			c.NCCL = fabric.Release()
			c.Group, c.Islands = fabric.FirstGroup(gpus, stride)
			for _, b := range sizes {
				c.Calls = append(c.Calls, report.CollectiveCall{Bytes: b, Cost: fabric.Cost(c.Op, b, c.Group)})
			}
			return report.Write(e.out, c, format, e.style)
		}),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, op := range collective.Ops() {
				names = append(names, op.String())
			}
			if len(args) > 0 {
				names = nil
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&size, "size", "1GiB", "`SIZE`: one, several (1MiB,25MiB) or a range that doubles (1KiB..1GiB)")
	cmd.Flags().Int64Var(&gpus, "gpus", 8, "ranks of the group, `N`")
	cmd.Flags().Int64Var(&stride, "stride", 1, "`GPUs` from one rank to the next: 8 for data parallelism beside tp 8")
	cmd.Flags().StringVar(&nccl, "nccl", "", "`VERSION` of NCCL, which decides the choice; default: the machine's, else the newest known")
	machineFlag(cmd, &machine)
	out.addFlag(cmd, report.Formats...)
	return cmd
}

// machineFlag is the --hardware flag of commands that take no job.
func machineFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "hardware", "h100-sxm", "catalog `NAME` or file of the machine (perfplan hardware list)")
	completeOrFile(cmd, "hardware", hardware.Names())
}

func fabricOf(h *hardware.Profile) (*collective.Fabric, error) {
	f, err := collective.FabricOf(h.GPU, h.Node, h.Network, h.Software, h.Laws.Collectives...)
	if err != nil {
		return nil, usage("hardware %s: %v", h.Name, err)
	}
	return f, nil
}
