package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/perfplan/perfplan/internal/report"
)

// writeFile writes a file whole or not at all: into a temporary one beside it that
// takes its name at the end. What a link points to is replaced, not the link; a
// device or a pipe is written to.
func writeFile(name string, write func(*os.File) error) (err error) {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return usage("%s cannot be written: it is a folder; name a file in it", name)
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return unwritable(name, err)
		}
		if err := write(f); err != nil {
			f.Close()
			return unwritable(name, err)
		}
		if err := f.Close(); err != nil {
			return unwritable(name, err)
		}
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return unwritable(name, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return unwritable(name, err)
	}
	if err := f.Chmod(0o644); err != nil {
		return unwritable(name, err)
	}
	if err := f.Close(); err != nil {
		return unwritable(name, err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return unwritable(name, err)
	}
	return nil
}

// draw writes the picture that --plot asks for, if any. Where no curve would be in it, it
// leaves the file alone and says so.
func (e *env) draw(name string, write func(*os.File) error) error {
	if name == "" {
		return nil
	}
	err := writeFile(name, write)
	switch {
	case errors.Is(err, report.ErrNoCurve):
		fmt.Fprintf(e.err, "--plot: %s is not written: %v\n", name, report.ErrNoCurve)
		return nil
	case err != nil:
		return usage("--plot: %v", err)
	}
	return nil
}

// drawable refuses what --plot cannot draw into: a file that the command reads, or one that
// is named as another kind than SVG.
func drawable(name string, inputs ...string) error {
	if err := distinct("--plot", name, inputs...); err != nil {
		return err
	}
	kind := filepath.Ext(name)
	if info, err := os.Stat(name); name == "" || kind == ".svg" || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	return usage("--plot: %s is no SVG file; name it as in %s.svg", name, strings.TrimSuffix(name, kind))
}

// distinct refuses to write a file over one that the same command reads: what was read
// is gone then, samples of hours of a GPU among it. Inputs that are no files, such as
// names of the catalog, are passed over; of a folder its config.json is what is read.
func distinct(flag, out string, inputs ...string) error {
	to, err := os.Stat(out)
	if err != nil || !to.Mode().IsRegular() {
		return nil
	}
	for _, in := range inputs {
		if in == "" { // a flag that is not given
			continue
		}
		for _, name := range []string{in, filepath.Join(in, "config.json")} {
			if from, err := os.Stat(name); err == nil && os.SameFile(from, to) {
				return usage("%s: %s is what this command reads (%s), and would be lost; name another file", flag, out, name)
			}
		}
	}
	return nil
}

// unwritable is a complaint about the file that the user named, if err is of the
// file system.
func unwritable(name string, err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	default:
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return usage("%s cannot be written: there is no folder %s; make it first, or name a file in another", name, filepath.Dir(name))
	}
	return usage("%s cannot be written: %v; name a file in another folder", name, err)
}
