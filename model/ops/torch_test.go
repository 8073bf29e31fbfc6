package ops

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// released is a release by its month.
func released(t *testing.T, month string) (r units.Release) {
	t.Helper()
	require.NoError(t, r.UnmarshalText([]byte(month)))
	return r
}

// TestFunctionalCollectives: a compiled torchtitan layer under tensor and sequence
// parallelism gathers and reduces four times, in the forward and backward pass together,
// keeps what it gathered, and copies what is cut and, of more than one sequence, what is
// gathered (kernels cat_split, cat_reduce_scatter_tensor_split and
// add_cat_reduce_scatter_tensor_split in a profile of PyTorch 2.11 on two H200,
// 2026-11-21: 62.6, 62 and, with the terms that they add up, 94 and 126 us of 128 MiB).
func TestFunctionalCollectives(t *testing.T) {
	for sequences, gathered := range map[int64]int{1: 0, 4: 4} {
		c := config(t, "llama3-8b", "torchtitan")
		c.Recipe = c.Recipe.At(released(t, "26.02"))
		c.Shard.TP, c.Shard.SequenceParallel, c.MicroBatch, c.Sequence = 2, true, sequences, 4096
		layer := &Build(c).Kinds[0]
		count := map[string]int{}
		var joined []units.Bytes
		whole := units.Bytes(2 * sequences * c.Sequence * c.Spec.Hidden) // of a gathered activation
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for i := range s.Ops {
				o := &s.Ops[i]
				count[o.Prim] += int(max(o.Count, 1))
				if o.Prim == "join" {
					joined = append(joined, o.Bytes/whole)
				}
			}
		}
		require.Equal(t, 4, count["all-gather"])
		require.Equal(t, 4, count["reduce-scatter"])
		require.Equal(t, 4+gathered, count["join"])
		passes := map[units.Bytes]int{2: 2 + gathered, 3: 1, 4: 1} // gate and up, then q, k and v have a term each
		for _, p := range joined {
			passes[p]--
		}
		require.Equal(t, map[units.Bytes]int{2: 0, 3: 0, 4: 0}, passes)
	}
}

// TestSelectiveOps against a Llama-3 8B layer of 8,192 tokens under torchtitan's policy on
// one and two H200 (PyTorch 2.11, 2026-11-22; matrix multiplies and collectives of a profile,
// memory held after each layer in hidden states of a rank): what is reduced is not
// reduced again. A compiler also sees that no gradient reads the output of the MLP, nor
// that of attention once what was reduced of it is kept.
func TestSelectiveOps(t *testing.T) {
	for _, p := range []struct {
		recipe                   string
		tp                       int64
		gemms, gathers, scatters int
		left                     float64
	}{
		{"torchtitan-eager", 1, 24, 0, 0, 7.766},
		{"torchtitan", 1, 24, 0, 0, 6.766},
		{"torchtitan-eager", 2, 24, 6, 4, 10.766},
		{"torchtitan", 2, 23, 6, 4, 7.766},
	} {
		c := config(t, "llama3-8b", p.recipe)
		c.Recipe = c.Recipe.At(released(t, "26.02"))
		c.Shard.TP, c.Shard.SequenceParallel, c.MicroBatch, c.Sequence, c.Recompute = p.tp, p.tp > 1, 1, 8192, SelectiveRecompute
		layer := &Build(c).Kinds[0]
		count := map[string]int{}
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Class == tape.GEMM {
					count["gemm"]++
				} else {
					count[o.Prim]++
				}
			}
		}
		name := fmt.Sprintf("%s, tp %d", p.recipe, p.tp)
		require.Equal(t, []int{p.gemms, p.gathers, p.scatters}, []int{count["gemm"], count["all-gather"], count["reduce-scatter"]}, name)
		hidden := units.Bytes(2 * c.Sequence * c.Spec.Hidden / p.tp)
		require.InEpsilon(t, p.left, float64(left(&layer.Forward)/hidden), 0.0001, name)
	}
}

