package data

import (
	"errors"
	"fmt"
	"runtime/debug"

	"gotorch.dev/gotorch"
)

// SampleError says which sample a [Loader] could not have, or which batch it could not join. What was wrong is behind it,
// for errors.Is and errors.As.
type SampleError struct {
	Index   int    // of the sample in the data set, or in an epoch of an [Iterable]; -1 if it is of the whole batch
	Name    string // of the sample, such as its file: what the data set's [Namer] says; "" if it has none
	Batch   int    // which batch of the epoch, from 0
	Indices []int  // of the samples of the batch, where Index is -1
	Err     error  // what At returned, or a [PanicError]
}

// Error says which sample it was, and what was wrong.
func (e *SampleError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("data: batch %d%s: %v", e.Batch, ofIndices(e.Indices), e.Err)
	}
	name := ""
	if e.Name != "" {
		name = " (" + e.Name + ")"
	}
	return fmt.Sprintf("data: sample %d%s, in batch %d: %v", e.Index, name, e.Batch, e.Err)
}

func ofIndices(indices []int) string {
	const shown = 8
	switch {
	case len(indices) == 0:
		return ""
	case len(indices) > shown:
		return fmt.Sprintf(" of samples %v and %d others", indices[:shown], len(indices)-shown)
	}
	return fmt.Sprintf(" of samples %v", indices)
}

// Unwrap returns what was wrong.
func (e *SampleError) Unwrap() error { return e.Err }

// PanicError is the error of a data set, a transform or a function that joins samples, when it panicked. Panics of
// gotorch's own functions are no PanicError but the *gotorch.Error, as from [gotorch.Try].
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // where
}

// Error says what the panic was, and where.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the value of the panic, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// recovered returns a panic as an error.
func recovered(value any) error {
	carried, is := value.(*PanicError) // of a goroutine that reads for another, with the stack of where it was
	if is {
		value = carried.Value
	}
	if err, is := value.(error); is {
		if _, known := errors.AsType[*gotorch.Error](err); known {
			return err
		}
	}
	if carried != nil {
		return carried
	}
	return &PanicError{value, debug.Stack()}
}

// guarded calls fn, and returns its panic as an error.
func guarded[R any](fn func() (R, error)) (result R, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = recovered(v)
		}
	}()
	return fn()
}
