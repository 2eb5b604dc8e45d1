package gotorch

/*
#include <cgotorch.h>
#include <allocator.h>
#cgo noescape TensorStorage
#cgo nocallback TensorStorage
#cgo noescape StorageNbytes
#cgo nocallback StorageNbytes
*/
import "C"

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Inside Python, PyTorch keeps its own allocator, and nobody counts the bytes that tensors take. But
// the collector must be told about memory that only Go keeps alive. So each storage is counted that
// a tensor with a finaliser of its own refers to, once, however many tensors do.

var inPython = bool(C.cgotorch_in_python())

var held struct {
	mutex    sync.Mutex
	words    map[uintptr]uintptr // the storage of each; no pointers, which would keep words alive
	storages map[uintptr]heldStorage
}

type heldStorage struct {
	words int
	bytes int64
}

// startInPython makes what is held stand in for the allocator's counters.
func startInPython() {
	// Of several Go packages in one process each has a copy of this one. No two of them may give the
	// same token to libcgotorch, which also carries addresses of less than 48 bits as tokens.
	lent.last = 1<<62 | rand.Int64N(1<<22)<<40
	pressure = new(C.struct_cgotorch_pressure)
	held.words = map[uintptr]uintptr{}
	held.storages = map[uintptr]heldStorage{}
}

// hold counts the storage of the tensor at p.
func hold(p *unsafe.Pointer) {
	// Others may close it meanwhile: what a scope hands over is in use already.
	t := C.cgotorch_hold(C.int64_t(uintptr(unsafe.Pointer(p))))
	if t == nil {
		return
	}
	defer C.FreeTensor(t)
	var storage C.Storage
	if err := C.TensorStorage(t, &storage); err != nil {
		C.FreeString(err) // it has none
		return
	}
	id := uintptr(unsafe.Pointer(storage))
	var size C.int64_t
	if err := C.StorageNbytes(storage, &size); err != nil {
		C.FreeString(err)
	}
	C.FreeStorage(storage)
	runtime.KeepAlive(p)

	held.mutex.Lock()
	held.words[uintptr(unsafe.Pointer(p))] = id
	s := held.storages[id]
	if s.words == 0 {
		s.bytes = int64(size)
		addHeld(s.bytes)
	}
	s.words++
	held.storages[id] = s
	held.mutex.Unlock()
	if !(Tensor{p}).Defined() { // whoever has closed it may have come before it was counted
		letGo(p)
	}
}

// letGo is called when the tensor at p is freed.
func letGo(p *unsafe.Pointer) {
	word := uintptr(unsafe.Pointer(p))
	held.mutex.Lock()
	defer held.mutex.Unlock()
	id, known := held.words[word]
	if !known {
		return
	}
	delete(held.words, word)
	s := held.storages[id]
	s.words--
	if s.words > 0 {
		held.storages[id] = s
		return
	}
	delete(held.storages, id)
	addHeld(-s.bytes)
}

func addHeld(n int64) {
	atomic.AddInt64((*int64)(unsafe.Pointer(&pressure.live)), n)
}