// TestKeptExchanges: torchtitan's policy keeps exchanged rows of experts from September
// 2025 on, of models other than Qwen3 (the lists of ops of each of its models), of that too from
// April 2026 on (one list of all).
func TestKeptExchanges(t *testing.T) {
	for _, p := range []struct {
		model, release string
		again          int // exchanges of the backward pass
	}{
		{"deepseek-v2-lite", "26.02", 2}, {"gpt-oss-20b", "26.02", 2}, {"qwen3-30b-a3b", "26.02", 4}, {"qwen3-30b-a3b", "26.04", 2}, {"deepseek-v2-lite", "25.08", 4},
	} {
		c := config(t, p.model, "torchtitan")
		var release units.Release
		require.NoError(t, release.UnmarshalText([]byte(p.release)))
		c.Recipe, c.Shard.EP, c.Recompute = c.Recipe.At(release), 4, SelectiveRecompute
		m := Build(c)
		layer := &m.Kinds[len(m.Kinds)-1]
		require.Equal(t, 2, number(&layer.Forward, "all-to-all"), p.model)
		require.Equal(t, p.again, number(&layer.Backward, "all-to-all"), "%s %s", p.model, p.release)
	}
}

// float8 is torchtitan's Llama-3 8B in 8 bits as a release runs it on so many tensor ranks.
func float8(t *testing.T, release string, tp int64) Config {
	c := config(t, "llama3-8b", "torchtitan")
	var at units.Release
	require.NoError(t, at.UnmarshalText([]byte(release)))
	c.Recipe = c.Recipe.At(at)
	c.Precision, c.Shard.TP, c.Shard.SequenceParallel = c.Recipe.Precision["fp8"], tp, tp > 1
	return c
}

// TestFloat8Gathers: torchtitan's tensor ranks gather what has one scale in 8 bits, in both
// passes (torchao/float8/float8_tensor_parallel.py), and reduce in 16; since September 2025
// they gather in 16 too (the converter's name, by which apply_tp chooses).
func TestFloat8Gathers(t *testing.T) {
	for release, size := range map[string]units.Bytes{"25.06": 1, "26.02": 2} {
		c := float8(t, release, 8)
		layer := &Build(c).Kinds[0]
		elements := units.Bytes(c.MicroBatch * c.Sequence * c.Spec.Hidden)
		require.Equal(t, []units.Bytes{size * elements, size * elements}, gathers(&layer.Forward), release)
		require.Equal(t, []units.Bytes{size * elements, size * elements}, gathers(&layer.Backward), release)
		for i := range layer.Forward.Ops {
			if m := layer.Forward.Ops[i].Comm; m != nil && m.Kind == "reduce-scatter" {
				require.Equal(t, 2*elements, m.Bytes)
			}
		}
	}
}

// TestTorchRing: PyTorch's ring attention exchanges keys and values of every query head in
// 16 bits and their gradients in fp32. Two H200, 32 heads of 128, 65,536 tokens
// (2026-11-21): beside the attention kernels of each step the ranks move 6.3 and
// 7.7 GB forward, the first in steps of half of its queries, and 19.7 GB backward, counted
// from the kernels of a profile.
func TestTorchRing(t *testing.T) {
	c := config(t, "llama3-8b", "torchtitan-eager")
	var then units.Release
	require.NoError(t, then.UnmarshalText([]byte("24.12")))
	c.Recipe = c.Recipe.At(then)
	c.Shard.CP, c.MicroBatch, c.Sequence, c.Attention = 2, 1, 65536, "flash"
	layer := &Build(c).Kinds[0]
	require.InEpsilon(t, 7.0e9, float64(moved(&layer.Forward, "ring_merge")), 0.05)
	require.InEpsilon(t, 19.7e9, float64(moved(&layer.Backward, "ring_merge_backward")), 0.05)
	kv := units.Bytes(65536 * 32 * 128 * 2) // keys of both ranks, their heads repeated
	require.Equal(t, []units.Bytes{2 * kv}, gathers(&layer.Forward), "keys and values in one exchange")
	require.Equal(t, []units.Bytes{2*kv + 2*2*2*kv}, gathers(&layer.Backward), "the same again, and their gradients in fp32, from rank to rank until they are back")

	// The same beside Hugging Face's models, which repeat no heads: an H100 of two took 0.8 ms a layer for it forward, beside gathers (2026-11-26)
	c = config(t, "llama3-8b", "hf-eager")
	c.Shard.CP, c.MicroBatch, c.Sequence = 2, 1, 16384
	layer = &Build(c).Kinds[0]
	require.Equal(t, 10, number(&layer.Forward, "ring_merge"))
	require.Equal(t, []units.Bytes{2 * 2 * 16384 * 8 * 128}, gathers(&layer.Forward))
}

