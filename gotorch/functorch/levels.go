package functorch

import (
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/holders"
	"gotorch.dev/gotorch/internal/native"
)

// The functions of functorch.h. They panic with *gotorch.Error, in which op is the operation.

// enter enters a level, and leave leaves it with those above it: it must be deferred.
func enter(op string, kind int32, batchSize int64, randomness int) (level int64, leave func()) {
	level, leaveC, m := ctorch.EnterLevel(kind, batchSize, int32(randomness))
	native.Must(op, m)
	return level, func() { native.Must("", leaveC()) }
}

// transformed calls a function that makes a tensor of another one.
func transformed(op string, t gotorch.Tensor, call func(ctorch.Tensor, *ctorch.Tensor) ctorch.Message) gotorch.Tensor {
	made, m, warnings := ctorch.Transformed(t.T, call)
	native.Check(op, m, warnings)
	return gotorch.Tensor{T: made}
}

func wrap(op string, t gotorch.Tensor, level int64, requiresGrad bool) gotorch.Tensor {
	return transformed(op, t, func(t ctorch.Tensor, result *ctorch.Tensor) ctorch.Message {
		return ctorch.WrapForGrad(t, level, requiresGrad, result)
	})
}

func unwrap(op string, t gotorch.Tensor, level int64) gotorch.Tensor {
	return transformed(op, t, func(t ctorch.Tensor, result *ctorch.Tensor) ctorch.Message {
		return ctorch.UnwrapForGrad(t, level, result)
	})
}

func addBatchDim(op string, t gotorch.Tensor, dim, level int64) gotorch.Tensor {
	return transformed(op, t, func(t ctorch.Tensor, result *ctorch.Tensor) ctorch.Message {
		return ctorch.AddBatchDim(t, dim, level, result)
	})
}

func removeBatchDim(op string, t gotorch.Tensor, level, batchSize, dim int64) gotorch.Tensor {
	return transformed(op, t, func(t ctorch.Tensor, result *ctorch.Tensor) ctorch.Message {
		return ctorch.RemoveBatchDim(t, level, batchSize, dim, result)
	})
}

func makeDual(op string, primal, tangent gotorch.Tensor) gotorch.Tensor {
	var held native.Holder
	defer held.Free()
	other := held.One(op, "tangent", tangent)
	return transformed(op, primal, func(t ctorch.Tensor, result *ctorch.Tensor) ctorch.Message {
		return ctorch.MakeDual(t, other, result)
	})
}

// unpackDual returns none for a tangent that there is not.
func unpackDual(op string, dual gotorch.Tensor) (primal, tangent gotorch.Tensor) {
	var second ctorch.Tensor
	primal = transformed(op, dual, func(t ctorch.Tensor, result *ctorch.Tensor) ctorch.Message {
		return ctorch.UnpackDual(t, result, &second)
	})
	return primal, native.Tensor(second)
}

// infoOf says how a transform has wrapped t.
func infoOf(t gotorch.Tensor) (info ctorch.TransformInfo) {
	const op = "functorch"
	var held native.Holder
	defer held.Free()
	var within ctorch.Tensor
	native.Must(op, ctorch.GetTransformInfo(held.One(op, "self", t), &info, &within))
	ctorch.FreeTensor(within)
	return info
}

var tensorHolders = holders.Of{What: reflect.TypeFor[gotorch.Tensor]()}

// holdsTensors reports whether there can be tensors in a value of a type, where a Scope looks for them.
func holdsTensors(t reflect.Type) bool { return tensorHolders.Holds(t) }
