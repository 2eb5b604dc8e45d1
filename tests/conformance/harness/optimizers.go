package main

/*
#include <stdint.h>

static int64_t call_closure(int64_t function) { return ((int64_t (*)(void))(intptr_t)function)(); }
*/
import "C"

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/optim"
)

// The optimisers of package optim, by PyTorch's names: their constructors.
var optimizers = map[string]any{
	"ASGD": optim.ASGD, "Adafactor": optim.Adafactor, "Adadelta": optim.Adadelta, "Adagrad": optim.Adagrad, "Adam": optim.Adam, "AdamW": optim.AdamW,
	"Adamax": optim.Adamax, "LBFGS": optim.LBFGS, "Muon": optim.Muon, "NAdam": optim.NAdam, "RAdam": optim.RAdam, "RMSprop": optim.RMSprop, "Rprop": optim.Rprop,
	"SGD": optim.SGD, "SparseAdam": optim.SparseAdam,
}

const (
	specialOptimizer = -30 - iota
	specialStep
	specialZeroGrad
	specialSaveOptimizer
	specialLoadOptimizer
	specialAddGroup
	specialStepWith
	specialNameParams
)

// stateful has a state dict.
type stateful interface {
	StateDict() gotorch.Dict
	LoadStateDict(dict gotorch.Dict) error
}

func runOptimizers(index int64, in *reader) []reflect.Value {
	if index == specialOptimizer {
		name := in.text()
		function, ok := optimizers[name]
		if !ok {
			panic(broken("there is no optimizer " + name))
		}
		made := in.invoke(reflect.ValueOf(function))
		numbers++
		kept[numbers], given[numbers] = made[0].Interface(), in.tensors
		in.tensors = nil
		return []reflect.Value{reflect.ValueOf(numbers)}
	}
	number := in.next()
	object, opt := kept[number].(stateful), optim.Optimizer(nil)
	if o, ok := kept[number].(optim.Optimizer); ok {
		opt = o
	}
	switch index {
	case specialStep:
		opt.Step()
	case specialStepWith: // the address of a function in Python that returns a loss, as a handle
		function := C.int64_t(in.next())
		opt.StepWith(func() gotorch.Tensor {
			loss := C.call_closure(function)
			if loss == 0 {
				panic("the closure has raised an exception")
			}
			p := new(unsafe.Pointer)
			*(*int64)(unsafe.Pointer(p)) = int64(loss)
			t := gotorch.Tensor{T: p}
			in.tensors = append(in.tensors, t) // to be released
			return t
		})
	case specialZeroGrad:
		opt.ZeroGrad()
	case specialAddGroup: // and the fields of the group that are false, a line for each
		group := in.invoke(reflect.ValueOf(opt).MethodByName("AddGroup"))[0].Elem()
		for _, name := range strings.Fields(in.text()) {
			group.FieldByName(name).SetBool(false)
		}
		given[number] = append(given[number], in.tensors...)
		in.tensors = nil
	case specialNameParams: // a line for each parameter of all groups; an empty one for none
		names := strings.Split(in.text(), "\n")
		optim.NameParams(opt, func(yield func(string, gotorch.Tensor) bool) {
			for _, group := range opt.ParamGroups() {
				for _, p := range group.Params() {
					if names[0] != "" && !yield(names[0], p) {
						return
					}
					names = names[1:]
				}
			}
		})
	case specialSaveOptimizer:
		if err := gotorch.Save(in.text(), object.StateDict()); err != nil {
			panic(err)
		}
	case specialLoadOptimizer:
		value, err := gotorch.Load(in.text())
		if err != nil {
			panic(err)
		}
		if err := object.LoadStateDict(value.(gotorch.Dict)); err != nil {
			panic(err)
		}
	default:
		panic(broken(fmt.Sprintf("there is no function %d", index)))
	}
	return nil
}
