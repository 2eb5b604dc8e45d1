package nn

import (
	"reflect"
	"slices"
	"sync"

	"gotorch.dev/gotorch"
)

// hooks is what is registered with a module.
type hooks struct {
	next        int64
	forwardPre  []hook[ForwardPreHook]
	forward     []hook[ForwardHook]
	backwardPre []hook[BackwardPreHook]
	backward    []hook[BackwardHook]
	spans       []hook[span]
	watch       watcher
}

// span sees a call of Forward with everything that belongs to it, other hooks too. What it returns is called at the
// call's end, also when that is a panic.
type span func() (leave func())

// watcher, where not nil, sees a call of Forward; what it returns sees what the call returns. Other hooks are
// outside of it.
type watcher func(m Modular, inputs []gotorch.Tensor) (done func(outputs []gotorch.Tensor))

// watched reports whether somebody watches a module's calls, so that it must compute by its parts.
func (m *Module) watched() bool { return m.hooks != nil && m.hooks.watch != nil }

// hook is a function and its number, by which it is removed.
type hook[F any] struct {
	number int64
	fn     F
	tag    any // of those of [Internals]
}

// ForwardPreHook sees the tensors that a module's Forward is about to be called with. What it returns
// takes their place, nil leaves them.
type ForwardPreHook func(m Modular, inputs []gotorch.Tensor) []gotorch.Tensor

// ForwardHook sees the tensors that a module's Forward was called with and those that it returns. What it
// returns takes the place of the latter, nil leaves them.
type ForwardHook func(m Modular, inputs, outputs []gotorch.Tensor) []gotorch.Tensor

// BackwardPreHook sees the gradients of what a module's Forward returned, before they go back through the
// module; the zero Tensor is Python's None, for what has no gradient. What it returns takes their place, nil
// leaves them.
type BackwardPreHook func(m Modular, gradOutputs []gotorch.Tensor) []gotorch.Tensor

// BackwardHook sees the gradients of what a module's Forward was called with, and of what it returned:
// zeros for inputs without a gradient, the zero Tensor for outputs. What it returns takes the place of the
// former, nil leaves them.
type BackwardHook func(m Modular, gradInputs, gradOutputs []gotorch.Tensor) []gotorch.Tensor

// HookHandle removes a hook.
type HookHandle struct{ remove func() }

// Remove has the hook not called any more. To remove it again does nothing.
func (h *HookHandle) Remove() {
	if h.remove != nil {
		h.remove()
	}
}

// register panics with a TypeError if fn is nil.
func register[F any](m *Module, list func(h *hooks) *[]hook[F], fn F) *HookHandle {
	notNilHook(fn)
	if m.hooks == nil {
		m.hooks = &hooks{}
	}
	h := m.hooks
	return add(list(h), &h.next, fn, func() {
		if m.hooks == h {
			m.dropHooks()
		}
	})
}

func notNilHook[F any](fn F) {
	if reflect.ValueOf(fn).IsNil() {
		panic(typeError("nn.Module", "the hook is nil, a %T", fn))
	}
}

// add adds a hook to a list. removed is called when it has been removed.
func add[F any](list *[]hook[F], next *int64, fn F, removed func()) *HookHandle {
	*next++
	number := *next
	*list = append(slices.Clip(*list), hook[F]{number: number, fn: fn}) // a new list: the old one may be running
	return &HookHandle{func() {
		*list = slices.DeleteFunc(slices.Clone(*list), func(h hook[F]) bool { return h.number == number })
		removed()
	}}
}

// dropHooks forgets the list of hooks if there is nothing in it, and no field to be computed.
func (m *Module) dropHooks() {
	if m.hooks != nil && m.hooks.empty() && m.parts == nil {
		m.hooks = nil
	}
}

func (h *hooks) empty() bool {
	return len(h.forwardPre)+len(h.forward)+len(h.backwardPre)+len(h.backward)+len(h.spans) == 0
}

// RegisterForwardPreHook has fn called before each Forward of the module. It is for the modules of this
// package, whose Forward calls it, and for those that are called by [Call], as [SequentialModule] does, or by [CallWith].
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

// RegisterFullBackwardPreHook has fn called with the gradients of what Forward returned, before they go back
// through the module: see [Module.RegisterForwardPreHook]. The hook runs in the backward pass, as those of
// gotorch.Tensor.RegisterHook do.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_pre_hook.
func (m *Module) RegisterFullBackwardPreHook(fn BackwardPreHook) *HookHandle {
	return register(m, func(h *hooks) *[]hook[BackwardPreHook] { return &h.backwardPre }, fn)
}

