// Package rankstest runs the ranks of a job in one process, for tests.
package rankstest

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/testhelp"
)

// Run runs fn as each of n ranks, which are goroutines here: what moves between them goes by TCP as between processes. Each has
// an OS thread to itself, as a process that trains within gotorch.Scope has. Where opt says nothing, they wait a minute.
func Run(tb testing.TB, n int, opt distributed.Options, fn func(g *distributed.Group)) {
	tb.Helper()
	store, err := distributed.NewHashStore()
	testhelp.Must(tb, err)
	defer store.Close()
	opt.Store, opt.WorldSize = store, n
	if opt.Timeout == 0 {
		opt.Timeout = time.Minute
	}
	var all, joining sync.WaitGroup
	joining.Add(n)
	for rank := range n {
		of := opt
		of.Rank = rank
		all.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			g, err := distributed.Init(tb.Context(), of)
			joining.Done()
			joining.Wait() // what closes its group earlier breaks connections that others are still making
			if err != nil {
				tb.Error(err)
				return
			}
			defer g.Close()
			fn(g)
		})
	}
	all.Wait()
}
