package gotorch

/*
#include <cgotorch.h>
*/
import "C"

import (
	"reflect"
	"slices"
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

// What package graph needs, on which the packages stand that Python writes.

func init() {
	door.ManyOptions = func(of reflect.Type, n int) error { return manyOptions(of, n) }
	door.CallC = door.Calls[Tensor]{
		Before: func() door.CallState {
			c := beforeCall()
			before := c.profiled.before
			return door.CallState{Slow: c.slow, Counted: c.counted, Warnings: unsafe.Pointer(c.warnings.w), Profiled: c.profiled.on,
				Goroutine: int64(before.goroutine), ProfiledCall: int64(before.call), Site: int64(before.site)}
		},
		After: func(s door.CallState) unsafe.Pointer {
			before := C.struct_cgotorch_profile_place{C.int64_t(s.Goroutine), C.int64_t(s.ProfiledCall), C.int64_t(s.Site)}
			c := slowCall{s.Slow, s.Counted, warningsOf{(*C.struct_cgotorch_warnings)(s.Warnings)}, profiledCall{s.Profiled, before}}
			return unsafe.Pointer(c.after().w)
		},
		HandOn: func(w unsafe.Pointer) {
			// The results are the caller's already, also where the handler panics.
			warningsOf{(*C.struct_cgotorch_warnings)(w)}.handOn(true)
		},
		Error: func(op string, message uintptr) error { return takeFailure(op, pointer(message)) },
		Held:  Tensor.held,
		Tensor: func(handle uintptr, meta int64, scope uintptr) Tensor {
			return newTensor(&outTensor{handle, meta}, pointer(scope))
		},
		Tensors: func(data uintptr, n int64) []Tensor {
			defer C.FreeArray(pointer(data))
			return wrapHandles(unsafe.Slice((*C.Tensor)(pointer(data)), n))
		},
		Ints:   takeArray[int64],
		Floats: takeArray[float64],
		Scalar: func(s any, op, arg string) [3]uint64 {
			c, ok := convertScalar(s)
			if !ok {
				panic(badScalar(s, op, arg))
			}
			return *(*[3]uint64)(unsafe.Pointer(&c))
		},
		ScalarValue: func(words [3]uint64) any { return (*cScalar)(unsafe.Pointer(&words)).value() },
	}
}

// pointer returns an address that C gave as a pointer.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// takeArray copies an array that C has made, and frees it; NULL is nil.
func takeArray[T any](data uintptr, n int64) []T {
	defer C.FreeArray(pointer(data))
	return slices.Clone(unsafe.Slice((*T)(pointer(data)), n))
}
