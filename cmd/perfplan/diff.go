package main

import (
	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/report"
)

// mostDifferences are the rows of text that are printed without --all.
const mostDifferences = 40

func newHardwareDiff(e *env) *cobra.Command {
	var out output
	var all bool
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two machines: every datum that differs",
		Long: `Compare two machines, of the catalog or of files: every datum that differs, facts and
measured laws alike, the largest relative change first.`,
		Example: "  perfplan hardware diff h100-sxm h200-sxm\n  perfplan hardware diff h200-sxm my-h200.yaml --all",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage("%s needs two machines, as in \"perfplan hardware diff h100-sxm h200-sxm\"", cmd.CommandPath())
			}
			return nil
		},
		RunE: out.run(func(_ *cobra.Command, args []string, format report.Format) error {
			d := &report.Diff{Limit: mostDifferences}
			if all {
				d.Limit = 0
			}
			var err error
			if d.A, err = hardware.Load(args[0]); err != nil {
				return err
			}
			if d.B, err = hardware.Load(args[1]); err != nil {
				return err
			}
			d.Data = hardware.Diff(d.A, d.B)
			return report.Write(e.out, d, format, e.style)
		}),
		ValidArgsFunction: machineNames,
	}
	cmd.Flags().BoolVar(&all, "all", false, "print all differences as text, not only the largest")
	out.addFlag(cmd, report.Formats...)
	return cmd
}

// machineNames completes arguments that are machines.
func machineNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return hardware.Names(), cobra.ShellCompDirectiveDefault
}
