package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/whole"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

func newKernel(e *env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "kernel",
		Short: "Price one kernel on one GPU: time, bound, rate",
		Long: `Price one kernel alone on one GPU at its highest clock, with the laws and measured
shapes that estimate uses.`,
		Example: "  perfplan kernel gemm --m 4096 --n 14336 --k 4096\n  perfplan kernel memory --kind copy --size 1GiB",
	}, newKernelGEMM(e), newKernelAttention(e), newKernelMemory(e))
}

// kernelFlags are what all kernels have in common.
type kernelFlags struct {
	out            output
	machine, dtype string
}

func (f *kernelFlags) add(cmd *cobra.Command) {
	machineFlag(cmd, &f.machine)
	f.out.addFlag(cmd, report.Formats...)
}

func (f *kernelFlags) addType(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dtype, "dtype", "bf16", "`TYPE` of the operands: "+strings.Join(dtypes, ", "))
	complete(cmd, "dtype", dtypes)
}

var dtypes = []string{"bf16", "fp16", "fp8", "fp4", "tf32", "fp32"}

// parseType reads --dtype; tf32 means fp32 operands, multiplied in TF32.
func (f *kernelFlags) parseType() (tape.DType, error) {
	name, err := oneOf("dtype", f.dtype, dtypes)
	if err != nil {
		return 0, err
	}
	d, _ := tape.DTypeOf(name)
	return d, nil
}

// write prices the ops and prints them.
func (f *kernelFlags) write(e *env, kind, what string, ops ...tape.Op) error {
	format, err := f.out.format()
	if err != nil {
		return err
	}
	h, err := machineOf("--hardware", f.machine)
	if err != nil {
		return err
	}
	if f.dtype != "" && h.GPU.Peak.Of(f.dtype) == 0 {
		return usage("--dtype: %s has no tensor cores for %s; use another type or another GPU", h.Name, f.dtype)
	}
	timer, err := kernel.New(h)
	if err != nil {
		return usage("%v", err)
	}
	list := make([]report.Kernel, len(ops))
	for i, o := range ops {
		list[i] = report.Kernel{Machine: h, Kind: kind, What: what, Op: o, Quote: timer.Quote(&o)}
	}
	return report.WriteKernels(e.out, list, format, e.style)
}

// extent is a flag for one extent of a problem.
type extent struct {
	flag  string
	value *int64
}

// mostExtent bounds an extent, so that products stay exact.
const mostExtent = 1 << 26

func check(extents []extent) error {
	for _, x := range extents {
		if *x.value < 1 || *x.value > mostExtent {
			return usage("--%s: %d; give 1 to %d", x.flag, *x.value, mostExtent)
		}
	}
	return nil
}

// oneOf refuses a word that a flag does not know.
func oneOf(flag, word string, known []string) (string, error) {
	for _, k := range known {
		if k == word {
			return k, nil
		}
	}
	return "", usage("--%s: %q is not known%s", flag, word, diag.DidYouMean(word, known))
}

// layouts of a linear layer's multiplies.
var layouts = []string{"fprop", "dgrad", "wgrad"}

// sumTypes are those of gradients that weight gradients are added to.
var sumTypes = []string{"fp32", "bf16", "fp16"}

