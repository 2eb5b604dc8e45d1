package gotorch

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Element is a Go type that tensors can hold. int is int64, uint is uint64.
type Element interface {
	~bool | ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128 | F16 | BF16
}

var kindDTypes = [...]DType{
	reflect.Bool: Bool, reflect.Int: Int64, reflect.Int8: Int8, reflect.Int16: Int16, reflect.Int32: Int32,
	reflect.Int64: Int64, reflect.Uint: Uint64, reflect.Uint8: Uint8, reflect.Uint16: Uint16,
	reflect.Uint32: Uint32, reflect.Uint64: Uint64, reflect.Float32: Float32, reflect.Float64: Float64,
	reflect.Complex64: Complex64, reflect.Complex128: Complex128, reflect.UnsafePointer: 0,
}

// elementTypes are the types of the numbers that a dtype does not hold all of, and that NewTensor
// refuses then. A number too large for a float is infinite, in Python too.
var elementTypes = map[DType]reflect.Type{
	Int8: reflect.TypeFor[int8](), Int16: reflect.TypeFor[int16](), Int32: reflect.TypeFor[int32](), Int64: reflect.TypeFor[int64](),
	Uint8: reflect.TypeFor[uint8](), Uint16: reflect.TypeFor[uint16](), Uint32: reflect.TypeFor[uint32](), Uint64: reflect.TypeFor[uint64](),
	Float16: reflect.TypeFor[float64](), BFloat16: reflect.TypeFor[float64](), Float32: reflect.TypeFor[float64](),
	Float64: reflect.TypeFor[float64](),
}

// DTypeOf returns the dtype that holds T's values: Float32 for float32, Int64 for int, Float16 for F16.
func DTypeOf[T Element]() DType { return dtypeOf(reflect.TypeFor[T]()) }

// FromSlice copies data into a new CPU tensor of the given shape; without a shape, of one dimension.
// It panics with a ValueError if the shape does not have as many elements as data.
//
// An empty list that is not nil is a shape, that of no dimensions and one element. So
// FromSlice(data, t.Shape()...) has t's shape, whatever it is.
func FromSlice[T Element](data []T, shape ...int64) Tensor {
	return fromBytes("FromSlice", unsafe.Pointer(unsafe.SliceData(data)), len(data), DTypeOf[T](), orFlat(shape, len(data)))
}

// orFlat returns shape, or that of one dimension with n elements where none is given.
func orFlat(shape []int64, n int) []int64 {
	if shape == nil {
		return []int64{int64(n)}
	}
	return shape
}

// FromScalar makes a CPU tensor of no dimensions and one element.
func FromScalar[T Element](value T) Tensor {
	return fromBytes("FromScalar", unsafe.Pointer(&value), 1, DTypeOf[T](), nil)
}

// FromRaw copies the bits of elements into a new CPU tensor. It serves the dtypes that Go has no
// type for, like Float16 and Float8E5M2. The shape is as in [FromSlice]. It panics with a ValueError if
// data does not fit it.
func FromRaw(data []byte, dtype DType, shape ...int64) Tensor {
	if dtype == 0 {
		panic(newError("FromRaw", TypeError, "argument 'dtype' is the zero DType, where a dtype is required"))
	}
	if size := dtype.Size(); size > 0 && len(data)%size != 0 {
		panic(newError("FromRaw", ValueError, fmt.Sprintf("%d bytes are no whole number of %s elements", len(data), dtype)))
	}
	n := len(data) / max(1, dtype.Size())
	return fromBytes("FromRaw", unsafe.Pointer(unsafe.SliceData(data)), n, dtype, orFlat(shape, n))
}

func fromBytes(op string, data unsafe.Pointer, n int, dtype DType, shape []int64) Tensor {
	if !fits(shape, n) {
		panic(newError(op, ValueError, fmt.Sprintf("shape %v does not have the %d elements of the data", shape, n)))
	}
	var result ctorch.Tensor
	for again := false; ; again = true {
		err := ctorch.TensorFromData(data, int64(n*dtype.Size()), unsafe.SliceData(shape), int64(len(shape)),
			int32(dtype-1), &result)
		if err == nil {
			break
		}
		if e := takeError(op, unsafe.Pointer(err)); again || !makeRoom(e) {
			panic(e)
		}
	}
	return wrapHandle(result)
}

// fits reports whether shape has n elements.
func fits(shape []int64, n int) bool {
	count := int64(1)
	for _, size := range shape {
		if size < 0 || (size != 0 && count > math.MaxInt64/size) {
			return false
		}
		count *= size
	}
	return count == int64(n)
}

