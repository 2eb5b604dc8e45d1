package gotorch

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// NumThreads returns the number of threads that one op may use.
func NumThreads() int { return int(ctorch.GetNumThreads()) }

// SetNumThreads sets the number of threads that one op may use, for all goroutines. Without it an op
// may use all processors, or as many as the quota of the container allows (cgroup v1 and v2) where that is
// fewer and OMP_NUM_THREADS is not set, and goroutines that compute at the same time divide them. It panics with a
// RuntimeError if n is not positive.
func SetNumThreads(n int) {
	if err := ctorch.SetNumThreads(int64(n)); err != nil {
		panicC("SetNumThreads", unsafe.Pointer(err))
	}
}

// NumInteropThreads returns the number of threads for ops that run beside each other in one graph.
func NumInteropThreads() int { return int(ctorch.GetNumInteropThreads()) }

// SetNumInteropThreads sets it. It panics with a RuntimeError once such threads have been started.
func SetNumInteropThreads(n int) {
	if err := ctorch.SetNumInteropThreads(int64(n)); err != nil {
		panicC("SetNumInteropThreads", unsafe.Pointer(err))
	}
}
