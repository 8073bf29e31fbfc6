package ops

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
)

func TestDump(t *testing.T) {
	if os.Getenv("DUMP") == "" {
		t.Skip()
	}
	doc, err := yamlx.Parse("x", []byte(os.Getenv("DUMP")))
	if err != nil {
		t.Fatal(err)
	}
	spec, errs := model.Decode(doc, doc.At("model"))
	if errs != nil {
		t.Fatal(errs)
	}
	var in struct {
		Model     any    `yaml:"model"`
		Recipe    string `yaml:"recipe"`
		Precision string `yaml:"precision"`
		B         int64  `yaml:"b"`
		S         int64  `yaml:"s"`
		Recompute string `yaml:"recompute"`
	}
	if err := doc.Decode(&in); err != nil {
		t.Fatal(err)
	}
	r, err := recipe.Load(in.Recipe)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := hardware.Load("h200-sxm")
	if err != nil {
		t.Fatal(err)
	}
	k, err := kernel.New(hw)
	if err != nil {
		t.Fatal(err)
	}
	m := Build(Config{Spec: spec, Recipe: r, Precision: r.Precision[in.Precision], Attention: "sdpa", MicroBatch: in.B, Sequence: in.S, Recompute: Recompute(in.Recompute), Shard: Shard{TP: 1, CP: 1, EP: 1}})
	type row struct {
		Class, Prim string
		Count       int32
		N, Us, MB   float64
	}
	all := map[string][]row{}
	show := func(name string, ops []Op) {
		sum := 0.0
		for i := range ops {
			sum += float64(k.Time(&ops[i])) * 1e6
			all[name] = append(all[name], row{ops[i].Class.String(), ops[i].Prim, ops[i].Count, ops[i].Elements, float64(k.Time(&ops[i])) * 1e6, float64(ops[i].Bytes) / 1e6})
		}
		fmt.Printf("== %s %d ops %.1f us\n", name, len(ops), sum)
		for i := range ops {
			o := &ops[i]
			fmt.Printf("%s %s/%s %s x%d n=%.0f %s idx=%.0f [%d %d %d] %.1f\n", o.Phase, o.Module, o.Prim, o.Class, o.Count, o.Elements, o.Bytes, o.Index, o.M, o.N, o.K, float64(k.Time(o))*1e6)
		}
	}
	for _, u := range append([]Unit{m.Embedding, m.Head}, m.Kinds...) {
		show(u.Name+" forward", u.Forward.Ops)
		show(u.Name+" backward", u.Backward.Ops)
	}
	out, _ := json.Marshal(map[string]any{"units": all, "layers": m.Layers})
	os.WriteFile(os.Getenv("DUMPOUT"), out, 0o644)
}