// TestContextsByHeads: four context ranks exchange positions for heads, queries, keys,
// values and what attention makes of them once each way, a copy before and one after, and
// run the kernel on all positions of a quarter of the heads (Transformer Engine,
// AttnFuncWithCPAndQKVOA2A). What attention makes is kept both as it makes it and as the
// output projection reads it.
func TestContextsByHeads(t *testing.T) {
	c := config(t, "llama3-8b", "megatron-core")
	c.MicroBatch, c.Sequence, c.Shard.CP = 1, 32768, 4
	ring := Build(c).Kinds[0]
	c.Shard.CPHeads = true
	layer := Build(c).Kinds[0]
	q, kv := units.Bytes(2*8192*4096), units.Bytes(2*8192*1024)
	for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
		var sent []units.Bytes
		for i := range s.Ops {
			switch o := &s.Ops[i]; {
			case o.Comm != nil:
				require.Equal(t, "all-to-all", o.Comm.Kind)
				require.Equal(t, "cp", o.Comm.Group)
				sent = append(sent, o.Comm.Bytes)
			case o.Attn != nil:
				require.Equal(t, []int64{8, 2, 32768, 32768}, []int64{o.Attn.Heads, o.Attn.KVHeads, o.Attn.Queries, o.Attn.Keys})
			}
		}
		require.ElementsMatch(t, []units.Bytes{q, kv, kv, q}, sent)
	}
	require.Equal(t, 2*2*(2*q+2*kv), moved(&layer.Forward, "reorder"))
	require.Equal(t, 2*2*(2*q+2*kv), moved(&layer.Backward, "reorder_backward"))
	require.Equal(t, left(&ring.Forward)+q, left(&layer.Forward))
}

// left are the bytes that a section allocates and does not release.
func left(s *tape.Section) (sum units.Bytes) {
	for _, e := range s.Events {
		sum += e.Bytes
	}
	return
}

// moved are the bytes of all ops of one name, and number how many of them there are.
func moved(s *tape.Section, prim string) (sum units.Bytes) {
	for i := range s.Ops {
		if o := &s.Ops[i]; o.Prim == prim {
			sum += o.Bytes * units.Bytes(max(o.Count, 1))
		}
	}
	return
}

func number(s *tape.Section, prim string) (n int) {
	for i := range s.Ops {
		if s.Ops[i].Prim == prim {
			n++
		}
	}
	return
}

// TestCompiledRing: the compiler makes one kernel of each step's merge. Four H200, 32 heads
// of 128 that share 8, 32,768 tokens (torchtitan v0.2.2, 2026-11-22): 19 passes over the
// output forward and 26 backward, at 4.07 TB/s 0.32 and 0.42 ms, in 8 and 11 kernels.
func TestCompiledRing(t *testing.T) {
	c := config(t, "llama3-8b", "torchtitan")
	c.Shard.CP, c.MicroBatch, c.Sequence = 4, 1, 32768
	layer := &Build(c).Kinds[0]
	pass := float64(2 * 8192 * 4096)
	require.InEpsilon(t, 19*pass, float64(moved(&layer.Forward, "ring_merge")), 0.1)
	require.InEpsilon(t, 26*pass, float64(moved(&layer.Backward, "ring_merge_backward")), 0.1)
	require.Equal(t, 8, number(&layer.Forward, "ring_merge"))
	require.Equal(t, 11, number(&layer.Backward, "ring_merge_backward"))
}

// TestGatheredOnce: compiled, the backward pass of a ring reads what the forward pass
// gathered, which selective recomputation keeps with the rank's own keys: the snapshots of
// two H200 hold 167.8 MB a layer of 32,768 tokens more than without a ring, and show no
// second gather.
func TestGatheredOnce(t *testing.T) {
	kept := func(contexts int64) (*Unit, units.Bytes) {
		c := config(t, "llama3-8b", "torchtitan")
		c.Shard.CP, c.MicroBatch, c.Sequence, c.Recompute = contexts, 1, 16384*contexts, SelectiveRecompute
		layer := &Build(c).Kinds[0]
		return layer, left(&layer.Forward)
	}
	_, alone := kept(1)
	layer, shared := kept(2)
	k := units.Bytes(16384 * 8 * 128 * 2)
	require.Equal(t, 5*k, shared-alone, "keys and values of both ranks, keys of this one")
	require.Equal(t, []units.Bytes{2 * 2 * k}, gathers(&layer.Forward))
	require.Equal(t, []units.Bytes{2 * 2 * 2 * 2 * k}, gathers(&layer.Backward), "gradients alone, in fp32, from rank to rank until they are back")
}

