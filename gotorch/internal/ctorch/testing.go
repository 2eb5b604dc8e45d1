package ctorch

import (
	"math"

	"gotorch.dev/gotorch/internal/finalize"
)

// What tests ask, in this package and in gotorch.

// Words returns how many words wait for the collector, with or without a live handle.
func Words() int64 { return growth.made.Load() }

// LiveBytes returns the bytes of tensors that are alive, without freeing what waits.
func LiveBytes() int64 { return liveBytes() }

// Collect returns when everything that is dead by now has been freed. A tensor that dies with
// another is found one collection later.
func Collect() {
	for range 4 {
		finalize.Dead()
		DrainAll()
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
