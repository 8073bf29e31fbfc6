package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/curves"
	"github.com/perfplan/perfplan/internal/report"
)

// machineOf is the machine that a flag names.
func machineOf(flag, name string) (*hardware.Profile, error) {
	h, err := hardware.Load(name)
	if err != nil {
		return nil, usage("%s: %v", flag, err)
	}
	return h, nil
}

func newHardware(e *env) *cobra.Command {
	return group(&cobra.Command{
		Use:     "hardware",
		Short:   "List, show, detect, compare and fit machines",
		Example: "  perfplan hardware list\n  perfplan hardware show h100-sxm",
	}, newHardwareList(e), newHardwareShow(e), newHardwareDetect(e), newHardwareDiff(e), newHardwareFit(e))
}

func newHardwareList(e *env) *cobra.Command {
	return listing("list", "List the machines of the catalog", func(format report.Format) error {
		var list []*hardware.Profile
		for _, name := range hardware.Names() {
			h, err := hardware.Load(name)
			if err != nil {
				return err
			}
			list = append(list, h)
		}
		return report.WriteMachines(e.out, list, format, e.style)
	})
}

func newHardwareShow(e *env) *cobra.Command {
	var out output
	var asCurves bool
	var picture string
	cmd := &cobra.Command{
		Use:   "show NAME|FILE",
		Short: "Show a machine: every datum with its source and kind, or its curves",
		Long: `Show a machine: every datum with its source and kind. --curves plots what it does by
size, as estimate prices it: matrix multiplies, memory-bound kernels, collectives.
--plot draws the same, and the roofline, into an SVG file.`,
		Example: "  perfplan hardware show h100-sxm\n  perfplan hardware show h200-sxm --curves --plot h200.svg",
		Args:    exactly("a machine"),
		RunE: out.run(func(_ *cobra.Command, args []string, format report.Format) error {
			h, err := hardware.Load(args[0])
			if err != nil {
				return err
			}
			if !asCurves && picture == "" {
				return report.WriteMachine(e.out, h, format, e.style)
			}
			c := &report.Curves{Machine: h}
			if c.Figures, err = curves.Of(h); err != nil {
				return usage("%v", err)
			}
			if picture != "" {
				if err := drawable(picture, args...); err != nil {
					return err
				}
				if err := writeFile(picture, func(f *os.File) error { return report.WriteSVG(f, c) }); err != nil {
					return err
				}
			}
			if !asCurves {
				return nil
			}
			return report.Write(e.out, c, format, e.style)
		}),
		ValidArgsFunction: machineNames,
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&asCurves, "curves", false, "plot its curves")
	cmd.Flags().StringVar(&picture, "plot", "", "draw its curves and roofline into an SVG `FILE`; replaces it")
	out.addFlag(cmd, report.Formats...)
	return cmd
}