// TestNativeNorm: eager PyTorch has a kernel for RMS norms since July 2025 (2.9). Eight
// layers on an H200 ran it 33 times in a step with half of their products recomputed, its
// gradients 17 times (2026-11-22).
func TestNativeNorm(t *testing.T) {
	c := config(t, "llama3-8b", "torchtitan-eager")
	c.Recompute = SelectiveRecompute
	m := Build(c)
	all := func(prim string) int {
		return 8*(number(&m.Kinds[0].Forward, prim)+number(&m.Kinds[0].Backward, prim)) + number(&m.Head.Forward, prim) + number(&m.Head.Backward, prim)
	}
	require.Equal(t, []int{33, 17, 17}, []int{all("layer_norm"), all("layer_norm_backward"), all("layer_norm_weight_backward")})
	var then units.Release
	require.NoError(t, then.UnmarshalText([]byte("25.07")))
	c.Recipe = c.Recipe.At(then)
	m = Build(c)
	require.Zero(t, all("layer_norm"))
}

// TestFloat8Casts: what several matrix products read is cast once by a compiler, of a
// tensor rank's piece where it is gathered in 8 bits, whose transpose the weight
// gradients then make; every cast is preceded by the ranks' largest magnitude
// (torchao/float8, float8_tensor_parallel.py, float8_ops.py and float8_utils.py). Two
// tensor ranks of H200 ran 145 such reductions in 8 layers, here 15 to 18 in each. What
// is gathered in 16 bits each rank casts whole, by its own maximum: two tensor ranks ran
// 11 reductions in each layer, beside those of weights that FSDP did not gather.
func TestFloat8Casts(t *testing.T) {
	casts := func(release string, tp int64) (*Unit, units.Bytes) {
		c := float8(t, release, tp)
		c.Recompute = SelectiveRecompute
		return &Build(c).Kinds[0], units.Bytes(c.MicroBatch * c.Sequence * c.Spec.Hidden)
	}
	layer, whole := casts("25.06", 1)
	require.Equal(t, 4, number(&layer.Forward, "quantize"), "inputs of q, k and v, of output, of gate and up, of down")
	require.Equal(t, 0, number(&layer.Forward, "all-reduce"))
	require.Equal(t, 0, number(&layer.Backward, "transpose"))
	layer, _ = casts("25.06", 2)
	first := units.Bytes(0)
	for i := range layer.Forward.Ops {
		if o := &layer.Forward.Ops[i]; o.Prim == "quantize" {
			first = o.Bytes
			break
		}
	}
	require.Equal(t, (2*2+1)*whole/2, first, "the piece read twice, written once")
	require.Equal(t, 4, number(&layer.Forward, "all-reduce"))
	require.Equal(t, 4, number(&layer.Backward, "transpose"), "of two gathered inputs and two gathered gradients")
	n := number(&layer.Forward, "all-reduce") + number(&layer.Backward, "all-reduce")
	require.GreaterOrEqual(t, n, 15)
	require.LessOrEqual(t, n, 18)

	layer, _ = casts("26.02", 2)
	require.Equal(t, 2, number(&layer.Forward, "all-reduce"), "inputs of output and of down, which no rank has whole")
	require.Equal(t, 0, number(&layer.Backward, "transpose"))
	n = 2 + number(&layer.Backward, "all-reduce")
	require.GreaterOrEqual(t, n, 8)
	require.LessOrEqual(t, n, 11)
}

// TestCompiledLoss: torchtitan's loss fills no gradient with zeros, as one does that cuts
// the logits to shift the labels; over tensor ranks the compiled one holds two fp32
// tensors beside the logits (memory snapshots of v0.2.2: 2.10 GB of logits and as much
// again of their gradient; over two ranks 2.10 and twice 4.20 GB).
func TestCompiledLoss(t *testing.T) {
	peak := func(s *tape.Section, logits units.Bytes) (most units.Bytes) {
		now := units.Bytes(0)
		for _, e := range s.Events {
			if b := max(e.Bytes, -e.Bytes); b == logits || b == 2*logits { // in 16 and in 32 bits
				now += e.Bytes
				most = max(most, now)
			}
		}
		return
	}
	for tp, want := range map[int64]float64{1: 2, 2: 5} { // of the 16-bit logits
		c := config(t, "llama3-8b", "torchtitan")
		c.MicroBatch, c.FusedLoss, c.Shard.TP, c.Shard.SequenceParallel = 3, true, tp, tp > 1
		head := Build(c).Head
		logits := units.Bytes(2 * c.MicroBatch * c.Sequence * c.Spec.Vocab / tp)
		both := head.Forward
		both.Events = append(append([]tape.Event(nil), head.Forward.Events...), head.Backward.Events...)
		require.InEpsilon(t, want, float64(peak(&both, logits)/logits), 0.02, "tp %d", tp)
		require.Equal(t, int(tp-1), number(&both, "fill_"), "of the targets")
	}
}

