package yamlx

import (
	"path/filepath"

	"gopkg.in/yaml.v3"
)

// Path returns the path that a node's value means. A relative one is looked up
// beside the file that names it; one from a flag or from standard input, in the
// working folder.
func (d *Document) Path(n *yaml.Node) string {
	if _, flag := d.origins[n]; flag || filepath.IsAbs(n.Value) || d.Name == "-" || d.Name == "" {
		return n.Value
	}
	return filepath.Join(filepath.Dir(d.Name), n.Value)
}
