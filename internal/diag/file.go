package diag

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Open opens a file that the user named, or complains that it is none.
func Open(name string) (*os.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, Unread(name, err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, &Error{File: name, Message: "is a folder; name a file in it"}
	}
	return f, nil
}

// Unread is a complaint that what the user named could not be read.
func Unread(name string, err error) *Error {
	var path *fs.PathError
	switch {
	case name == "":
		return &Error{Message: `"" names no file; give one that is there`}
	case errors.Is(err, fs.ErrNotExist):
		if near := beside(name); near != "" {
			return &Error{File: name, Message: fmt.Sprintf("no such file; did you mean %q?", near)}
		}
		return &Error{File: name, Message: "no such file; give one that is there"}
	case errors.Is(err, fs.ErrPermission):
		return &Error{File: name, Message: "may not be read: permission denied; give a file that you may read"}
	case errors.As(err, &path):
		err = path.Err
	}
	return &Error{File: name, Message: fmt.Sprintf("may not be read: %v; give another file", err)}
}

// beside is what is in the folder of a file that is not there and has nearly its name, "" where
// nothing has: an ending alone makes no names alike.
func beside(name string) string {
	dir, file := filepath.Split(name)
	stem := func(file string) string { return strings.TrimSuffix(file, filepath.Ext(file)) }
	entries, err := os.ReadDir(filepath.Clean(dir))
	var stems []string
	for _, e := range entries {
		stems = append(stems, stem(e.Name()))
	}
	if err != nil && dir != "" { // the folder may be misspelt
		if other := beside(filepath.Clean(dir)); other != "" {
			if _, err := os.Stat(filepath.Join(other, file)); err == nil {
				return filepath.Join(other, file)
			}
		}
	}
	near := Nearest(stem(file), stems)
	for i, s := range stems {
		if near != "" && s == near && !(entries[i].IsDir() && stem(file) != file) { // no folder for a file
			return dir + entries[i].Name()
		}
	}
	return ""
}

// NotText is a complaint about bytes that are no text in UTF-8, nil where they are. What is
// expected is said of those that are no text at all.
func NotText(name string, data []byte, expected string) error {
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")):
		return &Error{File: name, Message: "is text in UTF-16, as > of older PowerShells writes it; save it in UTF-8"}
	case bytes.IndexByte(data, 0) >= 0:
	case utf8.Valid(data):
		return nil
	default:
		valid := bytes.ToValidUTF8(data, nil)
		if foreign := len(data) - len(valid); foreign > len(data)/8 {
			break
		}
		at := 0
		for r, size := utf8.DecodeRune(data); r != utf8.RuneError || size > 1; r, size = utf8.DecodeRune(data[at:]) {
			at += size
		}
		line := 1 + bytes.Count(data[:at], []byte("\n"))
		return &Error{File: name, Message: fmt.Sprintf("is text in another encoding than UTF-8, in line %d the byte 0x%02x; save it in UTF-8", line, data[at])}
	}
	return &Error{File: name, Message: "is not a text file; " + expected + " is expected"}
}
