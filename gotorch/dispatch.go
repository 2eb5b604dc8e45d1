package gotorch

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Operator is an operator that is registered with PyTorch under a name, whether or not this package
// has a function for it: private ones, and those of libraries that [LoadLibrary] has loaded.
type Operator struct {
	h    ctorch.Operator
	name string
}

// FindOperator returns the operator of a name and overload: ("aten::add", "Tensor"). The overload of
// most operators is "". The error is an *Error of kind AttributeError.
func FindOperator(name, overload string) (*Operator, error) {
	op := &Operator{name: name}
	if overload != "" {
		op.name += "." + overload
	}
	cName, cOverload := ctorch.CString(name), ctorch.CString(overload)
	defer ctorch.CFree(unsafe.Pointer(cName))
	defer ctorch.CFree(unsafe.Pointer(cOverload))
	var h ctorch.Operator
	if err := ctorch.FindOperator(cName, cOverload, &h); err != nil {
		return nil, takeError(op.name, unsafe.Pointer(err))
	}
	op.h = h
	return op, nil
}

// Name returns the name and overload, "aten::add.Tensor".
func (op *Operator) Name() string { return op.name }

// Schema returns the signature, "aten::mm(Tensor self, Tensor mat2) -> Tensor".
func (op *Operator) Schema() string {
	var s *ctorch.Char
	if err := ctorch.OperatorSchema(op.h, &s); err != nil {
		panicC(op.name, unsafe.Pointer(err))
	}
	defer ctorch.FreeString(s)
	return ctorch.GoString(s)
}

// Operators returns the schemas of all registered operators, sorted.
func Operators() []string {
	var s *ctorch.Char
	if err := ctorch.ListOperators(&s); err != nil {
		panicC("Operators", unsafe.Pointer(err))
	}
	defer ctorch.FreeString(s)
	return strings.Split(strings.TrimSuffix(ctorch.GoString(s), "\n"), "\n")
}

