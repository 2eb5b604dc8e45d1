package nn

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/finite"
)

// KeepState keeps the numbers in a model's buffers and the state of the random generators of its devices: restore sets them back, as
// after a forward pass that is not to count, and free forgets them.
func KeepState(model Modular) (restore, free func()) {
	type kept struct {
		place
		was, numbers gotorch.Tensor
	}
	var all []kept
	gotorch.NoGrad(func() {
		for _, p := range bind(model).places(false, buffer, transient) {
			if !p.tensor.Defined() {
				continue
			}
			gotorch.Unscoped(func() { all = append(all, kept{p, *p.tensor, p.tensor.Detach().Clone()}) })
		}
	})
	random, forget := keepRandom(devicesOf(model, nil))
	restore = func() {
		gotorch.NoGrad(func() {
			for _, k := range all {
				k.put(k.was) // where another tensor was assigned
				if k.was.Defined() {
					k.was.Copy_(k.numbers)
				}
			}
		})
		random()
	}
	return restore, func() {
		for _, k := range all {
			k.numbers.Close()
		}
		forget()
	}
}

// FirstNonFinite runs fn, which calls the copy of the model that it is given, and returns the module that is the first to return
// numbers which are infinite or NaN from inputs that are neither. Nothing happens to the model itself, but for the random numbers that
// are drawn.
func FirstNonFinite(model Modular, fn func(copied Modular)) (name, class string, found bool) {
	copied, _, free := shadow(model)
	defer free()
	names := map[*Module]string{}
	for name, m := range bind(copied).NamedModules() {
		names[m.module()] = name
	}
	all := func(tensors []gotorch.Tensor) bool {
		for _, t := range tensors {
			if !finite.All(t) {
				return false
			}
		}
		return true
	}
	watch := func(m Modular, inputs []gotorch.Tensor) func(outputs []gotorch.Tensor) {
		before := !found && all(inputs)
		return func(outputs []gotorch.Tensor) {
			if before && !found && !all(outputs) {
				name, class, found = names[m.module()], className(m), true
			}
		}
	}
	walk(copied, "", func(_ string, m Modular) bool {
		if m.module().hooks == nil {
			m.module().hooks = &hooks{}
		}
		m.module().hooks.watch = watch
		return true
	})
	gotorch.NoGrad(func() { gotorch.Scope0(func(*gotorch.ScopeHandle) { fn(copied) }) })
	return name, class, found
}