// NewTensor copies a number, or nested slices or arrays of numbers of any depth, into a new CPU tensor
// of that shape. The dtype follows the Go type, unless opts gives one; opts may also name a device.
// It panics with a ValueError if the slices are ragged, with a TypeError for other types, and with a
// RuntimeError if an integer dtype does not hold a number: 300 as Int8, -1 as Uint8.
//
//	gotorch.NewTensor([][]float32{{1, 2}, {3, 4}}) // shape (2, 2)
func NewTensor(data any, opts ...TensorOptions) Tensor {
	v := reflect.ValueOf(data)
	if !v.IsValid() {
		panic(newError("NewTensor", TypeError, "argument 'data' is nil"))
	}
	var shape []int64
	elem := v.Type()
	for u := v; elem.Kind() == reflect.Slice || elem.Kind() == reflect.Array; elem = elem.Elem() {
		n := 0
		if u.IsValid() {
			n = u.Len()
			if n > 0 {
				u = u.Index(0)
			} else {
				u = reflect.Value{}
			}
		}
		shape = append(shape, int64(n))
	}
	dtype := dtypeOf(elem)
	if dtype == 0 {
		panic(newError("NewTensor", TypeError, fmt.Sprintf("argument 'data' must be numbers or nested slices of numbers, not %T", data)))
	}
	count := int64(1)
	for _, n := range shape {
		count *= n
	}
	buffer := make([]byte, 0, int(count)*dtype.Size())
	buffer = appendNested(buffer, v, shape, dtype.Size(), nil)
	t := fromBytes("NewTensor", unsafe.Pointer(unsafe.SliceData(buffer)), int(count), dtype, shape)
	opt := option(opts)
	if opt == (TensorOptions{}) {
		return t
	}
	if to := elementTypes[opt.DType]; to != nil {
		t.mustFit("NewTensor", to)
	}
	result := t.To(ToOptions{DType: opt.DType, Device: opt.Device, Layout: opt.Layout, PinMemory: opt.PinMemory, MemoryFormat: opt.MemoryFormat})
	if result.T != t.T {
		t.Close()
	}
	if opt.RequiresGrad {
		if err := result.setRequiresGrad("NewTensor", true); err != nil {
			panicC("NewTensor", unsafe.Pointer(err))
		}
	}
	return result
}

// appendNested appends the elements of v, which must have the given shape. where is v's own place.
func appendNested(buffer []byte, v reflect.Value, shape []int64, size int, where []int) []byte {
	if len(shape) == 0 {
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		return append(buffer, unsafe.Slice((*byte)(p.UnsafePointer()), size)...)
	}
	n := v.Len()
	if int64(n) != shape[0] {
		panic(newError("NewTensor", ValueError, fmt.Sprintf("ragged data: expected %d elements%s, got %d", shape[0], at(where), n)))
	}
	if len(shape) == 1 && n > 0 {
		if v.Kind() == reflect.Array && !v.CanAddr() {
			p := reflect.New(v.Type())
			p.Elem().Set(v)
			v = p.Elem()
		}
		return append(buffer, unsafe.Slice((*byte)(v.Index(0).Addr().UnsafePointer()), n*size)...)
	}
	for i := range n {
		buffer = appendNested(buffer, v.Index(i), shape[1:], size, append(where, i))
	}
	return buffer
}

func at(where []int) string {
	s := ""
	for _, i := range where {
		s += "[" + strconv.Itoa(i) + "]"
	}
	if s != "" {
		s = " at " + s
	}
	return s
}

// Data returns the elements of t without copying: writing to the slice writes to t. The slice must
// not be used after t is closed; while the slice is in use, keep t in use too.
//
// It panics with a TypeError if T does not stand for t's dtype, with a ValueError if t is not
// contiguous, and with a RuntimeError if t is not in CPU memory.
func Data[T Element](t Tensor) []T {
	i := t.info("Data")
	if d := DType(i.Dtype + 1); d != DTypeOf[T]() {
		panic(newError("Data", TypeError, fmt.Sprintf("a tensor of %s cannot be seen as []%s", d, reflect.TypeFor[T]())))
	}
	return unsafe.Slice((*T)(t.memory("Data", &i)), int(i.Numel))
}

// RawData returns the bits of t's elements without copying, as [Data] does, for any dtype.
func RawData(t Tensor) []byte {
	i := t.info("RawData")
	return unsafe.Slice((*byte)(t.memory("RawData", &i)), int(i.Numel*i.Itemsize))
}