// TestCompiledSoftmax: between the products of attention written out a compiler runs one kernel forward and
// one backward. Scores in 16 bits are kept beside their softmax, which the next product reads: GPT-2 of
// twelve layers, compiled, takes 9,294 MiB more with 16 sequences of 1,024 tokens than with flash attention
// (notes on build-nanogpt), 2.02 times its scores. In fp32 the softmax alone is.
func TestCompiledSoftmax(t *testing.T) {
	for _, c := range []struct {
		precision               string
		dropout                 float64
		forward, backward, kept float64 // bytes of a score
	}{
		{"bf16-autocast", 0, 2 + 2, 2 + 2 + 2, 2 + 2},
		{"bf16-pure", 0, 2 + 2, 2 + 2 + 2, 2 + 2},
		{"bf16-autocast", 0.1, 2 + 2 + 1, 2 + 2 + 1 + 2, 2 + 2 + 1},
		{"fp32", 0, 4 + 4, 4 + 4 + 4, 4},
	} {
		k := config(t, "gpt2", "litgpt")
		spec := *k.Spec
		spec.EmbedDropout, spec.AttnDropout, spec.ResidDropout, spec.FFN = 0, c.dropout, 0, spec.Hidden
		k.Spec, k.Attention, k.Precision = &spec, "unfused", k.Recipe.Precision[c.precision]
		layer := Build(k).Kinds[0]
		scores := float64(k.MicroBatch * k.Spec.Heads * k.Sequence * k.Sequence)
		bytes := map[string]float64{}
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Class != tape.GEMM && o.Elements >= scores {
					bytes[o.Prim] += float64(o.Bytes) / scores
				}
			}
		}
		kept := 0.0
		for _, e := range layer.Forward.Events {
			if b := float64(e.Bytes); b >= scores || -b >= scores {
				kept += b / scores
			}
		}
		require.Len(t, bytes, 2, c)
		require.InEpsilon(t, c.forward, bytes["softmax"], 0.01, c)
		require.InEpsilon(t, c.backward, bytes["softmax_backward"], 0.01, c)
		require.InEpsilon(t, c.kept, kept, 0.01, c)
	}
}

// TestJoinedGradients: the gradients of queries, keys and values that were cut from one
// projection are dense, whatever these were slices of, and are joined at the rate of a
// copy (GPT-2 on an H100: 53 us of 39 M values in 16 bits) since PyTorch 2.8; GPT-NeoX
// joins the transposed heads, by the kernel for strides.
func TestJoinedGradients(t *testing.T) {
	for _, c := range []struct {
		model, recipe string
		class         tape.Class
		elements      float64 // over values
	}{
		{"gpt2", "hf-eager", tape.Vectorized, 1},
		{"gpt2", "llm-foundry", tape.Concat, 0.59},
		{"pythia-1.4b", "hf-eager", tape.Concat, 1},
	} {
		x := config(t, c.model, c.recipe)
		layer := Build(x).Kinds[0]
		values := float64(3 * x.MicroBatch * x.Sequence * x.Spec.Hidden)
		var seen []tape.Op
		for _, o := range layer.Backward.Ops {
			if o.Prim == "cat" && float64(o.Bytes) == 4*values {
				seen = append(seen, o)
			}
		}
		require.Len(t, seen, 1, "%s by %s", c.model, c.recipe)
		require.Equal(t, c.class, seen[0].Class, "%s by %s", c.model, c.recipe)
		require.InEpsilon(t, c.elements*values, seen[0].Elements, 1e-9, "%s by %s", c.model, c.recipe)
	}
}

// TestLossMetrics: Composer's two metrics of a language model each take the logarithms of
// the 16-bit logits, cast them and pick those of the targets, and leave nothing behind.
func TestLossMetrics(t *testing.T) {
	x := config(t, "gpt2", "llm-foundry")
	head := Build(x).Head
	bare := *x.Recipe
	bare.Structure.LossMetrics = 0
	x.Recipe = &bare
	without := Build(x).Head
	for _, prim := range []string{"to", "log_softmax", "nll_loss"} {
		require.Equal(t, number(&without.Forward, prim)+2, number(&head.Forward, prim), prim)
	}
	sizes := func(s *tape.Section) (out []units.Bytes) {
		for _, e := range s.Events {
			out = append(out, e.Bytes)
		}
		return
	}
	require.Equal(t, sizes(&without.Forward), sizes(&head.Forward), "memory")
	require.Equal(t, without.Backward, head.Backward)
	logits := float64(x.MicroBatch * x.Sequence * x.Spec.Vocab)
	n := 0
	for _, o := range head.Forward.Ops {
		if o.Prim == "log_softmax" && o.DType == tape.BF16 { // the loss itself is in fp32
			require.GreaterOrEqual(t, o.Elements, logits) // of the padded vocabulary
			n++
		}
	}
	require.Equal(t, 2, n)
}

