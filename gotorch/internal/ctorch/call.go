package ctorch

/*
#include <cgotorch.h>
// cgo checks what a pointer argument points to, and would call these with heap memory in case C
// kept or called something. They do neither.
#cgo noescape cgotorch_run
#cgo nocallback cgotorch_run
#cgo noescape cgotorch_run_traced
#cgo nocallback cgotorch_run_traced
#cgo noescape cgotorch_block_error
#cgo nocallback cgotorch_block_error
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// Op is an op's place in libcgotorch's table of thunks.
type Op int32

func (op Op) String() string { return opNames[op] }

// OpNamed returns the op of a name; false where there is none.
func OpNamed(name string) (Op, bool) {
	for op, known := range opNames {
		if known == name {
			return Op(op), true
		}
	}
	return 0, false
}

// OutTensor and OutTensors are how results lie in an argument block. A handle is an integer here:
// were it a pointer, then all pointers in the block would go where it goes, to the compiler's
// knowledge, and a caller's []int64{2, 3} would be allocated on the heap.
type OutTensor struct {
	Handle uintptr
	Meta   int64 // metaOwn
}

// OutTensors is a list of results.
type OutTensors struct {
	Data unsafe.Pointer // *OutTensor, malloc'ed
	Len  int64
}

// Idle reports whether a call has nothing more to do than to call: then [Run] calls, and otherwise [RunSlow].
func Idle() bool { return attention.Load() == 0 }

// Run runs an op. The block must begin with the word that receives the thread's scope, or says with [Failed] that the op
// failed: [RunFailed] is called then.
//
// Nothing that Run reaches may call back into Go.
func Run(op Op, block unsafe.Pointer) {
	C.cgotorch_run(C.int64_t(op), (*C.struct_cgotorch_block)(block))
}

// Failed reports whether the first word of a block is an error.
func Failed(block unsafe.Pointer) bool { return *(*uintptr)(block)&1 != 0 }

// RunFailed is what comes after a [Run] that failed. Where memory was out it may run the op once more.
func RunFailed(op Op, block unsafe.Pointer) Message {
	m := takeBlockError(block)
	if !mayRunAgain(op, m) {
		return m
	}
	FreeString(m)
	return finish(block, runSlow(op, block))
}

func takeBlockError(block unsafe.Pointer) Message {
	return C.cgotorch_block_error((*C.struct_cgotorch_block)(block))
}

// RunSlow is [Run] when there is something to do besides. What a handler of warnings panics with goes on.
func RunSlow(op Op, block unsafe.Pointer) Message {
	if attention.Load()&attentionTraced != 0 {
		return runTraced(op, block)
	}
	warnings := runSlow(op, block)
	if !Failed(block) {
		warnings.HandOn(false)
		return nil
	}
	again, m := false, Message(nil)
	func() {
		defer warnings.HandOn(true)
		m = takeBlockError(block)
		again = mayRunAgain(op, m)
	}()
	if !again {
		return m
	}
	FreeString(m)
	return finish(block, runSlow(op, block))
}

func runSlow(op Op, block unsafe.Pointer) (warnings Warnings) {
	slow := beforeSlow()
	Run(op, block)
	return slow.After()
}

// finish is what comes after a call that may have warned.
func finish(block unsafe.Pointer, warnings Warnings) Message {
	if Failed(block) {
		defer warnings.HandOn(true)
		m := takeBlockError(block)
		makeRoomFor(m)
		return m
	}
	warnings.HandOn(false)
	return nil
}

// runTraced is RunSlow while anomalies are detected: the nodes that the op makes learn where in the
// program it was called.
func runTraced(op Op, block unsafe.Pointer) Message {
	trace := append([]byte(goTrace()), 0)
	slow := beforeSlow()
	C.cgotorch_run_traced(C.int64_t(op), (*C.struct_cgotorch_block)(block), (*C.char)(unsafe.Pointer(&trace[0])))
	return finish(block, slow.After())
}

// DetectAnomalies has backward passes look for mistakes, and ops run by runTraced.
func DetectAnomalies(on, checkNaN bool) {
	SetAnomalyMode(on, checkNaN)
	if on {
		attention.Or(attentionTraced)
	} else {
		attention.And(^uint32(attentionTraced))
	}
}

// Before is a call for which there is something to do besides: not so if it is zero.
type Before struct {
	slow, counted bool
	warnings      Warnings
	profiled      profiledCall
}

// BeforeCall comes before a call of C that calls nothing back, and After after it.
func BeforeCall() (c Before) {
	if attention.Load() != 0 {
		c = beforeSlow()
	}
	return c
}

//go:noinline
func beforeSlow() Before {
	if attention.Load()&attentionSaving != 0 {
		PackSaved()
	}
	drainSome()
	counted := enterC()
	return Before{true, counted, GatherWarnings(), enterProfiled()}
}

// After returns what the call has warned of.
func (c Before) After() (warnings Warnings) {
	if c.slow {
		c.profiled.leave()
		warnings = c.warnings.Gathered()
		leaveC(c.counted)
	}
	return warnings
}

// NewTensor takes over a handle that an op returned. scope is what the same block's first word
// says: tensors made on a thread that is inside a Scope belong to it.
func NewTensor(o *OutTensor, scope unsafe.Pointer) Word {
	h := o.Handle
	if h == 0 {
		return nil
	}
	switch {
	case recording.Load():
		return newRecorded(h, (*Scope)(scope))
	case scope != nil:
		return (*Scope)(scope).add(h, o.Meta)
	case o.Meta&metaOwn != 0:
		if o.Meta > metaOwn {
			madeOnDevice(o.Meta)
		}
		return NewOwn(h)
	}
	return newShared(h)
}

// Wrap is [NewTensor] for a handle that came from a function without an argument block.
func Wrap(h Tensor) Word {
	if h == nil {
		return nil
	}
	o := OutTensor{Handle: uintptr(unsafe.Pointer(h)), Meta: Meta(h)}
	return NewTensor(&o, ScopeGet())
}

func holdWord(w Word) Tensor {
	h := Hold(int64(uintptr(unsafe.Pointer(w))))
	runtime.KeepAlive(w)
	return h
}
