package nn

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/nndoor"
)

// What package train needs to stop at numbers that are not finite.

func init() {
	nndoor.KeepState = func(model any) (restore, free func()) { return keepState(model.(Modular)) }
	nndoor.FirstNonFinite = func(model any, fn func(copied any)) (name, class string, found bool) {
		return firstNonFinite(model.(Modular), func(copied Modular) { fn(copied) })
	}
	nndoor.NonFiniteParameter = func(model any) (string, bool) {
		for name, p := range bind(model.(Modular)).tensors(true, parameter) {
			if !finite(p) {
				return name, true
			}
		}
		return "", false
	}
	nndoor.Finite = func(t any) bool { return finite(t.(gotorch.Tensor)) }
}

// finite reports whether all numbers of t are neither infinite nor NaN.
func finite(t gotorch.Tensor) bool {
	if !t.Defined() || t.Numel() == 0 {
		return true
	}
	if d := t.DType(); !d.IsFloatingPoint() && !d.IsComplex() || t.Device().Type() == gotorch.DeviceTypeMeta {
		return true
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) bool {
		t := t.Detach()
		if t.Layout() == gotorch.SparseCOO {
			t = t.Coalesce().Values()
		}
		if t.Numel() == 0 {
			return true
		}
		return gotorch.Item[bool](t.IsFinite().All())
	})
}

// keepState keeps a model's buffers and the random numbers of its devices.
func keepState(model Modular) (restore, free func()) {
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

// firstNonFinite runs fn with a copy of the model, whose modules are watched.
func firstNonFinite(model Modular, fn func(copied Modular)) (name, class string, found bool) {
	copied, _, free := shadow(model)
	defer free()
	names := map[*Module]string{}
	for name, m := range bind(copied).NamedModules() {
		names[m.module()] = name
	}
	all := func(tensors []gotorch.Tensor) bool {
		for _, t := range tensors {
			if !finite(t) {
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
