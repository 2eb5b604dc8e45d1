// Package numeric has what distributions, their transforms and their constraints share: arguments that are
// tensors or numbers, sums over the last dimensions, shapes, and how Python writes numbers.
package numeric

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
)

// Param is a [gotorch.Tensor] or a Go number.
type Param interface{}

// Errorf is the panic value of op.
func Errorf(op string, kind gotorch.ErrorKind, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: kind, Msg: fmt.Sprintf(format, values...)}
}

// AsTensor returns p where it is a tensor.
func AsTensor(p Param) (gotorch.Tensor, bool) {
	t, ok := p.(gotorch.Tensor)
	return t, ok
}

// Number returns p as a bool, int64, uint64 or float64 where it is a real number.
func Number(p Param) (gotorch.Scalar, bool) {
	v := reflect.ValueOf(p)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case !v.IsValid():
	case v.Kind() == reflect.Bool:
		return v.Bool(), true
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return v.Uint(), true
	case v.CanFloat():
		return v.Float(), true
	}
	return nil, false
}

// Float returns a number as a float64.
func Float(number gotorch.Scalar) float64 {
	switch v := number.(type) {
	case bool:
		if v {
			return 1
		}
		return 0
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return number.(float64)
}

// Given reports whether an optional argument was not left out.
func Given(p Param) bool {
	if t, ok := AsTensor(p); ok {
		return t.T != nil
	}
	v := reflect.ValueOf(p)
	return v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil())
}

// IsNil reports whether v is nil, or an interface with a nil pointer in it.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// Check returns p as a tensor or as what Number makes of it. It panics with a TypeError for anything else.
func Check(op, name string, p Param) Param {
	if t, ok := AsTensor(p); ok {
		if t.T == nil {
			panic(Errorf(op, gotorch.TypeError, "%s is none, where a tensor or a number is required", name))
		}
		return t
	}
	if n, ok := Number(p); ok {
		return n
	}
	if p == nil {
		panic(Errorf(op, gotorch.TypeError, "%s is nil, where a tensor or a number is required", name))
	}
	panic(Errorf(op, gotorch.TypeError, "%s must be a gotorch.Tensor or a real number, not %T", name, p))
}

// MustTensor panics with a TypeError where t is none.
func MustTensor(op, name string, t gotorch.Tensor) gotorch.Tensor {
	if t.T == nil {
		panic(Errorf(op, gotorch.TypeError, "%s is none, where a tensor is required", name))
	}
	return t
}

// Broadcast makes tensors of one shape of its arguments. Numbers become tensors of the dtype and device of the
// first tensor among them, or of the default dtype.
func Broadcast(op string, names []string, params ...Param) []gotorch.Tensor {
	var like gotorch.TensorOptions
	for i, p := range params {
		params[i] = Check(op, names[i], p)
	}
	for _, p := range params {
		if t, ok := AsTensor(p); ok {
			like = Like(t)
			break
		}
	}
	tensors := make([]gotorch.Tensor, len(params))
	for i, p := range params {
		t, ok := AsTensor(p)
		if !ok {
			t = Made(p, like)
		}
		tensors[i] = t
	}
	return gotorch.BroadcastTensors(tensors)
}

// Made is a tensor of a number: a float of the default dtype where none is given.
func Made(number gotorch.Scalar, like gotorch.TensorOptions) gotorch.Tensor {
	if like.DType == 0 {
		like.DType = gotorch.DefaultDType()
	}
	return gotorch.ScalarTensor(number, like)
}

// Like are the options for a tensor of t's dtype, on t's device.
func Like(t gotorch.Tensor) gotorch.TensorOptions {
	return gotorch.TensorOptions{DType: t.DType(), Device: t.Device()}
}

// The operators of Python where one of both is a number, and arguments that may be either.

// Add is a + b.
func Add(a, b Param) gotorch.Tensor {
	if t, ok := AsTensor(a); ok {
		if u, ok := AsTensor(b); ok {
			return t.Add(u)
		}
		return t.AddScalar(b)
	}
	return b.(gotorch.Tensor).AddScalar(a)
}

// Mul is a * b.
func Mul(a, b Param) gotorch.Tensor {
	if t, ok := AsTensor(a); ok {
		if u, ok := AsTensor(b); ok {
			return t.Mul(u)
		}
		return t.MulScalar(b)
	}
	return b.(gotorch.Tensor).MulScalar(a)
}

// Sub is t - b.
func Sub(t gotorch.Tensor, b Param) gotorch.Tensor {
	if u, ok := AsTensor(b); ok {
		return t.Sub(u)
	}
	return t.SubScalar(b)
}

// Div is t / b.
func Div(t gotorch.Tensor, b Param) gotorch.Tensor {
	if u, ok := AsTensor(b); ok {
		return t.Div(u)
	}
	return t.DivScalar(b)
}

// From is n - t.
func From(n gotorch.Scalar, t gotorch.Tensor) gotorch.Tensor { return gotorch.RsubScalar(t, n) }

// Over is n / t, which Python computes as n times the reciprocal.
func Over(n gotorch.Scalar, t gotorch.Tensor) gotorch.Tensor { return t.Reciprocal().MulScalar(n) }

// Minus is a - b, of two that may each be a tensor or a number.
func Minus(a, b Param) Param {
	t, isTensor := AsTensor(a)
	if isTensor {
		return Sub(t, b)
	}
	if u, ok := AsTensor(b); ok {
		return From(a, u)
	}
	i, whole := a.(int64)
	j, both := b.(int64)
	if whole && both {
		return i - j
	}
	return Float(a) - Float(b)
}

