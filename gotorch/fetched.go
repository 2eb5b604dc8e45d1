package gotorch

/*
#include <cgotorch.h>

extern char *gotorch_fetch(void *, Tensor *);

static const char *fetch(void *data, Tensor *result) { return gotorch_fetch(data, result); }

static const char *enter_fetched(Tensor whole, int64_t token) {
  return EnterFetched(whole, fetch, (void *)(intptr_t)token, cgotorch_queue_token);
}
*/
import "C"

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

func init() { door.Fetched = enterFetched }

// enterFetched has ops of the calling goroutine not keep what they would save of whole's storage, until leave is called:
// the backward pass has it from fetch, which returns a tensor with the same elements.
func enterFetched(op string, whole Tensor, fetch func() Tensor) (leave func()) {
	thread := lockThread()
	var held holder
	defer held.free()
	in := held.all(op, "whole", []Tensor{whole})
	token := (&callback{fetch: fetch}).lend()
	if err := C.enter_fetched(in[0], token); err != nil {
		unpin(int64(token))
		unlockThread(thread)
		panicC(op, unsafe.Pointer(err))
	}
	return func() {
		C.LeaveFetched()
		unlockThread(thread)
	}
}

//export gotorch_fetch
func gotorch_fetch(data unsafe.Pointer, result *C.Tensor) *C.char {
	return callUser("in a sharded module", func() {
		*result = handOut((*callback)(data).fetch(), "fetch", "result")
	})
}
