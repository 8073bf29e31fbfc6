package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
)

func newVersion(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  atMost(0),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(e.out, "perfplan %s %s %s/%s\n", report.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
