package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// axesOf tells the arguments of a sweep apart: what contains = is an axis, the rest
// names the job.
func axesOf(args []string) (rest []string, axes []whatif.Axis, err error) {
	for _, a := range args {
		if !strings.Contains(a, "=") {
			rest = append(rest, a)
			continue
		}
		axis, err := whatif.ParseAxis(a)
		if err != nil {
			return nil, nil, err
		}
		axes = append(axes, axis)
	}
	if len(rest) > 1 {
		return nil, nil, usage("%q is neither an axis nor the job, which is %q; an axis has values, as in plan.tp=1,2,4", rest[1], rest[0])
	}
	return rest, axes, nil
}

// pathOf is the path of an axis: one that is named like a flag sets what the flag sets.
func pathOf(name string) string {
	for _, s := range slices.Concat(settings, runSettings) {
		if s.flag == name {
			return s.path
		}
	}
	return name
}

// variants returns how to make the job of each combination of values from a
// document. An empty value leaves the job as it is.
func (f *jobFlags) variants(doc *yamlx.Document, axes ...whatif.Axis) (decode func(values []string) (*strategies.Job, bool, error), err error) {
	for _, a := range axes {
		for _, x := range f.edits {
			if x.path == pathOf(a.Path) {
				return nil, usage("%s is an axis and %s sets it, too; leave one of them out", a.Path, x.origin)
			}
		}
	}
	return func(values []string) (*strategies.Job, bool, error) {
		edits := slices.Clone(f.edits)
		for i, v := range values {
			if v == "" {
				continue
			}
			edits = append(edits, edit{axes[i].Path + "=" + v, pathOf(axes[i].Path), v})
		}
		// A whole machine before what is changed in it.
		slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(strings.Count(a.path, "."), strings.Count(b.path, ".")) })
		point := *doc
		return (&jobFlags{edits: edits}).decode(&point)
	}, nil
}
