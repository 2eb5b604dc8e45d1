// Package finalize has the collector find what is dead, and waits for its finalisers.
package finalize

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// patience is how long a finaliser may keep those behind it waiting. It may be a finaliser that called.
// Tests replace it.
var patience = time.Second

// Dead runs a collection, and returns when the finalisers of what it found dead have run, or when
// they take too long.
//
// The finaliser of an object that dies with the others would not tell: they run in no order that says
// anything, and it may be the first.
func Dead() {
	runtime.GC()
	counts := []metrics.Sample{{Name: "/gc/finalizers/queued:finalizers"}, {Name: "/gc/finalizers/executed:finalizers"}}
	metrics.Read(counts)
	queued := counts[0].Value.Uint64()
	for start := time.Now(); counts[1].Value.Uint64() < queued && time.Since(start) < patience; {
		time.Sleep(20 * time.Microsecond)
		metrics.Read(counts[1:])
	}
}
