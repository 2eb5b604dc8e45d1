package gotorch

/*
#include <cgotorch.h>

extern char *gotorch_unpack(void *, void *, Tensor *);

static const char *unpack(void *data, void *packed, Tensor *result) {
  return gotorch_unpack(data, packed, result);
}
static const char *enter_saved_hooks(int64_t token) {
  return EnterSavedHooks(unpack, (void *)(intptr_t)token, cgotorch_queue_token);
}
static void set_saved(SavedTensor saved, int64_t token) { SetSaved(saved, (void *)(intptr_t)token); }
*/
import "C"

import (
	"sync"
	"unsafe"
)

// savedHooks are the functions of a [SavedTensorsHooks].
type savedHooks struct {
	pack   func(Tensor) any
	unpack func(any) Tensor
}

// SavedTensorsHooks calls fn. What ops in it save for the backward pass is given to pack, and the graph keeps what pack
// returns; unpack makes the tensor of it again when a backward pass asks, with the same shape, dtype and device. So graphs
// can keep tensors elsewhere, compress them, or count them:
//
//	gotorch.SavedTensorsHooks(
//		func(t gotorch.Tensor) any { return t.To(gotorch.BFloat16) },
//		func(packed any) gotorch.Tensor { return packed.(gotorch.Tensor).To(gotorch.Float32) },
//		func() { loss = model.Forward(x).Square().Mean() })
//
// pack runs when the op has returned, before the goroutine's next one or the end of fn; both hooks run without grad mode, and
// what they do is not saved by hooks. What pack makes is left to the collector. A panic of pack comes out of the next op,
// or of SavedTensorsHooks, and the graph keeps the tensor; one of unpack out of Backward. pack must not change the tensor, nor
// keep what leads to the graph. Where hooks nest, the innermost are called; in a [Checkpoint] within fn they get its inputs.
//
// SavedTensorsHooks panics with a TypeError if a function is nil, with a RuntimeError inside of a transform of package
// functorch, and with a NotImplementedError in a program that Python has loaded. Backward panics with a RuntimeError if
// unpack returns a tensor of another shape, dtype or device.
//
// See https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.saved_tensors_hooks
func SavedTensorsHooks(pack func(t Tensor) any, unpack func(packed any) Tensor, fn func()) {
	const op = "SavedTensorsHooks"
	if pack == nil || unpack == nil || fn == nil {
		panic(newError(op, TypeError, "pack, unpack and fn must be functions, and one is nil"))
	}
	thread := lockThread()
	defer unlockThread(thread)
	packSaved() // what an op before has saved belongs to the hooks around these
	token := (&callback{saved: &savedHooks{pack, unpack}}).lend()
	if err := C.enter_saved_hooks(token); err != nil {
		unpin(int64(token))
		panicC(op, unsafe.Pointer(err))
	}
	savingHooks.enter()
	defer func() {
		dropSaved() // where fn has panicked: nobody expects pack any more
		C.LeaveSavedHooks()
		savingHooks.leave()
	}()
	fn()
	packSaved()
}

// SaveOnCPUOptions are the arguments of [SaveOnCPU] that have defaults.
type SaveOnCPUOptions struct {
	PinMemory bool // copy to page-locked memory, and from there without waiting
}

// SaveOnCPU calls fn. What ops in it save for the backward pass is copied to the CPU, and back to its device when a backward pass
// asks for it. It panics as [SavedTensorsHooks] does.
//
// See https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.save_on_cpu
func SaveOnCPU(fn func(), opts ...SaveOnCPUOptions) {
	opt := option(opts)
	type moved struct {
		tensor Tensor
		device Device
	}
	SavedTensorsHooks(func(t Tensor) any {
		return moved{t.To(ToOptions{Device: CPU, PinMemory: opt.PinMemory}), t.Device()}
	}, func(packed any) Tensor {
		m := packed.(moved)
		return m.tensor.To(ToOptions{Device: m.device, NonBlocking: opt.PinMemory})
	}, fn)
}

// attentionSaving is set in attention while saved tensor hooks are open: then ops look for what is to be packed.
const attentionSaving = 1 << 11

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
func nextSaved() (saved C.SavedTensor, t C.Tensor, hooks unsafe.Pointer) {
	saved = C.NextSaved(&t, &hooks)
	return saved, t, hooks
}

// dropSaved leaves to the graph what ops of this thread have saved and is not packed.
func dropSaved() {
	for saved, t, _ := nextSaved(); saved != nil; saved, t, _ = nextSaved() {
		C.FreeTensor(t)
		C.SetSaved(saved, nil)
	}
}

// packSaved packs what ops of this thread have saved.
func packSaved() {
	var all []toPack // taken off C's list at once, lest the ops of a pack take them
	for saved, t, hooks := nextSaved(); saved != nil; saved, t, hooks = nextSaved() {
		Unscoped(func() { all = append(all, toPack{saved, wrapHandle(unsafe.Pointer(t)), (*callback)(hooks).saved}) })
	}
	defer func() { // where a pack has panicked: the graph keeps the rest
		for _, p := range all {
			C.set_saved(p.saved, 0)
		}
	}()
	for len(all) > 0 {
		p := all[0]
		var token C.int64_t
		Unscoped(func() {
			NoGrad(func() { token = (&callback{packed: p.hooks.pack(p.tensor)}).lend() })
		})
		all = all[1:]
		C.set_saved(p.saved, token)
	}
}

type toPack struct {
	saved  C.SavedTensor
	tensor Tensor
	hooks  *savedHooks
}

//export gotorch_unpack
func gotorch_unpack(data, packed unsafe.Pointer, result *C.Tensor) *C.char {
	return callUser("in a saved tensor hook", func() {
		NoGrad(func() {
			*result = handOut((*callback)(data).saved.unpack((*callback)(packed).packed), "unpack", "result")
		})
	})
}
