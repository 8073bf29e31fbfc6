package main

import (
	"bytes"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/calibrate/fit"
	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/report"
)

func newHardwareFit(e *env) *cobra.Command {
	var out output
	var base, title, file string
	cmd := &cobra.Command{
		Use:   "fit SAMPLES",
		Short: "Fit the samples of a calibration into a machine file",
		Long: `Fit a samples file, as perfplan calibrate writes it, over a machine of the catalog and
say how well each probe is described: every case is predicted without itself. What was
not measured is inherited. No GPU is needed.`,
		Example: `  perfplan hardware fit samples.jsonl --out my-h200.yaml
  perfplan hardware fit samples.jsonl --base h200-sxm -o json`,
		Args: exactly("a samples file"),
		RunE: func(_ *cobra.Command, args []string) error {
			format, err := out.format()
			if err != nil {
				return err
			}
			samples, err := readSamples(e, args[0])
			if err != nil {
				return err
			}
			machine, err := baseOf(base, samples.Header.Device)
			if err != nil {
				return err
			}
			r, err := fit.Run(samples, machine, fit.Options{Name: args[0], Title: title})
			if err != nil {
				return err
			}
			if file != "" {
				if err := writeFile(file, func(f *os.File) error { _, err := io.Copy(f, bytes.NewReader(r.YAML)); return err }); err != nil {
					return err
				}
			}
			x := &report.Fit{Samples: args[0], Written: file, Base: machine, Profile: r.Loaded, Notes: r.Notes}
			for _, p := range r.Probes {
				x.Probes = append(x.Probes, report.FitProbe(p))
			}
			return report.WriteFit(e.out, x, format, e.style)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&base, "base", "", "`NAME` or file of the machine that is refined; default: the catalog's of the same GPU")
	cmd.Flags().StringVar(&file, "out", "", "write the machine into this `FILE`")
	cmd.Flags().StringVar(&title, "title", "", "`TEXT` that names the machine in lists")
	complete(cmd, "base", hardware.Names())
	out.addFlag(cmd, report.FitFormats...)
	return cmd
}

// readSamples reads a samples file, or standard input.
func readSamples(e *env, name string) (*sample.File, error) {
	if name == "-" {
		return sample.Read(e.in, name)
	}
	return sample.ReadFile(name)
}

// baseOf is the machine to refine.
func baseOf(name, device string) (*hardware.Profile, error) {
	if name != "" {
		return hardware.Load(name)
	}
	if p, ok := hardware.ByDevice(device); ok {
		return p, nil
	}
	return nil, usage("--base: the catalog has no machine with GPU %q; name the nearest one (perfplan hardware list)", device)
}
