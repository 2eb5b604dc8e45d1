package main

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions"
)

// A value is a tag and what the tag says. Enums are written by PyTorch's name for them, so that
// Python and Go share no numbers.
const (
	tagAbsent    = iota // the caller leaves the argument out
	tagNone             // nil, the zero Tensor
	tagTensor           // a handle, which Go takes over; in results, which Python takes over
	tagSame             // in results: the tensor argument of this number
	tagBool             // 0 or 1
	tagInt              // the number
	tagUint             // a number above the largest int64
	tagFloat            // its bits
	tagComplex          // the bits of the real and of the imaginary part
	tagString           // bytes, and words that hold them
	tagList             // length, elements; of a struct the names of fields, too
	tagGenerator        // a state, a tensor: a new generator in that state
	tagStorage          // the storage of a tensor
	tagStream           // id, device index, device type
	tagBorrowed         // in results: a handle that Go keeps
	tagModule           // the number of a module
)

// broken is the panic for a request that the harness does not understand.
type broken string

// reader reads a request.
type reader struct {
	words      []int64
	tensors    []gotorch.Tensor
	generators []*gotorch.Generator
}

func (r *reader) next() int64 {
	if len(r.words) == 0 {
		panic(broken("the request is too short"))
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

// tensor takes over a handle.
func (r *reader) tensor() gotorch.Tensor {
	h := r.next()
	p := new(unsafe.Pointer)
	*(*int64)(unsafe.Pointer(p)) = h
	t := gotorch.Tensor{T: p}
	r.tensors = append(r.tensors, t)
	return t
}

func (r *reader) release() {
	for _, t := range r.tensors {
		t.Close()
	}
}

func (r *reader) text() string {
	n := int(r.next())
	words := (n + 7) / 8
	if words > len(r.words) {
		panic(broken("the request is too short"))
	}
	var b strings.Builder
	if n > 0 {
		b.Write(unsafe.Slice((*byte)(unsafe.Pointer(&r.words[0])), n))
	}
	r.words = r.words[words:]
	return b.String()
}

// arguments reads what a function of this type is called with.
func (e *entry) arguments(function reflect.Type, form int64, options bool, in *reader) []reflect.Value {
	var args []reflect.Value
	var opts reflect.Value
	if function.IsVariadic() {
		opts = reflect.New(function.In(function.NumIn() - 1).Elem()).Elem()
	}
	at := 0
	if form == formMethod {
		at = 1
		args = append(args, reflect.Value{})
	}
	for _, place := range strings.Fields(e.where) {
		switch {
		case place == "." && form == formMethod:
			args[0] = in.value(function.In(0))
		case place == "." || place == "-":
			args = append(args, in.value(function.In(at)))
			at++
		default:
			if in.words[0] == tagAbsent {
				in.next()
				continue
			}
			field := opts.FieldByName(place)
			field.Set(in.value(field.Type()))
		}
	}
	if len(in.words) > 0 { // factories take one thing more
		if field := opts.FieldByName("RequiresGrad"); in.next() != 0 {
			field.SetBool(true)
		}
	}
	if options {
		args = append(args, opts)
	}
	return args
}

var (
	typeTensor    = reflect.TypeFor[gotorch.Tensor]()
	typeScalar    = reflect.TypeFor[gotorch.Scalar]()
	typeParam     = reflect.TypeFor[distributions.Param]()
	typeDType     = reflect.TypeFor[gotorch.DType]()
	typeLayout    = reflect.TypeFor[gotorch.Layout]()
	typeFormat    = reflect.TypeFor[gotorch.MemoryFormat]()
	typeDevice    = reflect.TypeFor[gotorch.Device]()
	typeGenerator = reflect.TypeFor[*gotorch.Generator]()
	typeStorage   = reflect.TypeFor[*gotorch.Storage]()
	typeStream    = reflect.TypeFor[gotorch.Stream]()
)

// value reads a value for something of type t.
func (r *reader) value(t reflect.Type) reflect.Value {
	if named, ok := r.ofNames(t); ok {
		return named
	}
	tag := r.next()
	if tag == tagNone {
		return reflect.Zero(t)
	}
	result := reflect.New(t).Elem()
	switch {
	case tag == tagModule:
		result.Set(reflect.ValueOf(kept[r.next()]))
		return result
	case tag == tagInt && t.Kind() == reflect.Float64:
		result.SetFloat(float64(r.next()))
		return result
	case tag != tagList && t.Kind() == reflect.Slice: // one number for all directions
		r.words = append([]int64{tag}, r.words...)
		result.Set(reflect.Append(result, r.value(t.Elem())))
		return result
	case tag == tagString && t.Kind() == reflect.Interface && t != typeScalar:
		result.Set(reflect.ValueOf(r.text()))
		return result
	}
	expect := func(want int64) {
		if tag != want {
			panic(broken(fmt.Sprintf("value of tag %d for a %s", tag, t)))
		}
	}
	switch t {
	case typeTensor:
		expect(tagTensor)
		return reflect.ValueOf(r.tensor())
	case typeParam:
		if tag == tagTensor {
			result.Set(reflect.ValueOf(r.tensor()))
			return result
		}
		result.Set(reflect.ValueOf(r.scalar(tag)))
		return result
	case typeScalar:
		result.Set(reflect.ValueOf(r.scalar(tag)))
		return result
	case typeDType:
		expect(tagString)
		return named(r.text(), gotorch.ParseDType)
	case typeDevice:
		expect(tagString)
		return named(r.text(), gotorch.ParseDevice)
	case typeLayout:
		expect(tagString)
		return listed[gotorch.Layout](r.text())
	case typeFormat:
		expect(tagString)
		return listed[gotorch.MemoryFormat](r.text())
	case typeGenerator:
		expect(tagGenerator)
		g := gotorch.NewGenerator(gotorch.CPU)
		g.SetState(r.tensor())
		r.generators = append(r.generators, g)
		return reflect.ValueOf(g)
	case typeStorage:
		expect(tagStorage)
		return reflect.ValueOf(r.tensor().Storage())
	case typeStream:
		expect(tagStream)
		return reflect.ValueOf(gotorch.Stream{ID: r.next(), DeviceIndex: r.next(), DeviceType: r.next()})
	}
	switch t.Kind() {
	case reflect.Bool:
		expect(tagBool)
		result.SetBool(r.next() != 0)
	case reflect.Int64:
		expect(tagInt)
		result.SetInt(r.next())
	case reflect.Float64:
		expect(tagFloat)
		result.SetFloat(math.Float64frombits(uint64(r.next())))
	case reflect.String:
		expect(tagString)
		result.SetString(r.text())
	case reflect.Func:
		r.words = append([]int64{tag}, r.words...)
		return function(t, r.value(reflect.TypeFor[[]float64]()).Interface().([]float64))
	case reflect.Pointer:
		r.words = append([]int64{tag}, r.words...)
		result.Set(reflect.New(t.Elem()))
		result.Elem().Set(r.value(t.Elem()))
	case reflect.Slice:
		expect(tagList)
		n := int(r.next())
		result.Set(reflect.MakeSlice(t, n, n))
		for i := range n {
			result.Index(i).Set(r.value(t.Elem()))
		}
	case reflect.Struct:
		expect(tagList)
		result.Set(r.fields(t, int(r.next())))
	case reflect.Array:
		expect(tagList)
		if n := int(r.next()); n != t.Len() {
			panic(broken(fmt.Sprintf("%d values for a %s", n, t)))
		}
		for i := range t.Len() {
			result.Index(i).Set(r.value(t.Elem()))
		}
	default:
		panic(broken("no way to make a " + t.String()))
	}
	return result
}

func (r *reader) scalar(tag int64) gotorch.Scalar {
	if tag == tagTensor {
		r.tensor() // to be released
		panic(broken("a tensor for a Scalar"))
	}
	w := r.next()
	switch tag {
	case tagBool:
		return w != 0
	case tagInt:
		// Both are what users write.
		if w%2 == 0 {
			return int(w)
		}
		return w
	case tagUint:
		return uint64(w)
	case tagFloat:
		return math.Float64frombits(uint64(w))
	case tagComplex:
		return complex(math.Float64frombits(uint64(w)), math.Float64frombits(uint64(r.next())))
	}
	panic(broken(fmt.Sprintf("value of tag %d for a Scalar", tag)))
}

func named[T any](name string, parse func(string) (T, error)) reflect.Value {
	value, err := parse(name)
	if err != nil {
		panic(broken(err.Error()))
	}
	return reflect.ValueOf(value)
}

// listed finds the enum value with a name.
func listed[T interface {
	~int8
	String() string
}](name string) reflect.Value {
	for v := T(1); v < 32; v++ {
		if v.String() == name {
			return reflect.ValueOf(v)
		}
	}
	panic(broken("unknown name " + name))
}

// writer writes a response.
type writer struct {
	words []int64
}

func (w *writer) add(words ...int64) { w.words = append(w.words, words...) }

func (w *writer) string(s string) {
	w.add(tagString, int64(len(s)))
	for len(s) > 0 {
		var word [8]byte
		n := copy(word[:], s)
		s = s[n:]
		w.add(*(*int64)(unsafe.Pointer(&word)))
	}
}

func (w *writer) value(v reflect.Value, in *reader) {
	switch x := v.Interface().(type) {
	case gotorch.Tensor:
		w.tensor(x, in)
		return
	case borrowed:
		w.add(tagBorrowed, *(*int64)(unsafe.Pointer(x.T)))
		return
	case gotorch.DType:
		w.string(x.String())
		return
	case nil:
		w.add(tagNone)
		return
	case complex128:
		w.add(tagComplex, int64(math.Float64bits(real(x))), int64(math.Float64bits(imag(x))))
		return
	}
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Bool:
		w.add(tagBool, 0)
		if v.Bool() {
			w.words[len(w.words)-1] = 1
		}
	case reflect.Int64:
		w.add(tagInt, v.Int())
	case reflect.Uint64:
		w.add(tagUint, int64(v.Uint()))
	case reflect.Float64:
		w.add(tagFloat, int64(math.Float64bits(v.Float())))
	case reflect.String:
		w.string(v.String())
	case reflect.Slice:
		w.add(tagList, int64(v.Len()))
		for i := range v.Len() {
			w.value(v.Index(i), in)
		}
	default:
		panic(broken("no way to return a " + v.Type().String()))
	}
}

// tensor gives a tensor to Python: an argument by its number, anything else with its handle.
func (w *writer) tensor(t gotorch.Tensor, in *reader) {
	if t.T == nil {
		w.add(tagNone)
		return
	}
	for i, argument := range in.tensors {
		if argument.T == t.T {
			w.add(tagSame, int64(i))
			return
		}
	}
	w.add(tagTensor, *(*int64)(unsafe.Pointer(t.T)))
	*t.T = nil // Python has it now
}
