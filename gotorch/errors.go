package gotorch

import (
	"errors"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Error is what every failing function of this package panics with, or returns where it returns an
// error. Use [Try] to turn the panic into an error.
type Error struct {
	Op   string    // PyTorch's name of the function, "add.Tensor"; "" where there is none
	Kind ErrorKind // the class that PyTorch raises in Python
	Msg  string    // the first line of what PyTorch says in Python

	cause error
}

func newError(op string, kind ErrorKind, msg string) *Error {
	return &Error{Op: op, Kind: kind, Msg: msg}
}

// Error returns Kind and Msg as Python prints them, with Op in front: "view: RuntimeError: shape ...".
// Where Msg itself begins with the function's name Op is left out: "RuntimeError: mm: mat1 ...".
func (e *Error) Error() string {
	text := string(e.Kind) + ": " + e.Msg
	if e.Op == "" || e.namesOp() {
		return text
	}
	return e.Op + ": " + text
}

// namesOp reports whether the message begins with the function's name, as many of PyTorch's do:
// "mm: ", "select(): ", "linalg.inv: ", "torch.cat(): ".
func (e *Error) namesOp() bool {
	name, _, found := strings.Cut(e.Msg, ": ")
	if !found {
		return false
	}
	name = strings.TrimPrefix(strings.TrimSuffix(name, "()"), "torch.")
	op := e.Op[strings.LastIndex(e.Op, "::")+1:]
	op, _, _ = strings.Cut(strings.TrimPrefix(op, ":"), ".") // without the overload
	return strings.TrimSuffix(strings.ReplaceAll(name, ".", "_"), "_") == strings.TrimSuffix(op, "_")
}

// Unwrap returns the [CallbackPanic] behind an error that began as a panic in a function that
// libtorch called; nil for all other errors.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is e's kind, so that errors.Is(err, gotorch.IndexError) works. As in Python an
// error of a file that is not there, or a directory, is an [OSError].
func (e *Error) Is(target error) bool {
	kind, ok := target.(ErrorKind)
	if ok && kind == OSError {
		switch e.Kind {
		case "FileNotFoundError", "PermissionError", "IsADirectoryError":
			return true
		}
	}
	return ok && kind == e.Kind
}

// ErrorKind is the name of a Python exception class. PyTorch may raise others than these.
type ErrorKind string

const (
	RuntimeError        ErrorKind = "RuntimeError"
	IndexError          ErrorKind = "IndexError"
	ValueError          ErrorKind = "ValueError"
	TypeError           ErrorKind = "TypeError"
	AttributeError      ErrorKind = "AttributeError"
	KeyError            ErrorKind = "KeyError"
	NotImplementedError ErrorKind = "NotImplementedError"
	LinAlgError         ErrorKind = "LinAlgError"
	OutOfMemoryError    ErrorKind = "OutOfMemoryError" // of a device
	MemoryError         ErrorKind = "MemoryError"      // of the computer
	BufferError         ErrorKind = "BufferError"
	SyntaxError         ErrorKind = "SyntaxError"
	AcceleratorError    ErrorKind = "AcceleratorError"
	OSError             ErrorKind = "OSError"
)

func (k ErrorKind) Error() string { return string(k) }

// Try calls fn and returns its result, or the *Error that it panicked with. Other panics go on.
func Try[R any](fn func() R) (result R, err error) {
	defer catch(&err)
	return fn(), nil
}

// Try0 is [Try] for a function without a result.
func Try0(fn func()) (err error) {
	defer catch(&err)
	fn()
	return nil
}

// Try2 is [Try] for a function with two results.
func Try2[A, B any](fn func() (A, B)) (a A, b B, err error) {
	defer catch(&err)
	a, b = fn()
	return a, b, nil
}

// catch is deferred: it puts a panic with *Error into *err.
func catch(err *error) {
	switch e := recover().(type) {
	case nil:
	case *Error:
		*err = e
	case error:
		// An *Error on its way through code that wraps errors.
		var wrapped *Error
		if !errors.As(e, &wrapped) {
			panic(e)
		}
		*err = e
	default:
		panic(e)
	}
}

// MustNil panics with an *Error if err, the result of a C function, is an error message. It frees
// the message.
func MustNil(err unsafe.Pointer) {
	if err != nil {
		panicC("", err)
	}
}

// panicC panics with the message that C returned, and frees it.
//
//go:noinline
func panicC(op string, err unsafe.Pointer) {
	panic(takeFailure(op, err))
}

// takeFailure is takeError for calls that compute and are not run again: where memory was out, there is
// room when the program tries again.
func takeFailure(op string, err unsafe.Pointer) *Error {
	e := takeError(op, err)
	makeRoom(e)
	return e
}

// takeError makes an *Error of the message that C returned, and frees it. If Go code that C called has
// ended its goroutine, takeError ends the caller's: what must be done all the same is deferred.
func takeError(op string, err unsafe.Pointer) *Error {
	kind, msg := ctorch.TakeMessage(ctorch.Message(err))
	msg, cause := marked(msg)
	return &Error{Op: op, Kind: ErrorKind(kind), Msg: msg, cause: cause}
}

// makeRoom frees everything dead if err says that memory is out, and reports whether it does.
func makeRoom(err *Error) bool { return ctorch.MakeRoom(string(err.Kind), err.Msg) }
