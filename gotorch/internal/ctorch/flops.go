package ctorch

import (
	"strings"
	"unsafe"
)

// FLOPs is a call of a function that has a formula for its floating point operations.
type FLOPs struct {
	Op       string // "aten.mm"
	FLOPs    int64
	Backward bool
	Sequence int64 // of the backward pass's node, or -1
}

// CountFLOPs runs fn, and returns what it counted.
func CountFLOPs(fn func()) (events []FLOPs, m Message) {
	thread, m := LockThread()
	if m != nil {
		return nil, m
	}
	var place int64
	if m := EnterFlopCounter(&place); m != nil {
		UnlockThread(thread)
		return nil, m
	}
	leave := func() {
		var list *FlopEvent
		var n int64
		m = LeaveFlopCounter(place, &list, &n)
		UnlockThread(thread)
		if m != nil {
			return
		}
		defer FreeArray(unsafe.Pointer(list))
		for _, e := range unsafe.Slice(list, n) {
			events = append(events, FLOPs{Op: strings.Replace(GoString(e.Op), "::", ".", 1), FLOPs: e.Flops,
				Backward: e.Backward, Sequence: e.Sequence})
		}
	}
	returned := false
	defer func() {
		if !returned { // fn panics: what was counted is of no use
			if leave(); m != nil {
				FreeString(m)
			}
		}
	}()
	fn()
	returned = true
	leave()
	return events, m
}

// FlopPlace returns how many events there are so far, and the sequence number of the next node of a graph.
func FlopPlace() (events int, sequence int64) {
	var n int64
	FlopCounterPlace(&n, &sequence)
	return int(n), sequence
}
