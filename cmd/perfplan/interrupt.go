package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
)

// stoppable lets Ctrl-C end a command with a word on which it was, and with its exit code,
// until what it leaves in e.release is called. A shell that starts a command in the background
// ignores Ctrl-C for it; that stays so.
func (e *env) stoppable(command string) {
	if signal.Ignored(os.Interrupt) {
		return
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	go func() {
		if _, pressed := <-c; !pressed {
			return
		}
		if isTerminal(e.err) {
			fmt.Fprint(e.err, "\r\x1b[K") // what tells how far it is
		}
		fmt.Fprintf(e.err, "perfplan: stopped before %s was over\n", command)
		os.Exit(exitStopped)
	}()
	e.release = sync.OnceFunc(func() { signal.Stop(c); close(c) })
}

// interrupt is a context that Ctrl-C, and other signals, end: for commands that print what they
// have. A second Ctrl-C ends the process.
func (e *env) interrupt(parent context.Context, others ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, append(others, os.Interrupt)...)
	context.AfterFunc(ctx, stop)
	if e.release != nil {
		e.release()
	}
	return ctx, stop
}
