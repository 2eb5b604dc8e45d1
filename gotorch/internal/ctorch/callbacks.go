package ctorch

/*
#include <cgotorch.h>

extern char *gotorch_grad_hook(void *, Tensor, Tensor *);
extern char *gotorch_post_hook(void *, Tensor);
extern char *gotorch_backward(void *, FunctionContext, Tensor *, int64_t, Tensor *, int64_t);
extern char *gotorch_recompute(void *, Checkpoint);
extern char *gotorch_fetch(void *, Tensor *);
extern char *gotorch_unpack(void *, void *, Tensor *);
extern char *gotorch_begin_bucket(void *, DistBucket, int64_t *);
extern char *gotorch_finish_bucket(void *);

static inline const char *grad_hook(void *data, Tensor grad, Tensor *result) {
  return gotorch_grad_hook(data, grad, result);
}
static inline const char *post_hook(void *data, Tensor leaf) { return gotorch_post_hook(data, leaf); }
static inline const char *register_hook(Tensor t, int64_t token, Hook *handle) {
  return RegisterHook(t, grad_hook, (void *)(intptr_t)token, cgotorch_queue_token, handle);
}
static inline const char *register_post_hook(Tensor t, int64_t token, Hook *handle) {
  return RegisterPostAccumulateGradHook(t, post_hook, (void *)(intptr_t)token, cgotorch_queue_token, handle);
}

static inline const char *backward(void *data, FunctionContext context, const Tensor *grads, int64_t n_grads,
                                   Tensor *results, int64_t n_results) {
  return gotorch_backward(data, context, (Tensor *)grads, n_grads, results, n_results);
}
static inline const char *apply_function(const char *name, int64_t token, bool materialize_grads,
                                         const Tensor *inputs, int64_t n_inputs, const Tensor *outputs,
                                         int64_t n_outputs, const Tensor *saved, int64_t n_saved,
                                         const Tensor *dirty, int64_t n_dirty, const Tensor *constant,
                                         int64_t n_constant, Tensor *results) {
  Function f = {name, backward, (void *)(intptr_t)token, cgotorch_queue_token, materialize_grads};
  return ApplyFunction(&f, inputs, n_inputs, outputs, n_outputs, saved, n_saved, dirty, n_dirty,
                       constant, n_constant, results);
}

static inline const char *recompute(void *data, Checkpoint frame) { return gotorch_recompute(data, frame); }
static inline const char *enter_checkpoint(const Tensor *inputs, int64_t n, int64_t token) {
  return EnterCheckpoint(inputs, n, recompute, (void *)(intptr_t)token, cgotorch_queue_token);
}

static inline const char *fetch(void *data, Tensor *result) { return gotorch_fetch(data, result); }
static inline const char *enter_fetched(Tensor whole, int64_t token) {
  return EnterFetched(whole, fetch, (void *)(intptr_t)token, cgotorch_queue_token);
}

static inline const char *unpack(void *data, void *packed, Tensor *result) {
  return gotorch_unpack(data, packed, result);
}
static inline const char *enter_saved_hooks(int64_t token) {
  return EnterSavedHooks(unpack, (void *)(intptr_t)token, cgotorch_queue_token);
}
static inline void set_saved(SavedTensor saved, int64_t token) { SetSaved(saved, (void *)(intptr_t)token); }
static inline const char *keep_for_pass(int64_t token) {
  return KeepForPass((void *)(intptr_t)token, cgotorch_queue_token);
}

static inline const char *begin_bucket(void *data, DistBucket bucket, void **pending) {
  int64_t token = 0;
  const char *error = gotorch_begin_bucket(data, bucket, &token);
  *pending = (void *)(intptr_t)token;
  return error;
}
static inline const char *finish_bucket(void *pending) { return gotorch_finish_bucket(pending); }
static inline const char *register_comm_hook(DistReducer reducer, int64_t token) {
  const DistCommHook hook = {begin_bucket, finish_bucket, cgotorch_queue_token, (void *)(intptr_t)token,
                             cgotorch_queue_token};
  return DistReducerRegisterHook(reducer, &hook);
}
*/
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// Callback is a Go value that C has, most of them with a function that C may call. The function may wait for other goroutines;
// it must not panic, nor end its goroutine, but return a [Message] (gotorch.CallbackFromC sees to that). Tensors that come in
// are borrowed, and of those that go out C becomes an owner.
type Callback struct {
	Hook     func(grad Tensor, result *Tensor) Message
	PostHook func(leaf Tensor) Message
	Backward func(context FunctionContext, grads, results []Tensor) Message

	Recompute func(frame Checkpoint) Message
	Fetch     func(result *Tensor) Message

	// Saved tensor hooks: Pack returns the token of a Callback with Packed, and panics as it likes.
	Pack   func(t Word) (token int64)
	Unpack func(packed any, result *Tensor) Message
	Packed any

	// Communication hooks: Begin returns the token of a Callback with Finish, or 0.
	Begin  func(bucket DistBucket) (token int64, m Message)
	Finish func() Message

	Kept any // what is to live as long as C has it
}

// Lend keeps c alive until C hands the token back.
func (c *Callback) Lend() (token int64) {
	DrainTokens()
	token = int64(uintptr(unsafe.Pointer(c)))
	pin := new(runtime.Pinner)
	pin.Pin(c)
	lent.mutex.Lock()
	defer lent.mutex.Unlock()
	lent.add(token, pin)
	return token
}

func callback(data unsafe.Pointer) *Callback { return (*Callback)(data) }

//export gotorch_grad_hook
func gotorch_grad_hook(data unsafe.Pointer, grad C.Tensor, result *C.Tensor) *C.char {
	return AsCallback(func() Message { return callback(data).Hook(grad, result) })
}

