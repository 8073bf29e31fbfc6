package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
)

func init() {
	cobra.AddTemplateFunc("beside", func(short string, padding, width int) string { return report.Beside(short, padding+3, width) })
}

// fitHelp lets the help of all commands fit so many columns: paragraphs flow anew, what is said of
// flags and commands breaks beside their names. Examples stay as they are typed.
func fitHelp(root *cobra.Command, width int) {
	root.SetUsageTemplate(strings.NewReplacer(
		".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", width),
		"{{.Short}}", fmt.Sprintf("{{beside .Short .NamePadding %d}}", width),
	).Replace(root.UsageTemplate()))
	flowAll(root, width)
}

func flowAll(cmd *cobra.Command, width int) {
	cmd.Long = flow(cmd.Long, width)
	for _, c := range cmd.Commands() {
		flowAll(c, width)
	}
}

// named is what a line of a table begins with.
var named = regexp.MustCompile(`^ +\S+  +`)

// flow breaks paragraphs, which blank lines divide, at a width, and lines of tables beside their names.
func flow(s string, width int) string {
	paragraphs := strings.Split(s, "\n\n")
	for i, p := range paragraphs {
		if !strings.Contains("\n"+p, "\n ") {
			paragraphs[i] = report.Beside(strings.ReplaceAll(p, "\n", " "), 0, width)
			continue
		}
		lines := strings.Split(p, "\n")
		for k, line := range lines {
			if name := named.FindString(line); name != "" {
				lines[k] = name + report.Beside(line[len(name):], len(name), width)
			}
		}
		paragraphs[i] = strings.Join(lines, "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}
