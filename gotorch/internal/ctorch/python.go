package ctorch

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Inside Python, PyTorch keeps its own allocator, and nobody counts the bytes that tensors take. But
// the collector must be told about memory that only Go keeps alive. So each storage is counted that
// a tensor with a finaliser of its own refers to, once, however many tensors do.

var inPython = InPython()

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
	pressure = new(pressureCounts)
	held.words = map[uintptr]uintptr{}
	held.storages = map[uintptr]heldStorage{}
}

// hold counts the storage of the tensor at p.
func hold(p Word) {
	// Others may close it meanwhile: what a scope hands over is in use already.
	t := holdWord(p)
	if t == nil {
		return
	}
	defer FreeTensor(t)
	var storage Storage
	if err := TensorStorage(t, &storage); err != nil {
		FreeString(err) // it has none
		return
	}
	id := uintptr(unsafe.Pointer(storage))
	var size int64
	if err := StorageNbytes(storage, &size); err != nil {
		FreeString(err)
	}
	FreeStorage(storage)

	held.mutex.Lock()
	held.words[uintptr(unsafe.Pointer(p))] = id
	s := held.storages[id]
	if s.words == 0 {
		s.bytes = size
		addHeld(s.bytes)
	}
	s.words++
	held.storages[id] = s
	held.mutex.Unlock()
	if !Defined(p) { // whoever has closed it may have come before it was counted
		letGo(p)
	}
}

// letGo is called when the tensor at p is freed.
func letGo(p Word) {
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
	atomic.AddInt64(&pressure.live, n)
}
