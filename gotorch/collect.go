package gotorch

/*
#include <cgotorch.h>
#include <allocator.h>
*/
import "C"

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// When the collector is started.
//
// The footprint is what tensors take: the native bytes that are alive, which the allocator counts,
// and some hundred for each handle (its TensorImpl, StorageImpl and the like). A collection starts
// when the footprint has grown by a bound over the least that it was since the last one. The bound
// follows that least: collecting more often than memory grows by its own size would only burn time.

const (
	handleBytes = 400
	minGrowth   = 64 << 20
)

var pressure = (*C.struct_cgotorch_pressure)(C.cgotorch_pressure())

var growth struct {
	handles atomic.Int64 // words with a finaliser, whether or not a live handle is in them
	base    atomic.Int64 // the least footprint since the last collection
	limit   atomic.Int64 // the footprint at which the next one starts
	running atomic.Bool
}

func init() {
	growth.limit.Store(minGrowth)
}

func footprint() int64 {
	return atomic.LoadInt64((*int64)(unsafe.Pointer(&pressure.live))) + handleBytes*growth.handles.Load()
}

// collectIfGrown counts n new words, and starts a collection if memory has grown enough.
func collectIfGrown(n int64) {
	handles := growth.handles.Add(n)
	now := atomic.LoadInt64((*int64)(unsafe.Pointer(&pressure.live))) + handleBytes*handles
	if now < growth.limit.Load() {
		if now < growth.base.Load() {
			rebase(now)
		}
		return
	}
	watchThreads()
	if growth.running.CompareAndSwap(false, true) {
		go collect()
	}
}

func rebase(now int64) {
	growth.base.Store(now)
	growth.limit.Store(now + max(minGrowth, now))
}

func collect() {
	runtime.GC()
	// The finalisers run in a goroutine of their own, and their dead are freed a few at a time.
	time.Sleep(100 * time.Microsecond)
	drainAll()
	rebase(footprint())
	growth.running.Store(false)
}

func slabsDied(n int64) { growth.handles.Add(-n * slabSize) }
