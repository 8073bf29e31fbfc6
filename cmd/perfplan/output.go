package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
)

// output is the -o flag.
type output struct {
	name  string
	known []report.Format
}

func (o *output) addFlag(cmd *cobra.Command, known ...report.Format) {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = string(f)
	}
	o.known = known
	cmd.Flags().StringVarP(&o.name, "output", "o", "text", "`FORMAT`: "+strings.Join(names, ", "))
	complete(cmd, "output", names)
}

func (o *output) format() (report.Format, error) {
	f, err := report.ParseFormat(o.name, o.known...)
	if err != nil {
		return "", usage("-o: %v", err)
	}
	return f, nil
}

// run is what a command does that prints in a format.
func (o *output) run(do func(cmd *cobra.Command, args []string, format report.Format) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		format, err := o.format()
		if err != nil {
			return err
		}
		return do(cmd, args, format)
	}
}

// listing is a command without arguments that writes a list.
func listing(use, short string, write func(report.Format) error) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  atMost(0),
		RunE:  out.run(func(_ *cobra.Command, _ []string, format report.Format) error { return write(format) }),
	}
	out.addFlag(cmd, report.Formats...)
	return cmd
}

// completeOrFile offers names of a catalog for a flag, and files, which it takes, too.
func completeOrFile(cmd *cobra.Command, flag string, names []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveDefault)) // the flag exists
}

// complete offers fixed values for a flag.
func complete(cmd *cobra.Command, flag string, values []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}
