package main

import (
	"fmt"
	"reflect"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/nn/utils"
)

// The modules of package nn: Python makes one by its name and keeps it by a number.
const (
	specialMake = -10 - iota
	specialCall
	specialState
	specialTensors
	specialLoad
	specialTrain
	specialText
	specialForget
	specialFunctional
	specialConvert
)

var (
	kept    = map[int64]any{}
	given   = map[int64][]gotorch.Tensor{} // what modules were made with, which they keep
	numbers int64
)

// others are functions besides those of nn/functional.
var others = map[string]any{
	"clip_grad_norm_": utils.ClipGradNorm_, "clip_grad_value_": utils.ClipGradValue_,
	"parameters_to_vector": utils.ParametersToVector,
}

func runModules(index int64, in *reader) []reflect.Value {
	switch index {
	case specialMake:
		name := in.text()
		function, ok := constructors[name]
		if !ok {
			function, ok = ownModules[name]
		}
		if !ok {
			panic(broken("there is no constructor " + name))
		}
		made := in.invoke(reflect.ValueOf(function))
		numbers++
		kept[numbers], given[numbers] = made[0].Interface(), in.tensors
		in.tensors = nil
		return []reflect.Value{reflect.ValueOf(numbers)}
	case specialFunctional:
		name := in.text()
		function, ok := functions[name]
		if !ok {
			function, ok = others[name]
		}
		if !ok {
			function, ok = utilities[name]
		}
		if !ok {
			panic(broken("there is no function " + name))
		}
		return keepModules(in.invoke(reflect.ValueOf(function)))
	case specialForget:
		number := in.next()
		for _, t := range given[number] {
			t.Close()
		}
		delete(given, number)
		delete(kept, number)
		return nil
	}
	object := kept[in.next()]
	module, _ := object.(nn.Modular)
	switch index {
	case specialCall:
		method := reflect.ValueOf(object).MethodByName(in.text())
		if !method.IsValid() {
			panic(broken(fmt.Sprintf("%T has no such method", object)))
		}
		return in.invoke(method)
	case specialState: // names and tensors, which Python takes over
		dict := module.StateDict()
		names := dict.Names()
		var tensors []gotorch.Tensor
		for _, name := range names {
			tensors = append(tensors, dict[name])
		}
		return []reflect.Value{reflect.ValueOf(names), reflect.ValueOf(tensors)}
	case specialTensors: // names and parameters, then names and buffers, which Go keeps
		var results []reflect.Value
		for _, of := range []func(func(string, gotorch.Tensor) bool){module.NamedParameters(), module.NamedBuffers()} {
			var names []string
			var tensors []borrowed
			for name, t := range of {
				names, tensors = append(names, name), append(tensors, borrowed{t})
			}
			results = append(results, reflect.ValueOf(names), reflect.ValueOf(tensors))
		}
		return results
	case specialLoad:
		names := in.value(reflect.TypeFor[[]string]()).Interface().([]string)
		tensors := in.value(reflect.TypeFor[[]gotorch.Tensor]()).Interface().([]gotorch.Tensor)
		dict := nn.StateDict{}
		for i, name := range names {
			dict[name] = tensors[i]
		}
		if err := module.LoadStateDict(dict); err != nil {
			return []reflect.Value{reflect.ValueOf(err.Error())}
		}
		return nil
	case specialTrain:
		module.Train(in.next() != 0)
		return nil
	case specialConvert:
		d, err := gotorch.ParseDType(in.text())
		if err != nil {
			panic(broken(err.Error()))
		}
		module.To(d)
		return nil
	case specialText:
		return []reflect.Value{reflect.ValueOf(module.String())}
	}
	panic(broken(fmt.Sprintf("there is no function %d", index)))
}

// keepModules keeps modules that a function has returned, and tells their numbers.
func keepModules(results []reflect.Value) []reflect.Value {
	for i, r := range results {
		if m, ok := r.Interface().(nn.Modular); ok {
			numbers++
			kept[numbers] = m
			results[i] = reflect.ValueOf(numbers)
		}
	}
	return results
}

// borrowed is a tensor that Python sees and Go keeps.
type borrowed struct{ gotorch.Tensor }

// invoke reads the number of parameters and their values, then the number of options and their names and
// values, and calls function with them.
func (r *reader) invoke(function reflect.Value) []reflect.Value {
	t := function.Type()
	var args []reflect.Value
	fixed := t.NumIn()
	if t.IsVariadic() {
		fixed--
	}
	for i := range int(r.next()) {
		if i < fixed {
			args = append(args, r.value(t.In(i)))
		} else {
			if !t.IsVariadic() {
				panic(broken(fmt.Sprintf("%s has only %d parameters", t, fixed)))
			}
			args = append(args, r.value(t.In(fixed).Elem()))
		}
	}
	if len(args) < fixed {
		panic(broken(fmt.Sprintf("%s has %d parameters, not %d", t, fixed, len(args))))
	}
	n := int(r.next())
	if n == 0 {
		return function.Call(args)
	}
	if !t.IsVariadic() || t.In(fixed).Elem().Kind() != reflect.Struct {
		panic(broken(fmt.Sprintf("%s has no options", t)))
	}
	return function.Call(append(args, r.fields(t.In(fixed).Elem(), n)))
}

// fields reads the names and values of n fields of a struct.
func (r *reader) fields(t reflect.Type, n int) reflect.Value {
	options := reflect.New(t).Elem()
	for range n {
		name := r.text()
		field := options.FieldByName(name)
		if !field.IsValid() {
			panic(broken(fmt.Sprintf("%s has no field %s", t, name)))
		}
		field.Set(r.value(field.Type()))
	}
	return options
}

// ofNames reads a type whose values have names in Python.
func (r *reader) ofNames(t reflect.Type) (reflect.Value, bool) {
	if t == reflect.TypeFor[F.Reduction]() {
		name := r.named()
		i := slices.Index([]string{"mean", "sum", "none", "batchmean"}, name)
		if i < 0 {
			i = 99
		}
		return reflect.ValueOf(F.Reduction(i)), true
	}
	return reflect.Value{}, false
}

// named reads a string with its tag.
func (r *reader) named() string {
	if tag := r.next(); tag != tagString {
		panic(broken(fmt.Sprintf("value of tag %d for a name", tag)))
	}
	return r.text()
}
