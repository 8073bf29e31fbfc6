package runs

import (
	"errors"
	"fmt"
	"os"

	"github.com/perfplan/perfplan/internal/diag"
)

// LoadAll reads several runs/v1 files, whose runs are taken together. What is given twice
// would count twice: a file or an id that was there before is refused.
func LoadAll(paths []string) ([]Run, error) {
	if err := sameFile(paths); err != nil {
		return nil, err
	}
	var all []Run
	var refused error // of all files
	for _, path := range paths {
		list, err := Load(path)
		refused = errors.Join(refused, err)
		all = append(all, list...)
	}
	if refused != nil {
		return nil, refused
	}
	return all, repeated(all).Err()
}

// sameFile complains about a file that is given twice, by whatever names.
func sameFile(paths []string) error {
	infos := make([]os.FileInfo, len(paths))
	for i, path := range paths {
		infos[i], _ = os.Stat(path) // Load says what is wrong with it
		for k := range i {
			if infos[i] != nil && infos[k] != nil && os.SameFile(infos[k], infos[i]) {
				return &diag.Error{File: path, Message: fmt.Sprintf("is the same file as %s, which is given before it; give it once, or its runs count twice", paths[k])}
			}
		}
	}
	return nil
}

// repeated complains about runs with the id of one before them.
func repeated(list []Run) diag.List {
	var errs diag.List
	first := map[string]*Run{}
	for i := range list {
		run := &list[i]
		before := first[run.ID]
		switch {
		case run.ID == "": // which is complained about
		case before == nil:
			first[run.ID] = run
		case before.doc == run.doc:
			errs = append(errs, run.doc.Errorf(run.id, "id: %q is that of the run in line %d; give each its own", run.ID, before.id.Line))
		default:
			errs = append(errs, run.doc.Errorf(run.id, "id: %q is that of the run in %s, line %d; give each its own, or leave out one of the files", run.ID, before.doc.Name, before.id.Line))
		}
	}
	return errs
}
