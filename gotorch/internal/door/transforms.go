package door

import "reflect"

// The kinds of transforms, those of cgotorch's functorch.h.
const (
	TransformVMap = 1 + iota
	TransformGrad
	TransformJVP
)

// TransformInfo is a TransformInfo of functorch.h.
type TransformInfo struct {
	Kind       int
	Level, Dim int64
}

// TransformCalls are the functions of functorch.h. They panic with *gotorch.Error, in which op is the
// operation.
type TransformCalls[Tensor any] struct {
	// Enter enters a level, and leave leaves it with those above it: it must be deferred.
	Enter       func(op string, kind int, batchSize int64, randomness int) (level int64, leave func())
	Depth       func() int
	Wrap        func(op string, t Tensor, level int64, requiresGrad bool) Tensor
	Unwrap      func(op string, t Tensor, level int64) Tensor
	MakeDual    func(op string, primal, tangent Tensor) Tensor
	UnpackDual  func(op string, dual Tensor) (primal, tangent Tensor)
	AddBatchDim func(op string, t Tensor, dim, level int64) Tensor
	RemoveBatch func(op string, t Tensor, level, batchSize, dim int64) Tensor
	Info        func(t Tensor) (info TransformInfo, within Tensor)

	// HoldsTensors reports whether there can be tensors in a value of a type, where a Scope looks for them.
	HoldsTensors func(reflect.Type) bool
}

// Transforms is a TransformCalls[gotorch.Tensor].
var Transforms any

// Fetched has ops of the calling goroutine keep nothing of what they would save of a tensor's storage, which the backward
// pass has from fetch then. leave must be called by the same goroutine:
//
//	func(op string, whole gotorch.Tensor, fetch func() gotorch.Tensor) (leave func())
var Fetched any

// SwapTensors puts tensors in the place of a module's parameters and buffers, by name, until restore is
// called:
//
//	func(m nn.Modular, tensors nn.StateDict, strict, tie bool) (restore func())
var SwapTensors any

// AllParameters yields a module's parameters under all of their names:
//
//	func(m nn.Modular) iter.Seq2[string, gotorch.Tensor]
var AllParameters any

// KeepsNothing is a gotorch.Function whose Backward keeps neither what it gets nor what it makes: all of it is freed when
// it has returned, but for what the engine has got.
type KeepsNothing interface{ KeepsNothing() }

// FoundInf makes what a gradient scaler has found in this rank's gradients what was found in those of all ranks, where parameters
// are parts of sharded ones. It is nil in programs without package distributed:
//
//	func(parameters []gotorch.Tensor, found gotorch.Tensor)
var FoundInf any
