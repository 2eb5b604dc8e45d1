package main

import (
	"reflect"

	"gotorch.dev/gotorch"
)

// Functions that PyTorch has in Python only. Python gives the name, tensors, and numbers, of which 1<<40 is one that
// is left out.
const specialComposed = -100

func runComposed(_ int64, in *reader) []reflect.Value {
	name := in.text()
	xs := in.value(reflect.TypeFor[tensors]()).Interface().(tensors)
	numbers := make([]int64, in.next())
	for i := range numbers {
		numbers[i] = in.next()
	}
	number := func(i int) *int64 {
		if numbers[i] == 1<<40 {
			return nil
		}
		return &numbers[i]
	}
	var found tensors
	switch name {
	case "unravel_index":
		found = gotorch.UnravelIndex(xs[0], numbers)
	case "broadcast_shapes":
		var shapes [][]int64
		for len(numbers) > 0 {
			shapes, numbers = append(shapes, numbers[1:1+numbers[0]]), numbers[1+numbers[0]:]
		}
		return []reflect.Value{reflect.ValueOf(gotorch.BroadcastShapes(shapes...))}
	case "svd_lowrank":
		u, s, v := gotorch.SVDLowRank(xs[0], gotorch.SVDLowRankOptions{Q: number(0), NIter: number(1), M: xs[1]})
		found = tensors{u, s, v}
	case "pca_lowrank":
		u, s, v := gotorch.PCALowRank(xs[0], gotorch.PCALowRankOptions{Q: number(0), NIter: number(1), NoCenter: numbers[2] == 0})
		found = tensors{u, s, v}
	case "spdiags":
		found = tensors{gotorch.SparseSpdiags(xs[0], xs[1], numbers[1:], gotorch.SparseSpdiagsOptions{Layout: gotorch.Layout(numbers[0])})}
	default:
		panic(broken("there is no function " + name))
	}
	return []reflect.Value{reflect.ValueOf(found)}
}
