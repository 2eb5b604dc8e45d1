package pyload

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/graph"
)

// How values travel: one after the other, without tags, in the byte order of the machine. Both sides
// know the types. Numbers take their width; int and uint take 8 bytes, bool takes 1. Text, []byte,
// slices and maps start with their length in 8 bytes. A tensor is its handle. A pointer is a bool
// and, if that is true, a value. A scalar is a byte that says which of bool, int64, float64,
// complex128 and uint64 follows, with 0 for nil.

// Number is what numbers and slices of them may hold.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// Args are the arguments of a call, to be read in order.
type Args struct{ rest []byte }

// errTruncated is what reading too much panics with: the two sides do not fit each other.
var errTruncated = errors.New("the request is too short: Python and Go disagree about the arguments")

func (a *Args) take(n int) []byte {
	if n < 0 || n > len(a.rest) {
		panic(errTruncated)
	}
	taken := a.rest[:n]
	a.rest = a.rest[n:]
	return taken
}

// Len reads a length.
func (a *Args) Len() int { return int(binary.NativeEndian.Uint64(a.take(8))) }

// Bool reads a bool.
func (a *Args) Bool() bool { return a.take(1)[0] != 0 }

// String reads a string.
func (a *Args) String() string { return string(a.take(a.Len())) }

// Bytes reads a []byte.
func (a *Args) Bytes() []byte { return append([]byte{}, a.take(a.Len())...) }

// Tensor reads a tensor and takes over its handle.
func (a *Args) Tensor() gotorch.Tensor {
	return adopt(uintptr(binary.NativeEndian.Uint64(a.take(8))))
}

// DType reads a dtype.
func (a *Args) DType() gotorch.DType {
	name := a.String()
	if name == "" {
		return 0
	}
	d, err := gotorch.ParseDType(name)
	if err != nil {
		panic(err)
	}
	return d
}

// Device reads a device.
func (a *Args) Device() gotorch.Device {
	name := a.String()
	if name == "" {
		return 0
	}
	d, err := gotorch.ParseDevice(name)
	if err != nil {
		panic(err)
	}
	return d
}

// What a scalar is.
const (
	scalarNil = iota
	scalarBool
	scalarInt
	scalarFloat
	scalarComplex
	scalarUint
)

// Scalar reads a scalar.
func (a *Args) Scalar() gotorch.Scalar {
	switch a.take(1)[0] {
	case scalarNil:
		return nil
	case scalarBool:
		return a.Bool()
	case scalarInt:
		return Get[int64](a)
	case scalarFloat:
		return Get[float64](a)
	case scalarComplex:
		return Get[complex128](a)
	case scalarUint:
		return Get[uint64](a)
	}
	panic(errTruncated)
}

// Get reads a number.
func Get[T Number](a *Args) (v T) {
	copy(bytesOf(&v, 1), a.take(int(unsafe.Sizeof(v))))
	return v
}

// GetNumbers reads a slice of numbers.
func GetNumbers[S ~[]T, T Number](a *Args) S {
	n := a.Len()
	if n > len(a.rest) { // each takes a byte at least
		panic(errTruncated)
	}
	s := make(S, n)
	copy(bytesOf(unsafe.SliceData(s), n), a.take(n*int(unsafe.Sizeof(*new(T)))))
	return s
}

// GetSlice reads a slice, each element with one.
func GetSlice[S ~[]T, T any](a *Args, one func(*Args) T) S {
	n := a.Len()
	if n > len(a.rest) {
		panic(errTruncated)
	}
	s := make(S, n)
	for i := range s {
		s[i] = one(a)
	}
	return s
}

// GetMap reads a map, its keys with key and its values with value.
func GetMap[M ~map[K]V, K comparable, V any](a *Args, key func(*Args) K, value func(*Args) V) M {
	n := a.Len()
	if n > len(a.rest) {
		panic(errTruncated)
	}
	m := make(M, n)
	for range n {
		k := key(a)
		m[k] = value(a)
	}
	return m
}

// GetPointer reads a pointer, what it points to with one.
func GetPointer[T any](a *Args, one func(*Args) T) *T {
	if !a.Bool() {
		return nil
	}
	v := one(a)
	return &v
}

// bytesOf returns the memory of n numbers.
func bytesOf[T Number](p *T, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), n*int(unsafe.Sizeof(*p)))
}