// memory returns where t's elements are, if they lie in CPU memory one after the other.
func (t Tensor) memory(op string, i *tensorInfo) unsafe.Pointer {
	switch d := deviceOf(i.Device); {
	case d.Type() != DeviceTypeCPU:
		panic(newError(op, RuntimeError, "the tensor is on "+d.String()+", not in CPU memory"))
	case i.Flags&ctorch.TensorContiguous == 0:
		panic(newError(op, ValueError, "the tensor is not contiguous: call Contiguous first"))
	case i.Flags&(ctorch.TensorConj|ctorch.TensorNeg) != 0:
		panic(newError(op, ValueError, "the tensor is lazily conjugated or negated: call ResolveConj or ResolveNeg first"))
	}
	var data unsafe.Pointer
	if err := ctorch.Data(t.wordOf(op, "self"), &data); err != nil {
		panicC(op, unsafe.Pointer(err))
	}
	runtime.KeepAlive(t.T)
	if data == nil && i.Numel > 0 {
		if t.isTransformed() {
			panic(newError(op, RuntimeError, "inside of a function that is transformed a tensor has no memory of its own: return it, and read the result"))
		}
		panic(newError(op, RuntimeError, "the tensor has no memory of its own"))
	}
	return data
}

// ToSlice copies the elements of t, row by row, into a new slice. Unlike [Data] it takes any tensor:
// of any dtype, on any device, with any strides. Elements are converted as [Item] converts them, and it
// panics as Item does where T does not hold one.
func ToSlice[T Element](t Tensor) []T {
	var out []T
	t.copyOut("ToSlice", reflect.TypeFor[T](), func(n int) unsafe.Pointer {
		out = make([]T, n)
		return unsafe.Pointer(unsafe.SliceData(out))
	})
	return out
}

// copyOut copies the elements of t, row by row, as values of a type to where there is room for n of them.
func (t Tensor) copyOut(op string, to reflect.Type, room func(n int) unsafe.Pointer) {
	want := dtypeOf(to)
	i := t.info(op)
	if DType(i.Dtype+1) != want {
		t.mustFit(op, to)
		t = t.Detach().To(want)
		defer t.Close()
	}
	n := int(i.Numel)
	err := ctorch.CopyOut(t.wordOf(op, "t"), room(n), int64(n*want.Size()))
	runtime.KeepAlive(t.T)
	if err != nil {
		panicC(op, unsafe.Pointer(err))
	}
}

// ToList copies the elements of t into nested slices, one level for each dimension, as Python's tolist:
//
//	rows := gotorch.ToList[[][]float32](t)
//
// L is slices of an [Element] type within one another, or that type itself for a tensor without dimensions. Elements are converted as
// [Item] converts them, and ToList panics as Item does where the type does not hold one; and with a TypeError if L has not as
// many levels as t has dimensions.
func ToList[L any](t Tensor) (list L) {
	const op = "ToList"
	shape := t.Shape()
	v := reflect.ValueOf(&list).Elem()
	elem := v.Type()
	for range shape {
		if elem.Kind() != reflect.Slice {
			break
		}
		elem = elem.Elem()
	}
	if dtypeOf(elem) == 0 || v.Type() != listOf(elem, len(shape)) {
		panic(newError(op, TypeError, fmt.Sprintf("a tensor of shape %v is %s of numbers, and no %v", shape, strings.Repeat("[]", len(shape)), v.Type())))
	}
	var flat reflect.Value
	t.copyOut(op, elem, func(n int) unsafe.Pointer {
		flat = reflect.MakeSlice(reflect.SliceOf(elem), max(n, 1), max(n, 1)) // where there is an element for what has no dimensions
		return flat.UnsafePointer()
	})
	nest(v, flat, shape)
	return list
}

// listOf returns the type of slices within slices.
func listOf(elem reflect.Type, dims int) reflect.Type {
	for range dims {
		elem = reflect.SliceOf(elem)
	}
	return elem
}

// nest makes to the elements of flat in a shape. Rows end where the next begins, so that appending to one does not write into it.
func nest(to, flat reflect.Value, shape []int64) {
	switch len(shape) {
	case 0:
		to.Set(flat.Index(0))
		return
	case 1:
		n := int(shape[0])
		to.Set(flat.Slice3(0, n, n).Convert(to.Type()))
		return
	}
	rows := int(shape[0])
	to.Set(reflect.MakeSlice(to.Type(), rows, rows))
	size := 1
	for _, n := range shape[1:] {
		size *= int(n)
	}
	for i := range rows {
		nest(to.Index(i), flat.Slice(i*size, (i+1)*size), shape[1:])
	}
}

