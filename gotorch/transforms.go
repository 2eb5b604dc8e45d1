package gotorch

/*
#include <cgotorch.h>
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

// What package functorch needs: the levels of function transforms, which are an OS thread's as modes are.

func init() {
	door.Transforms = door.TransformCalls[Tensor]{
		Enter:        enterTransform,
		Depth:        func() int { return int(C.TransformDepth()) },
		Wrap:         wrapForGrad,
		Unwrap:       unwrapForGrad,
		MakeDual:     makeDual,
		UnpackDual:   unpackDual,
		AddBatchDim:  addBatchDim,
		RemoveBatch:  removeBatchDim,
		Info:         Tensor.transformInfo,
		HoldsTensors: holdsTensors,
	}
}

// mostLevels is how deep transforms may nest. libtorch goes through the levels of a thread by recursion, and where
// they are too many for the thread's stack the process ends.
const mostLevels = 512

// enterTransform locks the goroutine to its thread and enters a level. leave undoes both, with the levels
// above that were not left; it is to be deferred.
func enterTransform(op string, kind int, batchSize int64, randomness int) (level int64, leave func()) {
	thread := lockThread()
	var entered C.int64_t
	err := C.EnterTransform(C.int32_t(kind), C.int64_t(batchSize), C.int32_t(randomness), &entered)
	if err != nil {
		unlockThread(thread)
		panicC(op, unsafe.Pointer(err))
	}
	leave = func() {
		err := C.LeaveTransform(entered)
		unlockThread(thread)
		MustNil(unsafe.Pointer(err))
	}
	if entered > mostLevels {
		leave()
		panic(newError(op, RuntimeError, fmt.Sprintf("there are %d transforms within one another already, and there may be no more", mostLevels)))
	}
	return int64(entered), leave
}

func wrapForGrad(op string, t Tensor, level int64, requiresGrad bool) Tensor {
	return transformed(op, t, func(t C.Tensor, result *C.Tensor) *C.char {
		return C.WrapForGrad(t, C.int64_t(level), C.bool(requiresGrad), result)
	})
}

func unwrapForGrad(op string, t Tensor, level int64) Tensor {
	return transformed(op, t, func(t C.Tensor, result *C.Tensor) *C.char {
		return C.UnwrapForGrad(t, C.int64_t(level), result)
	})
}

func addBatchDim(op string, t Tensor, dim, level int64) Tensor {
	return transformed(op, t, func(t C.Tensor, result *C.Tensor) *C.char {
		return C.AddBatchDim(t, C.int64_t(dim), C.int64_t(level), result)
	})
}

func removeBatchDim(op string, t Tensor, level, batchSize, dim int64) Tensor {
	return transformed(op, t, func(t C.Tensor, result *C.Tensor) *C.char {
		return C.RemoveBatchDim(t, C.int64_t(level), C.int64_t(batchSize), C.int64_t(dim), result)
	})
}

func makeDual(op string, primal, tangent Tensor) Tensor {
	other := tangent.hold(op, "tangent")
	defer C.FreeTensor(other)
	return transformed(op, primal, func(t C.Tensor, result *C.Tensor) *C.char {
		return C.MakeDual(t, other, result)
	})
}

// unpackDual returns none for a tangent that there is not.
func unpackDual(op string, dual Tensor) (primal, tangent Tensor) {
	var second C.Tensor
	primal = transformed(op, dual, func(t C.Tensor, result *C.Tensor) *C.char {
		return C.UnpackDual(t, result, &second)
	})
	return primal, wrapHandle(unsafe.Pointer(second))
}

// transformed calls a function that makes a tensor of another one.
func transformed(op string, t Tensor, call func(C.Tensor, *C.Tensor) *C.char) Tensor {
	h := t.hold(op, "self")
	defer C.FreeTensor(h)
	var result C.Tensor
	warnings := gatherWarnings()
	err := call(h, &result)
	made := wrapHandle(unsafe.Pointer(result))
	checkBack(op, unsafe.Pointer(err), warnings.gathered())
	return made
}

// transformInfo says how a function transform has wrapped t; within is none where none has.
func (t Tensor) transformInfo() (info door.TransformInfo, within Tensor) {
	var found C.TransformInfo
	var value C.Tensor
	h := t.hold("functorch", "self")
	defer C.FreeTensor(h)
	if err := C.GetTransformInfo(h, &found, &value); err != nil {
		panicC("functorch", unsafe.Pointer(err))
	}
	return door.TransformInfo{Kind: int(found.kind), Level: int64(found.level), Dim: int64(found.dim)},
		wrapHandle(unsafe.Pointer(value))
}

// isTransformed says whether t is one that stands for others, inside of a transform.
func (t Tensor) isTransformed() bool {
	info, within := t.transformInfo()
	within.Close()
	return info.Kind != C.TransformNone
}
