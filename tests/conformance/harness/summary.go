package main

import (
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// specialSummary is nn.Summary of a module for tensors, some of which may be none: names of modules, and their FLOPs,
// forward and backward; then shapes of what the module returns.
const specialSummary = -52

func runSummary(in *reader) []reflect.Value {
	module := kept[in.next()].(nn.Modular)
	training := in.next() != 0
	var inputs []any
	for _, t := range in.value(reflect.TypeFor[[]gotorch.Tensor]()).Interface().([]gotorch.Tensor) {
		inputs = append(inputs, t)
	}
	s := nn.Summary(module, inputs, nn.SummaryOptions{Training: training, Backward: true})
	var names []string
	var forward, backward, sizes []int64
	for _, row := range s.Modules {
		names, forward, backward = append(names, row.Name), append(forward, row.FLOPs), append(backward, row.BackwardFLOPs)
	}
	for _, shape := range s.Modules[0].Outputs {
		sizes = append(append(sizes, int64(len(shape))), shape...)
	}
	var results []reflect.Value
	for _, v := range []any{names, forward, backward, sizes, s.Parameters} {
		results = append(results, reflect.ValueOf(v))
	}
	return results
}