// RegisterFullBackwardHook has fn called when the gradients of what Forward was called with are computed; if
// none of that requires gradients, with those of what it returned: see [Module.RegisterForwardPreHook].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook.
func (m *Module) RegisterFullBackwardHook(fn BackwardHook) *HookHandle {
	return register(m, func(h *hooks) *[]hook[BackwardHook] { return &h.backward }, fn)
}

// passing is one call of Forward that has backward hooks: its inputs and outputs pass through functions that
// change nothing, where the hooks see the gradients.
type passing struct {
	self        Modular
	hooks       *hooks
	hasInputs   bool   // whether an input has a gradient
	in, out     []bool // which inputs and outputs are tensors, and not the zero Tensor
	mu          sync.Mutex
	gradOutputs []gotorch.Tensor
}

// begin sees the gradients of inputs, end those of outputs.
type (
	begin struct{ *passing }
	end   struct{ *passing }
)

func (p begin) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return same(ctx, in)
}

func (p end) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	ctx.SetMaterializeGrads(false) // PyTorch's hooks get none for what has none, and zeros for inputs
	return same(ctx, in)
}

// through is Apply for tensors of which some may be zero Tensors. given receives which are not.
func through(f gotorch.Function, tensors []gotorch.Tensor, given *[]bool) []gotorch.Tensor {
	*given = make([]bool, len(tensors))
	for i, t := range tensors {
		(*given)[i] = t.T != nil
	}
	return spread(gotorch.Apply(f, gather(tensors, *given)...), *given)
}

// gather returns the tensors that are given, spread puts them back to where they were.
func gather(tensors []gotorch.Tensor, given []bool) (list []gotorch.Tensor) {
	for i, t := range tensors {
		if given[i] {
			list = append(list, t)
		}
	}
	return list
}

func spread(list []gotorch.Tensor, given []bool) []gotorch.Tensor {
	tensors := make([]gotorch.Tensor, len(given))
	for i, is := range given {
		if is {
			tensors[i], list = list[0], list[1:]
		}
	}
	return tensors
}

// same returns views of tensors, which have gradients where those have.
func same(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	out := make([]gotorch.Tensor, len(in))
	var constant []gotorch.Tensor
	for i, t := range in {
		out[i] = t.Alias()
		if !ctx.NeedsInputGrad(i) {
			constant = append(constant, out[i])
		}
	}
	ctx.MarkNonDifferentiable(constant...)
	return out
}

func (p begin) Backward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	p.mu.Lock()
	gradOutputs := p.gradOutputs
	p.mu.Unlock()
	return gather(p.after(spread(grads, p.in), gradOutputs), p.in)
}

func (p end) Backward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	grads = spread(grads, p.out)
	for _, hook := range p.hooks.backwardPre {
		if changed := hook.fn(p.self, grads); changed != nil {
			grads = sameNumber("nn.RegisterFullBackwardPreHook", p.self, changed, len(grads))
		}
	}
	p.mu.Lock()
	p.gradOutputs = grads
	p.mu.Unlock()
	if !p.hasInputs {
		p.after(nil, grads)
	}
	return gather(grads, p.out)
}

// after calls the backward hooks.
func (p *passing) after(gradInputs, gradOutputs []gotorch.Tensor) []gotorch.Tensor {
	for _, hook := range p.hooks.backward {
		if changed := hook.fn(p.self, gradInputs, gradOutputs); changed != nil {
			gradInputs = sameNumber("nn.RegisterFullBackwardHook", p.self, changed, len(gradInputs))
		}
	}
	return gradInputs
}

func sameNumber(op string, m Modular, changed []gotorch.Tensor, n int) []gotorch.Tensor {
	if len(changed) != n {
		panic(typeError(op, "a hook of %s returned %d tensors in place of %d", className(m), len(changed), n))
	}
	return changed
}

// plain reports whether a call of self's Forward keeps nothing: whether m is self's own, and has no hooks and
// no computed fields.
func (m *Module) plain(self Modular) bool { return m.self == self && m.hooks == nil }

// hooked reports whether self's Forward has hooks to call, or fields to compute, for which it goes through around.
func (m *Module) hooked(self Modular) bool {
	if m.hooks == nil {
		return false
	}
	return m.self == self || m.parts != nil && !m.parts.Turn.Taken()
}

// around1 is around for one tensor.
func (m *Module) around1(forward func(x gotorch.Tensor) gotorch.Tensor, x gotorch.Tensor) gotorch.Tensor {
	return m.around(func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{forward(in[0])} }, x)[0]
}

