package main

import (
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/functorch"
)

// The transforms of package functorch: Python names one and an operator, with the operator's arguments, and
// says which tensors among these are the arguments of the function that is transformed.
const specialTransform = -60

type operation = func(xs []gotorch.Tensor) []gotorch.Tensor

// transformers are given the function, what it is called with, and tensors of the transform's own: cotangents or
// tangents.
var transformers = map[string]func(f operation, xs, more []gotorch.Tensor) []gotorch.Tensor{
	"grad": func(f operation, xs, _ []gotorch.Tensor) []gotorch.Tensor {
		g, value := functorch.GradAndValue(total(f))(xs)
		return append(g, value)
	},
	"vjp": func(f operation, xs, cotangents []gotorch.Tensor) []gotorch.Tensor {
		ys, vjp := functorch.VJP(f, xs)
		return append(ys, vjp(cotangents)...)
	},
	"jvp": func(f operation, xs, tangents []gotorch.Tensor) []gotorch.Tensor {
		ys, tangents := functorch.JVP(f, xs, tangents)
		return append(ys, tangents...)
	},
	"vmap": func(f operation, xs, _ []gotorch.Tensor) []gotorch.Tensor {
		return functorch.VMap(f, functorch.VMapOptions{Randomness: "different"})(xs)
	},
	"vmap of grad": func(f operation, xs, _ []gotorch.Tensor) []gotorch.Tensor {
		return functorch.VMap(functorch.Grad(total(f)), functorch.VMapOptions{Randomness: "different"})(xs)
	},
	"jacrev": func(f operation, xs, _ []gotorch.Tensor) []gotorch.Tensor {
		return flat(functorch.JacRevAll(f)(xs))
	},
	"jacfwd": func(f operation, xs, _ []gotorch.Tensor) []gotorch.Tensor {
		return flat(functorch.JacFwdAll(f)(xs))
	},
	"hessian": func(f operation, xs, _ []gotorch.Tensor) []gotorch.Tensor {
		return flat(functorch.HessianAll(total(f))(xs))
	},
}

func flat(lists [][]gotorch.Tensor) (all []gotorch.Tensor) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// total is a function's results as one number.
func total(f operation) func([]gotorch.Tensor) gotorch.Tensor {
	return func(xs []gotorch.Tensor) gotorch.Tensor {
		var sum gotorch.Tensor
		for _, y := range f(xs) {
			if sum.T == nil {
				sum = y.Sum()
			} else {
				sum = sum.Add(y.Sum())
			}
		}
		return sum
	}
}

func runTransforms(index int64, in *reader) []reflect.Value {
	if index == specialComposition {
		return runComposition(in)
	}
	name := in.text()
	transform, ok := transformers[name]
	if !ok {
		panic(broken("there is no transform " + name))
	}
	tensors := reflect.TypeFor[[]gotorch.Tensor]()
	list := func() []gotorch.Tensor { return in.value(tensors).Interface().([]gotorch.Tensor) }
	xs, more := list(), list()
	results := transform(in.operation(gotorch.Tensor.IsFloatingPoint), xs, more)
	return []reflect.Value{reflect.ValueOf(results)}
}

// operation reads a call of an operator, and which of its tensors are the function's arguments. Its results are
// those that are wanted.
func (in *reader) operation(wanted func(gotorch.Tensor) bool) operation {
	places := make([]int64, in.next())
	for i := range places {
		places[i] = in.next()
	}
	e, options := &table[in.next()], in.next() != 0
	before := len(in.tensors)
	op := reflect.ValueOf(e.function)
	args := e.arguments(op.Type(), formFunction, options, in)
	given := in.tensors[before:]
	return func(xs []gotorch.Tensor) []gotorch.Tensor {
		with := map[gotorch.Tensor]gotorch.Tensor{}
		for i, place := range places {
			with[given[place]] = xs[i]
		}
		call := make([]reflect.Value, len(args))
		for i, arg := range args {
			call[i] = replaced(arg, with)
		}
		var ys []gotorch.Tensor
		for _, result := range op.Call(call) {
			switch r := result.Interface().(type) {
			case gotorch.Tensor:
				ys = append(ys, r)
			case []gotorch.Tensor:
				ys = append(ys, r...)
			}
		}
		var found []gotorch.Tensor
		for _, y := range ys {
			if y.T != nil && wanted(y) {
				found = append(found, y)
			}
		}
		return found
	}
}

// replaced returns an argument with other tensors.
func replaced(v reflect.Value, with map[gotorch.Tensor]gotorch.Tensor) reflect.Value {
	switch {
	case v.Type() == typeTensor:
		if other, ok := with[v.Interface().(gotorch.Tensor)]; ok {
			return reflect.ValueOf(other)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem() == typeTensor:
		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			list.Index(i).Set(replaced(v.Index(i), with))
		}
		return list
	case v.Kind() == reflect.Struct && v.Type() != typeStream:
		options := reflect.New(v.Type()).Elem()
		for i := range v.NumField() {
			options.Field(i).Set(replaced(v.Field(i), with))
		}
		return options
	}
	return v
}
