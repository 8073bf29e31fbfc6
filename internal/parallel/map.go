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
	var next atomic.Int64
	var failed atomic.Pointer[any]
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(in)) {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					failed.Store(&p)
				}
			}()
			for i := next.Add(1) - 1; i < int64(len(in)) && failed.Load() == nil; i = next.Add(1) - 1 {
				out[i] = f(in[i])
			}
		})
	}
	wg.Wait()
	if p := failed.Load(); p != nil {
		panic(*p)
	}
	return out
}
