package gotorch

/*
#define _GNU_SOURCE
#include <cgotorch.h>
#include <dlfcn.h>
#include <stddef.h>

// That of the OpenMP which libtorch uses; it concerns the calling thread only.
typedef void set_threads(int);
typedef int get_threads(void);

// gotorch_own_threads sets how many threads an op of this thread uses, and returns what that was; 0 where there is no
// OpenMP to set it.
static int gotorch_own_threads(int n) {
  set_threads *set = (set_threads *)dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  get_threads *get = (get_threads *)dlsym(RTLD_DEFAULT, "omp_get_max_threads");
  if (set == NULL || get == NULL) return 0;
  GetNumThreads(); // what is set for all threads comes first
  const int before = get();
  set(n);
  return before;
}

// gotorch_other_threads undoes it, unless there is a newer count for all threads.
static void gotorch_other_threads(int n, int before) {
  set_threads *set = (set_threads *)dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  get_threads *get = (get_threads *)dlsym(RTLD_DEFAULT, "omp_get_max_threads");
  if (get() == n) set(before);
}
*/
import "C"

import "gotorch.dev/gotorch/internal/door"

func init() {
	door.OwnThreads = func(n int) func() {
		before := C.gotorch_own_threads(C.int(n))
		if before == 0 {
			return func() {}
		}
		return func() { C.gotorch_other_threads(C.int(n), before) }
	}
}
