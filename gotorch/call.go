package gotorch

/*
#include <cgotorch.h>
// cgo checks what a pointer argument points to, and would call these with heap memory in case C
// kept or called something. They do neither.
#cgo noescape cgotorch_run
#cgo nocallback cgotorch_run
#cgo noescape cgotorch_block_error
#cgo nocallback cgotorch_block_error
#cgo noescape FreeArray
#cgo nocallback FreeArray
#cgo noescape cgotorch_hold
#cgo nocallback cgotorch_hold
*/
import "C"

import (
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"unsafe"
)

// opID is an op's place in libcgotorch's table of thunks.
type opID int32

func (op opID) String() string { return opNames[op] }

// outTensor and outTensors are how results lie in an argument block. A handle is an integer here:
// were it a pointer, then all pointers in the block would go where it goes, to the compiler's
// knowledge, and a caller's []int64{2, 3} would be allocated on the heap.
type outTensor struct {
	handle uintptr
	meta   int64 // metaOwn
}

type outTensors struct {
	data unsafe.Pointer // *outTensor, malloc'ed
	len  int64
}

// call runs an op. The block must begin with the word that receives the thread's scope. It panics
// with *Error.
//
// Nothing that call reaches may call back into Go.
func call(op opID, block unsafe.Pointer) {
	if attention.Load() != 0 {
		callSlow(op, block)
		return
	}
	C.cgotorch_run(C.int64_t(op), (*C.struct_cgotorch_block)(block))
	if failed(block) {
		callFailed(op, block)
	}
}

// failed reports whether the first word of a block is an error.
func failed(block unsafe.Pointer) bool { return *(*uintptr)(block)&1 != 0 }

//go:noinline
func callFailed(op opID, block unsafe.Pointer) {
	err := takeBlockError(op, block)
	if !mayRunAgain(op, err) {
		panic(err)
	}
	finish(op, block, runSlow(op, block))
}

func takeBlockError(op opID, block unsafe.Pointer) *Error {
	err := C.cgotorch_block_error((*C.struct_cgotorch_block)(block))
	return takeError(op.String(), unsafe.Pointer(err))
}

// callSlow is call when there is something to do besides.
//
//go:noinline
func callSlow(op opID, block unsafe.Pointer) {
	if attention.Load()&attentionTraced != 0 {
		callTraced(op, block)
		return
	}
	warnings := runSlow(op, block)
	if !failed(block) {
		warnings.handOn(false)
		return
	}
	func() {
		defer warnings.handOn(true)
		if err := takeBlockError(op, block); !mayRunAgain(op, err) {
			panic(err)
		}
	}()
	finish(op, block, runSlow(op, block))
}

func runSlow(op opID, block unsafe.Pointer) (warnings warningsOf) {
	slow := beforeSlow()
	C.cgotorch_run(C.int64_t(op), (*C.struct_cgotorch_block)(block))
	return slow.after()
}

// finish is what comes after a call that may have warned.
func finish(op opID, block unsafe.Pointer, warnings warningsOf) {
	if failed(block) {
		defer warnings.handOn(true)
		err := takeBlockError(op, block)
		makeRoom(err)
		panic(err)
	}
	warnings.handOn(false)
}

// slowCall is a call for which there is something to do besides: not so if it is zero.
type slowCall struct {
	slow, counted bool
	warnings      warningsOf
	profiled      profiledCall
}

func beforeCall() (c slowCall) {
	if attention.Load() != 0 {
		c = beforeSlow()
	}
	return c
}

//go:noinline
func beforeSlow() slowCall {
	if attention.Load()&attentionSaving != 0 {
		packSaved()
	}
	drainSome()
	counted := enterC()
	return slowCall{true, counted, gatherWarnings(), enterProfiled()}
}

func (c slowCall) after() (warnings warningsOf) {
	if c.slow {
		c.profiled.leave()
		warnings = c.warnings.gathered()
		leaveC(c.counted)
	}
	return warnings
}

// newTensor takes over a handle that an op returned. scope is what the same block's first word
// says: tensors made on a thread that is inside a Scope belong to it.
func newTensor(o *outTensor, scope unsafe.Pointer) Tensor {
	h := o.handle
	if h == 0 {
		return Tensor{}
	}
	switch {
	case recording.Load():
		return newRecorded(h, (*openScope)(scope))
	case scope != nil:
		return (*openScope)(scope).add(h, o.meta)
	case o.meta&metaOwn != 0:
		if o.meta > metaOwn {
			madeOnDevice(o.meta)
		}
		return newOwn(h)
	}
	return newShared(h)
}

// newTensors takes over a list of handles and frees the array that they came in.
func newTensors(o *outTensors, scope unsafe.Pointer) []Tensor {
	ts := make([]Tensor, o.len)
	for i := range ts {
		ts[i] = newTensor((*outTensor)(unsafe.Add(o.data, i*int(unsafe.Sizeof(outTensor{})))), scope)
	}
	C.FreeArray(o.data)
	o.data = nil
	return ts
}

// wrapHandle is newTensor for a handle that came from a function without an argument block.
func wrapHandle(h unsafe.Pointer) Tensor {
	if h == nil {
		return Tensor{}
	}
	o := outTensor{handle: uintptr(h), meta: int64(C.cgotorch_meta(C.Tensor(h)))}
	return newTensor(&o, currentScope())
}

func currentScope() unsafe.Pointer { return C.cgotorch_scope_get() }

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
func (t Tensor) wordOf(op, arg string) C.int64_t {
	if t.T == nil {
		panic(badTensor(t, op, arg))
	}
	return C.int64_t(uintptr(unsafe.Pointer(t.T)))
}

// hold returns a handle to t's tensor that no Close takes away. The caller gives it to FreeTensor.
func (t Tensor) hold(op, arg string) C.Tensor {
	for again := false; t.T != nil; again = true {
		h := C.cgotorch_hold(t.wordOf(op, arg))
		runtime.KeepAlive(t.T)
		if h != nil {
			return h
		}
		if e := t.notHeld(op, arg); again || !makeRoom(e) {
			panic(e)
		}
	}
	panic(badTensor(t, op, arg))
}

// notHeld says why C gave no handle to t's tensor. A word never gets one again: with one in it, it was memory that
// lacked.
func (t Tensor) notHeld(op, arg string) *Error {
	if t.Defined() {
		return newError(op, MemoryError, "there is no memory to use argument '"+arg+"' with")
	}
	return badTensor(t, op, arg)
}

// held returns t's tensor as one that nobody else can close.
func (t Tensor) held(op, arg string) Tensor {
	return newOwn(uintptr(unsafe.Pointer(t.hold(op, arg))))
}

// check panics if t is none, or was closed.
func (t Tensor) check(op, arg string) {
	if !t.Defined() {
		panic(badTensor(t, op, arg))
	}
}

//go:noinline
func badTensor(t Tensor, op, arg string) *Error {
	if t.T == nil {
		return newError(op, TypeError, "argument '"+arg+"' is the zero Tensor, where a tensor is required")
	}
	return newError(op, ValueError, "argument '"+arg+"' was used after Close, or after the Scope it was made in")
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
func panicOptions(n int, op opID) { panic(newError(op.String(), TypeError, tooMany(n))) }

func manyOptions(of reflect.Type, n int) *Error {
	return newError(strings.TrimSuffix(of.String(), "Options"), TypeError, tooMany(n))
}

func tooMany(n int) string {
	return "there may be one options struct, and there are " + strconv.Itoa(n) + ": put all fields into one"
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
