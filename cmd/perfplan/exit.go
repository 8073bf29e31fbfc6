package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/perfplan/perfplan/calibrate/cuda"
	"github.com/perfplan/perfplan/internal/diag"
)

// Exit codes.
const (
	exitOK       = 0
	exitInternal = 1   // a mistake of this program
	exitUsage    = 2   // flags or input
	exitBroken   = 3   // a result was found, and it breaks a constraint
	exitNoGPU    = 4   // no GPU or library
	exitStopped  = 130 // Ctrl-C, as shells count it
)

// broken is a result that breaks a constraint: it does not fit, a tolerance is
// exceeded.
type broken struct{ text string }

func (b broken) Error() string { return b.text }

// stopped is a result that Ctrl-C cut short.
type stopped struct{ text string }

func (s stopped) Error() string { return s.text }

// usage is a mistake in the command line.
func usage(format string, args ...any) error { return diag.Errorf(format, args...) }

// remembering keeps the first error of writing: cobra drops those of help.
type remembering struct {
	io.Writer
	err error
}

func (r *remembering) Write(text []byte) (int, error) {
	n, err := r.Writer.Write(text)
	r.err = cmp.Or(r.err, err)
	return n, err
}

// run executes a command line and returns the exit code. An error is printed once,
// on the error stream.
func run(args []string, e *env) (code int) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(e.err, "perfplan: internal error: %v\nThis is a bug. Please report it with the command and its input; PERFPLAN_DEBUG=1 prints where it happened.\n", p)
			if os.Getenv("PERFPLAN_DEBUG") != "" {
				e.err.Write(debug.Stack())
			}
			code = exitInternal
		}
	}()
	root := newRoot(e)
	root.SetArgs(args)
	help := &remembering{Writer: e.out}
	root.SetOut(help)
	err := cmp.Or(root.Execute(), help.err)
	if e.release != nil {
		e.release()
	}
	if err == nil {
		return exitOK
	}
	var b broken
	var s stopped
	var missing *cuda.Missing
	switch {
	case errors.As(err, &missing):
		code = exitNoGPU
	case errors.As(err, &b):
		code = exitBroken
	case errors.As(err, &s):
		code = exitStopped
	case diag.IsInput(err):
		code = exitUsage
	default:
		code = exitInternal
	}
	fmt.Fprintln(e.err, "perfplan:", err)
	return code
}
