package gotorch

/*
#include <cgroup.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

func init() {
	door.CPUQuota, door.MemoryLimit = cpuQuota, memoryLimit
	door.WhyThreads = func() string { return whyThreads }
}

// whyThreads says where the number of threads per op comes from, unless SetNumThreads is called.
var whyThreads = "the processors"

// limitThreads makes an op use no more threads than the process may have processors: OpenMP's threads wait awake for each
// other, and with more of them than the quota allows the kernel stops all of them for most of each period. What a
// variable of the environment says is what the user wants.
func limitThreads() {
	for _, name := range []string{"OMP_NUM_THREADS", "MKL_NUM_THREADS"} {
		if value := os.Getenv(name); value != "" {
			whyThreads = name + "=" + value
			return
		}
	}
	quota := cpuQuota("")
	if quota <= 0 {
		return
	}
	before := NumThreads()
	if n := threadsOf(quota); n < before {
		setThreadsLimit(n)
		if NumThreads() == n {
			whyThreads = fmt.Sprintf("the container's quota of %.3g CPUs, where there are %d", quota, before)
		}
	}
}

// threadsOf is how many threads a quota is good for: one for each whole CPU, and one at least.
func threadsOf(quota float64) int { return int(max(1, math.Floor(quota))) }

// cpuQuota returns how many CPUs the control groups of the process allow; 0: there is no quota. root is "" but in tests.
func cpuQuota(root string) float64 {
	path := C.CString(root)
	defer C.free(unsafe.Pointer(path))
	return float64(C.cgotorch_cpu_quota(path))
}

// memoryLimit returns how many bytes they allow; 0: there is no limit.
func memoryLimit(root string) int64 {
	path := C.CString(root)
	defer C.free(unsafe.Pointer(path))
	return int64(C.cgotorch_memory_limit(path))
}

// setThreadsLimit makes the default number of threads at most n.
func setThreadsLimit(n int) { C.cgotorch_limit_threads(C.int64_t(n)) }
