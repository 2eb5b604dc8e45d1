// Hello finds the line through some points by gradient descent: a first program with gotorch.
package main

import (
	"fmt"

	"gotorch.dev/gotorch"
)

func main() {
	x := gotorch.FromSlice([]float32{0, 1, 2, 3})
	y := gotorch.FromSlice([]float32{1, 3, 5, 7})

	slope := gotorch.Zeros([]int64{1}, gotorch.TensorOptions{RequiresGrad: true})
	offset := gotorch.Zeros([]int64{1}, gotorch.TensorOptions{RequiresGrad: true})
	for range 500 {
		loss := x.Mul(slope).Add(offset).Sub(y).Pow(2).Mean()
		loss.Backward()
		gotorch.NoGrad(func() {
			for _, p := range []gotorch.Tensor{slope, offset} {
				p.Sub_(p.Grad(), gotorch.Sub_Options{Alpha: 0.1})
				p.SetGrad(gotorch.Tensor{})
			}
		})
	}
	fmt.Printf("y = %.2f x + %.2f\n", gotorch.Item[float64](slope), gotorch.Item[float64](offset))
}
