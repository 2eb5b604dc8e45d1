package gotorch

// #include <cgotorch.h>
import "C"

import "gotorch.dev/gotorch/internal/door"

func init() {
	door.OwnThreads = func(n int) func() {
		before := C.cgotorch_own_threads(C.int64_t(n))
		return func() { C.cgotorch_own_threads(before) }
	}
}
