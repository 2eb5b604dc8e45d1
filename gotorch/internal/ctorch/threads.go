package ctorch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

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

var osThreads = Threads()

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
	if InCallback() {
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
	ShareThreads(int64(n))
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

// [Thread] is what the C library keeps for Go about an OS thread. To be looked at on that thread, by
// a goroutine that is locked to it.

// What a thread is inside of, the innermost of them.
const (
	notInBack   = iota // nothing that may call back
	inBack             // such a call
	inBackCount        // such a call, which holds places
)

// EnterBack comes before a call that may call back into Go, and [LeaveBack] after it; it locks the goroutine to its thread.
func EnterBack() (state Back) {
	if attention.Load()&attentionSaving != 0 {
		PackSaved()
	}
	within := int64(inBack)
	if attention.Load()&attentionBounded != 0 {
		takePlace(&backs)
		takePlace(&inC)
		noteSharer()
		within = inBackCount
	}
	runtime.LockOSThread()
	state.thread = ThisThread()
	state.outer, state.thread.Within = state.thread.Within, within
	state.warnings = GatherWarnings()
	state.profiled = enterProfiled()
	return state
}

// Back is such a call.
type Back struct {
	thread   *Thread
	outer    int64
	warnings Warnings
	profiled profiledCall
}

// LeaveBack returns what the call has warned of. It needs no defer: nothing that C calls ends but by returning, see [AsCallback].
func LeaveBack(state Back) Warnings {
	state.profiled.leave()
	warnings := state.warnings.Gathered()
	if state.thread.Within == inBackCount {
		givePlaces()
	}
	state.thread.Within = state.outer
	runtime.UnlockOSThread()
	return warnings
}

func givePlaces() {
	inC.give()
	backs.give()
}

// AsCallback is around the Go code of a function that C calls.
func AsCallback(fn func() Message) Message {
	thread := ThisThread()
	within := thread.Within
	// Meanwhile the places go to others: those of the call around it or, on a thread that has come from
	// C, those of a call that waits elsewhere.
	gives := within == inBackCount || within == notInBack && attention.Load()&attentionBounded != 0
	thread.Within = notInBack
	thread.Callbacks++
	thread.Locks++
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
	thread.Locks--
	thread.Callbacks--
	thread.Within = within
	return err
}