// TestTokenMetrics: entropies of chunks of 128 rows, each of four kernels over its logits, and
// the largest logit of each row, for which logits of several sequences are copied.
func TestTokenMetrics(t *testing.T) {
	for _, batch := range []int64{1, 2} {
		x := config(t, "qwen3-0.6b", "hf-eager")
		x.MicroBatch, x.Sequence = batch, 4096
		without := Build(x).Head
		x.Metrics = true
		with := Build(x).Head
		launches := func(u *Unit, prim string) (n int) {
			for _, o := range u.Forward.Ops {
				if o.Prim == prim {
					n += int(o.Count)
				}
			}
			return
		}
		more := func(prim string) int { return launches(&with, prim) - launches(&without, prim) }
		for _, prim := range []string{"log_softmax", "exp", "mul", "sum"} {
			require.Equal(t, int(batch)*4096/128, more(prim), prim)
		}
		require.Equal(t, 1, more("argmax"))
		require.Equal(t, 3, more("item"))
		require.Equal(t, int(batch)-1, more("clone"))
		require.Equal(t, without.Backward.Ops, with.Backward.Ops)
	}
}

// TestReleases: what a recipe's software did before a release.
func TestReleases(t *testing.T) {
	r := config(t, "llama3-8b", "torchtitan").Recipe
	var fresh, old units.Release
	require.NoError(t, fresh.UnmarshalText([]byte("26.02")))
	require.NoError(t, old.UnmarshalText([]byte("24.12")))
	now, then := r.At(fresh).Structure, r.At(old).Structure
	require.True(t, now.FusedLoss && !now.ExposedRoot && !now.RepeatHeads)
	require.True(t, !then.FusedLoss && then.ExposedRoot && then.RepeatHeads)
}

// torchtitanExperts is Qwen3 30B on four expert ranks by torchtitan of a release.
func torchtitanExperts(t *testing.T, recipe, release string) Config {
	c := config(t, "llama3-8b", recipe)
	s, err := model.Load("qwen3-30b-a3b")
	require.NoError(t, err)
	var at units.Release
	require.NoError(t, at.UnmarshalText([]byte(release)))
	c.Recipe = c.Recipe.At(at)
	c.Spec, c.MicroBatch, c.Sequence, c.Shard.EP = s.AtSequence(4096), 4, 4096, 4
	return c
}

// TestTorchtitanExpertsUnpadded: since April 2026 rows are neither copied for padding nor moved
// where no other rank sends any, and added up in 16 bits by a sorted index
// (models/common/token_dispatcher.py).
func TestTorchtitanExpertsUnpadded(t *testing.T) {
	for _, c := range []struct {
		recipe         string
		ep             int64
		gathers, moves int // forward, of rows
		sums           int // backward
		weighed        int // kernels around the product with scores, of all rows
	}{
		{"torchtitan", 4, 2, 2, 2, 1}, {"torchtitan", 1, 1, 1, 1, 1}, {"torchtitan-eager", 4, 2, 2, 2, 3}, {"torchtitan-eager", 1, 1, 1, 1, 3},
	} {
		x := torchtitanExperts(t, c.recipe, "26.05")
		x.Shard.EP = c.ep
		layer := &Build(x).Kinds[0]
		of := func(s *tape.Section, prim string) (n int) {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Module == "experts" && o.Prim == prim && o.Bytes > 1<<24 {
					n++
				}
			}
			return
		}
		require.Equal(t, c.gathers, of(&layer.Forward, "index"), c)
		require.Equal(t, c.moves, of(&layer.Forward, "index_put_"), c)
		require.Equal(t, c.sums, of(&layer.Backward, "index_put_"), c)
		require.Equal(t, c.weighed, of(&layer.Forward, "weigh")+of(&layer.Forward, "mul")+of(&layer.Forward, "to"), c)
		require.Zero(t, of(&layer.Forward, "cat")+of(&layer.Forward, "bmm"), c)
		require.Equal(t, 1, number(&layer.Backward, "gather"), c)
	}
}

