package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/calibrate/inventory"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/internal/yamlx"
)

func newHardwareDetect(e *env) *cobra.Command {
	var out output
	var topo, base, to string
	cmd := &cobra.Command{
		Use:   "detect",
		Short: "Show this machine, or write it as a profile",
		Long: `Take the inventory of this machine: GPUs with clocks, limits and links, topology,
network cards, processor, memory, versions. The profile inherits the nearest entry of
the catalog; perfplan calibrate adds what the machine reaches.

With --topo the links come from a saved text of "nvidia-smi topo -m", of this machine
or of another one; --base then names the entry of the catalog that it is of.`,
		Example: "  perfplan hardware detect\n  perfplan hardware detect --out machine.yaml\n  perfplan hardware detect --topo topo.txt --base h200-sxm",
		Args:    atMost(0),
		RunE: out.run(func(_ *cobra.Command, _ []string, format report.Format) error {
			if err := distinct("--out", to, topo, base); err != nil {
				return err
			}
			m := &inventory.Machine{}
			var err error
			if topo == "" || base == "" {
				if m, err = inventory.Detect(); err != nil {
					return err
				}
			}
			if topo != "" {
				if m.Topology, err = readTopology(e, topo); err != nil {
					return err
				}
			}
			if base == "" {
				machine, err := baseOf("", m.GPUs[0].Name)
				if err != nil {
					return err
				}
				base = machine.Name
			}
			text, err := m.Skeleton(base)
			if err != nil {
				return err
			}
			doc, err := yamlx.Parse("detected", text)
			if err != nil {
				return err
			}
			p, err := hardware.FromDocument(doc, doc.Root, "detected")
			if err != nil {
				return err
			}
			if to == "" {
				return report.WriteMachine(e.out, p, format, e.style)
			}
			if err := writeFile(to, func(f *os.File) error { _, err := f.Write(text); return err }); err != nil {
				return err
			}
			fmt.Fprintf(e.err, "wrote %s; next: perfplan hardware show %s\n", to, to)
			return nil
		}),
	}
	cmd.Flags().StringVar(&topo, "topo", "", "`FILE` with the text of nvidia-smi topo -m; - is standard input")
	cmd.Flags().StringVar(&base, "base", "", "`NAME` of the catalog's machine to inherit; default: the nearest")
	cmd.Flags().StringVar(&to, "out", "", "write the profile into this `FILE`; replaces it")
	complete(cmd, "base", hardware.Names())
	out.addFlag(cmd, report.Formats...)
	return cmd
}

// readTopology reads a saved topology.
func readTopology(e *env, name string) (*inventory.Topology, error) {
	if name == "-" {
		return inventory.ParseTopology(e.in, name)
	}
	f, err := diag.Open(name)
	if err != nil {
		return nil, usage("--topo: %v", err)
	}
	defer f.Close()
	return inventory.ParseTopology(f, name)
}
