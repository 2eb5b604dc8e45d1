package gotorch

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// What tests of this package ask of package ctorch.
var (
	Lent               = ctorch.Lent
	Words              = ctorch.Words
	LiveBytes          = ctorch.LiveBytes
	Owned              = ctorch.Owned
	Collect            = ctorch.Collect
	BoundCalls         = ctorch.BoundCalls
	CallsNow           = ctorch.CallsNow
	LockedNow          = ctorch.LockedNow
	LockedLimit        = ctorch.LockedLimit
	Tidying            = ctorch.Tidying
	SetMostLocked      = ctorch.SetMostLocked
	WithoutCollections = ctorch.WithoutCollections
	PretendPython      = ctorch.PretendPython
	ThreadsOf          = ctorch.ThreadsOf
	LimitThreads       = ctorch.SetThreadsLimit
)

// Causes returns how many panics of callbacks wait for the call that they end.
func Causes() int {
	panics.mutex.Lock()
	defer panics.mutex.Unlock()
	return len(panics.values)
}

// InScope reports whether the calling thread is inside of a scope.
func InScope() bool { return ctorch.ScopeGet() != nil }

// RunsAgain reports whether an op is run once more when memory is out, by PyTorch's name.
func RunsAgain(name string) bool {
	op, _ := ctorch.OpNamed(name)
	return !op.Writes()
}

// NotHeld is the error where C gives no second handle to t's tensor.
func NotHeld(t Tensor) *Error { return takeError("", unsafe.Pointer(ctorch.NotHeld(t.T, "self"))) }
