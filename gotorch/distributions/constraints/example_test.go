package constraints_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
)

func Example() {
	x := gotorch.NewTensor([][]float64{{0.5, 0.5}, {0.5, 1.5}})
	fmt.Println(constraints.Interval(0, 1).Check(x)) // for each element
	fmt.Println(constraints.Simplex.Check(x))        // for each row, which has to sum to 1
	// Output:
	// tensor([[ True,  True],
	//         [ True, False]])
	// tensor([ True, False])
}
