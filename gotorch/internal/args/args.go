// Package args has what functions with optional arguments share: reading a trailing options struct,
// its pointer fields, and refusing what does not fit.
package args

import (
	"fmt"

	"gotorch.dev/gotorch"
)

// Option returns the options that a function was given, or the zero ones.
func Option[O any](opts []O) (opt O) {
	if len(opts) > 0 {
		opt = opts[0]
	}
	return opt
}

// Or returns what p points to, or value where p is nil.
func Or[T any](p *T, value T) T {
	if p == nil {
		return value
	}
	return *p
}

// ValueError is the panic value for an argument of op that does not fit.
func ValueError(op, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.ValueError, Msg: fmt.Sprintf(format, values...)}
}
