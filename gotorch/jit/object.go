package jit

import (
	"reflect"
	"runtime"
	"strings"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// Object is an object of a class that a script has defined, or of one of C++ that is registered with TorchScript, such as packed
// weights of a quantised model. It is the script's own object, not a copy.
type Object struct {
	object *gotorch.Object
	tree   *tree
}

// tree is what a module and all objects that have come from it share.
type tree struct {
	mutex sync.RWMutex // locked to change them, and to read while they are called
	extra map[string]string
}

// NamedTuple is a tuple whose class has names for its fields. As an argument it may be without Type, and a plain
// [gotorch.Tuple] will do.
type NamedTuple struct {
	Type   string // "__torch__.Output"
	Fields []string
	Values gotorch.Tuple
}

// Get returns the value of a field; nil if there is none.
func (t NamedTuple) Get(field string) any {
	for i, name := range t.Fields {
		if name == field && i < len(t.Values) {
			return t.Values[i]
		}
	}
	return nil
}

// Enum is a member of an enum. As an argument it needs no more than the Name.
type Enum struct {
	Type  string // "__torch__.Color"
	Name  string // "RED"
	Value any
}

// TypeName returns the name of the object's class, "__torch__.Net".
func (o *Object) TypeName() string { return o.describe().(gotorch.Tuple)[0].(string) }

// Methods returns the methods of the object's class, sorted by name. Those that no call reaches are not in a saved file.
func (o *Object) Methods() []Method { return o.tree.methods(o.describe()) }

// Attributes returns the attributes of the object, in the order of its class. Constants are not among them; [Object.Attr] knows
// those, too.
func (o *Object) Attributes() []Attribute { return attributes(o.describe()) }

func (o *Object) describe() any {
	o.tree.mutex.RLock()
	defer o.tree.mutex.RUnlock()
	return describe("jit.Methods", o.object)
}

// read returns what a function reads of the object.
func (o *Object) read(fn func(o *gotorch.Object) any) any {
	o.tree.mutex.RLock()
	defer o.tree.mutex.RUnlock()
	return o.tree.wrap(fn(o.object))
}

// Attr returns the value of an attribute, a constant or a property: "training", or "layers.0.weight" for one of an object
// within. Lists and dicts are copies; tensors share their memory with the script's. It panics with an AttributeError if there is
// none, and as [Object.Call] does for what has no form in Go.
func (o *Object) Attr(name string) any {
	name, rest, more := strings.Cut(name, ".")
	v := o.read(func(object *gotorch.Object) any { return getAttr("jit.Attr", object, name) })
	if !more {
		return v
	}
	switch within := v.(type) {
	case *Module:
		return within.Attr(rest)
	case *Object:
		return within.Attr(rest)
	}
	panic(args.Errorf("jit.Attr", gotorch.AttributeError, "%q is %s, which has no attributes", name, kindOf(v)))
}

// SetAttr sets an attribute or a property; name is that of [Object.Attr]. It takes the values that [Object.Call] takes. A tensor that takes the
// place of a parameter shares its memory with the script. It panics with a TypeError for a value of another type than the
// class says, and with an AttributeError if there is no such attribute, or it is a constant.
func (o *Object) SetAttr(name string, value any) {
	const op = "jit.SetAttr"
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		switch within := o.Attr(name[:i]).(type) {
		case *Module:
			within.SetAttr(name[i+1:], value)
		case *Object:
			within.SetAttr(name[i+1:], value)
		default:
			panic(args.Errorf(op, gotorch.AttributeError, "%q is %s, which has no attributes", name[:i], kindOf(within)))
		}
		return
	}
	o.tree.mutex.Lock()
	defer o.tree.mutex.Unlock()
	setAttr(op, o.object, name, unwrap(value))
}

// Call calls a method by its name. Arguments are as for [gotorch.Operator.Call], and some of them may be [gotorch.Named]:
//
//	Tensor                 gotorch.Tensor
//	int                    any Go integer, and DType, Layout, MemoryFormat, which are ints in a script; as a result int64
//	float, complex, bool, str   any Go number that becomes one; as a result float64, complex128, bool, string
//	Optional[T]            nil, or what T takes
//	List[T]                a slice; as a result []Tensor, []int64, []float64, []bool, []complex128, []string, else []any
//	Tuple[...]             gotorch.Tuple
//	named tuples, enums    [NamedTuple], [Enum]
//	Dict[K, V]             gotorch.Dict, or as an argument any map
//	Device, Generator, Storage, Stream   gotorch.Device, *gotorch.Generator, *gotorch.Storage, gotorch.Stream
//	modules, other classes   *[Module], *[Object]
//
// Arguments that are not given take the method's defaults. A method without a result returns nil. Lists and dicts are copied on
// both ways, so what the script does to them is not seen.
//
// It panics with an *gotorch.Error: with an AttributeError if there is no such method; with a TypeError if the arguments do not
// fit; with a NotImplementedError that names the type for a result that has no form in Go, such as a Future; with the class that the
// script raised, as in "ValueError: ..."; with a RuntimeError, as Python does, for what an op in the script refuses. [gotorch.Try]
// makes the panic an error. Gradients are recorded unless the call is in [gotorch.NoGrad].
func (o *Object) Call(method string, args ...any) any {
	plain := args
	for i, arg := range args {
		switch arg.(type) {
		case nil, gotorch.Tensor, int, int64, float64, bool, string:
			continue
		}
		v := unwrap(arg)
		if &plain[0] == &args[0] {
			plain = append([]any{}, args...)
		}
		plain[i] = v
	}
	return o.read(func(object *gotorch.Object) any { return callMethod(object, method, plain) })
}

