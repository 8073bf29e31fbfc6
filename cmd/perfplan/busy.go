package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// isTerminal reports whether somebody sees what is written to w as it comes.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// busy says on a terminal, second by second, what keeps a command that counts nothing,
// until the function that it returns is called, once or more. Quick answers come without a word.
func (e *env) busy(what string) (end func()) {
	if !isTerminal(e.err) {
		return func() {}
	}
	return ticking(e.err, time.Second, what)
}

// ticking is busy on a terminal.
func ticking(w io.Writer, every time.Duration, what string) (end func()) {
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		begin, tick := time.Now(), time.NewTicker(every)
		defer tick.Stop()
		for shown := false; ; shown = true {
			select {
			case <-stop:
				if shown {
					fmt.Fprint(w, "\r\x1b[K")
				}
				return
			case <-tick.C:
				fmt.Fprintf(w, "\r\x1b[K%s: %.0f s", what, time.Since(begin).Seconds())
			}
		}
	}()
	return sync.OnceFunc(func() { close(stop); <-over })
}
