package gotorch

/*
#include <cgotorch.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

// Operator is an operator that is registered with PyTorch under a name, whether or not this package
// has a function for it: private ones, and those of libraries that [LoadLibrary] has loaded.
type Operator struct {
	h    C.Operator
	name string
}

// FindOperator returns the operator of a name and overload: ("aten::add", "Tensor"). The overload of
// most operators is "". The error is an *Error of kind AttributeError.
func FindOperator(name, overload string) (*Operator, error) {
	op := &Operator{name: name}
	if overload != "" {
		op.name += "." + overload
	}
	cName, cOverload := C.CString(name), C.CString(overload)
	defer C.free(unsafe.Pointer(cName))
	defer C.free(unsafe.Pointer(cOverload))
	if err := C.FindOperator(cName, cOverload, &op.h); err != nil {
		return nil, takeError(op.name, unsafe.Pointer(err))
	}
	return op, nil
}

// Name returns the name and overload, "aten::add.Tensor".
func (op *Operator) Name() string { return op.name }

// Schema returns the signature, "aten::mm(Tensor self, Tensor mat2) -> Tensor".
func (op *Operator) Schema() string {
	var s *C.char
	if err := C.OperatorSchema(op.h, &s); err != nil {
		panicC(op.name, unsafe.Pointer(err))
	}
	defer C.FreeString(s)
	return C.GoString(s)
}

// Operators returns the schemas of all registered operators, sorted.
func Operators() []string {
	var s *C.char
	if err := C.ListOperators(&s); err != nil {
		panicC("Operators", unsafe.Pointer(err))
	}
	defer C.FreeString(s)
	return strings.Split(strings.TrimSuffix(C.GoString(s), "\n"), "\n")
}

// LoadLibrary loads a shared library that registers operators. It stays loaded.
func LoadLibrary(path string) error {
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	if err := C.LoadOperatorLibrary(cPath); err != nil {
		return takeError("LoadLibrary", unsafe.Pointer(err))
	}
	return nil
}

// Call calls an operator by its name. It is [FindOperator] and [Operator.Call] in one, and panics if
// there is no such operator.
func Call(name, overload string, args ...any) []any {
	op, err := FindOperator(name, overload)
	if err != nil {
		panic(err)
	}
	return op.Call(args...)
}

// NamedArg is an argument given by name: see [Named].
type NamedArg struct {
	Name  string
	Value any
}

// Named gives an argument of [Operator.Call] by its name. Named arguments come last.
func Named(name string, value any) NamedArg { return NamedArg{name, value} }

// Object is a value of an operator that has no form in Go, such as packed weights. It can be handed
// to other operators.
type Object struct {
	c        owner
	isModule bool // of TorchScript
}

// Call calls op. The types of args and results are dynamic, because the operator may be one that
// nobody knew of when this program was compiled:
//
//	Tensor, Tensor?        Tensor; nil or the zero Tensor is none
//	int, SymInt            any Go integer; as a result int64
//	float                  any Go float or integer; as a result float64
//	complex                any Go number; as a result complex128
//	Scalar                 any of these, or bool
//	bool, str, Device      bool, string, Device
//	ScalarType, Layout, MemoryFormat   DType, Layout, MemoryFormat; as a result int64
//	Generator, Storage, Stream         *Generator, *Storage, Stream
//	T[]                    a slice; as a result []Tensor, []int64, []float64, []bool, []complex128,
//	                       []string, else []any
//	tuples                 Tuple
//	Dict(K, V)             Dict, or as an argument any map
//	anything else          *Object
//
// Arguments that are not given take the schema's defaults. It panics with a TypeError if the
// arguments do not fit the schema, and as the operator does.
func (op *Operator) Call(args ...any) []any {
	c := caller{op: op.name}
	defer c.free()
	names := c.names(args)
	for _, arg := range args {
		if named, ok := arg.(NamedArg); ok {
			arg = named.Value
		}
		c.add(arg)
	}
	var results *C.Value
	var n C.int64_t
	state := enterBack()
	err := C.CallOperator(op.h, unsafe.SliceData(c.values), C.int64_t(len(c.values)), names, C.int64_t(len(args)), &results, &n)
	warnings := leaveBack(state)
	runtime.KeepAlive(args)
	taken := false
	defer func() { C.FreeValues(results, n, C.bool(!taken)) }()
	if err != nil {
		defer warnings.handOn(true)
		panicC(op.name, unsafe.Pointer(err))
	}
	warnings.handOn(true) // if that panics, FreeValues frees the results

	taken = true
	r := resultReader{unsafe.Slice(results, n)}
	var out []any
	for len(r.values) > 0 {
		out = append(out, r.next())
	}
	return out
}

// caller puts arguments into the form that C takes.
type caller struct {
	op      string
	values  []C.Value
	strings []unsafe.Pointer // to be freed
	held    holder
	depth   int // of the lists around the value that is added
}

func (c *caller) free() {
	for _, s := range c.strings {
		C.free(s)
	}
	c.held.free()
}

func (c *caller) cString(s string) *C.char {
	p := C.CString(s)
	c.strings = append(c.strings, unsafe.Pointer(p))
	return p
}

// names returns the names of the arguments as C takes them: nil if none has one.
func (c *caller) names(args []any) **C.char {
	var names []*C.char
	for i, arg := range args {
		named, ok := arg.(NamedArg)
		switch {
		case ok && names == nil:
			names = make([]*C.char, len(args))
			fallthrough
		case ok:
			names[i] = c.cString(named.Name)
		case names != nil:
			panic(newError(c.op, TypeError, fmt.Sprintf("argument %d follows a named one, and has no name", i)))
		}
	}
	return unsafe.SliceData(names)
}

func (c *caller) push(kind C.int64_t, n int) *C.Value {
	c.values = append(c.values, C.Value{kind: kind, len: C.int64_t(n)})
	return &c.values[len(c.values)-1]
}

func put[T any](v *C.Value, x T) { *(*T)(unsafe.Pointer(&v.v)) = x }

func get[T any](v *C.Value) T { return *(*T)(unsafe.Pointer(&v.v)) }

func (c *caller) add(arg any) {
	if c.depth++; c.depth > maxDepth {
		panic(newError(c.op, ValueError, "an argument is nested too deeply, or contains itself"))
	}
	switch x := arg.(type) {
	case nil:
		c.push(C.ValueNone, 0)
	case Tensor:
		if x.T == nil {
			c.push(C.ValueNone, 0)
		} else {
			put(c.push(C.ValueTensor, 0), c.held.one(c.op, "of type Tensor", x))
		}
	case DType:
		c.enum(int64(x))
	case Layout:
		c.enum(int64(x))
	case MemoryFormat:
		c.enum(int64(x))
	case Device:
		if x == 0 {
			c.push(C.ValueNone, 0)
		} else {
			put(c.push(C.ValueDevice, 0), cDevice(c.op, x))
		}
	case *Generator:
		if x == nil {
			c.push(C.ValueNone, 0)
		} else {
			put(c.push(C.ValueGenerator, 0), x.c.h)
		}
	case *Storage:
		if x == nil {
			c.push(C.ValueNone, 0)
		} else {
			put(c.push(C.ValueStorage, 0), x.c.h)
		}
	case Stream:
		put(c.push(C.ValueStream, 0), x)
	case *Object:
		if x == nil {
			c.push(C.ValueNone, 0)
		} else {
			put(c.push(C.ValueObject, 0), x.c.h)
		}
	case string:
		put(c.push(C.ValueString, len(x)), c.cString(x))
	case door.NamedTuple:
		put(c.push(C.ValueNamedTuple, len(x.Values)), c.scriptName(strings.Join(append([]string{x.Name}, x.Fields...), "\n")))
		for _, item := range x.Values {
			c.add(item)
		}
	case door.Enum:
		put(c.push(C.ValueEnum, 0), c.scriptName(x.Type+"\n"+x.Name))
	case Tuple:
		c.push(C.ValueTuple, len(x))
		for _, item := range x {
			c.add(item)
		}
	case Dict:
		c.push(C.ValueDict, len(x))
		for _, item := range x {
			c.add(item.Key)
			c.add(item.Value)
		}
	default:
		c.addOther(arg)
	}
	c.depth--
}

// enum adds one of Go's enums, which are one more than libtorch's, so that 0 means not given.
func (c *caller) enum(v int64) {
	if v == 0 {
		c.push(C.ValueNone, 0)
	} else {
		put(c.push(C.ValueInt, 0), v-1)
	}
}

func (c *caller) addOther(arg any) {
	switch v := reflect.ValueOf(arg); v.Kind() {
	case reflect.Slice, reflect.Array:
		c.push(C.ValueList, v.Len())
		for i := range v.Len() {
			c.add(v.Index(i).Interface())
		}
		return
	case reflect.Map:
		c.push(C.ValueDict, v.Len())
		for it := v.MapRange(); it.Next(); {
			c.add(it.Key().Interface())
			c.add(it.Value().Interface())
		}
		return
	}
	s, ok := convertScalar(arg)
	if !ok {
		panic(newError(c.op, TypeError, fmt.Sprintf("an argument of type %T is nothing that an operator takes", arg)))
	}
	switch s.kind {
	case scalarBool:
		put(c.push(C.ValueBool, 0), s.a)
	case scalarInt:
		put(c.push(C.ValueInt, 0), s.a)
	case scalarFloat:
		put(c.push(C.ValueFloat, 0), s.a)
	case scalarComplex:
		put(c.push(C.ValueComplex, 0), [2]uint64{s.a, s.b})
	default:
		panic(newError(c.op, TypeError, fmt.Sprintf("%d does not fit into an int64", arg)))
	}
}

// resultReader walks over what an operator returned. It takes over tensors and the like.
type resultReader struct {
	values []C.Value
}

func (r *resultReader) next() any {
	v := &r.values[0]
	r.values = r.values[1:]
	switch v.kind {
	case C.ValueTensor:
		return wrapHandle(get[unsafe.Pointer](v))
	case C.ValueBool:
		return get[int64](v) != 0
	case C.ValueInt:
		return get[int64](v)
	case C.ValueFloat:
		return get[float64](v)
	case C.ValueComplex:
		return get[complex128](v)
	case C.ValueString:
		return C.GoStringN(get[*C.char](v), C.int(min(int64(v.len), math.MaxInt32)))
	case C.ValueDevice:
		return deviceOf(get[C.Device](v))
	case C.ValueGenerator:
		return newGenerator(get[C.Generator](v))
	case C.ValueStorage:
		return newStorage(get[C.Storage](v))
	case C.ValueStream:
		return get[Stream](v)
	case C.ValueObject:
		object := &Object{isModule: v.len == 1}
		h := C.RetainObject(get[C.Object](v))
		object.c.own(unsafe.Pointer(h), func(h unsafe.Pointer) { C.FreeObject(C.Object(h)) })
		return object
	case C.ValueList:
		switch n := int(v.len); get[int64](v) {
		case C.ValueTensor:
			return list[Tensor](r, n)
		case C.ValueBool:
			return list[bool](r, n)
		case C.ValueInt:
			return list[int64](r, n)
		case C.ValueFloat:
			return list[float64](r, n)
		case C.ValueComplex:
			return list[complex128](r, n)
		case C.ValueString:
			return list[string](r, n)
		default:
			return list[any](r, n)
		}
	case C.ValueTuple:
		return Tuple(list[any](r, int(v.len)))
	case C.ValueNamedTuple:
		names := strings.Split(C.GoString(get[*C.char](v)), "\n")
		return door.NamedTuple{Name: names[0], Fields: names[1:], Values: list[any](r, int(v.len))}
	case C.ValueEnum:
		of, name, _ := strings.Cut(C.GoString(get[*C.char](v)), "\n")
		return door.Enum{Type: of, Name: name, Value: r.next()}
	case C.ValueDict:
		d := make(Dict, v.len)
		for i := range d {
			d[i].Key = r.next()
			d[i].Value = r.next()
		}
		return d
	}
	return nil
}

func list[T any](r *resultReader, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i], _ = r.next().(T)
	}
	return out
}
