package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// TestDocumentChunks: where context ranks exchange heads for positions of packed documents,
// Transformer Engine before 2.18 finds the parts of each one by one, two waits a part, in
// every exchange of a layer; rings do not, nor does what came later.
func TestDocumentChunks(t *testing.T) {
	const job = `{model: llama3-8b, hardware: h100-sxm, gpus: 2, runtime: {recipe: megatron-core, release: "%s"}, plan: {cp: 2, cp_comm_type: %s}, train: {sequence_length: 8192, micro_batch: 1, precision: bf16%s}}`
	waits := func(release, kind, documents string) (n, parts int) {
		u := ops.Build(config(mustParse(t, fmt.Sprintf(job, release, kind, documents)))).Kinds[0]
		for _, s := range []*tape.Section{&u.Forward, &u.Backward} {
			for i := range s.Ops {
				if s.Ops[i].Sync {
					n++
				}
				if p := s.Ops[i].Prim; p == "chunk_indices" || p == "chunk_bounds" {
					parts++
				}
			}
		}
		return n, parts
	}
	const packed = ", document_length: 512"
	n, parts := waits("26.06", "a2a", packed)
	require.Equal(t, 8*16*4, parts, "of queries, keys, values and outputs and of their gradients, 16 documents in four parts each")
	require.Equal(t, 2*parts, n)
	for _, c := range [][3]string{{"26.10", "a2a", packed}, {"26.06", "p2p", packed}, {"26.06", "a2a", ""}} {
		n, parts := waits(c[0], c[1], c[2])
		require.Zero(t, n+parts, c)
	}
}
