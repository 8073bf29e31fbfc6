package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestHelpUnwritten: help that cannot be written fails as a result does.
func TestHelpUnwritten(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"help", "plan"}, {"plan", "--help"}, {"hardware"}, {"--version"}, {"version"}, {"completion", "bash"}, {"collective", "all-reduce", "--size", "1GiB"}} {
		var stderr bytes.Buffer
		require.Equal(t, exitInternal, run(args, &env{in: strings.NewReader(""), out: full{}, err: &stderr}), args)
		require.Equal(t, "perfplan: no space left on device\n", stderr.String(), args)
	}
}

// TestHelpFits: the help of every command fits a narrow terminal, but for examples and the line that
// says how it is used, and says there what it says in a pipe.
func TestHelpFits(t *testing.T) {
	help := func(width int, path []string) string {
		var b bytes.Buffer
		root := newRoot(&env{in: strings.NewReader(""), out: &b, err: &b, style: report.Style{Width: width}})
		root.SetArgs(append(path, "--help"))
		require.NoError(t, root.Execute())
		return b.String()
	}
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		whole, narrow := help(0, path), help(72, path)
		require.Equal(t, strings.Fields(whole), strings.Fields(narrow), path)
		for _, line := range strings.Split(narrow, "\n") {
			typed := strings.HasPrefix(strings.TrimSpace(line), "perfplan ") || strings.HasPrefix(line, "Use ")
			require.True(t, typed || utf8.RuneCountInString(line) <= 72, "%v: %q", path, line)
		}
		for _, inner := range c.Commands() {
			if inner.IsAvailableCommand() && c.Name() != "completion" { // whose examples are cobra's
				walk(inner, append(path[:len(path):len(path)], inner.Name()))
			}
		}
	}
	walk(newRoot(&env{style: report.Style{}}), nil)
}
