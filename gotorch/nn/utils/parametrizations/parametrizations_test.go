package parametrizations_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils/parametrizations"
)

func Example() {
	layer := parametrizations.Orthogonal(nn.Linear(3, 5))
	gram := layer.Weight.Transpose2D().MatMul(layer.Weight)
	fmt.Println(gram.AllClose(gotorch.Eye(3), gotorch.AllCloseOptions{ATol: new(1e-5)}))

	conv := parametrizations.WeightNorm(nn.Conv2d(2, 4, 3))
	for name, p := range conv.NamedParameters() {
		fmt.Println(name, p.Shape())
	}
	// Output:
	// true
	// bias [4]
	// parametrizations.weight.original0 [4 1 1 1]
	// parametrizations.weight.original1 [4 2 3 3]
}
