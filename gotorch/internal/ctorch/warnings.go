package ctorch

/*
#include <cgotorch.h>

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

// PrintWarnings makes the default handler print, instead of libtorch itself.
func PrintWarnings() Message { return C.print_warnings(warningPrefix) }

// PrintWarning prints a warning as the default handler does.
func PrintWarning(kind, msg string) {
	cKind, cMsg := CString(kind), CString(msg)
	defer CFree(unsafe.Pointer(cKind))
	defer CFree(unsafe.Pointer(cMsg))
	C.PrintWarningOnce(unsafe.Pointer(warningPrefix), cKind, cMsg)
}

var warningPrefix = CString("gotorch: warning:")

// A WarningHandler is called with each warning of a call. Of is whose it is.
type WarningHandler struct {
	Call func(kind, msg string)
	Of   any
}

var warningHandler atomic.Pointer[WarningHandler]

// SetWarningHandler has handler called with what calls warn of; nil is the default, which prints.
func SetWarningHandler(handler *WarningHandler) {
	warningHandler.Store(handler)
	if handler != nil {
		attention.Or(attentionWarnings)
	} else {
		attention.And(^uint32(attentionWarnings))
	}
}

// CurrentWarningHandler returns the handler that is in place, nil for the default.
func CurrentWarningHandler() *WarningHandler { return warningHandler.Load() }

// C gathers the warnings of a call, and Go hands them on when the call has returned. It could not do
// so earlier: ops are called as functions that call nothing back, and libtorch may hold locks while
// it warns.

// Warnings are the warnings of one call: none if they are zero.
type Warnings struct {
	w *C.struct_cgotorch_warnings
}

// Some reports whether there are any.
func (of Warnings) Some() bool { return of.w != nil }

// GatherWarnings begins to gather, if there is a handler; [Warnings.Gathered] ends it.
func GatherWarnings() (on Warnings) {
	if attention.Load()&attentionWarnings != 0 {
		runtime.LockOSThread()
		if on.w = C.cgotorch_gather_warnings(); on.w == nil { // no memory
			runtime.UnlockOSThread()
		}
	}
	return on
}

// Gathered returns what was warned of.
func (on Warnings) Gathered() Warnings {
	if on.w == nil {
		return on
	}
	w := C.cgotorch_gathered_warnings(on.w)
	runtime.UnlockOSThread()
	return Warnings{w}
}

// putWarningsAside is for Go code that C calls: what it does itself is no part of the call around it.
func putWarningsAside() (resume func()) {
	if attention.Load()&attentionWarnings == 0 {
		return func() {}
	}
	w := C.cgotorch_swap_warnings(nil)
	return func() { C.cgotorch_swap_warnings(w) }
}

// HandOn calls the handler with what was gathered. If that panics, the results of the call that
// warned are freed: the caller must not have taken them yet. A call that failed has none.
func (of Warnings) HandOn(failed bool) {
	if of.w == nil {
		return
	}
	refused := !failed
	defer func() { C.cgotorch_free_warnings(of.w, C.bool(refused)) }()
	for i := C.int64_t(0); ; i++ {
		var kind *Char
		msg := C.cgotorch_warning(of.w, i, &kind)
		if msg == nil {
			break
		}
		if handler := warningHandler.Load(); handler != nil {
			handler.Call(GoString(kind), GoString(msg))
		} else {
			// It was taken away meanwhile.
			C.PrintWarningOnce(unsafe.Pointer(warningPrefix), kind, msg)
		}
	}
	refused = false
}
