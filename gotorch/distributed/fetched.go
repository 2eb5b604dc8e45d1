package distributed

import (
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/native"
)

// enterFetched has ops of the calling goroutine keep nothing of what they would save of whole's storage, until leave is called,
// by the same goroutine: the backward pass has it from fetch, which returns a tensor with the same elements.
func enterFetched(op string, whole gotorch.Tensor, fetch func() gotorch.Tensor) (leave func()) {
	unlock := native.LockThread()
	entered := false
	defer func() {
		if !entered {
			unlock()
		}
	}()
	var held native.Holder
	defer held.Free()
	in := held.One(op, "whole", whole)
	token := (&ctorch.Callback{Fetch: func(result *ctorch.Tensor) ctorch.Message {
		return ctorch.Message(gotorch.CallbackFromC("in a sharded module", func() {
			if t := fetch(); t.T != nil {
				t.WithHandle(func(h unsafe.Pointer) { *result = ctorch.RetainTensor(ctorch.Tensor(h)) })
			}
		}))
	}}).Lend()
	if m := ctorch.EnterFetched(in, token); m != nil {
		ctorch.TakeBack(token)
		native.Must(op, m)
	}
	entered = true
	return func() {
		ctorch.LeaveFetched()
		unlock()
	}
}
