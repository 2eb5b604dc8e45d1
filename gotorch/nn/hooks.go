package nn

import (
	"reflect"
	"slices"

	"gotorch.dev/gotorch"
)

// hooks is what is registered with a module.
type hooks struct {
	next        int64
	forwardPre  []hook[ForwardPreHook]
	forward     []hook[ForwardHook]
	backwardPre []hook[BackwardPreHook]
	backward    []hook[BackwardHook]
}

// hook is a function and its number, by which it is removed.
type hook[F any] struct {
	number int64
	fn     F
}

// ForwardPreHook sees the tensors that a module's Forward is about to be called with. What it returns
// takes their place, nil leaves them.
type ForwardPreHook func(m Modular, inputs []gotorch.Tensor) []gotorch.Tensor

// ForwardHook sees the tensors that a module's Forward was called with and those that it returns. What it
// returns takes the place of the latter, nil leaves them.
type ForwardHook func(m Modular, inputs, outputs []gotorch.Tensor) []gotorch.Tensor

// BackwardPreHook sees the gradients of what a module's Forward returned, before they go back through the
// module. What it returns takes their place, nil leaves them.
type BackwardPreHook func(m Modular, gradOutputs []gotorch.Tensor) []gotorch.Tensor

// BackwardHook sees the gradients of what a module's Forward was called with, and of what it returned. What
// it returns takes the place of the former, nil leaves them.
type BackwardHook func(m Modular, gradInputs, gradOutputs []gotorch.Tensor) []gotorch.Tensor

// HookHandle removes a hook.
type HookHandle struct{ remove func() }

// Remove has the hook not called any more. To remove it again does nothing.
func (h *HookHandle) Remove() { h.remove() }

func register[F any](m *Module, list func(h *hooks) *[]hook[F], fn F) *HookHandle {
	if m.hooks == nil {
		m.hooks = &hooks{}
	}
	h := m.hooks
	h.next++
	number := h.next
	at := list(h)
	*at = append(slices.Clip(*at), hook[F]{number, fn}) // a new list: the old one may be running
	return &HookHandle{func() {
		*at = slices.DeleteFunc(slices.Clone(*at), func(h hook[F]) bool { return h.number == number })
		if len(h.forwardPre)+len(h.forward)+len(h.backwardPre)+len(h.backward) == 0 && m.hooks == h {
			m.hooks = nil
		}
	}}
}

// RegisterForwardPreHook has fn called before each Forward of the module. It is for the modules of this
// package, whose Forward calls it, and for those that are called by [Call], as [SequentialModule] does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_pre_hook.
func (m *Module) RegisterForwardPreHook(fn ForwardPreHook) *HookHandle {
	return register(m, func(h *hooks) *[]hook[ForwardPreHook] { return &h.forwardPre }, fn)
}

// RegisterForwardHook has fn called after each Forward of the module: see [Module.RegisterForwardPreHook].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook.
func (m *Module) RegisterForwardHook(fn ForwardHook) *HookHandle {
	return register(m, func(h *hooks) *[]hook[ForwardHook] { return &h.forward }, fn)
}

// plain reports whether a call of self's Forward keeps nothing: whether m is self's own, and has no hooks.
func (m *Module) plain(self Modular) bool { return m.self == self && m.hooks == nil }

// hooked reports whether self's Forward has hooks to call: one of a struct that embeds self is for [Call].
func (m *Module) hooked(self Modular) bool { return m.hooks != nil && m.self == self }

// around1 is around for one tensor.
func (m *Module) around1(forward func(x gotorch.Tensor) gotorch.Tensor, x gotorch.Tensor) gotorch.Tensor {
	return m.around(func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{forward(in[0])} }, x)[0]
}

// around calls forward with the inputs, and the hooks before and after it.
func (m *Module) around(forward func(inputs []gotorch.Tensor) []gotorch.Tensor, inputs ...gotorch.Tensor) []gotorch.Tensor {
	self, h := m.outer(), m.hooks
	for _, hook := range h.forwardPre {
		if changed := hook.fn(self, inputs); changed != nil {
			if len(changed) != len(inputs) {
				panic(typeError("nn.RegisterForwardPreHook", "a hook of %s returned %d tensors in place of its %d inputs", className(self), len(changed), len(inputs)))
			}
			inputs = changed
		}
	}
	outputs := forward(inputs)
	for _, hook := range h.forward {
		if changed := hook.fn(self, inputs, outputs); changed != nil {
			if len(changed) != len(outputs) {
				panic(typeError("nn.RegisterForwardHook", "a hook of %s returned %d tensors in place of its %d outputs", className(self), len(changed), len(outputs)))
			}
			outputs = changed
		}
	}
	return outputs
}

// Call returns layer.Forward(x), with the layer's hooks. This package's own layers call their hooks
// themselves, so that it makes no difference for them.
func Call(layer Layer, x gotorch.Tensor) gotorch.Tensor {
	m := bind(layer)
	if m.hooks == nil {
		return layer.Forward(x)
	}
	if reflect.TypeOf(layer).Elem().PkgPath() == moduleType.PkgPath() {
		return layer.Forward(x) // which calls them
	}
	return m.around(func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{layer.Forward(in[0])} }, x)[0]
}

// KeepsNothing is implemented by layers whose Forward keeps neither what it gets nor what it makes but for
// its result, so that a [Sequential] may free what they hand on to each other. A layer of your own may
// implement it, where it is true.
type KeepsNothing interface {
	KeepsNothing() bool
}
