// Package door is how packages that stand on gotorch reach what gotorch has in C for them alone.
// gotorch, the only package with C in it, fills these variables when the program starts. It cannot
// be imported here, so its types come as type parameters, and whoever uses a variable asserts its
// type once.
package door

import (
	"reflect"
	"unsafe"
)

// CompiledOptions are AOTIOptions of cgotorch's aoti.h; "" is NULL.
type CompiledOptions struct {
	ModelName      string
	NumRunners     int
	SingleThreaded bool
	Unchecked      bool
	DeviceIndex    int

	IgnoreChecksums bool
}

// CompiledTensor is an AOTITensorInfo. DType is 0 where it is not known, and Sizes nil; Device is -1.
type CompiledTensor[DType any] struct {
	Name       string
	DType      DType
	DeviceType int
	Sizes      []int64
	Min, Max   []int64
}

// CompiledInfo is an AOTIInfo.
type CompiledInfo[DType, Device any] struct {
	ModelName       string
	Device          Device
	NumRunners      int
	Inputs          []CompiledTensor[DType]
	NumOutputs      int
	Constants       []CompiledTensor[DType]
	Metadata        map[string]string
	InSpec, OutSpec string
}

// Compiled is an AOTIModel. Run and Constants panic with *gotorch.Error; op is what errors say of
// where they come from. Free must be called once, and nothing during or after it.
type Compiled[Tensor, DType, Device any] interface {
	Run(inputs []Tensor) []Tensor
	SetConstants(op string, names []string, tensors []Tensor, all bool) error
	Constants(op string) []Tensor
	Info() CompiledInfo[DType, Device]
	Free()
}

// ManyOptions is the error for n options structs where there may be one.
var ManyOptions func(of reflect.Type, n int) error

// LoadCompiled is
//
//	func(path string, opts CompiledOptions) (Compiled[gotorch.Tensor, gotorch.DType, gotorch.Device], error)
var LoadCompiled any

// CallState is what Calls.After undoes of Calls.Before.
type CallState struct {
	Slow, Counted bool
	Warnings      unsafe.Pointer

	Profiled                      bool
	Goroutine, ProfiledCall, Site int64 // what there was before
}

// Calls is how a package with C of its own calls it as gotorch calls its ops. Arguments and results are
// values, not pointers: what goes through a function variable leaves the stack.
type Calls[Tensor any] struct {
	// Before comes before a call of C, and After after it: it returns what the call warned of.
	Before func() CallState
	After  func(CallState) (warnings unsafe.Pointer)
	// HandOn gives warnings to the program's handler. What that panics with goes on.
	HandOn func(warnings unsafe.Pointer)
	// Error makes an error of a message from C, and frees the message.
	Error func(op string, message uintptr) error

	// Held returns t's tensor as one that nobody else can close. It panics with *gotorch.Error where t
	// was closed; op and arg are what the error says.
	Held func(t Tensor, op, arg string) Tensor
	// Tensor takes over a handle, and Tensors a list of them with its array. Ints and Floats take
	// over an array of numbers.
	Tensor  func(handle uintptr, meta int64, scope uintptr) Tensor
	Tensors func(data uintptr, n int64) []Tensor
	Ints    func(data uintptr, n int64) []int64
	Floats  func(data uintptr, n int64) []float64
	// Scalar and ScalarValue turn a number into the words of a Scalar of cgotorch.h and back. They
	// panic with *gotorch.Error for what is no number.
	Scalar      func(s any, op, arg string) [3]uint64
	ScalarValue func([3]uint64) any
}

// CallC is a Calls[gotorch.Tensor].
var CallC any

// FlopEvent is a FlopEvent of cgotorch's flops.h.
type FlopEvent struct {
	Op       string // "aten.mm"
	FLOPs    int64
	Backward bool
	Sequence int64 // of the backward pass's node, or -1
}

// CountFLOPs runs fn, and returns what it counted. FlopPlace returns how many events there are so far, and
// the sequence number of the next node of a graph.
var (
	CountFLOPs func(fn func()) []FlopEvent
	FlopPlace  func() (events int, sequence int64)
)

// Functions of the C library's mathematics; see package libm.
var (
	Pow                func(x, y float64) float64
	Cos, Sin, Tan, Log func(x float64) float64
)

// Assign puts a value of a file into a variable, as gotorch.LoadAs does: numbers are converted where none becomes another. place
// is what errors call the value.
var Assign func(to reflect.Value, value any, place string) error
