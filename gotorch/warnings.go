package gotorch

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Warning is what PyTorch warns of where it does not fail.
type Warning struct {
	Kind string // the class of Python's warning, "UserWarning" or "DeprecationWarning"
	Msg  string
}

// String returns "UserWarning: ...", as Python prints it.
func (w Warning) String() string { return w.Kind + ": " + w.Msg }

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
	if handler == nil {
		ctorch.SetWarningHandler(nil)
		return
	}
	if err := ctorch.PrintWarnings(); err != nil {
		panicC("SetWarningHandler", unsafe.Pointer(err))
	}
	ctorch.SetWarningHandler(&ctorch.WarningHandler{Call: func(kind, msg string) { handler(Warning{kind, msg}) }, Of: handler})
}

// WarningHandler returns the handler that is in place, nil for the default.
func WarningHandler() func(Warning) {
	if handler := ctorch.CurrentWarningHandler(); handler != nil {
		return handler.Of.(func(Warning))
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
	ctorch.PrintWarning(w.Kind, w.Msg)
}
