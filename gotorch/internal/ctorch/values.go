package ctorch

/*
#include <cgotorch.h>
*/
import "C"

import (
	"math"
	"reflect"
	"unsafe"
)

// Structs of C with a union, which cgo shows as bytes.

// Scalar is the C ABI's Scalar.
type Scalar struct {
	Kind int64
	A, B uint64
}

// Value is the C ABI's Value.
type Value struct {
	Kind, Len int64
	V         [3]uint64
}

// IndexTerm is the C ABI's IndexTerm.
type IndexTerm struct {
	Kind              int64
	Start, Stop, Step int64
	Of                unsafe.Pointer
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(Scalar{})-C.sizeof_Scalar]
	_ = [1]struct{}{}[unsafe.Sizeof(Value{})-C.sizeof_Value]
	_ = [1]struct{}{}[unsafe.Sizeof(IndexTerm{})-C.sizeof_IndexTerm]
)

// ScalarOf returns a number as C takes it: any Go integer, float, complex or bool, gotorch.F16 and BF16.
func ScalarOf(s any) (c Scalar, ok bool) {
	v := reflect.ValueOf(s)
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return Scalar{Kind: ScalarBool, A: 1}, true
		}
		return Scalar{Kind: ScalarBool}, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Scalar{Kind: ScalarInt, A: uint64(v.Int())}, true
	case reflect.Struct:
		if half, ok := s.(interface{ Float32() float32 }); ok && v.Type().PkgPath() == "gotorch.dev/gotorch" {
			return FloatScalar(float64(half.Float32())), true
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		if v.Uint() > math.MaxInt64 {
			return Scalar{Kind: ScalarUInt, A: v.Uint()}, true
		}
		return Scalar{Kind: ScalarInt, A: v.Uint()}, true
	case reflect.Float32, reflect.Float64:
		return FloatScalar(v.Float()), true
	case reflect.Complex64, reflect.Complex128:
		return ComplexScalar(v.Complex()), true
	}
	return Scalar{}, false
}

// FloatScalar is [ScalarOf] for a float64, and ComplexScalar for a complex128.
func FloatScalar(x float64) Scalar { return Scalar{Kind: ScalarFloat, A: floatBits(x)} }

// ComplexScalar is [ScalarOf] for a complex128.
func ComplexScalar(z complex128) Scalar {
	return Scalar{ScalarComplex, floatBits(real(z)), floatBits(imag(z))}
}

// floatBits returns the bits of x. In place of math.NaN(), whose last bit is set, it returns those of Python's nan, so that the same
// call gives the same bits. Other NaNs keep their sign and payload.
func floatBits(x float64) uint64 {
	const nan = 0x7FF8000000000000
	bits := math.Float64bits(x)
	if bits == nan+1 {
		return nan
	}
	return bits
}

// Value returns the number: bool, int64, uint64, float64 or complex128; nil for none.
func (c Scalar) Value() any {
	switch c.Kind {
	case ScalarBool:
		return c.A != 0
	case ScalarInt:
		return int64(c.A)
	case ScalarUInt:
		return c.A
	case ScalarFloat:
		return math.Float64frombits(c.A)
	case ScalarComplex:
		return complex(math.Float64frombits(c.A), math.Float64frombits(c.B))
	}
	return nil
}

// NamedTuple is a tuple with names, among the values of scripts. Name is that of its type, and may be "" for an argument.
type NamedTuple struct {
	Name   string
	Fields []string
	Values []any
}

// Enum is a member of an enum. Type and Value may be left out of an argument.
type Enum struct {
	Type, Name string
	Value      any
}
