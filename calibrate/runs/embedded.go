package runs

import (
	"embed"
	"io/fs"

	"github.com/perfplan/perfplan/internal/parallel"
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
	type read struct {
		list []Run
		err  error
	}
	var all []Run
	for _, r := range parallel.Map(files, func(f fs.DirEntry) (r read) {
		r.list, r.err = readFile(f.Name())
		return r
	}) {
		if r.err != nil {
			return nil, r.err
		}
		all = append(all, r.list...)
	}
	return all, repeated(all).Err()
}

// readFile returns the runs of one of the files that the program carries.
func readFile(name string) ([]Run, error) {
	text, err := data.ReadFile("data/" + name)
	if err != nil {
		return nil, err
	}
	doc, err := yamlx.Parse("calibrate/runs/data/"+name, text)
	if err != nil {
		return nil, err
	}
	return Decode(doc)
}
