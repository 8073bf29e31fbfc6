package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Map returns f of every value, in the order of the values. A panic in f is raised
// again here, where the caller can recover from it.
func Map[T, R any](in []T, f func(T) R) []R {
	out := make([]R, len(in))
	Workers(len(in), func(_ int, next func() (int, bool)) {
		for i, ok := next(); ok; i, ok = next() {
			out[i] = f(in[i])
		}
	})
	return out
}

// Workers runs f on all processors, with a number for each; next hands out 0 to n-1. A
// panic in f is raised again here, and ends what next hands out.
func Workers(n int, f func(worker int, next func() (int, bool))) {
	var at atomic.Int64
	var failed atomic.Pointer[any]
	next := func() (int, bool) {
		i := int(at.Add(1)) - 1
		return i, i < n && failed.Load() == nil
	}
	var wg sync.WaitGroup
	for w := range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					failed.Store(&p)
				}
			}()
			f(w, next)
		})
	}
	wg.Wait()
	if p := failed.Load(); p != nil {
		panic(*p)
	}
}
