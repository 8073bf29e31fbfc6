package runs

import (
	"bytes"
	"embed"
	"io/fs"
	"slices"

	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/internal/yamlx"
)

//go:embed data/*.yaml
var data embed.FS

// Embedded returns the runs that the program carries, file by file in the order of their names:
// all without groups, else at least those of the groups, all of the files that have any of them,
// which is soon read. Where a group is in no file it returns the runs of all.
func Embedded(groups []string) ([]Run, error) {
	files, err := filesWith(groups)
	if err != nil {
		return nil, err
	}
	return read(files)
}

// CheckGroups is an error where a group is in none of the files, which are not decoded for it.
func CheckGroups(groups []string) error {
	files, err := data.ReadDir("data")
	if err != nil || len(groups) == 0 {
		return err
	}
	var known []string
	for _, f := range files {
		text, err := data.ReadFile("data/" + f.Name())
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			if name, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("group: ")); ok && !slices.Contains(known, string(name)) {
				known = append(known, string(name))
			}
		}
	}
	return allAmong(groups, known)
}

// filesWith are the files that have any of the groups; all of them where one is in none.
func filesWith(groups []string) ([]fs.DirEntry, error) {
	files, err := data.ReadDir("data")
	if err != nil || len(groups) == 0 {
		return files, err
	}
	needed := map[string]bool{} // files
	for _, g := range groups {
		known := false
		for _, f := range files {
			text, err := data.ReadFile("data/" + f.Name())
			if err != nil {
				return nil, err
			}
			if bytes.Contains(text, []byte("group: "+g+"\n")) {
				known, needed[f.Name()] = true, true
			}
		}
		if !known {
			return files, nil
		}
	}
	return slices.DeleteFunc(files, func(f fs.DirEntry) bool { return !needed[f.Name()] }), nil
}

// read returns the runs of the files.
func read(files []fs.DirEntry) ([]Run, error) {
	type result struct {
		list []Run
		err  error
	}
	var all []Run
	for _, r := range parallel.Map(files, func(f fs.DirEntry) (r result) {
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
