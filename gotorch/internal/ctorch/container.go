package ctorch

/*
#include <cgroup.h>
*/
import "C"

import (
	"fmt"
	"math"
	"os"
	"unsafe"
)

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
	quota := CPUQuota("")
	if quota <= 0 {
		return
	}
	before := int(GetNumThreads())
	if n := ThreadsOf(quota); n < before {
		SetThreadsLimit(n)
		if int(GetNumThreads()) == n {
			whyThreads = fmt.Sprintf("the container's quota of %.3g CPUs, where there are %d", quota, before)
		}
	}
}

// ThreadsOf is how many threads a quota is good for: one for each whole CPU, and one at least.
func ThreadsOf(quota float64) int { return int(max(1, math.Floor(quota))) }

// CPUQuota returns how many CPUs the control groups of the process allow; 0: there is no quota. root is "" but in tests.
func CPUQuota(root string) float64 {
	path := CString(root)
	defer CFree(unsafe.Pointer(path))
	return cpuQuota(path)
}

// MemoryLimit returns how many bytes they allow; 0: there is no limit.
func MemoryLimit(root string) int64 {
	path := CString(root)
	defer CFree(unsafe.Pointer(path))
	return memoryLimit(path)
}

// SetThreadsLimit makes the default number of threads at most n.
func SetThreadsLimit(n int) { LimitThreads(int64(n)) }

// WhyThreads says where the number of threads per op comes from, unless SetNumThreads is called.
func WhyThreads() string { return whyThreads }

func cpuQuota(root *Char) float64  { return float64(C.cgotorch_cpu_quota(root)) }
func memoryLimit(root *Char) int64 { return int64(C.cgotorch_memory_limit(root)) }
