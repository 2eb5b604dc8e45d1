package ctorch

/*
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
// Two quantities are watched: the native bytes that are alive, which the allocator counts, and the
// words with handles. A collection starts when one of them has grown by its bound over the least that
// it was since the last one.
//
// Collections cost time; dead tensors that wait for one cost memory, and push living ones out of the
// processor's caches. So the bounds are low: tensors of 1 MB take longer with twice as many bytes, for
// the caches' sake, and with half, for the collections'. Words, whose tensors take some hundred bytes
// besides, have the number that tiny ops are fastest with. Where collections would take more than a
// twenty-fourth of the time, because a program has much else on its heap, the bounds rise: to what is
// alive, so that tensors double before they are collected, or to words that do not count beside such a
// program.
const (
	leastBytes = 32 << 20
	leastWords = 80 << 10
	mostWords  = 160 << 10
	timeShare  = 24
	// The goroutine that found the memory grown waits for collections that are shorter than this.
	// Others it leaves to run beside it.
	patience = 2 * time.Millisecond
)

// pressureCounts is struct cgotorch_pressure.
type pressureCounts struct{ allocated, live int64 }

var pressure = (*pressureCounts)(unsafe.Pointer(C.cgotorch_pressure()))

// watched is a quantity that starts collections.
type watched struct {
	base  atomic.Int64 // the least that it was since the last collection
	limit atomic.Int64 // where the next one starts
	bound atomic.Int64 // the difference of the two
}

func (w *watched) rebase(now int64) {
	w.base.Store(now)
	w.limit.Store(now + w.bound.Load())
}

// adapt multiplies the bound within what is allowed.
func (w *watched) adapt(factor float64, least, most int64) {
	bound := int64(float64(w.bound.Load()) * factor)
	w.bound.Store(max(min(bound, most), least))
}

var growth = struct {
	made         atomic.Int64 // words that wait for the collector, with or without a live handle
	bytes, words watched

	running atomic.Bool
	sync.Mutex
	last  time.Time     // the end of the last collection
	usual time.Duration // what collections take when nothing else disturbs them
}{}

func init() {
	growth.bytes.bound.Store(leastBytes)
	growth.words.bound.Store(leastWords)
	growth.bytes.rebase(0)
	growth.words.rebase(0)
}

func liveBytes() int64 { return atomic.LoadInt64(&pressure.live) }

// wordsMade counts new words, and starts a collection if memory has grown enough.
func wordsMade(n int64) {
	words, bytes := growth.made.Add(n), liveBytes()
	if words >= growth.words.limit.Load() || bytes >= growth.bytes.limit.Load() {
		collectSoon(words, bytes)
	} else {
		if words < growth.words.base.Load() {
			growth.words.rebase(words)
		}
		if bytes < growth.bytes.base.Load() {
			growth.bytes.rebase(bytes)
		}
	}
	watchThreads()
}

func wordsFreed(n int64) { growth.made.Add(-n) }

//go:noinline
func collectSoon(words, bytes int64) {
	if !growth.running.CompareAndSwap(false, true) {
		// Another goroutine saw to it. Wait if memory grows faster than it is collected.
		if words >= growth.words.limit.Load()+growth.words.bound.Load() ||
			bytes >= growth.bytes.limit.Load()+growth.bytes.bound.Load() {
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

	// Towards the bounds that would have made this collection a timeShare-th of the time, but not at
	// once: a single one says little.
	factor := timeShare * float64(growth.usual) / float64(max(1, start.Sub(growth.last)))
	factor = min(2, max(0.5, factor))
	growth.bytes.adapt(factor, leastBytes, growth.bytes.base.Load())
	growth.words.adapt(factor, leastWords, max(mostWords, growth.words.base.Load()))

	growth.last = time.Now()
	growth.bytes.rebase(liveBytes())
	growth.words.rebase(growth.made.Load())
	growth.running.Store(false)
	growth.Unlock()
	runtime.Gosched() // to the finalisers
}
