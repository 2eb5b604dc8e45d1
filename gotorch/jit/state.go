package jit

import (
	"iter"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/nn"
)

func seq[T any](list []named[T]) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, item := range list {
			if !yield(item.Name, item.Value) {
				return
			}
		}
	}
}

func values[T any](list []named[T]) []T {
	out := make([]T, len(list))
	for i, item := range list {
		out[i] = item.Value
	}
	return out
}

// NamedParameters yields every parameter once, in Python's order. They are the script's own tensors: an optimiser can train
// them.
func (m *Module) NamedParameters() iter.Seq2[string, gotorch.Tensor] {
	return seq(m.tensors(ctorch.JITParameters, true))
}

// Parameters returns every parameter once.
func (m *Module) Parameters() []gotorch.Tensor { return values(m.tensors(ctorch.JITParameters, true)) }

// NamedBuffers yields every buffer once, in Python's order.
func (m *Module) NamedBuffers() iter.Seq2[string, gotorch.Tensor] {
	return seq(m.tensors(ctorch.JITBuffers, true))
}

// Buffers returns every buffer once.
func (m *Module) Buffers() []gotorch.Tensor { return values(m.tensors(ctorch.JITBuffers, true)) }

// NamedModules yields the module itself, as "", and every module within, each once.
func (m *Module) NamedModules() iter.Seq2[string, *Module] { return seq(m.modules(true)) }

// Modules returns the module itself and every module within, each once.
func (m *Module) Modules() []*Module { return values(m.modules(true)) }

// NamedChildren yields the modules that are attributes of this one.
func (m *Module) NamedChildren() iter.Seq2[string, *Module] { return seq(m.modules(false)) }

// Children returns the modules that are attributes of this one.
func (m *Module) Children() []*Module { return values(m.modules(false)) }

// StateDict returns parameters and buffers by all of their names. The tensors share memory with the module's.
func (m *Module) StateDict() nn.StateDict {
	dict := nn.StateDict{}
	for _, item := range m.tensors(ctorch.JITParameters|ctorch.JITBuffers, false) {
		dict[item.Name] = item.Value
	}
	return dict
}

// LoadStateDictOptions are the arguments of [Module.LoadStateDict] that have defaults.
type LoadStateDictOptions struct {
	// Partial is strict=False of PyTorch: names that only the module or only the dict has are left alone.
	Partial bool
}

// LoadStateDict copies tensors into the parameters and buffers of the same names. The error is a *nn.StateDictError if names or
// shapes differ; nothing has changed then.
func (m *Module) LoadStateDict(dict nn.StateDict, opts ...LoadStateDictOptions) error {
	opt := args.Option(opts)
	own := m.StateDict()
	wrong := &nn.StateDictError{Module: m.TypeName()}
	for _, name := range own.Names() {
		from, ok := dict[name]
		switch {
		case !ok:
			wrong.Missing = append(wrong.Missing, name)
		case !from.Defined():
			return args.TypeError("jit.LoadStateDict", "the state dict's %q is the zero Tensor, or was closed", name)
		case !sameShape(own[name].Shape(), from.Shape()):
			wrong.Mismatched = append(wrong.Mismatched, nn.Mismatch{Name: name, Want: own[name].Shape(), Got: from.Shape()})
		}
	}
	for _, name := range dict.Names() {
		if _, ok := own[name]; !ok {
			wrong.Unexpected = append(wrong.Unexpected, name)
		}
	}
	if opt.Partial {
		wrong.Missing, wrong.Unexpected = nil, nil
	}
	if len(wrong.Missing)+len(wrong.Unexpected)+len(wrong.Mismatched) > 0 {
		return wrong
	}
	m.tree.mutex.Lock()
	defer m.tree.mutex.Unlock()
	return gotorch.Try0(func() {
		gotorch.NoGrad(func() {
			for name, t := range own {
				if from, ok := dict[name]; ok {
					t.Copy_(from)
				}
			}
		})
	})
}

func sameShape(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// To moves all parameters, their gradients and buffers to another device, and gives those that are floating point or complex another
// dtype, as in Python. They stay the same tensors, so that an optimiser made before still knows them. Tensors that are constants of the code, as those of a frozen or traced
// module may be, stay where they are: [LoadOptions].MapLocation moves those.
//
//	m.To(gotorch.CUDA(0), gotorch.BFloat16)
func (m *Module) To(args ...gotorch.ToArg) {
	tensors := m.tensors(ctorch.JITParameters|ctorch.JITBuffers, true)
	m.tree.mutex.Lock()
	defer m.tree.mutex.Unlock()
	gotorch.NoGrad(func() {
		for _, item := range tensors {
			t := item.Value
			if grad := t.Grad(); grad.Defined() {
				grad = converted(grad, args)
				t.SetGrad(gotorch.Tensor{})
				t.SetData(converted(t.Detach(), args))
				t.SetGrad(grad)
			} else {
				t.SetData(converted(t.Detach(), args))
			}
		}
	})
}

// converted is To for one tensor: those of integers keep their dtype.
func converted(t gotorch.Tensor, list []gotorch.ToArg) gotorch.Tensor {
	floats := t.DType().IsFloatingPoint() || t.DType().IsComplex()
	for _, arg := range list {
		switch a := arg.(type) {
		case gotorch.DType:
			if floats {
				t = t.To(a)
			}
		case gotorch.Tensor:
			if t = t.To(a.Device()); floats {
				t = t.To(a.DType())
			}
		case gotorch.ToOptions:
			if !floats {
				a.DType = 0
			}
			t = t.To(a)
		default:
			t = t.To(arg)
		}
	}
	return t
}

// RequiresGrad_ makes all parameters require gradients, or none.
func (m *Module) RequiresGrad_(on bool) {
	for _, p := range m.Parameters() {
		p.RequiresGrad_(on)
	}
}

// ZeroGrad drops the gradients of all parameters.
func (m *Module) ZeroGrad() {
	for _, p := range m.Parameters() {
		p.SetGrad(gotorch.Tensor{})
	}
}
