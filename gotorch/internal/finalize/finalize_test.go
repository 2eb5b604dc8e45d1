package finalize

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

//go:noinline
func drop(n int, finalizer func(*[8]*byte)) {
	for range n {
		runtime.SetFinalizer(new([8]*byte), finalizer)
	}
}

func TestFinalizersHaveRun(t *testing.T) {
	const n = 2000
	defer func(was time.Duration) { patience = was }(patience)
	patience = time.Minute
	var ran atomic.Int64
	drop(n, func(*[8]*byte) { ran.Add(1) })
	Dead()
	// A register may still hold the last one.
	if got := ran.Load(); got < n-1 {
		t.Errorf("%d of %d finalisers have run", got, n)
	}
}

func TestAFinalizerMayCollect(t *testing.T) {
	defer func(was time.Duration) { patience = was }(patience)
	patience = 20 * time.Millisecond
	done := make(chan struct{})
	drop(1, func(*[8]*byte) {
		Dead()
		close(done)
	})
	drop(1, func(*[8]*byte) {}) // the register
	Dead()
	<-done
}
