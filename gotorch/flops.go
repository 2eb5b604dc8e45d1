package gotorch

/*
#include <cgotorch.h>
#cgo noescape FlopCounterPlace
#cgo nocallback FlopCounterPlace
*/
import "C"

import (
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

// FLOPs is how many floating point operations a program has made, by the names of PyTorch's operators,
// "aten.addmm".
type FLOPs map[string]int64

// Total returns the sum over all operators.
func (f FLOPs) Total() int64 {
	sum := int64(0)
	for _, n := range f {
		sum += n
	}
	return sum
}

// FlopCounterMode runs fn, and returns how many floating point operations that took: those of matrix
// products, convolutions and attention, by PyTorch's formulas, which go by shapes, and count a
// multiplication and an addition as two. Everything else counts for nothing, as in Python. Backward passes
// that fn runs are counted too.
//
//	flops := gotorch.FlopCounterMode(func() { model.Forward(x).Sum().Backward() })
//	fmt.Println(flops.Total(), flops["aten.convolution_backward"])
//
// nn.Summary has the same by module. Goroutines that fn starts are not counted. Inside of another
// FlopCounterMode both count. It panics with a RuntimeError if 64 goroutines are inside.
//
// See https://docs.pytorch.org/docs/stable/utils.html.
func FlopCounterMode(fn func()) FLOPs {
	flops := FLOPs{}
	for _, event := range countFLOPs(fn) {
		flops[event.Op] += event.FLOPs
	}
	return flops
}

// countFLOPs runs fn, and returns the calls of functions that have a formula.
func countFLOPs(fn func()) (events []door.FlopEvent) {
	thread := lockThread()
	var place C.int64_t
	if err := C.EnterFlopCounter(&place); err != nil {
		unlockThread(thread)
		panicC("FlopCounterMode", unsafe.Pointer(err))
	}
	defer func() {
		var list *C.FlopEvent
		var n C.int64_t
		err := C.LeaveFlopCounter(place, &list, &n)
		unlockThread(thread)
		MustNil(unsafe.Pointer(err))
		defer C.FreeArray(unsafe.Pointer(list))
		for _, e := range unsafe.Slice(list, n) {
			events = append(events, door.FlopEvent{Op: strings.Replace(C.GoString(e.op), "::", ".", 1), FLOPs: int64(e.flops),
				Backward: bool(e.backward), Sequence: int64(e.sequence)})
		}
	}()
	fn()
	return events
}

func init() {
	door.CountFLOPs = countFLOPs
	door.FlopPlace = func() (events int, sequence int64) {
		var n, next C.int64_t
		C.FlopCounterPlace(&n, &next)
		return int(n), int64(next)
	}
}
