package gotorch

/*
#include <cgotorch.h>
#include <stdlib.h>

static const char *print_warnings(const char *prefix) {
  return SetWarningHandler(PrintWarningOnce, (void *)prefix, NULL);
}
*/
import "C"

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Warning is what PyTorch warns of where it does not fail.
type Warning struct {
	Kind string // the class of Python's warning, "UserWarning" or "DeprecationWarning"
	Msg  string
}

// String returns "UserWarning: ...", as Python prints it.
func (w Warning) String() string { return w.Kind + ": " + w.Msg }

var warningHandler atomic.Pointer[func(Warning)]

// SetWarningHandler has handler called with every warning from now on, also with one that was given
// before. nil is the default, which prints to the standard error, each message once;
// func(Warning) {} keeps silent.
//
// The handler runs in the goroutine that called what warns, before that returns, so that the stack
// says where it was called. Several goroutines may be in it at once. What it panics with comes out
// of the call that warned: so warnings become errors. A warning of its own calls comes to it again.
//
// The few warnings of threads that libtorch computes with are printed in any case.
func SetWarningHandler(handler func(Warning)) {
	var next *func(Warning)
	if handler != nil {
		next = &handler
		printWarnings()
	}
	warningHandler.Store(next)
	if handler != nil {
		attention.Or(attentionWarnings)
	} else {
		attention.And(^uint32(attentionWarnings))
	}
}

// WarningHandler returns the handler that is in place, nil for the default.
func WarningHandler() func(Warning) {
	if handler := warningHandler.Load(); handler != nil {
		return *handler
	}
	return nil
}

// Warn gives a warning to the program's handler, or prints it, as one of PyTorch's: for libraries in Go that
// warn. What the handler panics with comes out of Warn.
func Warn(w Warning) {
	if handler := WarningHandler(); handler != nil {
		handler(w)
		return
	}
	kind, msg := C.CString(w.Kind), C.CString(w.Msg)
	defer C.free(unsafe.Pointer(kind))
	defer C.free(unsafe.Pointer(msg))
	C.PrintWarningOnce(unsafe.Pointer(warningPrefix), kind, msg)
}

// attentionWarnings is set in attention while the program has a handler of its own: then calls that
// may warn gather the warnings.
const attentionWarnings = 1 << 9

// printWarnings makes the default handler print, instead of libtorch itself.
func printWarnings() {
	if err := C.print_warnings(warningPrefix); err != nil {
		panicC("SetWarningHandler", unsafe.Pointer(err))
	}
}

var warningPrefix = C.CString("gotorch: warning:")

// C gathers the warnings of a call, and Go hands them on when the call has returned. It could not do
// so earlier: ops are called as functions that call nothing back, and libtorch may hold locks while
// it warns.

// warningsOf are the warnings of one call: none if w is nil.
type warningsOf struct {
	w *C.struct_cgotorch_warnings
}

// gatherWarnings begins to gather, if there is a handler; gathered ends it.
func gatherWarnings() (on warningsOf) {
	if attention.Load()&attentionWarnings != 0 {
		runtime.LockOSThread()
		if on.w = C.cgotorch_gather_warnings(); on.w == nil { // no memory
			runtime.UnlockOSThread()
		}
	}
	return on
}

func (on warningsOf) gathered() warningsOf {
	if on.w == nil {
		return on
	}
	w := C.cgotorch_gathered_warnings(on.w)
	runtime.UnlockOSThread()
	return warningsOf{w}
}

// putWarningsAside is for Go code that C calls: what it does itself is no part of the call around it.
func putWarningsAside() (resume func()) {
	if attention.Load()&attentionWarnings == 0 {
		return func() {}
	}
	w := C.cgotorch_swap_warnings(nil)
	return func() { C.cgotorch_swap_warnings(w) }
}

// handOn calls the handler with what was gathered. If that panics, the results of the call that
// warned are freed: the caller must not have taken them yet. A call that failed has none.
func (of warningsOf) handOn(failed bool) {
	if of.w == nil {
		return
	}
	refused := !failed
	defer func() { C.cgotorch_free_warnings(of.w, C.bool(refused)) }()
	for i := C.int64_t(0); ; i++ {
		var kind *C.char
		msg := C.cgotorch_warning(of.w, i, &kind)
		if msg == nil {
			break
		}
		if handler := warningHandler.Load(); handler != nil {
			(*handler)(Warning{C.GoString(kind), C.GoString(msg)})
		} else {
			// It was taken away meanwhile.
			C.PrintWarningOnce(unsafe.Pointer(warningPrefix), kind, msg)
		}
	}
	refused = false
}
