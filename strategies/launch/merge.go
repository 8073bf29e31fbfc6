package launch

import (
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/yamlx"
)

// parse reads YAML or JSON as PyYAML does, which takes the keys of <<: *other over.
func parse(name string, text []byte) (*yamlx.Document, error) {
	d, err := yamlx.Parse(name, text)
	if err == nil {
		inherit(d.Root)
	}
	return d, err
}

// inherit puts the keys that a mapping has by << behind its own, which go before them; of
// several mappings the first does.
func inherit(n *yaml.Node) {
	for _, c := range n.Content {
		inherit(c)
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	var from []*yaml.Node
	for i := 0; i+1 < len(n.Content); {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag != "!!merge" {
			i += 2
			continue
		}
		if from = append(from, value); value.Kind == yaml.SequenceNode {
			from = append(from, value.Content...)
		}
		n.Content = slices.Delete(slices.Clone(n.Content), i, i+2)
	}
	for _, f := range from {
		for i := 0; f.Kind == yaml.MappingNode && i+1 < len(f.Content); i += 2 {
			if known, _ := yamlx.Key(n, f.Content[i].Value); known == nil {
				n.Content = append(n.Content, f.Content[i], f.Content[i+1])
			}
		}
	}
}
