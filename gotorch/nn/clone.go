package nn

import (
	"reflect"
	"slices"
	"unsafe"
	"weak"

	"gotorch.dev/gotorch"
)

// Clone returns a copy of a module and of all modules within, with tensors of their own: Python's
// copy.deepcopy. Tensors and modules that are found in several places are one in the copy, too. What is no
// tensor or module, as numbers, functions and fields with the tag "-", is copied as Go copies it. Gradients
// are not copied.
func Clone[M Modular](m M) M {
	bind(m)
	c := &cloner{modules: map[*Module]Modular{}, tensors: map[uintptr]gotorch.Tensor{}}
	var copied M
	gotorch.NoGrad(func() { copied = any(c.module(m)).(M) })
	Init(copied)
	c.tell()
	return copied
}

// shadow returns a copy of a module whose parameters share memory with those of the original, and whose buffers
// are copies: to compute with what is not to change the model. free closes them.
func shadow[M Modular](m M) (copied M, of map[*Module]Modular, free func()) {
	bind(m)
	c := &cloner{modules: map[*Module]Modular{}, tensors: map[uintptr]gotorch.Tensor{}}
	gotorch.NoGrad(func() {
		walk(m, "", func(_ string, m Modular) bool {
			if lazy, ok := m.(lazyModule); ok && lazy.isLazy() {
				return true // which draws its parameters when it is first called
			}
			for e := range entries(m) {
				if e.child == nil && e.kind == parameter && e.tensor.Defined() {
					if handle := uintptr(*e.tensor.T); c.tensors[handle].T == nil {
						gotorch.Unscoped(func() { c.tensors[handle] = e.tensor.Detach().RequiresGrad_(e.tensor.RequiresGrad()) })
					}
				}
			}
			return true
		})
		copied = any(c.module(m)).(M)
	})
	of = map[*Module]Modular{}
	for original, copied := range c.modules {
		of[copied.module()] = original.self
	}
	Init(copied)
	c.tell()
	return copied, of, func() {
		for _, t := range c.tensors {
			t.Close()
		}
	}
}

type cloner struct {
	modules map[*Module]Modular
	tensors map[uintptr]gotorch.Tensor // by handle of the original
}

// Cloned is implemented by a module that must know when it was made as the copy of another: original, which is of the same type. of
// returns what a module within original has become.
type Cloned interface {
	Cloned(original Modular, of func(module Modular) Modular)
}

// tell has copies know what they are.
func (c *cloner) tell() {
	for original, copied := range c.modules {
		if told, is := copied.(Cloned); is {
			told.Cloned(original.self, func(module Modular) Modular { return c.modules[bind(module)] })
		}
	}
}

func (c *cloner) module(m Modular) Modular {
	mod := bind(m)
	if done, ok := c.modules[mod]; ok {
		return done
	}
	old := reflect.ValueOf(m).Elem()
	copied := reflect.New(old.Type())
	copied.Elem().Set(old)
	copyEmbedded(copied.Elem())
	result := copied.Interface().(Modular)
	c.modules[mod] = result
	own := result.module()
	own.self, own.made = nil, nil
	own.parts = c.parts(mod.parts)
	if h := mod.hooks; h != nil {
		all := *h
		own.hooks = &all
		if len(all.spans) > 0 { // they are a profile's, which knows of the model alone
			all.spans = nil
			if all.watch == nil {
				own.dropHooks()
			}
		}
	}
	if h := mod.stateHooks; h != nil {
		all := *h
		own.stateHooks = &all
	}
	for _, f := range fieldsOf(old.Type()) {
		if f.open {
			continue // nothing of the module's, copied as Go copies it
		}
		if in, err := copied.Elem().FieldByIndexErr(f.index); err == nil {
			c.value(in)
		}
	}
	if d, ok := result.(dictionary); ok {
		d.dict().keepOf(c.module)
	}
	if h, ok := result.(holder); ok {
		o := h.held()
		o.names, o.tensors = slices.Clone(o.names), slices.Clone(o.tensors)
		for i := range o.tensors {
			o.tensors[i] = c.tensor(o.tensors[i])
		}
	}
	// What was a parameter is one, and stays frozen if it was.
	own.made = known{}
	for e := range entries(m) {
		if e.child == nil && e.kind == parameter && mod.made.has(*e.tensor) {
			own.made[weak.Make(c.tensor(*e.tensor).T)] = true
		}
	}
	return result
}

// copyEmbedded replaces pointers to structs that a struct embeds by pointers to copies: those structs' fields
// count as the struct's own.
func copyEmbedded(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.Anonymous || f.Tag.Get("nn") == "-" && !f.Type.Implements(modularType) {
			continue
		}
		in := v.Field(i)
		if in.Kind() == reflect.Pointer {
			if in.IsNil() || f.Type.Elem().Kind() != reflect.Struct {
				continue
			}
			// As a field, since a type that is not exported makes one that cannot be set.
			in = reflect.NewAt(f.Type, unsafe.Pointer(in.UnsafeAddr())).Elem()
			copied := reflect.New(f.Type.Elem())
			copied.Elem().Set(in.Elem())
			in.Set(copied)
			in = copied.Elem()
		}
		if in.Kind() == reflect.Struct {
			copyEmbedded(in)
		}
	}
}

func (c *cloner) tensor(t gotorch.Tensor) gotorch.Tensor {
	if !t.Defined() {
		return t
	}
	handle := uintptr(*t.T)
	copied, ok := c.tensors[handle]
	if !ok {
		gotorch.Unscoped(func() { copied = t.Detach().Clone() })
		copied.RequiresGrad_(t.RequiresGrad())
		c.tensors[handle] = copied
	}
	return copied
}

// value replaces the tensors and modules in v by copies.
func (c *cloner) value(v reflect.Value) {
	if v.Type() == tensorType {
		v.Set(reflect.ValueOf(c.tensor(v.Interface().(gotorch.Tensor))))
		return
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return
		}
		if child, ok := v.Interface().(Modular); ok && !isNil(child) {
			v.Set(reflect.ValueOf(c.module(child)))
		}
	case reflect.Struct:
		if child, ok := v.Addr().Interface().(Modular); ok {
			v.Set(reflect.ValueOf(c.module(child)).Elem())
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(list, v)
		v.Set(list)
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			c.value(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		dict := reflect.MakeMap(v.Type())
		for _, key := range v.MapKeys() {
			element := reflect.New(v.Type().Elem()).Elem()
			element.Set(v.MapIndex(key))
			c.value(element)
			dict.SetMapIndex(key, element)
		}
		v.Set(dict)
	}
}
