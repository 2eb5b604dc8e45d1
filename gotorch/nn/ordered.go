package nn

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// ordered is parameters by names that are no field's, in their order.
type ordered struct {
	names   []string
	tensors []gotorch.Tensor
}

func (o *ordered) add(name string, t gotorch.Tensor) {
	o.names, o.tensors = append(o.names, name), append(o.tensors, t)
}

// holder is a module that has such parameters, besides those of its fields.
type holder interface{ held() *ordered }

// ParameterListModule is what [ParameterList] makes.
type ParameterListModule struct {
	Module
	parameters ordered `nn:"-"` // see held
}

// ParameterList is parameters by numbers, "0", "1": a module for a field of another one. Like [Parameter] it
// has them share the memory of what it gets.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.ParameterList.html.
func ParameterList(parameters ...gotorch.Tensor) *ParameterListModule {
	m := &ParameterListModule{}
	m.Append(parameters...)
	return Init(m)
}

func (m *ParameterListModule) held() *ordered { return &m.parameters }

// Append puts parameters behind the others.
func (m *ParameterListModule) Append(parameters ...gotorch.Tensor) {
	for _, p := range parameters {
		m.parameters.add(strconv.Itoa(len(m.parameters.names)), asLeaf(p))
	}
}

// asLeaf is t if it can be a parameter as it is.
func asLeaf(t gotorch.Tensor) gotorch.Tensor {
	if t.IsLeaf() && t.RequiresGrad() {
		return t
	}
	if d := t.DType(); d.IsFloatingPoint() || d.IsComplex() {
		return Parameter(t)
	}
	return t
}

// Len returns how many there are.
func (m *ParameterListModule) Len() int { return len(m.parameters.tensors) }

// At returns the parameter at a place. It panics with an IndexError if there is none.
func (m *ParameterListModule) At(i int) gotorch.Tensor {
	if i < 0 || i >= m.Len() {
		panic(&gotorch.Error{Op: "nn.ParameterList", Kind: gotorch.IndexError, Msg: fmt.Sprintf("index %d is out of range: there are %d parameters", i, m.Len())})
	}
	return m.parameters.tensors[i]
}

// ExtraRepr returns what String writes between the parentheses.
func (m *ParameterListModule) ExtraRepr() string {
	return m.parameters.repr(func(t gotorch.Tensor) string { return t.DType().String() })
}

func (o *ordered) repr(typeOf func(t gotorch.Tensor) string) string {
	var lines []string
	for i, t := range o.tensors {
		kind := "Tensor"
		if t.RequiresGrad() {
			kind = "Parameter"
		}
		var sizes []string
		for _, n := range t.Shape() {
			sizes = append(sizes, strconv.FormatInt(n, 10))
		}
		device := ""
		if t.Device().Type() != gotorch.DeviceTypeCPU {
			device = fmt.Sprintf(" (%v)", t.Device())
		}
		lines = append(lines, fmt.Sprintf("  (%s): %s containing: [%s of size %s%s]", o.names[i], kind, typeOf(t), strings.Join(sizes, "x"), device))
	}
	return strings.Join(lines, "\n")
}

// ParameterDictModule is what [ParameterDict] makes.
type ParameterDictModule struct {
	Module
	parameters ordered `nn:"-"` // see held
}

// ParameterDict is parameters by name, in the order in which they were set: a module for a field of another
// one.
//
//	nn.ParameterDict().Set("scale", gotorch.Ones([]int64{3})).Set("shift", gotorch.Zeros([]int64{3}))
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.ParameterDict.html.
func ParameterDict() *ParameterDictModule { return Init(&ParameterDictModule{}) }

func (m *ParameterDictModule) held() *ordered { return &m.parameters }

// Set sets the parameter of a name, and returns m. It panics with a ValueError if the name is empty or has a
// dot.
func (m *ParameterDictModule) Set(name string, parameter gotorch.Tensor) *ParameterDictModule {
	if name == "" || strings.Contains(name, ".") {
		panic(args.ValueError("nn.ParameterDict", "a name must not be empty nor contain a dot, but is %q", name))
	}
	if i := slices.Index(m.parameters.names, name); i >= 0 {
		m.parameters.tensors[i] = asLeaf(parameter)
	} else {
		m.parameters.add(name, asLeaf(parameter))
	}
	return m
}

// Get returns the parameter of a name, or the zero Tensor if there is none.
func (m *ParameterDictModule) Get(name string) gotorch.Tensor {
	if i := slices.Index(m.parameters.names, name); i >= 0 {
		return m.parameters.tensors[i]
	}
	return gotorch.Tensor{}
}

// Delete removes the parameter of a name. It panics with a KeyError if there is none.
func (m *ParameterDictModule) Delete(name string) {
	i := indexOf("nn.ParameterDict.Delete", m.parameters.names, name)
	// New lists, as the old ones may be run through.
	m.parameters.names = slices.Concat(m.parameters.names[:i], m.parameters.names[i+1:])
	m.parameters.tensors = slices.Concat(m.parameters.tensors[:i], m.parameters.tensors[i+1:])
}

// Len returns how many there are.
func (m *ParameterDictModule) Len() int { return len(m.parameters.names) }

// All yields the parameters in their order.
func (m *ParameterDictModule) All() iter.Seq2[string, gotorch.Tensor] {
	return func(yield func(string, gotorch.Tensor) bool) {
		tensors := m.parameters.tensors
		for i, name := range m.parameters.names {
			if !yield(name, tensors[i]) {
				return
			}
		}
	}
}

// ExtraRepr returns what String writes between the parentheses.
func (m *ParameterDictModule) ExtraRepr() string {
	return m.parameters.repr(func(t gotorch.Tensor) string { return "torch." + oldType(t) })
}

// oldType is the name of a tensor's type before there were dtypes, which Python still writes here.
func oldType(t gotorch.Tensor) string {
	name, ok := map[gotorch.DType]string{
		gotorch.Float32: "FloatTensor", gotorch.Float64: "DoubleTensor", gotorch.Float16: "HalfTensor", gotorch.BFloat16: "BFloat16Tensor",
		gotorch.Int64: "LongTensor", gotorch.Int32: "IntTensor", gotorch.Int16: "ShortTensor", gotorch.Int8: "CharTensor",
		gotorch.Uint8: "ByteTensor", gotorch.Bool: "BoolTensor", gotorch.Complex64: "ComplexFloatTensor", gotorch.Complex128: "ComplexDoubleTensor",
	}[t.DType()]
	if !ok {
		return "Tensor"
	}
	if t.Device().Type() != gotorch.DeviceTypeCPU {
		return t.Device().Type().String() + "." + name
	}
	return name
}
