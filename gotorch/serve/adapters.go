package serve

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/aoti"
	"gotorch.dev/gotorch/internal/args"
)

// NewModel returns a model that calls run: for what sees the whole request, such as pre- and post-processing in Go. See
// [Model] for what run may do.
//
//	serve.NewModel(signature, func(ctx context.Context, in *serve.Request) ([]serve.Value, error) {
//		ids := tokenize(in.Input("texts").Texts())
//		return []serve.Value{{Tensor: net.Forward(ids)}}, nil
//	})
func NewModel(s Signature, run func(ctx context.Context, in *Request) ([]Value, error)) Model {
	return &modelFunc{s, run}
}

type modelFunc struct {
	signature Signature
	run       func(context.Context, *Request) ([]Value, error)
}

func (m *modelFunc) Signature() Signature { return m.signature }
func (m *modelFunc) Run(ctx context.Context, in *Request) ([]Value, error) {
	return m.run(ctx, in)
}

// FromModel returns a model that calls a function of tensors: Forward of a module of package nn, or of a package that
// export_go wrote.
//
// The function takes tensors, one or several, or a []gotorch.Tensor, or any number of them, and before them a
// context.Context if it wants one. It returns tensors, one or several, or a []gotorch.Tensor, or a struct of tensors
// (which export_go writes where Python returns a dict), and after them an error if it wants to. What is wrong with the
// function is a panic with a TypeError.
//
// Without a signature inputs are FP32 of any shape, named "input", or "input_0", "input_1", ...; outputs "output", or
// "output_0", ..., or by the fields of the struct: "Hidden", or "State.0" for what nests. Say what the model takes, so
// that clients see it and wrong requests are refused before they run:
//
//	serve.FromModel(net.Forward, serve.Signature{
//		Inputs:  []serve.Spec{{Name: "images", Type: serve.FP32, Shape: []int64{-1, 1, 8, 8}}},
//		Outputs: []serve.Spec{{Name: "logits", Type: serve.FP32, Shape: []int64{-1, 10}}},
//	})
//
// A function of a []gotorch.Tensor, or that returns one, needs it.
func FromModel(function any, signature ...Signature) Model {
	const op = "serve.FromModel"
	wrong := func(format string, values ...any) *gotorch.Error {
		return &gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf(format, values...)}
	}
	f := reflect.ValueOf(function)
	if !f.IsValid() || f.Kind() != reflect.Func || f.IsNil() {
		panic(wrong("expected a function of tensors, got %T", function))
	}
	m := &tensorFunc{f: f}
	t := f.Type()
	n := t.NumIn()
	if n > 0 && t.In(0) == contextType {
		m.context = true
	}
	first := 0
	if m.context {
		first = 1
	}
	m.list = n-first == 1 && t.In(first) == tensorsType // variadic ones too
	for i := first; i < n && !m.list; i++ {
		if t.In(i) != tensorType {
			panic(wrong("argument %d of %T is no gotorch.Tensor", i, function))
		}
	}
	last := t.NumOut()
	if last > 0 && t.Out(last-1) == errorType {
		m.fails = true
		last--
	}
	open := m.list
	for i := range last {
		out := t.Out(i)
		var names []string
		if !outputNames(out, "", &names) {
			panic(wrong("result %d of %T is neither a tensor, nor tensors, nor a struct of them", i, function))
		}
		if names == nil {
			open = true
		}
		if out == tensorType {
			names = []string{"output"}
			if last > 1 {
				names = []string{"output_" + strconv.Itoa(i)}
			}
		}
		for _, name := range names {
			m.signature.Outputs = append(m.signature.Outputs, Spec{Name: name, Type: FP32})
		}
	}
	if last == 0 {
		panic(wrong("%T returns no tensor", function))
	}
	for i := range n - first {
		name := "input"
		if n-first > 1 {
			name += "_" + strconv.Itoa(i)
		}
		m.signature.Inputs = append(m.signature.Inputs, Spec{Name: name, Type: FP32})
	}
	inputs := n - first
	switch {
	case len(signature) > 1:
		panic(wrong("one Signature, not %d", len(signature)))
	case len(signature) == 1:
		s := signature[0]
		for _, spec := range append(append([]Spec{}, s.Inputs...), s.Outputs...) {
			if spec.Type == BYTES {
				panic(wrong("%v is no tensor: use NewModel", spec))
			}
		}
		if !m.list && len(s.Inputs) != inputs {
			panic(wrong("%T takes %d tensors, and the signature has %d inputs", function, inputs, len(s.Inputs)))
		}
		m.signature = s
	case open:
		panic(wrong("%T takes or returns any number of tensors: give a Signature that says how many", function))
	}
	// What nearly all are needs no reflection for each call.
	m.one, _ = function.(func(gotorch.Tensor) gotorch.Tensor)
	return m
}

var (
	contextType = reflect.TypeFor[context.Context]()
	tensorType  = reflect.TypeFor[gotorch.Tensor]()
	tensorsType = reflect.TypeFor[[]gotorch.Tensor]()
	errorType   = reflect.TypeFor[error]()
)

