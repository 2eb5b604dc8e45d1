package ctorch

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

// AllocatorStats are struct cgotorch_allocator_stats.
type AllocatorStats struct {
	LiveBytes, LiveBlocks, AllocatedBytes, CachedBytes, LocalBytes, CacheLimit int64
}

var _ = [1]struct{}{}[unsafe.Sizeof(AllocatorStats{})-C.sizeof_struct_cgotorch_allocator_stats]

// Allocated returns what the allocator has counted.
func Allocated() (stats AllocatorStats) {
	C.cgotorch_allocator_stats((*C.struct_cgotorch_allocator_stats)(unsafe.Pointer(&stats)))
	return stats
}

// Origin is gotorch.Origin.
type Origin struct {
	Site    string
	Tensors int
	Bytes   int64
}

// RecordOrigins is gotorch.RecordOrigins.
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

// newRecorded is NewTensor while origins are recorded: each tensor has a word of its own then, whose
// finaliser can tell that it is gone.
func newRecorded(h uintptr, scope *Scope) Word {
	p := newWord(h)
	var info TensorInfo
	var dims [1]int64
	if m := Info(int64(uintptr(unsafe.Pointer(p))), &info, &dims[0], 0); m != nil {
		FreeString(m) // it counts for nothing then
	}
	o := origin{callers(), info.StorageNbytes}
	if scope != nil {
		scope.own = append(scope.own, ownWord{p, nil})
	} else {
		SetFinalizer(p)
	}
	recorded.mutex.Lock()
	if recorded.words == nil {
		recorded.words = map[uintptr]origin{}
	}
	// Not a pointer: the table must not keep the tensor alive.
	recorded.words[uintptr(unsafe.Pointer(p))] = o
	recorded.mutex.Unlock()
	return p
}

// forget is called when the tensor at p is freed.
func forget(p Word) {
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

// Origins returns where tensors were made that still live and were made while origins were recorded.
func Origins() []Origin {
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

// goTrace describes the calling goroutine's stack, outermost call first as Python prints it, without
// this module's own functions.
func goTrace() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	var lines []string
	for {
		f, more := frames.Next()
		if f.Function != "" && (len(lines) > 0 || !ours(f)) {
			lines = append(lines, fmt.Sprintf("  %s\n      %s:%d\n", f.Function, f.File, f.Line))
		}
		if !more {
			break
		}
	}
	var b strings.Builder
	for i := len(lines) - 1; i >= 0; i-- {
		b.WriteString(lines[i])
	}
	return b.String()
}
