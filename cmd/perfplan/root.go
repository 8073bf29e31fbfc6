package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/model"
)

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "perfplan",
		Short: "Predict one distributed training step on NVIDIA GPUs",
		Long: `perfplan predicts one distributed training step on NVIDIA GPUs: step time, memory,
MFU, pipeline bubbles and exposed communication, and says what they rest on.

Exit codes: 0 ok, 1 internal error, 2 wrong usage or input, 3 a constraint is broken
(the job does not fit, a tolerance is exceeded), 4 no GPU or library found,
130 stopped by Ctrl-C.`,
		Example: `  perfplan estimate llama2-7b --gpus 64
  perfplan explain llama2-7b --gpus 8 --tp 2
  perfplan validate`,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       report.Version(),

		PersistentPreRun: func(cmd *cobra.Command, _ []string) { e.stoppable(cmd.CommandPath()) },
	}
	root.SetIn(e.in)
	root.SetOut(e.out)
	root.SetErr(e.err)
	root.SetVersionTemplate("perfplan {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newEstimate(e), newPlan(e), newExplain(e), newSweep(e), newSensitivity(e), newScale(e), newDiff(e), newTrain(e), newFit(e), newValidate(e), newCompare(e), newCalibrate(e),
		newCollective(e), newKernel(e), newModel(e), newHardware(e), newInit(e), newVersion(e))
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			cmd, rest, _ := root.Find(args)
			return noCommand(cmd, rest)
		}
	}
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		group(c) // an unknown shell is an error
	}
	if e.style.Width > 0 {
		fitHelp(root, e.style.Width)
	}
	return root
}

// noCommand answers an unknown command with the nearest one.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	var meant string // what a command of another word does
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
		if slices.Contains(c.SuggestFor, args[0]) {
			meant = fmt.Sprintf("; did you mean %q?", c.Name())
		}
	}
	hint := cmp.Or(meant, diag.DidYouMean(args[0], names))
	if cmd.Parent() == nil && diag.Nearest(args[0], names) == "" && model.Known(args[0]) {
		hint = "; for a prediction write \"perfplan estimate " + args[0] + "\""
	}
	shows := map[string]func(string) bool{"model": model.Known, "hardware": hardware.Known}[cmd.Name()]
	if shows != nil && diag.Nearest(args[0], names) == "" && shows(args[0]) {
		hint = fmt.Sprintf("; write %q", cmd.CommandPath()+" show "+args[0])
	}
	if hint == "" { // more commands than one line holds
		hint = "; see " + cmd.CommandPath() + " --help"
	}
	return usage("unknown command %q of %s%s", args[0], cmd.CommandPath(), hint)
}

// group is a command that only holds others.
func group(c *cobra.Command, inner ...*cobra.Command) *cobra.Command {
	c.Args = noCommand
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	c.AddCommand(inner...)
	return c
}

// flagError answers an unknown flag with the nearest one.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &invalid):
		err := invalid.Unwrap()
		var number *strconv.NumError
		if errors.As(err, &number) {
			why := "is no number that it takes; write it in digits, as in 1000"
			switch {
			case invalid.GetFlag().Value.Type() == "bool":
				why = "is neither true nor false; give one of them, or the flag alone for true"
			case errors.Is(number.Err, strconv.ErrRange):
				why = "is out of range; give a smaller number"
			}
			return usage("--%s: %q %s", invalid.GetFlag().Name, number.Num, why)
		}
		return usage("--%s: %v", invalid.GetFlag().Name, err)
	case errors.As(err, &unknown):
		if rest := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(rest) > 0 {
			return noCommand(cmd, rest) // the flag is of a command that is not there
		}
		var flags []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, "--"+f.Name) })
		if near := diag.Nearest("--"+unknown.GetSpecifiedName(), flags); near != "" {
			return usage("unknown flag --%s; did you mean %q?", unknown.GetSpecifiedName(), near)
		}
	}
	return usage("%v; see %s --help", err, cmd.CommandPath())
}

// atMost refuses more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) <= n:
			return nil
		case n == 0:
			return usage("%s takes no arguments: %s", cmd.Name(), strings.Join(args, " "))
		}
		return usage("%s takes at most %d argument, not %d: %s", cmd.Name(), n, len(args), strings.Join(args, " "))
	}
}

// exactly asks for one argument.
func exactly(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return atMost(1)(cmd, args)
		}
		return atLeast(what)(cmd, args)
	}
}

// atLeast asks for one argument or more.
func atLeast(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("%s needs %s, as in \"%s\"", cmd.CommandPath(), what, firstExample(cmd))
		}
		return nil
	}
}

// firstExample is the first of a command's examples.
func firstExample(cmd *cobra.Command) string {
	first, _, _ := strings.Cut(cmd.Example, "\n")
	return strings.TrimSpace(first)
}
