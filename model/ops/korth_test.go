package ops

import (
	"fmt"
	"testing"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
)

func TestKorth(t *testing.T) {
	doc, _ := yamlx.Parse("x", []byte("model_type: decoder\nhidden_size: 4096\nnum_hidden_layers: 2\nnum_attention_heads: 32\nintermediate_size: 16384\nvocab_size: 51200\ngated_mlp: false\nhead_dim: 128\nmax_position_embeddings: 2048"))
	s, errs := model.Decode(doc, doc.Root)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	r, err := recipe.Load("megatron-lm")
	if err != nil {
		t.Fatal(err)
	}
	for _, att := range []string{"flash", "unfused"} {
		for _, tp := range []int64{1, 8} {
			for _, sp := range []bool{false, true} {
				m := Build(Config{Spec: s, Recipe: r, Precision: r.Precision["fp16"], Attention: att, MicroBatch: 2, Sequence: 2048, Shard: Shard{TP: tp, CP: 1, EP: 1, SequenceParallel: sp && tp > 1}, Recompute: NoRecompute})
				u := m.Kinds[0]
				b := 0.0
				in := float64(u.Input)
				for _, e := range u.Forward.Events {
					b += float64(e.Bytes)
				}
				fmt.Println(att, tp, sp, (b+in)/(2*2048*4096), "want", 34+5*32*2048/4096.)
			}
		}
	}
}
