package gotorch

/*
#include <cgotorch.h>
#include <os_thread.h>
#cgo noescape cgotorch_this_thread
#cgo nocallback cgotorch_this_thread
#cgo noescape cgotorch_in_callback
#cgo nocallback cgotorch_in_callback
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
// may use all processors, or as many as the quota of the container allows (cgroup v1 and v2) where that is
// fewer and OMP_NUM_THREADS is not set, and goroutines that compute at the same time divide them. It panics with a
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
// Nobody may wait here for one who waits for him.
//   - A call that may call Go gives its places up while Go code runs for it, and so does one that is
//     asleep in C because its Go code runs on another thread, as under a GPU's backward pass. Go code
//     that C has called never waits: who called it may be holding a lock.
//   - Calls of this kind leave one place to the others, which call nothing back and so always come
//     back. Among themselves they may be asleep until a hook is through that waits for one of them.
//     That is rare, and then the bound gives way.
//
// Counting costs two locked instructions per call, which tiny ops would feel. But it takes long calls
// to make OS threads: until there are more than short calls can make, nobody counts.

var (
	inC   = places{patience: time.Second, more: someMore} // all that are in C
	backs = places{patience: time.Second, more: someMore} // those that may call back into Go
)

// someMore lets some more in where nothing comes back. What is in C does not always come back by itself either: a backward
// pass of several ranks waits there for the others, which may be goroutines of this process, as may be what an op of
// somebody's own waits for.
func someMore(now int64) int64 { return 1 + now/4 }

// By how many the processors are divided. It rises at once and falls when a while has passed in which
// they were fewer.
var sharing struct {
	mutex sync.Mutex
	among atomic.Int64
	peak  atomic.Int64 // the most that were in C since the timer ran
	timer *time.Timer
}

const shareAge = 20 * time.Millisecond

var osThreads = (*int64)(unsafe.Pointer(C.cgotorch_threads()))

// watchThreads starts the counting once long calls have made OS threads, and ends threads when there
// are too many.
func watchThreads() {
	if n := atomic.LoadInt64(osThreads); n > threadsToBound {
		if attention.Load()&attentionBounded == 0 {
			boundCalls(int64(runtime.GOMAXPROCS(0)))
		}
		if n > threadsToKeep() && !tidying.armed.Load() {
			tidySoon()
		}
	}
}

var threadsToBound = int64(2*runtime.GOMAXPROCS(0) + 4)

var setBound sync.Once

func boundCalls(limit int64) {
	setBound.Do(func() { backs.limit, inC.limit = limit, limit+1 })
	attention.Or(attentionBounded)
}

// enterC waits for a place among those that are in C, and reports whether the caller must give it
// back with leaveC.
func enterC() bool {
	if attention.Load()&attentionBounded == 0 {
		return false
	}
	takePlace(&inC)
	noteSharer()
	return true
}

func leaveC(counted bool) {
	if counted {
		inC.give()
	}
}

// takePlace waits for a place, except in Go code that C has called.
func takePlace(p *places) {
	if p.tryTake() {
		return
	}
	if C.cgotorch_in_callback() {
		p.takeOver()
	} else {
		p.wait()
	}
}

func noteSharer() {
	if n := min(inC.now.Load(), backs.limit); n > sharing.peak.Load() {
		sharing.peak.Store(n)
		if n > sharing.among.Load() {
			sharing.mutex.Lock()
			defer sharing.mutex.Unlock()
			share(n)
		}
	}
}

// share is called with the mutex locked.
func share(n int64) {
	sharing.among.Store(n)
	C.cgotorch_share_threads(C.int64_t(n))
	if n > 1 {
		if sharing.timer == nil {
			sharing.timer = time.AfterFunc(shareAge, shareLess)
		} else {
			sharing.timer.Reset(shareAge)
		}
	}
}

func shareLess() {
	sharing.mutex.Lock()
	defer sharing.mutex.Unlock()
	peak := max(1, sharing.peak.Swap(min(inC.now.Load(), backs.limit)))
	share(peak)
}

// osThread is what the C library keeps for Go about an OS thread. To be looked at on that thread, by
// a goroutine that is locked to it.
type osThread = C.struct_cgotorch_thread

// What a thread is inside of, the innermost of them.
const (
	notInBack   = iota // nothing that may call back
	inBack             // such a call
	inBackCount        // such a call, which holds places
)

// enterBack is enterC for a call that may call back into Go; it locks the goroutine to its thread.
func enterBack() (state backState) {
	if attention.Load()&attentionSaving != 0 {
		packSaved()
	}
	within := C.int64_t(inBack)
	if attention.Load()&attentionBounded != 0 {
		takePlace(&backs)
		takePlace(&inC)
		noteSharer()
		within = inBackCount
	}
	runtime.LockOSThread()
	state.thread = C.cgotorch_this_thread()
	state.outer, state.thread.within = state.thread.within, within
	state.warnings = gatherWarnings()
	state.profiled = enterProfiled()
	return state
}

type backState struct {
	thread   *osThread
	outer    C.int64_t
	warnings warningsOf
	profiled profiledCall
}

// leaveBack needs no defer: nothing that C calls ends but by returning, see asCallback.
func leaveBack(state backState) warningsOf {
	state.profiled.leave()
	warnings := state.warnings.gathered()
	if state.thread.within == inBackCount {
		givePlaces()
	}
	state.thread.within = state.outer
	runtime.UnlockOSThread()
	return warnings
}

func givePlaces() {
	inC.give()
	backs.give()
}

// asCallback is around the Go code of a function that C calls.
func asCallback(fn func() *C.char) *C.char {
	thread := C.cgotorch_this_thread()
	within := thread.within
	// Meanwhile the places go to others: those of the call around it or, on a thread that has come from
	// C, those of a call that waits elsewhere.
	gives := within == inBackCount || within == notInBack && attention.Load()&attentionBounded != 0
	thread.within = notInBack
	thread.callbacks++
	thread.locks++
	if gives {
		givePlaces()
	}
	resume := putWarningsAside()
	err := fn()
	resume()
	if gives {
		backs.takeNow()
		inC.takeNow()
	}
	thread.locks--
	thread.callbacks--
	thread.within = within
	return err
}
