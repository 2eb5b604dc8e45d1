// Package pyload is the Go half of Python's pytorch_bridge.load_go, which makes the functions of a Go
// package callable from Python. The program that load_go generates around a package has a copy of
// it, because that program is not part of this module.
//
// A call brings its arguments in one piece of memory and takes its results home in another, see
// [Args] and [Results]. It runs on the thread that called, so that it sees the grad mode, autocast
// and so on of the Python code around it; that thread has released Python's lock.
package pyload

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"gotorch.dev/gotorch"
)

// Function reads its arguments, calls a function of the loaded package and writes the results.
type Function func(args *Args, results *Results)

// What a reply starts with.
const (
	replyResults = iota
	replyPanic   // the kind of the error, its text, the op, the stack
	replyError   // the error's text, its Go type, and the kind and text of the gotorch.Error in it
)

// Call runs a function. request points to n bytes of arguments. The handles in the reply are those of
// tensors: each needs a further reference before tensors are dropped.
func Call(function Function, request unsafe.Pointer, n int) (reply []byte, tensors []gotorch.Tensor) {
	results := run(function, unsafe.Slice((*byte)(request), n))
	collectLater()
	return results.reply, results.tensors
}

func run(function Function, request []byte) (results *Results) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(exited); !ok {
				panic(v)
			}
			results = &Results{reply: []byte{replyPanic}}
			results.PutString(string(gotorch.RuntimeError))
			results.PutString("the function ended its goroutine, by runtime.Goexit or what calls it, as t.Fatal does")
			results.PutString("")
			results.PutString("")
		}
	}()
	// The function may end the goroutine that it runs in, and this one has Python's stack below it. So it
	// gets a coroutine, which runs on the same thread. A panic is handed on from there, but not that it
	// ends.
	next, _ := iter.Pull(func(func(struct{}) bool) {
		defer func() {
			if !returned {
				panic(exited{})
			}
		}()
		results = call(function, request)
		returned = true
	})
	next()
	return results
}

type exited struct{}

func call(function Function, request []byte) (results *Results) {
	results = &Results{reply: []byte{replyResults}}
	defer func() {
		if v := recover(); v != nil {
			results = panicked(v)
		}
	}()
	args := Args{rest: request}
	function(&args, results)
	if results.err != nil {
		return failed(results.err)
	}
	return results
}

func panicked(v any) *Results {
	r := &Results{reply: []byte{replyPanic}}
	kind, msg, op := gotorch.RuntimeError, "", ""
	var e *gotorch.Error
	err, isError := v.(error)
	if isError && errors.As(err, &e) {
		kind, msg, op = e.Kind, e.Msg, e.Op
	} else {
		msg = text(v)
	}
	r.PutString(string(kind))
	r.PutString(msg)
	r.PutString(op)
	r.PutString(stack())
	return r
}

// text is what a panic's value says. An Error method that panics itself must not end the program.
func text(v any) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("panic with a %T", v)
		}
	}()
	if err, ok := v.(error); ok {
		return err.Error()
	}
	return fmt.Sprint(v)
}

// stack is the stack of the goroutine from where it panicked up to here.
func stack() string {
	all := string(debug.Stack())
	if _, below, found := strings.Cut(all, "panic("); found {
		_, all, _ = strings.Cut(below, "\n")
		_, all, _ = strings.Cut(all, "\n") // where panic is
	}
	above, _, _ := strings.Cut(all, "/pyload.call(")
	return above[:strings.LastIndex(above, "\n")+1]
}

func failed(err error) *Results {
	r := &Results{reply: []byte{replyError}}
	r.PutString(text(err))
	r.PutString(fmt.Sprintf("%T", err))
	kind, msg := "", ""
	var e *gotorch.Error
	if errors.As(err, &e) {
		kind, msg = string(e.Kind), e.Msg
	}
	r.PutString(kind)
	r.PutString(msg)
	return r
}

// adopt makes a Tensor of a handle, which is the collector's from now on.
func adopt(h uintptr) gotorch.Tensor {
	if h == 0 {
		return gotorch.Tensor{}
	}
	p := new(unsafe.Pointer)
	*(*uintptr)(unsafe.Pointer(p)) = h // not a Go pointer: the collector need not be told
	gotorch.SetTensorFinalizer(p)
	return gotorch.Tensor{T: p}
}

// Python counts references, and whoever drops a tensor there expects its memory back. Go finds out
// when it collects, which it would never do while nobody calls it. So it does once the calls have
// paused.
const pause = 50 * time.Millisecond

var calls struct {
	count atomic.Uint64
	armed atomic.Bool
	seen  atomic.Uint64
}

func collectLater() {
	calls.count.Add(1)
	if calls.armed.CompareAndSwap(false, true) {
		time.AfterFunc(pause, collectInPause)
	}
}

func collectInPause() {
	if n := calls.count.Load(); calls.seen.Swap(n) != n {
		time.AfterFunc(pause, collectInPause)
		return
	}
	calls.armed.Store(false)
	Collect()
}

var collecting sync.Mutex

// finalized returns when the finalisers that wait have run, or take too long: finalize.Dead says more,
// which the copy of this package cannot import.
func finalized() {
	counts := []metrics.Sample{{Name: "/gc/finalizers/queued:finalizers"}, {Name: "/gc/finalizers/executed:finalizers"}}
	metrics.Read(counts)
	queued := counts[0].Value.Uint64()
	for start := time.Now(); counts[1].Value.Uint64() < queued && time.Since(start) < time.Second; {
		time.Sleep(20 * time.Microsecond)
		metrics.Read(counts[1:])
	}
}

// Collect frees every tensor that the program has dropped.
func Collect() {
	collecting.Lock()
	defer collecting.Unlock()
	// What one object kept alive is found one collection later.
	for range 2 {
		runtime.GC()
		finalized()
		gotorch.ReleaseCachedMemory()
	}
}
