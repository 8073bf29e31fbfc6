package sample

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
)

// maxLine bounds a line of a samples file; a sample has a few hundred bytes.
const maxLine = 1 << 20

// Read reads a samples file; name is for messages. A last line that is cut off, as
// an interruption of the machine leaves it, is dropped.
func Read(r io.Reader, name string) (*File, error) {
	f := &File{}
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	var list diag.List
	fail := func(line int, format string, args ...any) {
		list = append(list, &diag.Error{File: name, Line: line, Col: 1, Message: fmt.Sprintf(format, args...)})
	}
	var broken string // complaint about the line before; forgiven if it was the last
	line := 0
	for in.Scan() {
		line++
		text := bytes.TrimSpace(bytes.TrimPrefix(in.Bytes(), []byte("\ufeff"))) // a byte order mark is no text
		if len(text) == 0 {
			continue
		}
		if broken != "" {
			fail(line-1, "%s", broken)
			broken = ""
		}
		if f.Header.Format == "" {
			if err := json.Unmarshal(text, &f.Header); err != nil || f.Header.Format != Format {
				fail(line, "not a samples file: the first line must be the header of %s that perfplan calibrate writes", Format)
				return nil, list.Err()
			}
			continue
		}
		var s Sample
		if err := json.Unmarshal(text, &s); err != nil {
			broken = fmt.Sprintf("not a sample: %v; remove the line", err)
			continue
		}
		f.Samples = append(f.Samples, s)
	}
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		fail(line+1, "a line of more than %d bytes; this is no samples file", maxLine)
	case err != nil:
		return nil, err
	case f.Header.Format == "":
		fail(0, "is empty; a samples file begins with the header of %s", Format)
	}
	return f, list.Err()
}

// ReadFile reads a samples file by name.
func ReadFile(name string) (*File, error) {
	f, err := diag.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, name)
}

// Key spells the case of a sample, with the probe and the GPU: equal keys are the
// same measurement.
func (s Sample) Key() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s gpu=%d", s.Probe, s.GPU)
	for _, k := range slices.Sorted(maps.Keys(s.Case)) {
		fmt.Fprintf(&b, " %s=%s", k, s.Case[k])
	}
	return b.String()
}

// Writer appends to a samples file.
type Writer struct{ f *os.File }

// Create starts a samples file with its header, in place of one of that name.
func Create(name string, h Header) (*Writer, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	w := &Writer{f}
	h.Format = Format
	if err := w.line(h); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// Append goes on with a samples file. A line that was cut off is cut away first.
func Append(name string) (*Writer, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	if err == nil {
		err = f.Truncate(int64(bytes.LastIndexByte(data, '\n') + 1))
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Writer{f}, nil
}

// Add writes samples, all or, on a crash, the first of them.
func (w *Writer) Add(samples ...Sample) error {
	for _, s := range samples {
		if err := w.line(s); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.f.Write(append(text, '\n'))
	return err
}

// Close brings the file to disk.
func (w *Writer) Close() error { return errors.Join(w.f.Sync(), w.f.Close()) }
