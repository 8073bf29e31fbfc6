package strategies

import (
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// counts are the keys whose zero value stands for "left out". Zero as written is a
// mistake and not a wish for the default.
var counts = [][]string{
	{"gpus"},
	{"plan", "tp"}, {"plan", "cp"}, {"plan", "ep"}, {"plan", "expert_tp"}, {"plan", "pp"}, {"plan", "virtual_stages"}, {"plan", "dp"}, {"plan", "shard_degree"},
	{"train", "sequence_length"}, {"train", "micro_batch"}, {"train", "grad_accumulation"}, {"train", "global_batch"},
}

// refuseZeros complains about counts that are written as zero.
func refuseZeros(d *yamlx.Document, n *yaml.Node) error {
	var errs diag.List
	for _, path := range counts {
		at := n
		for _, k := range path {
			_, at = yamlx.Key(at, k)
		}
		var v float64
		if at == nil || at.Kind != yaml.ScalarNode || at.Tag == "!!null" || at.Decode(&v) != nil || v != 0 {
			continue
		}
		name := path[0]
		if len(path) > 1 {
			name += "." + path[1]
		}
		errs = append(errs, d.Errorf(at, "%s: 0; give 1 or more, or leave it out", name))
	}
	return errs.Err()
}
