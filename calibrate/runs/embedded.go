package runs

import (
	"embed"

	"github.com/perfplan/perfplan/internal/yamlx"
)

//go:embed data/*.yaml
var data embed.FS

// Embedded returns the runs that the program carries, file by file in the order
// of their names.
func Embedded() ([]Run, error) {
	files, err := data.ReadDir("data")
	if err != nil {
		return nil, err
	}
	var all []Run
	for _, f := range files {
		text, err := data.ReadFile("data/" + f.Name())
		if err != nil {
			return nil, err
		}
		doc, err := yamlx.Parse("calibrate/runs/data/"+f.Name(), text)
		if err != nil {
			return nil, err
		}
		list, err := Decode(doc)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, repeated(all).Err()
}
