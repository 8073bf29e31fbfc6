package main

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

//go:embed job.template.yaml
var template []byte

func newInit(e *env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "init [FILE]",
		Short:   "Write a commented job file to start from",
		Example: "  perfplan init job.yaml",
		Args:    atMost(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := "job.yaml"
			if len(args) > 0 {
				name = args[0]
			}
			if name == "-" {
				_, err := e.out.Write(template)
				return err
			}
			if _, err := os.Lstat(name); err == nil && !force {
				return usage("%s is there already; name another file, or overwrite it with --force", name)
			}
			err := writeFile(name, func(f *os.File) error {
				_, err := f.Write(template)
				return err
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(e.err, "wrote %s; next: perfplan estimate %s\n", name, name)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return cmd
}
