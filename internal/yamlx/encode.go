package yamlx

import (
	"bytes"

	"gopkg.in/yaml.v3"
)

// Encode writes a node as this program's files are written, indented by two.
func Encode(n *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return nil, err
	}
	err := e.Close()
	return b.Bytes(), err
}
