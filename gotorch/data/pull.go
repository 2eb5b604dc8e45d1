package data

import (
	"iter"
	"runtime"
	"runtime/debug"

	"gotorch.dev/gotorch"
)

// Pull2 is iter.Pull2 for programs that use a [gotorch.Scope], NoGrad or another function that keeps a goroutine on its
// OS thread: next and stop may be called in other ones than Pull2 was.
//
// Go's own iter.Pull2 switches between coroutines, and Go ends the program ("OS thread locking must match locking at
// coroutine creation") where next, stop or the sequence's yield is called with more or fewer such functions around it than
// iter.Pull2 was. Here the sequence runs in a goroutine of its own instead, which takes a few times as long to switch to
// (some hundred nanoseconds), and tensors that it makes belong to none of the caller's scopes.
//
// next returns the next pair of values, and false after the last one. stop ends the sequence and waits for it; it must be
// called unless next has returned false, and may be called more than once. A panic in the sequence comes out of the call
// of next or stop, and so does the end of its goroutine. next and stop must not be called at the same time. Pull2 panics
// with a TypeError if there is no sequence.
func Pull2[K, V any](seq iter.Seq2[K, V]) (next func() (K, V, bool), stop func()) {
	if seq == nil {
		panic(&gotorch.Error{Op: "data.Pull2", Kind: gotorch.TypeError, Msg: "the sequence is nil"})
	}
	p := &pulled[K, V]{seq: seq}
	return p.next, p.stop
}

// pulled is a sequence in a goroutine of its own.
type pulled[K, V any] struct {
	seq     iter.Seq2[K, V]
	ask     chan struct{}
	got     chan step[K, V]
	done    bool
	cleanup runtime.Cleanup
}

// step is what a sequence gives when it is asked: a pair, or its end.
type step[K, V any] struct {
	key    K
	value  V
	end    bool
	failed *PanicError
	exited bool // its goroutine was ended, by runtime.Goexit
}

func (p *pulled[K, V]) next() (key K, value V, ok bool) {
	if p.done {
		return key, value, false
	}
	if p.ask == nil {
		p.ask, p.got = make(chan struct{}), make(chan step[K, V], 1)
		go run(p.seq, p.ask, p.got)
		// Where stop is not called, the goroutine ends when nobody can call next any more.
		p.cleanup = runtime.AddCleanup(p, func(ask chan struct{}) { close(ask) }, p.ask)
	}
	p.ask <- struct{}{}
	s := <-p.got
	if s.end {
		p.done = true
		p.cleanup.Stop()
		close(p.ask)
		s.carryOn()
	}
	return s.key, s.value, !s.end
}

func (p *pulled[K, V]) stop() {
	if p.done || p.ask == nil {
		p.done = true
		return
	}
	p.done = true
	p.cleanup.Stop()
	close(p.ask)
	s := <-p.got
	s.carryOn()
}

// carryOn does to this goroutine what happened to the sequence's.
func (s *step[K, V]) carryOn() {
	switch {
	case s.failed != nil:
		panic(s.failed.Value)
	case s.exited:
		runtime.Goexit()
	}
}

// run goes through a sequence, one step each time that it is asked. It must not refer to the pulled, whose end it would
// put off for ever.
func run[K, V any](seq iter.Seq2[K, V], ask <-chan struct{}, got chan<- step[K, V]) {
	last := step[K, V]{end: true, exited: true}
	defer func() {
		if v := recover(); v != nil {
			last.exited, last.failed = false, &PanicError{v, debug.Stack()}
		}
		got <- last
	}()
	if _, more := <-ask; more {
		seq(func(key K, value V) bool {
			got <- step[K, V]{key: key, value: value}
			_, more := <-ask
			return more
		})
	}
	last.exited = false
}
