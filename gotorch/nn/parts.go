package nn

import (
	"maps"
	"strings"
	"weak"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn/internal/fields"
)

// What a module has that is no field, and fields that are computed of it before each call: the seam on which
// nn/utils, nn/utils/parametrize and nn/utils/prune stand.

// Internals is for the packages of nn/utils, which change what a module consists of. It panics with a TypeError for a module that was
// not given to [Init].
func Internals(m Modular) fields.Module { return internals{bind(m), m} }

type internals struct {
	mod *Module
	m   Modular
}

func (in internals) Parts(make bool) *fields.Parts {
	mod := in.mod
	if mod.parts == nil && make {
		mod.parts = &fields.Parts{}
		if mod.hooks == nil {
			mod.hooks = &hooks{} // so that Forward looks
		}
	}
	return mod.parts
}

func (in internals) Tidy() {
	mod := in.mod
	if p := mod.parts; p != nil && len(p.Tensors)+len(p.Children)+len(p.Computed) == 0 {
		mod.parts = nil
		mod.dropHooks()
	}
}

func (in internals) Place(name string) (fields.Place, bool) { return in.mod.place(name) }

func (in internals) Made(t gotorch.Tensor) {
	if in.mod.made == nil {
		in.mod.made = known{}
	}
	in.mod.made[weak.Make(t.T)] = true
}

func (in internals) AddHook(tag any, fn func(m any)) {
	in.mod.RegisterForwardPreHook(func(m Modular, _ []gotorch.Tensor) []gotorch.Tensor {
		fn(m)
		return nil
	})
	in.mod.hooks.forwardPre[len(in.mod.hooks.forwardPre)-1].tag = tag
}

func (in internals) Hooks() (tags []any) {
	if h := in.mod.hooks; h != nil {
		for _, hook := range h.forwardPre {
			if hook.tag != nil {
				tags = append(tags, hook.tag)
			}
		}
	}
	return tags
}

func (in internals) RemoveHook(tag any) {
	mod := in.mod
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

func (in internals) Refresh(name string) gotorch.Tensor {
	p := in.mod.parts
	defer p.Turn.Take()()
	return in.mod.compute(p.FindComputed(name))
}

func (in internals) Class() string { return plainName(in.m) }

func (in internals) Convolution() (fields.Convolution, bool) {
	if m, ok := in.m.(interface{ convolution() fields.Convolution }); ok {
		return m.convolution(), true
	}
	return fields.Convolution{}, false
}

func (in internals) BatchNorm() (fields.BatchNorm, bool) {
	if m, ok := in.m.(interface{ batchNorm() fields.BatchNorm }); ok {
		return m.batchNorm(), true
	}
	return fields.BatchNorm{}, false
}

func (in internals) Lazy() bool {
	lazy, ok := in.m.(lazyModule)
	return ok && lazy.isLazy()
}

// partEntries yields what is no field.
func partEntries(p *fields.Parts, yield func(entry) bool) {
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
func (m *Module) place(name string) (found fields.Place, ok bool) {
	for e := range fieldEntries(m.outer(), nil) {
		if e.name == name && e.tensor != nil && e.store == nil && e.list == single {
			return fields.Place{T: e.tensor, Kind: e.kind}, true
		}
	}
	return fields.Place{}, false
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
func (m *Module) compute(c *fields.Computed) gotorch.Tensor {
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
func (c *cloner) parts(p *fields.Parts) *fields.Parts {
	if p == nil {
		return nil
	}
	copied := &fields.Parts{Computed: p.Computed, Prefix: p.Prefix}
	for _, t := range p.Tensors {
		copied.Tensors = append(copied.Tensors, &fields.Tensor{Name: t.Name, Kind: t.Kind, T: c.tensor(t.T)})
	}
	for _, child := range p.Children {
		copied.Children = append(copied.Children, fields.Child{Name: child.Name, Module: c.module(child.Module.(Modular))})
	}
	return copied
}