//export gotorch_post_hook
func gotorch_post_hook(data unsafe.Pointer, leaf C.Tensor) *C.char {
	return AsCallback(func() Message { return callback(data).PostHook(leaf) })
}

//export gotorch_backward
func gotorch_backward(data unsafe.Pointer, context C.FunctionContext, grads *C.Tensor, nGrads C.int64_t,
	results *C.Tensor, nResults C.int64_t) *C.char {
	return AsCallback(func() Message {
		return callback(data).Backward(context, unsafe.Slice(grads, nGrads), unsafe.Slice(results, nResults))
	})
}

//export gotorch_recompute
func gotorch_recompute(data unsafe.Pointer, frame C.Checkpoint) *C.char {
	return AsCallback(func() Message { return callback(data).Recompute(frame) })
}

//export gotorch_fetch
func gotorch_fetch(data unsafe.Pointer, result *C.Tensor) *C.char {
	return AsCallback(func() Message { return callback(data).Fetch(result) })
}

//export gotorch_unpack
func gotorch_unpack(data, packed unsafe.Pointer, result *C.Tensor) *C.char {
	return AsCallback(func() Message { return callback(data).Unpack(callback(packed).Packed, result) })
}

//export gotorch_begin_bucket
func gotorch_begin_bucket(data unsafe.Pointer, bucket C.DistBucket, pending *C.int64_t) *C.char {
	return AsCallback(func() Message {
		token, m := callback(data).Begin(bucket)
		*pending = C.int64_t(token)
		return m
	})
}

//export gotorch_finish_bucket
func gotorch_finish_bucket(pending unsafe.Pointer) *C.char {
	return AsCallback(func() Message { return callback(pending).Finish() })
}

// RegisterHook has C call the token's Hook.
func RegisterHook(t Tensor, token int64, handle *Hook) Message {
	return C.register_hook(t, C.int64_t(token), handle)
}

// RegisterPostHook has C call the token's PostHook.
func RegisterPostHook(t Tensor, token int64, handle *Hook) Message {
	return C.register_post_hook(t, C.int64_t(token), handle)
}

// ApplyFunction is ApplyFunction of autograd.h, whose function is the token's Backward. The name ends with a NUL byte.
func ApplyFunction(name []byte, token int64, materializeGrads bool, inputs, outputs, saved, dirty, constant, results []Tensor) Message {
	return C.apply_function((*C.char)(unsafe.Pointer(&name[0])), C.int64_t(token), C.bool(materializeGrads),
		first(inputs), C.int64_t(len(inputs)), first(outputs), C.int64_t(len(outputs)), first(saved), C.int64_t(len(saved)),
		first(dirty), C.int64_t(len(dirty)), first(constant), C.int64_t(len(constant)), first(results))
}

// EnterCheckpoint is EnterCheckpoint of checkpoint.h, whose function is the token's Recompute.
func EnterCheckpoint(inputs []Tensor, token int64) Message {
	return C.enter_checkpoint(first(inputs), C.int64_t(len(inputs)), C.int64_t(token))
}

// EnterFetched is EnterFetched of checkpoint.h, whose function is the token's Fetch.
func EnterFetched(whole Tensor, token int64) Message {
	return C.enter_fetched(whole, C.int64_t(token))
}

// KeepForPass has a backward pass keep the token.
func KeepForPass(token int64) Message { return C.keep_for_pass(C.int64_t(token)) }

// RegisterCommHook has a reducer call the token's Begin.
func RegisterCommHook(reducer DistReducer, token int64) Message {
	return C.register_comm_hook(reducer, C.int64_t(token))
}

// Saved tensor hooks -----------------------------------------------------------------------------------

// EnterSavedHooks has what ops save be packed by the token's Pack, until [LeaveSavedHooks].
func EnterSavedHooks(token int64) Message {
	if m := C.enter_saved_hooks(C.int64_t(token)); m != nil {
		return m
	}
	savingHooks.enter()
	return nil
}

// LeaveSavedHooksDropping ends it. What is not packed by then is left to the graph.
func LeaveSavedHooksDropping() {
	for saved, t, _ := nextSaved(); saved != nil; saved, t, _ = nextSaved() {
		FreeTensor(t)
		C.set_saved(saved, 0)
	}
	LeaveSavedHooks()
	savingHooks.leave()
}

// savingHooks counts the hooks that are open.
var savingHooks savingCount

type savingCount struct {
	mutex sync.Mutex
	open  int
}

func (s *savingCount) enter() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.open++
	attention.Or(attentionSaving)
}

func (s *savingCount) leave() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.open--
	if s.open == 0 {
		attention.And(^uint32(attentionSaving))
	}
}

// nextSaved returns what an op of this thread has saved and nobody has taken yet; nil for saved if there is nothing more.
func nextSaved() (saved SavedTensor, t Tensor, hooks unsafe.Pointer) {
	saved = NextSaved(&t, &hooks)
	return saved, t, hooks
}

type toPack struct {
	saved  SavedTensor
	tensor Word
	hooks  *Callback
}

// PackSaved packs what ops of this thread have saved.
func PackSaved() {
	var all []toPack // taken off C's list at once, lest the ops of a pack take them
	for saved, t, hooks := nextSaved(); saved != nil; saved, t, hooks = nextSaved() {
		Unscoped(func() { all = append(all, toPack{saved, Wrap(t), callback(hooks)}) })
	}
	defer func() { // where a pack has panicked: the graph keeps the rest
		for _, p := range all {
			C.set_saved(p.saved, 0)
		}
	}()
	for len(all) > 0 {
		p := all[0]
		token := p.hooks.Pack(p.tensor)
		all = all[1:]
		C.set_saved(p.saved, C.int64_t(token))
	}
}
