package gotorch

import (
	"sync"
	"unsafe"
)

// NestedTensorOptions are the arguments of [NestedTensor] and [AsNestedTensor] that have defaults.
type NestedTensorOptions struct {
	DType        DType  // default: that of the first tensor
	Device       Device // default: that of the first tensor
	RequiresGrad bool   // of NestedTensor: the result is a leaf that requires grad
	PinMemory    bool   // of NestedTensor: in page-locked memory
}

// NestedTensor copies tensors of the same number of dimensions, whose sizes may differ, into one that has them side by side. It
// is a leaf: gradients do not go to the tensors, as they do with [AsNestedTensor]. [Tensor.Unbind] gives them back, and
// [Tensor.ToPaddedTensor] one tensor where the short ones are filled up. It panics with a RuntimeError if the numbers of
// dimensions, the dtypes or the devices differ. PyTorch's layout torch.jagged is of Python's subclasses, and not here.
//
//	ragged := gotorch.NestedTensor([]gotorch.Tensor{gotorch.Ones([]int64{2, 8}), gotorch.Ones([]int64{5, 8})})
//
// See https://docs.pytorch.org/docs/stable/nested.html#torch.nested.nested_tensor
func NestedTensor(tensors []Tensor, opts ...NestedTensorOptions) Tensor {
	const op = "NestedTensor"
	opt := option(opts)
	var t Tensor
	NoGrad(func() {
		detached := make([]Tensor, len(tensors))
		for i, one := range tensors {
			detached[i] = one.Detach()
		}
		t = nestedOf(op, detached, opt)
	})
	if opt.RequiresGrad {
		if err := t.setRequiresGrad(op, true); err != nil {
			panicC(op, unsafe.Pointer(err))
		}
	}
	return t
}

// AsNestedTensor is [NestedTensor] whose result belongs to the graph of the tensors.
//
// See https://docs.pytorch.org/docs/stable/nested.html#torch.nested.as_nested_tensor
func AsNestedTensor(tensors []Tensor, opts ...NestedTensorOptions) Tensor {
	const op = "AsNestedTensor"
	opt := option(opts)
	if opt.RequiresGrad || opt.PinMemory {
		panic(newError(op, ValueError, "RequiresGrad and PinMemory are options of NestedTensor, which makes a leaf"))
	}
	return nestedOf(op, tensors, opt)
}

var nestedFromList = sync.OnceValues(func() (*Operator, error) { return FindOperator("aten::_nested_tensor_from_tensor_list", "") })

func nestedOf(op string, tensors []Tensor, opt NestedTensorOptions) Tensor {
	if len(tensors) == 0 {
		panic(newError(op, ValueError, "a nested tensor needs a tensor at least"))
	}
	make, err := nestedFromList()
	if err != nil {
		panic(err)
	}
	var dtype, device any
	if opt.DType != 0 {
		dtype = opt.DType
	}
	if opt.Device != 0 {
		device = opt.Device
	}
	return make.Call(tensors, dtype, nil, device, opt.PinMemory)[0].(Tensor)
}
