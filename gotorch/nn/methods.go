package nn

import (
	"fmt"
	"iter"
	"reflect"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// The methods of torch.nn.Module that find and change parts of a model by their names, and short forms of To.
// docs/modules.md has all of PyTorch's methods.

// Modules returns the module itself and every module within, each once.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.modules.
func (m *Module) Modules() []Modular { return modulesOf(m.NamedModules()) }

// Children returns the modules that are fields of this one, each once.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.children.
func (m *Module) Children() []Modular { return modulesOf(m.NamedChildren()) }

func modulesOf(seq iter.Seq2[string, Modular]) (list []Modular) {
	for _, m := range seq {
		list = append(list, m)
	}
	return list
}

// GetSubmodule returns the module within of a name as [Module.NamedModules] has it, "layers.0.conv"; the module
// itself for "". It panics with an AttributeError if there is none.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.get_submodule.
func (m *Module) GetSubmodule(target string) Modular {
	return submodule("nn.GetSubmodule", m.outer(), target)
}

func submodule(op string, root Modular, target string) (found Modular) {
	walk(root, "", func(name string, m Modular) bool {
		if name == target {
			found = m
		}
		return found == nil
	})
	if found == nil {
		panic(noSuch(op, root, "module", target))
	}
	return found
}

func noSuch(op string, root Modular, what, target string) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.AttributeError, Msg: fmt.Sprintf("%s has no %s %q", className(root), what, target)}
}

// GetParameter returns the parameter of a name as [Module.NamedParameters] has it, "layers.0.conv.weight", also
// one that has another name as well. It panics with an AttributeError if there is none.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.get_parameter.
func (m *Module) GetParameter(target string) gotorch.Tensor {
	for name, t := range m.tensors(false, parameter) {
		if name == target {
			return t
		}
	}
	panic(noSuch("nn.GetParameter", m.outer(), "parameter", target))
}

// GetBuffer returns the buffer of a name as [Module.NamedBuffers] has it, "layers.0.norm.running_mean". It panics
// with an AttributeError if there is none.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.get_buffer.
func (m *Module) GetBuffer(target string) gotorch.Tensor {
	for name, t := range m.tensors(false, buffer, transient) {
		if name == target {
			return t
		}
	}
	panic(noSuch("nn.GetBuffer", m.outer(), "buffer", target))
}

// SetSubmodule puts another module in the place of the one of a name: into the field, or the element of a slice,
// map or container. It panics with an AttributeError if there is no module of that name, with a ValueError for
// "", and with a TypeError, and changes nothing, if module is nil, if the field has a type that it does not
// have, and if the model would be within itself.
//
//	model.SetSubmodule("backbone.stem", nn.Conv2d(1, 64, 7))
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.set_submodule.
func (m *Module) SetSubmodule(target string, module Modular) {
	const op = "nn.SetSubmodule"
	root := m.outer()
	if target == "" {
		panic(args.ValueError(op, "the model cannot be put in its own place: the name must not be empty"))
	}
	notNil(op, module, target)
	before := submodule(op, root, target)
	walkFrom([]*Module{whole(root)}, module, target, func(string, Modular) bool { return true })
	var above []Modular // those that module is put into
	walk(root, "", func(name string, m Modular) bool {
		if name == "" || strings.HasPrefix(target, name+".") {
			above = append(above, m)
		}
		return true
	})
	for _, in := range above {
		walk(module, "", func(_ string, part Modular) bool {
			if whole(part) == whole(in) {
				panic(typeError(op, "%q would lead back to a %T that it is within", target, in))
			}
			return true
		})
	}
	for i := len(above) - 1; i >= 0; i-- {
		prefix := ""
		walk(root, "", func(name string, m Modular) bool {
			if m == above[i] && (name == "" || strings.HasPrefix(target, name+".")) {
				prefix = name
			}
			return true
		})
		rest := strings.TrimPrefix(strings.TrimPrefix(target, prefix), ".")
		if replace(op, above[i], rest, before, module) {
			bind(module)
			return
		}
	}
	panic(typeError(op, "%q is a part of a struct, and not a module by itself", target))
}

