package main

import (
	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/report"
)

func newHardware(e *env) *cobra.Command {
	return group(&cobra.Command{
		Use:     "hardware",
		Short:   "List, show, compare and fit machines",
		Example: "  perfplan hardware list\n  perfplan hardware show h100-sxm",
	}, newHardwareList(e), newHardwareShow(e), newHardwareFit(e))
}

func newHardwareList(e *env) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the machines of the catalog",
		Args:  atMost(0),
		RunE: func(*cobra.Command, []string) error {
			format, err := out.format()
			if err != nil {
				return err
			}
			var list []*hardware.Profile
			for _, name := range hardware.Names() {
				h, err := hardware.Load(name)
				if err != nil {
					return err
				}
				list = append(list, h)
			}
			return report.WriteMachines(e.out, list, format, e.style)
		},
	}
	out.addFlag(cmd, report.ListFormats...)
	return cmd
}

func newHardwareShow(e *env) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "show NAME|FILE",
		Short:   "Show a machine: every datum with its source and kind",
		Example: "  perfplan hardware show h100-sxm",
		Args:    exactly("a machine"),
		RunE: func(_ *cobra.Command, args []string) error {
			format, err := out.format()
			if err != nil {
				return err
			}
			h, err := hardware.Load(args[0])
			if err != nil {
				return err
			}
			return report.WriteMachine(e.out, h, format, e.style)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return hardware.Names(), cobra.ShellCompDirectiveDefault
		},
	}
	out.addFlag(cmd, report.ListFormats...)
	return cmd
}
