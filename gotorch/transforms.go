package gotorch

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// The levels of function transforms, as far as this package needs them; package functorch has the transforms.

// enterTransform enters a level. leave leaves it with those above it: it must be deferred.
func enterTransform(op string, kind int32, batchSize int64) (level int64, leave func()) {
	level, leaveC, err := ctorch.EnterLevel(kind, batchSize, 0)
	if err != nil {
		panicC(op, unsafe.Pointer(err))
	}
	return level, func() { MustNil(unsafe.Pointer(leaveC())) }
}

func addBatchDim(op string, t Tensor, dim, level int64) Tensor {
	return transformed(op, t, func(t ctorch.Tensor, result *ctorch.Tensor) ctorch.Message {
		return ctorch.AddBatchDim(t, dim, level, result)
	})
}

func removeBatchDim(op string, t Tensor, level, batchSize, dim int64) Tensor {
	return transformed(op, t, func(t ctorch.Tensor, result *ctorch.Tensor) ctorch.Message {
		return ctorch.RemoveBatchDim(t, level, batchSize, dim, result)
	})
}

// transformed calls a function that makes a tensor of another one.
func transformed(op string, t Tensor, call func(ctorch.Tensor, *ctorch.Tensor) ctorch.Message) Tensor {
	w, err, warnings := ctorch.Transformed(t.T, call)
	checkBack(op, err, warnings)
	return Tensor{w}
}

// transformInfo says how a function transform has wrapped t; within is none where none has.
func (t Tensor) transformInfo() (info ctorch.TransformInfo, within Tensor) {
	const op = "functorch"
	h := t.hold(op, "self")
	defer ctorch.FreeTensor(h)
	var value ctorch.Tensor
	if err := ctorch.GetTransformInfo(h, &info, &value); err != nil {
		panicC(op, unsafe.Pointer(err))
	}
	return info, wrapHandle(value)
}

// isTransformed says whether t is one that stands for others, inside of a transform.
func (t Tensor) isTransformed() bool {
	info, within := t.transformInfo()
	within.Close()
	return info.Kind != ctorch.TransformNone
}
