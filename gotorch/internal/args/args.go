// Package args has what functions with optional arguments share: reading a trailing options struct,
// its pointer fields, and refusing what does not fit.
package args

import (
	"fmt"
	"math"
	"reflect"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/ctorch"
)

// Option returns the options that a function was given, or the zero ones. It panics with a TypeError
// if there are several.
func Option[O any](opts []O) (opt O) {
	switch len(opts) {
	case 0:
	case 1:
		opt = opts[0]
	default:
		panic(TypeError(strings.TrimSuffix(reflect.TypeFor[O]().String(), "Options"), "%s", ctorch.TooMany(len(opts))))
	}
	return opt
}

// Or returns what p points to, or value where p is nil.
func Or[T any](p *T, value T) T {
	if p == nil {
		return value
	}
	return *p
}

// Float returns the real number in the field name of op's options, or value where it was left out. It
// panics with a TypeError if something else is in it.
func Float(op, name string, field gotorch.Scalar, value float64) float64 {
	if f, ok := field.(float64); ok {
		return f
	}
	switch v := number(field); {
	case !v.IsValid():
		return value
	case v.CanFloat():
		return v.Float()
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	panic(TypeError(op, "%s must be a real number, not %T", name, field))
}

// Int is [Float] for an integer. A float is refused, also a whole one, as in Python.
func Int(op, name string, field gotorch.Scalar, value int64) int64 {
	switch n := field.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	}
	switch v := number(field); {
	case !v.IsValid():
		return value
	case v.CanInt():
		return v.Int()
	case v.CanUint() && v.Uint() <= math.MaxInt64:
		return int64(v.Uint())
	case v.CanUint():
		panic(ValueError(op, "%s is %v, which is no int64", name, field))
	}
	panic(TypeError(op, "%s must be an integer, not %T", name, field))
}

// FloatPointer is [Float] for what has no default: nil where it was left out.
func FloatPointer(op, name string, field gotorch.Scalar) *float64 {
	if !Given(field) {
		return nil
	}
	return new(Float(op, name, field, 0))
}

// IntPointer is [Int] for what has no default: nil where it was left out.
func IntPointer(op, name string, field gotorch.Scalar) *int64 {
	if !Given(field) {
		return nil
	}
	return new(Int(op, name, field, 0))
}

// Bool returns the truth value in the field name of op's options, and whether there is one. It panics with
// a TypeError if something else is in it.
func Bool(op, name string, field gotorch.Scalar) (value, given bool) {
	switch v := number(field); {
	case !v.IsValid():
		return false, false
	case v.Kind() == reflect.Bool:
		return v.Bool(), true
	}
	panic(TypeError(op, "%s must be a bool, not %T", name, field))
}

// Seed returns the seed of a generator, and whether there is one. All 64 bits count, so a negative
// one is as good as an unsigned one.
func Seed(op, name string, field gotorch.Scalar) (seed uint64, given bool) {
	switch v := number(field); {
	case !v.IsValid():
		return 0, false
	case v.CanUint():
		return v.Uint(), true
	}
	return uint64(Int(op, name, field, 0)), true
}

// Given reports whether a field was not left out.
func Given(field gotorch.Scalar) bool { return field != nil && number(field).IsValid() }

// number returns what a field holds, or points to: new(0.0) is as good as 0.0. It is not valid where
// the field is nil.
func number(field gotorch.Scalar) reflect.Value {
	v := reflect.ValueOf(field)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}

// Ints returns the numbers of what is an int or int64, or a slice or an array of them: of a Sizes.
func Ints(sizes any) []int64 {
	v := reflect.ValueOf(sizes)
	if v.CanInt() {
		return []int64{v.Int()}
	}
	list := make([]int64, v.Len())
	for i := range list {
		list[i] = v.Index(i).Int()
	}
	return list
}

// Errorf is the panic value for a call of op that is refused.
func Errorf(op string, kind gotorch.ErrorKind, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: kind, Msg: fmt.Sprintf(format, values...)}
}

// TypeError is the panic value for an argument of op that is of a wrong type, or is none.
func TypeError(op, format string, values ...any) *gotorch.Error {
	return Errorf(op, gotorch.TypeError, format, values...)
}

// ValueError is the panic value for an argument of op that does not fit.
func ValueError(op, format string, values ...any) *gotorch.Error {
	return Errorf(op, gotorch.ValueError, format, values...)
}
