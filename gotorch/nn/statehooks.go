package nn

import "gotorch.dev/gotorch"

// stateHooks is what is registered with a module for its state dict.
type stateHooks struct {
	next      int64
	statePre  []hook[StateDictPreHook]
	statePost []hook[StateDictPostHook]
	loadPre   []hook[LoadStateDictPreHook]
	loadPost  []hook[LoadStateDictPostHook]
}

// StateDictPreHook is called before a module's tensors are put into a state dict. prefix is what stands before
// their names, "conv1.", or "".
type StateDictPreHook func(m Modular, prefix string)

// StateDictPostHook is called when the tensors of a module and of all modules within are in a state dict. It may
// change dict, which also has those of the modules that came before.
type StateDictPostHook func(m Modular, dict StateDict, prefix string)

// LoadStateDictPreHook is called before a module's tensors are looked for in a state dict. It may change dict,
// which is a copy of the part whose names begin with prefix: so it renames what an older version of the module
// has saved. What it leaves is what the modules within see.
type LoadStateDictPreHook func(m Modular, dict StateDict, prefix string)

// LoadStateDictPostHook is called when the tensors of a module and of all modules within are loaded. It may change
// keys, which are those of the whole model as far as it was looked at: what is left in them at the end is an
// error, unless [LoadOptions].Partial allows it.
type LoadStateDictPostHook func(m Modular, keys *IncompatibleKeys)

func registerState[F any](m *Module, list func(h *stateHooks) *[]hook[F], fn F) *HookHandle {
	notNilHook(fn)
	if m.stateHooks == nil {
		m.stateHooks = &stateHooks{}
	}
	return add(list(m.stateHooks), &m.stateHooks.next, fn, func() {})
}

// RegisterStateDictPreHook has fn called at the beginning of the module's part of [Module.StateDict].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_state_dict_pre_hook.
func (m *Module) RegisterStateDictPreHook(fn StateDictPreHook) *HookHandle {
	return registerState(m, func(h *stateHooks) *[]hook[StateDictPreHook] { return &h.statePre }, fn)
}

// RegisterStateDictPostHook has fn called at the end of the module's part of [Module.StateDict], and of [Save].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_state_dict_post_hook.
func (m *Module) RegisterStateDictPostHook(fn StateDictPostHook) *HookHandle {
	return registerState(m, func(h *stateHooks) *[]hook[StateDictPostHook] { return &h.statePost }, fn)
}

// RegisterLoadStateDictPreHook has fn called at the beginning of the module's part of [Module.LoadStateDict].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_load_state_dict_pre_hook.
func (m *Module) RegisterLoadStateDictPreHook(fn LoadStateDictPreHook) *HookHandle {
	return registerState(m, func(h *stateHooks) *[]hook[LoadStateDictPreHook] { return &h.loadPre }, fn)
}

// RegisterLoadStateDictPostHook has fn called at the end of the module's part of [Module.LoadStateDict]. Where that
// fails, or a hook panics, the model's tensors are put back; so the model's state is copied first.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_load_state_dict_post_hook.
func (m *Module) RegisterLoadStateDictPostHook(fn LoadStateDictPostHook) *HookHandle {
	return registerState(m, func(h *stateHooks) *[]hook[LoadStateDictPostHook] { return &h.loadPost }, fn)
}

// ExtraState is implemented by modules that have more to save than tensors in their fields. It is a tensor in the
// state dict, "_extra_state" behind the module's name: numbers, or an encoding of something else as bytes.
type ExtraState interface {
	// GetExtraState returns what is to be saved.
	GetExtraState() gotorch.Tensor
	// SetExtraState takes what was saved. state belongs to the state dict. After an error nothing is loaded, and
	// what GetExtraState returned before is set again.
	SetExtraState(state gotorch.Tensor) error
}

const extraStateKey = "_extra_state"