// TestTorchtitanExperts against a profile of a layer of Qwen3 30B with 16,384 tokens on
// each of four H200 (torchtitan v0.2.2, PyTorch 2.11, 2026-11-22): 131,072 rows of 2048 in
// 16 bits are gathered twice, written by index twice, copied with a row of zeros, exchanged
// twice, and weighed in fp32; backward two gathers are sorted sums.
func TestTorchtitanExperts(t *testing.T) {
	c := torchtitanExperts(t, "torchtitan", "26.02")
	layer := &Build(c).Kinds[0]
	rows := units.Bytes(131072 * 2048 * 2)
	for prim, want := range map[string]struct {
		number int
		moved  units.Bytes
	}{
		"index":      {2, 4 * rows},        // 183 and 281 us
		"cat":        {1, 2 * rows},        // 265 us
		"index_put_": {2, 4 * rows},        // 1,223 and 1,220 us
		"bmm":        {1, rows*2 + rows/4}, // 503 us
		"all-to-all": {2, 0},
		"item":       {1, 1}, // the host waits for the numbers of rows
	} {
		require.Equal(t, want.number, number(&layer.Forward, prim), prim)
		require.Equal(t, want.moved, moved(&layer.Forward, prim), prim)
	}
	require.Equal(t, 2, number(&layer.Backward, "index_put_"), "933 and 656 us")
	require.Equal(t, 2, number(&layer.Backward, "index"), "293 and 281 us")
	require.Equal(t, 2, number(&layer.Backward, "bmm_backward"), "1,841 and 288 us")

	c.Shard.EP = 1
	require.Equal(t, 0, number(&Build(c).Kinds[0].Forward, "item"), "no ranks, no numbers")
}

// TestTorchtitanTensorRanksAndExperts: until May 2026 four tensor ranks gather the 8,192 tokens of
// two sequences, and each routes all of them. Where they cut the experts each has all 65,536
// rows, in the place of a quarter of them that it would exchange and gather; where they do not
// each has a quarter, which it puts among zeros. What the experts make is reduced once, as
// tokens (models/llama4/infra/parallelize.py, apply_moe_ep_tp; distributed/expert_parallel.py).
// Since March 2026 the same is done with their gradients, for which until then the cut experts'
// rows were reduced. A shared expert has no collectives of its own forward.
func TestTorchtitanTensorRanksAndExperts(t *testing.T) {
	const tokens = 8192 * 2048 * 2
	const rows = 8 * tokens
	exchanges := func(bytes int64) []string {
		return []string{fmt.Sprint("all-to-all ep ", bytes), fmt.Sprint("all-to-all ep ", bytes)}
	}
	around := func(before string, between []string, after ...string) []string {
		return slices.Concat([]string{fmt.Sprint(before, " tp ", tokens)}, between, after)
	}
	reduced := []string{fmt.Sprint("all-reduce expert_tp ", rows)}
	tokensReduced := fmt.Sprint("reduce-scatter tp ", tokens)
	for _, c := range []struct {
		release           string
		expertTP          int64
		shared            int64
		forward, backward []string
		put               units.Bytes // rows written by index to where their tokens are
	}{
		{"25.12", 4, 0, around("all-gather", exchanges(rows), tokensReduced), around("all-gather", exchanges(rows), reduced...), 2 * rows},
		{"25.12", 1, 0, around("all-gather", exchanges(rows/4), tokensReduced), around("all-gather", exchanges(rows/4)), rows / 2},
		{"26.03", 4, 0, around("all-gather", exchanges(rows), tokensReduced), around("all-gather", exchanges(rows), tokensReduced), 2 * rows},
		{"26.03", 1, 0, around("all-gather", exchanges(rows/4), tokensReduced), around("all-gather", exchanges(rows/4), tokensReduced), rows / 2},
		{"26.03", 4, 768, around("all-gather", exchanges(rows), tokensReduced), around("all-gather", append([]string{fmt.Sprint("all-reduce tp ", tokens)}, exchanges(rows)...), tokensReduced), 2 * rows},
		{"26.06", 4, 0, around("all-gather", exchanges(rows), tokensReduced), around("all-gather", exchanges(rows), tokensReduced), 2*rows + tokens},
		{"26.06", 1, 0, exchanges(rows / 4), exchanges(rows / 4), rows/2 + tokens/4}, // added to those of its tokens
	} {
		x := torchtitanExperts(t, "torchtitan-eager", c.release)
		x.MicroBatch, x.Shard.TP, x.Shard.EP, x.Shard.ExpertTP, x.Shard.SequenceParallel = 2, 4, 2, c.expertTP, true
		if c.shared > 0 {
			s := *x.Spec
			m := *s.MoE
			m.SharedFFN = c.shared
			s.MoE, x.Spec = &m, &s
		}
		layer := &Build(x).Kinds[0]
		of := func(s *tape.Section) (out []string) {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Class == tape.Collective && (o.Module == "router" || o.Module == "experts" || o.Module == "shared expert") {
					out = append(out, fmt.Sprint(o.Comm.Kind, " ", o.Comm.Group, " ", int64(o.Comm.Bytes)))
				}
			}
			return
		}
		require.Equal(t, c.forward, of(&layer.Forward), c)
		require.Equal(t, c.backward, of(&layer.Backward), c)
		put := units.Bytes(0)
		for i := range layer.Forward.Ops {
			if o := &layer.Forward.Ops[i]; o.Prim == "index_put_" {
				put = o.Bytes
			}
		}
		require.Equal(t, c.put, put, c)
	}
}

