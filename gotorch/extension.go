package gotorch

import (
	"runtime"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// # C++ extensions
//
// What libraries need that have C or C++ of their own beside cgotorch.h. A handle is a Tensor or Object of that header; a message is
// what its functions return where they fail, and NULL where they do not.

// TensorFromHandle makes a Tensor of a handle, which it takes over: the handle must not be used or freed any more. The tensor belongs
// to the goroutine's [Scope], or to the collector, as those of all functions do. It panics with a TypeError if the handle is nil.
func TensorFromHandle(handle unsafe.Pointer) Tensor {
	if handle == nil {
		panic(newError("TensorFromHandle", TypeError, "argument 'handle' is nil, where the handle of a tensor is required"))
	}
	return wrapHandle(ctorch.Tensor(handle))
}

// WithHandle calls fn with a handle to t's tensor, which stays valid until fn returns, also if t is closed meanwhile. The handle
// stays t's: who keeps it longer keeps a handle of its own, which RetainTensor makes. It panics with a TypeError if t is none, and
// with a ValueError if it was closed.
func (t Tensor) WithHandle(fn func(handle unsafe.Pointer)) {
	h := t.hold("WithHandle", "self")
	defer ctorch.FreeTensor(h)
	fn(unsafe.Pointer(h))
}

// ObjectFromHandle makes an Object of a handle, which it takes over. isModule says whether it is a TorchScript module.
func ObjectFromHandle(handle unsafe.Pointer, isModule bool) *Object {
	o := &Object{isModule: isModule}
	o.c.Own(handle, func(h unsafe.Pointer) { ctorch.FreeObject(ctorch.Object(h)) })
	return o
}

// Handle returns the object's handle, which is valid as long as o is: see [runtime.KeepAlive].
func (o *Object) Handle() unsafe.Pointer { return o.c.H }

// IsModule reports whether the object is a TorchScript module.
func (o *Object) IsModule() bool { return o.isModule }

// ErrorFromC makes an *Error of a message, and frees the message; op is the error's Op. It returns nil for nil. If C passes on that a
// Go function which it called has ended its goroutine, ErrorFromC ends the calling one.
func ErrorFromC(op string, message unsafe.Pointer) error {
	if message == nil {
		return nil
	}
	return takeFailure(op, message)
}

// CallbackFromC calls fn for C code that called Go, and returns what that Go function is to return to C: nil, or if fn has
// panicked a message. An error that [ErrorFromC] or [MustNil] makes of the message wraps a [CallbackPanic] with what fn panicked with. what
// says in the message where that was: "in a hook".
func CallbackFromC(what string, fn func()) (message unsafe.Pointer) {
	return unsafe.Pointer(protect(what, fn))
}

// CValues are arguments in the form of cgotorch's CallOperator.
type CValues struct {
	Values unsafe.Pointer // Len of type Value: the elements of a list are behind it
	Len    int64
	Names  unsafe.Pointer // NULL, or Count strings, of which those of arguments without a name are NULL
	Count  int64
}

// CallC calls a function of C that takes and returns values as cgotorch's CallOperator does, and panics with the error of the message
// that it returns. Arguments and results are those of [Operator.Call]; op is what errors call the function. It frees what was made for
// the call.
func CallC(op string, fn func(args CValues, results *unsafe.Pointer, n *int64) (message unsafe.Pointer), args ...any) []any {
	c := caller{op: op}
	defer c.free()
	names := c.names(args)
	for _, arg := range args {
		if named, ok := arg.(NamedArg); ok {
			arg = named.Value
		}
		c.add(arg)
	}
	in := CValues{unsafe.Pointer(unsafe.SliceData(c.values)), int64(len(c.values)), unsafe.Pointer(names), int64(len(args))}
	var results unsafe.Pointer
	var n int64
	state := ctorch.EnterBack()
	err := fn(in, &results, &n)
	warnings := ctorch.LeaveBack(state)
	runtime.KeepAlive(args)
	taken := false
	defer func() { ctorch.FreeValues((*ctorch.Value)(results), n, !taken) }()
	if err != nil {
		defer warnings.HandOn(true)
		panicC(op, err)
	}
	warnings.HandOn(true) // if that panics, FreeValues frees the results

	taken = true
	r := resultReader{unsafe.Slice((*ctorch.Value)(results), n)}
	var out []any
	for len(r.values) > 0 {
		out = append(out, r.next())
	}
	return out
}
