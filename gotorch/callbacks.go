package gotorch

import (
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Panics ---------------------------------------------------------------------------------------------

// A panic in a callback becomes an error of the C++ code that called it, and travels on to the Go
// code that called that. An error is a line of text, so what the callback panicked with waits here,
// under a number at the end of that line. A callback that ends its goroutine makes an error too, and
// then so ends the goroutine that called C.
var panics struct {
	mutex  sync.Mutex
	values map[uint64]*CallbackPanic
	last   uint64
}

const panicMark = "\x1f"

// An error may be lost, as in a C program that only prints it. Then its panic value must not stay.
const maxPanics = 1024

// protect runs fn, and returns what it panicked with as the error that C gets; nil if it returned.
//
// fn may also end its goroutine, as t.Fatal does. That cannot be stopped, and C's functions would be
// cut off in the middle: their locks would stay locked. So fn runs in a coroutine: a goroutine of its
// own, on the same OS thread, that may end. It must unlock the thread as often as it locks it.
func protect(what string, fn func()) (err ctorch.Message) {
	run := func(func(struct{}) bool) {
		returned := false
		defer func() {
			if !returned {
				// A panic here is what iter.Pull hands on, and not that the goroutine ends.
				panic(exited{})
			}
		}()
		err = recovered(what, fn)
		returned = true
	}
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(exited); !ok {
				panic(v)
			}
			err = ctorch.NewMessage(string(RuntimeError), what+": "+exitedText+exitedMark)
		}
	}()
	next, _ := iter.Pull(run)
	next()
	return err
}

type exited struct{}

const (
	exitedText = "the goroutine was ended, by runtime.Goexit or what calls it, as t.Fatal does"
	exitedMark = panicMark + "exited"
)

func recovered(what string, fn func()) (err ctorch.Message) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(what, v)
		}
	}()
	fn()
	return nil
}

// panicked makes an error for C of what a callback panicked with.
func panicked(what string, v any) ctorch.Message {
	kind, msg := RuntimeError, ""
	switch v := v.(type) {
	case *Error:
		kind, msg = v.Kind, v.Msg
		if v.Op != "" && !v.namesOp() {
			msg = v.Op + ": " + msg
		}
	default:
		msg = fmt.Sprint(v)
	}
	msg, _, _ = strings.Cut(msg, "\n")

	panics.mutex.Lock()
	if panics.values == nil {
		panics.values = map[uint64]*CallbackPanic{}
	}
	panics.last++
	id := panics.last
	panics.values[id] = &CallbackPanic{Value: v, Stack: debug.Stack()}
	delete(panics.values, id-maxPanics)
	panics.mutex.Unlock()
	return ctorch.NewMessage(string(kind), what+": "+msg+panicMark+strconv.FormatUint(id, 10))
}

// CallbackPanic is what a Go function panicked with that libtorch called. The *Error that comes out
// of the call which ran libtorch wraps it:
//
//	var p *gotorch.CallbackPanic
//	if errors.As(err, &p) { ... p.Value ... }
type CallbackPanic struct {
	Value any
	Stack []byte // of the goroutine, where it panicked
}

func (p *CallbackPanic) Error() string { return fmt.Sprint("panic: ", p.Value) }

// Unwrap returns the value, if it is an error.
func (p *CallbackPanic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// checkBack panics with the error of a C function that may have called Go. It hands on warnings.
func checkBack(op string, err ctorch.Message, warnings ctorch.Warnings) {
	if err != nil || warnings.Some() {
		checkBackSlow(op, err, warnings)
	}
}

//go:noinline
func checkBackSlow(op string, err ctorch.Message, warnings ctorch.Warnings) {
	if err != nil {
		defer warnings.HandOn(true)
		panicC(op, unsafe.Pointer(err))
	}
	warnings.HandOn(false)
}

// marked looks for the mark that protect has made: it returns the message without it, and the cause.
// If the callback ended its goroutine, so does this.
func marked(msg string) (string, error) {
	msg, mark, found := strings.Cut(msg, panicMark)
	if !found {
		return msg, nil
	}
	if panicMark+mark == exitedMark {
		runtime.Goexit()
	}
	id, _ := strconv.ParseUint(mark, 10, 64)
	panics.mutex.Lock()
	value := panics.values[id]
	delete(panics.values, id)
	panics.mutex.Unlock()
	if value == nil {
		return msg, nil
	}
	return msg, value
}

// How C gets at tensors of Go code that it has called: those that come in are borrowed, so Go makes handles of its own; of those
// that go out C becomes an owner.

func borrowed(h ctorch.Tensor) Tensor {
	if h == nil {
		return Tensor{}
	}
	return wrapHandle(ctorch.RetainTensor(h))
}

func handOut(t Tensor, op, arg string) ctorch.Tensor {
	if t.T == nil {
		return nil
	}
	return t.hold(op, arg)
}