// Le is a <= t.
func Le(a Param, t gotorch.Tensor) gotorch.Tensor {
	if u, ok := AsTensor(a); ok {
		return u.Le(t)
	}
	return t.GeScalar(a)
}

// Lt is a < t.
func Lt(a Param, t gotorch.Tensor) gotorch.Tensor {
	if u, ok := AsTensor(a); ok {
		return u.Lt(t)
	}
	return t.GtScalar(a)
}

// AtMost is t <= b.
func AtMost(t gotorch.Tensor, b Param) gotorch.Tensor {
	if u, ok := AsTensor(b); ok {
		return t.Le(u)
	}
	return t.LeScalar(b)
}

// Below is t < b.
func Below(t gotorch.Tensor, b Param) gotorch.Tensor {
	if u, ok := AsTensor(b); ok {
		return t.Lt(u)
	}
	return t.LtScalar(b)
}

// AtLeast is t >= b.
func AtLeast(t gotorch.Tensor, b Param) gotorch.Tensor {
	if u, ok := AsTensor(b); ok {
		return t.Ge(u)
	}
	return t.GeScalar(b)
}

// SumRightmost sums over the last n dimensions.
func SumRightmost(t gotorch.Tensor, n int64) gotorch.Tensor {
	if n == 0 {
		return t
	}
	return t.Reshape(Join(Front(t.Shape(), n), -1)).SumDim([]int64{-1})
}

// Whole reports whether all elements are true.
func Whole(t gotorch.Tensor) bool { return gotorch.Item[bool](t.All()) }

// Exists reports whether an element is true.
func Exists(t gotorch.Tensor) bool { return gotorch.Item[bool](t.Any()) }

// Eps and Tiny are those of torch.finfo. They panic with a TypeError for what is no dtype of floats.
func Eps(d gotorch.DType) float64 { return limits(d)[0] }

// Tiny is the smallest normal number.
func Tiny(d gotorch.DType) float64 { return limits(d)[1] }

// Lowest is the most negative number.
func Lowest(d gotorch.DType) float64 { return limits(d)[2] }

func limits(d gotorch.DType) [3]float64 {
	switch d.ToReal() {
	case gotorch.Float32:
		return [3]float64{0x1p-23, 0x1p-126, -math.MaxFloat32}
	case gotorch.Float64:
		return [3]float64{0x1p-52, 0x1p-1022, -math.MaxFloat64}
	case gotorch.Float16:
		return [3]float64{0x1p-10, 0x1p-14, -65504}
	case gotorch.BFloat16:
		return [3]float64{0x1p-7, 0x1p-126, -0x1.FEp127}
	}
	panic(Errorf("", gotorch.TypeError, "a tensor of floats is required, not of %s", d))
}

// Join returns the elements of shape and those that follow, in a new list.
func Join(shape []int64, more ...int64) []int64 { return slices.Concat(shape, more) }

// Front returns shape without its last n sizes; nothing where it has fewer.
func Front(shape []int64, n int64) []int64 {
	return shape[:max(0, len(shape)-int(n))]
}

// Product is the number of elements of a shape.
func Product(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
}

// BroadcastShapes returns the shape that tensors of these shapes have in common. It panics with a RuntimeError
// where there is none, and with a ValueError for a negative size.
func BroadcastShapes(op string, shapes ...[]int64) []int64 {
	var out []int64
	for _, s := range shapes {
		out = append(slices.Repeat([]int64{1}, max(0, len(s)-len(out))), out...)
	}
	for _, s := range shapes {
		for i, n := range s {
			at := len(out) - len(s) + i
			switch {
			case n < 0:
				panic(Errorf(op, gotorch.ValueError, "a size is negative: %s", Size(s)))
			case n == 1 || n == out[at]:
			case out[at] == 1:
				out[at] = n
			default:
				texts := make([]string, len(shapes))
				for j, s := range shapes {
					texts[j] = Size(s)
				}
				panic(Errorf(op, gotorch.RuntimeError, "the shapes %s cannot be broadcast to one", strings.Join(texts, " and ")))
			}
		}
	}
	return out
}

// ShapeOf returns the shape of a tensor, and that of no dimensions for a number.
func ShapeOf(p Param) []int64 {
	if t, ok := AsTensor(p); ok {
		return t.Shape()
	}
	return nil
}

// Text writes a tensor or number as Python's format does: a tensor without dimensions is a number.
func Text(p Param) string {
	switch v := p.(type) {
	case gotorch.Tensor:
		if v.Dim() == 0 {
			return Text(v.Item())
		}
		return v.String()
	case float64:
		return FloatText(v)
	case bool:
		if v {
			return "True"
		}
		return "False"
	}
	return fmt.Sprint(p)
}

// FloatText writes a float as Python's repr does.
func FloatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == 0 || math.Abs(f) >= 1e-4 && math.Abs(f) < 1e16:
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// Size writes a shape as PyTorch does: torch.Size([2, 3]).
func Size(shape []int64) string { return "torch.Size([" + joined(shape) + "])" }

// Tuple writes a shape as a tuple of Python's: (2, 3), (2,), ().
func Tuple(shape []int64) string {
	if len(shape) == 1 {
		return "(" + joined(shape) + ",)"
	}
	return "(" + joined(shape) + ")"
}

func joined(shape []int64) string {
	parts := make([]string, len(shape))
	for i, n := range shape {
		parts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(parts, ", ")
}
