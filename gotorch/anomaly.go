package gotorch

/*
#include <cgotorch.h>
#cgo noescape cgotorch_run_traced
#cgo nocallback cgotorch_run_traced
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// attentionTraced is set in attention while anomalies are detected: then callTraced runs the ops.
const attentionTraced = 1 << 8

// AnomalyOptions are the arguments of [DetectAnomaly] that have defaults.
type AnomalyOptions struct {
	IgnoreNaN bool // do not stop at a NaN
}

// DetectAnomaly runs fn while backward passes look for mistakes: one that computes a NaN panics with
// a RuntimeError, and each that fails gives a [Warning] which says where in the program the forward
// call was made. It holds for all goroutines and slows everything down; it is for finding a mistake
// that is known to be there. Both the forward and the backward pass belong into fn.
func DetectAnomaly(fn func(), opts ...AnomalyOptions) {
	var enabled, checkNaN C.bool
	C.GetAnomalyMode(&enabled, &checkNaN)
	defer func() { setAnomaly(bool(enabled), bool(checkNaN)) }()
	setAnomaly(true, !option(opts).IgnoreNaN)
	fn()
}

// SetDetectAnomaly turns on or off what [DetectAnomaly] does for the time of a function.
func SetDetectAnomaly(on bool, opts ...AnomalyOptions) {
	setAnomaly(on, !option(opts).IgnoreNaN)
}

// AnomalyDetected reports whether backward passes look for mistakes.
func AnomalyDetected() bool {
	var enabled, checkNaN C.bool
	C.GetAnomalyMode(&enabled, &checkNaN)
	return bool(enabled)
}

func setAnomaly(on, checkNaN bool) {
	C.SetAnomalyMode(C.bool(on), C.bool(checkNaN))
	if on {
		attention.Or(attentionTraced)
	} else {
		attention.And(^uint32(attentionTraced))
	}
}

// callTraced is call while anomalies are detected: the nodes that the op makes learn where in the
// program it was called.
func callTraced(op opID, block unsafe.Pointer) {
	trace := append([]byte(goTrace()), 0)
	slow := beforeSlow()
	C.cgotorch_run_traced(C.int64_t(op), (*C.struct_cgotorch_block)(block), (*C.char)(unsafe.Pointer(&trace[0])))
	finish(op, block, slow.after())
}

// goTrace describes the calling goroutine's stack, outermost call first as Python prints it, without
// this package's own functions.
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
