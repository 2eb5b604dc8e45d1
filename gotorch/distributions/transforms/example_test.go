package transforms_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/transforms"
)

func Example() {
	x := gotorch.FromSlice([]float64{0, 1})
	t := transforms.Compose([]transforms.Transform{transforms.Affine(1.0, 2.0), transforms.Exp()})
	y := t.Forward(x)
	fmt.Println(y)                         // exp(1 + 2x)
	fmt.Println(t.LogAbsDetJacobian(x, y)) // log 2 + 1 + 2x
	fmt.Println(t.Inv().Forward(y).AllClose(x))
	// Output:
	// tensor([ 2.7183, 20.0855], dtype=torch.float64)
	// tensor([1.6931, 3.6931], dtype=torch.float64)
	// true
}

// A parameter that must be positive is learned as one without bounds.
func ExampleTransformTo() {
	positive := transforms.TransformTo(constraints.Positive)
	fmt.Println(positive.Forward(gotorch.FromSlice([]float64{-1, 0, 1})))
	// Output: tensor([0.3679, 1.0000, 2.7183], dtype=torch.float64)
}
