package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies/launch"
)

//go:embed job.template.yaml
var template []byte

func newInit(e *env) *cobra.Command {
	var force, measured bool
	var from []string
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented job file to start from",
		Long: `Write a commented job file to start from; with --from the job that a script, a list or a
log of Megatron-LM's arguments describes, a command line or a configuration of transformers'
Trainer, TRL, accelerate, LLaMA-Factory, Axolotl or ms-swift (YAML, JSON), or a configuration of
DeepSpeed, torchtitan (TOML), NeMo 1, NeMo AutoModel, Megatron-Bridge (run_config.yaml),
gpt-neox or nanoGPT, with what said so beside each key. Files of one job go together. What costs time or
memory and has no key is listed at its end. With --measured logs become measured runs, which
validate holds against predictions and --runs of other commands learns from; what a log does not
say of its job, the files beside it do.`,
		Example: "  perfplan init job.yaml\n  perfplan init --from pretrain_gpt.sh job.yaml\n  perfplan init --from train.sh --from accelerate.yaml --from ds_config.json job.yaml\n  perfplan init --measured --from a.log --from b.log runs.yaml\n  perfplan init --measured --from titan.log --from titan.toml runs.yaml\n  perfplan init --from ds_config.json - | perfplan estimate - --set model=llama3-8b --gpus 8",
		Args:    atMost(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := template, error(nil)
			name, next := "job.yaml", "estimate"
			switch {
			case measured && len(from) == 0:
				return usage("--measured makes measured runs of logs; name them by --from, or leave it out")
			case measured:
				name, next = "runs.yaml", "validate"
			}
			if len(from) > 0 {
				if text, err = e.launched(from, measured); err != nil {
					return err
				}
			}
			if len(args) > 0 {
				name = args[0]
			}
			if name == "-" {
				_, err := e.out.Write(text)
				return err
			}
			if name == "" {
				return usage(`"" names no file; give one, as in job.yaml`)
			}
			if info, err := os.Stat(name); err == nil && info.IsDir() {
				return usage("%s is a folder; name a file in it, as in %s", name, filepath.Join(name, "job.yaml"))
			}
			if _, err := os.Lstat(name); err == nil && !force {
				return usage("%s is there already; name another file, or overwrite it with --force", name)
			}
			if err := distinct("--force", name, from...); err != nil {
				return err
			}
			err = writeFile(name, func(f *os.File) error {
				_, err := f.Write(text)
				return err
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(e.err, "wrote %s; next: perfplan %s %s\n", name, next, name)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it is there; never a file of --from")
	cmd.Flags().StringArrayVar(&from, "from", nil, "`FILE` that starts a job: a script or log of Megatron-LM or of a Trainer, a configuration of it, accelerate, LLaMA-Factory, Axolotl, ms-swift, DeepSpeed, torchtitan, NeMo, NeMo AutoModel, Megatron-Bridge, gpt-neox or nanoGPT; - is standard input (repeatable)")
	cmd.Flags().BoolVar(&measured, "measured", false, "write measured runs of logs, each a --from, or of one with the files of its job, for perfplan validate")
	return cmd
}

// launched is the job that files describe, and says what they leave open; or the runs that
// logs measured.
func (e *env) launched(files []string, measured bool) ([]byte, error) {
	var jobs []*launch.Job
	for _, name := range files {
		text, err := e.beginning(name)
		if err != nil {
			return nil, err
		}
		j, err := launch.Read(name, text)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	if measured {
		text, err := launch.Runs(jobs)
		if err == nil {
			fmt.Fprintf(e.err, "open: %s\n", launch.Unmeasured)
		}
		return text, err
	}
	j, err := launch.Join(jobs)
	if err != nil {
		return nil, err
	}
	for _, s := range j.Settings {
		if s.Value == nil {
			fmt.Fprintf(e.err, "open: %s\n", s.Open())
		}
	}
	for _, n := range j.Unknown {
		fmt.Fprintf(e.err, "not known: %s\n", n)
	}
	for _, n := range j.Notes {
		fmt.Fprintf(e.err, "not taken over: %s\n", n)
	}
	if w := j.Without(); w != "" {
		fmt.Fprintf(e.err, "without a key: %s\n", w)
	}
	if m := j.Measured(); m != "" {
		fmt.Fprintf(e.err, "measured: %s\n", m)
	}
	return j.YAML()
}

// beginning is a file or standard input, of a long log the beginning, where its arguments are.
func (e *env) beginning(name string) ([]byte, error) {
	in := e.in
	if name != "-" {
		f, err := diag.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, yamlx.MaxFileSize))
	if err != nil {
		return nil, diag.Errorf("%v; give a file that can be read", err)
	}
	if cut := bytes.LastIndexAny(text, " \r\n"); len(text) == yamlx.MaxFileSize && cut > 0 { // within a word, or a character of a progress bar
		text = text[:cut]
	}
	return text, nil
}
