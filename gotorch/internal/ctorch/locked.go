package ctorch

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Goroutines that have an OS thread to themselves.
//
// Modes and scopes are the state of an OS thread, so a goroutine that is inside of one has the thread
// to itself, also while it waits for something. Go ends a program that has 10,000 threads, and does
// not end one that is idle. So only some goroutines may be inside at a time, and others wait for their
// turn without a thread. Those inside may need one of the others, or all wait for a slow network: then
// the bound gives way, but not up to where Go ends the program. Threads that are too many end when they
// are idle.

var locked = places{
	limit:    int64(max(64, 8*runtime.GOMAXPROCS(0))),
	patience: 100 * time.Millisecond,
	more:     func(now int64) int64 { return max(0, min(1+now/2, mostLocked()-now)) },
	patient:  100,
}

// mostLocked leaves Go threads for other things. Tests replace it.
var mostLocked = func() int64 {
	asking.Lock() // lest one takes for the setting what another has set
	defer asking.Unlock()
	most := debug.SetMaxThreads(math.MaxInt32)
	debug.SetMaxThreads(most)
	return int64(most) / 5 * 4
}

var asking sync.Mutex

// LockThread is runtime.LockOSThread for modes and scopes. It fails where no thread can be had.
func LockThread() (*Thread, Message) {
	runtime.LockOSThread()
	thread := ThisThread()
	// Who is inside already has its place, and so has Go code that C calls.
	if thread.Locks == 0 && !locked.tryTake() {
		runtime.UnlockOSThread()
		if !locked.wait() {
			return nil, NewMessage("RuntimeError", fmt.Sprintf("%d goroutines are inside of Scope, NoGrad and the like, "+
				"where each needs an OS thread, and for %v none has left: wait outside of them for what takes long",
				mostLocked(), time.Duration(locked.patient)*locked.patience))
		}
		runtime.LockOSThread()
		thread = ThisThread()
	}
	thread.Locks++
	watchThreads()
	return thread, nil
}

// UnlockThread undoes [LockThread].
func UnlockThread(thread *Thread) {
	thread.Locks--
	if thread.Locks == 0 {
		locked.give()
	}
	runtime.UnlockOSThread()
}

// Too many threads -------------------------------------------------------------------------------------

var tidying struct {
	armed atomic.Bool

	mutex sync.Mutex
	timer *time.Timer
	ended int64 // how many threads were told to end when it ran last
	of    int64 // of how many
	stuck int64 // how many too many there are that are not idle: the program locks them, or C made them
}

const tidyAge = time.Second

func threadsToKeep() int64 { return threadsToBound + locked.limit }

// tidySoon sees to what there is too much of, until there is not.
func tidySoon() {
	if !tidying.armed.CompareAndSwap(false, true) {
		return
	}
	tidying.mutex.Lock()
	defer tidying.mutex.Unlock()
	if tidying.timer == nil {
		tidying.timer = time.AfterFunc(tidyAge, tidy)
	} else {
		tidying.timer.Reset(tidyAge)
	}
}

func tidy() {
	more := locked.relax()
	again := max(more, backs.relax(), inC.relax()) > 0
	tidying.mutex.Lock()
	defer tidying.mutex.Unlock()
	n := atomic.LoadInt64(osThreads)
	surplus := max(0, n-threadsToKeep()-more)
	tidying.stuck = min(tidying.stuck, surplus)
	if tidying.ended > 0 && tidying.of-n < tidying.ended/2 {
		tidying.stuck = surplus
	}
	tidying.ended, tidying.of = surplus-tidying.stuck, n
	for range tidying.ended {
		endThread()
		again = true
	}
	if again {
		tidying.timer.Reset(tidyAge)
	} else {
		tidying.armed.Store(false)
	}
}

// endThread ends an idle OS thread. Go ends that of a goroutine which ends while it is locked to it, and
// goes on with another, an idle one if there is one.
func endThread() {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(done)
	}()
	<-done
}
