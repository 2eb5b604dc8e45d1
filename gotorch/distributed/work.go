package distributed

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// Work is a collective that has begun. Its tensors are kept until it has ended, also where nobody waits.
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.Work
type Work struct {
	op       string
	group    *Group
	from     int // the rank from which it receives
	receives bool

	before *Work        // of one that Then has made
	then   func() error // which runs after before

	once  sync.Once
	ended chan struct{}
	err   error

	mutex   sync.Mutex // of handle, which is nil when it has ended
	handle  ctorch.DistWork
	source  int
	cleanup runtime.Cleanup
}

func newWork(op string, g *Group, handle ctorch.DistWork) *Work {
	w := &Work{op: op, group: g, handle: handle, ended: make(chan struct{}), from: -1}
	w.cleanup = runtime.AddCleanup(w, func(h ctorch.DistWork) { ctorch.DistWorkFree(h) }, handle)
	return w
}

// end waits until it has ended.
func (w *Work) end() {
	w.once.Do(func() {
		if w.before != nil {
			w.endThen()
			return
		}
		w.err = c10dWaitWork(w.op, w.handle, 0)
		w.mutex.Lock()
		defer w.mutex.Unlock()
		if w.source = w.from; w.err == nil && w.receives && w.from == AnyRank {
			w.source, w.err = c10dWorkSource(w.handle)
		}
		w.cleanup.Stop()
		ctorch.DistWorkFree(w.handle)
		w.handle = nil
		close(w.ended)
	})
}

// endThen ends what Then has made. A panic goes on, and is the error for others that wait.
func (w *Work) endThen() {
	defer close(w.ended)
	w.err = args.Errorf(w.op, gotorch.RuntimeError, "what Then was given has ended its goroutine")
	defer func() {
		if v := recover(); v != nil {
			w.err = &gotorch.CallbackPanic{Value: v, Stack: debug.Stack()}
			panic(v)
		}
	}()
	if w.before.end(); w.before.err != nil {
		w.err = w.before.err
		return
	}
	w.source = w.before.source
	w.err = w.then()
}

// Then returns a Work that ends when w has ended well and fn has returned after it, with fn's error, or else w's. fn runs once,
// in the first [Work.Wait] of what Then returns; where nobody waits, it does not run. It may begin other collectives, and
// wait for them.
//
// Python's: https://docs.pytorch.org/docs/stable/futures.html#torch.futures.Future.then
func (w *Work) Then(fn func() error) *Work {
	if fn == nil {
		panic(args.TypeError("Work.Then", "the function is nil"))
	}
	return &Work{op: w.op, group: w.group, before: w, then: fn, ended: make(chan struct{}), source: -1}
}

// Wait waits until it has ended, and returns its error: nil, ctx's where that ends before, else an *gotorch.Error.
// Where ctx ends, a send or receive ends too; another collective goes on, and its tensors stay in use until it has
// ended or its time limit has passed.
func (w *Work) Wait(ctx context.Context) error {
	if ctx.Done() == nil {
		w.end()
		return w.err
	}
	go func() {
		defer func() { _ = recover() }() // it is w's error
		w.end()
	}()
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		w.abort()
		return ctx.Err()
	}
}

func (w *Work) abort() {
	if w.before != nil {
		w.before.abort()
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.handle != nil {
		_ = c10dAbortWork(w.handle) // only what sends or receives can be
	}
}

// Done reports whether it has ended. A send or receive ends in [Work.Wait] alone, and so does what [Work.Then] returns.
func (w *Work) Done() bool {
	if w.before != nil {
		select {
		case <-w.ended:
			return true
		default:
			return false
		}
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.handle == nil {
		return true
	}
	done, err := c10dWorkDone(w.handle)
	return done || err != nil
}

// Source returns the rank that sent what [Group.RecvAsync] has received; -1 for other collectives. It must have ended.
func (w *Work) Source() int {
	select {
	case <-w.ended:
		return w.source
	default:
		panic(args.ValueError("Work.Source", "it has not ended: call Wait before"))
	}
}

// must waits, and panics with the error.
func (w *Work) must() *Work {
	w.end()
	if w.err != nil {
		panic(w.err)
	}
	return w
}
