package aoti_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/aoti"
)

func Example() {
	m, err := aoti.Load("model.pt2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	for _, in := range m.Inputs() {
		fmt.Println(in.Name, in.DType.Name())
	}

	x, kind := gotorch.Ones([]int64{2, 8}), gotorch.FromSlice([]int64{3, 7}, 2)
	outputs := m.Run(x, kind, gotorch.Full(nil, 0.5))
	fmt.Println(m.Outputs(), outputs[0].Shape(), outputs[1].Shape())
	// Output:
	// 0 float32
	// 1 int64
	// temperature float32
	// [p hidden] [2 3] [2 16]
}

func ExampleModel_UpdateConstants() {
	m, err := aoti.Load("model.pt2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	bias := m.ConstantValues()["hidden.bias"]
	if err := m.UpdateConstants(map[string]gotorch.Tensor{"hidden.bias": bias.Fill_(-100)}); err != nil {
		fmt.Println(err)
		return
	}
	hidden := m.Run(gotorch.Ones([]int64{1, 8}), gotorch.Zeros([]int64{1}).To(gotorch.Int64), gotorch.Full(nil, 1.0))[1]
	fmt.Println(gotorch.Item[float32](hidden.Sum()))
	// Output: 0
}
