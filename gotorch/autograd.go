package gotorch

/*
#include <cgotorch.h>
#include <ops_gen.h>
#cgo noescape TensorGrad
#cgo nocallback TensorGrad

extern char *gotorch_grad_hook(void *, Tensor, Tensor *);
extern char *gotorch_post_hook(void *, Tensor);

static const char *grad_hook(void *data, Tensor grad, Tensor *result) {
  return gotorch_grad_hook(data, grad, result);
}
static const char *post_hook(void *data, Tensor leaf) { return gotorch_post_hook(data, leaf); }

static const char *register_hook(Tensor t, int64_t token, Hook *handle) {
  return RegisterHook(t, grad_hook, (void *)(intptr_t)token, cgotorch_queue_token, handle);
}
static const char *register_post_hook(Tensor t, int64_t token, Hook *handle) {
  return RegisterPostAccumulateGradHook(t, post_hook, (void *)(intptr_t)token,
                                        cgotorch_queue_token, handle);
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// BackwardOptions are the arguments of [Tensor.Backward] and [Backward] that have defaults.
type BackwardOptions struct {
	// Gradient is the gradient of the tensor itself; where it is none the tensor must have one
	// element, and the gradient is 1. The function [Backward] has an argument for it instead.
	Gradient Tensor
	// RetainGraph keeps what the graph has saved, so that it can be run again. Default: CreateGraph.
	RetainGraph *bool
	// CreateGraph records the backward pass itself, for higher derivatives. A tensor whose Grad is
	// part of a graph that leads to the tensor keeps itself alive until its gradient is set anew;
	// [Grad] avoids that.
	CreateGraph bool
	// Inputs are the only tensors to receive a gradient. Default: all leaves.
	Inputs []Tensor
}

// Backward adds the gradients of t to the Grad of the leaves that t was computed from, as
// torch.Tensor.backward. It panics with a RuntimeError if t does not require grad, if the graph was
// freed by an earlier pass, or if t has more than one element and no Gradient is given. If a hook or
// a [Function] written in Go panics, it panics with an *Error that wraps a [CallbackPanic].
func (t Tensor) Backward(opts ...BackwardOptions) {
	var grads []Tensor
	opt := option(opts)
	if opt.Gradient.T != nil {
		grads = []Tensor{opt.Gradient}
	}
	backward([]Tensor{t}, grads, opt)
}

// Backward is [Tensor.Backward] for several tensors at once, as torch.autograd.backward.
// gradTensors are their gradients; nil, or none for some, where a 1 is meant.
func Backward(tensors, gradTensors []Tensor, opts ...BackwardOptions) {
	opt := option(opts)
	if opt.Gradient.T != nil {
		panic(newError("Backward", ValueError, "the gradients belong into the argument 'gradTensors', not into the option Gradient"))
	}
	backward(tensors, gradTensors, opt)
}

func backward(tensors, gradTensors []Tensor, opt BackwardOptions) {
	const op = "Backward"
	checkGrads(op, "tensors", "gradTensors", len(tensors), gradTensors)
	var held holder
	defer held.free()
	roots := held.all(op, "tensors", tensors)
	grads := held.given(op, "gradTensors", gradTensors)
	var inputs []C.Tensor
	if opt.Inputs != nil {
		inputs = append(make([]C.Tensor, 0, 1), held.all(op, "Inputs", opt.Inputs)...)
	}
	state := enterBack()
	err := C.Backward(unsafe.SliceData(roots), C.int64_t(len(roots)), unsafe.SliceData(grads), cBool(opt.RetainGraph),
		C.bool(opt.CreateGraph), unsafe.SliceData(inputs), C.int64_t(len(inputs)))
	warnings := leaveBack(state)
	checkBack(op, unsafe.Pointer(err), warnings)
}

// GradOptions are the arguments of [Grad] that have defaults.
type GradOptions struct {
	// GradOutputs are the gradients of the outputs, each of its shape; nil, or none for some, where a 1 is meant.
	GradOutputs []Tensor
	// RetainGraph keeps what the graph has saved, so that it can be run again. Default: CreateGraph.
	RetainGraph *bool
	// CreateGraph makes the results part of a graph, for higher derivatives.
	CreateGraph bool
	// AllowUnused returns none for an input that the outputs do not depend on, instead of panicking.
	AllowUnused bool
	// MaterializeGrads returns zeros for such an input.
	MaterializeGrads bool
	// IsGradsBatched takes GradOutputs with one more dimension, the first, and returns gradients with such a one: a vector-Jacobian
	// product for each, computed together as functorch.VMap does. PyTorch has an older vmap for it, which computes most functions one
	// product after another: where a function adds up in another order for all together, the last bits of both differ.
	IsGradsBatched bool
}

// Grad returns the gradients of outputs with respect to inputs, without touching any Grad, as
// torch.autograd.grad. It panics as [Tensor.Backward] does, and with a RuntimeError if the outputs
// do not depend on an input and the options do not allow it.
func Grad(outputs, inputs []Tensor, opts ...GradOptions) []Tensor {
	const op = "Grad"
	opt := option(opts)
	checkGrads(op, "outputs", "GradOutputs", len(outputs), opt.GradOutputs)
	if len(inputs) == 0 {
		panic(newError(op, RuntimeError, "argument 'inputs' must have a tensor"))
	}
	if opt.IsGradsBatched {
		return batchedGrad(op, outputs, inputs, opt)
	}
	var held holder
	defer held.free()
	roots := held.all(op, "outputs", outputs)
	of := held.all(op, "inputs", inputs)
	grads := held.given(op, "GradOutputs", opt.GradOutputs)
	results := make([]C.Tensor, len(inputs))
	state := enterBack()
	err := C.Grad(unsafe.SliceData(roots), C.int64_t(len(roots)), unsafe.SliceData(of), C.int64_t(len(of)),
		unsafe.SliceData(grads), cBool(opt.RetainGraph), C.bool(opt.CreateGraph), C.bool(opt.AllowUnused),
		C.bool(opt.MaterializeGrads), unsafe.SliceData(results))
	warnings := leaveBack(state)
	checkBack(op, unsafe.Pointer(err), warnings)
	return wrapHandles(results)
}

// batchedGrad is Grad with IsGradsBatched.
func batchedGrad(op string, outputs, inputs []Tensor, opt GradOptions) []Tensor {
	size := int64(-1)
	for i, grad := range opt.GradOutputs {
		if grad.T == nil {
			continue
		}
		shape := grad.Shape()
		if len(shape) == 0 || size >= 0 && shape[0] != size {
			panic(newError(op, ValueError, fmt.Sprintf("GradOutputs[%d] has shape %v, where batched ones have the same first dimension", i, shape)))
		}
		size = shape[0]
	}
	if size < 0 {
		panic(newError(op, ValueError, "IsGradsBatched needs GradOutputs"))
	}
	opt.IsGradsBatched = false
	return Scope(func(*ScopeHandle) []Tensor {
		level, leave := enterTransform(op, C.TransformVMap, size, 0)
		defer leave()
		batched := make([]Tensor, len(opt.GradOutputs))
		for i, grad := range opt.GradOutputs {
			if grad.T != nil {
				batched[i] = addBatchDim(op, grad, 0, level)
			}
		}
		opt.GradOutputs = batched
		grads := Grad(outputs, inputs, opt)
		for i, grad := range grads {
			if grad.T != nil {
				grads[i] = removeBatchDim(op, grad, level, size, 0)
			}
		}
		return grads
	})
}

func checkGrads(op, of, arg string, n int, grads []Tensor) {
	if len(grads) != 0 && len(grads) != n {
		panic(newError(op, RuntimeError, "argument '"+arg+"' must have as many tensors as '"+of+"', or none"))
	}
}

// holder holds tensors for functions that are no generated op, as [Tensor.hold] does.
type holder struct{ handles []C.Tensor }

func (h *holder) one(op, arg string, t Tensor) C.Tensor {
	handle := t.hold(op, arg)
	h.handles = append(h.handles, handle)
	return handle
}

// all returns the handles of a list.
func (h *holder) all(op, arg string, ts []Tensor) []C.Tensor {
	hs := make([]C.Tensor, len(ts))
	for i, t := range ts {
		hs[i] = h.one(op, arg, t)
	}
	return hs
}

// given is all where tensors may be none. It returns nil for an empty list.
func (h *holder) given(op, arg string, ts []Tensor) []C.Tensor {
	if len(ts) == 0 {
		return nil
	}
	hs := make([]C.Tensor, len(ts))
	for i, t := range ts {
		if t.T != nil {
			hs[i] = h.one(op, arg, t)
		}
	}
	return hs
}

func (h *holder) free() {
	C.FreeTensors(unsafe.SliceData(h.handles), C.int64_t(len(h.handles)))
}

func wrapHandles(hs []C.Tensor) []Tensor {
	ts := make([]Tensor, len(hs))
	for i, h := range hs {
		ts[i] = wrapHandle(unsafe.Pointer(h))
	}
	return ts
}

func cBool(b *bool) *C.bool {
	if b == nil {
		return nil
	}
	c := C.bool(*b)
	return &c
}

// Tensors in a graph -----------------------------------------------------------------------------------

// Grad returns t's gradient: none until a backward pass has computed one. It is t's own gradient,
// not a copy. For a t that is no leaf and has not been told to [Tensor.RetainGrad] there is a warning.
func (t Tensor) Grad() Tensor {
	var g C.Tensor
	self := t.hold("Grad", "self")
	defer C.FreeTensor(self)
	warnings := gatherWarnings()
	err := C.TensorGrad(self, &g)
	checkBack("Grad", unsafe.Pointer(err), warnings.gathered())
	return wrapHandle(unsafe.Pointer(g))
}

// SetGrad makes grad t's gradient; none clears it. It panics with a RuntimeError if shape, dtype or
// device do not fit t.
func (t Tensor) SetGrad(grad Tensor) {
	var g C.Tensor
	if grad.T != nil {
		g = grad.hold("SetGrad", "grad")
		defer C.FreeTensor(g)
	}
	self := t.hold("SetGrad", "self")
	defer C.FreeTensor(self)
	err := C.TensorSetGrad(self, g)
	if err != nil {
		panicC("SetGrad", unsafe.Pointer(err))
	}
}

// RequiresGrad reports whether autograd records what is done with t.
func (t Tensor) RequiresGrad() bool { return t.flag("RequiresGrad", C.TensorRequiresGrad) }

// RequiresGrad_ sets whether autograd records what is done with t: true unless an argument says
// otherwise. It returns t. It panics with a RuntimeError if t is no leaf, or of a dtype without
// gradients.
func (t Tensor) RequiresGrad_(requiresGrad ...bool) Tensor {
	on := len(requiresGrad) == 0 || requiresGrad[0]
	err := t.setRequiresGrad("RequiresGrad_", on)
	if err != nil {
		panicC("RequiresGrad_", unsafe.Pointer(err))
	}
	return t
}

func (t Tensor) setRequiresGrad(op string, on bool) *C.char {
	h := t.hold(op, "self")
	defer C.FreeTensor(h)
	return C.TensorSetRequiresGrad(h, C.bool(on))
}

// IsLeaf reports whether t is where a graph begins: made by the program, or not requiring grad.
func (t Tensor) IsLeaf() bool { return t.flag("IsLeaf", C.TensorIsLeaf) }

// RetainGrad makes backward passes keep the gradient of t, which they do by themselves for leaves
// only. It panics with a RuntimeError if t does not require grad.
func (t Tensor) RetainGrad() {
	self := t.hold("RetainGrad", "self")
	defer C.FreeTensor(self)
	err := C.RetainGradOf(self)
	if err != nil {
		panicC("RetainGrad", unsafe.Pointer(err))
	}
}

// GradFnName returns the name of the node that made t, "AddBackward0"; "" for leaves.
func (t Tensor) GradFnName() string {
	return gradFnName(t)
}

// Hooks ------------------------------------------------------------------------------------------------

// HookHandle is a hook that has been registered.
type HookHandle struct {
	c    owner
	more []*HookHandle // of a hook of several tensors
}

// Remove takes the hook off its tensor. Removing it twice does nothing. The hook stays when the
// handle is dropped.
func (h *HookHandle) Remove() {
	C.RemoveHook(C.Hook(h.c.h))
	for _, one := range h.more {
		one.Remove()
	}
	runtime.KeepAlive(h)
}

// RegisterHook has fn called with the gradient of t whenever one is computed. What fn returns takes
// the gradient's place; none leaves it. It panics with a RuntimeError if t does not require grad.
//
// The gradient is none, as in Python, where the op that made t has other results and only they were
// used, or where a [Function] gives none for t. Then fn must return none too.
//
// fn runs while Backward waits for it, on its OS thread, or on one of libtorch's for work on a GPU, where
// the scopes around Backward are not in force. A panic in it ends the backward pass and comes out of
// Backward. If it ends its goroutine, as t.Fatal does, that of who called Backward ends too.
//
// fn must not hold on to t itself, because then neither can ever be freed; give it what it needs of
// t, or remove the hook in the end. The same holds for small tensors that were made around the same
// time as t, unless t is the result of an op or was made with TensorOptions.RequiresGrad.
func (t Tensor) RegisterHook(fn func(grad Tensor) Tensor) *HookHandle {
	if fn == nil {
		panic(newError("RegisterHook", TypeError, "the hook is nil"))
	}
	c := &callback{hook: fn}
	return register("RegisterHook", t, c, func(h C.Tensor, token C.int64_t, handle *C.Hook) *C.char {
		return C.register_hook(h, token, handle)
	})
}

// RegisterPostAccumulateGradHook has fn called with t after a backward pass has added to its Grad. It
// panics with a RuntimeError if t is not a leaf that requires grad. What is said of fn at
// [Tensor.RegisterHook] holds here too.
func (t Tensor) RegisterPostAccumulateGradHook(fn func(leaf Tensor)) *HookHandle {
	if fn == nil {
		panic(newError("RegisterPostAccumulateGradHook", TypeError, "the hook is nil"))
	}
	c := &callback{postHook: fn}
	return register("RegisterPostAccumulateGradHook", t, c, func(h C.Tensor, token C.int64_t, handle *C.Hook) *C.char {
		return C.register_post_hook(h, token, handle)
	})
}

func register(op string, t Tensor, c *callback, with func(C.Tensor, C.int64_t, *C.Hook) *C.char) *HookHandle {
	h := t.hold(op, "self")
	defer C.FreeTensor(h)
	token := c.lend()
	var handle C.Hook
	err := with(h, token, &handle)
	if err != nil {
		unpin(int64(token))
		panicC(op, unsafe.Pointer(err))
	}
	result := new(HookHandle)
	result.c.own(unsafe.Pointer(handle), func(h unsafe.Pointer) { C.FreeHook(C.Hook(h)) })
	return result
}
