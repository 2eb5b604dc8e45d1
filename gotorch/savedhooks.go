package gotorch

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

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
	ctorch.PackSaved() // what an op before has saved belongs to the hooks around these
	hooks := &ctorch.Callback{
		Pack: func(t ctorch.Word) (token int64) {
			Unscoped(func() {
				NoGrad(func() { token = (&ctorch.Callback{Packed: pack(Tensor{t})}).Lend() })
			})
			return token
		},
		Unpack: func(packed any, result *ctorch.Tensor) ctorch.Message {
			return protect("in a saved tensor hook", func() {
				NoGrad(func() { *result = handOut(unpack(packed), "unpack", "result") })
			})
		},
	}
	token := hooks.Lend()
	if err := ctorch.EnterSavedHooks(token); err != nil {
		ctorch.TakeBack(token)
		panicC(op, unsafe.Pointer(err))
	}
	defer ctorch.LeaveSavedHooksDropping() // where fn has panicked: nobody expects pack any more
	fn()
	ctorch.PackSaved()
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