func newKernelGEMM(e *env) *cobra.Command {
	var f kernelFlags
	var m, n, k int64
	var layout, sums string
	cmd := &cobra.Command{
		Use:   "gemm --m TOKENS --n OUTPUTS --k INPUTS",
		Short: "Price a matrix multiply of a linear layer",
		Long: `Price a matrix multiply of a linear layer on m tokens with n outputs and k inputs.
--layout says which: fprop gives [m, n] from x and W, dgrad [m, k] from the output's
gradient and W, wgrad [n, k] from both activations, with --add to gradients of a type
that the same kernel adds it to, as Megatron's main gradients.`,
		Example: "  perfplan kernel gemm --m 4096 --n 14336 --k 4096 --layout wgrad --hardware h200-sxm",
		Args:    atMost(0),
		RunE: func(*cobra.Command, []string) error {
			if err := check([]extent{{"m", &m}, {"n", &n}, {"k", &k}}); err != nil {
				return err
			}
			d, err := f.parseType()
			if err != nil {
				return err
			}
			if layout, err = oneOf("layout", layout, layouts); err != nil {
				return err
			}
			if sums == "" {
				return f.write(e, "gemm", "", kernel.GEMM(kernel.LayoutOf[layout], d, m, n, k))
			}
			if sums, err = oneOf("add", sums, sumTypes); err != nil {
				return err
			}
			if layout != "wgrad" || d == tape.F32 || d == tape.TF32 {
				return usage("--add: only weight gradients of 16 bits and less are added to others; use --layout wgrad and another --dtype, or leave it out")
			}
			to, _ := tape.DTypeOf(sums)
			return f.write(e, "gemm", "added to "+sums, kernel.AddedGEMM(d, to, m, n, k))
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().Int64Var(&m, "m", 4096, "`TOKENS` that the layer runs on")
	cmd.Flags().Int64Var(&n, "n", 4096, "`OUTPUTS` of the layer")
	cmd.Flags().Int64Var(&k, "k", 4096, "`INPUTS` of the layer")
	cmd.Flags().StringVar(&layout, "layout", "fprop", "`WHICH` multiply: "+strings.Join(layouts, ", "))
	complete(cmd, "layout", layouts)
	cmd.Flags().StringVar(&sums, "add", "", "`TYPE` of the gradients that a weight gradient is added to: "+strings.Join(sumTypes, ", "))
	complete(cmd, "add", sumTypes)
	f.addType(cmd)
	f.add(cmd)
	return cmd
}

func newKernelAttention(e *env) *cobra.Command {
	var f kernelFlags
	var causal bool
	var direction string
	s := tape.AttentionShape{}
	directions := []string{"fwd", "bwd"}
	cmd := &cobra.Command{
		Use:     "attention --seq TOKENS --heads N",
		Short:   "Price a fused attention kernel",
		Example: "  perfplan kernel attention --seq 8192 --heads 32 --kv-heads 8 --head-dim 128 --causal --direction bwd",
		Args:    atMost(0),
		RunE: func(*cobra.Command, []string) error {
			s.KVHeads = cmp.Or(s.KVHeads, s.Heads)
			if err := check([]extent{{"seq", &s.Queries}, {"heads", &s.Heads}, {"kv-heads", &s.KVHeads}, {"head-dim", &s.QKDim}, {"batch", &s.Batch}}); err != nil {
				return err
			}
			if s.QKDim > ops.FlashHead {
				return usage("--head-dim: %d; a fused kernel is flash, whose heads have at most %d elements; give 1 to %d", s.QKDim, ops.FlashHead, ops.FlashHead)
			}
			if s.Heads%s.KVHeads != 0 {
				return usage("--kv-heads: %d does not divide the %d heads; give a divisor of them, as %d is", s.KVHeads, s.Heads, whole.GCD(s.Heads, s.KVHeads))
			}
			d, err := f.parseType()
			if err != nil {
				return err
			}
			if direction, err = oneOf("direction", direction, directions); err != nil {
				return err
			}
			s.VDim, s.Causal, s.Backward = s.QKDim, causal, direction == "bwd"
			return f.write(e, "attention", "", kernel.Attention(d, s))
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().Int64Var(&s.Queries, "seq", 4096, "`TOKENS` of a sequence")
	cmd.Flags().Int64Var(&s.Heads, "heads", 32, "query heads, `N`")
	cmd.Flags().Int64Var(&s.KVHeads, "kv-heads", 0, "key and value heads, `N`; default: as many")
	cmd.Flags().Int64Var(&s.QKDim, "head-dim", 128, "width of a head, `N`")
	cmd.Flags().Int64Var(&s.Batch, "batch", 1, "sequences, `N`")
	cmd.Flags().BoolVar(&causal, "causal", true, "each token sees those before it; --causal=false: all")
	cmd.Flags().StringVar(&direction, "direction", "fwd", "`WHICH`: fwd or bwd")
	complete(cmd, "direction", directions)
	f.addType(cmd)
	f.add(cmd)
	return cmd
}

func newKernelMemory(e *env) *cobra.Command {
	var f kernelFlags
	var kind, size, dtype string
	var long strings.Builder
	long.WriteString("Price a memory-bound kernel by its kind of access. The size is what it reads plus\nwhat it writes. Kinds:\n\n")
	for _, k := range kernel.Kinds() {
		long.WriteString("  " + k + strings.Repeat(" ", 23-len(k)) + kernel.KindText(k) + "\n")
	}
	cmd := &cobra.Command{
		Use:     "memory --kind KIND --size SIZE",
		Short:   "Price a memory-bound kernel",
		Long:    strings.TrimSpace(long.String()),
		Example: "  perfplan kernel memory --kind broadcast --size 64MiB\n  perfplan kernel memory --kind copy --size 4KiB..4GiB",
		Args:    atMost(0),
		RunE: func(*cobra.Command, []string) error {
			sizes, err := units.ParseSizes(size)
			if err != nil {
				return usage("--size: %v", err)
			}
			ops := make([]tape.Op, len(sizes))
			for i, b := range sizes {
				if ops[i], err = kernel.Access(kind, dtype, b); err != nil {
					return usage("--kind, --dtype: %v", err)
				}
			}
			return f.write(e, kind, kernel.KindText(kind), ops...)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&kind, "kind", "copy", "`KIND` of access, of those above")
	cmd.Flags().StringVar(&size, "size", "1GiB", "`SIZE`: one, several (1MiB,25MiB) or a range that doubles (1KiB..1GiB)")
	cmd.Flags().StringVar(&dtype, "dtype", "", "`TYPE` of the operands: bf16 or fp32; default: the kind's usual one")
	complete(cmd, "kind", kernel.Kinds())
	f.add(cmd)
	return cmd
}
