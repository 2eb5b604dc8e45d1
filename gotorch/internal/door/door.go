// Package door is how packages that stand on gotorch reach what gotorch has in C for them alone.
// gotorch, the only package with C in it, fills these variables when the program starts. It cannot
// be imported here, so its types come as type parameters, and whoever uses a variable asserts its
// type once.
package door

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

// LoadCompiled is
//
//	func(path string, opts CompiledOptions) (Compiled[gotorch.Tensor, gotorch.DType, gotorch.Device], error)
var LoadCompiled any
