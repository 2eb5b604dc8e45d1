package gotorch

import (
	"math"
	"slices"

	"gotorch.dev/gotorch/internal/finalize"
)

// Lent returns how many Go values libtorch holds: memory of FromBlob, hooks, functions.
func Lent() int {
	drainTokens()
	lent.mutex.Lock()
	defer lent.mutex.Unlock()
	return len(lent.pins)
}

// Words returns how many words wait for the collector, with or without a live handle.
func Words() int64 { return growth.made.Load() }

// LiveBytes returns the bytes of tensors that are alive, without freeing what waits.
func LiveBytes() int64 { return liveBytes() }

// Owned returns how many handles live that are not tensors'.
func Owned() int64 { return owned.Load() }

// Causes returns how many panics of callbacks wait for the call that they end.
func Causes() int {
	panics.mutex.Lock()
	defer panics.mutex.Unlock()
	return len(panics.values)
}

// Collect returns when everything that is dead by now has been freed. A tensor that dies with
// another is found one collection later.
func Collect() {
	for range 4 {
		finalize.Dead()
		drainAll()
	}
}

// BoundCalls makes so many calls at a time be let in from now on, as in a program with many OS
// threads. What it returns ends that.
func BoundCalls(n int) (end func()) {
	was, backsWas, inCWas := attention.Load()&attentionBounded, backs.limit, inC.limit
	boundCalls(int64(n))
	limit := func(ofBacks, ofAll int64) {
		sharing.mutex.Lock() // the timer looks at them
		defer sharing.mutex.Unlock()
		backs.limit, inC.limit = ofBacks, ofAll
	}
	limit(int64(n), int64(n)+1)
	return func() {
		limit(backsWas, inCWas)
		if was == 0 {
			attention.And(^uint32(attentionBounded))
		}
	}
}

// CallsNow returns how many calls are counted as running or waiting.
func CallsNow() int64 { return inC.now.Load() + backs.now.Load() }

// InScope reports whether the calling thread is inside of a scope.
func InScope() bool { return currentScope() != nil }

// LockedNow returns how many goroutines are inside of a mode or a scope, or wait for that.
func LockedNow() int64 { return locked.now.Load() }

// LockedLimit returns how many may be at a time.
func LockedLimit() int { return int(locked.limit) }

// Tidying reports whether too many threads, or places that have given way, are seen to.
func Tidying() bool { return tidying.armed.Load() }

// SetMostLocked sets how many may be when the bound has given way, and how long others wait then.
func SetMostLocked(most, patient int) {
	mostLocked = func() int64 { return int64(most) }
	locked.patient = patient
}

// RunsAgain reports whether an op is run once more when memory is out, by PyTorch's name.
func RunsAgain(name string) bool {
	return !opID(slices.Index(opNames[:], name)).writes()
}

// WithoutCollections runs fn while no growth of memory starts a collection.
func WithoutCollections(fn func()) {
	growth.bytes.limit.Store(math.MaxInt64)
	growth.words.limit.Store(math.MaxInt64)
	defer func() {
		growth.bytes.rebase(liveBytes())
		growth.words.rebase(growth.made.Load())
	}()
	fn()
}

// NotHeld is the error where C gives no second handle to t's tensor.
func NotHeld(t Tensor) *Error { return t.notHeld("", "self") }

// PretendPython makes this process count memory as inside of Python, where it returns how many words are counted. It
// cannot be undone.
func PretendPython() (counted func() int) {
	inPython = true
	startInPython()
	return func() int {
		held.mutex.Lock()
		defer held.mutex.Unlock()
		return len(held.words) + len(held.storages)
	}
}

// ThreadsOf and LimitThreads are threadsOf and setThreadsLimit.
var (
	ThreadsOf    = threadsOf
	LimitThreads = setThreadsLimit
)