// Item returns the only element of t as a T. A fraction is cut off where T is an integer, and a bool
// says whether the number is not zero. It panics with a RuntimeError if t has not exactly one element,
// or if T does not hold the number: 300 as an int8, -1 as a uint8, NaN as an int, 1e300 as a float32.
// It panics with a TypeError if the number has an imaginary part and T has none.
//
// These are the rules of C++'s item<T>(), except that it makes a large unsigned number of a negative
// one.
func Item[T Element](t Tensor) (result T) {
	c := t.item("Item")
	c.mustBe("Item", reflect.ValueOf(&result).Elem())
	return result
}

// mustFit panics as [Item] does if a variable of type to cannot hold an element of t. It looks at the
// elements only where the dtypes leave it open.
func (t Tensor) mustFit(op string, to reflect.Type) {
	from, want, v := t.DType(), dtypeOf(to), reflect.New(to).Elem()
	if from == want || want == Bool || t.Device() == Meta {
		return
	}
	inexact := want.IsFloatingPoint() || want.IsComplex()
	switch {
	case from.IsComplex():
		if want == Complex128 || want == Complex64 && from != Complex128 {
			return
		}
		elements := ToSlice[complex128](t)
		parts := make([]float64, 0, 2*len(elements))
		for _, z := range elements {
			if imag(z) != 0 && !want.IsComplex() {
				complexScalar(z).mustBe(op, v)
			}
			parts = append(parts, real(z), imag(z))
		}
		floatsMustBe(parts, op, v)
	case from.IsFloatingPoint():
		if !inexact || from == Float64 && (want == Float32 || want == Complex64) || want == Float16 || want == BFloat16 {
			floatsMustBe(ToSlice[float64](t), op, v)
		}
	case want == Float16 && from.IsInteger():
		floatsMustBe(ToSlice[float64](t), op, v)
	case !from.IsInteger() || inexact:
	case from == Uint64:
		if elements := ToSlice[uint64](t); len(elements) > 0 {
			cScalar{Kind: scalarUint, A: slices.Max(elements)}.mustBe(op, v)
		}
	case from.Size() < want.Size() && (want.IsSigned() || !from.IsSigned()):
	default:
		if elements := ToSlice[int64](t); len(elements) > 0 {
			cScalar{Kind: scalarInt, A: uint64(slices.Min(elements))}.mustBe(op, v)
			cScalar{Kind: scalarInt, A: uint64(slices.Max(elements))}.mustBe(op, v)
		}
	}
}

// floatsMustBe is mustBe for many numbers. Only the extreme ones are tried.
func floatsMustBe(numbers []float64, op string, v reflect.Value) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, x := range numbers {
		if math.IsNaN(x) || math.IsInf(x, 0) { // floats hold them, and integers do not
			floatScalar(x).mustBe(op, v)
			continue
		}
		low, high = min(low, x), max(high, x)
	}
	if low <= high {
		floatScalar(low).mustBe(op, v)
		floatScalar(high).mustBe(op, v)
	}
}

// Memory that Go lends to libtorch ------------------------------------------------------------------

// FromBlob makes a CPU tensor of data itself: both share the memory, which stays in place until
// libtorch drops the tensor and all its views. The shape is as in [FromSlice]. It panics with a
// ValueError if the shape does not have as many elements as data.
func FromBlob[T Element](data []T, shape ...int64) Tensor {
	return fromBlob(unsafe.Pointer(unsafe.SliceData(data)), len(data), DTypeOf[T](), orFlat(shape, len(data)))
}

func fromBlob(data unsafe.Pointer, n int, dtype DType, shape []int64) Tensor {
	if !fits(shape, n) {
		panic(newError("FromBlob", ValueError, fmt.Sprintf("shape %v does not have the %d elements of the data", shape, n)))
	}
	var at unsafe.Pointer
	if n > 0 {
		at = data
	}
	token := ctorch.LendMemory(at)
	var result ctorch.Tensor
	err := ctorch.BlobOfGo(data, int64(n*dtype.Size()), unsafe.SliceData(shape), int64(len(shape)), int32(dtype-1), token, &result)
	if err != nil {
		ctorch.TakeBack(token)
		panicC("FromBlob", unsafe.Pointer(err))
	}
	return wrapHandle(result)
}
