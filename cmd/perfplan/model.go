package main

import (
	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/model"
)

func newModel(e *env) *cobra.Command {
	return group(&cobra.Command{
		Use:     "model",
		Short:   "List and show models",
		Example: "  perfplan model list\n  perfplan model types\n  perfplan model show llama2-7b",
	}, newModelList(e), newModelTypes(e), newModelShow(e))
}

func newModelList(e *env) *cobra.Command {
	return listing("list", "List the models of the catalog", func(format report.Format) error {
		return report.WriteModels(e.out, model.Catalog(), format, e.style)
	})
}

func newModelTypes(e *env) *cobra.Command {
	return listing("types", "List the model_types that are read, with models of the catalog", func(format report.Format) error {
		return report.WriteModelTypes(e.out, model.Types(), format, e.style)
	})
}

func newModelShow(e *env) *cobra.Command {
	var out output
	var sequence int64
	cmd := &cobra.Command{
		Use:     "show NAME|FILE",
		Short:   "Show a model: shape, parameters by part, FLOPs per token",
		Example: "  perfplan model show llama2-7b\n  perfplan model show config.json --seq 8192",
		Args:    exactly("a model"),
		RunE: out.run(func(_ *cobra.Command, args []string, format report.Format) error {
			if sequence < 1 || sequence > 1<<24 {
				return usage("--seq: %d; give 1 to %d tokens", sequence, 1<<24)
			}
			m := &report.Model{Sequence: sequence}
			var err error
			if m.Spec, err = model.Load(args[0]); err != nil {
				return err
			}
			doc, err := model.Document(args[0])
			if err != nil {
				return err
			}
			if n := doc.At("source"); n != nil {
				m.Source = n.Value
			}
			m.Spec = m.Spec.AtSequence(sequence)
			return report.Write(e.out, m, format, e.style)
		}),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return model.Names(), cobra.ShellCompDirectiveDefault
		},
	}
	cmd.Flags().Int64Var(&sequence, "seq", 4096, "`TOKENS` of a sequence, for the FLOPs of attention")
	out.addFlag(cmd, report.Formats...)
	return cmd
}
