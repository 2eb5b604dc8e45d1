package gotorch

import (
	"reflect"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// opID is an op's place in libcgotorch's table of thunks.
type opID = ctorch.Op

// outTensor and outTensors are how results lie in an argument block.
type (
	outTensor  = ctorch.OutTensor
	outTensors = ctorch.OutTensors
)

// call runs an op. The block must begin with the word that receives the thread's scope. It panics
// with *Error.
func call(op opID, block unsafe.Pointer) {
	var message ctorch.Message
	if ctorch.Idle() {
		ctorch.Run(op, block)
		if !ctorch.Failed(block) {
			return
		}
		message = ctorch.RunFailed(op, block)
	} else {
		message = ctorch.RunSlow(op, block)
	}
	if message != nil {
		panic(takeError(op.String(), unsafe.Pointer(message)))
	}
}

// newTensor takes over a handle that an op returned. scope is what the same block's first word
// says: tensors made on a thread that is inside a Scope belong to it.
func newTensor(o *outTensor, scope unsafe.Pointer) Tensor { return Tensor{ctorch.NewTensor(o, scope)} }

// newTensors takes over a list of handles and frees the array that they came in.
func newTensors(o *outTensors, scope unsafe.Pointer) []Tensor {
	ts := make([]Tensor, o.Len)
	for i := range ts {
		ts[i] = newTensor((*outTensor)(unsafe.Add(o.Data, i*int(unsafe.Sizeof(outTensor{})))), scope)
	}
	ctorch.FreeArray(o.Data)
	o.Data = nil
	return ts
}

// wrapHandle is newTensor for a handle that came from a function without an argument block.
func wrapHandle(h ctorch.Tensor) Tensor { return Tensor{ctorch.Wrap(h)} }

func wrapHandles(hs []ctorch.Tensor) []Tensor {
	ts := make([]Tensor, len(hs))
	for i, h := range hs {
		ts[i] = wrapHandle(h)
	}
	return ts
}

// word returns what C reads the handle of a required argument from: see cgotorch/words.h. C finds out
// where the tensor was closed, so that it may be closed up to then. It is small enough to be inlined.
func (t Tensor) word(op opID, arg string) unsafe.Pointer {
	if t.T == nil {
		panicTensor(t, op, arg)
	}
	return unsafe.Pointer(t.T)
}

//go:noinline
func panicTensor(t Tensor, op opID, arg string) { panic(badTensor(t, op.String(), arg)) }

// wordOf is word for functions that are no generated op.
func (t Tensor) wordOf(op, arg string) int64 {
	if t.T == nil {
		panic(badTensor(t, op, arg))
	}
	return int64(uintptr(unsafe.Pointer(t.T)))
}

// hold returns a handle to t's tensor that no Close takes away. The caller gives it to FreeTensor.
func (t Tensor) hold(op, arg string) ctorch.Tensor {
	h, message := ctorch.HoldWord(t.T, arg)
	if message != nil {
		panicC(op, unsafe.Pointer(message))
	}
	return h
}

// held returns t's tensor as one that nobody else can close.
func (t Tensor) held(op, arg string) Tensor {
	return Tensor{ctorch.NewOwn(uintptr(unsafe.Pointer(t.hold(op, arg))))}
}

// check panics if t is none, or was closed.
func (t Tensor) check(op, arg string) {
	if !t.Defined() {
		panic(badTensor(t, op, arg))
	}
}

//go:noinline
func badTensor(t Tensor, op, arg string) *Error {
	return takeError(op, unsafe.Pointer(ctorch.BadWord(t.T, arg)))
}

// words returns the words of a list as C wants them: as they lie in the list.
func words(ts []Tensor, op opID, arg string) (unsafe.Pointer, int64) {
	for _, t := range ts {
		if t.T == nil {
			panicTensor(t, op, arg)
		}
	}
	return optWords(ts)
}

// optWords is words for a list whose elements may be none.
func optWords(ts []Tensor) (unsafe.Pointer, int64) {
	if len(ts) == 0 {
		return nil, 0
	}
	return unsafe.Pointer(unsafe.SliceData(ts)), int64(len(ts))
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// optTrue returns nil for false: the bool? arguments that default to none mean false by it.
func optTrue(b *bool) unsafe.Pointer {
	if *b {
		return unsafe.Pointer(b)
	}
	return nil
}

// option returns the options that a function was given, or the zero ones.
func option[O any](opts []O) (opt O) {
	switch len(opts) {
	case 0:
	case 1:
		opt = opts[0]
	default:
		panic(manyOptions(reflect.TypeFor[O](), len(opts)))
	}
	return opt
}

// given is option for the generated functions: it reports whether n options are one.
func given(n int, op opID) bool {
	if n > 1 {
		panicOptions(n, op)
	}
	return n == 1
}

//go:noinline
func panicOptions(n int, op opID) { panic(newError(op.String(), TypeError, ctorch.TooMany(n))) }

func manyOptions(of reflect.Type, n int) *Error {
	return newError(strings.TrimSuffix(of.String(), "Options"), TypeError, ctorch.TooMany(n))
}

func orDefault[T any](p *T, value T) T {
	if p == nil {
		return value
	}
	return *p
}

// cString returns s as a C string in Go memory.
func cString(s string, op opID, arg string) unsafe.Pointer {
	b := make([]byte, len(s)+1)
	copy(b, s)
	for _, c := range b[:len(s)] {
		if c == 0 {
			panic(newError(op.String(), ValueError, "argument '"+arg+"' contains a NUL byte"))
		}
	}
	return unsafe.Pointer(&b[0])
}

func optString(s *string, op opID, arg string) unsafe.Pointer {
	if s == nil {
		return nil
	}
	return cString(*s, op, arg)
}
