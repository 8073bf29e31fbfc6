package strategies

import (
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// Straggler is a rank that is slower than the others. Ranks count tensor ranks
// first, then context, data and pipeline ranks, as the groups are laid out (plan.order).
type Straggler struct {
	Rank     int64   `yaml:"rank" json:"rank"`
	Slowdown float64 `yaml:"slowdown" json:"slowdown,omitempty"` // time of its kernels over that of the others; 0 means 1
	Link     float64 `yaml:"link" json:"link,omitempty"`         // time of the collectives and transfers it takes part in over that of the others; 0 means 1
}

// Stragglers are written as a list, or as text: "rank=3,slowdown=1.3; rank=7,link=2".
type Stragglers []Straggler

// Slow lists the ranks that are slower than the others.
func (r *Runtime) Slow() Stragglers {
	if r.Stragglers == nil {
		return nil
	}
	return *r.Stragglers
}

// DecodeNode reads either form.
func (s *Stragglers) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	if n.Kind != yaml.ScalarNode {
		errs := d.DecodeInto(n, (*[]Straggler)(s))
		for _, one := range n.Content {
			if key, _ := yamlx.Key(one, "rank"); key == nil && one.Kind == yaml.MappingNode {
				errs = append(errs, d.Errorf(one, "rank: is missing; say which rank is slow, as in {rank: 3, slowdown: 1.3}"))
			}
			for _, key := range []string{"slowdown", "link"} {
				if _, v := yamlx.Key(one, key); v != nil && zero[float64](v) {
					errs = append(errs, d.Errorf(v, "%s: %s; %s", key, v.Value, giveFactor))
				}
			}
		}
		return errs
	}
	list, err := ParseStragglers(n.Value)
	if err != nil {
		return diag.List{d.Errorf(n, "%v", err)}
	}
	*s = list
	return nil
}

// giveFactor is what to write for a slowdown that is none.
const giveFactor = "give a factor of 1 to 1000, or leave it out"

// ParseStragglers reads "rank=3,slowdown=1.3", several with semicolons between them.
func ParseStragglers(text string) (Stragglers, error) {
	var out Stragglers
	for one := range strings.SplitSeq(text, ";") {
		var s Straggler
		ranked := false
		for pair := range strings.SplitSeq(one, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			switch key = strings.TrimSpace(key); {
			case key != "rank" && key != "slowdown" && key != "link":
				return nil, diag.Errorf("%q is not known of a straggler; write it as in rank=3,slowdown=1.3%s", key, diag.DidYouMean(key, []string{"rank", "slowdown", "link"}))
			case err != nil:
				return nil, diag.Errorf("%s: %q is not a number; write a straggler as in rank=3,slowdown=1.3", key, value)
			case key == "rank":
				if v != float64(int64(v)) {
					return nil, diag.Errorf("rank: %q is not a whole number", value)
				}
				s.Rank, ranked = int64(v), true
			case v == 0:
				return nil, diag.Errorf("%s: %s; %s", key, value, giveFactor)
			case key == "slowdown":
				s.Slowdown = v
			default:
				s.Link = v
			}
		}
		if !ranked {
			return nil, diag.Errorf("%q names no rank; write a straggler as in rank=3,slowdown=1.3", strings.TrimSpace(one))
		}
		out = append(out, s)
	}
	return out, nil
}

// check refuses stragglers that a job of so many GPUs cannot have.
func (s Stragglers) check(gpus int64) error {
	seen := map[int64]bool{}
	for _, x := range s {
		switch {
		case x.Rank < 0 || x.Rank >= gpus:
			return diag.Errorf("runtime.stragglers: rank %d; the %d GPUs are ranks 0 to %d", x.Rank, gpus, gpus-1)
		case seen[x.Rank]:
			return diag.Errorf("runtime.stragglers: rank %d is given twice; leave one of them out", x.Rank)
		case x.Slowdown == 0 && x.Link == 0:
			return diag.Errorf("runtime.stragglers: rank %d is not slow; give slowdown=1.3 for its kernels or link=1.3 for its links", x.Rank)
		case !factor(x.Slowdown):
			return diag.Errorf("runtime.stragglers: slowdown %g of rank %d; %s", x.Slowdown, x.Rank, giveFactor)
		case !factor(x.Link):
			return diag.Errorf("runtime.stragglers: link %g of rank %d; %s", x.Link, x.Rank, giveFactor)
		}
		seen[x.Rank] = true
	}
	return nil
}

func factor(v float64) bool { return v == 0 || v >= 1 && v <= 1000 }
