package main

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"

	"github.com/perfplan/perfplan/internal/report"
)

func main() { os.Exit(run(os.Args[1:], system())) }

// env is the world of a command.
type env struct {
	in       io.Reader
	out, err io.Writer
	style    report.Style
	release  func() // see stoppable
}

// system is the real world. Escape codes go to terminals only, and not where
// NO_COLOR or a dumb terminal asks for none.
func system() *env {
	e := &env{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) {
		e.style.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if width, _, err := term.GetSize(fd); err == nil {
			e.style.Width = width
		}
	} else {
		e.style.Whole = true // a file or a pipe has no width
	}
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil {
		e.style.Width, e.style.Whole = width, false
	}
	return e
}
