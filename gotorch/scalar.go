package gotorch

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Scalar is a number: any Go integer, float, complex or bool. PyTorch's type promotion tells them
// apart, so 2 and 2.0 are different scalars. In options nil means the default.
type Scalar interface{}

// cScalar is the C ABI's Scalar.
type cScalar ctorch.Scalar

const (
	scalarBool    = ctorch.ScalarBool
	scalarInt     = ctorch.ScalarInt
	scalarFloat   = ctorch.ScalarFloat
	scalarComplex = ctorch.ScalarComplex
	scalarUint    = ctorch.ScalarUInt // above the largest int64
)

func makeScalar(s Scalar, op opID, arg string) cScalar {
	switch v := s.(type) {
	case int:
		return cScalar{Kind: scalarInt, A: uint64(v)}
	case float64:
		return floatScalar(v)
	}
	c, ok := convertScalar(s)
	if !ok {
		panic(badScalar(s, op.String(), arg))
	}
	return c
}

// optScalar is makeScalar where nil means none.
func optScalar(s Scalar, op opID, arg string) cScalar {
	if s == nil {
		return cScalar{}
	}
	return makeScalar(s, op, arg)
}

// makeScalars returns a list of numbers as C wants them.
func makeScalars(ss []Scalar, op opID, arg string) (unsafe.Pointer, int64) {
	if len(ss) == 0 {
		return nil, 0
	}
	cs := make([]cScalar, len(ss))
	for i, s := range ss {
		cs[i] = makeScalar(s, op, arg)
	}
	return unsafe.Pointer(&cs[0]), int64(len(cs))
}

func convertScalar(s Scalar) (c cScalar, ok bool) {
	converted, ok := ctorch.ScalarOf(s)
	return cScalar(converted), ok
}

func floatScalar(x float64) cScalar { return cScalar(ctorch.FloatScalar(x)) }

func complexScalar(z complex128) cScalar { return cScalar(ctorch.ComplexScalar(z)) }

//go:noinline
func badScalar(s Scalar, op, arg string) *Error {
	if s == nil {
		return newError(op, TypeError, "argument '"+arg+"' is nil, where a number is required")
	}
	return newError(op, TypeError, "argument '"+arg+"' must be a Go integer, float, complex or bool, not "+reflect.TypeOf(s).String())
}

// value returns the number: bool, int64, uint64, float64 or complex128; nil for none.
func (c cScalar) value() Scalar { return ctorch.Scalar(c).Value() }

// misfit is why a Go type cannot hold a number.
type misfit int

const (
	itFits misfit = iota
	overflow
	imaginary
)

// into stores the number in a variable of a Go number or bool. Where the variable cannot hold it, it
// says why and stores nothing: fractions may be lost, but no number becomes another one.
func (c cScalar) into(v reflect.Value) misfit {
	var re, im float64
	isInt := false
	switch c.Kind {
	case scalarFloat:
		re = math.Float64frombits(c.A)
	case scalarComplex:
		re, im = math.Float64frombits(c.A), math.Float64frombits(c.B)
	case scalarUint:
		re, isInt = float64(c.A), true
	default:
		re, isInt = float64(int64(c.A)), true
	}
	kind := v.Kind()
	if im != 0 && kind != reflect.Complex64 && kind != reflect.Complex128 && kind != reflect.Bool {
		return imaginary
	}
	switch p := v.Addr().Interface().(type) {
	case *F16:
		if math.Abs(re) > 65504 && !math.IsInf(re, 0) {
			return overflow
		}
		*p = F16FromFloat32(float32(re))
		return itFits
	case *BF16:
		if math.Abs(re) > 0x1.fep127 && !math.IsInf(re, 0) {
			return overflow
		}
		*p = BF16FromFloat32(float32(re))
		return itFits
	}
	switch kind {
	case reflect.Bool:
		v.SetBool(re != 0 || im != 0) // also of NaN
	case reflect.Complex64, reflect.Complex128:
		if v.OverflowComplex(complex(re, im)) {
			return overflow
		}
		v.SetComplex(complex(re, im))
	case reflect.Float32, reflect.Float64:
		if v.OverflowFloat(re) {
			return overflow
		}
		v.SetFloat(re)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		n := c.A
		if !isInt {
			if !(re >= 0 && re < math.Ldexp(1, v.Type().Bits())) { // NaN is neither
				return overflow
			}
			n = uint64(re)
		} else if c.Kind != scalarUint && int64(n) < 0 {
			return overflow
		}
		if v.OverflowUint(n) {
			return overflow
		}
		v.SetUint(n)
	default:
		n := int64(c.A)
		if !isInt {
			if end := math.Ldexp(1, v.Type().Bits()-1); !(re >= -end && re < end) {
				return overflow
			}
			n = int64(re)
		} else if c.Kind == scalarUint && n < 0 {
			return overflow // above the largest int64
		}
		if v.OverflowInt(n) {
			return overflow
		}
		v.SetInt(n)
	}
	return itFits
}

// mustBe is into for what must be held. It panics with a RuntimeError, or with a TypeError for an
// imaginary part that gets lost.
func (c cScalar) mustBe(op string, v reflect.Value) {
	switch c.into(v) {
	case imaginary:
		panic(newError(op, TypeError, fmt.Sprintf("%v has an imaginary part, which %s cannot hold", c.value(), v.Type())))
	case overflow:
		panic(newError(op, RuntimeError, fmt.Sprintf(
			"value cannot be converted to type %s without overflow: it is %v; take a type that holds it", v.Type(), c.value())))
	}
}
