package gotorch

/*
#include <cgotorch.h>
#include <allocator.h>
*/
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// When the collector is started.
//
// The footprint is what tensors take: the native bytes that are alive, which the allocator counts,
// and some hundred for each handle (its TensorImpl, StorageImpl and the like). A collection starts
// when the footprint has grown by a bound over the least that it was since the last one.
//
// Collections cost time; dead tensors that wait for one cost memory, and push living ones out of the
// processor's caches. The bound is where tensors of 1 MB are made fastest: they take longer with twice
// as much, for the caches' sake, and with half, for the collections'; for tiny ones it makes little
// difference. A program with more memory than that collects when the tensors' memory has doubled, or
// sooner where collections take less than a twenty-fourth of the time.
const (
	handleBytes = 400
	leastBound  = 32 << 20
	timeShare   = 24
	// The goroutine that found the memory grown waits for collections that are shorter than this.
	// Others it leaves to run beside it.
	patience = 2 * time.Millisecond
)

var pressure = (*C.struct_cgotorch_pressure)(C.cgotorch_pressure())

var growth = struct {
	words atomic.Int64 // that wait for the collector, with or without a live handle
	base  atomic.Int64 // the least footprint since the last collection
	limit atomic.Int64 // the footprint at which the next one starts
	bound atomic.Int64 // the difference of the two

	running atomic.Bool
	sync.Mutex
	last  time.Time     // the end of the last collection
	usual time.Duration // what collections take when nothing else disturbs them
}{}

func init() {
	growth.bound.Store(leastBound)
	rebase(0)
}

func footprint(words int64) int64 {
	return atomic.LoadInt64((*int64)(unsafe.Pointer(&pressure.live))) + handleBytes*words
}

// wordsMade counts new words, and starts a collection if memory has grown enough.
func wordsMade(n int64) {
	now := footprint(growth.words.Add(n))
	switch {
	case now >= growth.limit.Load():
		collectSoon(now)
	case now < growth.base.Load():
		rebase(now)
	}
	watchThreads()
}

func wordsFreed(n int64) { growth.words.Add(-n) }

func rebase(now int64) {
	growth.base.Store(now)
	growth.limit.Store(now + growth.bound.Load())
}

//go:noinline
func collectSoon(now int64) {
	if !growth.running.CompareAndSwap(false, true) {
		// Another goroutine saw to it. Wait if memory grows faster than it is collected.
		if now >= growth.limit.Load()+growth.bound.Load() {
			growth.Lock()
			//lint:ignore SA2001 the wait is the point
			growth.Unlock()
		}
		return
	}
	growth.Lock()
	if growth.usual < patience {
		collect()
	} else {
		go collect()
	}
}

// collect runs a collection. growth is locked, and running is set.
func collect() {
	start := time.Now()
	// The goroutine stays on its thread: a parallel op has a team of threads for each that it has been
	// called on, and the more there are, the sooner OpenMP puts them all to sleep between two ops.
	runtime.LockOSThread()
	runtime.GC()
	runtime.UnlockOSThread()
	took := time.Since(start)
	if growth.usual == 0 {
		growth.usual = took
	} else {
		growth.usual = min(took, growth.usual*21/20)
	}

	// Towards the bound that would have made this collection a timeShare-th of the time, but not at
	// once: a single one says little.
	wanted := timeShare * float64(growth.usual) / float64(max(1, start.Sub(growth.last)))
	bound := float64(growth.bound.Load()) * min(2, max(0.5, wanted))
	bound = max(min(bound, float64(growth.base.Load())), leastBound)
	growth.bound.Store(int64(bound))

	growth.last = time.Now()
	rebase(footprint(growth.words.Load()))
	growth.running.Store(false)
	growth.Unlock()
	runtime.Gosched() // to the finalisers
}
