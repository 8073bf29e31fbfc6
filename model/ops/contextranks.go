package ops

import "github.com/perfplan/perfplan/model/tape"

// DocumentRing is the ring of context ranks each of which has a part of every document
// (Transformer Engine's THD format).
const DocumentRing = "transformer-engine"

// ringRanks is the number of ranks that pass keys and values around.
func (b *builder) ringRanks() int64 {
	if b.Shard.CPHeads {
		return 1
	}
	return max(b.Shard.CP, 1)
}

// ring is how context ranks with queries q and keys k pass keys and values around, and
// what they move beside the attention kernels to put the steps together.
//
// Transformer Engine (pytorch/attention.py, AttnFuncWithCP): keys and values are joined
// and all that come by stay until the last step (p2p_comm_buffers); the half that the rank
// needs of those of others is copied, and each step's output is scaled and added to the
// sum. Backward: the same copies, the gradients of each step are joined, and added where
// they belong.
//
// PyTorch (torch/distributed/tensor/experimental/_attention.py; a trace of two H200 has
// the same kernels): keys and values are joined and gathered (torchtitan's
// context_parallel_rotate_method: allgather), and outputs cast to fp32; each further step
// is cast, subtracted, multiplied and subtracted, kernel by kernel, and every other one, of
// half the queries, joined with the other half. Backward: sums of all three gradients in
// fp32, to which each step adds, and which keys and values send on joined. A compiler makes
// one kernel of each step's merge, and two of its sums (torchtitan's layers on four H200,
// PyTorch 2.11: 19 passes forward and 26 backward), and gathers once: the backward pass
// reads what the forward pass gathered, which is kept with the rank's own keys, and its
// values where they are copies too (memory snapshots of two H200).
func (b *builder) ring(q, k *tape.Tensor) tape.Ring {
	n, keys := float64(b.Shard.CP), float64(k.Size())/float64(q.Size()) // of the queries' elements
	steps := b.Shard.CP
	switch {
	case b.recipe.Structure.Ring == "torch" && b.t.Compiled:
		kept := int64(1)
		if b.recipe.Structure.RepeatHeads {
			kept++
		}
		return tape.Ring{Ranks: steps, Blocks: steps, Again: steps, Wide: true, Returns: true, Kept: kept,
			Merge: 4*keys + 2.5 + 5*(n-1), MergeKernels: 2 * int(steps),
			MergeBack: 6.5 + 24*keys + (2.5+8*keys)*(n-1), BackMerges: 3 + 2*int(steps)}
	case b.recipe.Structure.Ring == "torch":
		whole, half := 3.+6+4+6, (3.+6+4+6)/2+4 // a step of all queries, of half of them: cast, difference, product, difference; join
		sums, send := 5+10*keys, 8*keys
		return tape.Ring{Ranks: steps, Blocks: steps, Again: steps, Wide: true, Returns: true,
			Merge: 4*keys + 3 + (n-1)*(whole+half)/2 + 3, MergeKernels: 3 + 7*int(steps-1),
			MergeBack: 2 + 4*keys + 4*keys + 4 + n*(sums+send) + (n-1)*3 + 3 + 6*keys, BackMerges: 9 + 8*int(steps)}
	case b.recipe.Structure.Ring != "":
		return tape.Ring{Ranks: steps, Blocks: steps, Again: 2, Joins: true,
			Merge: 4*keys + 2*keys*(n-1) + 1 + 3*n, MergeKernels: 2 + 2*int(steps),
			MergeBack: 12*keys + 7*keys*(n-1) + 2 + 3*(n-1), BackMerges: 1 + 4*int(steps)}
	}
	return tape.Ring{Ranks: steps, Blocks: 2, Again: 2}
}

// toHeads exchanges positions for heads among the context ranks: of all heads [b, h,
// s/cp, d] of some positions it makes some heads [b, h/cp, s, d] of all (Transformer
// Engine, pytorch/attention/dot_product_attention/context_parallel.py,
// AttnFuncWithCPAndQKVOA2A; DeepSpeed, runtime/sequence_parallel/ulysses_sp.py). A copy puts
// the rows in order that go to each rank, another the positions that came. Of fewer key and
// value heads than ranks each gets a copy.
func (b *builder) toHeads(x *tape.Tensor, narrow tape.Narrowing) *tape.Tensor {
	cp := b.Shard.CP
	sent, back := b.narrowed(narrow)
	x = b.repeat(x, max(x.Dim(1), cp))
	defer b.t.Release(x)
	return b.reshard(x, x.Dim(1)/cp, x.Dim(2)*cp, sent, back, 1+b.recipe.Structure.TradeCopies)
}

// fromHeads is the way back.
func (b *builder) fromHeads(x *tape.Tensor, narrow tape.Narrowing) *tape.Tensor {
	cp := b.Shard.CP
	back, sent := b.narrowed(narrow)
	return b.reshard(x, x.Dim(1)*cp, x.Dim(2)/cp, sent, back, 1)
}

// documentChunks finds the parts of each document that context ranks hold, two each, before
// x goes to them or after it came.
func (b *builder) documentChunks(x *tape.Tensor, before bool) *tape.Tensor {
	n := b.documents()
	if n == 0 || !b.recipe.Structure.PackedChunks {
		return b.t.Hold(x)
	}
	return b.t.ChunkIndices(x, before, int(2*b.Shard.CP*n))
}

// narrowed are the shares of their bytes that context ranks exchange of what attention reads
// in narrow copies and of gradients of it: what it reads goes as it does, and so
// does what it makes where scales are known before (Transformer Engine,
// context_parallel.py: delayed scaling). 0: no copies are narrow.
func (b *builder) narrowed(to tape.Narrowing) (reads, makes float64) {
	if to.Copies == 0 {
		return 0, 0
	}
	reads, makes = float64(b.Precision.Attention.Size()/b.Precision.Compute.Size()), 1
	if to.Read <= 1 {
		makes = reads
	}
	return reads, makes
}

func (b *builder) reshard(x *tape.Tensor, heads, positions int64, sent, back float64, copies int) *tape.Tensor {
	t := b.t
	y := b.trade(x, sent, back, copies)
	y = b.give(y, t.Reshape(y, x.Dim(0), positions, heads, x.Dim(3)))
	return b.give(y, t.Transpose(y, 1, 2))
}

// trade sends each context rank its part of x: one copy puts in order what goes, one what
// came, and that many the gradients that go back.
func (b *builder) trade(x *tape.Tensor, sent, back float64, copies int) *tape.Tensor {
	y := b.reorder(x, 1)
	y = b.give(y, b.swap(y, sent, back))
	return b.give(y, b.reorder(y, copies))
}

// swap sends each context rank its part of x, which lies in that order, for its own.
func (b *builder) swap(x *tape.Tensor, sent, back float64) *tape.Tensor {
	return b.t.Communicate(tape.CommSpec{Group: "cp", Ranks: b.Shard.CP, Forward: "all-to-all", Backward: "all-to-all", Sent: sent, SentBack: back}, x)
}

// reorder copies x to another order of its dimensions, and its gradient that many times.
func (b *builder) reorder(x *tape.Tensor, copies int) *tape.Tensor {
	more := float64(copies - 1)
	return b.t.Fuse(tape.Fused{Prim: "reorder", Class: tape.Strided2, Back: tape.Strided2, BackKernels: copies, BackRead: more, BackWrite: more, DType: x.DType()}, x)[0]
}
