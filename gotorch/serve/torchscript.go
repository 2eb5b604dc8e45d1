package serve

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/jit"
)

// FromTorchScript returns a model that calls the method forward of a TorchScript module, which it puts into evaluation mode. The
// server closes m when it is done with it.
//
// A script does not say the dtypes and shapes of what it takes, so a forward that takes tensors needs a signature:
//
//	serve.FromTorchScript(m, serve.Signature{
//		Inputs:  []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 3, 224, 224}}},
//		Outputs: []serve.Spec{{Name: "logits", Type: serve.FP32, Shape: []int64{-1, 1000}}},
//	})
//
// Inputs have the names of arguments. An argument that is an int, float or bool is an input of one element, one that is a str or
// List[str] an input of BYTES. Outputs are forward's results in order, and by their keys where it returns a dict; those of BYTES are
// strings. A signature without Outputs is enough if forward returns tensors, whose types and shapes are then unknown: a tensor is
// "output", those of a tuple are "output_0", "output_1", ..., and a named tuple has the names of its fields. A forward that
// returns a list or a dict needs Outputs.
//
// It panics with a TypeError if forward takes or returns what cannot be served, the signature has other inputs, or it lacks those
// that forward needs.
func FromTorchScript(m *jit.Module, signature ...Signature) Model {
	const op = "serve.FromTorchScript"
	switch len(signature) {
	case 0:
		return newScript(op, m, nil, nil)
	case 1:
		return newScript(op, m, signature[0].Inputs, signature[0].Outputs)
	}
	panic(args.TypeError(op, "one Signature, not %d", len(signature)))
}

// newScript is FromTorchScript.
func newScript(op string, m *jit.Module, inputs, outputs []Spec) *scriptModel {
	methods := m.Methods()
	i := slices.IndexFunc(methods, func(m jit.Method) bool { return m.Name == "forward" })
	if i < 0 {
		panic(args.TypeError(op, "%s has no method forward", m.TypeName()))
	}
	forward := methods[i]
	if len(outputs) == 0 {
		outputs = outputsOf(op, forward)
	}
	s := &scriptModel{module: m, signature: Signature{inputs, outputs}.clone()}
	for _, in := range s.signature.Inputs {
		i := slices.IndexFunc(forward.Args, func(a jit.Argument) bool { return a.Name == in.Name })
		if i < 0 {
			panic(args.TypeError(op, "forward has no argument %q; it has %s", in.Name, argumentNames(forward)))
		}
		a := argument{name: in.Name, of: forward.Args[i].Type}
		if inner, ok := strings.CutPrefix(a.of, "Optional["); ok {
			a.of = strings.TrimSuffix(inner, "]")
		}
		texts := a.of == "str" || a.of == "List[str]"
		switch {
		case !texts && !slices.Contains([]string{"Tensor", "int", "float", "bool"}, a.of):
			panic(args.TypeError(op, "the argument %q of forward is %s, which no input is", in.Name, forward.Args[i].Type))
		case texts != (in.Type == BYTES):
			panic(args.TypeError(op, "the argument %q of forward is %s, and the input is %s", in.Name, forward.Args[i].Type, in.Type))
		}
		s.arguments = append(s.arguments, a)
	}
	for _, a := range forward.Args {
		if !a.HasDefault && !slices.ContainsFunc(s.arguments, func(given argument) bool { return given.name == a.Name }) {
			panic(args.TypeError(op, "the argument %q of forward is %s and has no default: give a Signature with its type and shape, which a script does not say, or inputs in a folder's config.json", a.Name, a.Type))
		}
	}
	m.Eval()
	return s
}

func argumentNames(m jit.Method) string {
	names := make([]string, len(m.Args))
	for i, a := range m.Args {
		names[i] = strconv.Quote(a.Name)
	}
	return strings.Join(names, ", ")
}