// outputNames appends the names of the tensors in a result of type t. There are none if only a value tells.
func outputNames(t reflect.Type, at string, names *[]string) bool {
	switch {
	case t == tensorType:
		*names = append(*names, at)
	case t == tensorsType:
		if at != "" { // one list in a struct would shift the names after it
			return false
		}
		*names = nil
	case t.Kind() == reflect.Struct && t.NumField() > 0:
		for i := range t.NumField() {
			field := t.Field(i)
			name := field.Name
			if at != "" {
				name = at + "." + name
			}
			if !field.IsExported() || !outputNames(field.Type, name, names) {
				return false
			}
		}
	default:
		return false
	}
	return true
}

type tensorFunc struct {
	f         reflect.Value
	one       func(gotorch.Tensor) gotorch.Tensor
	signature Signature
	context   bool // is the first argument
	list      bool // the others are one list
	fails     bool // the last result is an error
}

func (m *tensorFunc) Signature() Signature { return m.signature }

func (m *tensorFunc) Run(ctx context.Context, in *Request) ([]Value, error) {
	if m.one != nil {
		return []Value{{Tensor: m.one(in.Inputs[0].Tensor)}}, nil
	}
	var arguments []reflect.Value
	if m.context {
		arguments = append(arguments, reflect.ValueOf(ctx))
	}
	tensors := make([]gotorch.Tensor, len(in.Inputs))
	for i, v := range in.Inputs {
		tensors[i] = v.Tensor
		if !m.list {
			arguments = append(arguments, reflect.ValueOf(v.Tensor))
		}
	}
	if m.list {
		arguments = append(arguments, reflect.ValueOf(tensors))
	}
	call := m.f.Call
	if m.f.Type().IsVariadic() {
		call = m.f.CallSlice
	}
	results := call(arguments)
	if m.fails {
		last := len(results) - 1
		if err, _ := results[last].Interface().(error); err != nil {
			return nil, err
		}
		results = results[:last]
	}
	var values []Value
	for _, r := range results {
		values = appendOutputs(values, r)
	}
	return values, nil
}

func appendOutputs(values []Value, v reflect.Value) []Value {
	switch r := v.Interface().(type) {
	case gotorch.Tensor:
		return append(values, Value{Tensor: r})
	case []gotorch.Tensor:
		for _, t := range r {
			values = append(values, Value{Tensor: t})
		}
		return values
	}
	for i := range v.NumField() {
		values = appendOutputs(values, v.Field(i))
	}
	return values
}

// FromAOTI returns a model that runs an AOTInductor package. Its inputs have the names and shapes that
// [aoti.Model.Inputs] says; a size with a range is open, and one out of the range is refused when it runs. Of outputs a
// package says only the names ("output" where there is none): their types are unknown and their shapes any, unless outputs
// say otherwise, in order.
//
// How many batches run at a time is the smaller of [Instances] and aoti.LoadOptions.NumRunners. The server closes m when it
// is done with it. It panics with a TypeError if an input has a dtype that the protocol lacks, or outputs are given and
// are not as many as the model's.
func FromAOTI(m *aoti.Model, outputs ...Spec) Model {
	const op = "serve.FromAOTI"
	a := &aotiModel{model: m}
	for _, in := range m.Inputs() {
		spec := Spec{Name: in.Name, Type: TypeOf(in.DType)}
		if spec.Type == "" {
			panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf("input %q is %v, which the protocol lacks", in.Name, in.DType)})
		}
		if in.Dims != nil {
			spec.Shape = []int64{}
		}
		for _, d := range in.Dims {
			size := int64(-1)
			if d.Min == d.Max {
				size = d.Min
			}
			spec.Shape = append(spec.Shape, size)
		}
		a.signature.Inputs = append(a.signature.Inputs, spec)
	}
	for _, name := range m.Outputs() {
		if name == "" {
			name = "output"
		}
		a.signature.Outputs = append(a.signature.Outputs, Spec{Name: name})
	}
	if len(outputs) > 0 {
		if len(outputs) != len(a.signature.Outputs) {
			panic(args.ValueError(op, "the model has %d outputs, and %d are given", len(a.signature.Outputs), len(outputs)))
		}
		a.signature.Outputs = outputs
	}
	return a
}

type aotiModel struct {
	model     *aoti.Model
	signature Signature
}

func (a *aotiModel) Signature() Signature { return a.signature }

func (a *aotiModel) Run(_ context.Context, in *Request) ([]Value, error) {
	tensors := make([]gotorch.Tensor, len(in.Inputs))
	for i, v := range in.Inputs {
		tensors[i] = v.Tensor
	}
	out, err := gotorch.Try(func() []gotorch.Tensor { return a.model.Run(tensors...) })
	if err != nil {
		return nil, inputError(err)
	}
	values := make([]Value, len(out))
	for i, t := range out {
		values[i] = Value{Tensor: t}
	}
	return values, nil
}

// inputError is the error of compiled code for what is wrong with its inputs, before anything runs: of a range, or of
// sizes that must agree. Others are the model's.
func inputError(err error) error {
	var e *gotorch.Error
	if errors.As(err, &e) && (e.Kind == gotorch.ValueError || e.Kind == gotorch.TypeError) {
		return newError(InvalidArgument, "%s", nodeNote.ReplaceAllString(e.Msg, ""))
	}
	return err
}

// nodeNote says which node of the compiled graph it was, which is nothing that a client can know.
var nodeNote = regexp.MustCompile(`(?s) \[node \d+ of \d+: .*\]$`)

func (a *aotiModel) Close() error {
	a.model.Close()
	return nil
}