// Results are the results of a call, to be written in order.
type Results struct {
	reply   []byte
	tensors []gotorch.Tensor // that are in reply, each to be given a reference
	err     error
}

// PutLen writes a length.
func (r *Results) PutLen(n int) { r.reply = binary.NativeEndian.AppendUint64(r.reply, uint64(n)) }

// PutBool writes a bool.
func (r *Results) PutBool(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	r.reply = append(r.reply, b)
}

// PutString writes a string.
func (r *Results) PutString(v string) {
	r.PutLen(len(v))
	r.reply = append(r.reply, v...)
}

// PutBytes writes a []byte.
func (r *Results) PutBytes(v []byte) { r.PutString(unsafe.String(unsafe.SliceData(v), len(v))) }

// PutTensor writes a tensor. It panics with a ValueError if t has been closed.
func (r *Results) PutTensor(t gotorch.Tensor) {
	var h uintptr
	if t.T != nil {
		if !t.Defined() {
			panic(&gotorch.Error{Kind: gotorch.ValueError, Msg: "a tensor in the result was closed, or belongs to a Scope that has ended"})
		}
		t = graph.Held(t, "", "result") // until Python has a reference
		h = uintptr(*t.T)
		r.tensors = append(r.tensors, t)
	}
	r.reply = binary.NativeEndian.AppendUint64(r.reply, uint64(h))
}

// PutDType writes a dtype.
func (r *Results) PutDType(d gotorch.DType) {
	if d == 0 {
		r.PutString("")
		return
	}
	r.PutString(d.Name())
}

// PutDevice writes a device.
func (r *Results) PutDevice(d gotorch.Device) {
	if d == 0 {
		r.PutString("")
		return
	}
	r.PutString(d.String())
}

// PutScalar writes a scalar.
func (r *Results) PutScalar(s gotorch.Scalar) {
	switch v := s.(type) {
	case nil:
		r.reply = append(r.reply, scalarNil)
	case bool:
		r.reply = append(r.reply, scalarBool)
		r.PutBool(v)
	case int:
		putTagged(r, scalarInt, int64(v))
	case int8:
		putTagged(r, scalarInt, int64(v))
	case int16:
		putTagged(r, scalarInt, int64(v))
	case int32:
		putTagged(r, scalarInt, int64(v))
	case int64:
		putTagged(r, scalarInt, v)
	case uint8:
		putTagged(r, scalarInt, int64(v))
	case uint16:
		putTagged(r, scalarInt, int64(v))
	case uint32:
		putTagged(r, scalarInt, int64(v))
	case uint:
		putTagged(r, scalarUint, uint64(v))
	case uint64:
		putTagged(r, scalarUint, v)
	case float32:
		putTagged(r, scalarFloat, float64(v))
	case float64:
		putTagged(r, scalarFloat, v)
	case complex64:
		putTagged(r, scalarComplex, complex128(v))
	case complex128:
		putTagged(r, scalarComplex, v)
	default:
		panic(&gotorch.Error{Kind: gotorch.TypeError, Msg: "a scalar in the result is no bool, integer, float or complex number"})
	}
}

func putTagged[T Number](r *Results, tag byte, v T) {
	r.reply = append(r.reply, tag)
	Put(r, v)
}

// Put writes a number.
func Put[T Number](r *Results, v T) { r.reply = append(r.reply, bytesOf(&v, 1)...) }

// PutNumbers writes a slice of numbers.
func PutNumbers[T Number](r *Results, s []T) {
	r.PutLen(len(s))
	r.reply = append(r.reply, bytesOf(unsafe.SliceData(s), len(s))...)
}

// PutSlice writes a slice, each element with one.
func PutSlice[T any](r *Results, s []T, one func(*Results, T)) {
	r.PutLen(len(s))
	for _, v := range s {
		one(r, v)
	}
}

// PutMap writes a map, its keys with key and its values with value.
func PutMap[K comparable, V any](r *Results, m map[K]V, key func(*Results, K), value func(*Results, V)) {
	r.PutLen(len(m))
	for k, v := range m {
		key(r, k)
		value(r, v)
	}
}

// PutPointer writes a pointer, what it points to with one.
func PutPointer[T any](r *Results, p *T, one func(*Results, T)) {
	r.PutBool(p != nil)
	if p != nil {
		one(r, *p)
	}
}

// Fail makes the call an error, if err is one; the results are not handed out then.
func (r *Results) Fail(err error) { r.err = err }
