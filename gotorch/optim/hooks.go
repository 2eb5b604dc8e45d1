package optim

import (
	"slices"

	"gotorch.dev/gotorch"
)

// HookHandle removes a hook of an optimiser.
type HookHandle struct{ remove func() }

// Remove has the hook not called any more. To remove it again does nothing.
func (h *HookHandle) Remove() { h.remove() }

// HookOptions are the arguments of hooks of state dicts that have defaults.
type HookOptions struct {
	Prepend bool // call it before those that are there already
}

// hooks are what is called around steps and state dicts, in order.
type hooks struct {
	beforeStep, afterStep, beforeState, afterLoad []*hook[func()]
	afterState, beforeLoad                        []*hook[func(gotorch.Dict) gotorch.Dict]
}

type hook[F any] struct{ fn F }

func register[F any](op string, list *[]*hook[F], isNil bool, fn F, opts []HookOptions) *HookHandle {
	if isNil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the hook is nil"})
	}
	h := &hook[F]{fn}
	// Lists that are being gone through stay as they are.
	if len(opts) > 0 && opts[0].Prepend {
		*list = append([]*hook[F]{h}, *list...)
	} else {
		*list = append(slices.Clone(*list), h)
	}
	return &HookHandle{func() {
		*list = slices.DeleteFunc(slices.Clone(*list), func(o *hook[F]) bool { return o == h })
	}}
}

func call(list []*hook[func()]) {
	for _, h := range list {
		h.fn()
	}
}

// changed has hooks change a dict, or return another; nil leaves it.
func changed(list []*hook[func(gotorch.Dict) gotorch.Dict], dict gotorch.Dict) gotorch.Dict {
	for _, h := range list {
		if other := h.fn(dict); other != nil {
			dict = other
		}
	}
	return dict
}

// RegisterStepPreHook has hook called before each step, before the closure of one that has a closure. If it panics, there is
// no step. It panics with a TypeError if hook is nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_pre_hook.html.
func (o *Base[G, P]) RegisterStepPreHook(hook func()) *HookHandle {
	return register(o.op+".RegisterStepPreHook", &o.hooks.beforeStep, hook == nil, hook, nil)
}

// RegisterStepPostHook has hook called after each step. It panics with a TypeError if hook is nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_post_hook.html.
func (o *Base[G, P]) RegisterStepPostHook(hook func()) *HookHandle {
	return register(o.op+".RegisterStepPostHook", &o.hooks.afterStep, hook == nil, hook, nil)
}

// RegisterStateDictPreHook has hook called before StateDict. It panics with a TypeError if hook is nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_state_dict_pre_hook.html.
func (o *Base[G, P]) RegisterStateDictPreHook(hook func(), opts ...HookOptions) *HookHandle {
	return register(o.op+".RegisterStateDictPreHook", &o.hooks.beforeState, hook == nil, hook, opts)
}

// RegisterStateDictPostHook has hook called with what StateDict is to return, which it may change, or return another in its
// place; nil leaves it. It panics with a TypeError if hook is nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_state_dict_post_hook.html.
func (o *Base[G, P]) RegisterStateDictPostHook(hook func(dict gotorch.Dict) gotorch.Dict, opts ...HookOptions) *HookHandle {
	return register(o.op+".RegisterStateDictPostHook", &o.hooks.afterState, hook == nil, hook, opts)
}

// RegisterLoadStateDictPreHook has hook called with what LoadStateDict was given: it may return another in its place; nil
// leaves it. What it gets is the caller's own but for its list of keys, so that entries can be replaced and not changed. It
// panics with a TypeError if hook is nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_load_state_dict_pre_hook.html.
func (o *Base[G, P]) RegisterLoadStateDictPreHook(hook func(dict gotorch.Dict) gotorch.Dict, opts ...HookOptions) *HookHandle {
	return register(o.op+".RegisterLoadStateDictPreHook", &o.hooks.beforeLoad, hook == nil, hook, opts)
}

// RegisterLoadStateDictPostHook has hook called after LoadStateDict, if that has loaded. It panics with a TypeError if hook is
// nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_load_state_dict_post_hook.html.
func (o *Base[G, P]) RegisterLoadStateDictPostHook(hook func(), opts ...HookOptions) *HookHandle {
	return register(o.op+".RegisterLoadStateDictPostHook", &o.hooks.afterLoad, hook == nil, hook, opts)
}
