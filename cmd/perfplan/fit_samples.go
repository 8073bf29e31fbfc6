package main

import (
	"bytes"
	"io"
	"os"
	"strings"

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
		Use:   "fit SAMPLES...",
		Short: "Fit the samples of a calibration into a machine file",
		Long: `Fit samples files, as perfplan calibrate writes them, over a machine of the catalog and
say how well each probe is described: every case is predicted without itself. What was
not measured is inherited. Several files of one machine, such as one GPU in full and all
of them quickly, go into one profile. No GPU is needed.

Multiplies, attention, collectives and copies are measured as they are. The other
probes run kernels of their own: their laws are those of the machine that PyTorch's
kernels were measured on, times what the probe takes here over what it takes there.`,
		Example: `  perfplan hardware fit samples.jsonl --out my-h200.yaml
  perfplan hardware fit one-gpu.jsonl all-gpus.jsonl --out my-h200.yaml
  perfplan hardware fit samples.jsonl --base h200-sxm -o json`,
		Args: atLeast("a samples file"),
		RunE: out.run(func(_ *cobra.Command, args []string, format report.Format) error {
			if err := distinct("--out", file, append(args, base)...); err != nil {
				return err
			}
			if err := once("files", "name it once", args); err != nil {
				return err
			}
			var files []*sample.File
			for _, name := range args {
				f, err := readSamples(e, name)
				if err != nil {
					return err
				}
				files = append(files, f)
			}
			samples, err := fit.Join(args, files)
			if err != nil {
				return err
			}
			name := strings.Join(args, ", ")
			machine, err := baseOf(base, samples.Header.Device)
			if err != nil {
				return err
			}
			r, err := fit.Run(samples, machine, fit.Options{Name: name, Title: title})
			if err != nil {
				return err
			}
			if file != "" {
				if err := writeFile(file, func(f *os.File) error { _, err := io.Copy(f, bytes.NewReader(r.YAML)); return err }); err != nil {
					return err
				}
			}
			x := &report.Fit{Samples: name, Written: file, Base: machine, Profile: r.Loaded, Notes: r.Notes}
			for _, p := range r.Probes {
				x.Probes = append(x.Probes, report.FitProbe(p))
			}
			return report.Write(e.out, x, format, e.style)
		}),
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&base, "base", "", "`NAME` or file of the machine that is refined; default: the catalog's of the same GPU")
	cmd.Flags().StringVar(&file, "out", "", "write the machine into this `FILE`; replaces it")
	cmd.Flags().StringVar(&title, "title", "", "`TEXT` that names the machine in lists")
	completeOrFile(cmd, "base", hardware.Names())
	out.addFlag(cmd, report.Formats...)
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
		return machineOf("--base", name)
	}
	if p, ok := hardware.ByDevice(device); ok {
		return p, nil
	}
	return nil, usage("--base: the catalog has no machine with GPU %q; name the nearest one (perfplan hardware list)", device)
}