// LoadLibrary loads a shared library that registers operators. It stays loaded.
func LoadLibrary(path string) error {
	cPath := ctorch.CString(path)
	defer ctorch.CFree(unsafe.Pointer(cPath))
	if err := ctorch.LoadOperatorLibrary(cPath); err != nil {
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
	c        ctorch.Owner
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
	return CallC(op.name, func(in CValues, results *unsafe.Pointer, n *int64) unsafe.Pointer {
		return unsafe.Pointer(ctorch.CallOperator(op.h, (*ctorch.Value)(in.Values), in.Len, (**ctorch.Char)(in.Names), in.Count,
			(**ctorch.Value)(unsafe.Pointer(results)), n))
	}, args...)
}

// caller puts arguments into the form that C takes.
type caller struct {
	op      string
	values  []ctorch.Value
	strings []unsafe.Pointer // to be freed
	held    holder
	depth   int // of the lists around the value that is added
}

func (c *caller) free() {
	for _, s := range c.strings {
		ctorch.CFree(s)
	}
	c.held.free()
}

func (c *caller) cString(s string) *ctorch.Char {
	p := ctorch.CString(s)
	c.strings = append(c.strings, unsafe.Pointer(p))
	return p
}

// names returns the names of the arguments as C takes them: nil if none has one.
func (c *caller) names(args []any) **ctorch.Char {
	var names []*ctorch.Char
	for i, arg := range args {
		named, ok := arg.(NamedArg)
		switch {
		case ok && names == nil:
			names = make([]*ctorch.Char, len(args))
			fallthrough
		case ok:
			names[i] = c.cString(named.Name)
		case names != nil:
			panic(newError(c.op, TypeError, fmt.Sprintf("argument %d follows a named one, and has no name", i)))
		}
	}
	return unsafe.SliceData(names)
}

// scriptName is a name as C takes it. What has a NUL byte in it is the name of nothing.
func (c *caller) scriptName(name string) *ctorch.Char {
	if strings.ContainsRune(name, 0) {
		panic(newError(c.op, AttributeError, "the name "+strconv.Quote(name)+" contains a NUL byte"))
	}
	return c.cString(name)
}

func (c *caller) push(kind int64, n int) *ctorch.Value {
	c.values = append(c.values, ctorch.Value{Kind: kind, Len: int64(n)})
	return &c.values[len(c.values)-1]
}

func put[T any](v *ctorch.Value, x T) { *(*T)(unsafe.Pointer(&v.V)) = x }

func get[T any](v *ctorch.Value) T { return *(*T)(unsafe.Pointer(&v.V)) }

func (c *caller) add(arg any) {
	if c.depth++; c.depth > maxDepth {
		panic(newError(c.op, ValueError, "an argument is nested too deeply, or contains itself"))
	}
	switch x := arg.(type) {
	case nil:
		c.push(ctorch.ValueNone, 0)
	case Tensor:
		if x.T == nil {
			c.push(ctorch.ValueNone, 0)
		} else {
			put(c.push(ctorch.ValueTensor, 0), c.held.one(c.op, "of type Tensor", x))
		}
	case DType:
		c.enum(int64(x))
	case Layout:
		c.enum(int64(x))
	case MemoryFormat:
		c.enum(int64(x))
	case Device:
		if x == 0 {
			c.push(ctorch.ValueNone, 0)
		} else {
			put(c.push(ctorch.ValueDevice, 0), cDevice(c.op, x))
		}
	case *Generator:
		if x == nil {
			c.push(ctorch.ValueNone, 0)
		} else {
			put(c.push(ctorch.ValueGenerator, 0), x.c.H)
		}
	case *Storage:
		if x == nil {
			c.push(ctorch.ValueNone, 0)
		} else {
			put(c.push(ctorch.ValueStorage, 0), x.c.H)
		}
	case Stream:
		put(c.push(ctorch.ValueStream, 0), x)
	case *Object:
		if x == nil {
			c.push(ctorch.ValueNone, 0)
		} else {
			put(c.push(ctorch.ValueObject, 0), x.c.H)
		}
	case string:
		put(c.push(ctorch.ValueString, len(x)), c.cString(x))
	case ctorch.NamedTuple:
		put(c.push(ctorch.ValueNamedTuple, len(x.Values)), c.scriptName(strings.Join(append([]string{x.Name}, x.Fields...), "\n")))
		for _, item := range x.Values {
			c.add(item)
		}
	case ctorch.Enum:
		put(c.push(ctorch.ValueEnum, 0), c.scriptName(x.Type+"\n"+x.Name))
	case Tuple:
		c.push(ctorch.ValueTuple, len(x))
		for _, item := range x {
			c.add(item)
		}
	case Dict:
		c.push(ctorch.ValueDict, len(x))
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
		c.push(ctorch.ValueNone, 0)
	} else {
		put(c.push(ctorch.ValueInt, 0), v-1)
	}
}

func (c *caller) addOther(arg any) {
	switch v := reflect.ValueOf(arg); v.Kind() {
	case reflect.Slice, reflect.Array:
		c.push(ctorch.ValueList, v.Len())
		for i := range v.Len() {
			c.add(v.Index(i).Interface())
		}
		return
	case reflect.Map:
		c.push(ctorch.ValueDict, v.Len())
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
	switch s.Kind {
	case scalarBool:
		put(c.push(ctorch.ValueBool, 0), s.A)
	case scalarInt:
		put(c.push(ctorch.ValueInt, 0), s.A)
	case scalarFloat:
		put(c.push(ctorch.ValueFloat, 0), s.A)
	case scalarComplex:
		put(c.push(ctorch.ValueComplex, 0), [2]uint64{s.A, s.B})
	default:
		panic(newError(c.op, TypeError, fmt.Sprintf("%d does not fit into an int64", arg)))
	}
}

// resultReader walks over what an operator returned. It takes over tensors and the like.
type resultReader struct {
	values []ctorch.Value
}

func (r *resultReader) next() any {
	v := &r.values[0]
	r.values = r.values[1:]
	switch v.Kind {
	case ctorch.ValueTensor:
		return wrapHandle(get[ctorch.Tensor](v))
	case ctorch.ValueBool:
		return get[int64](v) != 0
	case ctorch.ValueInt:
		return get[int64](v)
	case ctorch.ValueFloat:
		return get[float64](v)
	case ctorch.ValueComplex:
		return get[complex128](v)
	case ctorch.ValueString:
		return ctorch.GoStringN(get[*ctorch.Char](v), min(v.Len, math.MaxInt32))
	case ctorch.ValueDevice:
		return deviceOf(get[ctorch.Device](v))
	case ctorch.ValueGenerator:
		return newGenerator(get[ctorch.Generator](v))
	case ctorch.ValueStorage:
		return newStorage(get[ctorch.Storage](v))
	case ctorch.ValueStream:
		return get[Stream](v)
	case ctorch.ValueObject:
		return ObjectFromHandle(unsafe.Pointer(ctorch.RetainObject(get[ctorch.Object](v))), v.Len == 1)
	case ctorch.ValueList:
		switch n := int(v.Len); get[int64](v) {
		case ctorch.ValueTensor:
			return list[Tensor](r, n)
		case ctorch.ValueBool:
			return list[bool](r, n)
		case ctorch.ValueInt:
			return list[int64](r, n)
		case ctorch.ValueFloat:
			return list[float64](r, n)
		case ctorch.ValueComplex:
			return list[complex128](r, n)
		case ctorch.ValueString:
			return list[string](r, n)
		default:
			return list[any](r, n)
		}
	case ctorch.ValueTuple:
		return Tuple(list[any](r, int(v.Len)))
	case ctorch.ValueNamedTuple:
		names := strings.Split(ctorch.GoString(get[*ctorch.Char](v)), "\n")
		return ctorch.NamedTuple{Name: names[0], Fields: names[1:], Values: list[any](r, int(v.Len))}
	case ctorch.ValueEnum:
		of, name, _ := strings.Cut(ctorch.GoString(get[*ctorch.Char](v)), "\n")
		return ctorch.Enum{Type: of, Name: name, Value: r.next()}
	case ctorch.ValueDict:
		d := make(Dict, v.Len)
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
