package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

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
	for i, a := range axes {
		for _, b := range axes[:i] {
			if a.Path != b.Path && pathOf(a.Path) == pathOf(b.Path) { // the same path is refused with the product
				return nil, usage("%s and %s are axes of one key, %s; write its values in one list", b.Path, a.Path, pathOf(a.Path))
			}
		}
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

// growing refuses a degree that a command gives all the GPUs of each size it looks at.
func (f *jobFlags) growing() error {
	for _, x := range f.edits {
		if x.path == "plan.dp" && x.value != "null" {
			return usage("%s: %s, but data parallelism takes the GPUs of each size; leave it out, or see perfplan sweep", x.origin, x.value)
		}
	}
	return nil
}

// firstLegal is a job on the first of some numbers of GPUs where it is legal, or why it is
// not on the very first: a plan may split it over more than the one node that is taken
// where none is named.
func firstLegal(gpus []int64, decode func(gpus string) (*strategies.Job, bool, error)) (*strategies.Job, error) {
	var refused error
	for _, n := range gpus {
		j, malformed, err := decode(strconv.FormatInt(n, 10))
		if err == nil || malformed {
			return j, err
		}
		if refused == nil {
			refused = err
		}
	}
	return nil, refused
}

// modelParallel is over how many GPUs the plan of a document and the flags splits a model.
func (f *jobFlags) modelParallel(doc *yamlx.Document) (int64, error) {
	d := *doc
	for _, x := range f.edits {
		if x.path == "plan" || strings.HasPrefix(x.path, "plan.") {
			if err := d.Set(x.origin, x.path, x.value, ""); err != nil {
				return 0, err
			}
		}
	}
	split := int64(1)
	for _, key := range []string{"tp", "cp", "pp"} {
		if n := d.At("plan", key); n != nil && n.Kind == yaml.ScalarNode {
			if v, err := strconv.ParseInt(n.Value, 10, 20); err == nil && v > 1 { // others are refused by its rule
				split *= v
			}
		}
	}
	return split, nil
}
