package gotorch

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"
)

// Scalar is a number: any Go integer, float, complex or bool. PyTorch's type promotion tells them
// apart, so 2 and 2.0 are different scalars. In options nil means the default.
type Scalar interface{}

// cScalar is the C ABI's Scalar.
type cScalar struct {
	kind int64
	a, b uint64
}

const (
	scalarNone = iota
	scalarBool
	scalarInt
	scalarFloat
	scalarComplex
	scalarUint // above the largest int64
)

func makeScalar(s Scalar, op opID, arg string) cScalar {
	switch v := s.(type) {
	case int:
		return cScalar{kind: scalarInt, a: uint64(v)}
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
	v := reflect.ValueOf(s)
	switch x := s.(type) {
	case F16:
		return floatScalar(float64(x.Float32())), true
	case BF16:
		return floatScalar(float64(x.Float32())), true
	}
	switch v.Kind() {
	case reflect.Bool:
		return cScalar{kind: scalarBool, a: uint64(boolInt(v.Bool()))}, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return cScalar{kind: scalarInt, a: uint64(v.Int())}, true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		if v.Uint() > math.MaxInt64 {
			return cScalar{kind: scalarUint, a: v.Uint()}, true
		}
		return cScalar{kind: scalarInt, a: v.Uint()}, true
	case reflect.Float32, reflect.Float64:
		return floatScalar(v.Float()), true
	case reflect.Complex64, reflect.Complex128:
		return complexScalar(v.Complex()), true
	}
	return cScalar{}, false
}

func floatScalar(x float64) cScalar { return cScalar{kind: scalarFloat, a: floatBits(x)} }

func complexScalar(z complex128) cScalar {
	return cScalar{scalarComplex, floatBits(real(z)), floatBits(imag(z))}
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

//go:noinline
func badScalar(s Scalar, op, arg string) *Error {
	if s == nil {
		return newError(op, TypeError, "argument '"+arg+"' is nil, where a number is required")
	}
	return newError(op, TypeError, "argument '"+arg+"' must be a Go integer, float, complex or bool, not "+reflect.TypeOf(s).String())
}

// value returns the number: bool, int64, uint64, float64 or complex128; nil for none.
func (c cScalar) value() Scalar {
	switch c.kind {
	case scalarBool:
		return c.a != 0
	case scalarInt:
		return int64(c.a)
	case scalarUint:
		return c.a
	case scalarFloat:
		return math.Float64frombits(c.a)
	case scalarComplex:
		return complex(math.Float64frombits(c.a), math.Float64frombits(c.b))
	}
	return nil
}

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
	switch c.kind {
	case scalarFloat:
		re = math.Float64frombits(c.a)
	case scalarComplex:
		re, im = math.Float64frombits(c.a), math.Float64frombits(c.b)
	case scalarUint:
		re, isInt = float64(c.a), true
	default:
		re, isInt = float64(int64(c.a)), true
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
		n := c.a
		if !isInt {
			if !(re >= 0 && re < math.Ldexp(1, v.Type().Bits())) { // NaN is neither
				return overflow
			}
			n = uint64(re)
		} else if c.kind != scalarUint && int64(n) < 0 {
			return overflow
		}
		if v.OverflowUint(n) {
			return overflow
		}
		v.SetUint(n)
	default:
		n := int64(c.a)
		if !isInt {
			if end := math.Ldexp(1, v.Type().Bits()-1); !(re >= -end && re < end) {
				return overflow
			}
			n = int64(re)
		} else if c.kind == scalarUint && n < 0 {
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
