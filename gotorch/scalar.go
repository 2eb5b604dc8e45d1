package gotorch

import (
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
		return cScalar{kind: scalarFloat, a: math.Float64bits(v)}
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
		return cScalar{kind: scalarFloat, a: math.Float64bits(v.Float())}, true
	case reflect.Complex64, reflect.Complex128:
		z := v.Complex()
		return cScalar{scalarComplex, math.Float64bits(real(z)), math.Float64bits(imag(z))}, true
	}
	return cScalar{}, false
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
