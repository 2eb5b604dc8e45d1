package gotorch

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Tensors is a slice of tensors that is computed with as a whole, such as the parameters of a model:
//
//	Tensors(params).Add_(grads, AddOptions{Alpha: -lr})
//
// A []Tensor converts to it and back. An operation of two Tensors takes the elements in pairs, which
// must be equally many. All elements are computed by a few kernels, not one call each, where PyTorch
// has such kernels; every other operation of this kind has its function too: [ForeachExp],
// [ForeachAddCMulScalar], ... Unlike those, methods of an empty Tensors do nothing.
//
// What goes wrong is a panic with an *Error, as in the operations on a single tensor.
type Tensors []Tensor

// Add returns ts[i] + Alpha·other[i].
func (ts Tensors) Add(other []Tensor, opts ...AddOptions) Tensors {
	if ts.noPairs("Add", other) {
		return Tensors{}
	}
	return ForeachAddList(ts, other, ForeachAddListOptions{Alpha: option(opts).Alpha})
}

// Add_ adds Alpha·other[i] to ts[i] in place.
func (ts Tensors) Add_(other []Tensor, opts ...AddOptions) Tensors {
	if !ts.noPairs("Add_", other) {
		ForeachAddList_(ts, other, ForeachAddListOptions{Alpha: option(opts).Alpha})
	}
	return ts
}

// Sub returns ts[i] - other[i].
func (ts Tensors) Sub(other []Tensor) Tensors {
	if ts.noPairs("Sub", other) {
		return Tensors{}
	}
	return ForeachSubList(ts, other)
}

// Sub_ subtracts other[i] from ts[i] in place.
func (ts Tensors) Sub_(other []Tensor) Tensors {
	if !ts.noPairs("Sub_", other) {
		ForeachSubList_(ts, other)
	}
	return ts
}

// Mul returns ts[i] · other[i], element by element.
func (ts Tensors) Mul(other []Tensor) Tensors {
	if ts.noPairs("Mul", other) {
		return Tensors{}
	}
	return ForeachMulList(ts, other)
}

// Mul_ multiplies ts[i] by other[i] in place.
func (ts Tensors) Mul_(other []Tensor) Tensors {
	if !ts.noPairs("Mul_", other) {
		ForeachMulList_(ts, other)
	}
	return ts
}

// Div returns ts[i] / other[i], element by element.
func (ts Tensors) Div(other []Tensor) Tensors {
	if ts.noPairs("Div", other) {
		return Tensors{}
	}
	return ForeachDivList(ts, other)
}

// Div_ divides ts[i] by other[i] in place.
func (ts Tensors) Div_(other []Tensor) Tensors {
	if !ts.noPairs("Div_", other) {
		ForeachDivList_(ts, other)
	}
	return ts
}

// AddScalar returns ts[i] + value.
func (ts Tensors) AddScalar(value Scalar) Tensors {
	if len(ts) == 0 {
		return Tensors{}
	}
	return ForeachAddScalar(ts, value)
}

// AddScalar_ adds value to ts[i] in place.
func (ts Tensors) AddScalar_(value Scalar) Tensors {
	if len(ts) > 0 {
		ForeachAddScalar_(ts, value)
	}
	return ts
}

// MulScalar returns ts[i] · value.
func (ts Tensors) MulScalar(value Scalar) Tensors {
	if len(ts) == 0 {
		return Tensors{}
	}
	return ForeachMulScalar(ts, value)
}

// MulScalar_ multiplies ts[i] by value in place.
func (ts Tensors) MulScalar_(value Scalar) Tensors {
	if len(ts) > 0 {
		ForeachMulScalar_(ts, value)
	}
	return ts
}

// DivScalar returns ts[i] / value.
func (ts Tensors) DivScalar(value Scalar) Tensors {
	if len(ts) == 0 {
		return Tensors{}
	}
	return ForeachDivScalar(ts, value)
}

// DivScalar_ divides ts[i] by value in place.
func (ts Tensors) DivScalar_(value Scalar) Tensors {
	if len(ts) > 0 {
		ForeachDivScalar_(ts, value)
	}
	return ts
}

// Neg returns -ts[i].
func (ts Tensors) Neg() Tensors {
	if len(ts) == 0 {
		return Tensors{}
	}
	return ForeachNeg(ts)
}

// Zero_ sets all elements to zero.
func (ts Tensors) Zero_() Tensors {
	if len(ts) > 0 {
		ForeachZero_(ts)
	}
	return ts
}

// Copy_ copies src[i] to ts[i], converting dtype and device.
func (ts Tensors) Copy_(src []Tensor) Tensors {
	if !ts.noPairs("Copy_", src) {
		ForeachCopy_(ts, src)
	}
	return ts
}

// Clone returns a copy of each tensor.
func (ts Tensors) Clone() Tensors {
	if len(ts) == 0 {
		return Tensors{}
	}
	return ForeachClone(ts)
}

// Norm returns the 2-norm of all elements of all tensors together, a tensor of no dimensions; of an
// empty Tensors, 0.
func (ts Tensors) Norm() Tensor {
	if len(ts) == 0 {
		return Zeros(nil)
	}
	norms := ForeachNormScalar(ts)
	defer Tensors(norms).Close()
	all := Stack(norms)
	defer all.Close()
	return LinalgVectorNorm(all)
}

// Numel returns the number of elements of all tensors together.
func (ts Tensors) Numel() int64 {
	n := int64(0)
	for _, t := range ts {
		n += t.Numel()
	}
	return n
}

// Close closes each tensor; see [Tensor.Close].
func (ts Tensors) Close() {
	words := make([]*unsafe.Pointer, 0, len(ts))
	for _, t := range ts {
		if t.Defined() {
			words = append(words, t.T)
		}
	}
	if len(words) > 0 {
		ctorch.CloseWords(words, false)
	}
}

// noPairs reports whether there is nothing to do. It leaves lists of different lengths to PyTorch,
// which says so in its own words, but for those that it does not see.
func (ts Tensors) noPairs(op string, other []Tensor) bool {
	if len(ts) == 0 && len(other) > 0 {
		panic(newError(op, RuntimeError, "an empty list of tensors with one that is not empty"))
	}
	return len(ts) == 0
}