// outputsOf are the tensors that a method returns.
func outputsOf(op string, m jit.Method) (outputs []Spec) {
	for i, r := range m.Results {
		if r.Type != "Tensor" {
			panic(args.TypeError(op, "forward returns %s: give a Signature that says the outputs, or outputs in a folder's config.json", m.Returns))
		}
		name := r.Name
		if name == "" {
			name = "output"
			if len(m.Results) > 1 {
				name += "_" + strconv.Itoa(i)
			}
		}
		outputs = append(outputs, Spec{Name: name})
	}
	return outputs
}

type argument struct{ name, of string }

type scriptModel struct {
	module    *jit.Module
	signature Signature
	arguments []argument // for the inputs
}

func (s *scriptModel) Signature() Signature { return s.signature }

func (s *scriptModel) Run(_ context.Context, in *Request) ([]Value, error) {
	given := make([]any, len(in.Inputs))
	for i, v := range in.Inputs {
		arg, err := s.arguments[i].value(v)
		if err != nil {
			return nil, err
		}
		given[i] = gotorch.Named(s.arguments[i].name, arg)
	}
	out, err := gotorch.Try(func() any { return s.module.Call("forward", given...) })
	if err != nil {
		return nil, err
	}
	return s.outputs(out)
}

// value returns an input as forward takes it.
func (a argument) value(v Value) (any, error) {
	switch a.of {
	case "Tensor":
		return v.Tensor, nil
	case "List[str]":
		return v.Texts(), nil
	case "str":
		if len(v.Bytes) != 1 {
			return nil, newError(InvalidArgument, "input %q must have one element, and has %d", a.name, len(v.Bytes))
		}
		return string(v.Bytes[0]), nil
	}
	if n := v.Tensor.Numel(); n != 1 {
		return nil, newError(InvalidArgument, "input %q must have one element, and has %d", a.name, n)
	}
	d := v.Tensor.DType()
	switch {
	case a.of == "bool" && d == gotorch.Bool:
		return gotorch.Item[bool](v.Tensor), nil
	case a.of == "int" && !d.IsFloatingPoint() && !d.IsComplex() && d != gotorch.Bool:
		return gotorch.Item[int64](v.Tensor.To(gotorch.Int64)), nil
	case a.of == "float" && d != gotorch.Bool && !d.IsComplex():
		return gotorch.Item[float64](v.Tensor.To(gotorch.Float64)), nil
	}
	return nil, newError(InvalidArgument, "input %q is %v, where %s is expected", a.name, d, a.of)
}

// outputs takes a result of forward apart.
func (s *scriptModel) outputs(v any) ([]Value, error) {
	var list []any
	switch x := v.(type) {
	case gotorch.Dict:
		for _, spec := range s.signature.Outputs {
			list = append(list, x.Get(spec.Name))
		}
	case jit.NamedTuple:
		list = x.Values
	case gotorch.Tuple:
		list = x
	case []gotorch.Tensor:
		for _, t := range x {
			list = append(list, t)
		}
	default:
		list = []any{v}
	}
	if len(list) != len(s.signature.Outputs) {
		return nil, fmt.Errorf("forward returned %d values, and the signature has %d outputs", len(list), len(s.signature.Outputs))
	}
	values := make([]Value, len(list))
	for i, item := range list {
		spec := s.signature.Outputs[i]
		switch x := item.(type) {
		case gotorch.Tensor:
			values[i] = Value{Name: spec.Name, Tensor: x}
		case string:
			values[i] = NewTexts(spec.Name, []string{x})
		case []string:
			values[i] = NewTexts(spec.Name, x)
		case int64:
			values[i] = Value{Name: spec.Name, Tensor: gotorch.FromSlice([]int64{x}, 1)}
		case float64:
			values[i] = Value{Name: spec.Name, Tensor: gotorch.FromSlice([]float64{x}, 1)}
		case bool:
			values[i] = Value{Name: spec.Name, Tensor: gotorch.FromSlice([]bool{x}, 1)}
		default:
			return nil, fmt.Errorf("forward returned %T for the output %q", item, spec.Name)
		}
	}
	return values, nil
}

func (s *scriptModel) Close() error {
	s.module.Close()
	return nil
}
