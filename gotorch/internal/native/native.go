// Package native is what packages that stand on gotorch share that call C themselves, through package ctorch.
package native

import (
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/ctorch"
)

// Error returns the *gotorch.Error of what C said, and nil where C said nothing. op is what the error says of where.
func Error(op string, m ctorch.Message) error { return gotorch.ErrorFromC(op, unsafe.Pointer(m)) }

// Must panics with the [Error], if there is one.
func Must(op string, m ctorch.Message) {
	if m != nil {
		panic(Error(op, m))
	}
}

// Check is [Must] for a function that may have warned. It hands on the warnings.
func Check(op string, m ctorch.Message, warnings ctorch.Warnings) {
	if m != nil {
		defer warnings.HandOn(true)
		Must(op, m)
	}
	warnings.HandOn(false)
}

// LockThread locks the goroutine to its thread, as modes do, until unlock is called.
func LockThread() (unlock func()) {
	thread, m := ctorch.LockThread()
	Must("", m)
	return func() { ctorch.UnlockThread(thread) }
}

// Tensor takes over a handle; NULL is none.
func Tensor(h ctorch.Tensor) gotorch.Tensor { return gotorch.Tensor{T: ctorch.Wrap(h)} }

// Tensors takes over a list of handles.
func Tensors(hs []ctorch.Tensor) []gotorch.Tensor {
	ts := make([]gotorch.Tensor, len(hs))
	for i, h := range hs {
		ts[i] = Tensor(h)
	}
	return ts
}

// Holder has handles that no Close takes away, until it is freed.
type Holder struct{ held ctorch.Holder }

// One returns the handle of a tensor. It panics as operations do where t is none or was closed.
func (h *Holder) One(op, arg string, t gotorch.Tensor) ctorch.Tensor {
	handle, m := h.held.One(arg, t.T)
	Must(op, m)
	return handle
}

// All is [Holder.One] for a list.
func (h *Holder) All(op, arg string, ts []gotorch.Tensor) []ctorch.Tensor {
	hs := make([]ctorch.Tensor, len(ts))
	for i, t := range ts {
		hs[i] = h.One(op, arg, t)
	}
	return hs
}

// Free gives the handles back.
func (h *Holder) Free() { h.held.Free() }
