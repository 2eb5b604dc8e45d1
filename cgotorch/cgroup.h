// What the container of the process may use.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// Makes libtorch's default number of threads, which is that of the processors, at most n. It has no
// effect after SetNumThreads, nor where libtorch has no OpenMP.
void cgotorch_limit_threads(int64_t n);
// How many CPUs the process may use by the quotas of its control group and of those around it, of
// cgroup v1 and v2; 0: there is no quota. root is "", or the folder that a test has made a /proc
// and a /sys in.
double cgotorch_cpu_quota(const char *root);
// How many bytes of memory the process may have by its control groups; 0: there is no limit.
int64_t cgotorch_memory_limit(const char *root);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
