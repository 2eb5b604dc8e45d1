package gotorch

/*
#include <cgotorch.h>
*/
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// NumThreads returns the number of threads that one op may use.
func NumThreads() int { return int(C.GetNumThreads()) }

// SetNumThreads sets the number of threads that one op may use, for all goroutines. Without it an op
// may use all processors, and goroutines that compute at the same time divide them. It panics with a
// RuntimeError if n is not positive.
func SetNumThreads(n int) {
	if err := C.SetNumThreads(C.int64_t(n)); err != nil {
		panicC("SetNumThreads", unsafe.Pointer(err))
	}
}

// NumInteropThreads returns the number of threads for ops that run beside each other in one graph.
func NumInteropThreads() int { return int(C.GetNumInteropThreads()) }

// SetNumInteropThreads sets it. It panics with a RuntimeError once such threads have been started.
func SetNumInteropThreads(n int) {
	if err := C.SetNumInteropThreads(C.int64_t(n)); err != nil {
		panicC("SetNumInteropThreads", unsafe.Pointer(err))
	}
}

// How many goroutines compute at a time.
//
// While an op takes long, Go starts further OS threads for the goroutines that wait for a turn. Each
// would then run its own op with a team of threads of its own: 32 goroutines that multiply large
// matrices have made 70 OS threads and were slower than one of them alone. So at most as many are in
// C at a time as Go runs goroutines at a time, and they divide the processors among their ops.
//
// Counting them costs two locked instructions per call, which tiny ops would feel. But it takes long
// calls to make OS threads: until there are more than short calls can make, nobody counts.

var inC struct {
	limit   int64
	now     atomic.Int64 // in C, or waiting for a place
	mutex   sync.Mutex
	waiting []chan struct{} // first come, first served

	// By how many the processors are divided. It rises at once and falls when a while has passed
	// in which they were fewer.
	sharers atomic.Int64
	peak    atomic.Int64 // the most that were in C since the timer ran
	timer   *time.Timer
}

const shareAge = 20 * time.Millisecond

var osThreads = (*int64)(unsafe.Pointer(C.cgotorch_threads()))

// watchThreads starts the counting once long calls have made OS threads.
func watchThreads() {
	if atomic.LoadInt64(osThreads) > threadsToBound && attention.Load()&attentionBounded == 0 {
		boundCalls()
	}
}

var threadsToBound = int64(2*runtime.GOMAXPROCS(0) + 4)

func boundCalls() {
	inC.mutex.Lock()
	inC.limit = int64(runtime.GOMAXPROCS(0))
	inC.mutex.Unlock()
	attention.Or(attentionBounded)
}

// enterC waits for a place among those that are in C, and reports whether the caller must give it
// back with leaveC.
func enterC() bool {
	if attention.Load()&attentionBounded == 0 {
		return false
	}
	takePlace()
	return true
}

func takePlace() {
	n := inC.now.Add(1)
	if n > inC.limit {
		waitForPlace()
		n = inC.limit
	}
	if n > inC.peak.Load() {
		inC.peak.Store(n)
		if n > inC.sharers.Load() {
			share(n)
		}
	}
}

func share(n int64) {
	inC.mutex.Lock()
	defer inC.mutex.Unlock()
	inC.sharers.Store(n)
	C.cgotorch_share_threads(C.int64_t(n))
	if n > 1 {
		if inC.timer == nil {
			inC.timer = time.AfterFunc(shareAge, shareLess)
		} else {
			inC.timer.Reset(shareAge)
		}
	}
}

func shareLess() {
	peak := max(1, inC.peak.Swap(min(inC.now.Load(), inC.limit)))
	share(peak)
}

func waitForPlace() {
	inC.mutex.Lock()
	place := make(chan struct{})
	inC.waiting = append(inC.waiting, place)
	inC.mutex.Unlock()
	<-place
}

func leaveC(counted bool) {
	if counted && inC.now.Add(-1) >= inC.limit {
		givePlace()
	}
}

func givePlace() {
	// Someone is over the limit: in the queue, or about to be.
	for {
		inC.mutex.Lock()
		if len(inC.waiting) > 0 {
			place := inC.waiting[0]
			inC.waiting = inC.waiting[1:]
			inC.mutex.Unlock()
			close(place)
			return
		}
		inC.mutex.Unlock()
		runtime.Gosched()
	}
}

// enterBack is enterC for a call that may call back into Go; it locks the goroutine to its thread.
func enterBack() (state backState) {
	runtime.LockOSThread()
	state.counted = enterC()
	state.outer = C.cgotorch_swap_word(C.int64_t(boolInt(state.counted)))
	state.warnings = gatherWarnings()
	return state
}

type backState struct {
	counted  bool
	outer    C.int64_t
	warnings warningsOf
}

func leaveBack(state backState) warningsOf {
	warnings := state.warnings.gathered()
	C.cgotorch_swap_word(state.outer)
	leaveC(state.counted)
	runtime.UnlockOSThread()
	return warnings
}

// leaveForGo is called first in a function that C calls: while Go code runs, which may wait for
// other goroutines, the place of the C call around it goes to others. Call what it returns last.
func leaveForGo() (back func()) {
	counted := C.cgotorch_swap_word(0)
	leaveC(counted != 0)
	resume := putWarningsAside()
	return func() {
		resume()
		if counted != 0 {
			takePlace()
			C.cgotorch_swap_word(counted)
		}
	}
}
