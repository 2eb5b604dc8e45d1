package gotorch

/*
#include <cgotorch.h>

extern char *gotorch_begin_bucket(void *, DistBucket, int64_t *);
extern char *gotorch_finish_bucket(void *);

static const char *begin_bucket(void *data, DistBucket bucket, void **pending) {
  int64_t token = 0;
  const char *error = gotorch_begin_bucket(data, bucket, &token);
  *pending = (void *)(intptr_t)token;
  return error;
}
static const char *finish_bucket(void *pending) { return gotorch_finish_bucket(pending); }

static const char *register_comm_hook(DistReducer reducer, int64_t token) {
  const DistCommHook hook = {begin_bucket, finish_bucket, cgotorch_queue_token, (void *)(intptr_t)token,
                             cgotorch_queue_token};
  return DistReducerRegisterHook(reducer, &hook);
}

static const char *bucket_tensors(DistBucket b, bool parameters, Tensor **ts, int64_t *n) {
  return parameters ? DistBucketParameters(b, ts, n) : DistBucketGradients(b, ts, n);
}
*/
import "C"

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

// Hooks of package distributed that reduce gradients, which libtorch calls in a backward pass.

// addCommHooks adds what is here to what package distributed calls.
func addCommHooks(d *door.Distributed[Tensor]) {
	d.RegisterCommHook = func(r door.Reducer, begin func(door.Bucket) (finish func())) {
		token := (&callback{begin: begin}).lend()
		if err := C.register_comm_hook(reducerOf(r), token); err != nil {
			unpin(int64(token))
			panicC("RegisterCommHook", unsafe.Pointer(err))
		}
	}
	d.BucketIndex = func(b door.Bucket) (index int, last bool) {
		return int(C.DistBucketIndex(bucketOf(b))), bool(C.DistBucketIsLast(bucketOf(b)))
	}
	d.BucketBuffer = func(b door.Bucket) Tensor {
		var t C.Tensor
		if err := C.DistBucketBuffer(bucketOf(b), &t); err != nil {
			panicC("GradBucket.Buffer", unsafe.Pointer(err))
		}
		return wrapHandle(unsafe.Pointer(t))
	}
	d.BucketSetBuffer = func(b door.Bucket, t Tensor) {
		const op = "GradBucket.SetBuffer"
		h := t.hold(op, "buffer")
		defer C.FreeTensor(h)
		if err := C.DistBucketSetBuffer(bucketOf(b), h); err != nil {
			panicC(op, unsafe.Pointer(err))
		}
	}
	d.BucketTensors = func(b door.Bucket, parameters bool) []Tensor {
		var ts *C.Tensor
		var n C.int64_t
		if err := C.bucket_tensors(bucketOf(b), C.bool(parameters), &ts, &n); err != nil {
			panicC("GradBucket", unsafe.Pointer(err))
		}
		defer C.FreeArray(unsafe.Pointer(ts))
		return wrapHandles(unsafe.Slice(ts, n))
	}
	d.FreeBucket = func(b door.Bucket) { C.DistBucketFree(bucketOf(b)) }
	d.SetForwardWork = func(r door.Reducer, w door.Work, divideByAll bool) {
		if err := C.DistReducerSetForwardWork(reducerOf(r), workOf(w), C.bool(divideByAll)); err != nil {
			panicC("DataParallel", unsafe.Pointer(err))
		}
	}
	d.Shadow = func(r door.Reducer) {
		state := enterBack()
		err := C.DistReducerShadow(reducerOf(r))
		checkBack("Join", unsafe.Pointer(err), leaveBack(state))
	}
}

func bucketOf(b door.Bucket) C.DistBucket { return C.DistBucket(unsafe.Pointer(b)) }

const inCommHook = "in a communication hook"

//export gotorch_begin_bucket
func gotorch_begin_bucket(data unsafe.Pointer, bucket C.DistBucket, pending *C.int64_t) *C.char {
	return callUser(inCommHook, func() {
		if finish := (*callback)(data).begin(door.Bucket(unsafe.Pointer(bucket))); finish != nil {
			*pending = (&callback{finish: finish}).lend()
		}
	})
}

//export gotorch_finish_bucket
func gotorch_finish_bucket(pending unsafe.Pointer) *C.char {
	return callUser(inCommHook, func() { (*callback)(pending).finish() })
}
