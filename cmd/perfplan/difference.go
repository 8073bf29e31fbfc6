package main

import (
	"bytes"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/whatif"
)

func newDiff(e *env) *cobra.Command {
	job := jobFlags{jobs: 2}
	var out output
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Which term moved between two jobs or two results",
		Long: `Compare two predictions term by term: the settings that differ, the parts of the
step and the classes of memory that moved, largest first, as a waterfall from one
whole to the other.

A and B are job files, models of the catalog, or results that perfplan estimate -o
json wrote; one may be - for standard input. Flags change both jobs.`,
		Example: `  perfplan diff a.yaml b.yaml
  perfplan diff before.json after.json -o csv`,
		RunE: out.run(func(cmd *cobra.Command, args []string, format report.Format) error {
			if len(args) != 2 {
				return usage("%s needs two jobs or results, not %d, as in \"perfplan diff a.yaml b.yaml\"", cmd.CommandPath(), len(args))
			}
			if args[0] == "-" && args[1] == "-" {
				return usage("both sides are standard input; name a file for one of them")
			}
			var sides [2]whatif.Side
			var err error
			for i, name := range args {
				if sides[i], err = side(e, &job, name); err != nil {
					return err
				}
			}
			return report.Write(e.out, (*report.Difference)(whatif.Diff(sides[0], sides[1])), format, e.style)
		}),
	}
	out.addFlag(cmd, report.Formats...)
	job.add(cmd)
	return cmd
}

// side reads a result, or predicts a job.
func side(e *env, job *jobFlags, name string) (whatif.Side, error) {
	info, err := os.Stat(name)
	if name == "-" || err == nil && info.Mode().IsRegular() {
		var doc *yamlx.Document
		if name == "-" {
			text, err := io.ReadAll(io.LimitReader(e.in, yamlx.MaxFileSize+1))
			if err != nil {
				return whatif.Side{}, err
			}
			again := *e
			again.in, e = bytes.NewReader(text), &again
			doc, err = yamlx.Parse(name, text)
			if err != nil {
				return whatif.Side{}, err
			}
		} else if doc, err = yamlx.ReadFile(name); err != nil {
			return whatif.Side{}, err
		}
		if report.IsResult(doc) {
			if len(job.edits) > 0 {
				return whatif.Side{}, usage("%s changes a job, but %s is a result; compare the jobs instead", job.edits[0].origin, name)
			}
			return report.ReadResult(doc)
		}
	}
	r, err := job.predict(e, []string{name}, estimate.Options{})
	if err != nil {
		return whatif.Side{}, err
	}
	return report.SideOf(r, name)
}
