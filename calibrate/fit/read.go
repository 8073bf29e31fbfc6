package fit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/internal/diag"
)

// Bounds of a samples file: a full calibration writes some 3000 lines of 400 bytes.
const (
	longestLine = 1 << 20
	mostSamples = 1 << 20
)

// afterHeader is the line of a sample in a file without blank lines.
func afterHeader(i int) int { return i + 2 }

// Read reads a samples file and refuses what cannot be one, by line. A last line that
// ends in the middle, as an interrupted calibration leaves it, is left out.
func Read(name string, r io.Reader) (*sample.File, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	f := &sample.File{}
	var lines []int
	header := false
	for n := 1; ; n++ {
		text, whole, err := readLine(in)
		if err != nil {
			return nil, &diag.Error{File: name, Line: n, Col: 1, Message: err.Error()}
		}
		fail := func(format string, args ...any) (*sample.File, error) {
			return nil, &diag.Error{File: name, Line: n, Col: 1, Message: fmt.Sprintf(format, args...), Source: string(text)}
		}
		if len(bytes.TrimSpace(text)) == 0 {
			if !whole {
				break
			}
			continue
		}
		if !header {
			if err := json.Unmarshal(text, &f.Header); err != nil || f.Header.Format == "" {
				return fail("is not the header of a samples file; the first line begins with {\"perfplan\":\"%s\"", sample.Format)
			}
			if f.Header.Format != sample.Format {
				return fail("perfplan: %q is not a samples file; expected %s", f.Header.Format, sample.Format)
			}
			header = true
		} else {
			var s sample.Sample
			if err := json.Unmarshal(text, &s); err != nil {
				if !whole {
					break // cut off
				}
				return fail("is not a sample: %s", plain(err))
			}
			if f.Samples, lines = append(f.Samples, s), append(lines, n); len(f.Samples) > mostSamples {
				return fail("the file holds more than %d samples; split it", mostSamples)
			}
		}
		if !whole {
			break
		}
	}
	if !header {
		return nil, &diag.Error{File: name, Message: "is empty; run perfplan calibrate"}
	}
	return f, check(f, name, func(i int) int { return lines[i] })
}

// readLine reads up to a newline; whole is false for what the end of the file cuts.
func readLine(in *bufio.Reader) (text []byte, whole bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(text, "\r\n"), true, nil
		case errors.Is(err, io.EOF):
			return text, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, fmt.Errorf("may not be read: %w", err)
		case len(text) > longestLine:
			return nil, false, fmt.Errorf("is longer than %d bytes; this is no samples file", longestLine)
		}
	}
}

// plain says in the reader's words what is wrong with a line of JSON.
func plain(err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return fmt.Sprintf("%s holds a %s, not a %s", t.Field, t.Value, t.Type.Kind())
	}
	return err.Error()
}
