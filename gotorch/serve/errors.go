package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"gotorch.dev/gotorch"
)

// Error is what this package returns, and what a [Model] may return to choose what its client sees. errors.Is compares
// with the code: errors.Is(err, serve.NotFound).
type Error struct {
	Code    Code
	Model   string // "" where the error is of no model
	Version string
	Msg     string // what was expected, what came, what to do; clients see it

	cause  error
	status int // of HTTP, where it is not that of the code
}

// Error returns "model digits, version 1: INVALID_ARGUMENT: ...".
func (e *Error) Error() string {
	text := e.Code.String() + ": " + e.Msg
	switch {
	case e.Model == "":
		return "serve: " + text
	case e.Version == "":
		return "serve: model " + e.Model + ": " + text
	}
	return "serve: model " + e.Model + ", version " + e.Version + ": " + text
}

// mostTold bounds the text of an error that goes to a client. It may quote what the client has sent, and over gRPC it is
// in headers, of which clients take some kilobytes.
const mostTold = 4096

// told is the error's text as clients see it.
func (e *Error) told() string { return shorten(e.Error(), mostTold) }

// shorten returns a text of at most so many bytes, and three dots. What is no UTF-8 becomes U+FFFD.
func shorten(text string, most int) string {
	short := text[:min(len(text), most)]
	if len(short) < len(text) {
		for end := len(short); end > 0 && end > most-utf8.UTFMax; end-- {
			if utf8.RuneStart(text[end]) {
				short = text[:end] + "..."
				break
			}
		}
	}
	return strings.ToValidUTF8(short, string(utf8.RuneError))
}

// Unwrap returns what the error was made of: what the model returned, or the error of a context.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Code is the kind of an [Error]: one of gRPC's status codes, of which HTTP's status follows.
type Code uint8

const (
	Internal          Code = iota // the model failed: 500
	InvalidArgument               // the request is wrong, and will be: 400
	NotFound                      // there is no such model or version: 404
	PermissionDenied              // 403
	ResourceExhausted             // the queue is full, or memory is: 429
	DeadlineExceeded              // the request took longer than it may: 504
	Canceled                      // the client has gone: 499, which nobody reads
	Unavailable                   // the model is not loaded, or the server is closing: 503
	Unimplemented                 // 501
)

var codeNames = [...]string{"INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"DEADLINE_EXCEEDED", "CANCELLED", "UNAVAILABLE", "UNIMPLEMENTED"}

var httpStatuses = [...]int{500, 400, 404, 403, 429, 504, 499, 503, 501}

var grpcCodes = [...]codes.Code{codes.Internal, codes.InvalidArgument, codes.NotFound, codes.PermissionDenied,
	codes.ResourceExhausted, codes.DeadlineExceeded, codes.Canceled, codes.Unavailable, codes.Unimplemented}

func (c Code) known() Code {
	if int(c) < len(codeNames) {
		return c
	}
	return Internal
}

// String returns gRPC's name of the code, "RESOURCE_EXHAUSTED".
func (c Code) String() string { return codeNames[c.known()] }

// Error is String, so that a code can be the target of errors.Is.
func (c Code) Error() string { return c.String() }

func newError(code Code, format string, values ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, values...)}
}

// httpStatus returns the status that a client of REST sees.
func (e *Error) httpStatus() int {
	if e.status != 0 {
		return e.status
	}
	return httpStatuses[e.Code.known()]
}

// of returns err as an error of a model.
func of(name, version string, err error) *Error {
	e := asError(err)
	if e.Model != "" || name == "" {
		return e
	}
	named := *e
	named.Model, named.Version = name, version
	return &named
}

// asError finds the code of an error that a model, a context or this package made.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		if error(e) == err {
			return e
		}
		return &Error{Code: e.Code, Model: e.Model, Version: e.Version, Msg: err.Error(), cause: err, status: e.status}
	}
	code := Internal
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = Canceled
	case outOfMemory(err):
		code = ResourceExhausted
	}
	return &Error{Code: code, Msg: err.Error(), cause: err}
}

// outOfMemory reports whether a device or the computer had no memory. Of the latter PyTorch has no class of errors.
func outOfMemory(err error) bool {
	if errors.Is(err, gotorch.MemoryError) || errors.Is(err, gotorch.OutOfMemoryError) {
		return true
	}
	var e *gotorch.Error
	return errors.As(err, &e) && e.Kind == gotorch.RuntimeError && strings.Contains(e.Msg, "DefaultCPUAllocator: ")
}