// TestContextsOfDeepSpeed: a layer of Llama over two ranks, as in a trace of two H100 (DeepSpeed
// 0.19.6, ulysses_sp.py): four all-to-alls each way, two copies around each, of what goes back
// of queries, keys and values one more, and the positions of all ranks before. Of one key head
// both ranks get a copy.
func TestContextsOfDeepSpeed(t *testing.T) {
	c := config(t, "llama3.2-1b", "deepspeed-hf")
	c.MicroBatch, c.Sequence, c.Shard.CP, c.Shard.CPHeads, c.Attention = 1, 16384, 2, true, "sdpa"
	counts := func(s *tape.Section) map[string]int {
		n := map[string]int{}
		for i := range s.Ops {
			n[s.Ops[i].Prim] += int(max(s.Ops[i].Count, 1))
		}
		return n
	}
	layer := Build(c).Kinds[0]
	forward, backward := counts(&layer.Forward), counts(&layer.Backward)
	require.Equal(t, []int{4, 8, 4}, []int{forward["all-to-all"], forward["reorder"], forward["positions"]})
	require.Equal(t, []int{4, 11}, []int{backward["all-to-all"], backward["reorder_backward"]})
	c.Spec.KVHeads = 1
	layer = Build(c).Kinds[0]
	at := slices.IndexFunc(layer.Forward.Ops, func(o tape.Op) bool { return o.Attn != nil })
	a := layer.Forward.Ops[at].Attn
	require.Equal(t, []int64{16, 1, 16384}, []int64{a.Heads, a.KVHeads, a.Keys})
}

// TestRingSteps: a rank sees its own keys as alone and of those of each other rank half the
// pairs, by kernels of their own (a trace of four H200 under Transformer Engine 2.11,
// 2026-11-27: causal ones of 4096 tokens in 665 us, of the others 585 and 621).
func TestRingSteps(t *testing.T) {
	run := func(contexts int64) *Unit {
		c := config(t, "llama3.2-1b", "megatron-core")
		c.Shard.CP, c.MicroBatch, c.Sequence = contexts, 4, 16384
		return &Build(c).Kinds[0]
	}
	whole, part := run(1), run(4)
	for i, s := range []*tape.Section{&part.Forward, &part.Backward} {
		alone := &whole.Forward
		if i == 1 {
			alone = &whole.Backward
		}
		var kernels int32
		var flops, all units.FLOPs
		var shapes []tape.AttentionShape
		var prims []string
		for j := range s.Ops {
			if o := &s.Ops[j]; o.Class == tape.Attention {
				kernels, flops, shapes, prims = kernels+o.Count, flops+o.FLOPs, append(shapes, *o.Attn), append(prims, o.Prim)
			}
		}
		for j := range alone.Ops {
			if o := &alone.Ops[j]; o.Class == tape.Attention {
				all += o.FLOPs
			}
		}
		require.EqualValues(t, 4, kernels)
		require.Equal(t, prims[0]+"_step", prims[1])
		require.Contains(t, config(t, "llama3.2-1b", "megatron-core").Recipe.Host.Again, prims[1], "further steps cost the host a call, a send and a receive each")
		require.InEpsilon(t, float64(all)/4, float64(flops), 1e-3)
		require.Equal(t, []int64{4096, 4096, 4096, 2048}, []int64{shapes[0].Queries, shapes[0].Keys, shapes[1].Queries, shapes[1].Keys})
		require.Equal(t, []bool{true, false}, []bool{shapes[0].Causal, shapes[1].Causal})
	}
}
