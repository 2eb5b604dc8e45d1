package gotorch

/*
#include <cgotorch.h>
#include <allocator.h>
*/
import "C"

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Memory is what [MemoryStats] returns.
type Memory struct {
	LiveHandles    int64 // tensors that this process holds and has not freed
	MadeHandles    int64 // tensors since the start
	NativeBytes    int64 // memory of CPU tensors, each storage once, also of those that only autograd holds
	AllocatedBytes int64 // the same since the start
	CachedBytes    int64 // freed, but kept to be handed out again: see ReleaseCachedMemory
	Origins        []Origin
}

// Origin is a place in the program where tensors were made that still live.
type Origin struct {
	Site    string // "main.go:12 main.main"
	Tensors int
	Bytes   int64 // of their storages; views count in full
}

// MemoryStats returns how much memory tensors take. Where they were made it only knows of those made
// while [RecordOrigins] was on.
func MemoryStats() Memory {
	freeClosed()
	var made, freed C.int64_t
	C.cgotorch_handles(&made, &freed)
	var a C.struct_cgotorch_allocator_stats
	C.cgotorch_allocator_stats(&a)
	return Memory{
		LiveHandles:    int64(made - freed),
		MadeHandles:    int64(made),
		NativeBytes:    int64(a.live_bytes),
		AllocatedBytes: int64(a.allocated_bytes),
		CachedBytes:    int64(a.cached_bytes),
		Origins:        origins(),
	}
}

// ReleaseCachedMemory gives memory that no tensor uses back to the operating system.
func ReleaseCachedMemory() {
	drainAll()
	freeClosed()
	C.cgotorch_release_cached()
}

// RecordOrigins makes [MemoryStats] tell where tensors are made, from now on. It slows down every
// op, so it is for finding leaks.
func RecordOrigins(on bool) {
	if on {
		everRecorded.Store(true)
	}
	recording.Store(on)
}

var recording, everRecorded atomic.Bool

// recorded holds, for each word, where its tensor was made.
var recorded struct {
	mutex sync.Mutex
	words map[uintptr]origin
}

type origin struct {
	pc    []uintptr
	bytes int64
}

// newRecorded is newTensor while origins are recorded: each tensor has a word of its own then, whose
// finaliser can tell that it is gone.
func newRecorded(h uintptr, scope *openScope) Tensor {
	p := newWord(h)
	t := Tensor{p}
	info := t.info("MemoryStats")
	o := origin{callers(), int64(info.storage_nbytes)}
	if scope != nil {
		scope.own = append(scope.own, ownWord{p, nil})
	} else {
		SetTensorFinalizer(p)
	}
	recorded.mutex.Lock()
	if recorded.words == nil {
		recorded.words = map[uintptr]origin{}
	}
	// Not a pointer: the table must not keep the tensor alive.
	recorded.words[uintptr(unsafe.Pointer(p))] = o
	recorded.mutex.Unlock()
	return t
}

// forget is called when the tensor at p is freed.
func forget(p *unsafe.Pointer) {
	if inPython {
		letGo(p)
	}
	if !everRecorded.Load() {
		return
	}
	recorded.mutex.Lock()
	delete(recorded.words, uintptr(unsafe.Pointer(p)))
	recorded.mutex.Unlock()
}

func origins() []Origin {
	recorded.mutex.Lock()
	bySite := map[string]*Origin{}
	for _, o := range recorded.words {
		site := o.site()
		if bySite[site] == nil {
			bySite[site] = &Origin{Site: site}
		}
		bySite[site].Tensors++
		bySite[site].Bytes += o.bytes
	}
	recorded.mutex.Unlock()
	var list []Origin
	for _, o := range bySite {
		list = append(list, *o)
	}
	slices.SortFunc(list, func(a, b Origin) int {
		return cmp.Or(-cmp.Compare(a.Bytes, b.Bytes), -cmp.Compare(a.Tensors, b.Tensors), cmp.Compare(a.Site, b.Site))
	})
	return list
}

// ours reports whether a frame is of this module's packages, and not of a test.
func ours(f runtime.Frame) bool {
	return strings.HasPrefix(f.Function, "gotorch.dev/gotorch") && !strings.HasSuffix(f.File, "_test.go")
}

// callers returns the program counters of the calls up to one outside this module's own packages, and
// some more.
func callers() []uintptr {
	for pc := make([]uintptr, 8); ; pc = make([]uintptr, 2*len(pc)) {
		n := runtime.Callers(3, pc)
		if _, found := outside(pc[:n]); found || n < len(pc) {
			return pc[:n]
		}
	}
}

// outside returns the innermost call outside this module's own packages, or else the last one.
func outside(pc []uintptr) (last runtime.Frame, found bool) {
	frames := runtime.CallersFrames(pc)
	for {
		f, more := frames.Next()
		if f.Function != "" {
			last = f
			if !ours(f) {
				return f, true
			}
		}
		if !more {
			return last, false
		}
	}
}

func (o origin) site() string {
	f, _ := outside(o.pc)
	if f.Function == "" {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Function)
}
