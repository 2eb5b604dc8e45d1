package gotorch

import "runtime"

// Lent returns how many Go values libtorch holds: memory of FromBlob, hooks, functions.
func Lent() int {
	drainTokens()
	lent.mutex.Lock()
	defer lent.mutex.Unlock()
	return len(lent.pins)
}

// Words returns how many words wait for the collector, with or without a live handle.
func Words() int64 { return growth.made.Load() }

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
		// Finalisers run one after the other: this one after those of the collections before.
		ran := make(chan bool)
		runtime.SetFinalizer(new([64]byte), func(*[64]byte) { close(ran) })
		runtime.GC()
		<-ran
		drainAll()
	}
}

// BoundCalls makes calls be counted from now on, as in a program with many OS threads. What it
// returns ends that.
func BoundCalls() (end func()) {
	was := attention.Load() & attentionBounded
	if was == 0 {
		boundCalls()
	}
	return func() {
		if was == 0 {
			attention.And(^uint32(attentionBounded))
		}
	}
}

// CallsNow returns how many calls are counted as running or waiting.
func CallsNow() int64 { return inC.now.Load() }