// replace puts a module in the place of m's own of a name, and reports whether there is one.
func replace(op string, m Modular, name string, before, module Modular) bool {
	if d, ok := m.(dictionary); ok {
		for i, n := range d.dict().names {
			if n == name {
				d.dict().modules[i] = module
				return true
			}
		}
	}
	v := reflect.ValueOf(m).Elem()
	for _, f := range fieldsOf(v.Type()) {
		in, err := v.FieldByIndexErr(f.index)
		if err != nil || f.open {
			continue
		}
		of := f.name
		if f.inline {
			of = ""
		}
		if replaceIn(op, in, of, name, module) {
			return true
		}
	}
	return false
}

// replaceIn is replace for a value whose name is of.
func replaceIn(op string, v reflect.Value, of, name string, module Modular) bool {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if of != name || v.IsNil() {
			return false
		}
		if _, ok := v.Interface().(Modular); !ok {
			return false
		}
		put(op, v, name, module)
		return true
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if replaceIn(op, v.Index(i), join(of, pyInt(int64(i))), name, module) {
				return true
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			element := reflect.New(v.Type().Elem()).Elem()
			element.Set(v.MapIndex(key))
			if replaceIn(op, element, join(of, key.String()), name, module) {
				v.SetMapIndex(key, element)
				return true
			}
		}
	}
	return false
}

func put(op string, v reflect.Value, name string, module Modular) {
	if !reflect.TypeOf(module).AssignableTo(v.Type()) {
		panic(typeError(op, "%q is a %v, into which a %T does not go", name, v.Type(), module))
	}
	v.Set(reflect.ValueOf(module))
}

// Half gives all floating point parameters and buffers the dtype Float16, as m.To(gotorch.Float16) does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.half.
func (m *Module) Half() { m.floating(gotorch.Float16) }

// BFloat16 gives all floating point parameters and buffers the dtype BFloat16.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.bfloat16.
func (m *Module) BFloat16() { m.floating(gotorch.BFloat16) }

// Float gives all floating point parameters and buffers the dtype Float32.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.float.
func (m *Module) Float() { m.floating(gotorch.Float32) }

// Double gives all floating point parameters and buffers the dtype Float64.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.double.
func (m *Module) Double() { m.floating(gotorch.Float64) }

// floating converts what is floating point, and not what is complex, which To converts too.
func (m *Module) floating(d gotorch.DType) {
	m.convertAll(func(t gotorch.Tensor) gotorch.Tensor {
		if !t.DType().IsFloatingPoint() {
			return t
		}
		return t.To(d)
	})
}

// Type gives all parameters and buffers a dtype, also integers, which [Module.To] leaves alone. It panics with a
// TypeError if the dtype is no number's, and with a RuntimeError, and changes nothing, if parameters that
// require gradients would become integers.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.type.
func (m *Module) Type(d gotorch.DType) {
	if d == 0 || d.IsQuantized() {
		panic(typeError("nn.Type", "the dtype %v is no number's", d))
	}
	if !d.IsFloatingPoint() && !d.IsComplex() {
		for name, t := range m.tensors(true, parameter) {
			if t.RequiresGrad() {
				panic(runtimeError("nn.Type", "%q requires gradients, which only floating point and complex tensors can, not %v", name, d))
			}
		}
	}
	m.convertAll(func(t gotorch.Tensor) gotorch.Tensor { return t.To(d) })
}

// ToEmpty moves all parameters and buffers to a device without copying their numbers: what they have then is
// whatever the memory had. For a model that was made on gotorch.Meta, before a state dict is loaded into it.
// Optimisers are to be made afterwards. It panics with a RuntimeError, and changes nothing, if the device is
// missing.
//
//	model.ToEmpty(gotorch.CUDA(0))
//	err := nn.Load(model, "model.safetensors", nn.LoadOptions{Device: gotorch.CUDA(0)})
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.to_empty.
func (m *Module) ToEmpty(device gotorch.Device) {
	if device == 0 {
		panic(typeError("nn.ToEmpty", "the device is the zero Device, where one is required"))
	}
	m.convertAll(func(t gotorch.Tensor) gotorch.Tensor {
		return gotorch.EmptyLike(t, gotorch.TensorOptions{Device: device})
	})
}

// CPU moves all parameters and buffers to the CPU, as m.To(gotorch.CPU) does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.cpu.
func (m *Module) CPU() { m.To(gotorch.CPU) }

// CUDA moves all parameters and buffers to a GPU, as m.To(gotorch.CUDA(index)) does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.cuda.
func (m *Module) CUDA(index int) { m.To(gotorch.CUDA(index)) }
