package graph_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/graph"
)

// What is no folder of pb.export_model, or a damaged one, is an error before any of its code runs.
func ExampleOpen() {
	m, err := graph.Open("models/digits/1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	for _, in := range m.Inputs() {
		fmt.Println(in)
	}
	fmt.Println(m.Call(gotorch.Ones([]int64{1, 1, 8, 8}))[0])
	// Output: open models/digits/1: no such file or directory
}
