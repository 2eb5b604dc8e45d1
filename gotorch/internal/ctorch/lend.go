package ctorch

/*
#include <cgotorch.h>

static const char *blob_of_go(void *data, int64_t nbytes, const int64_t *sizes, int64_t ndim,
                              ScalarType dtype, int64_t token, Tensor *result) {
  Device cpu = {0, -1};
  return FromBlob(data, nbytes, sizes, ndim, NULL, dtype, cpu, cgotorch_queue_token,
                  (void *)(intptr_t)token, result);
}
static void queue_token(int64_t token) { cgotorch_queue_token((void *)(intptr_t)token); }
*/
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Go values that libtorch holds: memory of tensors, and functions that it calls.
//
// C holds a [Callback] by its address, as a number that means nothing to it. The table of memory that
// is lent to libtorch keeps it alive and in place, and forgets it when libcgotorch reports that number
// as handed back: the same way that FromBlob's memory takes.

// lent holds the pins of memory that tensors use, by token.
var lent lentMemory

type lentMemory struct {
	mutex sync.Mutex
	pins  map[int64]*runtime.Pinner
	last  int64
	seen  atomic.Int64 // how many were in libcgotorch's queue when it was last looked at
}

// add is called with the mutex locked.
func (l *lentMemory) add(token int64, pin *runtime.Pinner) {
	if l.pins == nil {
		l.pins = map[int64]*runtime.Pinner{}
	}
	l.pins[token] = pin
}

var tokensQueued = TokensQueued()

// Lent returns how many Go values libtorch holds.
func Lent() int {
	DrainTokens()
	lent.mutex.Lock()
	defer lent.mutex.Unlock()
	return len(lent.pins)
}

// LendMemory keeps memory in place until C hands the token back; nil is none.
func LendMemory(data unsafe.Pointer) (token int64) {
	DrainTokens()
	pin := new(runtime.Pinner)
	if data != nil {
		pin.Pin(data)
	}
	lent.mutex.Lock()
	defer lent.mutex.Unlock()
	lent.last++
	lent.add(lent.last, pin)
	return lent.last
}

// BlobOfGo makes a tensor of memory that was lent for a token.
func BlobOfGo(data unsafe.Pointer, nbytes int64, sizes *int64, ndim int64, dtype int32, token int64, result *Tensor) Message {
	return C.blob_of_go(data, C.int64_t(nbytes), (*C.int64_t)(sizes), C.int64_t(ndim), C.ScalarType(dtype), C.int64_t(token), result)
}

func queueToken(token int64) { C.queue_token(C.int64_t(token)) }

// TakeBack ends what [LendMemory] or [Callback.Lend] began, where C has not got the token.
func TakeBack(token int64) (known bool) {
	lent.mutex.Lock()
	pin := lent.pins[token]
	delete(lent.pins, token)
	lent.mutex.Unlock()
	if pin != nil {
		pin.Unpin()
	}
	return pin != nil
}

// DrainTokens unpins the memory that libtorch has dropped. It tells by a queue rather than by a call,
// because tensors are freed in calls that must not come back into Go.
func DrainTokens() {
	queued := atomic.LoadInt64(tokensQueued)
	if queued == lent.seen.Load() {
		return
	}
	var tokens [64]int64
	var others []int64
	for {
		n := TakeTokens(&tokens[0], int64(len(tokens)))
		for _, token := range tokens[:n] {
			if !TakeBack(token) && inPython {
				others = append(others, token)
			}
		}
		if int(n) < len(tokens) {
			break
		}
	}
	// Python may have loaded several Go packages, each with a copy of this one: they go back to them.
	for _, token := range others {
		queueToken(token)
	}
	lent.seen.Store(queued + int64(len(others)))
}
