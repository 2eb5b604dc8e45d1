package nn

import (
	"maps"
	"strings"
	"weak"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn/internal/seam"
)

// What a module has that is no field, and fields that are computed of it before each call: the seam on which
// nn/utils, nn/utils/parametrize and nn/utils/prune stand.

func init() {
	seam.NN.Parts = func(m any, make bool) *seam.Parts {
		mod := bindAny(m)
		if mod.parts == nil && make {
			mod.parts = &seam.Parts{}
			if mod.hooks == nil {
				mod.hooks = &hooks{} // so that Forward looks
			}
		}
		return mod.parts
	}
	seam.NN.Tidy = func(m any) {
		mod := bindAny(m)
		if p := mod.parts; p != nil && len(p.Tensors)+len(p.Children)+len(p.Computed) == 0 {
			mod.parts = nil
			mod.dropHooks()
		}
	}
	seam.NN.Place = func(m any, name string) (seam.Place, bool) { return bindAny(m).place(name) }
	seam.NN.Made = func(m any, t gotorch.Tensor) {
		mod := bindAny(m)
		if mod.made == nil {
			mod.made = known{}
		}
		mod.made[weak.Make(t.T)] = true
	}
	seam.NN.AddHook = func(m any, tag any, fn func(m any)) {
		mod := bindAny(m)
		mod.RegisterForwardPreHook(func(m Modular, _ []gotorch.Tensor) []gotorch.Tensor {
			fn(m)
			return nil
		})
		mod.hooks.forwardPre[len(mod.hooks.forwardPre)-1].tag = tag
	}
	seam.NN.Hooks = func(m any) (tags []any) {
		if h := bindAny(m).hooks; h != nil {
			for _, hook := range h.forwardPre {
				if hook.tag != nil {
					tags = append(tags, hook.tag)
				}
			}
		}
		return tags
	}
	seam.NN.RemoveHook = func(m any, tag any) {
		mod := bindAny(m)
		if mod.hooks == nil {
			return
		}
		var left []hook[ForwardPreHook] // a new list: the old one may be running
		for _, hook := range mod.hooks.forwardPre {
			if hook.tag != tag {
				left = append(left, hook)
			}
		}
		mod.hooks.forwardPre = left
		mod.dropHooks()
	}
	seam.NN.Refresh = func(m any, name string) gotorch.Tensor {
		mod := bindAny(m)
		p := mod.parts
		defer p.Turn.Take()()
		return mod.compute(p.FindComputed(name))
	}
	seam.NN.Class = func(m any) string {
		bindAny(m)
		return plainName(m.(Modular))
	}
	seam.NN.Convolution = func(m any) (seam.Convolution, bool) {
		if m, ok := m.(interface{ convolution() seam.Convolution }); ok {
			return m.convolution(), true
		}
		return seam.Convolution{}, false
	}
	seam.NN.BatchNorm = func(m any) (seam.BatchNorm, bool) {
		if m, ok := m.(interface{ batchNorm() seam.BatchNorm }); ok {
			return m.batchNorm(), true
		}
		return seam.BatchNorm{}, false
	}
	seam.NN.Lazy = func(m any) bool {
		bindAny(m)
		lazy, ok := m.(lazyModule)
		return ok && lazy.isLazy()
	}
}

// bindAny is bind for what package seam has of a module; nil is one that is nil.
func bindAny(m any) *Module {
	modular, _ := m.(Modular)
	return bind(modular)
}

// partEntries yields what is no field.
func partEntries(p *seam.Parts, yield func(entry) bool) {
	for _, t := range p.Tensors {
		if t.T.T != nil && !yield(entry{name: t.Name, kind: t.Kind, tensor: &t.T}) {
			return
		}
	}
	for _, c := range p.Children {
		if !yield(entry{name: c.Name, child: c.Module.(Modular)}) {
			return
		}
	}
}

// place finds m's own tensor of a name, also one that is computed.
func (m *Module) place(name string) (found seam.Place, ok bool) {
	for e := range fieldEntries(m.outer(), nil) {
		if e.name == name && e.tensor != nil && e.store == nil && e.list == single {
			return seam.Place{T: e.tensor, Kind: e.kind}, true
		}
	}
	return seam.Place{}, false
}

// refresh computes the fields that are to be.
func (m *Module) refresh() {
	if m.parts == nil {
		return
	}
	for _, c := range m.parts.Computed {
		if c.Compute != nil {
			m.compute(c)
		}
	}
}

// compute computes one. Who calls it has the turn.
func (m *Module) compute(c *seam.Computed) gotorch.Tensor {
	self := m.outer()
	value := m.parts.Compute(c.Name, func() gotorch.Tensor { return c.Compute(self) })
	at, ok := m.place(c.Name)
	if !ok {
		panic(typeError("nn.Module", "%q of %T is gone, though it is computed: do not set it to the zero Tensor", c.Name, self))
	}
	*at.T = value
	return value
}

// brought returns a state dict with the names that computed fields have it bring up to date.
func (m *Module) brought(dict StateDict) StateDict {
	own := false
	walk(m.outer(), "", func(prefix string, m Modular) bool {
		if parts := m.module().parts; parts != nil {
			for _, c := range parts.Computed {
				if c.Load == nil {
					continue
				}
				if !own {
					dict, own = maps.Clone(dict), true
				}
				c.Load(strings.TrimSuffix(join(prefix, "-"), "-"), dict)
			}
		}
		return true
	})
	return dict
}

// using is for a module that reads the tensors of another one without calling its Forward: it computes them,
// and they stay as they are until the function that it returns is called.
func using(other Modular) (done func()) {
	mod := bind(other)
	if mod.parts == nil {
		return func() {}
	}
	done, ready := mod.parts.Turn.Take(), false
	defer func() {
		if !ready {
			done()
		}
	}()
	mod.refresh()
	ready = true
	return done
}

// parts returns a copy of what a module has that is no field.
func (c *cloner) parts(p *seam.Parts) *seam.Parts {
	if p == nil {
		return nil
	}
	copied := &seam.Parts{Computed: p.Computed, Prefix: p.Prefix}
	for _, t := range p.Tensors {
		copied.Tensors = append(copied.Tensors, &seam.Tensor{Name: t.Name, Kind: t.Kind, T: c.tensor(t.T)})
	}
	for _, child := range p.Children {
		copied.Children = append(copied.Children, seam.Child{Name: child.Name, Module: c.module(child.Module.(Modular))})
	}
	return copied
}