// around is what the layers of this package call forward through.
func (m *Module) around(forward func(inputs []gotorch.Tensor) []gotorch.Tensor, inputs ...gotorch.Tensor) []gotorch.Tensor {
	if ofThisPackage(m.outer()) {
		return m.withHooks(forward, inputs)
	}
	// A struct that embeds the layer was called itself. Its hooks are for Call, but its fields are computed.
	defer m.parts.Turn.Take()()
	for _, hook := range m.hooks.forwardPre {
		if hook.tag != nil {
			hook.fn(m.self, inputs)
		}
	}
	m.refresh()
	return forward(inputs)
}

// withHooks calls forward with the inputs, and the hooks before and after it.
func (m *Module) withHooks(forward func(inputs []gotorch.Tensor) []gotorch.Tensor, inputs []gotorch.Tensor) []gotorch.Tensor {
	self, h := m.outer(), m.hooks
	if m.parts != nil {
		defer m.parts.Turn.Take()()
	}
	for _, span := range h.spans {
		defer span.fn()()
	}
	for _, hook := range h.forwardPre {
		if changed := hook.fn(self, inputs); changed != nil {
			inputs = sameNumber("nn.RegisterForwardPreHook", self, changed, len(inputs))
		}
	}
	m.refresh()
	var p *passing
	if len(h.backward)+len(h.backwardPre) > 0 && gotorch.GradEnabled() {
		p = &passing{self: self, hooks: h, hasInputs: records(inputs...)}
		if p.hasInputs {
			inputs = through(begin{p}, inputs, &p.in)
		}
	}
	done := func([]gotorch.Tensor) {}
	if h.watch != nil {
		done = h.watch(self, inputs)
	}
	outputs := forward(inputs)
	done(outputs)
	for _, hook := range h.forward {
		if changed := hook.fn(self, inputs, outputs); changed != nil {
			outputs = sameNumber("nn.RegisterForwardHook", self, changed, len(outputs))
		}
	}
	if p != nil && records(outputs...) {
		outputs = through(end{p}, outputs, &p.out)
	}
	return outputs
}

// Call returns layer.Forward(x), with the layer's hooks. This package's own layers call their hooks
// themselves, so that it makes no difference for them. For modules with another Forward there is [CallWith].
func Call(layer Layer, x gotorch.Tensor) gotorch.Tensor {
	m := bind(layer)
	if m.hooks == nil || ofThisPackage(layer) { // which calls them
		return layer.Forward(x)
	}
	return m.withHooks(func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{layer.Forward(in[0])} }, []gotorch.Tensor{x})[0]
}

// CallWith is [Call] for a module of your own whose Forward takes or returns anything: it returns what forward makes
// of inputs, with m's hooks before and after, and with the fields computed that are parametrized or pruned. The zero
// Tensor may be among inputs and results.
//
//	out := nn.CallWith(model, func(in []gotorch.Tensor) []gotorch.Tensor {
//		return []gotorch.Tensor{model.Forward(in[0], in[1], causal)}
//	}, query, key)[0]
//
// A module of this package calls its hooks itself. It panics with a TypeError for one, and if forward is nil.
func CallWith(m Modular, forward func(inputs []gotorch.Tensor) []gotorch.Tensor, inputs ...gotorch.Tensor) []gotorch.Tensor {
	mod := bind(m)
	switch {
	case forward == nil:
		panic(typeError("nn.CallWith", "the function is nil"))
	case ofThisPackage(m):
		panic(typeError("nn.CallWith", "%T calls its hooks itself: call its Forward", m))
	case mod.hooks == nil:
		return forward(inputs)
	}
	return mod.withHooks(forward, inputs)
}

// ofThisPackage reports whether a module is one of this package's, whose methods call its hooks.
func ofThisPackage(m Modular) bool {
	return reflect.TypeOf(m).Elem().PkgPath() == moduleType.PkgPath()
}

// KeepsNothing is implemented by layers whose Forward keeps neither what it gets nor what it makes but for
// its result, so that a [Sequential] may free what they hand on to each other. A layer of your own may
// implement it, where it is true.
type KeepsNothing interface {
	KeepsNothing() bool
}

// RegisterForwardSpan has enter called before each Forward of a module, and what it returns after it, also where Forward or a hook
// panics: as Python's forward hooks with always_call. Other hooks are called in between. It is for the modules of which
// [Module.RegisterForwardPreHook] speaks; copies that [Clone] makes do not have it.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook.
func RegisterForwardSpan(m Modular, enter func() (leave func())) *HookHandle {
	return register(bind(m), func(h *hooks) *[]hook[span] { return &h.spans }, span(enter))
}