// Caller is a *[Module] or an *[Object].
type Caller interface {
	Call(method string, args ...any) any
}

// CallAs is [Object.Call] for a result whose type is known. It converts as [gotorch.LoadAs] does:
//
//	words := jit.CallAs[[]string](m, "decode", tokens)
//
// It panics with a TypeError if the result is of another type, and with a ValueError if T does not hold it.
func CallAs[T any](of Caller, method string, args ...any) T {
	var into T
	if err := gotorch.Assign(&into, of.Call(method, args...), "the result of "+method); err != nil {
		panic(err)
	}
	return into
}

// Close frees the object's memory, once the calls that go on have returned: of a module its parameters and buffers, unless they or
// modules within are in use elsewhere. What was returned before stays valid. Closing twice is fine. What is not closed is
// freed some time after it was last used.
func (o *Object) Close() {
	o.tree.mutex.Lock()
	defer o.tree.mutex.Unlock()
	ctorch.JITClose(handle(o.object))
	runtime.KeepAlive(o.object)
}

// wrap makes values of this package of those that gotorch has.
func (t *tree) wrap(v any) any {
	switch x := v.(type) {
	case *gotorch.Object:
		if x.IsModule() {
			return &Module{Object{x, t}}
		}
		return &Object{x, t}
	case ctorch.NamedTuple:
		return NamedTuple{x.Name, x.Fields, gotorch.Tuple(t.wrapAll(x.Values))}
	case ctorch.Enum:
		return Enum{x.Type, x.Name, t.wrap(x.Value)}
	case gotorch.Tuple:
		t.wrapAll(x)
	case []any:
		t.wrapAll(x)
	case gotorch.Dict:
		for i := range x {
			x[i].Key, x[i].Value = t.wrap(x[i].Key), t.wrap(x[i].Value)
		}
	}
	return v
}

// wrapAll is wrap in place.
func (t *tree) wrapAll(list []any) []any {
	for i, v := range list {
		list[i] = t.wrap(v)
	}
	return list
}

// unwrap makes values that gotorch has of those of this package. What holds none is returned as it is.
func unwrap(v any) any { return unwrapAt(v, 0) }

func unwrapAt(v any, depth int) any {
	if depth > 1000 {
		return v // refused where it is handed to C
	}
	depth++
	all := func(n int, at func(i int) any) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = unwrapAt(at(i), depth)
		}
		return list
	}
	switch x := v.(type) {
	case *Module:
		if x == nil {
			return nil
		}
		return x.object
	case *Object:
		if x == nil {
			return nil
		}
		return x.object
	case NamedTuple:
		return ctorch.NamedTuple{Name: x.Type, Fields: x.Fields, Values: all(len(x.Values), func(i int) any { return x.Values[i] })}
	case Enum:
		return ctorch.Enum{Type: x.Type, Name: x.Name}
	case gotorch.NamedArg:
		return gotorch.Named(x.Name, unwrapAt(x.Value, depth))
	case gotorch.Tuple:
		return gotorch.Tuple(all(len(x), func(i int) any { return x[i] }))
	case gotorch.Dict:
		d := make(gotorch.Dict, len(x))
		for i, item := range x {
			d[i] = gotorch.DictItem{Key: unwrapAt(item.Key, depth), Value: unwrapAt(item.Value, depth)}
		}
		return d
	case gotorch.Tensor, []gotorch.Tensor, *gotorch.Generator, *gotorch.Storage, *gotorch.Object, gotorch.Stream, gotorch.Device, gotorch.DType:
		return v
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Slice, reflect.Array:
		if plain(r.Type().Elem()) {
			return v
		}
		return all(r.Len(), func(i int) any { return r.Index(i).Interface() })
	case reflect.Map:
		if plain(r.Type().Key()) && plain(r.Type().Elem()) {
			return v
		}
		d := gotorch.Dict{}
		for it := r.MapRange(); it.Next(); {
			d = append(d, gotorch.DictItem{Key: unwrapAt(it.Key().Interface(), depth), Value: unwrapAt(it.Value().Interface(), depth)})
		}
		return d
	}
	return v
}

// plain reports whether a type's values hold none of this package.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return t == reflect.TypeFor[gotorch.Tensor]()
	}
	return true
}
