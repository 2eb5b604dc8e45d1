// Jit loads TorchScript files and calls their methods, for tests/test_jit.py:
//
//	jit CASES.json
//
// A case's results are written as torch.save writes them.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/jit"
)

type call struct {
	Method string
	Args   string // a file with a list, and behind it a dict of those by name
	Train  *bool
	Grad   bool // gradients of all parameters, of the sum of the result
}

type oneCase struct {
	File, Out string
	Save      string // where the module is saved after the calls; "" if it is not
	Bytes     bool   // by Decode and Encode
	Calls     []call
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var cases []oneCase
	if err := json.Unmarshal(text, &cases); err != nil {
		panic(err)
	}
	for _, c := range cases {
		result, err := gotorch.Try(func() gotorch.Dict { return run(c) })
		if err != nil {
			result = gotorch.Dict{{Key: "error", Value: strings.ToValidUTF8(err.Error(), "?")}}
		}
		if err := gotorch.Save(c.Out, result); err != nil {
			panic(fmt.Sprint(c.File, ": ", err))
		}
	}
}

func load(c oneCase) (*jit.Module, error) {
	if !c.Bytes {
		return jit.Load(c.File)
	}
	data, err := os.ReadFile(c.File)
	if err != nil {
		return nil, err
	}
	return jit.Decode(bytes.NewReader(data))
}

func run(c oneCase) gotorch.Dict {
	m, err := load(c)
	if err != nil {
		panic(err)
	}
	defer m.Close()
	var results []any
	for _, call := range c.Calls {
		v, err := gotorch.Load(call.Args)
		if err != nil {
			panic(err)
		}
		args := v.([]any)[0].([]any)
		for key, value := range v.([]any)[1].(gotorch.Dict).All() {
			args = append(args, gotorch.Named(key.(string), value))
		}
		if call.Train != nil {
			m.Train(*call.Train)
		}
		gotorch.ManualSeed(0)
		result, err := gotorch.Try(func() any {
			out := m.Call(call.Method, args...)
			if call.Grad {
				return gradients(m, out)
			}
			return plain(out)
		})
		if err != nil {
			result = gotorch.Dict{{Key: "error", Value: strings.ToValidUTF8(err.Error(), "?")}}
		}
		results = append(results, result)
	}
	state := gotorch.Dict{}
	for name, t := range m.StateDict() {
		state = append(state, gotorch.DictItem{Key: name, Value: savable(t)})
	}
	var parameters, buffers, modules []string
	for name := range m.NamedParameters() {
		parameters = append(parameters, name)
	}
	for name := range m.NamedBuffers() {
		buffers = append(buffers, name)
	}
	for name := range m.NamedModules() {
		modules = append(modules, name)
	}
	if c.Save != "" {
		if err := save(c, m); err != nil {
			panic(err)
		}
	}
	return gotorch.Dict{
		{Key: "results", Value: results}, {Key: "state", Value: state}, {Key: "parameters", Value: parameters},
		{Key: "buffers", Value: buffers}, {Key: "modules", Value: modules}, {Key: "training", Value: m.Training()},
		{Key: "extra", Value: m.ExtraFiles()},
	}
}

func save(c oneCase, m *jit.Module) error {
	opt := jit.SaveOptions{ExtraFiles: m.ExtraFiles()}
	if !c.Bytes {
		return jit.Save(m, c.Save, opt)
	}
	var b bytes.Buffer
	if err := jit.Encode(&b, m, opt); err != nil {
		return err
	}
	return os.WriteFile(c.Save, b.Bytes(), 0o600)
}

func gradients(m *jit.Module, out any) any {
	total := gotorch.Zeros(nil)
	var add func(v any)
	add = func(v any) {
		switch x := v.(type) {
		case gotorch.Tensor:
			if x.RequiresGrad() {
				total = total.Add(realSum(x))
			}
		case gotorch.Tuple:
			for _, item := range x {
				add(item)
			}
		case []gotorch.Tensor:
			for _, item := range x {
				add(item)
			}
		}
	}
	add(out)
	m.ZeroGrad()
	if total.RequiresGrad() {
		total.Backward()
	}
	d := gotorch.Dict{}
	for name, p := range m.NamedParameters() {
		if g := p.Grad(); g.Defined() {
			d = append(d, gotorch.DictItem{Key: name, Value: savable(g)})
		}
	}
	return d
}

// plain makes what gotorch.Save takes of a result.
func plain(v any) any {
	switch x := v.(type) {
	case gotorch.Tensor:
		return savable(x)
	case []gotorch.Tensor:
		list := make([]any, len(x))
		for i, t := range x {
			list[i] = savable(t)
		}
		return list
	case []any:
		return all(x)
	case gotorch.Tuple:
		return gotorch.Tuple(all(x))
	case gotorch.Dict:
		d := gotorch.Dict{}
		for key, value := range x.All() {
			d = append(d, gotorch.DictItem{Key: plain(key), Value: plain(value)})
		}
		return d
	case jit.NamedTuple:
		return gotorch.Tuple{"named tuple", x.Type, x.Fields, gotorch.Tuple(all(x.Values))}
	case jit.Enum:
		return gotorch.Tuple{"enum", x.Type, x.Name, plain(x.Value)}
	case *jit.Module:
		return gotorch.Tuple{"module", x.TypeName()}
	case *jit.Object:
		return gotorch.Tuple{"object", x.TypeName()}
	}
	return v
}

func savable(t gotorch.Tensor) any {
	if t.T == nil {
		return nil
	}
	if t.Layout() != gotorch.Strided {
		return t.ToDense()
	}
	return t.Detach()
}

func all(list []any) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = plain(v)
	}
	return out
}

func realSum(t gotorch.Tensor) gotorch.Tensor {
	sum := t.Sum()
	if sum.DType().IsComplex() {
		sum = gotorch.Real(sum)
	}
	return sum.To(gotorch.Float32)
}
