package strategies

import (
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// optional is a key whose zero value stands for "left out".
type optional struct {
	path string
	zero func(*yaml.Node) bool // reports whether it is written as zero
	give string                // what to write
}

// optionals are all such keys. Zero as written is a mistake and not a wish for the
// default.
var optionals = func() []optional {
	out := []optional{
		{"network.bandwidth_per_gpu", zero[units.Rate], "a rate above 0, as in 50GB/s"},
		{"runtime.host_speed", zero[float64], "the speed of the CPUs over that of the machine's own, as in 0.7"},
		{"plan.bucket", zero[units.Bytes], "a size above 0, as in 25MiB"},
		{"runtime.cpu_threads", zero[float64], "1 to 1024"},
		{"runtime.loss_chunks", zero[float64], "1 for the whole loss at once, or more"},
		{"runtime.vocab_multiple", zero[float64], "1 for a vocabulary that tensor ranks alone pad, or more"},
		{"plan.offload_fraction", zero[float64], "a share above 0, up to 1"},
		{"plan.drain_every", zero[float64], "1 or more"},
		{"train.document_length", zero[float64], "mean tokens of a document, 1 or more"},
		{"train.expert_imbalance", zero[float64], "tokens of the busiest expert rank over the mean, 1 or more"},
		{"train.lora.rank", zero[float64], "1 to 16384"},
		{"train.expert_capacity", zero[float64], "rows of every expert over the mean, as in 1 or 1.25"},
	}
	for _, count := range []string{"gpus", "plan.tp", "plan.cp", "plan.ep", "plan.expert_tp", "plan.pp", "plan.virtual_stages", "plan.dp", "plan.shard_degree",
		"train.sequence_length", "train.micro_batch", "train.grad_accumulation", "train.global_batch"} {
		out = append(out, optional{count, zero[float64], "1 or more"})
	}
	return out
}()

// zero reports whether a node holds zero of a kind of number.
func zero[T ~float64](n *yaml.Node) bool {
	v := T(1)
	return n.Kind == yaml.ScalarNode && n.Tag != "!!null" && n.Decode(&v) == nil && v == 0
}

// refuseZeros complains about what is written as zero but stands for "left out" there.
func refuseZeros(d *yamlx.Document, n *yaml.Node) error {
	var errs diag.List
	for _, o := range optionals {
		at := n
		for k := range strings.SplitSeq(o.path, ".") {
			_, at = yamlx.Key(at, k)
		}
		if at != nil && o.zero(at) {
			errs = append(errs, d.Errorf(at, "%s: %s; give %s, or leave it out", o.path, at.Value, o.give))
		}
	}
	return errs.Err()
}
