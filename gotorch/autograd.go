package gotorch

import (
	"fmt"
	"runtime"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
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
	var inputs []ctorch.Tensor
	if opt.Inputs != nil {
		inputs = append(make([]ctorch.Tensor, 0, 1), held.all(op, "Inputs", opt.Inputs)...)
	}
	state := ctorch.EnterBack()
	err := ctorch.Backward(unsafe.SliceData(roots), int64(len(roots)), unsafe.SliceData(grads), opt.RetainGraph,
		opt.CreateGraph, unsafe.SliceData(inputs), int64(len(inputs)))
	warnings := ctorch.LeaveBack(state)
	checkBack(op, err, warnings)
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
	results := make([]ctorch.Tensor, len(inputs))
	state := ctorch.EnterBack()
	err := ctorch.Grad(unsafe.SliceData(roots), int64(len(roots)), unsafe.SliceData(of), int64(len(of)),
		unsafe.SliceData(grads), opt.RetainGraph, opt.CreateGraph, opt.AllowUnused,
		opt.MaterializeGrads, unsafe.SliceData(results))
	warnings := ctorch.LeaveBack(state)
	checkBack(op, err, warnings)
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
		level, leave := enterTransform(op, ctorch.TransformVMap, size)
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
type holder struct{ held ctorch.Holder }

func (h *holder) one(op, arg string, t Tensor) ctorch.Tensor {
	handle, message := h.held.One(arg, t.T)
	if message != nil {
		panicC(op, unsafe.Pointer(message))
	}
	return handle
}

// all returns the handles of a list.
func (h *holder) all(op, arg string, ts []Tensor) []ctorch.Tensor {
	hs := make([]ctorch.Tensor, len(ts))
	for i, t := range ts {
		hs[i] = h.one(op, arg, t)
	}
	return hs
}

// given is all where tensors may be none. It returns nil for an empty list.
func (h *holder) given(op, arg string, ts []Tensor) []ctorch.Tensor {
	if len(ts) == 0 {
		return nil
	}
	hs := make([]ctorch.Tensor, len(ts))
	for i, t := range ts {
		if t.T != nil {
			hs[i] = h.one(op, arg, t)
		}
	}
	return hs
}

func (h *holder) free() { h.held.Free() }

// Tensors in a graph -----------------------------------------------------------------------------------

// Grad returns t's gradient: none until a backward pass has computed one. It is t's own gradient,
// not a copy. For a t that is no leaf and has not been told to [Tensor.RetainGrad] there is a warning.
func (t Tensor) Grad() Tensor {
	var g ctorch.Tensor
	self := t.hold("Grad", "self")
	defer ctorch.FreeTensor(self)
	warnings := ctorch.GatherWarnings()
	err := ctorch.TensorGrad(self, &g)
	checkBack("Grad", err, warnings.Gathered())
	return wrapHandle(g)
}

// SetGrad makes grad t's gradient; none clears it. It panics with a RuntimeError if shape, dtype or
// device do not fit t.
func (t Tensor) SetGrad(grad Tensor) {
	var g ctorch.Tensor
	if grad.T != nil {
		g = grad.hold("SetGrad", "grad")
		defer ctorch.FreeTensor(g)
	}
	self := t.hold("SetGrad", "self")
	defer ctorch.FreeTensor(self)
	err := ctorch.TensorSetGrad(self, g)
	if err != nil {
		panicC("SetGrad", unsafe.Pointer(err))
	}
}

// RequiresGrad reports whether autograd records what is done with t.
func (t Tensor) RequiresGrad() bool { return t.flag("RequiresGrad", ctorch.TensorRequiresGrad) }

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

func (t Tensor) setRequiresGrad(op string, on bool) ctorch.Message {
	h := t.hold(op, "self")
	defer ctorch.FreeTensor(h)
	return ctorch.TensorSetRequiresGrad(h, on)
}

// IsLeaf reports whether t is where a graph begins: made by the program, or not requiring grad.
func (t Tensor) IsLeaf() bool { return t.flag("IsLeaf", ctorch.TensorIsLeaf) }

// RetainGrad makes backward passes keep the gradient of t, which they do by themselves for leaves
// only. It panics with a RuntimeError if t does not require grad.
func (t Tensor) RetainGrad() {
	self := t.hold("RetainGrad", "self")
	defer ctorch.FreeTensor(self)
	err := ctorch.RetainGradOf(self)
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
	c    ctorch.Owner
	more []*HookHandle // of a hook of several tensors
}

// Remove takes the hook off its tensor. Removing it twice does nothing. The hook stays when the
// handle is dropped.
func (h *HookHandle) Remove() {
	ctorch.RemoveHook(ctorch.Hook(h.c.H))
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
	return register("RegisterHook", t, ctorch.RegisterHook, &ctorch.Callback{Hook: func(grad ctorch.Tensor, result *ctorch.Tensor) ctorch.Message {
		return protect("in a hook", func() { *result = handOut(fn(borrowed(grad)), "hook", "result") })
	}})
}

// RegisterPostAccumulateGradHook has fn called with t after a backward pass has added to its Grad. It
// panics with a RuntimeError if t is not a leaf that requires grad. What is said of fn at
// [Tensor.RegisterHook] holds here too.
func (t Tensor) RegisterPostAccumulateGradHook(fn func(leaf Tensor)) *HookHandle {
	if fn == nil {
		panic(newError("RegisterPostAccumulateGradHook", TypeError, "the hook is nil"))
	}
	return register("RegisterPostAccumulateGradHook", t, ctorch.RegisterPostHook, &ctorch.Callback{PostHook: func(leaf ctorch.Tensor) ctorch.Message {
		return protect("in a hook", func() { fn(borrowed(leaf)) })
	}})
}

func register(op string, t Tensor, with func(ctorch.Tensor, int64, *ctorch.Hook) ctorch.Message, c *ctorch.Callback) *HookHandle {
	h := t.hold(op, "self")
	defer ctorch.FreeTensor(h)
	token := c.Lend()
	var handle ctorch.Hook
	err := with(h, token, &handle)
	if err != nil {
		ctorch.TakeBack(token)
		panicC(op, unsafe.Pointer(err))
	}
	result := new(HookHandle)
	result.c.Own(unsafe.Pointer(handle), func(h unsafe.Pointer) { ctorch.FreeHook(ctorch.Hook(h)) })
	return result
}
